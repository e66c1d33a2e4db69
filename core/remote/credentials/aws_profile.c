/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aws_profile.c - one profile of the files that AWS's own tools share.
 */
#include "core/remote/credentials/aws_profile.h"

#include <strings.h>

#include "core/base/err.h"
#include "core/remote/transport/secret.h"

static struct span strip(struct span s)
{
	while (s.n && strchr(" \t\r", s.p[0]) && s.p[0])
		s = span_from(s, 1);
	while (s.n && strchr(" \t\r", s.p[s.n - 1]) && s.p[s.n - 1])
		s.n--;
	return s;
}

static bool profile_is_word(struct span s, const char *word)
{
	return s.n == strlen(word) && !strncasecmp((const char *)s.p, word, s.n);
}

/* name is the text between "[" and "]". */
static bool is_section(struct span name, enum aws_file kind, const char *profile)
{
	const struct span word = span_str("profile");

	name = strip(name);
	if (kind == AWS_CONFIG_FILE && name.n > word.n && span_starts(name, word) &&
	    strchr(" \t", name.p[word.n]))
		name = strip(span_from(name, word.n));
	else if (kind == AWS_CONFIG_FILE && !span_eq(name, span_str("default")))
		return false;
	if (name.n >= 2 && strchr("\"'", name.p[0]) && name.p[0] == name.p[name.n - 1])
		name = span_of(name.p + 1, name.n - 2);
	return span_eq(name, span_str(profile));
}

static int profile_set(struct aws_profile *p, struct span name, struct span value, const char *what,
		       size_t line)
{
	const struct {
		const char *name;
		char **to;
	} members[] = {
		{ "aws_access_key_id", &p->key_id },  { "aws_secret_access_key", &p->secret },
		{ "aws_session_token", &p->token },   { "region", &p->region },
		{ "endpoint_url", &p->endpoint },     { "role_arn", &p->role },
		{ "role_session_name", &p->session }, { "web_identity_token_file", &p->token_file },
	};
	static const char *const others[] = { "source_profile", "credential_source",
					      "credential_process", "sso_session",
					      "sso_start_url" };
	char **member = NULL;

	for (size_t i = 0; i < ARRAY_LEN(members); i++)
		if (profile_is_word(name, members[i].name))
			member = members[i].to;
	for (size_t i = 0; i < ARRAY_LEN(others) && !member; i++)
		if (profile_is_word(name, others[i])) {
			member = &p->other;
			value = span_str(others[i]);
		}
	/* An empty value counts as absent. */
	if (!member || !value.n)
		return 0;
	if (member == &p->token_file ? value.n > SECRET_MAX : !secret_is_valid(value))
		return fail(-EINVAL, "'%s', line %zu: the value of '%.*s' is not one", what, line,
			    SPAN_ARG(name));
	secret_free(*member);
	*member = span_dup_str(value);
	return *member ? 0 : fail(-ENOMEM, "cannot read '%s'", what);
}

int aws_profile_parse(struct span text, enum aws_file kind, const char *profile, const char *what,
		      struct aws_profile *ret)
{
	struct aws_profile p = { 0 };
	bool is_in = false;
	int r = 0;

	for (size_t line = 1; text.n && r >= 0; line++) {
		const uint8_t *end = memchr(text.p, '\n', text.n);
		struct span all = span_of(text.p, end ? (size_t)(end - text.p) : text.n), s;
		const uint8_t *equals;

		text = span_from(text, all.n + 1);
		s = strip(all);
		/* Indented lines belong to a value that is a table of its own. */
		if (!s.n || s.p[0] == '#' || s.p[0] == ';' || s.p != all.p)
			continue;
		if (s.p[0] == '[') {
			equals = memchr(s.p, ']', s.n);
			is_in = equals && is_section(span_of(s.p + 1, (size_t)(equals - s.p) - 1),
						     kind, profile);
			p.found |= is_in;
			continue;
		}
		equals = memchr(s.p, '=', s.n);
		if (is_in && equals)
			r = profile_set(&p, strip(span_of(s.p, (size_t)(equals - s.p))),
					strip(span_from(s, (size_t)(equals - s.p) + 1)), what,
					line);
	}
	if (r < 0) {
		aws_profile_release(&p);
		return r;
	}
	*ret = p;
	return 0;
}

void aws_profile_release(struct aws_profile *p)
{
	secret_free(p->key_id);
	secret_free(p->secret);
	secret_free(p->token);
	free(p->region);
	free(p->endpoint);
	free(p->role);
	free(p->session);
	free(p->token_file);
	free(p->other);
	*p = (struct aws_profile){ 0 };
}
