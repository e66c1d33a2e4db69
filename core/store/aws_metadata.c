/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aws_metadata.c - credentials that a server gives.
 *
 * Each is asked by a client of its own, which ends with the answer: the client of a store never
 * waits for it, and no thread of it is left when the process gives up rights.
 */
#include "core/store/aws_metadata.h"

#include <stdio.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/http/http.h"
#include "core/store/aws_sign.h"
#include "core/store/s3_xml.h"

#define ANSWER_BYTES (256 << 10)
#define PROGRESS_MS 5000
#define REQUEST_MS 15000
#define INSTANCE_MS 1000 /* a machine that has none may not answer at all */
#define CONTAINER_HOST "http://169.254.170.2"
#define INSTANCE "http://169.254.169.254"

/* Whatever it was, there are no credentials; and that is what was wrong. */
static int refused(int r, const char *what)
{
	struct err_note why;

	if (r >= 0 || r == -ENOMEM)
		return r;
	err_save(r, &why);
	why.code = -EACCES;
	err_restore(&why);
	return err_at(-EACCES, "%s", what);
}

/* ---- one question ---- */

struct question {
	const char *name, *url;
	const char *method; /* NULL: GET */
	const char *header; /* "Name: value", a secret; NULL: none */
	struct span send;
};

static int add_header(void *arg, const struct http_request *req, struct http_headers *ret)
{
	const struct question *q = arg;

	return q->header ? http_header(ret, q->header) : 0;
}

/* The codes of a refusal for a web identity are words of AWS's own. */
static bool explain(void *arg, const struct http_refusal *refusal, struct http_request *req)
{
	struct s3_error e;

	s3_parse_error(refusal->document, &e);
	if (*e.code)
		snprintf(req->why, sizeof(req->why), "status %d (%s)", refusal->status, e.code);
	return false;
}

static int ask(struct http *h, struct question *q, struct buf *ret)
{
	struct http_request req = { .url = q->url,
				    .name = q->name,
				    .method = q->method,
				    .send = q->send,
				    .limit = ANSWER_BYTES,
				    .authorize = add_header,
				    .explain = explain,
				    .arg = q };
	int r = http_submit(h, &req);

	if (r >= 0)
		r = http_wait(h, &req);
	if (r >= 0)
		r = buf_add_span(ret, buf_span(&req.body));
	aws_secret_release(&req.body);
	return refused(r, "no credentials");
}

/* near: it is this machine, or one that no proxy may be asked for. */
static int client(unsigned progress_ms, bool near, struct http **ret)
{
	struct http_opts opts = HTTP_OPTS_DEFAULT;

	opts.connections = 1;
	opts.progress_ms = progress_ms;
	opts.request_ms = REQUEST_MS;
	opts.tries = 2;
	opts.no_proxy = near;
	opts.ca_file = getenv("SSL_CERT_FILE");
	return http_new(&opts, ret);
}

/* What lies in between may be spaces: a scheme and a token. */
static char *header_of(const char *name, struct span value)
{
	while (value.n && strchr("\r\n \t", value.p[value.n - 1]))
		value.n--;
	for (size_t i = 0; i < value.n; i++)
		if (value.p[i] < ' ' || value.p[i] >= 0x7f)
			return NULL;
	return value.n && value.n <= AWS_VALUE_MAX ? str_fmt("%s: %.*s", name, SPAN_ARG(value)) :
						     NULL;
}

/* ---- answers ---- */

static int take_value(const struct json *doc, const char *name, const char *what, char **ret)
{
	struct span text;
	int r = json_get_str(doc, name, what, &text);

	if (r <= 0)
		return r;
	if (!aws_value_is_valid(text))
		return fail(-EUCLEAN, "%s: '%s' is not one", what, name);
	*ret = span_dup_str(text);
	return *ret ? 1 : fail(-ENOMEM, "cannot hold credentials");
}

static int keys_of_json(const struct json *doc, const char *what, struct aws_keys *k)
{
	struct span expires = { 0 };
	time_t t = 0;
	int r = take_value(doc, "AccessKeyId", what, &k->id);

	if (r >= 0)
		r = take_value(doc, "SecretAccessKey", what, &k->secret);
	if (r >= 0)
		r = take_value(doc, "Token", what, &k->token);
	if (r >= 0)
		r = json_get_str(doc, "Expiration", what, &expires);
	if (r < 0)
		return r;
	if (!k->id || !k->secret || (r > 0 && !aws_time_parse(expires, &t)))
		return fail(-EUCLEAN, "%s: it has no keys", what);
	k->expires = t;
	return 0;
}

