/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_seal.c - encodes whole contents into arrays: at close, for the commit, and from a stored
 * leaf.
 *
 * Contents that read back from their chunks are stored only there. Contents that were cast, swapped
 * or transposed are also kept unchanged, so that they read back as they were written.
 */
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/wire.h"
#include "core/zarr/write/zarr_copy.h"
#include "handlers/draft/draft_file.h"

#define HEAD_FIRST 65536 /* bytes to read before the length of a header is known */

/* ---- encoding whole contents ---- */

/* Where the last array that the header lists ends; `header` for no array. */
static uint64_t announced_end(const struct draft_file *f, uint64_t header)
{
	const struct draft_array *last = f->n_arrays ? &f->array[f->n_arrays - 1] : NULL;

	return last ? last->at + last->bytes : header;
}

static int fail_length(const struct draft_file *f, uint64_t announced)
{
	return fail(-EINVAL, "it has %llu bytes, and its header announces %llu",
		    (unsigned long long)f->size, (unsigned long long)announced);
}

/* Read the start of the file, up to the largest possible header. */
static int read_head(struct draft_file *f, struct buf *ret)
{
	size_t n = (size_t)MIN(f->size, (uint64_t)HEAD_FIRST);
	uint64_t header;
	int r = buf_reserve(ret, n);

	if (r < 0)
		return r;
	r = draft_file_read_locked(f, 0, n, ret->p);
	if (r < 0)
		return r;
	ret->n = n;
	if (n < 9 || ret->p[0] == 0x93)
		return 0;
	header = get_u64le(ret->p);
	if (header <= n - 8 || header > SAFETENSORS_HEADER_MAX || header > f->size - 8)
		return 0;
	r = buf_reserve(ret, 8 + header - n);
	if (r < 0)
		return r;
	r = draft_file_read_locked(f, n, 8 + header - n, ret->p + n);
	if (r < 0)
		return r;
	ret->n = 8 + header;
	return r;
}

/*
 * Set the arrays that the header lists; the file must contain all of their bytes. head: the start
 * of the file, in the end only its header.
 */
static int take_header(struct draft_file *f, struct buf *head)
{
	uint64_t header, end;
	int r;

	if (f->size == 0)
		return fail(-EINVAL, "it is empty");
	r = read_head(f, head);
	if (r < 0)
		return r;
	r = draft_file_sniff(f, buf_span(head), &header);
	if (r < 0)
		return r;
	if (r == 0)
		return fail(-EINVAL, "its %llu bytes end inside the header",
			    (unsigned long long)f->size);
	head->n = header;
	end = announced_end(f, header);
	if (end == f->size)
		return 0;
	draft_arrays_release(f);
	return fail_length(f, end);
}

struct reading {
	struct draft_file *f;
	const struct draft_array *a;
};

static int sealing_read_elements(void *arg, uint64_t off, size_t n, void *p)
{
	const struct reading *rd = arg;

	return draft_file_read_locked(rd->f, rd->a->at + off, n, p);
}

static int encode_array(struct draft_file *f, struct draft_array *a, const struct array_wanted *w)
{
	struct reading rd = { f, a };
	int r = array_encode(f->node, a, w, sealing_read_elements, &rd);

	return r < 0 && a->name.p ? err_at(r, "tensor '%.*s'", SPAN_ARG(a->name)) : r;
}

/* The chunks replace the contents; only the header is kept besides them. */
static void become_stored(struct draft_file *f, struct buf *head)
{
	for (size_t i = 0; i < f->n_arrays; i++)
		if (array_is_changed(&f->array[i]))
			return;
	buf_release(&f->head);
	f->head = *head;
	*head = (struct buf){ 0 };
	io_file_unref(take(f->staged));
	f->place = PLACE_STORED;
	f->pos = f->size;
}

int draft_file_encode(struct draft_file *f)
{
	auto_buf head = { 0 };
	int r = f->n_arrays ? 0 : take_header(f, &head);

	if (r < 0 || !head.n)
		return r;
	for (size_t i = 0; i < f->n_arrays && r >= 0; i++) {
		struct array_wanted w;

		r = array_wanted(f->node, &f->array[i], &w);
		if (r < 0)
			break;
		r = encode_array(f, &f->array[i], &w);
	}
	if (r < 0) {
		draft_arrays_release(f);
		return r;
	}
	become_stored(f, &head);
	return 0;
}

/* ---- from a stored leaf ---- */

