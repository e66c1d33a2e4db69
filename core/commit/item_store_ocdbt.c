/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_store_ocdbt.c - leaves of a database that is being written: values in data files, keys in
 * memory.
 *
 * A key that is put again gets a new value; the old one remains in its file as unused bytes, as in
 * TensorStore.
 */
#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/commit/item_store_impl.h"

/*
 * initial size for keys; small, since most leaves have one chunk, and there may be a million leaves
 */
#define FIRST_BYTES 64

struct entry {
	struct span key; /* allocated in the arena */
	/* inline bytes are in the arena; paths belong to the data writer */
	struct ocdbt_value value;
	uint32_t next; /* in its hash chain: index + 1; 0 at the end */
};

struct leaf {
	struct kv base;
	struct item_store *store; /* a reference */
	pthread_mutex_t lock;     /* protects all members below */
	struct arena arena;
	struct entry *entry;
	uint32_t n, cap;
	uint32_t *slot; /* n_slots entries, a power of two; index + 1 */
	uint32_t n_slots;
};

static struct leaf *store_ocdbt_leaf_of(struct kv *kv)
{
	return container_of(kv, struct leaf, base);
}

static uint32_t *store_ocdbt_slot_of(const struct leaf *l, struct span key)
{
	return &l->slot[hash64(key, 0) & (l->n_slots - 1)];
}

static struct entry *store_ocdbt_find(const struct leaf *l, struct span key)
{
	if (!l->n_slots)
		return NULL;
	for (uint32_t i = *store_ocdbt_slot_of(l, key); i; i = l->entry[i - 1].next)
		if (span_eq(l->entry[i - 1].key, key))
			return &l->entry[i - 1];
	return NULL;
}

static int store_ocdbt_grow(struct leaf *l)
{
	uint32_t cap = l->cap ? 2 * l->cap : 1;
	uint32_t *slot = calloc(2 * cap, sizeof(*slot));
	struct entry *more = slot ? reallocarray(l->entry, cap, sizeof(*more)) : NULL;

	if (!more || cap > UINT32_MAX / 4) {
		free(slot);
		if (more)
			l->entry = more;
		return fail(-ENOMEM, "cannot store %u keys of a leaf", cap);
	}
	free(l->slot);
	l->entry = more;
	l->cap = cap;
	l->slot = slot;
	l->n_slots = 2 * cap;
	for (uint32_t i = 0; i < l->n; i++) {
		uint32_t *at = store_ocdbt_slot_of(l, l->entry[i].key);

		l->entry[i].next = *at;
		*at = i + 1;
	}
	return 0;
}

static int store_ocdbt_keep(struct leaf *l, struct span key, const struct ocdbt_value *value)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&l->lock);
	struct ocdbt_value v = *value;
	struct entry *e = store_ocdbt_find(l, key);
	uint32_t *at;
	int r = 0;

	if (v.kind == OCDBT_INLINE)
		v.bytes.p = arena_dup(&l->arena, v.bytes);
	if (v.kind == OCDBT_INLINE && !v.bytes.p)
		return fail(-ENOMEM, "cannot store '%.*s'", SPAN_ARG(key));
	if (e) {
		e->value = v;
		return 0;
	}
	if (l->n == l->cap)
		r = store_ocdbt_grow(l);
	if (r < 0)
		return r;
	e = &l->entry[l->n];
	*e = (struct entry){ .key = span_of(arena_dup(&l->arena, key), key.n), .value = v };
	if (!e->key.p)
		return fail(-ENOMEM, "cannot store '%.*s'", SPAN_ARG(key));
	at = store_ocdbt_slot_of(l, key);
	e->next = *at;
	*at = ++l->n;
	return 0;
}

