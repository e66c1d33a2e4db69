/*
 * codec_encoder.c - long objects encoded piece by piece: presses that push into one another.
 *
 * What a press does is in codec_<name>.c.
 *
 * Kept true: exactly the announced number of bytes goes in, or finishing fails.
 */
#include "core/base/err.h"
#include "core/codec/codec_impl.h"

struct codec_encoder {
	uint64_t left;			/* bytes still to be pushed */
	int error;			/* of an earlier call */
	bool finished;
	struct codec_sink sink;		/* where the object goes */
	unsigned n;
	struct codec_press *press[LIMIT_CODECS];	/* in encoding order; owned */
};

static int push_next(void *arg, struct span out)
{
	struct codec_press *p = arg;

	return p->ops->push(p, out);
}

static int open_presses(struct codec_encoder *e, const struct codec_chain *chain, uint64_t total)
{
	uint64_t size[LIMIT_CODECS];

	for (unsigned i = 0; i < chain->n; i++) {
		unsigned suffix = chain->codec[i]->ops->suffix;

		size[i] = total;
		if (!suffix || total == CODEC_SIZE_UNKNOWN || !add_fits(total, suffix, &total))
			total = CODEC_SIZE_UNKNOWN;
	}
	/* The last one first: each is told where its output goes. */
	for (unsigned i = chain->n; i-- > 0;) {
		const struct codec *c = chain->codec[i];
		struct codec_sink sink = e->sink;
		int r;

		if (i + 1 < chain->n)
			sink = (struct codec_sink){ push_next, e->press[i + 1] };
		if (!c->ops->press)
			return fail(-EOPNOTSUPP, "cannot write codec '%s' piece by piece",
				    c->ops->name);
		r = c->ops->press(c, size[i], sink, &e->press[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

int codec_encoder_open(const struct codec_chain *chain, uint64_t total, codec_sink_fn *sink,
		       void *arg, struct codec_encoder **ret)
{
	auto_of(codec_encoder) struct codec_encoder *e = calloc(1, sizeof(*e));
	int r;

	if (!e)
		return fail(-ENOMEM, "cannot open an encoder: not enough memory");
	e->left = total;
	e->sink = (struct codec_sink){ sink, arg };
	e->n = chain->n;
	r = open_presses(e, chain, total);
	if (r < 0)
		return r;
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
	r = e->n ? push_next(e->press[0], in) : e->sink.fn(e->sink.arg, in);
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
		r = e->press[i]->ops->finish(e->press[i]);
	e->finished = true;
	e->error = r < 0 ? r : 0;
	return r < 0 ? r : 0;
}

void codec_encoder_close(struct codec_encoder *e)
{
	if (!e)
		return;
	for (unsigned i = 0; i < e->n; i++)
		if (e->press[i])
			e->press[i]->ops->free(e->press[i]);
	free(e);
}
