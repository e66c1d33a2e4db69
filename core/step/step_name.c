/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_name.c - names of step directories.
 *
 * A name alone does not make a step; callers check the contents of the directory.
 */
#include "core/step/step_name.h"

#include <inttypes.h>

#include "core/base/err.h"
#include "core/base/limits.h"

/* Split a temporary name into the final name and the rest after the mark; false for other names. */
static bool split_tmp(struct span name, struct span *ret_final, struct span *ret_rest)
{
	const uint8_t *at = name.n ? memmem(name.p, name.n, STEP_TMP, sizeof(STEP_TMP) - 1) : NULL;
	size_t mark = sizeof(STEP_TMP) - 1, skip = 0;

	/* The mark must follow a name; alone it is the lock file in a draft. */
	if (!at && name.n > 2 && name.p[0] == '.') {
		at = memmem(name.p + 2, name.n - 2, STEP_DRAFT, sizeof(STEP_DRAFT) - 1);
		mark = sizeof(STEP_DRAFT) - 1;
		skip = 1;
	}
	if (!at)
		return false;
	*ret_final = span_of(name.p + skip, (size_t)(at - name.p) - skip);
	*ret_rest = span_from(name, (size_t)(at - name.p) + mark);
	return true;
}

bool step_name_is_tmp(struct span name)
{
	struct span final, rest;

	return split_tmp(name, &final, &rest);
}

struct span step_name_final(struct span name)
{
	struct span final, rest;

	return split_tmp(name, &final, &rest) ? final : name;
}

struct span step_name_rest(struct span name)
{
	struct span final, rest;

	return split_tmp(name, &final, &rest) ? rest : span_of(NULL, 0);
}

static bool is_digit(uint8_t c)
{
	return c >= '0' && c <= '9';
}

/* The offset of the digits at the end of the first n bytes. */
static size_t begin_of_digits(struct span name, size_t n)
{
	while (n > 0 && is_digit(name.p[n - 1]))
		n--;
	return n;
}

int step_name_parse(struct span name, struct step_name *ret)
{
	struct step_name v = { .number = 0 };
	size_t at = begin_of_digits(name, name.n), whole;

	if (step_name_is_tmp(name) || at == name.n)
		return 0;
	v.digits = span_from(name, at);
	/* A dot elsewhere, as in "v1.5", may be that of a version. */
	whole = at > 1 && name.p[at - 1] == '.' ? begin_of_digits(name, at - 1) : at;
	if (whole + 1 < at && (whole == 0 || name.p[whole - 1] == '_')) {
		v.fraction = v.digits;
		v.digits = span_of(name.p + whole, at - 1 - whole);
		v.number = UINT64_MAX;
		at = whole;
	}
	v.prefix = span_of(name.p, at);
	for (size_t i = 0; i < v.digits.n && v.number != UINT64_MAX; i++) {
		unsigned d = v.digits.p[i] - 0u - '0';

		v.number = v.number > (UINT64_MAX - d) / 10 ? UINT64_MAX : v.number * 10 + d;
	}
	*ret = v;
	return 1;
}

bool step_name_is_orbax(const struct step_name *n)
{
	return !n->fraction.n && (n->prefix.n == 0 || n->prefix.p[n->prefix.n - 1] == '_');
}

static struct span without_zeros(struct span digits)
{
	size_t zeros = 0;

	while (zeros < digits.n && digits.p[zeros] == '0')
		zeros++;
	return span_from(digits, zeros);
}

static int cmp_numbers(struct span a, struct span b)
{
	a = without_zeros(a);
	b = without_zeros(b);
	return a.n != b.n ? (a.n > b.n) - (a.n < b.n) : span_cmp(a, b);
}

/* The whole name: its parts are adjacent. */
static struct span whole_name(const struct step_name *n)
{
	struct span last = n->fraction.n ? n->fraction : n->digits;

	return span_of(n->prefix.p, (size_t)(last.p + last.n - n->prefix.p));
}

static struct span without_end_zeros(struct span fraction)
{
	while (fraction.n && fraction.p[fraction.n - 1] == '0')
		fraction.n--;
	return fraction;
}

int step_name_cmp(const struct step_name *a, const struct step_name *b)
{
	int c = cmp_numbers(a->digits, b->digits);

	if (!c)
		c = span_cmp(without_end_zeros(a->fraction), without_end_zeros(b->fraction));
	return c ? c : span_cmp(whole_name(a), whole_name(b));
}

int step_name_check(struct span name)
{
	struct step_name n;

	if (memchr(name.p, '/', name.n) || memchr(name.p, '\0', name.n))
		return fail(-EINVAL, "'%.*s' is not a name of a directory", SPAN_ARG(name));
	if (!step_name_parse(name, &n))
		return fail(
			-EINVAL,
			"'%.*s' is not a name of a step: it must end in a number, as '7' and 'step_7' do",
			SPAN_ARG(name));
	if (n.fraction.n)
		return fail(-EINVAL,
			    "'%.*s' is not a name of a step: its number is not a whole one",
			    SPAN_ARG(name));
	if (!step_name_is_orbax(&n))
		return fail(
			-EINVAL,
			"'%.*s' is not a name of a step: '%.*s' before the number must end in '_'",
			SPAN_ARG(name), SPAN_ARG(n.prefix));
	if (name.n + sizeof(STEP_TMP) - 1 > LIMIT_NAME_BYTES)
		return fail(-EINVAL, "'%.*s' is not a name of a step: it is longer than %zu bytes",
			    SPAN_ARG(name), LIMIT_NAME_BYTES - (sizeof(STEP_TMP) - 1));
	return 0;
}

int step_name_draft(struct span name, struct span *ret_final)
{
	/* Users do not make drafts with their name on the disk, which begins with a dot. */
	struct span final = name.n && name.p[0] == '.' ? name : step_name_final(name);
	int r;

	if (final.n == name.n) {
		if (!span_ends(name, span_str(".tmp")))
			return fail(-EINVAL,
				    "'%.*s' is not a name of a draft: it must end in '.tmp'",
				    SPAN_ARG(name));
		final.n -= strlen(".tmp");
	}
	r = step_name_check(final);
	if (r >= 0)
		*ret_final = final;
	return r;
}

int step_name_on_disk(struct span final, struct buf *ret)
{
	return buf_addf(ret, ".%.*s%s", SPAN_ARG(final), STEP_DRAFT);
}

char *step_name_temporary(const char *final, const char *rest)
{
	return str_fmt(".%s" STEP_DRAFT "%s", final, rest);
}
