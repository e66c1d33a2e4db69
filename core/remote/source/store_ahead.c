/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_ahead.c - requests that are sent at once, and those that go with a document.
 *
 * A document is pinned to the tag and size of its listing, as any file is.
 */
#include "core/remote/source/store_ahead.h"

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/path.h"
#include "core/remote/source/object_names.h"

#define DOCUMENT_MAX (8 * MiB)

int store_ahead_list(struct store_ahead *a, const char *path, unsigned most)
{
	int r;

	if (a->n_listings == AHEAD_LISTINGS)
		return 0;
	r = a->s->kind->list_begin(a->s, path, most, &a->listing[a->n_listings]);
	a->n_listings += r >= 0;
	return r;
}

size_t store_ahead_end(struct store_ahead *a)
{
	struct io_object dir;
	size_t n = 0;

	for (size_t i = 0; i < a->n_listings; i++)
		if (a->s->kind->list_end(a->listing[i], &dir) >= 0)
			n = i + 1;
	for (size_t i = 0; i < a->n_ranges; i++) {
		if (first_range_end(a->s, &a->range[i]) >= 0)
			first_range_keep(a->s, &a->range[i]);
		first_range_release(&a->range[i]);
	}
	err_clear();
	return n;
}

/* ---- documents ---- */

/* Documents that are fetched ahead, and the largest size of each. */
static const struct {
	const char *name;
	size_t most;
} documents[] = {
	{ "_CHECKPOINT_METADATA", 64 * KiB },
	{ "_METADATA", DOCUMENT_MAX },
	{ "manifest.ocdbt", 64 * KiB },
	{ "_strings.json", 64 * KiB },
};

/* 0: it is not a document. */
static size_t document_most(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(documents); i++)
		if (!strcmp(documents[i].name, name))
			return documents[i].most;
	return 0;
}

bool document_is_name(const char *name)
{
	return document_most(name) > 0;
}

/* Request one entry of a directory with a document, if a reader needs it next: another document, an
 * item of a step, the data files of an item or of its processes. */
static int request_entry(struct store_ahead *a, const struct object_list *l,
			 const struct object_list_entry *e, bool is_step, bool is_database)
{
	bool is_part = !strncmp(e->name, RANK_PREFIX, strlen(RANK_PREFIX));
	const struct io_object o = object_list_get(e);
	auto_free char *path = str_fmt("%s%s%s%s", l->path, *l->path ? "/" : "", e->name,
				       is_database && is_part ? "/d" : "");
	int r;

	if (!path)
		return -ENOMEM;
	if (e->is_dir && (is_step || (is_database && (is_part || !strcmp(e->name, "d")))))
		return a->s->kind->list_begin && !dir_cache_has_listing(&a->s->dirs, path) ?
			       store_ahead_list(a, path, 0) :
			       0;
	if (e->is_dir || !e->size || !*o.tag || e->size > document_most(e->name) ||
	    dir_cache_has_bytes(&a->s->dirs, path, &o))
		return 0;
	r = first_range_whole(a->s, path, &o, &a->range[a->n_ranges]);
	a->n_ranges += r >= 0;
	return r;
}

void store_ahead_of_document(struct store *s, const struct io_file *file, uint64_t off, size_t n)
{
	auto_of(object_list) struct object_list *l = NULL;
	auto_free struct store_ahead *a = NULL;
	auto_free char *dir = NULL;
	bool is_step, is_database;

	/* Without a tag an object is known only by its size, which is not enough. */
	if (!*file->tag || !file->size || file->size > document_most(path_last(file->key)) ||
	    off > file->size || n > file->size - off)
		return;
	dir = span_dup_str(path_above(file->key));
	a = calloc(1, sizeof(*a));
	l = dir && a ? dir_cache_listing(&s->dirs, dir) : NULL;
	if (!l)
		return;
	a->s = s;
	is_step = object_list_find(l, "_CHECKPOINT_METADATA", NULL);
	is_database = object_list_find(l, "manifest.ocdbt", NULL);
	for (size_t i = 0; i < l->n; i++)
		if (request_entry(a, l, &l->entry[i], is_step, is_database) < 0)
			break;
	store_ahead_end(a);
}