/* Set up the array that an .npy file of the leaf would hold, and move its chunks. */
static int copy_array(struct draft_file *f, struct zarr *from, struct draft_array *a)
{
	auto_of(kv) struct kv *kv = NULL;
	const struct item_store *store;
	struct compression stored;
	struct array_wanted w;
	auto_buf json = { 0 };
	int r = array_wanted(f->node, a, &w);

	if (r < 0 || w.from != w.to || w.is_part) {
		err_clear();
		return r == -ENOMEM ? r : 0;
	}
	if (w.any_chunk)
		for (unsigned i = 0; i < a->rank; i++)
			w.layout.chunk[i] = from->leaf_chunk[i];
	/* No option asks for a compression, so chunks with any, or none, are moved unchanged. */
	if (compression_of(&from->leaf->codecs, &stored) && w.any_sum && w.layout.format == 3)
		w.layout.asked.summed = w.layout.compression.summed = stored.summed;
	if (w.any_codec && compression_of(&from->leaf->codecs, &stored) &&
	    stored.summed == w.layout.asked.summed) {
		w.layout.compression = stored;
		r = 1;
	} else {
		r = array_takes_stored(f->node->draft->env, &w.layout, from);
	}
	if (r <= 0)
		return r;
	r = array_json(&w.layout, &(struct array_type){ w.to, a->rank, a->shape }, &json);
	if (r < 0)
		return r;
	r = draft_leaf_kv(f->node, false, &kv, &store);
	if (r < 0)
		return r;
	r = zarr_copy(&f->node->draft->env->ckpt->write_env, from, kv, buf_span(&json),
		      w.layout.omit_fill ? ZARR_FILL_OMIT : ZARR_FILL_STORE);
	if (r <= 0)
		return r;
	a->kv = take(kv);
	a->store = store;
	a->layout = w.layout;
	a->from = a->stored = w.to;
	a->copied = true;
	return 1;
}

int draft_file_copy_leaf(struct draft_file *f, struct zarr *from)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);
	auto_free struct draft_array *a = NULL;
	auto_buf head = { 0 };
	int r;

	if (f->place != PLACE_MEMORY || f->size)
		return 0;
	a = calloc(1, sizeof(*a));
	if (!a)
		return fail(-ENOMEM, "cannot copy to '%s'", f->node->name);
	*a = (struct draft_array){ .dtype = from->meta.dtype,
				   .item = dtype_info(from->meta.dtype)->size,
				   .rank = from->meta.rank,
				   .bytes = from->meta.bytes };
	memcpy(a->shape, from->meta.shape, sizeof(a->shape));
	r = npy_header(&(struct array_type){ a->dtype, a->rank, a->shape }, &head);
	if (r < 0)
		return r;
	a->at = head.n;
	r = copy_array(f, from, a);
	if (r <= 0)
		return r;
	trace(TRACE_LEAF, "copy '%s' as stored", f->node->name);
	draft_arrays_release(f);
	f->size = head.n + a->bytes;
	f->array = take(a);
	f->n_arrays = 1;
	become_stored(f, &head);
	draft_touch(f->node);
	return 1;
}

/*
 * Move the chunks of a copy that the options, or its place, would store elsewhere: 1; 0: they must
 * be encoded.
 */
static int move_array(struct draft_file *f, struct draft_array *a)
{
	auto_of(zarr) struct zarr *z = NULL;
	struct kv *was = a->kv;
	int r;

	if (!a->copied)
		return 0;
	r = zarr_open(&f->node->draft->env->ckpt->env, was, span_of(NULL, 0), cache_owner(), 0, &z);
	r = r < 0 ? r : copy_array(f, z, a);
	zarr_unref(take(z));
	if (r > 0)
		kv_free(was);
	return r;
}

/* ---- for the commit ---- */

/*
 * Whether all arrays are encoded for the present options: 1; 0: one is not, and cannot be encoded
 * alone.
 */
static int seal_arrays(struct draft_file *f)
{
	int r = 1;

	for (size_t i = 0; i < f->n_arrays && r > 0; i++) {
		struct draft_array *a = &f->array[i];
		struct array_wanted w;

		r = array_wanted(f->node, a, &w);
		if (r < 0)
			return r;
		r = array_fits(f->node, a, &w);
		if (r != 0)
			continue;
		/*
		 * The array is cast, or the cast has changed: the written contents must be kept
		 * besides the chunks.
		 */
		if (f->place == PLACE_STORED && w.from != w.to)
			return 0;
		r = move_array(f, a);
		if (r == 0)
			r = encode_array(f, a, &w);
		r = r < 0 ? r : 1;
	}
	return r;
}

static int seal_locked(struct draft_file *f)
{
	int r;

	if (f->place == PLACE_STREAM) {
		r = draft_stream_finish(f);
		if (r == 0 && f->size < announced_end(f, 0))
			return fail_length(f, announced_end(f, 0));
		if (r == 0)
			r = draft_file_stage(f);
		if (r < 0)
			return r;
	}
	r = draft_file_encode(f);
	if (r < 0)
		return r;
	r = seal_arrays(f);
	if (r != 0)
		return r;
	r = draft_file_stage(f);
	return r < 0 ? r : draft_file_encode(f);
}

int draft_file_seal(struct draft_file *f)
{
	int r;

	pthread_mutex_lock(&f->lock);
	f->failed = 0;
	trace(TRACE_LEAF, "seal '%s'", f->node->name);
	r = seal_locked(f);
	pthread_mutex_unlock(&f->lock);
	/* Malformed contents of a draft are an error of the caller, not of the disk. */
	if (r == -EUCLEAN || r == -EOPNOTSUPP)
		return fail(-EINVAL, "%s", err_text(r));
	return MIN(r, 0);
}
