/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_level.h - bz2, gzip and zlib: codecs whose only setting is a level, and whose library moves
 * bytes from an input window to an output window. Private to this folder.
 *
 * Such a codec is a struct level_library and three lines of struct codec_ops; codec_level.c has
 * parsing, printing and both stages.
 */
#ifndef PYTREEFS_CODEC_LEVEL_H
#define PYTREEFS_CODEC_LEVEL_H

#include "core/codec/codec_impl.h"

struct level_codec {
	struct codec base;
	const struct level_library *library;
	int level;
};

/*
 * The bytes that a library may read and write in one call, which advances the pointers. The
 * libraries count in unsigned int.
 */
struct level_window {
	const uint8_t *in;
	unsigned in_n;
	uint8_t *out;
	unsigned out_n;
};

struct level_library {
	int level_min;          /* the highest is 9 */
	size_t state_bytes;     /* size of the library's struct, which is zeroed before open() */
	uint64_t decoder_bytes; /* the most that a decoder of the known libraries allocates */
	/*
	 * Returns false when memory is short. A decoder adds the bytes that it allocates to *bytes.
	 */
	bool (*open)(const struct level_codec *c, bool is_encoder, void *state, uint64_t *bytes);
	/* Returns 1: the stream has ended; 0: not yet; or an error with a note. */
	int (*decode)(const struct level_codec *c, void *state, struct level_window *w);
	/* Returns whether the stream has ended. Cannot fail once opened. */
	bool (*encode)(void *state, struct level_window *w, bool finish);
	void (*close)(bool is_encoder, void *state);
};

int level_parse(const struct level_library *library, const struct codec_ops *ops,
		const struct json *conf, enum codec_dialect dialect, struct arena *arena,
		const struct codec **ret);
/* Members of struct codec_ops. */
int level_print(const struct codec *c, enum codec_dialect dialect, struct buf *ret);
int level_open_decoder(const struct codec *c, struct codec_input *in, uint64_t decoded,
		       uint64_t window, size_t retained, struct decoder_stage **ret);
int level_open_encoder(const struct codec *c, uint64_t total, struct codec_sink sink,
		       struct encoder_stage **ret);

#endif
