/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ocdbt_test.h - helpers of the core/ocdbt tests: records whose checksum is right whatever they
 * contain, a temporary directory, and databases made from tables.
 */
#ifndef PYTREEFS_OCDBT_TEST_H
#define PYTREEFS_OCDBT_TEST_H

#include <fcntl.h>

#include "tests/unit/lib/unit.h"

#include <stdlib.h>

#include "core/base/cache.h"
#include "core/base/crc32c.h"
#include "core/base/limits.h"
#include "core/io/io.h"
#include "core/ocdbt/ocdbt.h"
#include "tests/unit/lib/ocdbt_vectors.h"
#include "tests/unit/lib/tmp_dir.h"

#define S(text) span_of(text, sizeof(text) - 1)
#define NONE span_of(NULL, 0)

/* ---- records ---- */

static inline void test_fix_crc(struct buf *b)
{
	if (b->n < OCDBT_FRAME_BYTES)
		return;
	set_u64le(b->p + 4, b->n);
	set_u32le(b->p + b->n - 4, crc32c(span_of(b->p, b->n - 4)));
}

/* Whether r is an error that bytes from a disk may cause. */
static inline bool test_is_refusal(int r)
{
	return r == -EUCLEAN || r == -EBADMSG || r == -EOPNOTSUPP || r == -EFBIG;
}

/* Parse a copy of the exact size, so that the sanitizer finds every access beyond the end. */
static inline int test_exact(struct span stored, int (*parse)(struct span stored))
{
	auto_free uint8_t *copy = malloc(stored.n);

	if (stored.n)
		memcpy(copy, stored.p, stored.n);
	return parse(span_of(copy, stored.n));
}

/*
 * Call parse with every prefix, and with every byte changed in several ways, each with and without
 * a corrected checksum. parse must refuse cleanly, or accept and reproduce everything.
 */
static inline void test_falsify(struct span record, int (*parse)(struct span stored))
{
	static const uint8_t flips[] = { 0x01, 0x02, 0x80, 0xff };

	assert_int_equal(test_exact(record, parse), 0);
	for (size_t n = 0; n < record.n; n++) {
		auto_buf b = { 0 };

		buf_add(&b, record.p, n);
		if (!test_is_refusal(test_exact(buf_span(&b), parse)))
			fail_msg("accepted when cut to %zu bytes", n);
		test_fix_crc(&b);
		if (!test_is_refusal(test_exact(buf_span(&b), parse)))
			fail_msg("accepted when cut to %zu bytes, checksum made right", n);
	}
	for (size_t at = 0; at < record.n; at++)
		for (size_t f = 0; f < ARRAY_LEN(flips); f++) {
			auto_buf b = { 0 };
			int r;

			buf_add_span(&b, record);
			b.p[at] ^= flips[f];
			if (!test_is_refusal(test_exact(buf_span(&b), parse)))
				fail_msg("accepted with byte %zu changed", at);
			test_fix_crc(&b);
			r = test_exact(buf_span(&b), parse);
			if (r != 0 && !test_is_refusal(r))
				fail_msg("byte %zu changed: %d", at, r);
		}
}

/* The text of a record; NULL, with the note kept, when it is refused. */
static inline const char *test_text(struct span stored, struct buf *b)
{
	return ocdbt_record_text(b, stored) < 0 ? NULL : buf_str(b);
}

/* ---- directories ---- */

struct test_dir {
	char path[TMP_DIR_MAX];
	struct io_engine *io;
	struct io_dir *dir;
};

static inline void test_dir_open(struct test_dir *t, const char *engine)
{
	assert_int_equal(tmp_dir_make(t->path, "t_ocdbt"), 0);
	assert_int_equal(io_engine_open(engine, &t->io), 0);
	assert_int_equal(io_dir_open(t->io, t->path, &t->dir), 0);
}

static inline void test_dir_close(struct test_dir *t)
{
	io_dir_close(t->dir);
	io_engine_close(t->io);
	assert_int_equal(tmp_dir_remove(t->path), 0);
}

/* Open the same directory through another engine. */
static inline void test_dir_reopen(struct test_dir *t, const char *engine)
{
	io_dir_close(t->dir);
	io_engine_close(t->io);
	assert_int_equal(io_engine_open(engine, &t->io), 0);
	assert_int_equal(io_dir_open(t->io, t->path, &t->dir), 0);
}

/* Read the bytes that a reference names from the disk, and compare them. */
static inline void expect_stored(struct test_dir *t, const struct ocdbt_ref *ref, struct span want)
{
	auto_of(io_file) struct io_file *file = NULL;
	auto_free char *path = span_dup_str(ref->rel);
	auto_free uint8_t *got = malloc(want.n + 1);

	assert_int_equal(ref->base.n, 0);
	assert_int_equal(ref->len, want.n);
	assert_int_equal(io_file_open(t->dir, path, O_RDONLY, 0, &file), 0);
	assert_int_equal(io_read_exact(file, got, want.n, ref->off), 0);
	assert_true(span_eq(span_of(got, want.n), want));
}

static inline void pattern(struct buf *b, size_t n, unsigned seed)
{
	buf_clear(b);
	assert_int_equal(buf_reserve(b, n), 0);
	for (; b->n < n; b->n++)
		b->p[b->n] = (uint8_t)(b->n * 7 + (b->n >> 8) + seed);
}

