/* SPDX-License-Identifier: Apache-2.0 */
/* draft_array.c - chooses the layout of an array, and encodes it from bytes at any place. */
#include "handlers/draft/draft_array.h"

#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/base/json_pull.h"
#include "core/base/log.h"
#include "core/step/layout.h"
#include "core/tree/name.h"
#include "core/dtype/cast.h"
#include "handlers/draft/commit_driver.h"
#include "handlers/draft/kv_slice.h"

#define DEFAULT_CHUNK (4 * MiB) /* large enough for compression, small enough to be read alone */

/* ---- parts ---- */

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

int draft_part_of(struct span name, struct draft_part *ret)
{
	struct draft_part p = { 0 };
	struct name_view v;
	int r = name_view_parse(name, &v);

	if (r < 0)
		return r;
	if (!v.has_box && !v.has_shape && !v.has_cast)
		return 0;
	if (v.ext == NAME_EXT_NPY && v.has_box && v.has_shape && v.n_box != v.n_shape)
		return fail(-EINVAL, "'%.*s': the box has %u %s, the array %u: name each",
			    SPAN_ARG(name), v.n_box, noun(v.n_box, "axis", "axes"), v.n_shape);
	if (v.ext != NAME_EXT_NPY || !v.has_box || !v.has_shape || v.has_cast)
		return fail(
			-EINVAL,
			"'%.*s' is not a part of an array: wanted is NAME[A:B,...]@SHAPE.npy; in "
			"a key '[', ']' and '@' are written %%5B, %%5D and %%40",
			SPAN_ARG(name));
	p.stem = v.stem;
	p.rank = v.n_shape;
	for (unsigned i = 0; i < p.rank; i++) {
		const struct name_slice *s = &v.box[i];
		int64_t start = s->has_start ? s->start : 0;
		int64_t stop = s->has_stop ? s->stop : (int64_t)v.shape[i];

		if (s->kind != NAME_SLICE_RANGE || s->step != 1 || start < 0 || stop < start ||
		    (uint64_t)stop > v.shape[i])
			return fail(-EINVAL,
				    "'%.*s': axis %u of the box does not lie within the shape",
				    SPAN_ARG(name), i);
		p.start[i] = (uint64_t)start;
		p.extent[i] = (uint64_t)(stop - start);
		p.whole[i] = v.shape[i];
	}
	*ret = p;
	return 1;
}

/* ---- layout ---- */

/* The largest divisor of n that is at most limit. */
static uint64_t divisor_below(uint64_t n, uint64_t limit)
{
	uint64_t best = 1;

	for (uint64_t d = 1; d <= n / d; d++) {
		if (n % d)
			continue;
		if (d <= limit)
			best = MAX(best, d);
		if (n / d <= limit)
			best = MAX(best, n / d);
	}
	return best;
}

void array_default_chunk(unsigned rank, const uint64_t *shape, const uint64_t *block, uint64_t item,
			 bool divide, uint64_t ret[LIMIT_RANK])
{
	uint64_t bytes = item;

	for (unsigned i = 0; i < rank; i++) {
		ret[i] = MAX(block[i], (uint64_t)1);
		/* The product cannot overflow: the header of a larger array is refused. */
		bytes = shape[i] ? bytes * ret[i] : bytes;
	}
	for (unsigned i = 0; i < rank && bytes > DEFAULT_CHUNK; i++) {
		uint64_t inner = bytes / ret[i],
			 rows = MAX(DEFAULT_CHUNK / MAX(inner, (uint64_t)1), (uint64_t)1);
		uint64_t whole = ret[i], pieces = (whole + rows - 1) / rows;

		/*
		 * Use pieces of equal size: eleven rows in pieces of at most five become 4, 4 and
		 * 3.
		 */
		ret[i] = divide ? divisor_below(whole, rows) : (whole + pieces - 1) / pieces;
		bytes = inner * ret[i];
	}
}

static bool slices_of(const struct draft_env *env, const struct draft_array *a, enum dtype stored,
		      struct slices *ret)
{
	const struct array_type t = { stored, a->rank, a->shape };

	return env->driver->slices && env->driver->slices(env, &t, ret);
}

/*
 * The block that every writer of the array fills: the whole array, or the common divisor of its
 * parts.
 */
