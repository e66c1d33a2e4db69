/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_decoder.c - the decoder of a stream: its input, its history, its memory.
 *
 * A decoder of zstd may refer to the previous piece, which is in the cache, instead of copying
 * every piece out of a history of its own (codec_stream_open_retained()). The piece is then held
 * until the next one is decoded, also when the cache evicts it.
 */
#include "core/zarr/stream_impl.h"

#define FILL_AHEAD ((uint64_t)2 * MiB)

static void unhold_before(struct stream *s)
{
	cache_unhold(s->z->env->cache, take(s->before));
}

void stream_decoder_free(struct stream *s)
{
	codec_stream_close(take(s->decoder));
	block_free(take(s->input.buf), s->input.size);
	unhold_before(s);
}

void stream_decoder_close(struct stream *s)
{
	stream_decoder_free(s);
	stream_room_shrink(s, 0);
}

int stream_decoder_read(struct stream *s, void *p, size_t n)
{
	return codec_stream_read(s->decoder, s->before ? s->before->value : NULL, p, n);
}

void stream_decoder_retain(struct stream *s, struct cache_entry *e)
{
	if (!s->decoder || !codec_stream_needs_before(s->decoder))
		return;
	cache_hold(s->z->env->cache, e);
	unhold_before(s);
	s->before = e;
}

/* ---- input ---- */

static bool stream_is_remote(const struct stream *s)
{
	return s->src.loc.where == KV_FILE && s->src.loc.file->key;
}

/*
 * How much to read: from a server as much as is wanted, if that is known, else twice the previous
 * amount.
 */
static size_t next_input(struct stream *s)
{
	uint64_t n = STREAM_INPUT_BYTES;

	if (stream_is_remote(s)) {
		n = MAX(n, 2 * s->input.used);
		if (pthread_mutex_trylock(&s->lock) == 0) {
			if (s->want > s->pos)
				n = MAX(n, (s->want - s->pos) * STREAM_PIECE_BYTES);
			pthread_mutex_unlock(&s->lock);
		}
	}
	return (size_t)MIN(MIN(n, s->input.size), s->src.len - s->input.used);
}

/*
 * Bring what is decoded next into the page cache in large pages, once each byte: the kernel then
 * reads what follows it while we decode.
 */
static void fill_ahead(struct stream *s, size_t n)
{
	uint64_t end = s->input.used + n;

	if (end <= s->filled - MIN(s->filled, FILL_AHEAD / 2))
		return;
	s->filled = MAX(s->filled, end);
	io_file_fill_cache(s->src.loc.file, s->src.loc.off + s->src.off + s->filled, FILL_AHEAD);
	s->filled += FILL_AHEAD;
}

/* A codec_pull_fn. */
static int pull_input(void *arg, struct span *ret)
{
	struct stream *s = arg;
	struct chunk_input *in = &s->input;
	size_t n = next_input(s), got = 0, end = 0;

	if (s->src.loc.where == KV_FILE && !stream_is_remote(s))
		fill_ahead(s, n);
	if (n && stream_is_fetched(s)) {
		if (in->used + n == s->src.len)
			chunk_source_has_end(&s->src, &end);
		if (n + end > in->size)
			end = 0;
		got = stream_fetch_take(s, in->used, in->buf, n + end);
		/* The rest may be in flight when the decoder asks again. */
		if (got)
			n = MIN(n, got);
	}
	atomic_store(&s->input_at, in->used + n);
	return chunk_input_next(in, n, got, ret);
}

/* ---- opening ---- */

/* Open a decoder at piece 0 with at most this much history. */
static int decoder_try(struct stream *s, uint64_t window)
{
	uint64_t memory;
	size_t n = STREAM_INPUT_BYTES, end;
	int r;

	stream_decoder_close(s);
	s->filled = 0;
	atomic_store(&s->input_at, 0);
	stream_room_take(s, window);
	chunk_source_has_end(&s->src, &end);
	if (stream_is_remote(s))
		n = MAX(n,
			MIN(STREAM_REMOTE_BYTES, (size_t)budget_total(&s->table->decoders) / 16));
	n = (size_t)MIN(n, MAX((uint64_t)STREAM_INPUT_BYTES, s->src.len + end));
	s->input = (struct chunk_input){ .src = &s->src, .size = n, .is_single = true };
	s->input.buf = block_alloc(n);
	r = !s->input.buf ?
		    fail(-ENOMEM, "cannot allocate a decoder's input") :
		    codec_stream_open(&s->z->leaf->codecs, pull_input, s, s->bytes, window,
				      s->z->leaf_as_shown ? STREAM_PIECE_BYTES : 0, &s->decoder);
	if (r < 0) {
		stream_decoder_close(s);
		return r;
	}
	memory = codec_stream_memory(s->decoder) + n;
	stream_room_shrink(s, memory + (codec_stream_needs_before(s->decoder) ? STREAM_PIECE_BYTES :
										0));
	return 0;
}

/*
 * How much history a frame needs is known only after reading its head, and most need little. If
 * there were always room made for the largest, two streams that are read alternately would take
 * each other's decoder each time.
 */
int stream_decoder_open(struct stream *s)
{
	uint64_t limit = s->table->window_limit, window = MIN(limit, STREAM_WINDOW_USUAL);
	int r = decoder_try(s, window);

	while (r == -EFBIG && window < limit) {
		err_clear();
		window = MIN(limit, 4 * window);
		r = decoder_try(s, window);
	}
	return r;
}
