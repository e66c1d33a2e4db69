/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array_compression.c - the compression of an array's chunks, given by options or chosen from a
 * sample of its first elements, and the metadata document that names it.
 */
#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "handlers/draft/draft_array.h"

#define REGION (4 * MiB)       /* size of the array's start from which a sample is taken */
#define BLOSC_BESIDE (4 * MiB) /* memory for encoding, besides a chunk and its encoded form */

static const struct compression usual = { .kind = COMPRESSION_ZSTD, .level = COMPRESSION_ORBAX };

static uint64_t chunk_bytes(const struct array_layout *l, unsigned rank)
{
	uint64_t bytes = l->item;

	for (unsigned i = 0; i < rank; i++)
		if (!mul_fits(bytes, l->chunk[i], &bytes))
			return UINT64_MAX;
	return bytes;
}

/* A blosc object begins with its size, so it must be complete in memory, like its chunk. */
static bool may_be_blosc(const struct draft_env *env, const struct array_layout *l, unsigned rank)
{
	uint64_t bytes = chunk_bytes(l, rank), budget = budget_total(env->ckpt->write_env.budget);

	return compression_blosc_fits(bytes) && budget >= BLOSC_BESIDE &&
	       bytes <= (budget - BLOSC_BESIDE) / 2;
}

/*
 * Set the level to a number, so that equal layouts compare as equal. A checksum follows in any
 * case.
 */
static void complete(struct array_layout *l)
{
	l->compression.summed = l->asked.summed;
	if (l->compression.kind == COMPRESSION_ZSTD && l->compression.level == COMPRESSION_ORBAX)
		l->compression.level = l->format == 3 ? 3 : 1;
}

void array_resolve(const struct draft_env *env, const struct array_type *t, bool is_part,
		   struct array_layout *l)
{
	const struct dtype_info *info = dtype_info(t->dtype);
	bool may_blosc = may_be_blosc(env, l, t->rank), empty = false;

	for (unsigned i = 0; i < t->rank; i++)
		empty |= t->shape[i] == 0;
	l->compression = l->asked;
	/*
	 * All writers of the parts must make the same choice, and none knows the elements of the
	 * others.
	 */
	if (l->asked.kind == COMPRESSION_AUTO && (is_part || empty))
		l->compression =
			compression_guess(info->kind == DTYPE_KIND_FLOAT && !empty, info->size);
	if (l->compression.kind == COMPRESSION_BLOSC && !may_blosc) {
		if (l->asked.kind == COMPRESSION_BLOSC)
			log_info("chunks of %llu bytes are compressed with zstd: blosc needs "
				 "twice as "
				 "much of write_budget, and takes at most 2 GiB",
				 (unsigned long long)chunk_bytes(l, t->rank));
		l->compression = usual;
	}
	complete(l);
}

static int compression_own_choose(const struct draft_env *env, struct array_layout *l,
				  const struct array_type *t, array_read_fn *read, void *arg)
{
	struct compression_sample s;
	auto_buf pieces = { .in_block = true }, text = { 0 };
	uint64_t bytes = l->item;
	bool fits = true;
	int r;

	if (l->compression.kind != COMPRESSION_AUTO)
		return 0;
	/* A whole chunk must be in memory before it is encoded. */
	for (unsigned i = 0; i < t->rank && fits; i++)
		fits = mul_fits(bytes, MIN(l->chunk[i], t->shape[i]), &bytes);
	compression_sample(fits ? MIN(bytes, (uint64_t)REGION) : REGION, l->item, &s);
	r = buf_reserve(&pieces, s.n * s.piece_bytes);
	if (r < 0)
		return r;
	pieces.n = s.n * s.piece_bytes;
	for (unsigned i = 0; i < s.n && r >= 0; i++)
		r = read(arg, s.at[i], s.piece_bytes, pieces.p + i * s.piece_bytes);
	if (r < 0)
		return r;
	r = compression_choose(buf_span(&pieces), l->item, l->format == 2 ? CODEC_V2 : CODEC_V3,
			       may_be_blosc(env, l, t->rank), &l->compression);
	if (r < 0)
		return r;
	complete(l);
	compression_print(&l->compression, &text);
	trace(TRACE_LEAF, "compression=auto: %s for elements of %s", buf_str(&text),
	      dtype_info(t->dtype)->name);
	return 0;
}

static void compression_count(const struct draft_env *env, const struct array_layout *l)
{
	atomic_fetch_add_explicit(&env->ckpt->write_env.chosen[l->compression.kind], 1,
				  memory_order_relaxed);
}

int array_choose(const struct draft_env *env, struct array_layout *l, const struct array_type *t,
		 array_read_fn *read, void *arg)
{
	bool is_asked = l->compression.kind == COMPRESSION_AUTO;
	int r = compression_own_choose(env, l, t, read, arg);

	if (r >= 0 && is_asked)
		compression_count(env, l);
	return r;
}

static int compression_read_stored(void *arg, uint64_t off, size_t n, void *p)
{
	return zarr_read_into(arg, NULL, off, n, p);
}

static bool compression_is_same(const struct array_layout *l, const struct compression *stored)
{
	struct compression a = l->compression, b = *stored;

	/* Without a level in the options, any level fits. */
	if (a.kind == COMPRESSION_ZSTD && b.kind == COMPRESSION_ZSTD && a.summed == b.summed &&
	    (l->asked.kind != COMPRESSION_ZSTD || l->asked.level == COMPRESSION_ORBAX))
		return true;
	/* For blosc, the dtype decides where the metadata leaves the shuffle open. */
	if (a.kind == COMPRESSION_BLOSC && b.kind == COMPRESSION_BLOSC) {
		if (b.shuffle < 0)
			b.shuffle = l->item == 1 ? 2 : 1;
		a.typesize = a.typesize ? a.typesize : l->item;
		b.typesize = b.typesize && b.shuffle ? b.typesize : l->item;
	}
	return !memcmp(&a, &b, sizeof(a));
}

int array_takes_stored(const struct draft_env *env, struct array_layout *l, struct zarr *from)
{
	bool is_asked = l->compression.kind == COMPRESSION_AUTO;
	const struct array_type t = zarr_meta_type(&from->meta);
	struct compression stored;
	int r;

	if (!compression_of(&from->leaf->codecs, &stored))
		return 0;
	r = compression_own_choose(env, l, &t, compression_read_stored, from);
	if (r < 0 || !compression_is_same(l, &stored))
		return MIN(r, 0);
	if (is_asked)
		compression_count(env, l);
	l->compression = stored;
	return 1;
}

int array_json(const struct array_layout *l, const struct array_type *t, struct buf *ret)
{
	struct compression placeholder = compression_blosc();
	struct zarr_create c = {
		.format = l->format,
		.array = *t,
		.chunk = l->chunk,
		.compression = l->compression,
		.sharded = l->format == 3,
	};

	placeholder.summed = l->compression.summed;
	if (c.compression.kind == COMPRESSION_AUTO)
		c.compression = placeholder;
	return zarr_meta_print(&c, ret);
}

int array_write(const struct draft_env *env, struct array_layout *l, const struct array_type *t,
		struct kv *kv, array_read_fn *read, void *arg)
{
	auto_buf json = { 0 };
	int r = array_choose(env, l, t, read, arg);

	if (r < 0)
		return r;
	r = array_json(l, t, &json);
	return r < 0 ? r :
		       zarr_write_all(&env->ckpt->write_env, kv, buf_span(&json),
				      l->omit_fill ? ZARR_FILL_OMIT : ZARR_FILL_STORE, read, arg);
}
