/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aws_credentials.c - the chain of places that may have AWS credentials.
 */
#include "core/remote/credentials/aws_credentials.h"

#include <strings.h>

#include "core/base/err.h"
#include "core/remote/credentials/aws_metadata.h"

struct aws_credentials {
	char *profile, *config_file, *credentials_file;
	/* Files that others replace: a web identity's, a container's; their directories. */
	char *identity_file, *container_file, *identity_dir, *container_dir;
	char *region, *endpoint;
	struct credentials_cache cache;
};

/* ---- the files ---- */

/* A file that does not exist is like an empty one. */
static int read_profile(const struct aws_credentials *c, enum aws_file kind,
			struct aws_profile *ret)
{
	const char *path = kind == AWS_CONFIG_FILE ? c->config_file : c->credentials_file;
	auto_secret text = { 0 };
	int r = path ? secret_read_file(path, &text) : -ENOENT;

	return r < 0 ? err_except(r, -ENOENT, -ENOTDIR) :
		       aws_profile_parse(buf_span(&text), kind, c->profile, path, ret);
}

struct profiles {
	struct aws_profile credentials, config;
};

static void profiles_release(struct profiles *p)
{
	aws_profile_release(&p->credentials);
	aws_profile_release(&p->config);
}
#define auto_profiles __attribute__((cleanup(profiles_release))) struct profiles

static int read_profiles(const struct aws_credentials *c, struct profiles *ret)
{
	int r = read_profile(c, AWS_CREDENTIALS_FILE, &ret->credentials);

	if (r < 0)
		return r;
	r = read_profile(c, AWS_CONFIG_FILE, &ret->config);
	if (r < 0)
		return r;
	if (env_value("AWS_PROFILE") && !ret->credentials.found && !ret->config.found)
		return fail(-EINVAL,
			    "the profile '%s' (AWS_PROFILE) is neither in '%s' nor in '%s'",
			    c->profile, c->credentials_file ? c->credentials_file : "",
			    c->config_file ? c->config_file : "");
	return r;
}

/* The path of a file with a token, and its directory, in which a new file replaces it. */
static int token_of(const char *path, char **ret, char **ret_dir)
{
	int r = path ? path_absolute(path, ret) : 0;
	const char *slash;

	if (r < 0 || !path)
		return r;
	slash = strrchr(*ret, '/');
	/* The directory is the root: keep its slash. */
	if (slash == *ret)
		slash = *ret + strlen(*ret) - 1;
	*ret_dir = span_dup_str(span_of(*ret, (size_t)(slash - *ret) + 1));
	return *ret_dir ? 0 : fail(-ENOMEM, "cannot hold credentials");
}

/* Copy the first text that is not NULL, if there is one. */
static int first_of(const char *const *from, size_t n, char **ret)
{
	for (size_t i = 0; i < n; i++) {
		if (!from[i])
			continue;
		*ret = strdup(from[i]);
		return *ret ? 0 : fail(-ENOMEM, "cannot hold credentials");
	}
	return 0;
}

static int read_settings(struct aws_credentials *c)
{
	const char *identity = env_value("AWS_WEB_IDENTITY_TOKEN_FILE");
	auto_profiles p = { 0 };
	int r = read_profiles(c, &p);
	const char *region[] = { env_value("AWS_REGION"), env_value("AWS_DEFAULT_REGION"),
				 p.config.region, p.credentials.region };
	const char *endpoint[] = { env_value("AWS_ENDPOINT_URL_S3"), env_value("AWS_ENDPOINT_URL"),
				   p.config.endpoint, p.credentials.endpoint };

	if (r < 0)
		return r;
	r = first_of(region, ARRAY_LEN(region), &c->region);
	if (r < 0)
		return r;
	r = first_of(endpoint, ARRAY_LEN(endpoint), &c->endpoint);
	if (r < 0)
		return r;
	r = token_of(identity ? identity : p.config.token_file, &c->identity_file,
		     &c->identity_dir);
	if (r < 0)
		return r;
	return token_of(env_value("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"), &c->container_file,
			&c->container_dir);
}

/* ---- the chain: each function returns 1 and keys, 0 when its place has none, or an error ---- */

static int from_environment(struct credentials *ret)
{
	static const char *const name[] = { "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
					    "AWS_SESSION_TOKEN" };
	const char *v[ARRAY_LEN(name)];
	int r;

	for (size_t i = 0; i < ARRAY_LEN(name); i++) {
		v[i] = env_value(name[i]);
		if (v[i] && !secret_is_valid(span_str(v[i])))
			return fail(-EINVAL, "the value of %s is not one", name[i]);
	}
	if (!v[0] && !v[1])
		return 0;
	if (!v[0] || !v[1])
		return fail(-EINVAL, "%s is set, and %s is not", name[!v[0]], name[!!v[0]]);
	r = credentials_of(v[0], v[1], v[2], ret);
	return r < 0 ? r : 1;
}

