/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c - the data file table of a record: bytes <-> struct.
 *
 * A path is divided into base and relative part, because the entries of a node inherit only the
 * base of the reference that led to the node (the transitive path). db_file.c opens paths.
 *
 * Invariants: a path, including the transitive one, has at most LIMIT_KEY_BYTES bytes; base_len
 * never exceeds its length; the packer's output is sorted, without duplicates, and obeys R3.
 */
#include <assert.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/ocdbt/record.h"

/* ---- parse ---- */

/* The columns as stored, before expansion. */
struct columns {
	uint32_t n;
	uint16_t *prefix, *suffix, *base; /* n of each */
	struct arena arena;               /* of these columns */
	struct span bytes;
	uint64_t total; /* size of all paths, expanded */
};

static void columns_release(struct columns *c)
{
	arena_release(&c->arena);
}

/* R3: check one row against the previous one. */
static int check_row(const struct columns *c, uint32_t i, size_t transitive_n)
{
	uint32_t len = (uint32_t)c->prefix[i] + c->suffix[i];
	uint32_t before = i ? (uint32_t)c->prefix[i - 1] + c->suffix[i - 1] : 0;
	uint32_t base_before = i ? c->base[i - 1] : 0;

	if (len > LIMIT_KEY_BYTES - transitive_n)
		return fail(-EUCLEAN, "data file %u: path of %u bytes below one of %zu, most is %d",
			    i, len, transitive_n, LIMIT_KEY_BYTES);
	if (c->prefix[i] > before)
		return fail(-EUCLEAN, "data file %u shares %u bytes with a path of %u", i,
			    c->prefix[i], before);
	if (c->base[i] > len)
		return fail(-EUCLEAN, "data file %u: base of %u bytes in a path of %u", i,
			    c->base[i], len);
	if (c->base[i] != base_before && c->prefix[i] > MIN(c->base[i], base_before))
		return fail(-EUCLEAN, "data file %u shares %u bytes across bases of %u and %u", i,
			    c->prefix[i], base_before, c->base[i]);
	return 0;
}

static int columns_parse(struct wire *w, size_t transitive_n, struct columns *c)
{
	uint64_t n = wire_varint(w, UINT64_MAX), suffix_sum = 0;

	if (n > LIMIT_TABLE_FILES)
		return fail(-EFBIG, "table of %llu data files, the limit is %d",
			    (unsigned long long)n, LIMIT_TABLE_FILES);
	/*
	 * Each column has at least a byte per file, except that the first has none for the first
	 * file.
	 */
	if (!wire_ok(w) || (n && wire_left(w) < 3 * n - 1))
		return fail(-EUCLEAN, "data-file table is truncated");
	c->n = (uint32_t)n;
	c->arena.metered = true;
	c->prefix = arena_calloc(&c->arena, n + 1, sizeof(*c->prefix));
	c->suffix = arena_calloc(&c->arena, n + 1, sizeof(*c->suffix));
	c->base = arena_calloc(&c->arena, n + 1, sizeof(*c->base));
	if (!c->prefix || !c->suffix || !c->base)
		return fail(-ENOMEM, "cannot allocate a table of %u data files", c->n);
	for (uint32_t i = 1; i < c->n; i++)
		c->prefix[i] = (uint16_t)wire_varint(w, UINT16_MAX);
	for (uint32_t i = 0; i < c->n; i++) {
		c->suffix[i] = (uint16_t)wire_varint(w, UINT16_MAX);
		suffix_sum += c->suffix[i];
	}
	for (uint32_t i = 0; i < c->n; i++)
		c->base[i] = (uint16_t)wire_varint(w, UINT16_MAX);
	c->bytes = wire_bytes(w, suffix_sum);
	if (!wire_ok(w))
		return fail(-EUCLEAN, "data-file table is truncated or holds a malformed number");
	for (uint32_t i = 0; i < c->n; i++) {
		int r = check_row(c, i, transitive_n);

		if (r < 0)
			return r;
		c->total += transitive_n + c->prefix[i] + c->suffix[i];
	}
	if (c->total > LIMIT_TABLE_BYTES)
		return fail(-EFBIG, "paths of %u data files have %llu bytes, the limit is %llu",
			    c->n, (unsigned long long)c->total,
			    (unsigned long long)LIMIT_TABLE_BYTES);
	return 0;
}

static int expand(const struct columns *c, struct span transitive, struct arena *a,
		  struct ocdbt_files *ret)
{
	uint8_t *bytes = arena_alloc(a, c->total);
	uint32_t *end = arena_calloc(a, c->n, sizeof(*end));
	uint16_t *base_len = arena_calloc(a, c->n, sizeof(*base_len));
	const uint8_t *suffix = c->bytes.p;
	uint32_t at = 0;

	if (!bytes || !end || !base_len)
		return fail(-ENOMEM, "cannot allocate a table of %u data files", c->n);
	for (uint32_t i = 0; i < c->n; i++) {
		uint32_t before = i > 1 ? end[i - 2] : 0; /* start of the previous path */

		if (transitive.n)
			memcpy(bytes + at, transitive.p, transitive.n);
		at += (uint32_t)transitive.n;
		if (c->prefix[i])
			memcpy(bytes + at, bytes + before + transitive.n, c->prefix[i]);
		at += c->prefix[i];
		if (c->suffix[i])
			memcpy(bytes + at, suffix, c->suffix[i]);
		at += c->suffix[i];
		suffix += c->suffix[i];
		end[i] = at;
		base_len[i] = (uint16_t)(transitive.n + c->base[i]);
	}
	*ret = (struct ocdbt_files){ c->n, end, base_len, bytes };
	return 0;
}