static bool block_of(const struct draft_node *n, const struct draft_array *a, enum dtype stored,
		     uint64_t *block, uint64_t *whole)
{
	struct draft_part p;
	bool part = draft_part_of(span_str(n->name), &p) == 1 && p.rank == a->rank, is_sliced;
	struct slices slices;

	err_clear();
	is_sliced = !part && slices_of(n->draft->env, a, stored, &slices);
	for (unsigned i = 0; i < a->rank; i++) {
		whole[i] = part ? p.whole[i] : a->shape[i];
		block[i] = part ? gcd(p.start[i], p.extent[i]) : a->shape[i];
	}
	if (is_sliced)
		block[slices.axis] /= slices.n;
	return part || is_sliced;
}

static int grid_of(unsigned rank, const struct save_opts *o, const uint64_t *whole,
		   const uint64_t *block, bool is_named, struct array_wanted *ret)
{
	uint64_t bytes = ret->layout.item, limit = o->ocdbt ? o->target_data_file_size : 0;
	struct layout l = {
		.rank = rank,
		.shape = whole,
		.write_shape = block,
		.item_size = ret->layout.item,
		.has_chunk_bytes = o->chunk_byte_size > 0,
		.chunk_bytes = o->chunk_byte_size,
		.ocdbt = o->ocdbt,
		.file_size = o->target_data_file_size,
		.n_axes = o->shard_axes.n,
		.axes = o->shard_axes.axis,
	};

	/* The product cannot overflow: the header of a larger array is refused. */
	for (unsigned i = 0; i < rank; i++)
		bytes *= block[i];
	ret->any_chunk = !o->chunk_byte_size && !o->shard_axes.n && !is_named;
	/* Data files that cannot hold a whole block limit the chunk size, like chunk_byte_size. */
	if (limit && bytes > limit && limit < DEFAULT_CHUNK)
		ret->any_chunk = false;
	if (!ret->any_chunk)
		return layout_chunk_shape(&l, ret->layout.chunk);
	/* Any part of it can be read alone without chunks, and all of it can be mapped. */
	if (o->compression.kind == COMPRESSION_NONE) {
		for (unsigned i = 0; i < rank; i++)
			ret->layout.chunk[i] = MAX(block[i], (uint64_t)1);
		return 0;
	}
	array_default_chunk(rank, whole, block, ret->layout.item, ret->is_part, ret->layout.chunk);
	return 0;
}

/*
 * Make user.pytree.chunk_shape the block of an array that is not a part: 1; 0: it is not set.
 * Called with the draft's lock held.
 */
static int named_block(const struct draft_node *n, const struct draft_array *a, uint64_t *block)
{
	struct span text = draft_xattr_value(n, "chunk_shape");
	uint64_t shape[LIMIT_RANK];
	auto_json_pull in = { 0 };
	unsigned rank;
	int r;

	if (!text.p)
		return 0;
	json_pull_init(&in, text, "user.pytree.chunk_shape");
	r = json_pull_shape(&in, shape, &rank);
	if (r < 0)
		return r;
	if (rank != a->rank)
		return fail(-EINVAL, "user.pytree.chunk_shape has %u %s, the array %u", rank,
			    noun(rank, "axis", "axes"), a->rank);
	for (unsigned i = 0; i < rank; i++)
		block[i] = MIN(shape[i], MAX(a->shape[i], (uint64_t)1));
	return 1;
}

/* Determine the dtype of the elements, and the dtype in which they are stored. */
static int choose_dtype(const struct draft_node *n, const struct draft_array *a,
			const struct save_opts *o, struct array_wanted *ret)
{
	enum dtype copied = draft_copied(n)->leaf.dtype, asked = (enum dtype)o->dtype;
	struct span text = draft_xattr_word(n, "dtype");
	enum dtype named = text.p ? dtype_by_user(text) : DTYPE_UNKNOWN;
	bool is_key;

	if (text.p && named == DTYPE_UNKNOWN)
		return fail(-EINVAL, "user.pytree.dtype: no dtype '%.*s'", SPAN_ARG(text));
	ret->from = a->dtype;
	if (a->dtype == DTYPE_UNKNOWN) {
		if (named == DTYPE_UNKNOWN && copied != DTYPE_UNKNOWN &&
		    dtype_info(copied)->size == 1)
			named = copied;
		ret->from = named != DTYPE_UNKNOWN ? named : asked;
		if (ret->from == DTYPE_UNKNOWN)
			return fail(-EINVAL,
				    "its header says '<V1' or '|V1', one byte of anything; "
				    "set the xattr user.pytree.dtype or a rule with dtype=");
		if (dtype_info(ret->from)->size != 1)
			return fail(-EINVAL,
				    "its header says one byte an element, and dtype %s has %u",
				    dtype_info(ret->from)->name, dtype_info(ret->from)->size);
	} else if (named != DTYPE_UNKNOWN && named != a->dtype) {
		return fail(-EINVAL, "its header says dtype %s, and user.pytree.dtype %s",
			    dtype_info(a->dtype)->name, dtype_info(named)->name);
	}
	/* The data of random keys are bits, which are not cast. */
	is_key = draft_xattr_word(n, "prng_impl").p || draft_copied(n)->leaf.prng_impl.n;
	ret->to = is_key && !o->dtype_is_scoped ? ret->from : save_opts_dtype(o, ret->from);
	return 0;
}

