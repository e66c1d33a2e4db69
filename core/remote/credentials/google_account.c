/* SPDX-License-Identifier: Apache-2.0 */
/*
 * google_account.c - documents with Google's credentials.
 *
 * They are read value by value. Secrets are only in the text, which its owner wipes, and in the
 * parser's buffers, which are wiped here.
 */
#include "core/remote/credentials/google_account.h"

#include "core/base/err.h"
#include "core/base/json_pull.h"

#define TOKEN_URI "https://oauth2.googleapis.com/token"
#define LIFETIME_MAX 86400 /* seconds; a longer lifetime is not believed */

/* Take a string in place of an earlier one. *ret_valid is false if no such file has this value. */
static int account_take_text(struct json_pull *p, char **to, bool *ret_valid)
{
	struct span text;
	int r = json_pull_kind(p);

	if (r < 0)
		return r;
	if (r != JSON_STRING)
		return json_pull_skip(p);
	r = json_pull_str(p, &text);
	if (r < 0)
		return r;
	if (!text.n || text.n > SECRET_MAX || memchr(text.p, 0, text.n)) {
		*ret_valid = false;
		return 0;
	}
	secret_free(*to);
	*to = span_dup_str(text);
	return *to ? 0 : -ENOMEM;
}

static int account_take_member(void *ret_valid, struct json_pull *p, const struct secret_member *m)
{
	return account_take_text(p, m->to, ret_valid);
}

void google_account_release(struct google_account *a)
{
	char *const part[] = { a->token_uri, a->email,         a->private_key,  a->key_id,
			       a->client_id, a->client_secret, a->refresh_token };

	for (size_t i = 0; i < ARRAY_LEN(part); i++)
		secret_free(part[i]);
	*a = (struct google_account){ 0 };
}

static int check_account(struct google_account *a, const char *type, const char *what)
{
	const struct secret_member needed[][3] = {
		[GOOGLE_SERVICE_ACCOUNT] = { { "client_email", &a->email },
					     { "private_key", &a->private_key } },
		[GOOGLE_AUTHORIZED_USER] = { { "client_id", &a->client_id },
					     { "client_secret", &a->client_secret },
					     { "refresh_token", &a->refresh_token } },
	};

	if (!type)
		return fail(-EINVAL, "'%s' does not say of which type its credentials are", what);
	if (strcmp(type, "service_account") != 0 && strcmp(type, "authorized_user") != 0) {
		auto_buf shown = { 0 };

		buf_add_shown(&shown, span_of(type, strnlen(type, 64)));
		return fail(
			-EINVAL,
			"'%s' has credentials of the type '%s', which are not followed here: give "
			"the key of a service account, those of `gcloud auth application-default "
			"login`, or ask on a machine whose metadata server has some",
			what, buf_str(&shown) ? buf_str(&shown) : "");
	}
	a->kind = strcmp(type, "authorized_user") ? GOOGLE_SERVICE_ACCOUNT : GOOGLE_AUTHORIZED_USER;
	for (size_t i = 0; i < ARRAY_LEN(needed[0]); i++) {
		const struct secret_member *m = &needed[a->kind][i];

		if (m->name && !*m->to)
			return fail(-EINVAL, "'%s' has no '%s'", what, m->name);
	}
	if (!a->token_uri)
		a->token_uri = strdup(TOKEN_URI);
	return a->token_uri ? 0 : fail(-ENOMEM, "cannot hold credentials");
}

int google_account_parse(struct span text, const char *what, struct google_account *ret)
{
	auto_google_account a = { 0 };
	auto_free char *type = NULL;
	const struct secret_member member[] = { { "type", &type },
						{ "token_uri", &a.token_uri },
						{ "client_email", &a.email },
						{ "private_key", &a.private_key },
						{ "private_key_id", &a.key_id },
						{ "client_id", &a.client_id },
						{ "client_secret", &a.client_secret },
						{ "refresh_token", &a.refresh_token } };
	auto_secret_pull p;
	bool valid = true;
	int r;

	json_pull_init(&p, text, what);
	r = secret_pull_members(&p, member, ARRAY_LEN(member), account_take_member, &valid);
	if (r == -ENOMEM)
		return r;
	if (r < 0)
		return fail(-EINVAL, "'%s' is not a file of credentials: it is not JSON", what);
	if (!valid)
		return fail(-EINVAL, "'%s' has a value that no file of credentials has", what);
	r = check_account(&a, type, what);
	if (r < 0)
		return r;
	*ret = a;
	a = (struct google_account){ 0 };
	return 0;
}

/* ---- a token ---- */

int google_token_parse(struct span text, const char *what, int64_t now, struct credentials *ret)
{
	auto_secret_pull p;
	auto_of(secret) char *token = NULL;
	bool valid = true;
	struct span name;
	int64_t seconds = 0;
	int r;

	json_pull_init(&p, text, what);
	r = json_pull_enter(&p, JSON_OBJECT);
	while (r >= 0 && (r = json_pull_next(&p, &name)) > 0) {
		if (span_eq(name, span_str("access_token")))
			r = account_take_text(&p, &token, &valid);
		else if (span_eq(name, span_str("expires_in")) && json_pull_kind(&p) == JSON_FLOAT)
			r = json_pull_int(&p, &seconds);
		else
			r = json_pull_skip(&p);
	}
	if (r >= 0)
		r = json_pull_end(&p);
	if (r == -ENOMEM)
		return r;
	if (r < 0)
		return fail(-EUCLEAN, "%s: the answer is malformed", what);
	if (!token || !secret_is_valid(span_str(token)))
		return fail(-EUCLEAN, "%s: the answer has no token", what);
	r = credentials_of(NULL, NULL, token, ret);
	if (r < 0)
		return r;
	ret->expires = seconds > 0 ? now + MIN(seconds, LIFETIME_MAX) : 0;
	return r;
}
