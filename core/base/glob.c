/* SPDX-License-Identifier: Apache-2.0 */
/*
 * glob.c - a pattern as a list of tokens; all positions in it at which a match may be are advanced
 * together.
 *
 * There is no backtracking: each character of the path is compared once with each token.
 */
#include "core/base/glob.h"

#include <string.h>

#include "core/base/json.h"
#include "core/base/limits.h"
#include "core/base/mem.h"

enum token_kind {
	TOKEN_CHAR,     /* the character c */
	TOKEN_ANY,      /* any one character of a name */
	TOKEN_SET,      /* one character of the set whose '[' is at `at` */
	TOKEN_STAR,     /* any number of characters of a name */
	TOKEN_DEEP,     /* any number of characters, slashes too */
	TOKEN_NAMES,    /* any number of whole names with their slashes; a TOKEN_NAMES_ON follows */
	TOKEN_NAMES_ON, /* within the names of a TOKEN_NAMES */
	TOKEN_BELOW,    /* the end, or a slash and anything; a TOKEN_DEEP and the end follow */
};

struct token {
	uint8_t kind;
	uint16_t at;
	uint32_t c;
};

#define TOKENS_MAX (LIMIT_PATH_BYTES + 4)

struct tokens {
	struct token t[TOKENS_MAX];
	size_t n;
};

/*
 * Read one character: the bytes of its UTF-8 sequence, most significant first, so that they compare
 * in the order of code points. Bytes that are not UTF-8 stand for themselves. Returns the number of
 * bytes.
 */
static size_t take_char(const char *p, size_t n, uint32_t *ret)
{
	size_t len = MAX(utf8_len(span_of(p, n)), (size_t)1);

	*ret = 0;
	for (size_t i = 0; i < len; i++)
		*ret = *ret << 8 | (uint8_t)p[i];
	return len;
}

/* Read one character of a set, possibly after a '\'. Returns the number of bytes. */
static size_t take_member(const char *p, uint32_t *ret)
{
	size_t quoted = p[0] == '\\' && p[1];

	return quoted + take_char(p + quoted, strlen(p + quoted), ret);
}

/*
 * The position after the ']' of the set that begins at p; NULL when the set has no end, and the '['
 * is then an ordinary character.
 */
static const char *set_end(const char *p)
{
	uint32_t c;

	p += 1 + (p[1] == '!' || p[1] == '^');
	for (bool first = true; *p && *p != '/'; first = false) {
		if (*p == ']' && !first)
			return p + 1;
		p += take_member(p, &c);
	}
	return NULL;
}

static bool set_has(const char *p, uint32_t c)
{
	const char *end = set_end(p) - 1;
	bool not = p[1] == '!' || p[1] == '^', found = false;

	for (p += 1 + not ; p < end;) {
		uint32_t lo, hi;

		p += take_member(p, &lo);
		hi = lo;
		if (p[0] == '-' && p + 1 < end)
			p += 1 + take_member(p + 1, &hi);
		found |= c >= lo && c <= hi;
	}
	return found != not ;
}

/* Whether nothing but "**" names follow the slash at p. */
static bool is_below(const char *p)
{
	while (!strncmp(p, "/**", 3) && (p[3] == '/' || !p[3]))
		p += 3;
	return !*p || !strcmp(p, "/");
}

static void put_token(struct tokens *t, enum token_kind kind)
{
	t->t[t->n++] = (struct token){ .kind = (uint8_t)kind };
}

static void put_below(struct tokens *t)
{
	put_token(t, TOKEN_BELOW);
	put_token(t, TOKEN_DEEP);
}

/* Add the token for the stars at p. Returns the position after them. */
static const char *put_stars(struct tokens *t, const char *p, bool at_name)
{
	size_t n = strspn(p, "*");

	p += n;
	if (n == 1) {
		put_token(t, TOKEN_STAR);
	} else if (n > 2 || !at_name || *p != '/') {
		put_token(t, TOKEN_DEEP);
	} else if (!p[1]) {
		put_token(t, TOKEN_DEEP);
		p++;
	} else {
		put_token(t, TOKEN_NAMES);
		put_token(t, TOKEN_NAMES_ON);
		p++;
	}
	return p;
}

/* Add the token for one character or set at p. Returns the position after it. */
static const char *put_one(struct tokens *t, const char *pattern, const char *p, bool *ret_closed)
{
	struct token *to = &t->t[t->n++];
	const char *end = *p == '[' && *ret_closed ? set_end(p) : NULL;

	*to = (struct token){ .kind = TOKEN_CHAR };
	/*
	 * If one '[' has no ']', a later one in the same name has none either, so the search is not
	 * repeated.
	 */
	if (*p == '[')
		*ret_closed = end != NULL;
	if (end) {
		to->kind = TOKEN_SET;
		to->at = (uint16_t)(p - pattern);
		return end;
	}
	if (*p == '?') {
		to->kind = TOKEN_ANY;
		return p + 1;
	}
	return p + take_member(p, &to->c);
}

