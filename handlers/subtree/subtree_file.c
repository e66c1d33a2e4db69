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
#include "handlers/format/safetensors.h"
#include "handlers/subtree/safetensors_lost.h"
#include "handlers/subtree/leaf_table.h"
#include "handlers/subtree/tree_manifest.h"

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

struct making {
	const struct leaf_table *s;
	const struct subtree_want *want;
	struct arena arena; /* memory of names and paths */
	struct st_tensor *tensor;
	struct st_text *text;
	size_t n, n_texts;
	struct buf manifest;
};

static void making_release(struct making *m)
{
	buf_release(&m->manifest);
	arena_release(&m->arena);
}

static int subtree_file_keep(struct making *m, const struct buf *text, struct span *ret)
{
	*ret = span_of(arena_dup(&m->arena, buf_span(text)), text->n);
	return ret->p ? 0 : fail(-ENOMEM, "cannot name a leaf");
}

static int name_leaf(struct making *m, const struct leaf_info *f, struct span *ret_name,
		     struct span *ret_path)
{
	auto_buf name = { .metered = true }, path = { .metered = true };
	int r = subtree_key(f->part, f->leaf, m->want->separator, &name);

	if (r < 0)
		return r;
	r = subtree_path(f->part, f->leaf, &path);
	if (r < 0)
		return r;
	r = subtree_file_keep(m, &name, ret_name);
	return r < 0 ? r : subtree_file_keep(m, &path, ret_path);
}

static struct tree_manifest_casts casts_of(const struct subtree_want *want)
{
	return (struct tree_manifest_casts){ (int)want->restore_dtype, want->cast, true };
}

static int subtree_file_add_tensor(struct making *m, const struct leaf_info *f)
{
	const struct tree_manifest_casts casts = casts_of(m->want);
	struct st_tensor *t = &m->tensor[m->n++];
	uint64_t elements = f->bytes / dtype_info(f->array.dtype)->size;
	int r;

	t->array = f->array;
	r = tree_manifest_cast(f->part->item, f->leaf, f->is_scalar, &casts, &t->array.dtype);
	if (r < 0)
		return r;
	t->id = (uint32_t)(f - m->s->leaf);
	if (!mul_fits(elements, dtype_info(t->array.dtype)->size, &t->bytes))
		return fail(-EFBIG, "the tensor has more than 2^64 bytes");
	return name_leaf(m, f, &t->name, &t->path);
}

static int add_leaf(struct making *m, const struct leaf_info *f)
{
	auto_buf path = { 0 };

	switch (f->kind) {
	case VALUE_ARRAY:
		return subtree_file_add_tensor(m, f);
	case VALUE_TEXT: {
		struct st_text *t = &m->text[m->n_texts++];

		t->text = f->text;
		return name_leaf(m, f, &t->name, &t->path);
	}
	case VALUE_NONE:
		return 0;
	case VALUE_FILE:
		subtree_path(f->part, f->leaf, &path);
		return fail(-EOPNOTSUPP, "'%s': a leaf of a plugin cannot be a tensor",
			    buf_str(&path));
	case VALUE_UNKNOWN:
		break;
	}
	subtree_path(f->part, f->leaf, &path);
	return fail(f->error ? f->error : -EOPNOTSUPP, "'%s': %s", buf_str(&path), f->why);
}

static int broken_part(const struct subtree *st)
{
	for (size_t i = 0; i < st->n; i++)
		if (st->part[i].kind == PART_BROKEN)
			return err_restore(st->part[i].note);
	return 0;
}

static int make_extents(const struct making *m, struct subtree_file *f)
{
	f->extent = arena_calloc(&f->arena, m->n + 1, sizeof(*f->extent));
	if (!f->extent)
		return fail(-ENOMEM, "cannot lay out %zu tensors", m->n);
	f->n = m->n;
	f->size = f->head.n;
	for (size_t i = 0; i < m->n; i++) {
		const struct st_tensor *t = &m->tensor[i];
		const struct leaf_info *info = &m->s->leaf[t->id];

		f->extent[i] = (struct extent){ t->off, t->bytes, info->leaf,
						(uint32_t)(info->part - m->s->subtree->part),
						t->array.dtype };
		f->size = t->off + t->bytes;
	}
	return 0;
}

/* Log the losses, for users who copy the file elsewhere. */
static int say_what_is_lost(const struct subtree *st, const struct subtree_want *want)
{
	auto_buf lost = { .metered = true };
	int r = safetensors_lost_out(st, want->separator, &lost);

	if (r < 0)
		return r;
	if (lost.n)
		log_info("'%s.safetensors' does not hold all of the tree: %.*s", want->name,
			 SPAN_ARG(buf_span(&lost)));
	return r;
}