static int from_profile(const struct aws_credentials *c, struct credentials *ret)
{
	auto_profiles p = { 0 };
	const struct aws_profile *const from[] = { &p.credentials, &p.config };
	int r = read_profiles(c, &p), found = 0;

	for (size_t i = 0; i < ARRAY_LEN(from) && r >= 0 && !found; i++) {
		if (from[i]->key_id && from[i]->secret) {
			r = credentials_of(from[i]->key_id, from[i]->secret, from[i]->token, ret);
			found = 1;
		} else if (from[i]->key_id || from[i]->secret) {
			r = fail(-EINVAL,
				 "the profile '%s' has only one of aws_access_key_id and "
				 "aws_secret_access_key",
				 c->profile);
		}
	}
	for (size_t i = 0; i < ARRAY_LEN(from) && r >= 0 && !found; i++)
		if (from[i]->other || (from[i]->role && !from[i]->token_file))
			r = fail(
				-EINVAL,
				"the profile '%s' has '%s', which is not followed here: export the "
				"credentials with `aws configure export-credentials --format env`",
				c->profile, from[i]->other ? from[i]->other : "role_arn");
	return r < 0 ? r : found;
}

static bool has_identity(void)
{
	return env_value("AWS_WEB_IDENTITY_TOKEN_FILE") && env_value("AWS_ROLE_ARN");
}

static int from_identity(const struct aws_credentials *c, struct credentials *ret)
{
	struct aws_web_identity who = { .role = env_value("AWS_ROLE_ARN"),
					.session = env_value("AWS_ROLE_SESSION_NAME"),
					.token_file = c->identity_file,
					.region = c->region };
	auto_profiles p = { 0 };
	int r;

	if (!has_identity()) {
		r = read_profiles(c, &p);
		if (r < 0 || !p.config.role || !p.config.token_file || !c->identity_file)
			return r;
		who.role = p.config.role;
		who.session = p.config.session;
	}
	r = aws_ask_web_identity(&who, ret);
	return r < 0 ? r : 1;
}

/* Credentials that are found without a request to a server. */
static int find_at_hand(void *arg, struct credentials *ret)
{
	const struct aws_credentials *c = arg;
	int r = from_environment(ret);

	return r == 0 && !has_identity() ? from_profile(c, ret) : r;
}

static int aws_find(void *arg, struct credentials *ret)
{
	const struct aws_credentials *c = arg;
	const char *disabled = env_value("AWS_EC2_METADATA_DISABLED");
	int r = find_at_hand(arg, ret);

	if (r == 0)
		r = from_identity(c, ret);
	if (r != 0)
		return MIN(r, 0);
	if (aws_has_container())
		return aws_ask_container(c->container_file, ret);
	r = disabled && !strcasecmp(disabled, "true") ? fail(-EACCES, "no credentials") :
							aws_ask_instance(ret);
	return r < 0 ? err_at(r,
			      "neither AWS_ACCESS_KEY_ID nor the profile '%s' of '%s' has any (-o "
			      "anonymous asks without)",
			      c->profile,
			      c->credentials_file ? c->credentials_file : "credentials") :
		       0;
}

/* ---- opening ---- */

static const struct credentials_source source = { aws_find, find_at_hand };

int aws_credentials_new(struct aws_credentials **ret)
{
	auto_of(aws_credentials) struct aws_credentials *c = calloc(1, sizeof(*c));
	const char *profile = env_value("AWS_PROFILE");
	int r;

	if (!c)
		return fail(-ENOMEM, "cannot hold credentials");
	credentials_cache_init(&c->cache, &source, c);
	c->profile = strdup(profile ? profile : "default");
	r = c->profile ?
		    path_of_user(env_value("AWS_CONFIG_FILE"), ".aws/config", &c->config_file) :
		    fail(-ENOMEM, "cannot hold credentials");
	if (r < 0)
		return r;
	r = path_of_user(env_value("AWS_SHARED_CREDENTIALS_FILE"), ".aws/credentials",
			 &c->credentials_file);
	if (r < 0)
		return r;
	r = read_settings(c);
	if (r < 0)
		return r;
	*ret = take(c);
	return 0;
}

void aws_credentials_free(struct aws_credentials *c)
{
	if (!c)
		return;
	credentials_cache_release(&c->cache);
	free(c->profile);
	free(c->config_file);
	free(c->credentials_file);
	free(c->identity_file);
	free(c->container_file);
	free(c->identity_dir);
	free(c->container_dir);
	free(c->region);
	free(c->endpoint);
	free(c);
}

const char *aws_region(const struct aws_credentials *c)
{
	return c->region;
}

const char *aws_endpoint(const struct aws_credentials *c)
{
	return c->endpoint;
}

const char *aws_credentials_file(const struct aws_credentials *c, size_t i)
{
	const char *const path[] = { c->config_file, c->credentials_file, c->identity_dir,
				     c->container_dir };

	for (size_t k = 0; k < ARRAY_LEN(path); k++)
		if (path[k] && i-- == 0)
			return path[k];
	return NULL;
}

struct credentials_cache *aws_credentials_cache(struct aws_credentials *c)
{
	return &c->cache;
}
