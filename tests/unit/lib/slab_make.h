/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab_make.h - for the tests of slabs: arrays whose bands of chunks do not fit into the cache, and
 * what ranges of them read as.
 */
#ifndef PYTREEFS_SLAB_MAKE_H
#define PYTREEFS_SLAB_MAKE_H

#include "tests/unit/lib/zarr_views.h"

#include "core/zarr/slab.h"

#define WIDE(shape, chunks)                                                      \
	V2("\"shape\":" shape ",\"chunks\":" chunks ",\"dtype\":\"<f4\","        \
	   "\"fill_value\":1.5,\"order\":\"C\",\"compressor\":{\"id\":\"zstd\"," \
	   "\"level\":1}")

struct wide {
	const char *doc;
	uint64_t cache;
	unsigned rows, per_band; /* of a slab; slabs in a full band */
};

static const struct wide wides[] = {
	{ WIDE("[64,256]", "[16,16]"), 16384, 4, 4 },
	/* edge chunks on both axes */
	{ WIDE("[61,250]", "[16,16]"), 16384, 4, 4 },
	/* chunks larger than the array */
	{ WIDE("[5,300]", "[16,32]"), 16384, 3, 6 },
	{ WIDE("[30,2,200]", "[12,5,7]"), 16384, 2, 6 },
	{ WIDE("[20,13,31]", "[9,5,7]"), 16384, 2, 5 },
	/* the band is on the second axis */
	{ WIDE("[3,20,200]", "[1,9,7]"), 8000, 2, 5 },
	{ WIDE("[2,19,3,50]", "[1,8,2,9]"), 8000, 3, 3 },
	{ WIDE("[2,2,17,40,5]", "[1,1,10,16,3]"), 8000, 2, 5 },
};

static inline void make(struct made *m, const struct wide *w, struct made_opts *o)
{
	o->cache = w->cache;
	made_array(m, w->doc, o);
}

static inline uint64_t row_bytes(const struct made *m)
{
	struct bands b;

	bands_of(m->z, &b);
	return b.row;
}

static inline void check(struct made *m, uint64_t off, size_t n)
{
	auto_free uint8_t *got = malloc(n + 1);
	struct zarr_view v;

	zarr_view_whole(&m->meta, &v);
	if (zarr_read_into(m->z, &v, off, n, got) < 0)
		fail_msg("[%llu, +%zu): %s", (unsigned long long)off, n, unit_last_note());
	if (memcmp(got, m->want + off, n))
		fail_msg("wrong bytes in [%llu, +%zu)", (unsigned long long)off, n);
}

static inline void check_view(struct made *m, const struct zarr_view *v, const char *what)
{
	uint8_t *want = view_bytes(m, v), *got = malloc(v->bytes + 1);

	assert_non_null(got);
	for (int i = 0; i < 12; i++) {
		uint64_t off = i ? made_random(m, v->bytes + 1) : 0;
		/* About as much as a slab has, but for the first. */
		size_t n = i ? made_random(m, MIN(v->bytes - off, (uint64_t)6000) + 1) : v->bytes;

		if (zarr_read_into(m->z, v, off, n, got) < 0)
			fail_msg("%s: %s", what, unit_last_note());
		if (memcmp(got, want + off, n))
			fail_msg("%s: wrong bytes in [%llu, +%zu)", what, (unsigned long long)off,
				 n);
	}
	free(want);
	free(got);
}

#endif