/* Options of the leaf, with those of the item where all arrays of an item share an option. */
static int options_of(struct draft_node *n, struct span tensor, struct save_opts *ret)
{
	struct draft_node *item = draft_item_of(n);
	struct save_opts of_item = { 0 };
	int r = draft_save_opts(n, tensor, ret);

	if (r < 0)
		return r;
	if (item && item != n) {
		r = draft_save_opts(item, span_of(NULL, 0), &of_item);
		if (r < 0)
			return r;
		ret->ocdbt = of_item.ocdbt;
		ret->zarr = of_item.zarr;
		ret->target_data_file_size = of_item.target_data_file_size;
		ret->store_fill_value = of_item.store_fill_value;
	}
	/* Numbers, and arrays that are cut or cast anew, are not moved as they are stored. */
	if (item && draft_copied(item)->format.known && !save_opts_given(ret, "compression"))
		ret->compression = (struct compression){ .kind = COMPRESSION_ZSTD,
							 .level = COMPRESSION_ORBAX };
	return 0;
}

/* Complete w, whose dtypes are set, for an array in blocks; is_named: an xattr names the block. */
static int lay_out(struct draft_node *n, const struct array_type *t, const struct save_opts *o,
		   const uint64_t *whole, const uint64_t *block, bool is_named,
		   struct array_wanted *w)
{
	int r;

	w->layout.format = o->zarr == SAVE_ZARR3 ? 3 : 2;
	w->layout.item = dtype_info(w->to)->size;
	w->layout.omit_fill = !o->store_fill_value;
	w->layout.asked = o->compression;
	w->layout.asked.summed = o->crc32c && o->zarr == SAVE_ZARR3;
	w->any_sum = !save_opts_given(o, "crc32c");
	w->any_codec = !save_opts_given(o, "compression");
	r = grid_of(t->rank, o, whole, block, is_named, w);
	if (r >= 0)
		array_resolve(n->draft->env, t, w->is_part, &w->layout);
	return r;
}

int array_wanted(struct draft_node *n, const struct draft_array *a, struct array_wanted *ret)
{
	uint64_t block[LIMIT_RANK], whole[LIMIT_RANK];
	struct array_wanted w = { 0 };
	struct save_opts o = { 0 };
	int r;

	pthread_mutex_lock(&n->draft->lock);
	r = options_of(n, a->name, &o);
	r = r < 0 ? r : choose_dtype(n, a, &o, &w);
	if (r >= 0) {
		w.is_part = block_of(n, a, w.to, block, whole);
		r = w.is_part ? 0 : named_block(n, a, block);
	}
	pthread_mutex_unlock(&n->draft->lock);
	if (r < 0)
		return r;
	r = lay_out(n, &(struct array_type){ w.to, a->rank, a->shape }, &o, whole, block, r == 1,
		    &w);
	if (r >= 0)
		*ret = w;
	return r;
}

int array_wanted_plain(struct draft_node *n, const struct array_type *t, struct array_wanted *ret)
{
	struct array_wanted w = { .from = t->dtype, .to = t->dtype };
	struct save_opts o = { 0 };
	int r;

	pthread_mutex_lock(&n->draft->lock);
	r = options_of(n, span_of(NULL, 0), &o);
	pthread_mutex_unlock(&n->draft->lock);
	if (r < 0)
		return r;
	r = lay_out(n, t, &o, t->shape, t->shape, false, &w);
	if (r >= 0)
		*ret = w;
	return r;
}

