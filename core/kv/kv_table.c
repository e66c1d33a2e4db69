/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_table.c - pack, parse, load and search tables of checksums.
 */
#include "core/kv/kv_table.h"

#include "core/base/array.h"
#include "core/base/crc32c.h"
#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/base/wire.h"
#include "core/io/io_store.h"

#define HEAD_BYTES 16
#define ENTRY_BYTES 12
#define END_BYTES 4
#define FILE_MAX (HEAD_BYTES + (uint64_t)LIMIT_SUM_ENTRIES * ENTRY_BYTES + END_BYTES)

static uint64_t kv_table_hash_of(struct span key)
{
	return hash64(key, KV_TABLE_MAGIC);
}

static int add(struct kv_table *t, struct kv_table_entry e)
{
	if (!array_reserve(t->entry, t->cap, t->n + 1))
		return fail(-ENOMEM, "cannot remember %zu checksums", t->n + 1);
	t->entry[t->n++] = e;
	return 0;
}

int kv_table_add(struct kv_table *t, struct span key, uint32_t crc)
{
	return add(t, (struct kv_table_entry){ kv_table_hash_of(key), crc });
}

static int by_hash(const void *a, const void *b)
{
	const struct kv_table_entry *x = a, *y = b;

	return (x->hash > y->hash) - (x->hash < y->hash);
}

/* Sort and remove duplicates: a document may be added with each part of an array. */
static int sort(struct kv_table *t)
{
	size_t n = 0;

	qsort(t->entry, t->n, sizeof(*t->entry), by_hash);
	for (size_t i = 0; i < t->n; i++) {
		if (n && t->entry[n - 1].hash == t->entry[i].hash) {
			if (t->entry[n - 1].crc != t->entry[i].crc)
				return fail(-EINVAL, "two values have one hash: %016llx",
					    (unsigned long long)t->entry[i].hash);
			continue;
		}
		t->entry[n++] = t->entry[i];
	}
	t->n = n;
	return 0;
}

static int kv_table_put_entries(const struct kv_table *t, struct buf *ret)
{
	size_t was = ret->n;
	int r = wire_put_u64le(ret, KV_TABLE_MAGIC);

	if (r < 0)
		return r;
	r = wire_put_u64le(ret, t->n);
	for (size_t i = 0; i < t->n && r >= 0; i++) {
		r = wire_put_u64le(ret, t->entry[i].hash);
		if (r < 0)
			return r;
		r = wire_put_u32le(ret, t->entry[i].crc);
	}
	return r < 0 ? r : wire_put_u32le(ret, crc32c(span_of(ret->p + was, ret->n - was)));
}

int kv_table_pack(struct kv_table *t, struct buf *ret)
{
	size_t was = ret->n;
	int r;

	if (t->n == 0 || t->n > LIMIT_SUM_ENTRIES)
		return 0;
	r = sort(t);
	if (r < 0)
		return r;
	r = kv_table_put_entries(t, ret);
	if (r < 0)
		ret->n = was;
	return r < 0 ? r : 1;
}

static int check_whole(struct span bytes, uint64_t *ret_n)
{
	uint32_t got, want;

	if (bytes.n < HEAD_BYTES + END_BYTES)
		return fail(-EBADMSG, "a table of checksums of %zu bytes", bytes.n);
	got = crc32c(span_of(bytes.p, bytes.n - END_BYTES));
	want = get_u32le(bytes.p + bytes.n - END_BYTES);
	if (got != want)
		return fail(-EBADMSG, "the table of checksums is damaged: crc32c %08x, stored %08x",
			    got, want);
	*ret_n = get_u64le(bytes.p + 8);
	if (get_u64le(bytes.p) != KV_TABLE_MAGIC ||
	    *ret_n != (bytes.n - HEAD_BYTES - END_BYTES) / ENTRY_BYTES ||
	    (bytes.n - HEAD_BYTES - END_BYTES) % ENTRY_BYTES)
		return fail(-EBADMSG, "not a table of checksums: %llu values in %zu bytes",
			    (unsigned long long)*ret_n, bytes.n);
	return 0;
}

int kv_table_parse(struct span bytes, struct kv_table *t)
{
	size_t was = t->n;
	uint64_t n = 0;
	int r = check_whole(bytes, &n);

	if (r < 0)
		return r;
	if (n > LIMIT_SUM_ENTRIES - t->n)
		return fail(-EFBIG, "checksums of more than %d values", LIMIT_SUM_ENTRIES);
	for (uint64_t i = 0; i < n && r >= 0; i++) {
		const uint8_t *p = bytes.p + HEAD_BYTES + i * ENTRY_BYTES;

		if (i && get_u64le(p) <= get_u64le(p - ENTRY_BYTES))
			r = fail(-EBADMSG, "the table of checksums is out of order at value %llu",
				 (unsigned long long)i);
		else
			r = add(t, (struct kv_table_entry){ get_u64le(p), get_u32le(p + 8) });
	}
	if (r < 0)
		t->n = was;
	return MIN(r, 0);
}

struct loading {
	struct io_dir *item;
	struct kv_table *t;
};

static int load_one(void *arg, const char *name, unsigned char type)
{
	struct loading *l = arg;
	auto_free char *path = str_fmt(KV_TABLE_DIR "/%s", name);
	auto_buf bytes = { 0 };
	int r = path ? io_read_file(l->item, path, FILE_MAX, &bytes) : -ENOMEM;

	if (r >= 0)
		r = kv_table_parse(buf_span(&bytes), l->t);
	return r < 0 && path ? err_at(r, "'%s/%s'", l->item->path, path) : MIN(r, 0);
}

int kv_table_load(struct io_dir *item, struct kv_table *ret)
{
	auto_kv_table t = { 0 };
	int r = io_dir_can_list(item) ?
			io_list(item, KV_TABLE_DIR, load_one, &(struct loading){ item, &t }) :
			-ENOENT;

	/*
	 * The values may be right, so they are readable when there is too little memory for the
	 * checksums.
	 */
	if (r == -EFBIG)
		log_warn("values of '%s' are not compared with their checksums: %s", item->path,
			 err_text(r));
	if (r < 0)
		return err_except(r, -ENOENT, -ENOTDIR, -EFBIG);
	if (t.n)
		qsort(t.entry, t.n, sizeof(*t.entry), by_hash);
	*ret = t;
	t = (struct kv_table){ 0 };
	return ret->n > 0;
}

bool kv_table_find(const struct kv_table *t, struct span key, uint32_t *ret)
{
	struct kv_table_entry want = { .hash = kv_table_hash_of(key) };
	const struct kv_table_entry *e =
		t->n ? bsearch(&want, t->entry, t->n, sizeof(want), by_hash) : NULL;

	if (e)
		*ret = e->crc;
	return e != NULL;
}

void kv_table_release(struct kv_table *t)
{
	if (t)
		free(t->entry);
}
