/* SPDX-License-Identifier: Apache-2.0 */
/*
 * subtree_file.c - the bytes of a subtree's file: the place of each leaf, and reads.
 *
 * handlers/namespace/node_subtree.c has the nodes of the mount. A file is immutable once it is
 * made; only a reader has state that changes.
 */
#include "handlers/subtree/subtree_file.h"

#include <pthread.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/meter.h"
#include "handlers/leaf/leaf.h"
#include "handlers/subtree/safetensors_list.h"
#include "handlers/subtree/safetensors_lost.h"

#define OPEN_ARRAYS 64     /* limit for one reader */
#define PREFETCH_LEAVES 32 /* leaves that one hint covers */

struct extent {
	uint64_t off, bytes; /* in the file; extents are in ascending order */
	const struct tree_node *leaf;
	uint32_t part;
	enum dtype dtype; /* in the file */
};

struct subtree_file {
	struct buf head;
	struct extent *extent;
	struct arena arena; /* memory of the extents */
	size_t n;
	uint64_t size;
};

void subtree_file_free(struct subtree_file *f)
{
	if (!f)
		return;
	buf_release(&f->head);
	arena_release(&f->arena);
	free(f);
}

uint64_t subtree_file_size(const struct subtree_file *f)
{
	return f->size;
}

uint64_t subtree_file_head(const struct subtree_file *f)
{
	return f->head.n;
}

uint64_t subtree_file_memory(const struct subtree_file *f)
{
	return sizeof(*f) + f->head.cap + f->n * sizeof(*f->extent);
}

/* ---- making a safetensors file ---- */

static int add_leaf(struct safetensors_list *l, const struct leaf_info *f, size_t id)
{
	auto_buf path = { .metered = true };
	struct span own;
	int r = subtree_path(f->part, f->leaf, &path);

	if (r < 0)
		return r;
	switch (f->kind) {
	case VALUE_ARRAY:
	case VALUE_TEXT:
		r = arena_keep(&l->arena, buf_span(&path), &own);
		return r < 0 ? r : safetensors_list_add(l, f, own, id);
	case VALUE_NONE:
		return 0;
	case VALUE_FILE:
		return fail(-EOPNOTSUPP, "'%s': a leaf of a plugin cannot be a tensor",
			    buf_str(&path));
	case VALUE_UNKNOWN:
		break;
	}
	return fail(f->error ? f->error : -EOPNOTSUPP, "'%s': %s", buf_str(&path), f->why);
}

static int make_safetensors(const struct leaf_table *s, const struct subtree_want *want,
			    struct subtree_file *f)
{
	const struct subtree *st = s->subtree;
	auto_safetensors_list l = {
		.st = st,
		.casts = { (int)want->restore_dtype, want->cast, true },
		.separator = want->separator,
		.arena.metered = true,
	};
	auto_buf lost = { .metered = true };
	int r;

	for (size_t i = 0; i < st->n; i++)
		if (st->part[i].kind == PART_BROKEN)
			return err_restore(st->part[i].note);
	r = safetensors_list_begin(&l, s->n);
	for (size_t i = 0; i < s->n && r >= 0; i++)
		r = add_leaf(&l, &s->leaf[i], i);
	if (r < 0)
		return r;
	r = safetensors_list_end(&l);
	if (r < 0)
		return r;
	r = safetensors_header(l.tensor, l.n, l.text, l.n_texts, &f->head);
	if (r < 0)
		return r;
	/* Log the losses, for users who copy the file elsewhere. */
	r = safetensors_lost_out(st, want->separator, &lost);
	if (r < 0)
		return r;
	if (lost.n)
		log_info("'%s.safetensors' does not hold all of the tree: %.*s", want->name,
			 SPAN_ARG(buf_span(&lost)));
	f->extent = arena_calloc(&f->arena, l.n + 1, sizeof(*f->extent));
	if (!f->extent)
		return fail(-ENOMEM, "cannot lay out %zu tensors", l.n);
	f->n = l.n;
	f->size = f->head.n;
	for (size_t i = 0; i < l.n; i++) {
		const struct st_tensor *t = &l.tensor[i];
		const struct leaf_info *info = &s->leaf[t->id];

		f->extent[i] = (struct extent){ t->off, t->bytes, info->leaf,
						(uint32_t)(info->part - st->part), t->array.dtype };
		f->size = t->off + t->bytes;
	}
	return 0;
}

