/* SPDX-License-Identifier: Apache-2.0 */
/* draft_leaf.c - turns one file of a draft into a leaf. */
#include "core/base/err.h"
#include "core/base/json_pull.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/tree/sharding.h"
#include "handlers/plan/draft_plan.h"

#define TEXT_MAX (64 * MiB) /* largest string, which is in memory while it is saved */

struct span plan_stem(const struct draft_node *n)
{
	struct span name = span_str(n->name);

	name.n -= strlen(name_ext_text(name_ext_of(name)));
	return name;
}

/* ---- a file as leaf types see it ---- */

static struct plan_input *plan_input_of(struct leaf_input *f)
{
	return container_of(f, struct plan_input, input);
}

static int source_contents(struct leaf_input *f, struct buf *ret)
{
	struct draft_file *file = plan_input_of(f)->node->file;
	uint64_t size = draft_file_size(file);

	if (size > TEXT_MAX)
		return fail(-EINVAL, "a text of %llu bytes, the limit is %llu",
			    (unsigned long long)size, (unsigned long long)TEXT_MAX);
	return draft_file_read_whole(file, size, ret);
}

/* Copy the value of an xattr into the tree; p is NULL when it is not set. */
static int keep_xattr(struct plan *p, struct draft_node *n, const char *name, bool word,
		      struct span *ret)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&n->draft->lock);
	struct span value = word ? draft_xattr_word(n, name) : draft_xattr_value(n, name);

	if (!value.p && !strcmp(name, "prng_impl"))
		value = draft_copied(n)->leaf.prng_impl;
	if (!value.p && !strcmp(name, "write_shape"))
		value = draft_copied(n)->leaf.write_shape;
	return value.p ? arena_keep(&p->tree->arena, value, ret) : 0;
}

/*
 * Whether an array is recorded as jax.Array: as options and xattrs say, else like the leaf that it
 * was copied from; recorded: as its file says. Called with the draft's lock held.
 */
static bool is_jax(const struct draft_node *n, const struct save_opts *o, bool recorded)
{
	struct span word = draft_xattr_word(n, "typestr");

	if (o->leaf_type == LEAF_TYPE_JAX || save_opts_given(o, "leaf_type"))
		return o->leaf_type == LEAF_TYPE_JAX;
	return word.p ? span_eq(word, span_str("jax.Array")) :
			recorded || draft_copied(n)->leaf.is_jax;
}

/* Whether an array of that shape can be distributed so; a shape that is not known yet can. */
static bool sharding_fits(struct span text, const struct leaf_desc *l)
{
	auto_of(sharding) struct sharding *s = NULL;
	bool fits = text.n && sharding_parse(text, "a copied leaf", &s) >= 0 &&
		    (!l->has_shape || sharding_check(s, l->array.shape, l->array.rank) >= 0);

	err_clear();
	return fits;
}

/*
 * Get the properties of an array from options and xattrs. tensor: its name in the file, or empty.
 */
static int array_options(struct plan *p, struct draft_node *n, struct span tensor,
			 struct leaf_desc *ret)
{
	struct span copied;
	struct save_opts o;
	int r;

	pthread_mutex_lock(&n->draft->lock);
	r = draft_save_opts(n, tensor, &o);
	if (r >= 0)
		ret->is_jax = is_jax(n, &o, ret->is_jax);
	copied = draft_copied(n)->leaf.sharding;
	/* The contents may have another shape than the leaf that was copied. */
	if (r >= 0 && ret->is_jax && sharding_fits(copied, ret))
		r = arena_keep(&p->tree->arena, copied, &ret->sharding);
	pthread_mutex_unlock(&n->draft->lock);
	if (r < 0)
		return r;
	r = keep_xattr(p, n, "sharding", false, &ret->sharding);
	if (r < 0)
		return r;
	/* As may those of a copy with its xattrs. */
	if (ret->sharding.p && !sharding_fits(ret->sharding, ret)) {
		log_info("'%s' does not keep its sharding, which does not fit its shape", n->name);
		ret->sharding = span_of(NULL, 0);
	}
	r = keep_xattr(p, n, "prng_impl", true, &ret->key_impl);
	if (r < 0 || !ret->key_impl.p)
		return r;
	/* Only a jax array can be a typed PRNG key, and its data are uint32 in all of them. */
	ret->is_jax = true;
	if (!ret->has_shape || ret->array.dtype == DTYPE_UINT32)
		return 0;
	return fail(-EINVAL,
		    "it holds random keys (prng_impl '%.*s'), whose data are uint32: it cannot be "
		    "stored as %s",
		    SPAN_ARG(ret->key_impl), dtype_info(ret->array.dtype)->name);
}

