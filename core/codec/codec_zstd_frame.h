/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_zstd_frame.h - headers of zstd frames (RFC 8878), without libzstd.
 */
#ifndef PYTREEFS_CODEC_ZSTD_FRAME_H
#define PYTREEFS_CODEC_ZSTD_FRAME_H

#include "core/base/buf.h"

#define ZSTD_MAGIC 0xfd2fb528u
#define ZSTD_HEAD_MAX 18 /* longest frame header */

struct zstd_head {
	size_t bytes;     /* size of the header */
	size_t window_at; /* offset of the window descriptor; 0: single segment */
	uint64_t window;  /* for a single segment, the size of the content */
	uint64_t content; /* size of the content; CODEC_SIZE_UNKNOWN: not declared */
};

/* The size of a header that begins with these five bytes; 0 when they do not begin a frame. */
size_t zstd_head_bytes(const uint8_t head[5]);
int zstd_head_parse(struct span in, struct zstd_head *ret);
/* -EUCLEAN when the header declares another content size; CODEC_SIZE_UNKNOWN matches any. */
int zstd_head_expect(const struct zstd_head *h, uint64_t decoded);
/*
 * Replace the window descriptor by the smallest one that covers all possible history. The window
 * also limits blocks, so it is never smaller than the largest block.
 */
void zstd_head_shrink(struct zstd_head *h, uint8_t *head, uint64_t decoded);
#endif
