/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aws_metadata.c - credentials from a server.
 */
#include "core/remote/credentials/aws_metadata.h"

#include <stdio.h>
#include <time.h>

#include "core/base/err.h"
#include "core/remote/credentials/credentials_server.h"
#include "core/remote/documents/s3_xml.h"

#define CONTAINER_HOST "http://169.254.170.2"
#define INSTANCE "http://169.254.169.254"

/* ---- answers ---- */

/* The codes of a refusal for a web identity are words of AWS's own. */
static void code_of(struct span document, char *ret, size_t max)
{
	struct s3_error e;

	s3_parse_error(document, &e);
	snprintf(ret, max, "%s", e.code);
}

/* Take a string that may be sent, in place of an earlier one. what names the document in notes. */
static int aws_metadata_take_value(void *what, struct json_pull *p, const struct secret_member *m)
{
	struct span text;
	int r = json_pull_kind(p);

	if (r == JSON_NULL)
		return json_pull_skip(p);
	if (r != JSON_STRING || json_pull_str(p, &text) < 0 || !secret_is_valid(text))
		return fail(-EUCLEAN, "%s: '%s' is not one", (const char *)what, m->name);
	secret_free(*m->to);
	*m->to = span_dup_str(text);
	return *m->to ? 0 : fail(-ENOMEM, "cannot hold credentials");
}

int aws_keys_parse(struct span text, const char *what, struct credentials *ret)
{
	auto_credentials k = { 0 };
	auto_free char *expires = NULL;
	const struct secret_member member[] = { { "AccessKeyId", &k.id },
						{ "SecretAccessKey", &k.secret },
						{ "Token", &k.token },
						{ "Expiration", &expires } };
	auto_secret_pull p;
	time_t t = 0;
	int r;

	json_pull_init(&p, text, what);
	r = secret_pull_members(&p, member, ARRAY_LEN(member), aws_metadata_take_value,
				(void *)(uintptr_t)what);
	if (r < 0)
		return r;
	if (!k.id || !k.secret || (expires && !parse_time(span_str(expires), &t)))
		return fail(-EUCLEAN, "%s: it has no keys", what);
	k.expires = t;
	*ret = k;
	k = (struct credentials){ 0 };
	return 0;
}

static int ask_for_keys(struct http *h, struct credentials_question *q, struct credentials *ret)
{
	auto_secret text = { 0 };
	int r = credentials_ask(h, q, &text);

	return r < 0 ? r :
		       credentials_refused(aws_keys_parse(buf_span(&text), q->name, ret),
					   "no credentials");
}

/* ---- a container ---- */