int plan_take_shape(struct plan *p, struct array_type t, struct leaf_desc *ret)
{
	uint64_t *shape = arena_calloc(&p->tree->arena, t.rank + 1, sizeof(*shape));

	if (!shape)
		return fail(-ENOMEM, "cannot describe an array");
	memcpy(shape, t.shape, t.rank * sizeof(*shape));
	t.shape = shape;
	ret->array = t;
	ret->has_shape = true;
	return 0;
}

static int source_array(struct leaf_input *f, struct leaf_desc *ret)
{
	struct plan_input *s = plan_input_of(f);
	struct draft_file *file = s->node->file;
	int r = f->strict ? draft_file_seal(file) : 0;

	if (r < 0)
		return r;
	pthread_mutex_lock(&file->lock);
	if (file->n_arrays == 1 && !file->st.n)
		r = plan_take_shape(s->plan, array_stored_type(&file->array[0]), ret);
	pthread_mutex_unlock(&file->lock);
	if (r < 0)
		return r;
	if (f->strict && !ret->has_shape)
		return fail(-EINVAL, "it holds no .npy array");
	return array_options(s->plan, s->node, span_of(NULL, 0), ret);
}

static int source_dtype(struct leaf_input *f, enum dtype natural, enum dtype *ret_named,
			enum dtype *ret_copied)
{
	struct plan_input *s = plan_input_of(f);
	auto_unlock pthread_mutex_t *held = lock_hold(&s->node->draft->lock);
	struct span word = draft_xattr_word(s->node, "dtype");

	*ret_named = word.p ? dtype_by_user(word) : natural;
	*ret_copied = word.p ? DTYPE_UNKNOWN : draft_copied(s->node)->leaf.dtype;
	return draft_save_opts(s->node, span_of(NULL, 0), &s->opts);
}

static enum dtype source_stored_dtype(struct leaf_input *f, enum dtype from)
{
	return save_opts_dtype(&plan_input_of(f)->opts, from);
}

static int source_encoded(struct leaf_input *f, struct zarr **ret)
{
	const struct plan_leaf *l = plan_input_of(f)->leaf;
	struct kv *kv = l->kv ? l->kv : l->source->file->array[l->index].kv;

	return zarr_open(&l->source->draft->env->ckpt->env, kv, span_of(NULL, 0), cache_owner(), 0,
			 ret);
}

static const struct leaf_input_ops source_ops = {
	.contents = source_contents,
	.array = source_array,
	.dtype = source_dtype,
	.stored_dtype = source_stored_dtype,
	.encoded = source_encoded,
};

static void init_file(struct plan *p, struct draft_node *n, struct plan_input *ret)
{
	*ret = (struct plan_input){ .input = { .ops = &source_ops,
					       .name = n->name,
					       .ext = name_ext_of(span_str(n->name)),
					       .strict = p->strict,
					       .arena = &p->tree->arena },
				    .plan = p,
				    .node = n };
}

void plan_leaf_input(struct plan *p, struct plan_leaf *l, struct plan_input *ret)
{
	init_file(p, l->source, ret);
	ret->leaf = l;
}

/*
 * A device that writes a part of an axis writes something: a 0 that an xattr gives is refused, and
 * one that the source of a copy has is not taken.
 */
static int refuse_empty_axis(struct plan *p, const struct plan_leaf *l, struct span text)
{
	auto_buf shape = { 0 };
	bool given;

	pthread_mutex_lock(&l->source->draft->lock);
	given = draft_xattr_value(l->source, "write_shape").p != NULL;
	pthread_mutex_unlock(&l->source->draft->lock);
	if (!given || !p->strict)
		return 0;
	json_put_uints(&shape, l->desc.array.shape, l->desc.array.rank, JSON_COMPACT);
	return fail(-EINVAL,
		    "user.pytree.write_shape is %.*s, with a 0 for an axis that has elements: its "
		    "shape is %s",
		    SPAN_ARG(text), buf_str(&shape));
}

/*
 * Let a jax array that several devices wrote keep the shape of what each of them wrote, if that is
 * possible with its shape and its chunks.
 */