int subtree_file_new(const struct subtree *st, const struct subtree_want *want,
		     struct subtree_file **ret)
{
	auto_of(subtree_file) struct subtree_file *f = calloc(1, sizeof(*f));
	auto_leaf_table s = { 0 };
	int r;

	if (!f)
		return fail(-ENOMEM, "cannot make a view of '%s'", want->name);
	f->head.metered = f->arena.metered = true;
	r = leaf_table_make(
		st, want->ext == NAME_EXT_SAFETENSORS ? LEAF_TABLE_TEXTS : LEAF_TABLE_STORED, NULL,
		LEAF_TABLE_ALL, &s);
	if (r < 0)
		return r;
	if (want->ext == NAME_EXT_SAFETENSORS)
		r = make_safetensors(&s, want, f);
	else if (want->ext == NAME_EXT_JSON)
		r = leaf_table_json(&s, want->name, NULL, NULL, &f->head);
	else
		r = leaf_table_html(&s, want->name, NULL, NULL, &f->head);
	if (r < 0)
		return r;
	if (want->ext != NAME_EXT_SAFETENSORS)
		f->size = f->head.n;
	buf_shrink(&f->head);
	/*
	 * The cache accounts for a small file. A large one stays charged to the meter: while
	 * pinned, it may exceed the cache.
	 */
	if (f->head.cap + f->arena.charged < METER_SMALL) {
		buf_unmeter(&f->head);
		arena_unmeter(&f->arena);
	}
	*ret = take(f);
	return 0;
}

/* ---- reading ---- */

struct open_array {
	size_t extent;
	struct zarr *array; /* owns a reference; NULL: free slot */
};

struct subtree_reader {
	const struct subtree *st;
	const struct subtree_file *f;
	pthread_mutex_t lock;
	struct open_array open[OPEN_ARRAYS]; /* protected by lock */
};

int subtree_reader_new(const struct subtree *st, const struct subtree_file *f,
		       struct subtree_reader **ret)
{
	struct subtree_reader *rd = calloc(1, sizeof(*rd));

	if (!rd)
		return fail(-ENOMEM, "cannot open a view");
	rd->st = st;
	rd->f = f;
	pthread_mutex_init(&rd->lock, NULL);
	*ret = rd;
	return 0;
}

void subtree_reader_free(struct subtree_reader *rd)
{
	if (!rd)
		return;
	for (size_t i = 0; i < OPEN_ARRAYS; i++)
		zarr_unref(rd->open[i].array);
	pthread_mutex_destroy(&rd->lock);
	free(rd);
}

/*
 * Open the array of an extent, with the view of it that the file shows. The caller owns the
 * reference.
 */
static int array_of(struct subtree_reader *rd, size_t i, struct zarr **ret,
		    struct zarr_view *ret_view)
{
	const struct extent *e = &rd->f->extent[i];
	struct open_array *o = &rd->open[i % OPEN_ARRAYS];
	auto_of(zarr) struct zarr *z = NULL;
	struct zarr *old;
	int r;

	pthread_mutex_lock(&rd->lock);
	if (o->array && o->extent == i)
		z = zarr_ref(o->array);
	pthread_mutex_unlock(&rd->lock);
	r = z ? 0 : item_array(rd->st->part[e->part].item, e->leaf, &z);
	if (r < 0)
		return err_at(r, "leaf '%.*s'", SPAN_ARG(e->leaf->param));
	pthread_mutex_lock(&rd->lock);
	old = o->array;
	o->array = zarr_ref(z);
	o->extent = i;
	pthread_mutex_unlock(&rd->lock);
	zarr_unref(old);
	zarr_view_whole(&z->meta, ret_view);
	ret_view->plain &= e->dtype == z->meta.dtype;
	ret_view->dtype = e->dtype;
	r = zarr_view_finish(ret_view);
	if (r < 0)
		return r;
	/* The checkpoint was changed after the layout was computed. */
	if (ret_view->bytes != e->bytes)
		return fail(-EUCLEAN, "leaf '%.*s' changed", SPAN_ARG(e->leaf->param));
	*ret = take(z);
	return 0;
}

