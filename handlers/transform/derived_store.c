/* SPDX-License-Identifier: Apache-2.0 */
/*
 * derived_store.c - a derived array as a store of one raw chunk, which is read like any other
 * array.
 *
 * Shape and size are known from the plan. The elements are computed into an unlinked temporary file
 * when the first byte of them is read, once for all readers. derived.c has the functions. The files
 * count against spill_limit: a file that nobody is reading is freed when another one needs its
 * room, and computed again for the next reader.
 *
 * Lock order: k->lock before the lock of the table of streams. derived_store_give_up(), which holds
 * the latter, only tries k->lock.
 */
#include <assert.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>

#include "core/base/err.h"
#include "core/zarr/stream.h"
#include "handlers/transform/derived.h"
#include "handlers/format/npy.h"

struct kv_derived {
	struct kv base;
	struct ckpt *ckpt; /* borrowed */
	struct derived_plan plan;
	struct zarr **input; /* references */
	/* the store of its only input, when that is computed too; or NULL */
	struct kv *inner;
	uint64_t inner_owner; /* cache owner of that input's array */
	struct buf meta;      /* contents of .zarray */
	struct buf chunk;     /* key of its only chunk */
	pthread_mutex_t lock; /* protects file; held while the elements are computed */
	struct io_file *file; /* counts against spill_limit; NULL: not computed yet, or freed */
	struct streams_user user;
};

static struct kv_derived *derived_of(struct kv *kv)
{
	return container_of(kv, struct kv_derived, base);
}

struct into_file {
	struct io_file *file;
	uint64_t at;
};

static int derived_store_add_piece(void *arg, const void *p, size_t n)
{
	struct into_file *f = arg;
	uint64_t at = f->at;

	f->at += n;
	return io_write_exact(f->file, p, n, at);
}

/* Called with the lock held. */
static int compute(struct kv_derived *k)
{
	auto_of(io_file) struct io_file *f = NULL, *intermediate = NULL;
	struct kv_derived *inner = k->inner ? derived_of(k->inner) : NULL;
	struct into_file to = { 0 };
	int r = streams_file(k->ckpt->streams, k->ckpt->io, k->plan.bytes, &f);

	if (r < 0)
		return err_at(r, "%s", k->plan.name);
	to.file = f;
	r = derived_run(&k->plan, derived_store_add_piece, &to);
	/* Free the elements of an intermediate result, which nobody else reads. */
	if (inner) {
		cache_drop(k->ckpt->cache, k->inner_owner);
		streams_user_remove(inner->ckpt->streams, &inner->user);
		pthread_mutex_lock(&inner->lock);
		intermediate = take(inner->file);
		pthread_mutex_unlock(&inner->lock);
	}
	if (r < 0)
		return r;
	assert(to.at == k->plan.bytes);
	k->file = take(f);
	streams_user_add(k->ckpt->streams, &k->user);
	return 0;
}

static struct io_file *derived_store_give_up(struct streams_user *u, bool open)
{
	struct kv_derived *k = container_of(u, struct kv_derived, user);
	struct io_file *f = NULL;

	/* Another thread holds the lock: it computes the elements or is about to read them. */
	if (pthread_mutex_trylock(&k->lock))
		return NULL;
	/* One of the references belongs to the item. */
	if (k->file && k->file->refs == 1 && (open || k->base.more_refs == 0))
		f = take(k->file);
	pthread_mutex_unlock(&k->lock);
	return f;
}

static int derived_locate(struct kv *kv, const struct span *key, struct kv_loc *ret, size_t n)
{
	struct kv_derived *k = derived_of(kv);
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++) {
		if (span_eq(key[i], span_str(".zarray"))) {
			r = buf_add_span(&ret[i].bytes, buf_span(&k->meta));
			ret[i].len = k->meta.n;
			ret[i].where = KV_INLINE;
		} else if (k->plan.bytes && span_eq(key[i], buf_span(&k->chunk))) {
			pthread_mutex_lock(&k->lock);
			r = k->file ? 0 : compute(k);
			/* The reference keeps derived_store_give_up() from freeing the file after
			 * the unlock. */
			ret[i].file = r >= 0 ? io_file_ref(k->file) : NULL;
			pthread_mutex_unlock(&k->lock);
			if (r < 0)
				break;
			ret[i].where = KV_FILE;
			ret[i].len = k->plan.bytes;
		}
	}
	return r;
}

