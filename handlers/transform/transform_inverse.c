/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transform_inverse.c - inverts a rule: computes the new key of a stored key.
 *
 * A rule can be inverted when its key consists of literal text and groups, and its first original
 * key uses each of these groups. The inverse is the original key, with each group's expression in
 * the place of the reference to it.
 *
 * Invariants: a key that an inverted rule makes matches the rule, and the rule maps it to the
 * stored key.
 */
#include <ctype.h>
#include <stdio.h>

#include "core/base/err.h"
#include "handlers/transform/transform_impl.h"

static bool is_special(uint8_t c)
{
	return c && strchr(".^$*+?{}[]|", c);
}

/* Whether a group has a number: (x), (?P<n>x), (?<n>x). s begins after the parenthesis. */
static bool transform_inverse_is_counted(struct span s)
{
	if (s.n == 0 || s.p[0] != '?')
		return true;
	if (s.n > 2 && s.p[1] == 'P')
		return s.p[2] == '<';
	return s.n > 2 && s.p[1] == '<' && s.p[2] != '=' && s.p[2] != '!';
}

/* The position after the group that begins at s, or 0. Counts the groups inside it. */
static size_t group_end(struct span s, int *count)
{
	unsigned depth = 0;
	bool in_class = false;

	for (size_t i = 0; i < s.n; i++) {
		uint8_t c = s.p[i];

		if (c == '\\') {
			i++;
		} else if (in_class) {
			in_class = c != ']';
		} else if (c == '[') {
			in_class = true;
			/* A closing bracket that comes first in a class is literal. */
			i += i + 1 < s.n && s.p[i + 1] == '^';
			i += i + 1 < s.n && s.p[i + 1] == ']';
		} else if (c == '(') {
			depth++;
			*count += transform_inverse_is_counted(span_from(s, i + 1));
		} else if (c == ')' && --depth == 0) {
			return i + 1;
		}
	}
	return 0;
}

/*
 * Take the next piece of a key: literal text, which is unescaped into `text`, or a group with its
 * expression.
 */
static int key_piece(struct span *key, int *groups, struct buf *text, struct span *ret_group)
{
	struct span s = *key;
	size_t n = 0;
	int count = 0;

	if (s.n == 0)
		return 0;
	if (s.p[0] == '(') {
		n = group_end(s, &count);
		/*
		 * A group without a number, or one that is repeated, does not stand for one text.
		 */
		if (n == 0 || count == 0 ||
		    (s.n > 1 && s.p[1] == '?' && s.p[2] != 'P' && s.p[2] != '<') ||
		    (n < s.n && strchr("*+?{", s.p[n])))
			return -1;
		*ret_group = span_of(s.p, n);
		*key = span_from(s, n);
		*groups += count;
		return 1;
	}
	for (; n < s.n && s.p[n] != '('; n++) {
		uint8_t c = s.p[n];

		if (is_special(c) || c == ')')
			return -1;
		/* After a backslash, a letter is a character class and a digit is a group. */
		if (c == '\\' && (++n == s.n || isalnum(s.p[n]) || s.p[n] == '_'))
			return -1;
		if (buf_add_byte(text, s.p[n]) < 0)
			return -ENOMEM;
	}
	*key = span_from(s, n);
	return 2;
}

/*
 * The expression of a group without its parentheses and name; empty when it refers to other groups.
 */
static struct span inside(struct span group)
{
	struct span s = span_of(group.p + 1, group.n - 2);

	if (s.n && s.p[0] == '?') {
		const uint8_t *end = memchr(s.p, '>', s.n);

		s = end ? span_from(s, (size_t)(end - s.p) + 1) : span_of(NULL, 0);
	}
	for (size_t i = 0; i + 1 < s.n; i++)
		if (s.p[i] == '\\' && s.p[i + 1] >= '1' && s.p[i + 1] <= '9')
			return span_of(NULL, 0);
	return s;
}

static int quote(struct buf *out, struct span s)
{
	int r = 0;

	for (size_t i = 0; i < s.n && r >= 0; i++) {
		if (is_special(s.p[i]) || s.p[i] == '\\' || s.p[i] == '(' || s.p[i] == ')')
			r = buf_add_byte(out, '\\');
		if (r < 0)
			return r;
		r = buf_add_byte(out, s.p[i]);
	}
	return r;
}

/*
 * Set ret to the expressions of the key's groups, by number. Returns 1, or 0 when the key cannot be
 * inverted.
 */
static int key_groups(const struct rule *rule, struct span ret[REGEX_GROUPS_MAX])
{
	struct span key = rule->key_text, group;
	int groups = 0, at, kind;
	auto_buf text = { 0 };

	for (at = 1; (kind = key_piece(&key, &groups, &text, &group)) > 0; at = groups + 1) {
		if (kind != 1)
			continue;
		/*
		 * A quoted part or a comment in the expression may look like groups here, more than
		 * the limit.
		 */
		if (at >= REGEX_GROUPS_MAX)
			return 0;
		ret[at] = inside(group);
		if (ret[at].n == 0)
			return 0;
	}
	return kind == 0 && groups + 1 == (int)regex_count(rule->key);
}

int rule_invert(struct rule *rule)
{
	struct span group[REGEX_GROUPS_MAX] = { 0 }, text;
	bool used[REGEX_GROUPS_MAX] = { false };
	struct regex_piece piece;
	auto_buf out = { 0 };
	int r = 0;

	if (!rule->has_original || !key_groups(rule, group))
		return 0;
	text = rule->original[0];
	while (r >= 0 && regex_piece(rule->key, &text, &piece) > 0) {
		if (piece.group < 0) {
			r = quote(&out, piece.text);
		} else if (piece.group == 0 || !group[piece.group].p) {
			return 0;
		} else if (used[piece.group]) {
			r = buf_addf(&out, "(?P=g%d)", piece.group);
		} else {
			r = buf_addf(&out, "(?P<g%d>%.*s)", piece.group,
				     SPAN_ARG(group[piece.group]));
			used[piece.group] = true;
		}
	}
	for (int i = 1; i < REGEX_GROUPS_MAX; i++)
		if (group[i].p && !used[i])
			return 0;
	return r < 0 ? r : regex_new(buf_span(&out), rule->what, &rule->inverse);
}

/* Append the new key, filled with the groups that matched in the stored key. */
static int fill_key(const struct rule *rule, const struct regex_match *m, struct buf *ret)
{
	struct span key = rule->key_text, group;
	int groups = 0, kind, r = 0;

	for (int at = 1; r >= 0 && (kind = key_piece(&key, &groups, ret, &group)) > 0;
	     at = groups + 1) {
		char name[16];
		int number;

		if (kind != 1)
			continue;
		snprintf(name, sizeof(name), "g%d", at);
		number = regex_group(rule->inverse, span_str(name));
		r = number < 0 ? -EINVAL : buf_add_span(ret, m->group[number]);
	}
	return r;
}

int rule_new_key(const struct rule *rule, struct span old, struct buf *ret)
{
	struct regex_match m;
	auto_buf again = { 0 };
	size_t was = ret->n;
	int r = rule->inverse ? regex_match(rule->inverse, old, &m) : 0;

	if (r <= 0)
		return r;
	r = fill_key(rule, &m, ret);
	if (r >= 0)
		r = regex_match(rule->key, span_from(buf_span(ret), was), &m);
	if (r > 0)
		r = regex_expand(rule->key, &m, rule->original[0], &again) < 0 ?
			    -ENOMEM :
			    span_eq(buf_span(&again), old);
	if (r <= 0)
		ret->n = was;
	return r;
}
