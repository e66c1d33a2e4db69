/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_files.c - compares files byte for byte: items that are not trees, and other files beside
 * arrays and items.
 */
#include <dirent.h>
#include <fcntl.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/io/segments.h"
#include "core/step/item_others.h"
#include "handlers/namespace/node_parts.h"
#include "tools/diff/diff.h"

#define FILE_BLOCK ((size_t)1 << 20)

/* ---- files and directories ---- */

static int diff_files_read(struct node *node, struct file *f, uint64_t off, size_t n, void *ret)
{
	auto_segments g = { 0 };
	int r;

	segments_init(&g, node->ns->ckpt->cache);
	r = file_read(f, off, n, &g);
	return r < 0 ? r : segments_copy(&g, ret);
}

/* 1 the same, 0 not. */
static int same_bytes(struct node *a, struct node *b)
{
	auto_of(file) struct file *fa = NULL, *fb = NULL;
	auto_free char *pa = malloc(FILE_BLOCK), *pb = malloc(FILE_BLOCK);
	struct stat sa, sb;
	int r = pa && pb ? node_stat(a, &sa) : -ENOMEM;

	if (r < 0)
		return r;
	r = node_stat(b, &sb);
	if (r < 0)
		return r;
	if (sa.st_size != sb.st_size || S_ISDIR(sa.st_mode) != S_ISDIR(sb.st_mode))
		return 0;
	r = node_open(a, O_RDONLY, &fa);
	if (r < 0)
		return r;
	r = node_open(b, O_RDONLY, &fb);
	if (r < 0)
		return r;
	for (uint64_t at = 0; at < (uint64_t)sa.st_size; at += FILE_BLOCK) {
		size_t n = MIN(FILE_BLOCK, (size_t)((uint64_t)sa.st_size - at));

		r = diff_files_read(a, fa, at, n, pa);
		if (r < 0)
			return r;
		r = diff_files_read(b, fb, at, n, pb);
		if (r < 0)
			return r;
		if (memcmp(pa, pb, n))
			return 0;
	}
	return 1;
}

static int compare_file(struct diff *d, struct node *a, struct node *b, const char *path)
{
	int r = same_bytes(a, b);

	if (r < 0)
		return r;
	if (!r)
		diff_say(d, path, "content", "");
	d->compared++;
	d->same += r > 0;
	return 0;
}

int diff_type_of(const struct listing *l, const char *name)
{
	for (size_t i = 2; i < l->n; i++)
		if (!strcmp(listing_name(l, i), name))
			return l->entry[i].type;
	return -1;
}

void diff_only_in_b(struct diff *d, const char *prefix, const struct listing *la,
		    const struct listing *lb)
{
	for (size_t i = 2; i < lb->n; i++) {
		const char *name = listing_name(lb, i);
		auto_buf path = { 0 };

		if (diff_type_of(la, name) < 0 && buf_addf(&path, "%s%s", prefix, name) >= 0)
			diff_say(d, buf_str(&path), "only in B", "");
	}
}

/* The recursion is as deep as the directories on disk, whose paths the kernel limits. */
static int compare_files(struct diff *d, struct node *a, struct node *b, const char *path)
{
	auto_listing la = { 0 }, lb = { 0 };
	auto_buf prefix = { 0 };
	int r = buf_addf(&prefix, "%s/", path);

	if (r < 0)
		return r;
	r = node_list(a, &la);
	if (r < 0)
		return r;
	r = node_list(b, &lb);
	for (size_t i = 2; i < la.n && r >= 0; i++) {
		auto_node *na = NULL, *nb = NULL;
		auto_buf below = { 0 };
		struct span name = span_str(listing_name(&la, i));
		bool is_dir = la.entry[i].type == DT_DIR;
		int other = diff_type_of(&lb, listing_name(&la, i));

		r = buf_addf(&below, "%s/%.*s", path, SPAN_ARG(name));
		if (r < 0)
			return r;
		if (other < 0 || (other == DT_DIR) != is_dir) {
			diff_say(d, buf_str(&below), other < 0 ? "only in A" : "kind", "");
			continue;
		}
		r = node_lookup(a, name, &na);
		if (r < 0)
			return r;
		r = node_lookup(b, name, &nb);
		if (r < 0)
			return r;
		r = is_dir ? compare_files(d, na, nb, buf_str(&below)) :
			     compare_file(d, na, nb, buf_str(&below));
	}
	if (r < 0)
		return r;
	diff_only_in_b(d, buf_str(&prefix), &la, &lb);
	return 0;
}