int ocdbt_files_parse(struct wire *w, struct span transitive, struct arena *a,
		      struct ocdbt_files *ret)
{
	__attribute__((cleanup(columns_release))) struct columns c = { 0 };
	int r;

	if (transitive.n > LIMIT_KEY_BYTES)
		return fail(-EUCLEAN, "base path of %zu bytes, most is %d", transitive.n,
			    LIMIT_KEY_BYTES);
	r = columns_parse(w, transitive.n, &c);
	return r < 0 ? r : expand(&c, transitive, a, ret);
}

void ocdbt_files_get(const struct ocdbt_files *f, uint32_t i, struct ocdbt_ref *ret)
{
	uint32_t from = i ? f->end[i - 1] : 0;

	assert(i < f->n);
	ret->base = span_of(f->bytes + from, f->base_len[i]);
	ret->rel = span_of(f->bytes + from + f->base_len[i], f->end[i] - from - f->base_len[i]);
}

/* ---- pack ---- */

struct ocdbt_file_name {
	struct span base, rel;
	uint32_t id;
};

static unsigned recent_slot(struct span base, struct span rel)
{
	/* Paths differ most at their end: random hex digits. */
	unsigned h = (unsigned)(base.n * 7 + rel.n);

	for (size_t i = 0; i < 8 && i < rel.n; i++)
		h = h * 31 + rel.p[rel.n - 1 - i];
	for (size_t i = 0; i < 8 && i < base.n; i++)
		h = h * 31 + base.p[base.n - 1 - i];
	return h % ARRAY_LEN(((struct ocdbt_filelist *)0)->recent);
}

int ocdbt_filelist_add(struct ocdbt_filelist *t, struct span base, struct span rel,
		       uint32_t *ret_id)
{
	unsigned slot = recent_slot(base, rel);
	uint8_t *b, *p;

	if (t->recent[slot]) {
		const struct ocdbt_file_name *f = &t->name[t->recent[slot] - 1];

		if (span_eq(f->base, base) && span_eq(f->rel, rel)) {
			*ret_id = f->id;
			return 0;
		}
	}
	if (base.n > LIMIT_KEY_BYTES || rel.n > LIMIT_KEY_BYTES - base.n)
		return fail(-EINVAL, "data file path of %zu bytes, most is %d", base.n + rel.n,
			    LIMIT_KEY_BYTES);
	if (t->n >= LIMIT_TABLE_FILES)
		return fail(-EFBIG, "more than %d data files in one record", LIMIT_TABLE_FILES);
	if (!array_reserve(t->name, t->cap, t->n + 1))
		return fail(-ENOMEM, "cannot allocate a table of %u data files", t->n + 1);
	b = arena_dup(&t->arena, base);
	p = arena_dup(&t->arena, rel);
	if (!b || !p)
		return fail(-ENOMEM, "cannot allocate a path of %zu bytes", base.n + rel.n);
	t->name[t->n] = (struct ocdbt_file_name){ span_of(b, base.n), span_of(p, rel.n), t->n };
	*ret_id = t->n++;
	t->recent[slot] = t->n;
	return 0;
}

static int name_cmp(const void *pa, const void *pb)
{
	const struct ocdbt_file_name *a = pa, *b = pb;
	int c = span_cmp(a->base, b->base);

	return c ? c : span_cmp(a->rel, b->rel);
}

/*
 * The number of bytes that path i of the sorted table shares with the previous one, as TensorStore
 * counts them.
 */
static size_t shared(const struct ocdbt_file_name *name, uint32_t i)
{
	size_t n;

	if (i == 0)
		return 0;
	n = span_common(name[i - 1].base, name[i].base);
	if (span_eq(name[i - 1].base, name[i].base))
		n += span_common(name[i - 1].rel, name[i].rel);
	return n;
}

static int put_columns(const struct ocdbt_file_name *name, uint32_t n, struct buf *ret)
{
	int r = wire_put_varint(ret, n);

	for (uint32_t i = 1; i < n && r >= 0; i++)
		r = wire_put_varint(ret, shared(name, i));
	for (uint32_t i = 0; i < n && r >= 0; i++)
		r = wire_put_varint(ret, name[i].base.n + name[i].rel.n - shared(name, i));
	for (uint32_t i = 0; i < n && r >= 0; i++)
		r = wire_put_varint(ret, name[i].base.n);
	for (uint32_t i = 0; i < n && r >= 0; i++) {
		size_t skip = shared(name, i), in_base = MIN(skip, name[i].base.n);

		/* span_from() stops at the end, so one of the two pieces may be empty. */
		r = buf_add_span(ret, span_from(name[i].base, skip));
		if (r < 0)
			return r;
		r = buf_add_span(ret, span_from(name[i].rel, skip - in_base));
	}
	return r;
}

int ocdbt_filelist_pack(struct ocdbt_filelist *t, struct buf *ret, uint32_t *ret_index)
{
	auto_free struct ocdbt_file_name *sorted = calloc(t->n + 1, sizeof(*sorted));
	uint32_t n = 0;

	if (!sorted)
		return fail(-ENOMEM, "cannot allocate a table of %u data files", t->n);
	if (t->n)
		memcpy(sorted, t->name, t->n * sizeof(*sorted));
	qsort(sorted, t->n, sizeof(*sorted), name_cmp);
	for (uint32_t i = 0; i < t->n; i++) {
		if (n == 0 || name_cmp(&sorted[n - 1], &sorted[i]))
			sorted[n++] = sorted[i];
		ret_index[sorted[i].id] = n - 1;
	}
	return put_columns(sorted, n, ret);
}

void ocdbt_filelist_release(struct ocdbt_filelist *t)
{
	arena_release(&t->arena);
	free(t->name);
	*t = (struct ocdbt_filelist){ 0 };
}
