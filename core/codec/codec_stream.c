/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_stream.c - decode long objects piece by piece: each stage pulls from the next one.
 *
 * The caller reads the innermost stage (the first codec of the chain). Each stage pulls its input
 * from the next outer one, and the outermost pulls from the object. The stages are in
 * codec_<name>.c.
 *
 * Invariants: no bytes are left between stages at the end; when the last byte has been returned,
 * every stage has reached its end and checked its checksum.
 */
#include "core/base/err.h"
#include "core/codec/codec_impl.h"

#define PULL_BYTES (64 * KiB) /* pulled at once from an outer stage */

/* ---- inputs ---- */

int codec_input_fill(struct codec_input *in)
{
	int r;

	if (in->left.n)
		return 1;
	if (in->ended)
		return 0;
	r = in->pull(in->arg, &in->left);
	if (r < 0)
		return r;
	in->ended = in->left.n == 0;
	return in->left.n > 0;
}

int codec_input_need(struct codec_input *in, const char *codec)
{
	int r = codec_input_fill(in);

	return r != 0 ? r :
			fail(-EUCLEAN, "%s stream is truncated after %llu bytes", codec,
			     (unsigned long long)in->taken);
}

void codec_input_skip(struct codec_input *in, size_t n)
{
	in->left = span_from(in->left, n);
	in->taken += n;
}

int codec_input_take(struct codec_input *in, void *p, size_t n, const char *codec)
{
	uint8_t *to = p;

	while (n) {
		int r = codec_input_need(in, codec);
		size_t part;

		if (r < 0)
			return r;
		part = MIN(n, in->left.n);
		memcpy(to, in->left.p, part);
		codec_input_skip(in, part);
		to += part;
		n -= part;
	}
	return 0;
}

/* ---- a chain of stages ---- */

struct link {
	const struct codec_ops *ops; /* NULL: no codec, the bytes as they are */
	struct codec_input in;
	struct decoder_stage *stage; /* owned; NULL: no codec */
	uint8_t *piece;              /* owned; the piece that the next inner stage pulled last */
};

struct codec_stream {
	uint64_t left;   /* bytes still to be read */
	bool is_exact;   /* nothing may follow the outermost stream */
	bool is_checked; /* the end has been reached and checked */
	int error;       /* of an earlier read */
	unsigned n;
	struct link link[LIMIT_CODECS]; /* innermost first; at least one */
};

static int link_read(struct link *l, uint8_t *p, size_t n, size_t *ret_n)
{
	int r;

	if (l->stage)
		return l->stage->ops->read(l->stage, p, n, ret_n);
	r = codec_input_fill(&l->in);
	if (r < 0)
		return r;
	*ret_n = MIN(n, l->in.left.n);
	if (*ret_n)
		memcpy(p, l->in.left.p, *ret_n);
	codec_input_skip(&l->in, *ret_n);
	return 0;
}

/* A codec_pull_fn that reads a link. */
static int link_pull(void *arg, struct span *ret)
{
	struct link *l = arg;
	size_t n = 0;
	int r = link_read(l, l->piece, PULL_BYTES, &n);

	if (r < 0)
		return r;
	*ret = span_of(l->piece, n);
	return 0;
}

/* codecs is the number of codecs of the chain, from the first one on. */
static int codec_stream_new(const struct codec_chain *chain, unsigned codecs, bool is_object,
			    codec_pull_fn *pull, void *arg, uint64_t decoded, uint64_t window,
			    size_t retained, struct codec_stream **ret)
{
	auto_of(codec_stream) struct codec_stream *s = calloc(1, sizeof(*s));
	uint64_t size[LIMIT_CODECS];

	if (!s)
		return fail(-ENOMEM, "cannot open a stream: not enough memory");
	s->left = decoded;
	s->n = MAX(codecs, 1u);
	s->link[s->n - 1].in.pull = pull;
	s->link[s->n - 1].in.arg = arg;
	s->is_exact = !is_object || codecs == 0 || chain->dialect == CODEC_V2 ||
		      chain->codec[codecs - 1]->ops->exact;
	/* The size of each stage's output: known up to the innermost compressor. */
	for (unsigned i = 0; i < codecs; i++) {
		size[i] = decoded;
		decoded = codec_size_after(chain->codec[i], decoded);
	}
	/* The outermost comes first, since opening a stage reads the head of its input. */
	for (unsigned i = codecs; i-- > 0;) {
		const struct codec *c = chain->codec[i];
		struct link *l = &s->link[i];
		int r;

		if (i + 1 < s->n) {
			l->in.pull = link_pull;
			l->in.arg = l + 1;
		}
		l->piece = i > 0 ? malloc(PULL_BYTES) : NULL;
		if (i > 0 && !l->piece)
			return fail(-ENOMEM, "cannot open a stream: not enough memory");
		l->ops = c->ops;
		/* Only what the innermost stage returns is retained. */
		r = c->ops->open_decoder(c, &l->in, size[i], window, i == 0 ? retained : 0,
					 &l->stage);
		if (r < 0)
			return r;
	}
	*ret = take(s);
	return 0;
}

