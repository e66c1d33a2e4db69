/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_map.c - maps leaves where they are stored: each file once, for all leaves of a call.
 *
 * A map is private to the call that made it, so writing into a leaf of one call is not seen in
 * another one's.
 */
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "handlers/namespace/node_tree.h"
#include "tools/lib/lib.h"

struct pytreefs_map {
	atomic_uint refs;
	uint8_t *at;
	size_t size;
	uint64_t dev, ino;
	struct pytreefs_map *next; /* during the call */
};

void pytreefs_unmap(struct pytreefs_map *map)
{
	if (!map || atomic_fetch_sub_explicit(&map->refs, 1, memory_order_acq_rel) != 1)
		return;
	munmap(map->at, map->size);
	free(map);
}

void pytreefs_mapped_release(struct pytreefs_mapped *m, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		pytreefs_unmap(m[i].map);
		free(m[i].error);
		m[i].map = NULL;
		m[i].error = NULL;
	}
}

static int map_file(struct io_file *file, unsigned flags, struct pytreefs_map **ret)
{
	int access = PROT_READ | (flags & PYTREEFS_MAP_WRITE ? PROT_WRITE : 0);
	auto_free struct pytreefs_map *map = calloc(1, sizeof(*map));
	int r = map ? io_file_check_size(file) : fail(-ENOMEM, "cannot map '%s'", file->name);

	if (r < 0)
		return r;
	map->size = (size_t)file->size;
	/* Pages that are never written need no memory, so none is reserved for them. */
	map->at = mmap(NULL, map->size, access, MAP_PRIVATE | MAP_NORESERVE, file->fd, 0);
	if (map->at == MAP_FAILED)
		return err_sys("cannot map", file->name);
	/* Pages that come from the disk are large ones (io_file_fill_cache()). */
	madvise(map->at, map->size, MADV_HUGEPAGE);
	map->refs = 1;
	map->dev = file->dev;
	map->ino = file->ino;
	*ret = take(map);
	return 0;
}

/* The map of a file, without a reference of its own; *all has one for each. */
static int find_map(struct pytreefs_map **all, struct io_file *file, unsigned flags,
		    struct pytreefs_map **ret)
{
	struct pytreefs_map *map = *all;
	int r;

	while (map && (map->dev != file->dev || map->ino != file->ino))
		map = map->next;
	if (!map) {
		r = map_file(file, flags, &map);
		if (r < 0)
			return r;
		map->next = *all;
		*all = map;
	}
	*ret = map;
	return 0;
}

static int lib_map_find_leaf(struct lib_finder *f, const struct pytreefs_mapped *m,
			     struct zarr_mapped *ret)
{
	struct node_leaf *leaf = NULL;
	auto_node *n = NULL;
	auto_value v = { 0 };
	struct zarr_view view;
	int r = lib_find_leaf(f, m->name, m->version, &n, &leaf);

	if (r < 0)
		return r;
	r = node_leaf_value(leaf, &v, &view);
	if (r < 0)
		return r;
	return v.kind == VALUE_ARRAY ? zarr_find_mapped(v.array, &view, ret) : 0;
}

static int map_leaf(struct lib_finder *f, struct pytreefs_mapped *m, unsigned flags,
		    struct pytreefs_map **all)
{
	struct zarr_mapped found = { 0 };
	struct pytreefs_map *map;
	int r = lib_map_find_leaf(f, m, &found);

	if (r == -EOPNOTSUPP)
		return fail(r, "it cannot be mapped: %s", err_text(r));
	if (r <= 0)
		return r < 0 ? r : 1;
	r = find_map(all, found.file, flags, &map);
	io_file_unref(found.file);
	if (r < 0)
		return r;
	atomic_fetch_add_explicit(&map->refs, 1, memory_order_relaxed);
	m->map = map;
	m->at = map->at + found.off;
	m->size = (size_t)found.bytes;
	memcpy(m->strides, found.stride, sizeof(m->strides));
	return 0;
}

int pytreefs_map(struct pytreefs *ck, struct pytreefs_mapped *m, size_t n, unsigned flags)
{
	struct pytreefs_map *all = NULL;
	struct err_note failed = { 0 };
	struct lib_finder f;
	int r = lib_begin(ck, NULL);

	_Static_assert(sizeof(m->strides) == sizeof(((struct zarr_mapped *)NULL)->stride),
		       "the axes of an array");
	if (r < 0)
		return (int)lib_end(r);
	lib_finder_init(&f, ck);
	for (size_t i = 0; i < n; i++) {
		m[i].map = NULL;
		m[i].error = NULL;
		m[i].result = map_leaf(&f, &m[i], flags, &all);
		if (m[i].result >= 0)
			continue;
		if (*m[i].name)
			err_at(m[i].result, "'%s'", m[i].name);
		m[i].error = strdup(err_text(m[i].result));
		if (!failed.code)
			err_save(m[i].result, &failed);
	}
	while (all) {
		struct pytreefs_map *next = all->next;

		pytreefs_unmap(all);
		all = next;
	}
	r = (int)lib_end(failed.code ? err_restore(&failed) : 0);
	lib_finder_release(&f);
	return r;
}
