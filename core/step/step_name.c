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

static bool step_name_is_digit(uint8_t c)
{
	return c >= '0' && c <= '9';
}

/* The offset of the digits at the end of the first n bytes. */
static size_t begin_of_digits(struct span name, size_t n)
{
	while (n > 0 && step_name_is_digit(name.p[n - 1]))
		n--;
	return n;
}

/* Whether a number with a fraction or power can begin at `at`; elsewhere it may be a version. */
static bool may_begin(struct span name, size_t at)
{
	return at == 0 || name.p[at - 1] == '_';
}

/* Take the power of ten from the end of a number, as Python writes it: "e-05", "e+16". */
static void take_power(struct span *number, struct step_name *ret)
{
	size_t at = begin_of_digits(*number, number->n);
	bool is_negative = at > 0 && number->p[at - 1] == '-';

	if (at < 3 || at == number->n || (!is_negative && number->p[at - 1] != '+') ||
	    number->p[at - 2] != 'e' || !step_name_is_digit(number->p[at - 3]))
		return;
	for (size_t i = at; i < number->n; i++)
		ret->exponent = MIN(10 * ret->exponent + (number->p[i] - '0'), EXPONENT_MOST);
	ret->exponent = is_negative ? -ret->exponent : ret->exponent;
	ret->power = span_from(*number, at - 2);
	number->n = at - 2;
}

/* Split a number that is not written as a whole one: returns where it begins, or SIZE_MAX. */
static size_t take_float(struct span name, struct step_name *ret)
{
	struct step_name v = { .number = UINT64_MAX };
	struct span number = name;
	size_t at;

	take_power(&number, &v);
	at = begin_of_digits(number, number.n);
	v.digits = span_from(number, at);
	if (at > 1 && number.p[at - 1] == '.' && step_name_is_digit(number.p[at - 2])) {
		size_t whole = begin_of_digits(number, at - 1);

		v.fraction = v.digits;
		v.digits = span_of(number.p + whole, at - 1 - whole);
		at = whole;
	}
	if ((!v.power.n && !v.fraction.n) || !may_begin(name, at))
		return SIZE_MAX;
	*ret = v;
	return at;
}

int step_name_parse(struct span name, struct step_name *ret)
{
	struct step_name v = { .number = 0 };
	size_t at = begin_of_digits(name, name.n), whole;

	if (step_name_is_tmp(name) || at == name.n)
		return 0;
	v.digits = span_from(name, at);
	whole = take_float(name, &v);
	v.prefix = span_of(name.p, whole == SIZE_MAX ? at : whole);
	for (size_t i = 0; i < v.digits.n && v.number != UINT64_MAX; i++) {
		unsigned d = v.digits.p[i] - 0u - '0';

		v.number = v.number > (UINT64_MAX - d) / 10 ? UINT64_MAX : v.number * 10 + d;
	}
	*ret = v;
	return 1;
}

static bool step_name_is_whole(const struct step_name *n)
{
	return !n->fraction.n && !n->power.n;
}

bool step_name_is_orbax(const struct step_name *n)
{
	return step_name_is_whole(n) && (n->prefix.n == 0 || n->prefix.p[n->prefix.n - 1] == '_');
}

/* Digit i of the number, without its dot; zeros follow the last one. */
static uint8_t digit_of(const struct step_name *n, size_t i)
{
	if (i < n->digits.n)
		return n->digits.p[i];
	return i - n->digits.n < n->fraction.n ? n->fraction.p[i - n->digits.n] : '0';
}

static size_t n_digits(const struct step_name *n)
{
	return n->digits.n + n->fraction.n;
}

/* The number of zeros before the first other digit. */
static size_t n_zeros(const struct step_name *n)
{
	size_t zeros = 0;

	while (zeros < n_digits(n) && digit_of(n, zeros) == '0')
		zeros++;
	return zeros;
}

/* Compare values: by the place of the first digit that is not zero, then by the digits. */
static int cmp_numbers(const struct step_name *a, const struct step_name *b)
{
	size_t za = n_zeros(a), zb = n_zeros(b), most = MAX(n_digits(a), n_digits(b));
	long at = (long)a->digits.n - (long)za + a->exponent;
	long bt = (long)b->digits.n - (long)zb + b->exponent;
	int c = (za < n_digits(a)) - (zb < n_digits(b));

	/* Zero has no such place. */
	if (c || za == n_digits(a))
		return c;
	c = (at > bt) - (at < bt);
	for (size_t i = 0; i < most && !c; i++)
		c = digit_of(a, za + i) - digit_of(b, zb + i);
	return c;
}

/* The whole name: its parts are adjacent. */
static struct span whole_name(const struct step_name *n)
{
	struct span last = n->power.n ? n->power : n->fraction.n ? n->fraction : n->digits;

	return span_of(n->prefix.p, (size_t)(last.p + last.n - n->prefix.p));
}

int step_name_cmp(const struct step_name *a, const struct step_name *b)
{
	int c = cmp_numbers(a, b);

	return c ? c : span_cmp(whole_name(a), whole_name(b));
}

int step_name_check(struct span name)
{
	struct step_name n;

	if (memchr(name.p, '/', name.n) || memchr(name.p, '\0', name.n))
		return fail(-EINVAL, "'%.*s' is not a name of a directory", SPAN_ARG(name));
	if (!step_name_parse(name, &n))
		return fail(-EINVAL,
			    "'%.*s' is not a name of a step: it must end in a number, as '7' and "
			    "'step_7' do",
			    SPAN_ARG(name));
	if (!step_name_is_whole(&n))
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

	*ret_final = span_of(NULL, 0);
	if (final.n == name.n) {
		if (!span_ends(name, span_str(".tmp")))
			return fail(-EINVAL,
				    "'%.*s' is not a name of a draft: it must end in '.tmp'",
				    SPAN_ARG(name));
		final.n -= strlen(".tmp");
	}
	*ret_final = final;
	return step_name_check(final);
}

int step_name_on_disk(struct span final, struct buf *ret)
{
	return buf_addf(ret, ".%.*s%s", SPAN_ARG(final), STEP_DRAFT);
}

char *step_name_temporary(const char *final, const char *rest)
{
	return str_fmt(".%s" STEP_DRAFT "%s", final, rest);
}