static void compile(const char *pattern, bool is_path, struct tokens *t)
{
	const char *p = pattern;
	bool at_name = true, is_plain = true, closed = true;

	t->n = 0;
	while (*p) {
		if (*p == '/' && is_below(p)) {
			put_below(t);
			return;
		}
		if (*p == '*') {
			const char *stars = p;

			p = put_stars(t, p, at_name);
			at_name = p[-1] == '/';
			is_plain = at_name && p > stars;
			continue;
		}
		at_name = *p == '/';
		p = put_one(t, pattern, p, &closed);
		is_plain = at_name || (is_plain && t->t[t->n - 1].kind == TOKEN_CHAR);
		closed |= at_name;
	}
	if (is_plain && is_path)
		put_below(t);
}

/* Whether a token matches the character c. */
static bool accepts(const char *pattern, const struct token *t, uint32_t c)
{
	switch ((enum token_kind)t->kind) {
	case TOKEN_CHAR:
		return t->c == c;
	case TOKEN_SET:
		return c != '/' && set_has(pattern + t->at, c);
	case TOKEN_ANY:
	case TOKEN_STAR:
		return c != '/';
	case TOKEN_BELOW:
		return c == '/';
	case TOKEN_DEEP:
	case TOKEN_NAMES_ON:
		return true;
	case TOKEN_NAMES:
		break;
	}
	return false;
}

/*
 * Mark the tokens that may follow token i without consuming a character. They are always further
 * on, so one pass from left to right marks all.
 */
static void pass(const struct tokens *t, size_t i, bool *now)
{
	switch ((enum token_kind)t->t[i].kind) {
	case TOKEN_STAR:
	case TOKEN_DEEP:
		now[i + 1] = true;
		break;
	case TOKEN_NAMES:
		now[i + 1] = now[i + 2] = true;
		break;
	case TOKEN_BELOW:
		now[t->n] = true;
		break;
	case TOKEN_CHAR:
	case TOKEN_ANY:
	case TOKEN_SET:
	case TOKEN_NAMES_ON:
		break;
	}
}

/* Mark the tokens at which the match may continue after token i has consumed c. */
static void follow(const struct tokens *t, size_t i, uint32_t c, bool *next)
{
	switch ((enum token_kind)t->t[i].kind) {
	case TOKEN_STAR:
	case TOKEN_DEEP:
		next[i] = true;
		break;
	case TOKEN_NAMES_ON:
		next[i] = true;
		next[i + 1] |= c == '/';
		break;
	case TOKEN_CHAR:
	case TOKEN_ANY:
	case TOKEN_SET:
	case TOKEN_BELOW:
	case TOKEN_NAMES:
		next[i + 1] = true;
		break;
	}
}

static bool match(const char *pattern, bool is_path, struct span path, unsigned long long *steps)
{
	bool row[2][TOKENS_MAX + 1], *now = row[0], *next = row[1], any = true;
	struct tokens t;
	uint32_t c;

	compile(pattern, is_path, &t);
	memset(now, 0, t.n + 1);
	now[0] = true;
	for (size_t at = 0; at < path.n && any;) {
		bool *was = now;

		at += take_char((const char *)path.p + at, path.n - at, &c);
		memset(next, 0, t.n + 1);
		any = false;
		for (size_t i = 0; i < t.n; i++) {
			++*steps;
			if (!now[i])
				continue;
			pass(&t, i, now);
			if (!accepts(pattern, &t.t[i], c))
				continue;
			follow(&t, i, c, next);
			any = true;
		}
		now = next;
		next = was;
	}
	for (size_t i = 0; i < t.n && any; i++)
		if (now[i])
			pass(&t, i, now);
	return any && now[t.n];
}

bool glob_is_name(const char *pattern)
{
	return !strchr(pattern, '/');
}

bool glob_match_counted(const char *pattern, struct span path, unsigned long long *steps)
{
	const uint8_t *slash = path.n ? memrchr(path.p, '/', path.n) : NULL;

	if (strlen(pattern) > LIMIT_PATH_BYTES)
		return false;
	if (glob_is_name(pattern) && slash)
		path = span_from(path, (size_t)(slash - path.p) + 1);
	if (glob_is_name(pattern))
		return match(pattern, false, path, steps);
	return match(pattern + (pattern[0] == '/' && pattern[1]), true, path, steps);
}

bool glob_match(const char *pattern, struct span path)
{
	unsigned long long steps = 0;

	return glob_match_counted(pattern, path, &steps);
}

bool glob_selects(const char *pattern, struct span path, unsigned skip, size_t ext)
{
	bool is_name = glob_is_name(pattern);

	for (unsigned i = 0; i <= skip; i++) {
		struct span bare = span_of(path.p, path.n - MIN(ext, path.n));
		const uint8_t *slash = path.n ? memchr(path.p, '/', path.n) : NULL;

		if (glob_match(pattern, path) || (ext && glob_match(pattern, bare)))
			return true;
		if (is_name || !slash)
			return false;
		path = span_from(path, (size_t)(slash - path.p) + 1);
	}
	return false;
}
