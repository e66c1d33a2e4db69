/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regex.c - regular expressions by PCRE2; no other file includes its header.
 *
 * transform.c and transform_tree.c choose the keys that are matched.
 */
#include "handlers/transform/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/base/err.h"

#define STEPS_MAX 1000000 /* a match that needs more steps is refused */

struct regex {
	pcre2_code *code;
	pcre2_match_context *limits;
	unsigned n_groups;
};

void regex_free(struct regex *re)
{
	if (!re)
		return;
	pcre2_code_free(re->code);
	pcre2_match_context_free(re->limits);
	free(re);
}

int regex_new(struct span pattern, const char *what, struct regex **ret)
{
	auto_of(regex) struct regex *re = calloc(1, sizeof(*re));
	PCRE2_UCHAR message[120];
	PCRE2_SIZE at;
	uint32_t groups;
	int error;

	if (!re)
		return fail(-ENOMEM, "cannot compile %s", what);
	re->code = pcre2_compile(pattern.p ? pattern.p : (PCRE2_SPTR) "", pattern.n,
				 PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error,
				 &at, NULL);
	if (!re->code) {
		pcre2_get_error_message(error, message, sizeof(message));
		return fail(-EINVAL, "%s: '%.*s' is not a regular expression: %s at character %zu",
			    what, SPAN_ARG(pattern), (const char *)message, at);
	}
	re->limits = pcre2_match_context_create(NULL);
	if (!re->limits)
		return fail(-ENOMEM, "cannot compile %s", what);
	pcre2_set_match_limit(re->limits, STEPS_MAX);
	pcre2_pattern_info(re->code, PCRE2_INFO_CAPTURECOUNT, &groups);
	if (groups >= REGEX_GROUPS_MAX)
		return fail(-EINVAL, "%s: '%.*s' has %u groups, the limit is %d", what,
			    SPAN_ARG(pattern), groups, REGEX_GROUPS_MAX - 1);
	re->n_groups = groups + 1;
	*ret = take(re);
	return 0;
}

int regex_match(const struct regex *re, struct span s, struct regex_match *ret)
{
	pcre2_match_data *data = pcre2_match_data_create(re->n_groups, NULL);
	struct regex_match m = { .n = re->n_groups };
	/* An empty span may be NULL, to which nothing is added. */
	PCRE2_SPTR subject = s.p ? s.p : (PCRE2_SPTR) "";
	const PCRE2_SIZE *at;
	int found;

	if (!data)
		return fail(-ENOMEM, "cannot match '%.*s'", SPAN_ARG(s));
	found = pcre2_match(re->code, subject, s.n, 0, 0, data, re->limits);
	at = pcre2_get_ovector_pointer(data);
	for (int i = 0; i < found; i++)
		if (at[2 * i] != PCRE2_UNSET)
			m.group[i] = span_of(subject + at[2 * i], at[2 * i + 1] - at[2 * i]);
	pcre2_match_data_free(data);
	if (found == PCRE2_ERROR_NOMATCH)
		return 0;
	if (found < 0)
		return fail(-EINVAL, "matching '%.*s' takes too many steps", SPAN_ARG(s));
	*ret = m;
	return 1;
}

int regex_group(const struct regex *re, struct span name)
{
	auto_free char *text = span_dup_str(name);
	int n = text ? pcre2_substring_number_from_name(re->code, (PCRE2_SPTR)text) : -1;

	return n > 0 ? n : -1;
}

unsigned regex_count(const struct regex *re)
{
	return re->n_groups;
}

/* ---- replacement texts ---- */

static int digits(struct span s, int *ret)
{
	int v = 0;

	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] < '0' || s.p[i] > '9' || i == 2)
			return -1;
		v = v * 10 + (s.p[i] - '0');
	}
	*ret = v;
	return s.n ? 0 : -1;
}

/* Parse the escape after a backslash. *text begins after the backslash and is advanced. */
static int regex_escape(const struct regex *re, struct span *text, struct regex_piece *ret)
{
	struct span s = *text;
	const uint8_t *end;
	size_t n = 1;

	if (s.n == 0)
		return fail(-EINVAL, "a replacement ends in a backslash");
	if (s.p[0] == '\\') {
		*ret = (struct regex_piece){ span_of(s.p, 1), -1 };
	} else if (s.p[0] >= '1' && s.p[0] <= '9') {
		n = s.n > 1 && s.p[1] >= '0' && s.p[1] <= '9' ? 2 : 1;
		digits(span_of(s.p, n), &ret->group);
	} else if (s.p[0] == 'g' && s.n > 2 && s.p[1] == '<') {
		end = memchr(s.p, '>', s.n);
		n = end ? (size_t)(end - s.p) + 1 : 0;
		if (!end || (digits(span_of(s.p + 2, n - 3), &ret->group) < 0 &&
			     (ret->group = regex_group(re, span_of(s.p + 2, n - 3))) < 0))
			return fail(-EINVAL, "replacement '\\%.*s': this group does not exist",
				    SPAN_ARG(s));
	} else {
		return fail(-EINVAL,
			    "replacement '\\%.*s': only \\1, \\g<1>, \\g<NAME> and \\\\ are known",
			    SPAN_ARG(s));
	}
	if (ret->group >= (int)re->n_groups)
		return fail(-EINVAL, "replacement '\\%.*s': the expression has %u %s", SPAN_ARG(s),
			    re->n_groups - 1, noun(re->n_groups - 1, "group", "groups"));
	*text = span_from(s, n);
	return 1;
}

int regex_piece(const struct regex *re, struct span *text, struct regex_piece *ret)
{
	const uint8_t *slash;
	struct span rest;

	if (text->n == 0)
		return 0;
	slash = memchr(text->p, '\\', text->n);
	if (slash == text->p) {
		rest = span_from(*text, 1);
		*ret = (struct regex_piece){ .group = -1 };
		if (regex_escape(re, &rest, ret) < 0)
			return -EINVAL;
		*text = rest;
		return 1;
	}
	*ret = (struct regex_piece){ span_of(text->p, slash ? (size_t)(slash - text->p) : text->n),
				     -1 };
	*text = span_from(*text, ret->text.n);
	return 1;
}

int regex_expand(const struct regex *re, const struct regex_match *m, struct span text,
		 struct buf *ret)
{
	struct regex_piece piece;
	int r;

	while ((r = regex_piece(re, &text, &piece)) > 0) {
		r = buf_add_span(ret, piece.group < 0 ? piece.text : m->group[piece.group]);
		if (r < 0)
			return r;
	}
	return r;
}