static int plan_take_write_shape(struct plan *p, struct plan_leaf *l)
{
	const struct draft_file *f;
	const uint64_t *chunk;
	struct span text = { 0 };
	uint64_t shape[LIMIT_RANK], *copy;
	auto_json_pull in = { 0 };
	unsigned rank = 0;
	int r;

	r = keep_xattr(p, l->source, "write_shape", false, &text);
	if (r < 0 || !text.n)
		return r;
	f = l->source->file;
	chunk = l->n_parts || l->index >= f->n_arrays ? l->desc.array.shape :
							f->array[l->index].layout.chunk;
	json_pull_init(&in, text, "a copied leaf");
	r = json_pull_shape(&in, shape, &rank);
	err_clear();
	if (r < 0 || rank == 0 || rank != l->desc.array.rank)
		return 0;
	for (unsigned i = 0; i < rank; i++)
		if (!shape[i] && l->desc.array.shape[i])
			return refuse_empty_axis(p, l, text);
	for (unsigned i = 0; i < rank; i++)
		if (shape[i] > l->desc.array.shape[i] ||
		    (p->strict && shape[i] % MAX(chunk[i], (uint64_t)1)))
			return 0;
	copy = arena_calloc(&p->tree->arena, rank, sizeof(*copy));
	if (!copy)
		return fail(-ENOMEM, "cannot describe an array");
	memcpy(copy, shape, rank * sizeof(*copy));
	l->write = copy;
	return 0;
}

/* Store the record of a leaf, for the documents, in its node. */
int plan_record(struct plan *p, struct plan_leaf *l)
{
	const struct leaf_desc *d = &l->desc;
	const struct leaf_record record = leaf_describe(d);
	int r;

	l->node->value_type = record.typestr;
	l->node->value = record.stored;
	/* Only then does `array_metadatas` have an entry for the array. */
	if (!record.is_sharded || !d->has_shape || !p->opts.array_metadata)
		return 0;
	/* The primary of a job has set it for the arrays of ranks. */
	r = l->write || !l->source || p->partial ? 0 : plan_take_write_shape(p, l);
	if (r < 0)
		return r;
	l->node->has_write_shape = true;
	l->node->write_rank = (uint8_t)d->array.rank;
	l->node->write_shape = l->write ? l->write : d->array.shape;
	return 0;
}

int plan_array(struct plan *p, struct plan_leaf *l, struct span tensor)
{
	int r = array_options(p, l->source, tensor, &l->desc);

	l->desc.type = &leaf_array;
	return r < 0 ? r : plan_record(p, l);
}

/* Add the leaf of one file; the name "%" alone is the root of the tree. */
static int plan_plain(struct plan *p, struct tree_node *parent, struct draft_node *n)
{
	auto_buf key = { 0 }, leaves = { 0 };
	struct plan_input s;
	struct leaf_desc desc;
	struct plan_leaf *l;
	int r;

	init_file(p, n, &s);
	r = leaf_classify(&s.input, &desc);
	leaf_input_release(&s.input);
	if (r < 0 || (r == 0 && !p->strict))
		return r;
	if (r == 0) {
		r = leaf_extensions(&leaves);
		return r < 0 ? r :
			       fail(-EINVAL,
				    "it is not a leaf: leaves are %.*s and .safetensors files",
				    SPAN_ARG(buf_span(&leaves)));
	}
	r = parent ? plan_key(p, parent, n, plan_stem(n), false, &key) : 0;
	if (r < 0)
		return r;
	r = plan_leaf_new(p, parent, n, buf_span(&key), &l);
	if (r < 0 || !l)
		return r;
	l->desc = desc;
	return plan_record(p, l);
}

int plan_file(struct plan *p, struct tree_node *parent, struct draft_node *n)
{
	int r;

	if (name_ext_of(span_str(n->name)) == NAME_EXT_SAFETENSORS)
		r = parent ? plan_safetensors(p, parent, n) : 0;
	else
		r = plan_plain(p, parent, n);
	if (r == -EINVAL && !p->strict) {
		err_clear();
		r = 0;
	}
	return r;
}

/* ---- storing a value that was not encoded while it was written ---- */

int plan_store(struct plan_leaf *l, const struct array_type *t, array_read_fn *read, void *arg)
{
	const struct item_store *store;
	auto_of(kv) struct kv *kv = NULL;
	struct array_wanted w;
	int r = array_wanted_plain(l->source, t, &w);

	if (r < 0)
		return r;
	/* A number is stored even if it is zero. */
	if (!l->desc.type->in_boxes)
		w.layout.omit_fill = false;
	r = draft_leaf_kv(l->source, false, &kv, &store);
	if (r < 0)
		return r;
	r = array_write(l->source->draft->env, &w.layout, t, kv, read, arg);
	if (r < 0)
		return r;
	l->kv = take(kv);
	return 0;
}

static int plan_leaf_read_elements(void *arg, uint64_t off, size_t n, void *p)
{
	memcpy(p, *(const uint8_t *const *)arg + off, n);
	return 0;
}

int plan_store_array(struct plan_leaf *l, const struct array_type *t, const void *elements)
{
	return plan_store(l, t, plan_leaf_read_elements, &elements);
}
