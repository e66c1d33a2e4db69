/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_pack.c - packs a rank's findings about a leaf for rank 0.
 *
 * The format: each finding after a byte 1, then a byte 0 and the counts.
 */
#include "core/base/err.h"
#include "core/base/wire.h"
#include "tools/verify/verify.h"

#define NO_TEXT UINT32_MAX

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

static int pack_put_text(struct buf *b, const char *text)
{
	int r = wire_put_u32le(b, text ? (uint32_t)strlen(text) : NO_TEXT);

	return r < 0 || !text ? r : buf_add_str(b, text);
}

/* Parse a text: 0 or -ENOMEM; *ret is NULL when there is none. The caller owns it. */
static int get_text(struct wire *w, char **ret)
{
	uint32_t n = wire_u32le(w);

	*ret = NULL;
	if (n == NO_TEXT)
		return 0;
	*ret = span_dup_str(wire_bytes(w, n));
	return *ret ? 0 : fail(-ENOMEM, "cannot say what another rank has found");
}

int verify_pack(const struct finding *f, struct buf *ret)
{
	if (wire_put_u8(ret, 1) < 0 || wire_put_u8(ret, (uint8_t)f->severity) < 0 ||
	    wire_put_u8(ret, (uint8_t)f->level) < 0 || wire_put_u8(ret, f->has_range) < 0 ||
	    wire_put_u8(ret, f->of_item) < 0 || wire_put_u64le(ret, f->off) < 0 ||
	    wire_put_u64le(ret, f->len) < 0 || pack_put_text(ret, f->leaf) < 0 ||
	    pack_put_text(ret, f->file) < 0 || pack_put_text(ret, f->text) < 0)
		return -ENOMEM;
	return 0;
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

static int unpack_one(struct verify *v, struct wire *w)
{
	auto_free char *leaf = NULL, *file = NULL, *text = NULL;
	struct finding f = { .severity = (enum severity)wire_u8(w) };
	int r;

	f.level = wire_u8(w);
	f.has_range = wire_u8(w);
	f.of_item = wire_u8(w);
	f.off = wire_u64le(w);
	f.len = wire_u64le(w);
	r = get_text(w, &leaf);
	if (r < 0)
		return r;
	r = get_text(w, &file);
	if (r < 0)
		return r;
	r = get_text(w, &text);
	if (r < 0)
		return r;
	f.leaf = leaf;
	f.file = file;
	f.text = text ? text : "";
	if (f.severity > SEVERITY_UNCHECKED)
		return fail(-EIO,
			    "another rank reports a finding of severity %d, at most %d exists",
			    f.severity, SEVERITY_UNCHECKED);
	if (wire_ok(w))
		verify_say(v, &f);
	return 0;
}

int verify_unpack(struct verify *v, struct span packed)
{
	struct wire w = wire_of(packed);
	int r = 0;

	while (r >= 0 && wire_u8(&w) == 1)
		r = unpack_one(v, &w);
	for (size_t i = 0; i < ARRAY_LEN(counts) && r >= 0; i++)
		*(uint64_t *)((char *)v + counts[i]) += wire_u64le(&w);
	if (r < 0)
		return r;
	if (!wire_ok(&w))
		return fail(-EIO, "what another rank has found is truncated");
	return r;
}