static int store_ocdbt_leaf_put(struct kv *kv, struct span key, struct span value)
{
	struct leaf *l = store_ocdbt_leaf_of(kv);
	struct ocdbt_value v = { .kind = OCDBT_INLINE, .bytes = value };
	int r = 0;

	if (value.n > ITEM_STORE_INLINE_MAX) {
		v = (struct ocdbt_value){ .kind = OCDBT_FILE };
		r = kv->raw_bytes ? ocdbt_data_put_raw(l->store->data, value, &v.ref) :
				    ocdbt_data_put(l->store->data, value, &v.ref);
	}
	return r < 0 ? r : store_ocdbt_keep(l, key, &v);
}

/* ---- values in pieces ---- */

struct piecewise {
	struct kv_stream base;
	struct leaf *leaf; /* borrowed; the opener of the stream holds its kv */
	/* NULL while the value is small enough to be inline */
	struct ocdbt_stream *stream;
	struct buf key, small;
};

/* The value is not small any more. */
static int piecewise_begin(struct piecewise *p)
{
	auto_of(ocdbt_stream) struct ocdbt_stream *stream = NULL;
	int r = ocdbt_stream_open(p->leaf->store->data, p->leaf->base.raw_bytes, &stream);

	if (r < 0)
		return r;
	r = ocdbt_stream_add(stream, buf_span(&p->small));
	if (r < 0)
		return r;
	p->stream = take(stream);
	return r;
}

static int store_ocdbt_piecewise_add(struct kv_stream *s, struct span piece)
{
	struct piecewise *p = container_of(s, struct piecewise, base);
	int r = 0;

	if (!p->stream && p->small.n + piece.n <= ITEM_STORE_INLINE_MAX)
		return buf_add_span(&p->small, piece);
	if (!p->stream)
		r = piecewise_begin(p);
	return r < 0 ? r : ocdbt_stream_add(p->stream, piece);
}

static void store_ocdbt_piecewise_abort(struct kv_stream *s)
{
	struct piecewise *p = container_of(s, struct piecewise, base);

	ocdbt_stream_abort(p->stream);
	buf_release(&p->key);
	buf_release(&p->small);
	free(p);
}

static int store_ocdbt_piecewise_close(struct kv_stream *s)
{
	struct piecewise *p = container_of(s, struct piecewise, base);
	struct ocdbt_value v = { .kind = OCDBT_INLINE, .bytes = buf_span(&p->small) };
	/* An inline value is covered by the checksum of its node. */
	int r = s->unchecked && !p->stream ? piecewise_begin(p) : 0;

	if (r < 0)
		return r;
	if (p->stream) {
		v = (struct ocdbt_value){ .kind = OCDBT_FILE };
		r = ocdbt_stream_close(p->stream, s->unchecked, &v.ref);
		if (r < 0)
			return r;
	}
	p->stream = NULL;
	r = store_ocdbt_keep(p->leaf, buf_span(&p->key), &v);
	if (r < 0)
		return r;
	store_ocdbt_piecewise_abort(s);
	return 0;
}

static const struct kv_stream_ops piecewise_ops = { .add = store_ocdbt_piecewise_add,
						    .close = store_ocdbt_piecewise_close,
						    .abort = store_ocdbt_piecewise_abort };

static int store_ocdbt_leaf_put_open(struct kv *kv, struct span key, struct kv_stream **ret)
{
	struct piecewise *p = calloc(1, sizeof(*p));
	int r = p ? buf_add_span(&p->key, key) :
		    fail(-ENOMEM, "cannot store '%.*s'", SPAN_ARG(key));

	if (r < 0) {
		if (p)
			buf_release(&p->key);
		free(p);
		return r;
	}
	p->base.ops = &piecewise_ops;
	p->leaf = store_ocdbt_leaf_of(kv);
	*ret = &p->base;
	return 0;
}

/* ---- reading back ---- */