bool aws_has_container(void)
{
	return env_value("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") ||
	       env_value("AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

static int container_url(char **ret)
{
	const char *relative = env_value("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
	const char *full = env_value("AWS_CONTAINER_CREDENTIALS_FULL_URI");
	static const char *const services[] = { "169.254.170.2", "169.254.170.23",
						"[fd00:ec2::23]" };

	*ret = relative ? str_fmt(CONTAINER_HOST "%s%s", relative[0] == '/' ? "" : "/", relative) :
			  strdup(full ? full : "");
	if (!*ret)
		return fail(-ENOMEM, "cannot hold credentials");
	if (!credentials_may_go_to(*ret, services, ARRAY_LEN(services)) || strchr(*ret, '@'))
		return fail(-EINVAL,
			    "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither a URL of https nor "
			    "one of this machine");
	return 0;
}

/* *ret is NULL when no token is configured. */
static int container_header(const char *file, char **ret)
{
	const char *token = env_value("AWS_CONTAINER_AUTHORIZATION_TOKEN");
	auto_secret text = { 0 };
	int r = file ? secret_read_file(file, &text) : 0;

	*ret = NULL;
	if (r < 0)
		return credentials_refused(r, "no credentials");
	if (!file && !token)
		return 0;
	*ret = credentials_header("Authorization", file ? buf_span(&text) : span_str(token));
	return *ret ? 0 : fail(-EACCES, "no credentials: the token for the container's is not one");
}

int aws_ask_container(const char *token_file, struct credentials *ret)
{
	auto_free char *url = NULL;
	struct credentials_question q = { .name = "the container's credentials" };
	auto_of(secret) char *header = NULL;
	auto_of(http) struct http *h = NULL;
	int r = container_url(&url);

	if (r < 0)
		return r;
	r = container_header(token_file, &header);
	if (r < 0)
		return r;
	r = credentials_client(CREDENTIALS_PROGRESS_MS, true, &h);
	if (r < 0)
		return r;
	q.url = url;
	q.header = header;
	return ask_for_keys(h, &q, ret);
}

/* ---- an instance ---- */

static int ask_instance(struct http *h, const char *server, struct credentials *ret)
{
	auto_free char *token_url = str_fmt("%s/latest/api/token", server);
	auto_free char *roles_url =
		str_fmt("%s/latest/meta-data/iam/security-credentials/", server);
	auto_free char *keys_url = NULL;
	auto_secret token = { 0 };
	auto_buf roles = { 0 };
	struct credentials_question q = { .name = "the instance's metadata",
					  .url = token_url,
					  .method = "PUT",
					  .header = "X-aws-ec2-metadata-token-ttl-seconds: 300" };
	auto_of(secret) char *header = NULL;
	size_t n;
	int r = token_url && roles_url ? credentials_ask(h, &q, &token) : -ENOMEM;

	if (r < 0)
		return r;
	header = credentials_header("X-aws-ec2-metadata-token", buf_span(&token));
	q = (struct credentials_question){ .name = q.name, .url = roles_url, .header = header };
	r = header ? credentials_ask(h, &q, &roles) :
		     fail(-EACCES, "no credentials: the instance's metadata");
	if (r < 0)
		return r;
	n = buf_str(&roles) ? strcspn(buf_str(&roles), "\r\n") : 0;
	if (!n || !secret_is_valid(span_of(roles.p, n)))
		return fail(-EACCES, "no credentials: the instance has no role");
	keys_url = str_fmt("%s%.*s", roles_url, (int)n, buf_str(&roles));
	q.url = keys_url;
	return keys_url ? ask_for_keys(h, &q, ret) : -ENOMEM;
}

int aws_ask_instance(struct credentials *ret)
{
	const char *server = env_value("AWS_EC2_METADATA_SERVICE_ENDPOINT");
	auto_free char *tidy = NULL;
	auto_of(http) struct http *h = NULL;
	size_t n;
	int r;

	server = server ? server : INSTANCE;
	n = strlen(server);
	while (n && server[n - 1] == '/')
		n--;
	tidy = span_dup_str(span_of(server, n));
	r = tidy ? credentials_client(CREDENTIALS_MACHINE_MS, true, &h) :
		   fail(-ENOMEM, "cannot hold credentials");
	return r < 0 ? r : ask_instance(h, tidy, ret);
}

/* ---- a web identity ---- */

static int identity_form(const struct aws_web_identity *who, struct buf *ret)
{
	auto_secret token = { 0 };
	struct form_field field[] = {
		{ "Action", span_str("AssumeRoleWithWebIdentity") },
		{ "Version", span_str("2011-06-15") },
		{ "RoleArn", span_str(who->role) },
		{ "RoleSessionName", span_str(who->session ? who->session : "pytreefs") },
		{ "WebIdentityToken" },
	};
	struct span text;
	int r = secret_read_file(who->token_file, &token);

	text = buf_span(&token);
	while (text.n && strchr("\r\n \t", text.p[text.n - 1]))
		text.n--;
	if (r < 0)
		return r;
	if (!text.n)
		return fail(-EACCES, "no credentials: '%s' is empty", who->token_file);
	field[ARRAY_LEN(field) - 1].value = text;
	return credentials_form(field, ARRAY_LEN(field), ret);
}

/* Parse the answer of STS. */
static int take_identity(struct span text, struct credentials *ret)
{
	auto_sts_keys found = { 0 };
	auto_credentials k = { 0 };
	int r = sts_parse_keys(text, &found);

	if (r < 0)
		return credentials_refused(r, "no credentials for the web identity");
	k = (struct credentials){ .id = span_dup_str(buf_span(&found.id)),
				  .secret = span_dup_str(buf_span(&found.secret)),
				  .token = span_dup_str(buf_span(&found.token)),
				  .expires = found.expires };
	if (!k.id || !k.secret || !k.token)
		return fail(-ENOMEM, "cannot hold credentials");
	*ret = k;
	k = (struct credentials){ 0 };
	return 0;
}

int aws_ask_web_identity(const struct aws_web_identity *who, struct credentials *ret)
{
	const char *for_sts = env_value("AWS_ENDPOINT_URL_STS");
	const char *given = for_sts ? for_sts : env_value("AWS_ENDPOINT_URL");
	auto_free char *url = NULL;
	auto_secret form = { 0 }, text = { 0 };
	struct credentials_question q = { .name = "the credentials for the web identity",
					  .method = "POST",
					  .code = code_of };
	auto_of(http) struct http *h = NULL;
	int r = credentials_refused(identity_form(who, &form), "no credentials");

	if (r < 0)
		return r;
	url = given       ? strdup(given) :
	      who->region ? str_fmt("https://sts.%s.amazonaws.com%s/", who->region,
				    strncmp(who->region, "cn-", 3) ? "" : ".cn") :
			    strdup("https://sts.amazonaws.com/");
	if (!url)
		return fail(-ENOMEM, "cannot hold credentials");
	r = credentials_client(CREDENTIALS_PROGRESS_MS, false, &h);
	if (r < 0)
		return r;
	q.url = url;
	q.send = buf_span(&form);
	r = credentials_ask(h, &q, &text);
	return r < 0 ? r : take_identity(buf_span(&text), ret);
}
