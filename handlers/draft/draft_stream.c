/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_stream.c - an .npy or safetensors file that is written from front to back.
 *
 * The header lists the arrays that follow; their bytes go to one writer after the other. Reads
 * return exactly the written bytes, since the header is kept and elements are stored unchanged.
 */
#include "core/base/err.h"
#include "core/base/lfs.h"
#include "core/base/log.h"
#include "core/base/wire.h"
#include "handlers/draft/draft_file.h"

void draft_arrays_release(struct draft_file *f)
{
	for (size_t i = 0; i < f->n_arrays; i++)
		array_release(&f->array[i]);
	free(f->array);
	f->array = NULL;
	f->n_arrays = f->at_array = 0;
	safetensors_release(&f->st);
}

static int sniff_npy(struct draft_file *f, struct span head, uint64_t *ret_head)
{
	struct npy n;
	int r = npy_parse(head, &n);

	if (r <= 0)
		return r;
	/* Other byte and axis orders can be saved, but not as a stream. */
	f->array = calloc(1, sizeof(*f->array));
	if (!f->array)
		return fail(-ENOMEM, "cannot write '%s'", f->node->name);
	f->n_arrays = 1;
	f->array[0] = (struct draft_array){ .dtype = n.dtype,
					    .item = n.item,
					    .rank = n.rank,
					    .at = n.data,
					    .bytes = n.bytes,
					    .swapped = n.big_endian && n.item > 1,
					    .fortran = n.fortran && n.rank > 1 };
	memcpy(f->array[0].shape, n.shape, sizeof(n.shape));
	*ret_head = n.data;
	return 1;
}

static int sniff_safetensors(struct draft_file *f, struct span head, uint64_t *ret_head)
{
	int r = safetensors_parse(head, &f->st);

	if (r <= 0)
		return r;
	f->array = calloc(f->st.n ? f->st.n : 1, sizeof(*f->array));
	if (!f->array)
		r = fail(-ENOMEM, "cannot write '%s'", f->node->name);
	for (size_t i = 0; i < f->st.n && r >= 0; i++) {
		const struct safetensor *t = &f->st.tensor[i];
		struct draft_array *a = &f->array[i];

		if (t->array.dtype == DTYPE_UNKNOWN) {
			r = fail(-EOPNOTSUPP, "tensor '%.*s': dtype '%.*s'", SPAN_ARG(t->name),
				 SPAN_ARG(t->type));
			break;
		}
		*a = (struct draft_array){ .name = t->name,
					   .dtype = t->array.dtype,
					   .rank = t->array.rank,
					   .item = dtype_info(t->array.dtype)->size,
					   .at = f->st.data + t->begin,
					   .bytes = t->bytes };
		memcpy(a->shape, t->array.shape, a->rank * sizeof(*a->shape));
	}
	if (r < 0) {
		draft_arrays_release(f);
		return r;
	}
	f->n_arrays = f->st.n;
	*ret_head = f->st.data;
	return 1;
}

int draft_file_sniff(struct draft_file *f, struct span head, uint64_t *ret_head)
{
	int r;

	if (head.n == 0)
		return 0;
	/* A safetensors file cannot begin with 0x93: its header would be too long, or not JSON. */
	if (head.p[0] == 0x93 && (head.n < 6 || !memcmp(head.p + 1, "NUMPY", 5)))
		return sniff_npy(f, head, ret_head);
	if (head.n < 9)
		return 0;
	r = lfs_check(f->node->name, head);
	if (r < 0)
		return r;
	if (head.p[8] != '{' || get_u64le(head.p) > SAFETENSORS_HEADER_MAX)
		return fail(-EUCLEAN, "neither an .npy nor a safetensors file");
	return sniff_safetensors(f, head, ret_head);
}

static int read_band(void *arg, uint64_t off, size_t n, void *p)
{
	memcpy(p, ((const struct span *)arg)->p + off, n);
	return 0;
}

/* A zarr_choose_fn for an array that streams. */
static int stream_choose(void *arg, struct span band, struct buf *ret_json)
{
	struct draft_array *a = arg;
	const struct array_type t = array_stored_type(a);
	int r = array_choose(a->env, &a->layout, &t, read_band, &band);

	return r < 0 ? r : array_json(&a->layout, &t, ret_json);
}

/*
 * Make the array's writer for the layout that the options ask for. -EOPNOTSUPP: the array cannot
 * stream.
 */