static int derived_list(struct kv *kv, struct span prefix, kv_each_fn *each, void *arg)
{
	struct kv_derived *k = derived_of(kv);
	int r = span_starts(span_str(".zarray"), prefix) ?
			each(arg, span_str(".zarray"), k->meta.n) :
			0;

	if (r == 0 && k->plan.bytes && span_starts(buf_span(&k->chunk), prefix))
		r = each(arg, buf_span(&k->chunk), k->plan.bytes);
	return r;
}

static int derived_where_text(struct kv *kv, struct span key, struct buf *ret)
{
	struct kv_derived *k = derived_of(kv);

	if (span_eq(key, span_str(".zarray")))
		return buf_addf(ret, "inline:%zu", k->meta.n);
	return buf_add_str(ret, k->plan.bytes && span_eq(key, buf_span(&k->chunk)) ? "computed" :
										     "absent");
}

static void derived_free(struct kv *kv)
{
	struct kv_derived *k = derived_of(kv);

	streams_user_remove(k->ckpt->streams, &k->user);
	for (unsigned i = 0; k->input && i < k->plan.n_inputs; i++)
		zarr_unref(k->input[i]);
	if (k->inner) {
		cache_drop(k->ckpt->cache, k->inner_owner);
		kv_free(k->inner);
	}
	free(k->input);
	io_file_unref(k->file);
	buf_release(&k->meta);
	buf_release(&k->chunk);
	pthread_mutex_destroy(&k->lock);
	free(k);
}

static const struct kv_ops derived_ops = {
	.name = "derived",
	.locate = derived_locate,
	.list = derived_list,
	.where_text = derived_where_text,
	.free = derived_free,
};

static int computed_store(struct item *item, const struct derived *d, struct kv **ret);

static int open_inputs(struct item *item, const struct derived *d, struct kv_derived *k)
{
	int r;

	k->input = calloc(d->n_inputs, sizeof(struct zarr *));
	if (!k->input)
		return fail(-ENOMEM, "cannot open %u arrays", d->n_inputs);
	k->plan.n_inputs = d->n_inputs;
	/* In a chain of functions, the result of the previous function is an array. */
	if (d->inner) {
		r = computed_store(item, d->inner, &k->inner);
		k->inner_owner = cache_owner();
		return r < 0 ? r :
			       zarr_open(&item->ckpt->inner_env, k->inner, span_of(NULL, 0),
					 k->inner_owner, 0, &k->input[0]);
	}
	for (unsigned i = 0; i < d->n_inputs; i++) {
		const struct tree_node *in = d->input[i];

		if (in->kind != TREE_LEAF || in->value == TREE_VALUE_NONE ||
		    in->value == TREE_VALUE_PLACEHOLDER ||
		    span_eq(in->value_type, span_str("string")))
			return fail(-EINVAL, "%s: '%.*s' is not an array", derived_name(d),
				    SPAN_ARG(in->param));
		r = item_array_inner(item, in, &k->input[i]);
		if (r < 0)
			return err_at(r, "%s of '%.*s'", derived_name(d), SPAN_ARG(in->param));
	}
	return 0;
}

/* Random keys are bits: a function that makes other numbers of them is a mistake. */
static int check_keys(struct item *item, const struct derived *d)
{
	const struct derived *first = d;

	if (d->fn != VALUE_FN_CAST && d->fn != VALUE_FN_SCALE && d->fn != VALUE_FN_ADD &&
	    d->fn != VALUE_FN_PLUGIN)
		return 0;
	while (first->inner)
		first = first->inner;
	for (unsigned i = 0; i < first->n_inputs; i++) {
		struct span impl;
		int r = first->input[i]->kind == TREE_LEAF ?
				item_prng_impl(item, first->input[i], &impl) :
				0;

		if (r > 0)
			return fail(-EINVAL,
				    "%s of '%.*s', which holds random keys (prng_impl '%.*s')",
				    derived_name(d), SPAN_ARG(first->input[i]->param),
				    SPAN_ARG(impl));
		if (r < 0)
			return r;
	}
	return 0;
}

