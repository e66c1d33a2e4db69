/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tidy.c - remove data that a draft needed and its step does not: data files, ranges of these, and
 * directories that no leaf refers to.
 *
 * Leaves that were overwritten, removed or cast leave their old values in data files, and so do
 * arrays that were assembled from parts or written to the legacy file. All of these may be needed
 * again until the step exists, so they are removed last.
 *
 * A data file that no leaf refers to is deleted; in a file that is mostly used, the unused ranges
 * are punched out.
 */
#include "core/commit/tidy.h"

#include <fcntl.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/kv/kv_sum.h"

#define WASTE_MIN ((uint64_t)1 << 20) /* unused bytes from which a file is searched for holes */
#define HOLE_MIN ((uint64_t)1 << 16)  /* the smallest hole that is punched */

struct data_file {
	struct span path; /* borrowed from the store */
	uint64_t size, used;
	bool is_wasteful;
};

struct range {
	size_t file;
	uint64_t off, len;
};

struct tidying {
	struct data_file *file; /* the files of the store, sorted by path */
	size_t n, cap;
	size_t last; /* index of the file found last, since neighbours are often in the same file */
	struct range *range; /* ranges of wasteful files that leaves refer to */
	size_t n_ranges, cap_ranges;
};

static int tidy_add_file(void *arg, const char *path)
{
	struct tidying *t = arg;

	if (!array_reserve(t->file, t->cap, t->n + 1))
		return fail(-ENOMEM, "cannot look at %zu data files", t->n + 1);
	t->file[t->n++] = (struct data_file){ .path = span_str(path) };
	return 0;
}

static int tidy_by_path(const void *a, const void *b)
{
	return span_cmp(((const struct data_file *)a)->path, ((const struct data_file *)b)->path);
}

/* Find the file that contains a value, or NULL for a value that is in no file. */
static int tidy_find_file(struct tidying *t, const struct ocdbt_value *value,
			  struct data_file **ret)
{
	const struct data_file want = { .path = value->ref.rel };

	*ret = NULL;
	if (value->kind != OCDBT_FILE || !value->ref.len)
		return 0;
	if (t->last >= t->n || t->file[t->last].path.p != want.path.p) {
		const struct data_file *found =
			bsearch(&want, t->file, t->n, sizeof(want), tidy_by_path);

		if (!found)
			return fail(-EINVAL, "'%.*s' is not a data file of this item",
				    SPAN_ARG(want.path));
		t->last = (size_t)(found - t->file);
	}
	*ret = &t->file[t->last];
	return 0;
}

static int count_used(void *arg, struct span key, const struct ocdbt_value *value)
{
	struct data_file *f;
	int r = tidy_find_file(arg, value, &f);

	if (f)
		f->used += value->ref.len + KV_SUM_BYTES;
	return r;
}

static int tidy_add_range(void *arg, struct span key, const struct ocdbt_value *value)
{
	struct tidying *t = arg;
	struct data_file *f;
	int r = tidy_find_file(t, value, &f);

	if (r < 0 || !f || !f->is_wasteful)
		return r;
	if (!array_reserve(t->range, t->cap_ranges, t->n_ranges + 1))
		return fail(-ENOMEM, "cannot look at %zu values", t->n_ranges + 1);
	t->range[t->n_ranges++] = (struct range){ (size_t)(f - t->file), value->ref.off,
						  value->ref.len + KV_SUM_BYTES };
	return 0;
}

static int each_value(struct tidying *t, const struct commit_item *item, item_store_each_fn *each)
{
	int r = 0;

	for (size_t i = 0; i < item->n_leaves && r >= 0; i++)
		r = item_store_leaf_each(item->leaves[i].kv, each, t);
	return r;
}

/* Remove files that no leaf refers to, and report whether others have many unused bytes. */
static int remove_unused(struct tidying *t, struct io_dir *dir, bool *ret_wasteful)
{
	int r = 0;

	for (size_t i = 0; i < t->n && r >= 0; i++) {
		struct data_file *f = &t->file[i];
		const char *path = (const char *)f->path.p;
		struct stat st;

		if (!f->used) {
			trace(TRACE_OCDBT, "no leaf refers to '%s'", path);
			r = io_dirop(dir, IO_UNLINK, path, NULL, 0);
			continue;
		}
		r = io_stat(dir, path, &st);
		f->size = r < 0 ? 0 : (uint64_t)st.st_size;
		f->is_wasteful = f->size >= f->used + WASTE_MIN;
		*ret_wasteful |= f->is_wasteful;
	}
	return r;
}

static int tidy_by_place(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

static void tidy_give_back(struct io_file *file, uint64_t from, uint64_t to)
{
	if (from + HOLE_MIN > to)
		return;
	trace(TRACE_OCDBT, "no leaf refers to bytes %llu to %llu of '%s'", (unsigned long long)from,
	      (unsigned long long)to, file->name);
	io_file_punch(file, from, to - from);
}

/*
 * The ranges of one file are sorted, and may overlap, since several leaves may refer to the same
 * bytes.
 */
static int punch_file(struct io_dir *dir, const struct data_file *f, const struct range *range,
		      size_t n)
{
	auto_of(io_file) struct io_file *file = NULL;
	uint64_t end = 0;
	int r = io_file_open(dir, (const char *)f->path.p, O_RDWR, 0, &file);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		if (range[i].off > end)
			tidy_give_back(file, end, range[i].off);
		end = MAX(end, range[i].off + range[i].len);
	}
	if (f->size > end)
		tidy_give_back(file, end, f->size);
	return 0;
}

static int punch_wasteful(struct tidying *t, const struct commit_item *item)
{
	int r = each_value(t, item, tidy_add_range);

	if (r < 0)
		return r;
	if (t->n_ranges)
		qsort(t->range, t->n_ranges, sizeof(*t->range), tidy_by_place);
	for (size_t at = 0, n; at < t->n_ranges && r >= 0; at += n) {
		for (n = 1; at + n < t->n_ranges && t->range[at + n].file == t->range[at].file;)
			n++;
		r = punch_file(item_store_dir(item->store), &t->file[t->range[at].file],
			       t->range + at, n);
	}
	return r;
}

static int tidy_database(const struct commit_item *item)
{
	struct io_dir *dir = item_store_dir(item->store);
	struct tidying t = { 0 };
	bool wasteful = false;
	int r;

	/* Without leaves there is no database. */
	if (!item->n_leaves)
		return io_remove_tree(dir, "d");
	r = item_store_each_file(item->store, tidy_add_file, &t);
	if (r >= 0 && t.n) {
		qsort(t.file, t.n, sizeof(*t.file), tidy_by_path);
		t.last = t.n;
		r = each_value(&t, item, count_used);
		r = r < 0 ? r : remove_unused(&t, dir, &wasteful);
		r = r < 0 || !wasteful ? r : punch_wasteful(&t, item);
	}
	free(t.file);
	free(t.range);
	return r;
}

static bool is_of_step(void *arg, const char *name)
{
	return !item_store_is_temporary(name);
}

int tidy_item(const struct commit_item *item)
{
	if (!item->store)
		return 0;
	if (item_store_is_ocdbt(item->store))
		return tidy_database(item);
	/* All leaves have their own names, so directories with temporary names are not theirs. */
	return item->n_retained ?
		       io_remove_entries(item_store_dir(item->store), ".", is_of_step, NULL) :
		       0;
}