void array_release(struct draft_array *a)
{
	zarr_writer_close(take(a->writer));
	kv_free(take(a->kv));
	a->store = NULL;
}

/* ---- slices ---- */

/*
 * The chunks that this process writes when all have the array. Returns false for an array that is
 * not divided.
 */
static bool slice_of(const struct draft_node *n, const struct draft_array *a,
		     const struct array_wanted *w, struct slice *ret, bool *ret_separate)
{
	struct slices s;
	struct draft_part p;
	bool part = draft_part_of(span_str(n->name), &p) == 1 && p.rank == a->rank;
	uint64_t chunks;

	err_clear();
	if (part || !slices_of(n->draft->env, a, w->to, &s) ||
	    (a->shape[s.axis] / s.n) % w->layout.chunk[s.axis])
		return false;
	chunks = a->shape[s.axis] / s.n / w->layout.chunk[s.axis];
	*ret = (struct slice){ s.axis, s.own < s.n ? s.own * chunks : 0,
			       s.own < s.n ? (s.own + 1) * chunks : 0 };
	*ret_separate = s.separate;
	return true;
}

int array_kv(struct draft_node *n, const struct draft_array *a, const struct array_wanted *w,
	     struct span json, struct kv **ret, const struct item_store **ret_store)
{
	const char *dir = n->draft->env->ckpt->opts.spill_dir;
	auto_of(kv) struct kv *own = NULL;
	struct slice slice;
	bool separate = false, sliced = slice_of(n, a, w, &slice, &separate);
	int r = draft_leaf_kv(n, separate, &own, ret_store);

	if (r < 0)
		return r;
	/*
	 * Without a directory for staged chunks, all chunks are stored, and the commit picks this
	 * rank's slice.
	 */
	if (dir && sliced) {
		r = kv_slice_new(own, json, &slice, dir, &n->draft->env->staged_bytes, ret);
		if (r >= 0)
			take(own);
		return r;
	}
	*ret = take(own);
	return 0;
}

/* ---- encoding ---- */

struct encoding {
	const struct draft_array *a;
	enum dtype from, to;
	array_read_fn *read;
	void *arg;
	uint8_t *raw;           /* PIECE bytes of elements of the file */
	uint64_t raw_at, raw_n; /* position and number of the bytes in raw */
};

#define PIECE ((size_t)1 << 18)

static void array_convert(const struct encoding *e, uint8_t *raw, size_t elements, void *p)
{
	if (e->a->swapped)
		cast_swap(e->from, raw, elements);
	cast(e->to, p, e->from, raw, elements);
}

/* Read elements [first, first + count) in the order of the file. */
static int read_in_order(struct encoding *e, uint64_t first, uint64_t count, uint8_t *p)
{
	size_t item = e->a->item, out = dtype_info(e->to)->size;

	if (e->from == e->to && !e->a->swapped)
		return e->read(e->arg, first * item, count * item, p);
	while (count > 0) {
		size_t part = (size_t)MIN(count, (uint64_t)(PIECE / item));
		int r = e->read(e->arg, first * item, part * item, e->raw);

		if (r < 0)
			return r;
		array_convert(e, e->raw, part, p);
		first += part;
		count -= part;
		p += part * out;
	}
	return 0;
}

/* Read one element of a column-major file through a window that moves forward. */
static int read_window(struct encoding *e, uint64_t at, const uint8_t **ret)
{
	int r = 0;

	if (at < e->raw_at || at + e->a->item > e->raw_at + e->raw_n) {
		e->raw_at = at;
		e->raw_n = MIN((uint64_t)PIECE, e->a->bytes - at);
		r = e->read(e->arg, at, e->raw_n, e->raw);
	}
	*ret = e->raw + (at - e->raw_at);
	return r;
}

/*
 * Like read_in_order(), for a column-major file. Axis 0 varies fastest there, so the range is read
 * column by column: the other axes in the order of the file, and within a column only positions
 * that belong to the range.
 */
