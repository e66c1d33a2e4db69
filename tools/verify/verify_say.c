/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_say.c - reports findings: printed at once, or packed for rank 0 (verify_pack.c).
 */
#include <stdio.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/path.h"
#include "core/io/io_store.h"
#include "tools/verify/verify.h"

char *verify_join(const char *a, const char *b)
{
	if (!*a || !strcmp(a, "."))
		return strdup(b);
	return str_fmt("%s/%s", a, b);
}

enum severity verify_severity(const struct verify *v, int r)
{
	static const int elsewhere[] = { EACCES,    EPERM,        EMFILE,       ENFILE,
					 ETIMEDOUT, ECONNREFUSED, EHOSTUNREACH, ENETUNREACH };

	for (size_t i = 0; i < ARRAY_LEN(elsewhere); i++)
		if (r == -elsewhere[i])
			return SEVERITY_UNCHECKED;
	/* The network or a server has failed, and the bytes may be sound. */
	if (r == -EIO && path_is_url(v->ckpt->opts.source))
		return SEVERITY_UNCHECKED;
	return SEVERITY_ERROR;
}

static void put_member(struct buf *out, const char *name, const char *text)
{
	buf_addf(out, ", \"%s\": ", name);
	if (text)
		json_put_str(out, span_str(text), JSON_PRETTY);
	else
		buf_add_str(out, "null");
}

static void verify_say_json(const struct verify *v, const struct finding *f)
{
	static const char *const names[] = { [SEVERITY_WARNING] = "warning",
					     [SEVERITY_ERROR] = "error",
					     [SEVERITY_UNCHECKED] = "unchecked",
					     [SEVERITY_REFUSED] = "warning" };
	auto_buf out = { 0 };

	buf_addf(&out, "%s\n{\"severity\": \"%s\", \"level\": %d",
		 v->errors + v->warnings + v->unchecked ? "," : "", names[f->severity], f->level);
	put_member(&out, "leaf", f->of_item ? NULL : f->leaf);
	put_member(&out, "file", f->file);
	if (f->has_range)
		buf_addf(&out, ", \"offset\": %llu, \"length\": %llu", (unsigned long long)f->off,
			 (unsigned long long)f->len);
	put_member(&out, "text", f->text);
	buf_add_byte(&out, '}');
	print_buf(stdout, &out);
}

static void say_text(const struct finding *f)
{
	static const char *const labels[] = { [SEVERITY_WARNING] = "warning",
					      [SEVERITY_ERROR] = "error",
					      [SEVERITY_UNCHECKED] = "cannot be checked",
					      [SEVERITY_REFUSED] = "warning" };

	printf("%s: ", labels[f->severity]);
	if (f->leaf && !f->of_item) {
		print_name(stdout, f->leaf);
		printf(": ");
	}
	if (f->file) {
		print_name(stdout, f->file);
		if (f->has_range)
			printf(":%llu:%llu", (unsigned long long)f->off,
			       (unsigned long long)f->len);
		printf(": ");
	}
	print_name(stdout, f->text);
	printf("\n");
}

/* ---- repeated findings ---- */

#define REPEATS_MOST 1000 /* distinct findings that are remembered; others are reported each time */

/* Returns the part of a text after the place of the finding, which is the same for all leaves. */
static const char *reason_of(const struct finding *f)
{
	const char *reason = f->text, *at;
	char place[64];

	snprintf(place, sizeof(place), ":%llu:%llu", (unsigned long long)f->off,
		 (unsigned long long)f->len);
	while ((at = strstr(reason, place)))
		reason = at + strlen(place);
	return reason + strspn(reason, "):, ");
}

static void count_leaf(struct verify_repeat *k, const char *leaf)
{
	if (!leaf || (k->leaf && !strcmp(k->leaf, leaf)))
		return;
	k->leaves++;
	free(k->leaf);
	k->leaf = strdup(leaf);
}

/* A damaged node of a database is found by the check of the database and by each leaf in it. */
static bool is_repeated(struct verify *v, const struct finding *f)
{
	const char *reason = f->text ? reason_of(f) : "";
	struct verify_repeat *k;

	if (!f->file || (!f->has_range && !f->of_item) || !*reason)
		return false;
	for (size_t i = 0; i < v->n_repeats; i++) {
		k = &v->repeat[i];
		if (k->off != f->off || k->len != f->len || strcmp(k->file, f->file) ||
		    strcmp(k->reason, reason))
			continue;
		count_leaf(k, f->leaf);
		return true;
	}
	if (v->n_repeats == REPEATS_MOST ||
	    !array_reserve(v->repeat, v->cap_repeats, v->n_repeats + 1))
		return false;
	k = &v->repeat[v->n_repeats];
	*k = (struct verify_repeat){
		.file = strdup(f->file), .reason = strdup(reason), .off = f->off, .len = f->len
	};
	if (k->file && k->reason) {
		count_leaf(k, f->leaf);
		v->n_repeats++;
	} else {
		free(k->file);
		free(k->reason);
	}
	return false;
}