/* The index of the first extent that ends after off. */
static size_t extent_at(const struct subtree_file *f, uint64_t off)
{
	size_t lo = 0, hi = f->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (f->extent[mid].off + f->extent[mid].bytes <= off)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int subtree_read(struct subtree_reader *rd, uint64_t off, size_t n, struct segments *g)
{
	const struct subtree_file *f = rd->f;
	uint64_t had = g->bytes;
	int r;

	if (off >= f->size)
		return 0;
	n = (size_t)MIN((uint64_t)n, f->size - off);
	r = segments_add_part(g, buf_span(&f->head), off, n);
	off += g->bytes - had;
	n -= (size_t)(g->bytes - had);
	for (size_t i = extent_at(f, off); n > 0 && r >= 0; i++) {
		const struct extent *e = &f->extent[i];
		size_t part = (size_t)MIN((uint64_t)n, e->off + e->bytes - off);
		auto_of(zarr) struct zarr *z = NULL;
		struct zarr_view v;

		/* Empty tensors have extents of no bytes. */
		if (part == 0)
			continue;
		r = array_of(rd, i, &z, &v);
		if (r < 0)
			return r;
		r = zarr_read(z, &v, off - e->off, part, g);
		if (r < 0)
			return err_at(r, "leaf '%.*s'", SPAN_ARG(e->leaf->param));
		off += part;
		n -= part;
	}
	return r;
}

/* A hint for the first leaves of a range: prefetch them, or drop what was read of them. */
static void hint(struct subtree_reader *rd, uint64_t off, uint64_t end, size_t leaves,
		 bool is_prefetch, struct zarr_guess *guess)
{
	const struct subtree_file *f = rd->f;
	size_t first = extent_at(f, MAX(off, (uint64_t)f->head.n));

	end = MIN(end, f->size);
	for (size_t i = first; i < f->n && i - first < leaves && f->extent[i].off < end; i++) {
		const struct extent *e = &f->extent[i];
		uint64_t from = off > e->off ? off - e->off : 0, to = MIN(end - e->off, e->bytes);
		auto_of(zarr) struct zarr *z = NULL;
		struct zarr_view v;

		/* A read meets the same error, and reports it. */
		if (from >= to || array_of(rd, i, &z, &v) < 0)
			continue;
		if (is_prefetch)
			zarr_prefetch(z, &v, from, to - from, guess);
		else
			zarr_drop_behind(z, &v, from, to);
	}
	err_clear();
}

void subtree_prefetch(struct subtree_reader *rd, uint64_t off, uint64_t n, struct zarr_guess *guess)
{
	hint(rd, off, off + n, PREFETCH_LEAVES, true, guess);
}

void subtree_drop_behind(struct subtree_reader *rd, uint64_t from, uint64_t to)
{
	hint(rd, from, to, OPEN_ARRAYS, false, NULL);
}

void subtree_end_ahead(struct subtree_reader *rd)
{
	for (size_t i = 0; i < rd->st->n; i++) {
		const struct item *item = rd->st->part[i].item;

		if (item)
			cache_end_ahead(item->ckpt->cache, item->owner);
	}
}

int subtree_seek(struct subtree_reader *rd, uint64_t off, int whence, uint64_t *ret)
{
	const struct subtree_file *f = rd->f;

	if (off < f->head.n && whence == SEEK_DATA) {
		*ret = off;
		return 0;
	}
	for (size_t i = extent_at(f, off); i < f->n; i++) {
		const struct extent *e = &f->extent[i];
		auto_of(zarr) struct zarr *z = NULL;
		struct zarr_view v;
		uint64_t at;
		int r;

		if (e->bytes == 0)
			continue;
		r = array_of(rd, i, &z, &v);
		if (r < 0)
			return r;
		r = zarr_seek(z, &v, off > e->off ? off - e->off : 0, whence, &at);
		if (r < 0)
			return r;
		if (at < e->bytes) {
			*ret = e->off + at;
			return 0;
		}
	}
	*ret = f->size;
	return whence == SEEK_DATA ? -ENXIO : 0;
}
