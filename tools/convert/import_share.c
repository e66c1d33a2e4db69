/* SPDX-License-Identifier: Apache-2.0 */
/*
 * import_share.c - assigns the entries of an import list to ranks.
 *
 * Each rank lists the inputs itself, in the order of its directories. So the entries are compared
 * and assigned in the order of their paths.
 *
 * Invariants: an item that is not a tree is written by one rank, since ranks can only share trees.
 */
#include "core/base/err.h"
#include "handlers/plugin/plugins.h"
#include "tools/convert/import_list.h"
#include "tools/job/group_work.h"
#include "tools/convert/zip.h"

static int import_share_by_path(const void *a, const void *b)
{
	return strcmp((*(struct import_entry *const *)a)->path,
		      (*(struct import_entry *const *)b)->path);
}

static bool import_share_is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(path, dir, n) && (path[n] == '/' || !path[n] || n == 0);
}

/* 1: the item is stored byte for byte, or by a plugin. */
static int import_share_is_whole(const struct import_list *f, const char *path)
{
	auto_free char *item = span_dup_str(span_of(path, strcspn(path, "/")));
	struct plugin *plugin = NULL;
	int r = item ? plugin_of_item(item, NULL, NULL, &plugin) : -ENOMEM;

	for (size_t i = 0; i < f->n_marks && r >= 0 && !plugin; i++)
		if (!strcmp(f->mark[i].name, "kind") && strstr(f->mark[i].value, "opaque") &&
		    import_share_is_below(path, f->mark[i].path))
			return 1;
	return r < 0 ? r : plugin || item_bound(item) == ITEM_AS_FILES;
}

static int choose_owners(struct import_list *f, struct import_entry *const *at,
			 const struct rank_group *group)
{
	auto_free uint64_t *bytes = calloc(f->n + 1, sizeof(*bytes));
	auto_free int *owner = calloc(f->n + 1, sizeof(*owner));
	int r = bytes && owner ? 0 : fail(-ENOMEM, "cannot share %zu leaves", f->n);

	for (size_t i = 0; i < f->n && r >= 0; i++) {
		r = import_share_is_whole(f, at[i]->path);
		owner[i] = r == 1 ? 0 : -1;
		bytes[i] = at[i]->bytes;
	}
	if (r < 0)
		return r;
	r = group_split(group, f->n, bytes, owner);
	for (size_t i = 0; i < f->n && r >= 0; i++)
		at[i]->owner = owner[i];
	return r;
}

int import_list_share(struct import_list *f, struct rank_group *group)
{
	auto_free struct import_entry **at = NULL;
	auto_buf theirs = { 0 };
	uint32_t sum = 0;
	int r;

	if (!group)
		return 0;
	at = calloc(f->n + 1, sizeof(*at));
	for (size_t i = 0; i < f->n && at; i++)
		at[i] = &f->import_entry[i];
	if (at && f->n)
		qsort(at, f->n, sizeof(*at), import_share_by_path);
	for (size_t i = 0; i < f->n && at; i++) {
		sum = zip_crc(sum, at[i]->path, strlen(at[i]->path) + 1);
		sum = zip_crc(sum, &at[i]->bytes, sizeof(at[i]->bytes));
	}
	r = at ? choose_owners(f, at, group) : fail(-ENOMEM, "cannot list %zu leaves", f->n);
	if (r >= 0 && group_is_lead(group))
		r = buf_add(&theirs, &sum, sizeof(sum));
	r = group_reduce(group, r);
	if (r < 0)
		return r;
	r = group_broadcast(group, 0, &theirs);
	if (r >= 0 && (theirs.n != sizeof(sum) || memcmp(theirs.p, &sum, sizeof(sum))))
		r = fail(-EIO, "the input holds other leaves than on rank 0: do they see the same "
			       "source?");
	return group_reduce(group, r);
}
