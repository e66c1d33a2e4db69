/*
 * kv_mem.c - a sorted array of keys in memory: for tests and small arrays of legacy files.
 */
#include "core/base/err.h"
#include "core/kv/kv.h"

struct pair {
	struct buf key, value;
};

struct kv_mem {
	struct kv base;
	struct pair *pair;		/* ascending by key */
	size_t n, cap;
};

/* Where key is or belongs. */
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

static int mem_locate(struct kv *kv, const struct span *key, struct kv_loc *ret, size_t n)
{
	struct kv_mem *m = container_of(kv, struct kv_mem, base);

	for (size_t i = 0; i < n; i++) {
		size_t at = mem_find(m, key[i]);
		int r;

		if (at == m->n || !span_eq(buf_span(&m->pair[at].key), key[i]))
			continue;
		r = buf_add_span(&ret[i].bytes, buf_span(&m->pair[at].value));
		if (r < 0)
			return r;
		ret[i].where = KV_INLINE;
		ret[i].len = m->pair[at].value.n;
	}
	return 0;
}

static int mem_list(struct kv *kv, struct span prefix, kv_each_fn *each, void *arg)
{
	struct kv_mem *m = container_of(kv, struct kv_mem, base);
	int r = 0;

	for (size_t i = mem_find(m, prefix); i < m->n && r == 0; i++) {
		struct span key = buf_span(&m->pair[i].key);

		if (!span_starts(key, prefix))
			break;
		r = each(arg, key, m->pair[i].value.n);
	}
	return r;
}

static int mem_put(struct kv *kv, struct span key, struct span value)
{
	struct kv_mem *m = container_of(kv, struct kv_mem, base);
	size_t at = mem_find(m, key);
	struct pair fresh = { 0 };
	int r = buf_add_span(&fresh.value, value);

	if (r >= 0 && at < m->n && span_eq(buf_span(&m->pair[at].key), key)) {
		buf_release(&m->pair[at].value);
		m->pair[at].value = fresh.value;
		return 0;
	}
	if (r >= 0)
		r = buf_add_span(&fresh.key, key);
	if (r >= 0 && m->n == m->cap) {
		struct pair *more = reallocarray(m->pair, m->cap ? 2 * m->cap : 16, sizeof(*more));

		if (more) {
			m->pair = more;
			m->cap = m->cap ? 2 * m->cap : 16;
		} else {
			r = fail(-ENOMEM, "cannot store '%.*s'", SPAN_ARG(key));
		}
	}
	if (r < 0) {
		buf_release(&fresh.key);
		buf_release(&fresh.value);
		return r;
	}
	memmove(&m->pair[at + 1], &m->pair[at], (m->n - at) * sizeof(*m->pair));
	m->pair[at] = fresh;
	m->n++;
	return 0;
}

static int mem_where_text(struct kv *kv, struct span key, struct buf *ret)
{
	struct kv_mem *m = container_of(kv, struct kv_mem, base);
	size_t at = mem_find(m, key);

	if (at == m->n || !span_eq(buf_span(&m->pair[at].key), key))
		return buf_add_str(ret, "absent");
	return buf_addf(ret, "inline:%zu", m->pair[at].value.n);
}

static void mem_free(struct kv *kv)
{
	struct kv_mem *m = container_of(kv, struct kv_mem, base);

	for (size_t i = 0; i < m->n; i++) {
		buf_release(&m->pair[i].key);
		buf_release(&m->pair[i].value);
	}
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

int kv_mem_new(struct kv **ret)
{
	struct kv_mem *m = calloc(1, sizeof(*m));

	if (m)
		m->base.name = strdup("memory");
	if (!m || !m->base.name) {
		free(m);
		return fail(-ENOMEM, "cannot allocate a store");
	}
	m->base.ops = &mem_ops;
	*ret = &m->base;
	return 0;
}
