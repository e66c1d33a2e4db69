/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compression.c - the compression that options choose: text, codec, and the choice by a sample.
 */
#include "core/codec/compression.h"

#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/wire.h"
#include "core/codec/codec_blosc.h"
#include "core/codec/codec_impl.h"
#include "core/codec/codec_zstd_frame.h"

/*
 * blosc's block size. zstd divides its input into blocks of 128 KiB: with smaller blocks of blosc,
 * one of those would mix bytes of different significance, and gain nothing.
 */
#define BLOCK (512 * KiB)
#define BLOSC_LEVEL_ZSTD 1
#define BLOSC_LEVEL_OTHERS 5
#define SAVES(n, of) ((n)*100 <= (of)*97) /* at least 3 % */

const char *const compression_cnames[] = {
	"zstd", "lz4", "lz4hc", "zlib", "blosclz", "snappy", NULL,
};
static const char *const shuffles[] = { "none", "byte", "bit", NULL };

struct compression compression_blosc(void)
{
	return (struct compression){
		.kind = COMPRESSION_BLOSC, .level = BLOSC_LEVEL_ZSTD, .shuffle = 1, .block = BLOCK
	};
}

/* ---- text ---- */

/* Find the word up to the next colon in words. Returns its index or -1, and advances *text. */
static int compression_take_word(const char **text, const char *const *words)
{
	size_t n = strcspn(*text, ":");

	for (int i = 0; words[i]; i++)
		if (strlen(words[i]) == n && !strncmp(words[i], *text, n)) {
			*text += n;
			return i;
		}
	return -1;
}

static int take_level(const char **text, long min, long max, int *ret)
{
	char *end;
	long level = strtol(*text, &end, 10);

	if (end == *text || (*end && *end != ':') || level < min || level > max)
		return -EINVAL;
	*text = end;
	*ret = (int)level;
	return 0;
}

/* Parse the text after "blosc": ":CODEC:LEVEL:SHUFFLE", or a start of it. */
static int parse_blosc(const char *text, struct compression *ret)
{
	struct compression c = compression_blosc();

	if (*text) {
		text++;
		c.cname = compression_take_word(&text, compression_cnames);
		c.level = c.cname == 0 ? BLOSC_LEVEL_ZSTD : BLOSC_LEVEL_OTHERS;
		if (c.cname < 0)
			return -EINVAL;
	}
	if (*text) {
		text++;
		if (take_level(&text, 0, 9, &c.level) < 0)
			return -EINVAL;
	}
	if (*text) {
		text++;
		c.shuffle = compression_take_word(&text, shuffles);
		if (c.shuffle < 0)
			return -EINVAL;
	}
	if (*text || !blosc_has(compression_cnames[c.cname]))
		return -EINVAL;
	*ret = c;
	return 0;
}

int compression_parse(const char *text, struct compression *ret)
{
	static const char *const words[] = { "none", "zstd", "blosc", "auto", NULL };
	int kind = compression_take_word(&text, words);
	struct compression c = { .kind = kind };

	if (kind == COMPRESSION_BLOSC)
		return parse_blosc(text, ret);
	if (kind == COMPRESSION_ZSTD) {
		c.level = COMPRESSION_ORBAX;
		if (*text) {
			text++;
			if (take_level(&text, CODEC_ZSTD_LEVEL_MIN, CODEC_ZSTD_LEVEL_MAX,
				       &c.level) < 0)
				return -EINVAL;
		}
	}
	if (kind < 0 || *text)
		return -EINVAL;
	*ret = c;
	return 0;
}

bool compression_is_sound(const struct compression *c)
{
	return c->kind >= COMPRESSION_NONE && c->kind <= COMPRESSION_AUTO && c->cname >= 0 &&
	       c->cname + 1 < (int)ARRAY_LEN(compression_cnames) && c->shuffle >= -1 &&
	       c->shuffle <= 2 && c->summed <= 1;
}

int compression_print(const struct compression *c, struct buf *ret)
{
	switch ((enum compression_kind)c->kind) {
	case COMPRESSION_NONE:
		return buf_add_str(ret, "none");
	case COMPRESSION_AUTO:
		return buf_add_str(ret, "auto");
	case COMPRESSION_ZSTD:
		return c->level == COMPRESSION_ORBAX ? buf_add_str(ret, "zstd") :
						       buf_addf(ret, "zstd:%d", c->level);
	case COMPRESSION_BLOSC:
		break;
	}
	return buf_addf(ret, "blosc:%s:%d:%s", compression_cnames[c->cname], c->level,
			c->shuffle < 0 ? "auto" : shuffles[c->shuffle]);
}

/* ---- codecs ---- */

int compression_codec(const struct compression *c, enum codec_dialect dialect, size_t item_bytes,
		      struct arena *arena, const struct codec **ret)
{
	if (c->kind == COMPRESSION_ZSTD)
		return codec_zstd_new(arena,
				      c->level != COMPRESSION_ORBAX ? c->level :
				      dialect == CODEC_V2           ? 1 :
								      3,
				      ret);
	if (c->kind == COMPRESSION_BLOSC)
		return blosc_new(arena, c, dialect, item_bytes, ret);
	return fail(-EINVAL, "not a codec");
}

