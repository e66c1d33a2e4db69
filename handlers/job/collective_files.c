/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective_files.c - merges the files of all ranks that are stored as they are: those of an item
 * that is not a tree, and those beside the arrays of one that is, or beside the items.
 */
#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/path.h"
#include "handlers/job/collective_plan.h"

int collective_files_add(struct collective_item *it, const struct contribution_item *si, int rank)
{
	if (!array_reserve(it->file, it->cap_files, it->n_files + si->n_files))
		return fail(-ENOMEM, "cannot list %zu files", it->n_files + si->n_files);
	for (size_t i = 0; i < si->n_files; i++)
		it->file[it->n_files++] = (struct collective_file){ &si->file[i], rank };
	return 0;
}

static int job_files_by_name(const void *a, const void *b)
{
	const struct collective_file *x = a, *y = b;

	return span_cmp(x->file->name, y->file->name);
}

static int by_name_and_rank(const void *a, const void *b)
{
	const struct collective_file *x = a, *y = b;
	int r = job_files_by_name(a, b);

	return r ? r : (x->rank > y->rank) - (x->rank < y->rank);
}

static const struct collective_file *job_files_find(const struct collective_item *it,
						    struct span name)
{
	const struct contribution_file wanted = { .name = name };
	const struct collective_file key = { .file = &wanted };

	return it->n_files ? bsearch(&key, it->file, it->n_files, sizeof(key), job_files_by_name) :
			     NULL;
}

int collective_files_rank(const struct collective_item *it, const struct contribution_file *f)
{
	const struct collective_file *found = job_files_find(it, f->name);

	return found ? found->rank : -1;
}

bool collective_files_has(const struct collective_plan *jp, const char *name)
{
	for (size_t i = 0; i < jp->n_items; i++) {
		const struct collective_item *it = &jp->item[i];

		for (size_t k = 0; it->plan->kind == PLAN_BESIDE && k < it->n_files; k++)
			if (span_eq(path_first(it->file[k].file->name), span_str(name)))
				return true;
	}
	return false;
}

static int two_kinds(const struct collective_file *dir, const struct collective_file *file)
{
	return fail(-EINVAL, "'%.*s' is a directory on rank %d and a file on rank %d",
		    SPAN_ARG(file->file->name), dir->rank, file->rank);
}

/* Of files with one name, keep the one of the lowest rank. */
static int drop_replicas(struct collective_item *it)
{
	size_t n = 0;

	if (it->n_files)
		qsort(it->file, it->n_files, sizeof(*it->file), by_name_and_rank);
	for (size_t i = 0; i < it->n_files; i++) {
		const struct collective_file *f = &it->file[i], *last = n ? &it->file[n - 1] : NULL;

		if (!last || job_files_by_name(last, f))
			it->file[n++] = *f;
		else if (last->file->is_dir != f->file->is_dir)
			return f->file->is_dir ? two_kinds(f, last) : two_kinds(last, f);
	}
	it->n_files = n;
	return 0;
}

/* The name at the top of a tree is not that of a leaf or container, nor of a leaf's directory. */
static int check_tree(const struct collective_item *it, struct span top, int rank)
{
	const struct tree_node *root = it->plan->tree->root;
	bool is_shown = root->kind == TREE_LEAF ? span_eq(root->name, top) :
						  tree_child(root, top) != NULL;

	for (size_t i = 0; i < it->n_leaves && !is_shown && !it->plan->opts.ocdbt; i++)
		is_shown = span_eq(path_first(it->leaf[i].node->param), top);
	return is_shown ? fail(-EINVAL,
			       "'%.*s' is a file beside the tree on rank %d and a part of it on "
			       "another",
			       SPAN_ARG(top), rank) :
			  0;
}

static int job_files_check_names(const struct collective_plan *jp, struct collective_item *it)
{
	enum plan_item kind = it->plan->kind;
	int r = it->n_files && kind == PLAN_TREE ?
			tree_name(it->plan->tree, NAME_OURS_METADATA, leaf_ext, NULL) :
			0;

	for (size_t i = 0; i < it->n_files && r >= 0; i++) {
		const struct collective_file *f = &it->file[i], *above;
		struct span name = f->file->name, top = path_first(name);

		for (size_t k = 0; k < name.n; k++) {
			above = name.p[k] == '/' ? job_files_find(it, span_of(name.p, k)) : NULL;
			if (above && !above->file->is_dir)
				return two_kinds(f, above);
		}
		r = kind == PLAN_TREE ? check_tree(it, top, f->rank) : 0;
		for (size_t k = 0; k < jp->n_items && kind == PLAN_BESIDE; k++)
			if (span_eq(span_str(jp->item[k].plan->name), top))
				return fail(-EINVAL,
					    "'%.*s' is a file beside the items on rank %d and an "
					    "item on rank %d",
					    SPAN_ARG(top), f->rank, jp->item[k].first_rank);
	}
	return r;
}

int collective_files_decide(const struct collective_plan *jp, struct collective_item *it)
{
	int r = drop_replicas(it);

	/* Orbax reads an item of one file as JSON or text: of several ranks, it may have more. */
	if (it->plan->kind == PLAN_STORED && it->n_files != 1)
		it->handler = span_of(NULL, 0);
	r = r < 0 ? r : job_files_check_names(jp, it);
	return r < 0 && *it->plan->name ? err_at(r, "item '%s'", it->plan->name) : r;
}