int aws_keys_parse(struct span text, const char *what, struct aws_keys *ret)
{
	struct aws_keys k = { 0 };
	auto_json doc = { 0 };
	int r = json_parse(text, what, &doc);

	if (r >= 0)
		r = keys_of_json(doc.root, what, &k);
	if (r < 0) {
		aws_keys_release(&k);
		return r;
	}
	*ret = k;
	return 0;
}

static int ask_for_keys(struct http *h, struct question *q, struct aws_keys *ret)
{
	auto_secret text = { 0 };
	int r = ask(h, q, &text);

	if (r >= 0)
		r = refused(aws_keys_parse(buf_span(&text), q->name, ret), "no credentials");
	return r;
}

/* ---- a container ---- */

bool aws_has_container(void)
{
	return aws_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") ||
	       aws_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

/* A token goes to this machine, to the two addresses of the services, or over https. */
static bool may_have_token(const char *url)
{
	static const char *const hosts[] = { "localhost",     "127.0.0.1",      "[::1]",
					     "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]" };
	size_t n;

	if (!strncmp(url, "https://", 8))
		return true;
	if (strncmp(url, "http://", 7) != 0)
		return false;
	url += 7;
	n = url[0] == '[' ? strcspn(url, "]") + 1 : strcspn(url, ":/");
	for (size_t i = 0; i < ARRAY_LEN(hosts); i++)
		if (n == strlen(hosts[i]) && !strncmp(url, hosts[i], n))
			return true;
	return false;
}

static int container_url(char **ret)
{
	const char *relative = aws_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
	const char *full = aws_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");

	*ret = relative ? str_fmt(CONTAINER_HOST "%s%s", relative[0] == '/' ? "" : "/", relative) :
			  strdup(full ? full : "");
	if (!*ret)
		return fail(-ENOMEM, "cannot hold credentials");
	if (!may_have_token(*ret) || strchr(*ret, '@'))
		return fail(-EINVAL,
			    "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither a URL of https nor "
			    "one of this machine");
	return 0;
}

/* NULL: none is given. */
static int container_header(const char *file, char **ret)
{
	const char *token = aws_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
	auto_secret text = { 0 };
	int r = file ? aws_read_file(file, &text) : 0;

	*ret = NULL;
	if (r < 0)
		return refused(r, "no credentials");
	if (!file && !token)
		return 0;
	*ret = header_of("Authorization", file ? buf_span(&text) : span_str(token));
	return *ret ? 0 : fail(-EACCES, "no credentials: the token for the container's is not one");
}

int aws_ask_container(const char *token_file, struct aws_keys *ret)
{
	auto_free char *url = NULL;
	struct question q = { .name = "the container's credentials" };
	char *header = NULL;
	struct http *h = NULL;
	int r = container_url(&url);

	if (r >= 0)
		r = container_header(token_file, &header);
	if (r >= 0)
		r = client(PROGRESS_MS, true, &h);
	q.url = url;
	q.header = header;
	if (r >= 0)
		r = ask_for_keys(h, &q, ret);
	http_free(h);
	aws_secret_free(header);
	return r;
}

/* ---- an instance ---- */

static int ask_instance(struct http *h, const char *server, struct aws_keys *ret)
{
	auto_free char *token_url = str_fmt("%s/latest/api/token", server);
	auto_free char *roles_url =
		str_fmt("%s/latest/meta-data/iam/security-credentials/", server);
	auto_free char *keys_url = NULL;
	auto_secret token = { 0 };
	auto_buf roles = { 0 };
	struct question q = { .name = "the instance's metadata",
			      .url = token_url,
			      .method = "PUT",
			      .header = "X-aws-ec2-metadata-token-ttl-seconds: 300" };
	char *header = NULL;
	size_t n;
	int r = token_url && roles_url ? ask(h, &q, &token) : -ENOMEM;

	if (r < 0)
		return r;
	header = header_of("X-aws-ec2-metadata-token", buf_span(&token));
	q = (struct question){ .name = q.name, .url = roles_url, .header = header };
	r = header ? ask(h, &q, &roles) : fail(-EACCES, "no credentials: the instance's metadata");
	n = r < 0 || !buf_str(&roles) ? 0 : strcspn(buf_str(&roles), "\r\n");
	if (r >= 0 && (!n || !aws_value_is_valid(span_of(roles.p, n))))
		r = fail(-EACCES, "no credentials: the instance has no role");
	if (r >= 0) {
		keys_url = str_fmt("%s%.*s", roles_url, (int)n, buf_str(&roles));
		q.url = keys_url;
		r = keys_url ? ask_for_keys(h, &q, ret) : -ENOMEM;
	}
	aws_secret_free(header);
	return r;
}

int aws_ask_instance(struct aws_keys *ret)
{
	const char *server = aws_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
	auto_free char *tidy = NULL;
	struct http *h = NULL;
	size_t n;
	int r;

	server = server ? server : INSTANCE;
	n = strlen(server);
	while (n && server[n - 1] == '/')
		n--;
	tidy = span_dup_str(span_of(server, n));
	r = tidy ? client(INSTANCE_MS, true, &h) : fail(-ENOMEM, "cannot hold credentials");
	if (r >= 0)
		r = ask_instance(h, tidy, ret);
	http_free(h);
	return r;
}

/* ---- a web identity ---- */

static int add_field(struct buf *b, const char *name, struct span value)
{
	int r = buf_addf(b, "%s%s=", b->n ? "&" : "", name);

	for (size_t i = 0; i < value.n && r >= 0; i++)
		r = buf_addf(b, "%%%02X", value.p[i]);
	return r;
}

static int identity_form(const struct aws_web_identity *who, struct buf *ret)
{
	auto_secret token = { 0 };
	struct span text;
	int r = aws_read_file(who->token_file, &token);

	text = buf_span(&token);
	while (text.n && strchr("\r\n \t", text.p[text.n - 1]))
		text.n--;
	if (r >= 0 && !text.n)
		r = fail(-EACCES, "no credentials: '%s' is empty", who->token_file);
	if (r >= 0)
		r = buf_add_str(ret, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15");
	if (r >= 0)
		r = add_field(ret, "RoleArn", span_str(who->role));
	if (r >= 0)
		r = add_field(ret, "RoleSessionName",
			      span_str(who->session ? who->session : "pytreefs"));
	if (r >= 0)
		r = add_field(ret, "WebIdentityToken", text);
	return r;
}

static int identity_url(const struct aws_web_identity *who, char **ret)
{
	const char *given = aws_variable("AWS_ENDPOINT_URL_STS");

	given = given ? given : aws_variable("AWS_ENDPOINT_URL");
	*ret = given       ? strdup(given) :
	       who->region ? str_fmt("https://sts.%s.amazonaws.com%s/", who->region,
				     strncmp(who->region, "cn-", 3) ? "" : ".cn") :
			     strdup("https://sts.amazonaws.com/");
	return *ret ? 0 : fail(-ENOMEM, "cannot hold credentials");
}

/* What STS answers. */
static int take_identity(struct span text, struct aws_keys *ret)
{
	struct sts_keys found;
	struct aws_keys k = { 0 };
	int r = sts_parse_keys(text, &found);

	if (r < 0)
		return refused(r, "no credentials for the web identity");
	k = (struct aws_keys){ .id = span_dup_str(buf_span(&found.id)),
			       .secret = span_dup_str(buf_span(&found.secret)),
			       .token = span_dup_str(buf_span(&found.token)),
			       .expires = found.expires };
	sts_keys_release(&found);
	if (!k.id || !k.secret || !k.token) {
		aws_keys_release(&k);
		return fail(-ENOMEM, "cannot hold credentials");
	}
	*ret = k;
	return 0;
}

int aws_ask_web_identity(const struct aws_web_identity *who, struct aws_keys *ret)
{
	auto_free char *url = NULL;
	auto_secret form = { 0 }, text = { 0 };
	struct question q = { .name = "the credentials for the web identity", .method = "POST" };
	struct http *h = NULL;
	int r = refused(identity_form(who, &form), "no credentials");

	if (r >= 0)
		r = identity_url(who, &url);
	if (r >= 0)
		r = client(PROGRESS_MS, false, &h);
	q.url = url;
	q.send = buf_span(&form);
	if (r >= 0)
		r = ask(h, &q, &text);
	http_free(h);
	if (r >= 0)
		r = take_identity(buf_span(&text), ret);
	return r;
}