static int open_writer(struct draft_file *f, struct draft_array *a)
{
	struct draft_node *n = f->node;
	auto_of(kv) struct kv *kv = NULL;
	const struct item_store *store;
	auto_buf json = { 0 };
	struct array_wanted w;
	struct draft_array raw = *a;
	int r = array_wanted(n, a, &w);

	/*
	 * Elements of one byte may get their dtype later, or another one. All bits of them are
	 * stored in any case.
	 */
	if (a->dtype == DTYPE_UNKNOWN &&
	    (r == -EINVAL || (r >= 0 && dtype_info(w.from)->bits < 8))) {
		raw.dtype = DTYPE_UINT8;
		r = array_wanted(n, &raw, &w);
	}
	/* Malformed contents are kept, and the commit reports them. */
	if (r == -EINVAL) {
		err_clear();
		return -EOPNOTSUPP;
	}
	if (r < 0)
		return r;
	/* A cast array must read back as it was written, so it is staged. */
	if (w.from != w.to)
		return -EOPNOTSUPP;
	r = array_json(&w.layout, &(struct array_type){ w.to, a->rank, a->shape }, &json);
	if (r < 0)
		return r;
	r = array_kv(n, a, &w, buf_span(&json), &kv, &store);
	if (r < 0)
		return r;
	r = zarr_writer_open(&n->draft->env->ckpt->write_env, kv, buf_span(&json),
			     w.layout.omit_fill ? ZARR_FILL_OMIT : ZARR_FILL_STORE, &a->writer);
	if (r < 0)
		return r;
	a->kv = take(kv);
	a->store = store;
	a->layout = w.layout;
	a->from = a->stored = w.to;
	a->env = n->draft->env;
	if (w.layout.compression.kind == COMPRESSION_AUTO)
		zarr_writer_defer(a->writer, stream_choose, a);
	return 0;
}

int draft_stream_begin(struct draft_file *f)
{
	uint64_t head;
	int r;

	draft_arrays_release(f);
	r = draft_file_sniff(f, buf_span(&f->head), &head);

	if (r <= 0) {
		/* The header is missing, or longer than the limit: the commit reports it. */
		if (r != -ENOMEM)
			err_clear();
		return r == -ENOMEM ? r : 0;
	}
	for (size_t i = 0; i < f->n_arrays; i++)
		if (f->array[i].swapped || f->array[i].fortran) {
			draft_arrays_release(f);
			return 0;
		}
	trace(TRACE_LEAF, "stream '%s': %zu arrays", f->node->name, f->n_arrays);
	f->head.n = head;
	f->place = PLACE_STREAM;
	return 1;
}

/*
 * The array to which the next byte belongs, with its writer open; arrays without bytes are skipped.
 */
static int current(struct draft_file *f, struct draft_array **ret)
{
	for (; f->at_array < f->n_arrays; f->at_array++) {
		struct draft_array *a = &f->array[f->at_array];
		int r = a->kv ? 0 : open_writer(f, a);

		if (r < 0)
			return r;
		if (f->pos < a->at + a->bytes)
			break;
		/* The array ends here, so complete it. Its bands are encoded in the background. */
		if (a->writer) {
			r = zarr_writer_flush(a->writer);
			if (r < 0)
				return r;
			zarr_writer_close(take(a->writer));
		}
	}
	*ret = f->at_array < f->n_arrays ? &f->array[f->at_array] : NULL;
	return 0;
}

int draft_stream_append(struct draft_file *f, const uint8_t *p, size_t n, size_t *ret_taken)
{
	*ret_taken = 0;
	while (*ret_taken < n) {
		struct draft_array *a;
		size_t part, taken;
		int r = current(f, &a);

		/*
		 * The array cannot stream, or the file is longer than its header says: the contents
		 * must move elsewhere.
		 */
		if (r == -EOPNOTSUPP || (r >= 0 && !a))
			return -EAGAIN;
		if (r < 0)
			return r;
		part = (size_t)MIN((uint64_t)(n - *ret_taken), a->at + a->bytes - f->pos);
		r = zarr_writer_append(a->writer, p + *ret_taken, part, ZARR_WRITER_TRY, &taken);
		f->pos += taken;
		*ret_taken += taken;
		if (r < 0)
			return r;
	}
	return 0;
}

int draft_stream_read(struct draft_file *f, uint64_t off, size_t n, uint8_t *p)
{
	int r = 0;

	if (off < f->head.n) {
		size_t part = (size_t)MIN((uint64_t)n, f->head.n - off);

		memcpy(p, f->head.p + off, part);
		off += part;
		p += part;
		n -= part;
	}
	for (size_t i = 0; i < f->n_arrays && n > 0 && r >= 0; i++) {
		struct draft_array *a = &f->array[i];
		auto_of(zarr) struct zarr *z = NULL;
		size_t part;

		if (off >= a->at + a->bytes)
			continue;
		part = (size_t)MIN((uint64_t)n, a->at + a->bytes - off);
		if (a->writer) {
			r = zarr_writer_read(a->writer, off - a->at, part, p);
		} else {
			r = zarr_open(&f->node->draft->env->ckpt->env, a->kv, span_of(NULL, 0),
				      cache_owner(), 0, &z);
			r = r < 0 ? r : zarr_read_into(z, NULL, off - a->at, part, p);
		}
		off += part;
		p += part;
		n -= part;
	}
	return r;
}

int draft_stream_finish(struct draft_file *f)
{
	struct draft_array *a;
	int r = current(f, &a);

	if (r == -EOPNOTSUPP)
		return 0;
	if (r < 0)
		return r;
	/* Bytes are missing, or the file was extended beyond what its header says. */
	if (a || f->size != f->pos)
		return 0;
	f->place = PLACE_STORED;
	return 1;
}