static int read_columns(struct encoding *e, uint64_t first, uint64_t count, uint8_t *p)
{
	const struct draft_array *a = e->a;
	size_t out = dtype_info(e->to)->size;
	uint64_t column[LIMIT_RANK] = { 0 }, row_elements = 1, n_columns;

	for (unsigned i = 1; i < a->rank; i++)
		row_elements *= a->shape[i];
	n_columns = row_elements;
	e->raw_n = 0;
	for (uint64_t f = 0; f < n_columns; f++) {
		uint64_t c = 0, lo, hi;

		/* The index of the column within a row in C order. */
		for (unsigned i = 1; i < a->rank; i++)
			c = c * a->shape[i] + column[i];
		lo = first > c ? (first - c + row_elements - 1) / row_elements : 0;
		hi = first + count > c ? (first + count - c + row_elements - 1) / row_elements : 0;
		for (uint64_t i = lo; i < hi; i++) {
			uint8_t element[LIMIT_ITEM_BYTES];
			const uint8_t *from;
			int r = read_window(e, (f * a->shape[0] + i) * a->item, &from);

			if (r < 0)
				return r;
			memcpy(element, from, a->item);
			array_convert(e, element, 1, p + (i * row_elements + c - first) * out);
		}
		for (unsigned i = 1; i < a->rank && ++column[i] == a->shape[i]; i++)
			column[i] = 0;
	}
	return 0;
}

static int read_stored_form(void *arg, uint64_t off, size_t n, void *p)
{
	struct encoding *e = arg;
	size_t out = dtype_info(e->to)->size;

	return e->a->fortran ? read_columns(e, off / out, n / out, p) :
			       read_in_order(e, off / out, n / out, p);
}

int array_encode(struct draft_node *n, struct draft_array *a, const struct array_wanted *w,
		 array_read_fn *read, void *arg)
{
	const struct array_type t = { w->to, a->rank, a->shape };
	struct encoding e = { .a = a, .from = w->from, .to = w->to, .read = read, .arg = arg };
	auto_of(kv) struct kv *kv = NULL;
	const struct item_store *store;
	struct array_layout layout = w->layout;
	auto_buf raw = { .in_block = true }, json = { 0 };
	int r = buf_reserve(&raw, PIECE);

	if (r < 0)
		return r;
	e.raw = raw.p;
	r = array_choose(n->draft->env, &layout, &t, read_stored_form, &e);
	if (r < 0)
		return r;
	r = array_json(&layout, &t, &json);
	if (r < 0)
		return r;
	r = array_kv(n, a, w, buf_span(&json), &kv, &store);
	if (r < 0)
		return r;
	r = zarr_write_all(&n->draft->env->ckpt->write_env, kv, buf_span(&json),
			   layout.omit_fill ? ZARR_FILL_OMIT : ZARR_FILL_STORE, read_stored_form,
			   &e);
	if (r < 0)
		return r;
	trace(TRACE_LEAF, "encoded '%s'%s%.*s", n->name, a->name.p ? " " : "", SPAN_ARG(a->name));
	array_release(a);
	a->kv = take(kv);
	a->store = store;
	a->layout = layout;
	a->from = w->from;
	a->stored = w->to;
	a->copied = false;
	return 0;
}

int array_fits(struct draft_node *n, struct draft_array *a, const struct array_wanted *w)
{
	struct array_layout asked = w->layout;
	auto_buf json = { 0 };
	int r;

	if (a->copied && w->any_chunk && !w->is_part)
		memcpy(asked.chunk, a->layout.chunk, sizeof(asked.chunk));
	if (a->copied && w->any_codec)
		asked.asked = a->layout.asked;
	if (a->copied && !w->any_sum)
		asked.asked.summed = w->layout.asked.summed;
	/* A choice by a sample remains valid until the options ask for another one. */
	if (!memcmp(&asked.asked, &a->layout.asked, sizeof(asked.asked)))
		asked.compression = a->layout.compression;
	if (!a->kv || !draft_has_store(n, a->store) || memcmp(&a->layout, &asked, sizeof(asked)))
		return 0;
	if (a->from == w->from && a->stored == w->to)
		return 1;
	/* The elements were stored unchanged, and only their dtype has become known. */
	if (a->from != a->stored || w->from != w->to || a->layout.omit_fill)
		return 0;
	r = array_json(&asked, &(struct array_type){ w->to, a->rank, a->shape }, &json);
	if (r < 0)
		return r;
	r = kv_put(a->kv, span_str(asked.format == 3 ? "zarr.json" : ".zarray"), buf_span(&json));
	if (r < 0)
		return r;
	a->from = a->stored = w->to;
	return 1;
}