int codec_stream_open(const struct codec_chain *chain, codec_pull_fn *pull, void *arg,
		      uint64_t decoded, uint64_t window, size_t retained, struct codec_stream **ret)
{
	return codec_stream_new(chain, chain->n, true, pull, arg, decoded, window, retained, ret);
}

bool codec_stream_needs_before(const struct codec_stream *s)
{
	return s->link[0].stage && s->link[0].stage->needs_before;
}

static const char *link_name(const struct link *l)
{
	return l->ops ? l->ops->name : "raw";
}

/* All bytes have been returned: every stage must be at its end, and so must its input. */
static int stream_check_end(struct codec_stream *s)
{
	uint8_t one;
	size_t n = 0;
	int r = link_read(&s->link[0], &one, 1, &n);

	if (r < 0)
		return r;
	if (n)
		return fail(-EUCLEAN, "%s stream decodes to more bytes than expected",
			    link_name(&s->link[0]));
	for (unsigned i = 0; i < s->n; i++) {
		if (i + 1 == s->n && !s->is_exact)
			break;
		/* For an inner stage, this reads the next outer one up to its end and checksum. */
		r = codec_input_fill(&s->link[i].in);
		if (r < 0)
			return r;
		if (r > 0)
			return fail(-EUCLEAN, "bytes follow the end of the %s stream",
				    link_name(&s->link[i]));
	}
	s->is_checked = true;
	return 0;
}

static int stream_read(struct codec_stream *s, uint8_t *p, size_t n)
{
	while (n) {
		size_t got = 0;
		int r = link_read(&s->link[0], p, n, &got);

		if (r < 0)
			return r;
		if (!got)
			return fail(-EUCLEAN, "%s stream ends %llu bytes early",
				    link_name(&s->link[0]), (unsigned long long)s->left);
		p += got;
		n -= got;
		s->left -= got;
	}
	return s->left || s->is_checked ? 0 : stream_check_end(s);
}

int codec_stream_read(struct codec_stream *s, const void *before, void *p, size_t n)
{
	int r;

	if (s->error)
		return fail(s->error, "the stream has failed before");
	if (n > s->left)
		return fail(-EINVAL, "cannot read %zu bytes of a stream that has %llu left", n,
			    (unsigned long long)s->left);
	if (s->link[0].stage)
		s->link[0].stage->before = before;
	r = stream_read(s, p, n);
	s->error = r < 0 ? r : 0;
	return r;
}

uint64_t codec_stream_memory(const struct codec_stream *s)
{
	uint64_t n = sizeof(*s);

	for (unsigned i = 0; i < s->n; i++) {
		const struct link *l = &s->link[i];

		n += l->piece ? PULL_BYTES : 0;
		n += l->stage ? l->stage->ops->memory(l->stage) : 0;
	}
	return n;
}

void codec_stream_close(struct codec_stream *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->n; i++) {
		struct link *l = &s->link[i];

		if (l->stage)
			l->stage->ops->free(l->stage);
		free(l->piece);
	}
	free(s);
}

/* ---- whole objects ---- */

/* A codec_pull_fn that returns a whole span at once. */
static int span_pull(void *arg, struct span *ret)
{
	struct span *s = arg;

	*ret = *s;
	*s = span_from(*s, s->n);
	return 0;
}

int codec_decode_staged(const struct codec_chain *chain, unsigned codecs, bool is_object,
			struct span in, void *out, size_t n)
{
	auto_of(codec_stream) struct codec_stream *s = NULL;
	int r = codec_stream_new(chain, codecs, is_object, span_pull, &in, n, UINT64_MAX, 0, &s);

	return r < 0 ? r : codec_stream_read(s, NULL, out, n);
}