/* The recursion is as deep as the rule has steps, at most RULE_STEPS_MAX. */
static int computed_store(struct item *item, const struct derived *d, struct kv **ret)
{
	struct kv_derived *k = calloc(1, sizeof(*k));
	auto_of(kv) struct kv *kv = NULL;
	int r;

	if (!k)
		return fail(-ENOMEM, "cannot open a computed array");
	k->base.ops = &derived_ops;
	k->base.io = item->ckpt->io;
	k->ckpt = item->ckpt;
	k->user.give_up = derived_store_give_up;
	pthread_mutex_init(&k->lock, NULL);
	kv = &k->base;
	k->base.name = strdup("derived");
	r = k->base.name ? check_keys(item, d) : fail(-ENOMEM, "cannot open a computed array");
	if (r < 0)
		return r;
	r = open_inputs(item, d, k);
	if (r < 0)
		return r;
	r = derived_plan(d, k->input, &k->plan);
	if (r < 0)
		return r;
	r = zarr_whole_key(k->plan.rank, &k->chunk);
	if (r < 0)
		return r;
	r = zarr_meta_print_whole(
		&(struct array_type){ k->plan.dtype, k->plan.rank, k->plan.shape }, &k->meta);
	if (r < 0)
		return r;
	*ret = take(kv);
	return 0;
}

static int read_npy_header(struct io_file *f, const char *path, struct npy *ret)
{
	auto_buf head = { 0 };
	int r = buf_reserve(&head, NPY_HEADER_MAX);

	if (r < 0)
		return r;
	head.n = (size_t)MIN(f->size, (uint64_t)NPY_HEADER_MAX);
	r = io_read_exact(f, head.p, head.n, 0);
	if (r < 0)
		return r;
	r = npy_parse(buf_span(&head), ret);
	if (r < 0)
		return r;
	if (r == 0 || f->size != ret->data + ret->bytes)
		return fail(-EUCLEAN, "'%s' does not have the length that its header implies",
			    path);
	if (ret->fortran || ret->big_endian || ret->dtype == DTYPE_UNKNOWN)
		return fail(-EOPNOTSUPP,
			    "'%s' is not little-endian in C order, or its dtype has no name", path);
	return 0;
}

/* Open an .npy file of the user as an array of one chunk. */
static int file_store(struct item *item, const char *path, struct kv **ret)
{
	auto_free char *dir_copy = strdup(path), *base_copy = strdup(path);
	auto_of(io_dir) struct io_dir *dir = NULL;
	auto_of(io_file) struct io_file *f = NULL;
	auto_of(kv) struct kv *kv = NULL;
	auto_buf meta = { 0 }, chunk = { 0 };
	struct npy npy;
	int r = dir_copy && base_copy ? io_dir_open(item->ckpt->io, dirname(dir_copy), &dir) :
					fail(-ENOMEM, "cannot open '%s'", path);

	if (r < 0)
		return r;
	r = io_file_open(dir, basename(base_copy), O_RDONLY, 0, &f);
	if (r < 0)
		return r;
	r = read_npy_header(f, path, &npy);
	if (r < 0)
		return r;
	r = zarr_whole_key(npy.rank, &chunk);
	if (r < 0)
		return r;
	r = zarr_meta_print_whole(&(struct array_type){ npy.dtype, npy.rank, npy.shape }, &meta);
	if (r < 0)
		return r;
	r = kv_mem_new(item->ckpt->io, &kv);
	if (r < 0)
		return r;
	r = kv_put(kv, span_str(".zarray"), buf_span(&meta));
	if (r < 0)
		return r;
	if (npy.bytes)
		r = kv_mem_put_file(kv, buf_span(&chunk), f, npy.data, npy.bytes);
	if (r < 0)
		return r;
	*ret = take(kv);
	return 0;
}

const struct tree_node *derived_input(const struct tree_source *s, unsigned i)
{
	const struct derived *d = container_of(s, const struct derived, source);

	while (d->inner)
		d = d->inner;
	return i < d->n_inputs ? d->input[i] : NULL;
}

int derived_open(const struct tree_source *s, struct item *item, struct kv **ret)
{
	const struct derived *d = container_of(s, const struct derived, source);

	return d->file ? file_store(item, d->file, ret) : computed_store(item, d, ret);
}
