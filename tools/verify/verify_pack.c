/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_pack.c - packs findings about a leaf until it is reported, by this rank or by rank 0.
 *
 * The format: each finding after a byte 1; for rank 0 a byte 0 and the counts follow.
 */
#include "core/base/err.h"
#include "core/base/wire.h"
#include "tools/verify/verify.h"

/* Counts of a leaf. Errors and warnings are counted when they are reported. */
static const size_t counts[] = {
	offsetof(struct verify, leaves),          offsetof(struct verify, chunks),
	offsetof(struct verify, stored_bytes),    offsetof(struct verify, decoded_bytes),
	offsetof(struct verify, missing),         offsetof(struct verify, raw_bytes),
	offsetof(struct verify, unsummed_bytes),  offsetof(struct verify, unsummed_leaves),
	offsetof(struct verify, unopened_leaves), offsetof(struct verify, digest_leaves),
	offsetof(struct verify, digest_bytes),
};

static uint64_t count_of(const struct verify *v, size_t i)
{
	return *(const uint64_t *)((const char *)v + counts[i]);
}

/* A text with its NUL; one of no bytes is NULL. */
static int pack_put_text(struct buf *b, const char *text)
{
	size_t n = text ? strlen(text) + 1 : 0;
	int r = wire_put_u32le(b, (uint32_t)n);

	return r < 0 ? r : buf_add(b, text, n);
}

static const char *get_text(struct wire *w)
{
	struct span text = wire_bytes(w, wire_u32le(w));

	return text.n && !text.p[text.n - 1] ? (const char *)text.p : NULL;
}

int verify_pack(const struct finding *f, struct buf *ret)
{
	size_t had = ret->n;

	if (wire_put_u8(ret, 1) >= 0 && wire_put_u8(ret, (uint8_t)f->severity) >= 0 &&
	    wire_put_u8(ret, (uint8_t)f->level) >= 0 && wire_put_u8(ret, f->has_range) >= 0 &&
	    wire_put_u8(ret, f->of_item) >= 0 && wire_put_u64le(ret, f->off) >= 0 &&
	    wire_put_u64le(ret, f->len) >= 0 && pack_put_text(ret, f->leaf) >= 0 &&
	    pack_put_text(ret, f->file) >= 0 && pack_put_text(ret, f->text) >= 0)
		return 0;
	ret->n = had;
	return -ENOMEM;
}

int verify_pack_end(struct verify *v, int r, const struct verify *was, struct buf *ret)
{
	v->packed = NULL;
	if (r < 0)
		return r;
	if (v->pack_failed)
		return fail(-ENOMEM, "cannot tell rank 0 what was found");
	r = wire_put_u8(ret, 0);
	for (size_t i = 0; i < ARRAY_LEN(counts) && r >= 0; i++)
		r = wire_put_u64le(ret, count_of(v, i) - count_of(was, i));
	return r;
}

int verify_unpack_findings(struct verify *v, const char *leaf, struct wire *w)
{
	while (wire_left(w) && wire_u8(w) == 1) {
		struct finding f = { .severity = (enum severity)wire_u8(w) };
		const char *own, *text;

		f.level = wire_u8(w);
		f.has_range = wire_u8(w);
		f.of_item = wire_u8(w);
		f.off = wire_u64le(w);
		f.len = wire_u64le(w);
		own = get_text(w);
		f.leaf = leaf ? leaf : own;
		f.file = get_text(w);
		text = get_text(w);
		f.text = text ? text : "";
		if (f.severity > SEVERITY_REFUSED)
			return fail(-EIO,
				    "another rank reports a finding of severity %d, at most %d "
				    "exists",
				    f.severity, SEVERITY_REFUSED);
		if (wire_ok(w))
			verify_say(v, &f);
	}
	return 0;
}

int verify_unpack(struct verify *v, struct span packed)
{
	struct wire w = wire_of(packed);
	int r = verify_unpack_findings(v, NULL, &w);

	for (size_t i = 0; i < ARRAY_LEN(counts) && r >= 0; i++)
		*(uint64_t *)((char *)v + counts[i]) += wire_u64le(&w);
	if (r < 0)
		return r;
	return wire_ok(&w) ? 0 : fail(-EIO, "what another rank has found is truncated");
}