int diff_file_part(struct diff *d, const char *prefix, struct node *a, struct node *b,
		   const struct subtree_part *part)
{
	auto_node *na = NULL, *nb = NULL;
	auto_buf path = { 0 };
	int r = buf_addf(&path, "%s%s", prefix, part->path);

	if (r < 0)
		return r;
	r = node_walk(a, part->path, &na);
	if (r < 0)
		return r;
	r = node_walk(b, part->path, &nb);
	return r < 0 ? r : compare_files(d, na, nb, buf_str(&path));
}

/* ---- beside arrays and items ---- */

struct other {
	char *path, *key; /* key: the path, without the name of an item if names do not matter */
	unsigned char type;
};

struct others {
	bool single; /* both sides are one tree, whatever the names of their items are */
	struct other *other;
	size_t n, cap;
};

static void others_release(struct others *o)
{
	for (size_t i = 0; i < o->n; i++)
		free(o->other[i].path);
	free(o->other);
}
#define auto_others __attribute__((cleanup(others_release))) struct others

static int diff_files_add_other(void *arg, const struct subtree_part *part,
				const struct subtree_other *other)
{
	struct others *o = arg;
	char *path = strdup(other->path);
	size_t skip = o->single && part && *part->path ? strlen(part->path) + 1 : 0;

	if (!path || !array_reserve(o->other, o->cap, o->n + 1)) {
		free(path);
		return fail(-ENOMEM, "cannot compare files");
	}
	o->other[o->n++] = (struct other){ path, path + skip, other->type };
	return 0;
}

static int diff_files_by_key(const void *a, const void *b)
{
	return strcmp(((const struct other *)a)->key, ((const struct other *)b)->key);
}

static int diff_files_list_others(const struct subtree *st, struct others *ret)
{
	int r = subtree_each_other(st, diff_files_add_other, ret);

	if (r < 0)
		return r;
	if (ret->n)
		qsort(ret->other, ret->n, sizeof(*ret->other), diff_files_by_key);
	return r;
}

static int compare_other(struct diff *d, const char *prefix, struct node *a, const struct other *oa,
			 struct node *b, const struct other *ob)
{
	auto_node *na = NULL, *nb = NULL;
	auto_buf path = { 0 };
	int r = buf_addf(&path, "%s%s", prefix, oa ? oa->path : ob->path);

	if (r < 0)
		return r;
	if (!oa || !ob || oa->type != ob->type) {
		diff_say(d, buf_str(&path), !oa ? "only in B" : !ob ? "only in A" : "kind", "");
		return 0;
	}
	r = node_walk(a, oa->path, &na);
	if (r < 0)
		return r;
	r = node_walk(b, ob->path, &nb);
	if (r < 0)
		return r;
	return oa->type == DT_DIR ? compare_files(d, na, nb, buf_str(&path)) :
				    compare_file(d, na, nb, buf_str(&path));
}

int diff_others(struct diff *d, const char *prefix, struct node *a, struct node *b, bool single)
{
	auto_others la = { .single = single }, lb = { .single = single };
	size_t i = 0, k = 0;
	int r;

	/* Nobody knows what a source has that cannot be listed. */
	if (!others_are_listed(a->ns->ckpt) || !others_are_listed(b->ns->ckpt))
		return 0;
	r = diff_files_list_others(d->a, &la);
	if (r < 0)
		return r;
	r = diff_files_list_others(d->b, &lb);
	while (r >= 0 && (i < la.n || k < lb.n)) {
		int c = i == la.n ? 1 :
			k == lb.n ? -1 :
				    diff_files_by_key(&la.other[i], &lb.other[k]);

		r = compare_other(d, prefix, a, c <= 0 ? &la.other[i] : NULL, b,
				  c >= 0 ? &lb.other[k] : NULL);
		i += c <= 0;
		k += c >= 0;
	}
	return r;
}
