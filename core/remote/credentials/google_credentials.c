/* SPDX-License-Identifier: Apache-2.0 */
/*
 * google_credentials.c - the chain of places that may have Google credentials, and the requests for
 * a token.
 */
#include "core/remote/credentials/google_credentials.h"

#include <strings.h>
#include <time.h>

#include "core/base/err.h"
#include "core/remote/credentials/credentials_server.h"
#include "core/remote/documents/gcs_json.h"
#include "core/remote/credentials/google_jwt.h"

#define SCOPE_READ "https://www.googleapis.com/auth/devstorage.read_only"
#define SCOPE_WRITE "https://www.googleapis.com/auth/devstorage.read_write"
#define FILE_NAME "application_default_credentials.json"
#define MACHINE "169.254.169.254"
#define TOKEN_PATH "/computeMetadata/v1/instance/service-accounts/default/token"
#define FLAVOR "Metadata-Flavor: Google"

struct google_credentials {
	struct credentials_cache cache;
	char *file; /* NULL: without a home directory no path is known */
	bool is_given;
	const char *scope;
};

/* ---- requests ---- */

static int google_ask(struct credentials_question *q, unsigned progress_ms, bool near,
		      struct credentials *ret)
{
	auto_secret text = { 0 };
	auto_of(http) struct http *h = NULL;
	int64_t now = time(NULL);
	int r = credentials_client(progress_ms, near, &h);

	if (r < 0)
		return r;
	q->code = gcs_parse_error;
	r = credentials_ask(h, q, &text);
	return r < 0 ? r :
		       credentials_refused(google_token_parse(buf_span(&text), q->name, now, ret),
					   "no credentials");
}

static int service_form(const struct google_account *a, const char *scope, struct buf *ret)
{
	auto_secret assertion = { 0 };
	struct form_field field[] = {
		{ "grant_type", span_str("urn:ietf:params:oauth:grant-type:jwt-bearer") },
		{ "assertion" },
	};
	int r = google_assertion(a, scope, time(NULL), &assertion);

	if (r < 0)
		return r;
	field[1].value = buf_span(&assertion);
	return credentials_form(field, ARRAY_LEN(field), ret);
}

static int user_form(const struct google_account *a, struct buf *ret)
{
	const struct form_field field[] = {
		{ "grant_type", span_str("refresh_token") },
		{ "client_id", span_str(a->client_id) },
		{ "client_secret", span_str(a->client_secret) },
		{ "refresh_token", span_str(a->refresh_token) },
	};

	return credentials_form(field, ARRAY_LEN(field), ret);
}

static int ask_endpoint(const struct google_account *a, const char *file, const char *scope,
			struct credentials *ret)
{
	auto_secret form = { 0 };
	struct credentials_question q = { .name = "the token endpoint",
					  .url = a->token_uri,
					  .method = "POST" };
	int r;

	if (!credentials_may_go_to(a->token_uri, NULL, 0) || strchr(a->token_uri, '@'))
		return fail(-EINVAL,
			    "the token_uri of '%s' is neither a URL of https nor one of this "
			    "machine",
			    file);
	r = a->kind == GOOGLE_SERVICE_ACCOUNT ? service_form(a, scope, &form) : user_form(a, &form);
	if (r < 0)
		return r == -ENOMEM ? r : err_at(r, "'%s'", file);
	q.send = buf_span(&form);
	return google_ask(&q, CREDENTIALS_PROGRESS_MS, false, ret);
}

static int ask_machine(struct credentials *ret)
{
	const char *given = env_value("GCE_METADATA_HOST");
	auto_free char *url = str_fmt("http://%s" TOKEN_PATH, given ? given : MACHINE);
	struct credentials_question q = {
		.name = "the machine's metadata", .url = url, .header = FLAVOR, .expect = FLAVOR
	};

	if (given && strspn(given, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				   ".-:[]") != strlen(given))
		return fail(-EINVAL, "the value of GCE_METADATA_HOST is not HOST or HOST:PORT");
	return url ? google_ask(&q, CREDENTIALS_MACHINE_MS, true, ret) :
		     fail(-ENOMEM, "cannot hold credentials");
}

/* ---- the chain ---- */

/* Returns 1, or 0 when the file does not exist and its path is only the default. */
static int from_file(const struct google_credentials *c, struct credentials *ret)
{
	auto_google_account a = { 0 };
	auto_secret text = { 0 };
	int r = c->file ? secret_read_file(c->file, &text) : -ENOENT;

	if ((r == -ENOENT || r == -ENOTDIR) && !c->is_given) {
		err_clear();
		return 0;
	}
	if (r < 0)
		return credentials_refused(r, "no credentials");
	r = google_account_parse(buf_span(&text), c->file, &a);
	if (r < 0)
		return r;
	r = ask_endpoint(&a, c->file, c->scope, ret);
	return r < 0 ? r : 1;
}

static int google_find(void *arg, struct credentials *ret)
{
	const struct google_credentials *c = arg;
	const char *disabled = env_value("NO_GCE_CHECK");
	int r = from_file(c, ret);

	if (r != 0)
		return MIN(r, 0);
	r = disabled && !strcasecmp(disabled, "true") ? fail(-EACCES, "no credentials") :
							ask_machine(ret);
	return r < 0 ? err_at(r,
			      "GOOGLE_APPLICATION_CREDENTIALS is not set, and '%s' does not exist "
			      "(-o anonymous asks without)",
			      c->file ? c->file : FILE_NAME) :
		       0;
}

/* ---- opening ---- */

static const struct credentials_source source = { .find = google_find };

int google_credentials_new(bool writes, struct google_credentials **ret)
{
	const char *given = env_value("GOOGLE_APPLICATION_CREDENTIALS");
	const char *config = env_value("CLOUDSDK_CONFIG");
	auto_free char *configured = config ? str_fmt("%s/" FILE_NAME, config) : NULL;
	struct google_credentials *c = calloc(1, sizeof(*c));
	int r;

	if (!c || (config && !configured)) {
		free(c);
		return fail(-ENOMEM, "cannot hold credentials");
	}
	c->scope = writes ? SCOPE_WRITE : SCOPE_READ;
	c->is_given = given != NULL;
	credentials_cache_init(&c->cache, &source, c);
	r = path_of_user(given ? given : configured, ".config/gcloud/" FILE_NAME, &c->file);
	if (r < 0) {
		google_credentials_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void google_credentials_free(struct google_credentials *c)
{
	if (!c)
		return;
	credentials_cache_release(&c->cache);
	free(c->file);
	free(c);
}

struct credentials_cache *google_credentials_cache(struct google_credentials *c)
{
	return &c->cache;
}

const char *google_credentials_file(const struct google_credentials *c, size_t i)
{
	return i == 0 ? c->file : NULL;
}