/* Open the directory again, for a function that takes it. */
static inline struct io_dir *test_dir_again(struct test_dir *t, const char *rel)
{
	struct io_dir *dir;

	assert_int_equal(io_dir_sub(t->dir, rel, &dir), 0);
	return dir;
}

static inline void test_write(struct test_dir *t, const char *name, struct span content)
{
	char copy[256], path[512];
	FILE *f;

	snprintf(copy, sizeof(copy), "%s", name);
	for (char *slash = strchr(copy, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		io_dirop(t->dir, IO_MKDIR, copy, NULL, 0700);
		*slash = '/';
	}
	/* Not io_write_file(), which syncs: tests write thousands of files. */
	snprintf(path, sizeof(path), "%s/%s", t->path, name);
	f = fopen(path, "wb");
	assert_non_null(f);
	if (content.n)
		assert_int_equal(fwrite(content.p, 1, content.n, f), content.n);
	fclose(f);
}

static inline struct ocdbt *test_open_db(struct test_dir *t, const char *rel, struct cache *cache)
{
	struct ocdbt *db;

	int r = ocdbt_db_open(test_dir_again(t, rel), cache, &db);

	if (r < 0)
		fail_msg("%s", err_text(r));
	return db;
}

/* ---- databases ---- */

static inline void test_config(struct ocdbt_config *c, uint32_t inline_max, uint32_t node_max)
{
	assert_int_equal(ocdbt_config_init(c), 0);
	c->max_inline_value_bytes = inline_max;
	c->max_decoded_node_bytes = node_max;
	c->compression = OCDBT_PLAIN;
}

/* Make a whole database of generation 1 from sorted entries. */
static inline void test_build(struct io_dir *dir, const struct ocdbt_config *c,
			      const struct ocdbt_entry *entry, size_t n)
{
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct ocdbt_array_source src;
	struct ocdbt_version root;
	auto_manifest m = { 0 };

	ocdbt_array_source_init(&src, entry, n);
	assert_int_equal(ocdbt_data_new(dir, NULL, &data), 0);
	assert_int_equal(ocdbt_build(&src.base, c, data, &root), 0);
	assert_int_equal(ocdbt_data_sync(data), 0);
	assert_int_equal(ocdbt_manifest_first(c, &root, 0, &m), 0);
	assert_int_equal(ocdbt_manifest_write(dir, &m, NULL), 0);
}

static inline struct ocdbt_entry test_entry(struct span key, struct span value)
{
	return (struct ocdbt_entry){ .key = key,
				     .value = { .kind = OCDBT_INLINE, .bytes = value } };
}

/* The current version. */
static inline const struct ocdbt_version *test_latest(struct ocdbt *db)
{
	const struct ocdbt_manifest *m = ocdbt_db_manifest(db);

	return &m->versions[m->n_versions - 1];
}

/* ---- trees made by hand, as no writer would make them ---- */

struct test_forge {
	struct test_dir *t;
	struct buf file; /* becomes d/f */
};

/*
 * Append a node; returns its reference, and sets the statistics that the reference should have. The
 * packer is cleared.
 */
static inline struct ocdbt_ref test_forge_node(struct test_forge *f, struct ocdbt_packer *p,
					       unsigned strip, struct ocdbt_stats *ret_stats)
{
	struct ocdbt_ref ref = { .rel = S("d/f"), .off = f->file.n };
	struct ocdbt_stats own = { 0 };

	assert_int_equal(ocdbt_packer_pack(p, strip, NULL, &f->file, ret_stats), 0);
	ref.len = f->file.n - ref.off;
	own.tree_bytes = ref.len;
	ocdbt_stats_add(ret_stats, &own);
	ocdbt_packer_clear(p);
	return ref;
}

/* Append a leaf with these keys, each with the value "v". */
static inline struct ocdbt_ref test_forge_leaf(struct test_forge *f, const char *const *key,
					       size_t n, unsigned strip,
					       struct ocdbt_stats *ret_stats)
{
	auto_packer p = { 0 };

	for (size_t i = 0; i < n; i++) {
		struct ocdbt_entry e = test_entry(span_str(key[i]), S("v"));

		assert_int_equal(ocdbt_packer_add(&p, &e), 0);
	}
	return test_forge_node(f, &p, strip, ret_stats);
}

/* Write the file, and a manifest with this root as the only version; frees the buffer. */
static inline void test_forge_finish(struct test_forge *f, const struct ocdbt_ref *root,
				     unsigned height, const struct ocdbt_stats *stats)
{
	struct ocdbt_version v = { .root_height = height, .root = *root, .stats = *stats };
	struct ocdbt_config c;
	auto_manifest m = { 0 };

	test_config(&c, 100, 1000);
	test_write(f->t, "d/f", buf_span(&f->file));
	assert_int_equal(ocdbt_manifest_first(&c, &v, 1, &m), 0);
	assert_int_equal(ocdbt_manifest_write(f->t->dir, &m, NULL), 0);
	buf_release(&f->file);
}

/* ---- pseudo-random numbers, the same in each run ---- */

static inline uint32_t test_random(uint64_t *state, uint32_t below)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33) % below;
}

#endif
