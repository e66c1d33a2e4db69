/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selected.c - the set of leaves that --only selects, by name, for listings of directories.
 */
#include "tools/select/selected.h"

#include <string.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "handlers/namespace/node_parts.h"
#include "tools/select/select.h"

/* An item that cannot be opened has no leaves; the listing reports its error. */
static int add_tree(struct selected *s, struct node *n, const char *prefix, struct select *only)
{
	struct subtree_place at = { 0 };
	auto_subtree st = { 0 };
	int r = node_open_subtree(n, &st);

	while (r >= 0 && subtree_next(&st, &at)) {
		auto_buf path = { 0 };
		char *copy = NULL;

		if (at.node->kind != TREE_LEAF || !select_leaf(only, prefix, at.part, at.node))
			continue;
		if (!array_reserve(s->path, s->cap, s->n + 1))
			return fail(-ENOMEM, "cannot list %zu leaves", s->n + 1);
		if (buf_add_str(&path, prefix) >= 0 && subtree_path(at.part, at.node, &path) >= 0)
			copy = span_dup_str(buf_span(&path));
		if (!copy)
			return fail(-ENOMEM, "cannot name a leaf");
		s->path[s->n++] = copy;
	}
	return r;
}

static int selected_add_steps(struct selected *s, struct node *root, struct select *only)
{
	auto_listing l = { 0 };
	int r = node_list(root, &l);

	for (size_t i = 2; i < l.n && r >= 0; i++) {
		auto_free char *prefix = str_fmt("%s/", listing_name(&l, i));
		auto_node *step = NULL;

		r = prefix ? node_lookup(root, span_str(listing_name(&l, i)), &step) : -ENOMEM;
		if (r >= 0)
			r = add_tree(s, step, prefix, only);
		if (r < 0 && r != -ENOMEM) {
			err_clear();
			r = 0;
		}
	}
	return r;
}

int selected_make(struct cmd_args *a, struct source *s, struct selected *ret)
{
	struct select *only;
	int r = select_make(a, &only);

	*ret = (struct selected){ .is_all = !only };
	if (r < 0 || !only)
		return r;
	r = node_is_root(s->node) ? selected_add_steps(ret, s->node, only) :
				    add_tree(ret, s->node, "", only);
	if (r < 0)
		return r;
	r = select_end(only);
	if (r < 0)
		return r;
	if (ret->n)
		qsort(ret->path, ret->n, sizeof(*ret->path), array_by_text);
	return r;
}

void selected_release(struct selected *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->path[i]);
	free(s->path);
	*s = (struct selected){ 0 };
}

/* Returns the first path that is not before a text. */
static const char *first_from(const struct selected *s, const char *text)
{
	size_t lo = 0, hi = s->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (strcmp(s->path[mid], text) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < s->n ? s->path[lo] : NULL;
}

bool selected_has(const struct selected *s, const char *path)
{
	auto_free char *below = s->is_all ? NULL : str_fmt("%s/", path);
	const char *found;

	if (s->is_all)
		return true;
	found = first_from(s, path);
	if (found && !strcmp(found, path))
		return true;
	found = below ? first_from(s, below) : NULL;
	return found && !strncmp(found, below, strlen(below));
}