/* The same manifest that an export has. */
static int add_manifest(struct making *m)
{
	const struct tree_manifest_style style = { .separator = m->want->separator };
	const struct tree_manifest_casts casts = casts_of(m->want);
	int r = tree_manifest_print(m->s->subtree, (struct tree_manifest_only){ 0 }, &casts, &style,
				    &m->manifest);

	if (r < 0)
		return r;
	if (!tree_manifest_is_empty(buf_span(&m->manifest)))
		m->text[m->n_texts++] = (struct st_text){ span_str(TREE_MANIFEST_KEY),
							  span_str(TREE_MANIFEST_KEY),
							  buf_span(&m->manifest) };
	return r;
}

static int make_safetensors(const struct leaf_table *s, const struct subtree_want *want,
			    struct subtree_file *f)
{
	__attribute__((cleanup(making_release))) struct making m = { .s = s,
								     .want = want,
								     .arena.metered = true };
	int r = broken_part(s->subtree);

	m.tensor = arena_calloc(&m.arena, s->n + 1, sizeof(*m.tensor));
	m.text = arena_calloc(&m.arena, s->n + 1, sizeof(*m.text));
	if (!m.tensor || !m.text)
		return fail(-ENOMEM, "cannot lay out %zu leaves", s->n);
	for (size_t i = 0; i < s->n && r >= 0; i++)
		r = add_leaf(&m, &s->leaf[i]);
	if (r < 0)
		return r;
	r = add_manifest(&m);
	if (r < 0)
		return r;
	r = safetensors_header(m.tensor, m.n, m.text, m.n_texts, &f->head);
	if (r < 0)
		return r;
	r = say_what_is_lost(s->subtree, want);
	return r < 0 ? r : make_extents(&m, f);
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

static struct zarr *array_at_hand(struct subtree_reader *rd, size_t i)
{
	struct open_array *o = &rd->open[i % OPEN_ARRAYS];
	struct zarr *z;

	pthread_mutex_lock(&rd->lock);
	z = o->array && o->extent == i ? zarr_ref(o->array) : NULL;
	pthread_mutex_unlock(&rd->lock);
	return z;
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
	auto_of(zarr) struct zarr *z = array_at_hand(rd, i);
	struct zarr *old;
	int r = z ? 0 : item_array(rd->st->part[e->part].item, e->leaf, &z);

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

static int read_extent(struct subtree_reader *rd, size_t i, uint64_t off, size_t n,
		       struct segments *g)
{
	auto_of(zarr) struct zarr *z = NULL;
	struct zarr_view v;
	int r = array_of(rd, i, &z, &v);

	if (r < 0)
		return r;
	r = zarr_read(z, &v, off, n, g);
	return r < 0 ? err_at(r, "leaf '%.*s'", SPAN_ARG(rd->f->extent[i].leaf->param)) : r;
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

		/* Empty tensors have extents of no bytes. */
		if (part == 0)
			continue;
		r = read_extent(rd, i, off - e->off, part, g);
		off += part;
		n -= part;
	}
	return r;
}

/* Called for each leaf with the part of its bytes in the range of a hint. */
typedef void hint_fn(struct zarr *z, const struct zarr_view *v, uint64_t from, uint64_t to,
		     struct zarr_guess *guess);

static void hint(struct subtree_reader *rd, uint64_t off, uint64_t end, size_t leaves, hint_fn *fn,
		 struct zarr_guess *guess)
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
		if (from < to && array_of(rd, i, &z, &v) >= 0)
			fn(z, &v, from, to, guess);
	}
	err_clear();
}

static void hint_prefetch(struct zarr *z, const struct zarr_view *v, uint64_t from, uint64_t to,
			  struct zarr_guess *guess)
{
	zarr_prefetch(z, v, from, to - from, guess);
}

void subtree_prefetch(struct subtree_reader *rd, uint64_t off, uint64_t n, struct zarr_guess *guess)
{
	hint(rd, off, off + n, PREFETCH_LEAVES, hint_prefetch, guess);
}

static void hint_drop_behind(struct zarr *z, const struct zarr_view *v, uint64_t from, uint64_t to,
			     struct zarr_guess *guess)
{
	zarr_drop_behind(z, v, from, to);
}

void subtree_drop_behind(struct subtree_reader *rd, uint64_t from, uint64_t to)
{
	hint(rd, from, to, OPEN_ARRAYS, hint_drop_behind, NULL);
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
