/* SPDX-License-Identifier: Apache-2.0 */
/*
 * absent_name.c - the error for a name that is not in a checkpoint, with the nearest name that is.
 */
#include "core/base/err.h"
#include "core/base/nearest.h"
#include "tools/cli/cmd.h"

#define SUGGEST 4096 /* largest number of names in a directory that are compared */

/* Returns the deepest existing directory along a path; *ret_n is the length of the path to it. */
static struct node *deepest(struct node *top, const char *path, size_t *ret_n)
{
	struct node *at = node_ref(top);

	*ret_n = 0;
	for (size_t end = strcspn(path, "/"); path[end]; end += 1 + strcspn(path + end + 1, "/")) {
		auto_free char *part = span_dup_str(span_of(path, end));
		struct node *next;

		if (!part || node_walk(top, part, &next) < 0)
			break;
		node_unref(at, 1);
		at = next;
		*ret_n = end + 1;
	}
	return at;
}

/* The part of a listed name that is compared: without its extension if the user typed none. */
static struct span comparable(const char *name, bool has_extension)
{
	const char *dot = has_extension ? NULL : strrchr(name, '.');

	return dot && dot > name ? span_of(name, (size_t)(dot - name)) : span_str(name);
}

/* Whether the name of a step, step_000008, has a number that was typed: 8. */
static bool is_numbered(const char *name, const char *typed)
{
	size_t n = strlen(name), at = n;

	while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9')
		at--;
	if (at == n || *typed < '0' || *typed > '9')
		return false;
	return !strcmp(name + at + strspn(name + at, "0"), typed + strspn(typed, "0"));
}

static void nearest_in(struct node *dir, const char *typed, struct buf *ret)
{
	auto_listing l = { 0 };
	const char *best = NULL;
	struct nearest n;

	if (node_list(dir, &l) < 0 || l.n > SUGGEST)
		return;
	nearest_begin(&n, typed);
	for (size_t i = 2; i < l.n; i++) {
		if (is_numbered(listing_name(&l, i), typed)) {
			buf_add_str(ret, listing_name(&l, i));
			return;
		}
		auto_free char *name =
			span_dup_str(comparable(listing_name(&l, i), strchr(typed, '.') != NULL));

		n.best = NULL;
		if (name)
			nearest_try(&n, name);
		if (n.best)
			best = listing_name(&l, i);
	}
	if (best)
		buf_add_str(ret, best);
}

int fail_absent_name(struct node *dir, const char *source, const char *path)
{
	auto_buf near = { 0 };
	size_t n;
	auto_node *at = deepest(dir, path, &n);
	auto_free char *typed = span_dup_str(span_of(path + n, strcspn(path + n, "/")));

	if (typed && *typed)
		nearest_in(at, typed, &near);
	err_clear();
	if (!near.n)
		return fail(-ENOENT, "'%s' has no '%s'", source, path);
	return fail(-ENOENT, "'%s' has no '%s'; did you mean '%.*s%.*s'?", source, path, (int)n,
		    path, SPAN_ARG(buf_span(&near)));
}
