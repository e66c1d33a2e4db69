/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_zstd.h - shared by codec_zstd.c and codec_zstd_decoder.c only.
 */
#ifndef PYTREEFS_CODEC_ZSTD_H
#define PYTREEFS_CODEC_ZSTD_H

#define ZSTD_STATIC_LINKING_ONLY
#define ZSTD_DISABLE_DEPRECATE_WARNINGS
#include <zstd.h>

#include "core/codec/codec_impl.h"
#include "core/codec/codec_zstd_frame.h"

/* The error of a result of libzstd; `what` is "decode" or "encode". */
int zstd_error(size_t result, const char *what);

/* A context without settings, perhaps an idle one; NULL when memory is short. */
ZSTD_DCtx *zstd_dctx_take(void);
/* Accepts NULL. */
void zstd_dctx_give(ZSTD_DCtx *d);

/* codec_ops.open_decoder */
int zstd_decoder_new(const struct codec *c, struct codec_input *in, uint64_t decoded,
		     uint64_t window, size_t retained, struct decoder_stage **ret);

#endif
