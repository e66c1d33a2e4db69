/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_mem.c - a sorted array of keys in memory: for tests, and for arrays inside legacy files, whose
 * values stay in the file.
 */
#include <pthread.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/meter.h"
#include "core/kv/kv.h"

struct pair {
	struct buf key;
	struct kv_loc value;
};

struct kv_mem {
	struct kv base;
	pthread_mutex_t lock; /* protects all below */
	struct pair *pair;    /* ascending by key */
	size_t n, cap;
	bool metered; /* `pair` is charged to the meter */
};

/* The index of key, or where it would be inserted. */
static size_t mem_find(const struct kv_mem *m, struct span key)
{
	size_t lo = 0, hi = m->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (span_cmp(buf_span(&m->pair[mid].key), key) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int locate_all(struct kv_mem *m, const struct span *key, struct kv_loc *ret, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		size_t at = mem_find(m, key[i]);
		const struct pair *p = &m->pair[at];
		int r;

		if (at == m->n || !span_eq(buf_span(&p->key), key[i]))
			continue;
		ret[i] = p->value;
		if (p->value.where == KV_FILE) {
			io_file_ref(p->value.file);
			continue;
		}
		ret[i].bytes = (struct buf){ 0 };
		r = buf_add_span(&ret[i].bytes, buf_span(&p->value.bytes));
		if (r < 0)
			return r;
	}
	return 0;
}

static int mem_locate(struct kv *kv, const struct span *key, struct kv_loc *ret, size_t n)
{
	struct kv_mem *m = container_of(kv, struct kv_mem, base);
	int r;

	pthread_mutex_lock(&m->lock);
	r = locate_all(m, key, ret, n);
	pthread_mutex_unlock(&m->lock);
	return r;
}

static int mem_list(struct kv *kv, struct span prefix, kv_each_fn *each, void *arg)
{
	struct kv_mem *m = container_of(kv, struct kv_mem, base);
	int r = 0;

	for (size_t i = mem_find(m, prefix); i < m->n && r == 0; i++) {
		struct span key = buf_span(&m->pair[i].key);

		if (!span_starts(key, prefix))
			break;
		r = each(arg, key, m->pair[i].value.len);
	}
	return r;
}

static void pair_release(struct pair *p)
{
	buf_release(&p->key);
	kv_loc_release(&p->value);
}

static size_t charged_bytes(const struct kv_mem *m)
{
	return m->metered ? sizeof(*m->pair) : 0;
}

static int insert(struct kv_mem *m, struct pair fresh)
{
	size_t at = mem_find(m, buf_span(&fresh.key));
	int r;

	if (at < m->n && span_eq(buf_span(&m->pair[at].key), buf_span(&fresh.key))) {
		pair_release(&m->pair[at]);
		m->pair[at] = fresh;
		return 0;
	}
	r = array_reserve_charged(m->pair, m->cap, m->n + 1, charged_bytes(m));
	if (r < 0) {
		pair_release(&fresh);
		return r;
	}
	memmove(&m->pair[at + 1], &m->pair[at], (m->n - at) * sizeof(*m->pair));
	m->pair[at] = fresh;
	m->n++;
	return 0;
}

/* Insert a pair. Takes it, even on failure. */
static int mem_insert(struct kv_mem *m, struct pair fresh)
{
	int r;

	pthread_mutex_lock(&m->lock);
	r = insert(m, fresh);
	pthread_mutex_unlock(&m->lock);
	return r;
}

static int mem_put(struct kv *kv, struct span key, struct span value)
{
	struct kv_mem *m = container_of(kv, struct kv_mem, base);
	struct pair fresh = {
		.key.metered = m->metered,
		.value = { .where = KV_INLINE, .len = value.n, .bytes.metered = m->metered }
	};
	int r = buf_add_span(&fresh.key, key);

	if (r >= 0)
		r = buf_add_span(&fresh.value.bytes, value);
	if (r < 0) {
		pair_release(&fresh);
		return r;
	}
	return mem_insert(m, fresh);
}

static int mem_where_text(struct kv *kv, struct span key, struct buf *ret)
{
	struct kv_mem *m = container_of(kv, struct kv_mem, base);
	size_t at = mem_find(m, key);
	const struct kv_loc *value;

	if (at == m->n || !span_eq(buf_span(&m->pair[at].key), key))
		return buf_add_str(ret, "absent");
	value = &m->pair[at].value;
	if (value->where == KV_FILE)
		return buf_addf(ret, "value:%s:%llu:%llu", value->file->name,
				(unsigned long long)value->off, (unsigned long long)value->len);
	return buf_addf(ret, "inline:%zu", value->bytes.n);
}

static void mem_free(struct kv *kv)
{
	struct kv_mem *m = container_of(kv, struct kv_mem, base);

	for (size_t i = 0; i < m->n; i++)
		pair_release(&m->pair[i]);
	pthread_mutex_destroy(&m->lock);
	meter_release(m->cap * charged_bytes(m));
	free(m->pair);
	free(m);
}

static const struct kv_ops mem_ops = {
	.name = "mem",
	.locate = mem_locate,
	.list = mem_list,
	.put = mem_put,
	.where_text = mem_where_text,
	.free = mem_free,
};

int kv_mem_new(struct io_engine *io, struct kv **ret)
{
	struct kv_mem *m = calloc(1, sizeof(*m));

	if (m)
		m->base.name = strdup("memory");
	if (!m || !m->base.name) {
		free(m);
		return fail(-ENOMEM, "cannot allocate a store");
	}
	pthread_mutex_init(&m->lock, NULL);
	m->base.ops = &mem_ops;
	m->base.io = io;
	*ret = &m->base;
	return 0;
}

void kv_mem_meter(struct kv *kv)
{
	container_of(kv, struct kv_mem, base)->metered = true;
}

/* Puts a value that is elsewhere; takes a reference to its file. */
static int put_loc(struct kv *kv, struct span key, const struct kv_loc *value)
{
	struct kv_mem *m = container_of(kv, struct kv_mem, base);
	struct pair fresh = { .key.metered = m->metered };
	int r = buf_add_span(&fresh.key, key);

	if (r < 0)
		return r;
	fresh.value = *value;
	io_file_ref(value->file);
	return mem_insert(m, fresh);
}

int kv_mem_put_file(struct kv *kv, struct span key, struct io_file *file, uint64_t off,
		    uint64_t len)
{
	return put_loc(kv, key,
		       &(struct kv_loc){ .where = KV_FILE, .file = file, .off = off, .len = len });
}

int kv_mem_put_summed(struct kv *kv, struct span key, struct io_file *file, uint64_t off,
		      uint64_t len, uint32_t sum)
{
	return put_loc(kv, key,
		       &(struct kv_loc){ .where = KV_FILE,
					 .file = file,
					 .off = off,
					 .len = len,
					 .has_sum = true,
					 .sum = sum });
}