static int store_ocdbt_leaf_locate(struct kv *kv, const struct span *key, struct kv_loc *ret,
				   size_t n)
{
	struct leaf *l = store_ocdbt_leaf_of(kv);

	for (size_t i = 0; i < n; i++) {
		struct ocdbt_value v = { 0 };
		const struct entry *e;
		int r = 0;

		pthread_mutex_lock(&l->lock);
		e = store_ocdbt_find(l, key[i]);
		if (e)
			v = e->value;
		pthread_mutex_unlock(&l->lock);
		if (!e)
			continue;
		if (v.kind == OCDBT_INLINE) {
			r = buf_add_span(&ret[i].bytes, v.bytes);
			ret[i].where = KV_INLINE;
			ret[i].len = v.bytes.n;
		} else {
			r = ocdbt_data_locate(l->store->data, &v.ref, &ret[i]);
		}
		if (r < 0)
			return r;
	}
	return 0;
}

static int store_ocdbt_leaf_list(struct kv *kv, struct span prefix, kv_each_fn *each, void *arg)
{
	struct leaf *l = store_ocdbt_leaf_of(kv);
	int r = 0;

	for (uint32_t i = 0; r == 0; i++) {
		struct span key = { 0 };
		uint64_t len = 0;

		pthread_mutex_lock(&l->lock);
		if (i < l->n) {
			key = l->entry[i].key;
			len = ocdbt_value_len(&l->entry[i].value);
		}
		pthread_mutex_unlock(&l->lock);
		if (!key.p)
			break;
		/* Keys do not move in the arena. */
		if (span_starts(key, prefix))
			r = each(arg, key, len);
	}
	return r;
}

static int store_ocdbt_leaf_where_text(struct kv *kv, struct span key, struct buf *ret)
{
	auto_kv_loc loc = { 0 };
	int r = kv_locate(kv, &key, &loc, 1);

	if (r < 0)
		return r;
	if (loc.where == KV_FILE)
		return buf_addf(ret, "value:%s:%llu:%llu", loc.file->name,
				(unsigned long long)loc.off, (unsigned long long)loc.len);
	return loc.where == KV_INLINE ? buf_addf(ret, "inline:%llu", (unsigned long long)loc.len) :
					buf_add_str(ret, "absent");
}

static void store_ocdbt_leaf_free(struct kv *kv)
{
	struct leaf *l = store_ocdbt_leaf_of(kv);

	item_store_free(l->store);
	arena_release(&l->arena);
	pthread_mutex_destroy(&l->lock);
	free(l->entry);
	free(l->slot);
	free(l);
}

const struct kv_ops item_store_ocdbt_ops = {
	.name = "draft",
	.locate = store_ocdbt_leaf_locate,
	.list = store_ocdbt_leaf_list,
	.put = store_ocdbt_leaf_put,
	.put_open = store_ocdbt_leaf_put_open,
	.where_text = store_ocdbt_leaf_where_text,
	.free = store_ocdbt_leaf_free,
};

int item_store_ocdbt_leaf(struct item_store *s, struct kv **ret)
{
	struct leaf *l = calloc(1, sizeof(*l));

	if (l)
		l->base.name = strdup("draft");
	if (!l || !l->base.name) {
		free(l);
		return fail(-ENOMEM, "cannot write a leaf to '%s'", s->dir->path);
	}
	l->base.ops = &item_store_ocdbt_ops;
	l->base.io = s->dir->io;
	l->arena.first = FIRST_BYTES;
	l->store = item_store_ref(s);
	pthread_mutex_init(&l->lock, NULL);
	*ret = &l->base;
	return 0;
}

int item_store_leaf_each(struct kv *kv, item_store_each_fn *each, void *arg)
{
	struct leaf *l = store_ocdbt_leaf_of(kv);
	int r = 0;

	if (kv->ops != &item_store_ocdbt_ops)
		return fail(-EINVAL, "'%s' is not a leaf of a database", kv->name);
	for (uint32_t i = 0; i < l->n && r == 0; i++)
		r = each(arg, l->entry[i].key, &l->entry[i].value);
	return r;
}
