/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_encoder.c - encode long objects piece by piece: each encoder stage pushes into the next
 * one.
 *
 * The stages are in codec_<name>.c.
 *
 * Invariant: exactly the announced number of bytes is pushed, or finishing fails.
 */
#include "core/base/err.h"
#include "core/codec/codec_impl.h"

#define ZSTD_SLOW_LEVEL 7 /* from here on, less than 60 MB/s */

struct codec_encoder {
	uint64_t left; /* bytes still to be pushed */
	int error;     /* of an earlier call */
	bool finished;
	struct codec_sink sink; /* receives the object */
	unsigned n;
	struct encoder_stage *stage[LIMIT_CODECS]; /* in encoding order; owned */
};

static int push_next(void *arg, struct span out)
{
	struct encoder_stage *p = arg;

	return p->ops->push(p, out);
}

bool codec_encodes_slowly(const struct codec_chain *chain)
{
	for (unsigned i = 0; i < chain->n; i++) {
		int level = 0;

		codec_zstd_level(chain->codec[i], &level);
		if (level >= ZSTD_SLOW_LEVEL || chain->codec[i]->ops->encodes_slowly)
			return true;
	}
	return false;
}

bool codec_writes_pieces(const struct codec_chain *chain)
{
	uint64_t size = 0; /* the size before the first codec is always known */

	for (unsigned i = 0; i < chain->n; i++) {
		const struct codec_ops *ops = chain->codec[i]->ops;

		if (!ops->open_encoder || (ops->encoder_needs_total && size == CODEC_SIZE_UNKNOWN))
			return false;
		size = codec_size_after(chain->codec[i], size);
	}
	return true;
}

int codec_encoder_open(const struct codec_chain *chain, uint64_t total, codec_sink_fn *sink,
		       void *arg, struct codec_encoder **ret)
{
	auto_of(codec_encoder) struct codec_encoder *e = calloc(1, sizeof(*e));
	uint64_t size[LIMIT_CODECS];

	if (!e)
		return fail(-ENOMEM, "cannot open an encoder: not enough memory");
	e->left = total;
	e->sink = (struct codec_sink){ sink, arg };
	e->n = chain->n;
	for (unsigned i = 0; i < chain->n; i++) {
		size[i] = total;
		total = codec_size_after(chain->codec[i], total);
	}
	/* From the last to the first, since each stage needs the next one for its output. */
	for (unsigned i = chain->n; i-- > 0;) {
		const struct codec *c = chain->codec[i];
		struct codec_sink next = e->sink;
		int r;

		if (i + 1 < chain->n)
			next = (struct codec_sink){ push_next, e->stage[i + 1] };
		if (!c->ops->open_encoder)
			return fail(-EOPNOTSUPP, "cannot write codec '%s' piece by piece",
				    c->ops->name);
		if (c->ops->encoder_needs_total && size[i] == CODEC_SIZE_UNKNOWN)
			return fail(
				-EOPNOTSUPP,
				"cannot write codec '%s' piece by piece after another compressor: "
				"it must declare its content size",
				c->ops->name);
		r = c->ops->open_encoder(c, size[i], next, &e->stage[i]);
		if (r < 0)
			return r;
	}
	*ret = take(e);
	return 0;
}

int codec_encoder_push(struct codec_encoder *e, struct span in)
{
	int r;

	if (e->error)
		return fail(e->error, "the encoder has failed before");
	if (e->finished || in.n > e->left)
		return fail(-EINVAL, "cannot push %zu bytes into an encoder that waits for %llu",
			    in.n, (unsigned long long)e->left);
	if (in.n == 0)
		return 0;
	r = e->n ? push_next(e->stage[0], in) : e->sink.fn(e->sink.arg, in);
	e->left -= in.n;
	e->error = r < 0 ? r : 0;
	return r < 0 ? r : 0;
}

int codec_encoder_finish(struct codec_encoder *e)
{
	int r = 0;

	if (e->error)
		return fail(e->error, "the encoder has failed before");
	if (e->finished || e->left)
		return fail(-EINVAL, "cannot finish an encoder that waits for %llu bytes",
			    (unsigned long long)e->left);
	for (unsigned i = 0; i < e->n && r >= 0; i++)
		r = e->stage[i]->ops->finish(e->stage[i]);
	e->finished = true;
	e->error = r < 0 ? r : 0;
	return r < 0 ? r : 0;
}

void codec_encoder_close(struct codec_encoder *e)
{
	if (!e)
		return;
	for (unsigned i = 0; i < e->n; i++)
		if (e->stage[i])
			e->stage[i]->ops->free(e->stage[i]);
	free(e);
}