void verify_repeats_release(struct verify *v)
{
	for (size_t i = 0; i < v->n_repeats; i++) {
		free(v->repeat[i].file);
		free(v->repeat[i].reason);
		free(v->repeat[i].leaf);
	}
	free(v->repeat);
}

void verify_say(struct verify *v, const struct finding *f)
{
	progress_clear(&v->t.progress);
	if (!group_is_lead(v->t.group)) {
		/* Rank 0 also has findings that concern no leaf. */
		if (!v->packed)
			return;
		if (verify_pack(f, v->packed) < 0)
			v->pack_failed = true;
	} else if (is_repeated(v, f)) {
		return;
	} else if (v->json) {
		verify_say_json(v, f);
	} else {
		say_text(f);
	}
	v->errors += f->severity == SEVERITY_ERROR;
	v->warnings += f->severity == SEVERITY_WARNING || f->severity == SEVERITY_REFUSED;
	v->refused += f->severity == SEVERITY_REFUSED;
	v->unchecked += f->severity == SEVERITY_UNCHECKED;
}

void verify_file(struct verify *v, int level, const char *file, const char *fmt, ...)
{
	auto_buf text = { 0 };
	va_list ap;

	va_start(ap, fmt);
	buf_vaddf(&text, fmt, ap);
	va_end(ap);
	verify_say(v, &(struct finding){ SEVERITY_ERROR, level, NULL, file, false, 0, 0,
					 buf_str(&text) });
}

int verify_failed(struct verify *v, const char *file, int r)
{
	/* Names that the server cannot list are not known, and what they have may be sound. */
	bool is_unlisted = r == -EOPNOTSUPP && !io_dir_can_list(v->ckpt->source);
	enum severity severity = is_unlisted ? SEVERITY_UNCHECKED : verify_severity(v, r);
	struct err_note note;

	if (r == -ENOMEM || r == -EINTR)
		return r;
	err_save(r, &note);
	err_clear();
	verify_say(v, &(struct finding){ severity, 1, NULL, file, false, 0, 0, note.text });
	return 0;
}

int verify_draft(struct verify *v, const char *path, const char *name)
{
	auto_free char *whole = verify_join(path, name);

	v->n_drafts++;
	return whole && buf_add(&v->drafts, whole, strlen(whole) + 1) >= 0 ? 0 : -ENOMEM;
}

/* Remove the two numbers at the end of "PATH:OFF:LEN" from *s, which becomes the path. */
static bool split_range(struct span *s, uint64_t *ret_off, uint64_t *ret_len)
{
	uint64_t number[2];
	struct span rest = *s;

	for (int i = 1; i >= 0; i--) {
		uint64_t unit = 1;
		size_t n = rest.n;

		number[i] = 0;
		while (n > 0 && rest.p[n - 1] >= '0' && rest.p[n - 1] <= '9') {
			number[i] += unit * (rest.p[n - 1] - (uint64_t)'0');
			unit *= 10;
			n--;
		}
		if (n == rest.n || n == 0 || rest.p[n - 1] != ':')
			return false;
		rest.n = n - 1;
	}
	*s = rest;
	*ret_off = number[0];
	*ret_len = number[1];
	return true;
}

/*
 * Find the end of "PATH:OFF:LEN". A path may contain any character that follows a place in a
 * sentence, so the end is the last range before the next place; only a place without a range ends
 * at a blank or a bracket.
 */
static struct span cut_place(const char *at, const char *const *kinds, size_t n_kinds)
{
	struct span whole = span_str(at);
	uint64_t off, len;

	for (size_t i = 0; i < n_kinds; i++) {
		const char *next = strstr(at, kinds[i]);

		if (next)
			whole.n = MIN(whole.n, (size_t)(next - at));
	}
	for (size_t n = whole.n; n > 0; n--) {
		struct span s = span_of(at, n);

		if (split_range(&s, &off, &len))
			return span_of(at, n);
	}
	whole = span_of(at, strcspn(at, " )',"));
	while (whole.n && whole.p[whole.n - 1] == ':')
		whole.n--;
	return whole;
}

bool verify_place(const char *text, const char *dir, struct finding *f, char **ret_file)
{
	static const char *const kinds[] = { "value:", "btreenode:", "versionnode:", "file:" };

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		const char *at = strstr(text, kinds[i]);
		auto_free char *path = NULL;
		struct span s;

		if (!at)
			continue;
		at += strlen(kinds[i]);
		s = cut_place(at, kinds, ARRAY_LEN(kinds));
		f->has_range = split_range(&s, &f->off, &f->len);
		path = span_dup_str(s);
		*ret_file = path ? verify_join(dir, path) : NULL;
		f->file = *ret_file;
		return *ret_file != NULL;
	}
	return false;
}