bool compression_of(const struct codec_chain *chain, struct compression *ret)
{
	unsigned n = chain->n;
	bool summed = n && chain->codec[n - 1]->ops == &codec_crc32c;
	struct compression c = { 0 };

	n -= summed;
	if (n > 1)
		return false;
	if (n == 1 && codec_zstd_level(chain->codec[0], &c.level))
		c.kind = COMPRESSION_ZSTD;
	else if (n == 1 && !blosc_settings(chain->codec[0], &c))
		return false;
	c.summed = summed;
	*ret = c;
	return true;
}

int codec_check_start(const struct codec_chain *chain, const uint8_t start[CODEC_START_BYTES],
		      uint64_t stored, uint64_t decoded)
{
	struct compression c;
	struct zstd_head z;
	struct blosc_head h;
	int r;

	if (!compression_of(chain, &c) || (c.kind == COMPRESSION_NONE && !c.summed))
		return fail(-EINVAL, "not a chain of one zstd or blosc codec, or crc32c");
	if (c.summed && stored < CODEC_CRC32C_BYTES)
		return fail(-EUCLEAN, "its %llu bytes have no crc32c", (unsigned long long)stored);
	if (c.summed)
		stored -= CODEC_CRC32C_BYTES;
	if (c.kind == COMPRESSION_NONE)
		return stored == decoded ?
			       0 :
			       fail(-EUCLEAN, "it has %llu bytes before its crc32c, not %llu",
				    (unsigned long long)stored, (unsigned long long)decoded);
	if (c.kind == COMPRESSION_ZSTD) {
		r = zstd_head_parse(span_of(start, MIN(stored, (uint64_t)CODEC_START_BYTES)), &z);
		return r < 0 ? r : zstd_head_expect(&z, decoded);
	}
	if (stored < BLOSC_HEAD_BYTES)
		return fail(-EUCLEAN, "its %llu bytes are not a blosc object",
			    (unsigned long long)stored);
	r = blosc_head_parse(start, decoded, &h);
	if (r < 0)
		return r;
	if (h.cbytes != stored)
		return fail(-EUCLEAN, "blosc object declares %u bytes, has %llu", h.cbytes,
			    (unsigned long long)stored);
	return r;
}

/* ---- auto ---- */

void compression_sample(uint64_t region, size_t item_bytes, struct compression_sample *ret)
{
	struct compression_sample s = { .n = 1, .piece_bytes = (size_t)region };

	if (region > COMPRESSION_SAMPLE) {
		s.n = COMPRESSION_PIECES;
		s.piece_bytes = COMPRESSION_SAMPLE / COMPRESSION_PIECES;
		s.piece_bytes -= s.piece_bytes % item_bytes;
		for (unsigned i = 1; i < s.n; i++) {
			s.at[i] = (region - s.piece_bytes) / (s.n - 1) * i;
			s.at[i] -= s.at[i] % item_bytes;
		}
	}
	*ret = s;
}

/* The compressed size of the sample. */
static int size_with(const struct compression *c, struct span sample, size_t item_bytes,
		     enum codec_dialect dialect, size_t *ret)
{
	struct codec_chain chain = { .dialect = dialect, .n = 1 };
	auto_arena arena = { 0 };
	auto_buf out = { 0 };
	int r = compression_codec(c, dialect, item_bytes, &arena, &chain.codec[0]);

	r = r < 0 ? r : codec_encode(&chain, sample, &out);
	*ret = out.n;
	return r;
}

int compression_choose(struct span sample, size_t item_bytes, enum codec_dialect dialect,
		       bool may_blosc, struct compression *ret)
{
	static const struct compression zstd = { .kind = COMPRESSION_ZSTD,
						 .level = COMPRESSION_ORBAX };
	const struct compression blosc = compression_blosc();
	struct compression best = { .kind = COMPRESSION_NONE };
	size_t n = sample.n, with_zstd, with_blosc = 0;
	int r;

	if (n == 0) {
		*ret = zstd;
		return 0;
	}
	r = size_with(&zstd, sample, item_bytes, dialect, &with_zstd);
	if (r < 0)
		return r;
	if (SAVES(with_zstd, n)) {
		best = zstd;
		n = with_zstd;
	}
	if (may_blosc && item_bytes > 1) {
		r = size_with(&blosc, sample, item_bytes, dialect, &with_blosc);
		if (r < 0)
			return r;
		if (SAVES(with_blosc, n))
			best = blosc;
	}
	trace(TRACE_CODEC, "sample of %zu bytes: zstd %zu, blosc %zu", sample.n, with_zstd,
	      with_blosc);
	*ret = best;
	return 0;
}

struct compression compression_guess(bool is_float, size_t item_bytes)
{
	const struct compression zstd = { .kind = COMPRESSION_ZSTD, .level = COMPRESSION_ORBAX };

	return is_float && item_bytes > 1 ? compression_blosc() : zstd;
}
