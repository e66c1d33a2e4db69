/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_decoder.c - the decoder of a stream: its input, its history, its memory.
 *
 * A decoder of zstd may refer to the previous piece, which is in the cache, instead of copying
 * every piece out of a history of its own (codec_stream_open_retained()). The piece is then held
 * until the next one is decoded, also when the cache evicts it.
 */
#include "core/zarr/stream_impl.h"

#include <fcntl.h>

#include "core/base/crc32c.h"
#include "core/kv/kv_sum.h"

#define ADVISE_BYTES ((uint64_t)2 * MiB) /* bytes that the kernel is asked to read ahead at once */

static void unhold_before(struct stream *s)
{
	cache_unhold(s->z->env->cache, take(s->before));
}

void stream_decoder_free(struct stream *s)
{
	codec_stream_close(take(s->decoder));
	block_free(take(s->input), s->input_size);
	unhold_before(s);
}

void stream_decoder_close(struct stream *s)
{
	stream_decoder_free(s);
	stream_room_shrink(s, 0);
}

int stream_decoder_read(struct stream *s, void *p, size_t n)
{
	return codec_stream_read_after(s->decoder, s->before ? s->before->value : NULL, p, n);
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

bool stream_has_end(const struct stream *s, size_t *ret)
{
	*ret = 0;
	return !s->off && s->loc.len - s->len <= KV_SUM_REST &&
	       kv_loc_has_end(&s->loc, s->len, ret);
}

static bool is_remote(const struct stream *s)
{
	return s->loc.where == KV_FILE && s->loc.file->key;
}

static size_t input_size_of(const struct stream *s)
{
	size_t n = STREAM_INPUT_BYTES, end;

	stream_has_end(s, &end);
	if (is_remote(s))
		n = MAX(n, MIN(STREAM_REMOTE_BYTES, (size_t)s->table->decoder_limit / 16));
	return (size_t)MIN(n, MAX((uint64_t)STREAM_INPUT_BYTES, s->len + end));
}

/*
 * How much to read: from a server as much as is wanted, if that is known, else twice the previous
 * amount.
 */
static size_t next_input(struct stream *s)
{
	uint64_t n = STREAM_INPUT_BYTES;

	if (is_remote(s)) {
		n = MAX(n, 2 * s->fed);
		if (pthread_mutex_trylock(&s->lock) == 0) {
			if (s->want > s->pos)
				n = MAX(n, (s->want - s->pos) * STREAM_PIECE_BYTES);
			pthread_mutex_unlock(&s->lock);
		}
	}
	return (size_t)MIN(MIN(n, s->input_size), s->len - s->fed);
}

/*
 * Read stored bytes, up to *n, and the checksum with the last of them if there is room. *n: the
 * number.
 */
static int read_input(struct stream *s, size_t *n)
{
	size_t end = 0, all, got = 0;
	bool compares = *n && s->fed + *n == s->len && stream_has_end(s, &end);
	bool with_end = compares && is_remote(s) && *n + end <= s->input_size;
	int r = 0;

	all = *n + (with_end ? end : 0);
	if (*n && stream_is_fetched(s))
		got = stream_fetch_take(s, s->fed, s->input, all);
	/* The rest may be in flight when the decoder asks again. */
	if (got && got < *n) {
		*n = all = got;
		compares = false;
	}
	atomic_store(&s->input_at, s->fed + *n);
	if (got < all)
		r = io_read_exact(s->loc.file, s->input + got, all - got,
				  s->loc.off + s->off + s->fed + got);
	if (r < 0)
		return r;
	s->crc = crc32c_more(s->crc, span_of(s->input, *n));
	if (!compares)
		return 0;
	r = with_end ? kv_loc_compare_end(&s->loc, s->len, s->crc, s->input + *n) :
		       kv_loc_check_end(&s->loc, s->len, s->crc);
	return MIN(r, 0);
}

static int pull_input(void *arg, struct span *ret)
{
	struct stream *s = arg;
	size_t n = next_input(s);

	if (s->loc.where == KV_INLINE) {
		*ret = kv_loc_inline(&s->loc, s->off + s->fed, n);
	} else {
		int r;

		/*
		 * The kernel reads ahead while we decode. Advise it once about each byte, since
		 * each call visits every page.
		 */
		if (!is_remote(s) && s->fed + n > s->advised - MIN(s->advised, ADVISE_BYTES / 2)) {
			s->advised = MAX(s->advised, s->fed + n);
			posix_fadvise(s->loc.file->fd, (off_t)(s->loc.off + s->off + s->advised),
				      ADVISE_BYTES, POSIX_FADV_WILLNEED);
			s->advised += ADVISE_BYTES;
		}
		r = read_input(s, &n);
		if (r < 0)
			return r;
		*ret = span_of(s->input, n);
	}
	s->fed += n;
	return 0;
}

/* ---- opening ---- */

static uint64_t memory_of(const struct stream *s)
{
	bool holds = codec_stream_needs_before(s->decoder);

	return codec_stream_memory(s->decoder) + s->input_size + (holds ? STREAM_PIECE_BYTES : 0);
}

/* Open a decoder at piece 0 with at most this much history. */
static int decoder_try(struct stream *s, uint64_t window)
{
	int r;

	stream_decoder_close(s);
	s->fed = s->advised = 0;
	atomic_store(&s->input_at, 0);
	s->crc = 0;
	stream_room_take(s, window);
	s->input_size = input_size_of(s);
	s->input = block_alloc(s->input_size);
	r = s->input ? 0 : fail(-ENOMEM, "cannot allocate a decoder's input");
	if (r >= 0)
		r = codec_stream_open_retained(&s->z->leaf->codecs, pull_input, s, s->bytes, window,
					       s->z->leaf_as_shown ? STREAM_PIECE_BYTES : 0,
					       &s->decoder);
	if (r < 0)
		stream_decoder_close(s);
	else
		stream_room_shrink(s, memory_of(s));
	return r;
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
