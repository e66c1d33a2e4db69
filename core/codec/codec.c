/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec.c - the table of codecs, their metadata, and whole objects through a chain.
 *
 * Each codec is in codec_<name>.c. Pieces of long objects are decoded in codec_stream.c and encoded
 * in codec_encoder.c. zarr_level.c decides which codecs may stand where in a v3 list ("bytes",
 * "transpose", "sharding_indexed").
 *
 * Invariants: a chain with one compressor decodes directly into the caller's memory; checksums
 * outside of it need no copy.
 */
#include "core/base/err.h"
#include "core/codec/codec_impl.h"

#define ADDRESS(name) &codec_##name,
static const struct codec_ops *const table[] = { CODECS(ADDRESS) };

static const struct codec_ops *codec_find(struct span name, enum codec_dialect dialect)
{
	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		bool in_dialect = dialect == CODEC_V2 ? table[i]->in_v2 : table[i]->in_v3;

		if (in_dialect && span_eq(name, span_str(table[i]->name)))
			return table[i];
	}
	return NULL;
}

bool codec_is_known(struct span name)
{
	return codec_find(name, CODEC_V3) != NULL;
}

/* ---- metadata ---- */

struct codec_conf codec_conf_open(const struct json *members, const char *codec,
				  const char *const *names)
{
	struct codec_conf conf = { members, codec, 0 };

	for (size_t i = 0; members && i < members->n && !conf.failed; i++) {
		const char *const *name = names;

		while (*name && !span_eq(members->items[i].name, span_str(*name)))
			name++;
		if (!*name)
			conf.failed = fail(-EUCLEAN, "codec '%s': unknown member '%.*s'", codec,
					   SPAN_ARG(members->items[i].name));
	}
	return conf;
}

/* The member; NULL when it is absent, or something has failed before. */
static const struct json *conf_member(struct codec_conf *conf, const char *name, bool required)
{
	const struct json *j = conf->failed ? NULL : json_member(conf->members, name);

	if (!j && required && !conf->failed)
		conf->failed =
			fail(-EUCLEAN, "codec '%s': member '%s' is missing", conf->codec, name);
	return j;
}

int64_t codec_conf_int(struct codec_conf *conf, const char *name, int64_t min, int64_t max,
		       bool required, int64_t otherwise)
{
	const struct json *j = conf_member(conf, name, required);
	int64_t v = otherwise;

	if (!j)
		return otherwise;
	if (!json_as_int(j, &v))
		conf->failed = fail(-EUCLEAN, "codec '%s': member '%s' is not an integer",
				    conf->codec, name);
	else if (v < min || v > max)
		conf->failed =
			fail(-EUCLEAN, "codec '%s': member '%s' is %lld, not from %lld to %lld",
			     conf->codec, name, (long long)v, (long long)min, (long long)max);
	return v;
}

struct span codec_conf_str(struct codec_conf *conf, const char *name, bool required,
			   struct span otherwise)
{
	const struct json *j = conf_member(conf, name, required);

	if (j && j->kind != JSON_STRING)
		conf->failed = fail(-EUCLEAN, "codec '%s': member '%s' is not a string",
				    conf->codec, name);
	return j && j->kind == JSON_STRING ? j->s : otherwise;
}

int codec_parse(const struct json *spec, enum codec_dialect dialect, size_t item_bytes,
		struct arena *arena, const struct codec **ret)
{
	static const char *const v3_names[] = { "name", "configuration", NULL };
	const char *key = dialect == CODEC_V2 ? "id" : "name";
	const struct json *conf = spec;
	const struct codec_ops *ops;
	struct span name;
	int r;

	if (!json_is(spec, JSON_OBJECT))
		return fail(-EUCLEAN, "codec is not an object");
	r = json_get_str(spec, key, "codec", &name);
	if (r <= 0)
		return r < 0 ? r : fail(-EUCLEAN, "codec has no '%s'", key);
	ops = codec_find(name, dialect);
	if (!ops)
		return fail(-EOPNOTSUPP, "codec '%.*s' is not supported", SPAN_ARG(name));
	if (dialect == CODEC_V3) {
		conf = NULL;
		r = json_get_object(spec, "configuration", "codec", &conf);
		if (r < 0)
			return r;
		r = codec_conf_open(spec, ops->name, v3_names).failed;
		if (r < 0)
			return r;
	}
	return ops->parse(ops, conf, dialect, item_bytes, arena, ret);
}

int codec_print(const struct codec *c, enum codec_dialect dialect, struct buf *ret)
{
	return c->ops->print(c, dialect, ret);
}

int codec_print_chain(const struct codec_chain *chain, const char *separator, struct buf *ret)
{
	buf_add_byte(ret, '[');
	for (unsigned i = 0; i < chain->n; i++) {
		buf_add_str(ret, i ? separator : "");
		codec_print(chain->codec[i], chain->dialect, ret);
	}
	buf_add_byte(ret, ']');
	return buf_failed(ret);
}

/* ---- whole objects ---- */

static int left_over(const struct codec_ops *ops, size_t n)
{
	return fail(-EUCLEAN, "%zu bytes follow the end of the %s stream", n, ops->name);
}

int codec_decode(const struct codec_chain *chain, struct span in, void *out, size_t n)
{
	uint64_t size[LIMIT_CODECS + 1] = { n };
	bool is_object = true;
	unsigned last;

	/* The size of each codec's input: unknown after a compressor. */
	for (unsigned i = 0; i < chain->n; i++)
		size[i + 1] = codec_size_after(chain->codec[i], size[i]);
	/* Outer checksums are removed without a copy. */
	for (last = chain->n; last > 0 && chain->codec[last - 1]->ops->trailer; last--) {
		const struct codec_ops *ops = chain->codec[last - 1]->ops;
		struct span inner;
		int r = ops->strip_trailer(in, size[last - 1], &inner);

		if (r < 0)
			return r;
		if (!is_object && inner.n + ops->trailer < in.n)
			return left_over(ops, in.n - inner.n - ops->trailer);
		in = inner;
		is_object = false;
	}
	if (last == 1 && chain->codec[0]->ops->decode) {
		const struct codec *c = chain->codec[0];
		size_t used = 0;
		int r = c->ops->decode(c, in, out, n, &used);

		if (r < 0)
			return r;
		if (used < in.n && (!is_object || chain->dialect == CODEC_V2 || c->ops->exact))
			return left_over(c->ops, in.n - used);
		return 0;
	}
	if (last > 0)
		return codec_decode_staged(chain, last, is_object, in, out, n);
	if (in.n != n)
		return fail(-EUCLEAN, "%zu bytes where %zu are expected", in.n, n);
	if (n)
		memcpy(out, in.p, n);
	return 0;
}

/* A codec_sink_fn that appends to a buffer. */
static int buf_sink(void *arg, struct span out)
{
	return buf_add_span(arg, out);
}

static int encode_one(const struct codec *c, struct span in, struct buf *ret)
{
	struct encoder_stage *p;
	int r;

	if (c->ops->encode)
		return c->ops->encode(c, in, ret);
	r = c->ops->open_encoder(c, in.n, (struct codec_sink){ buf_sink, ret }, &p);
	if (r < 0)
		return r;
	if (in.n)
		r = p->ops->push(p, in);
	r = r < 0 ? r : p->ops->finish(p);
	p->ops->free(p);
	return r;
}

int codec_encode(const struct codec_chain *chain, struct span in, struct buf *ret)
{
	size_t at = ret->n;
	int r = chain->n ? 0 : buf_add_span(ret, in);

	/* Each codec but the first replaces what the one before it has added. */
	for (unsigned i = 0; i < chain->n && r >= 0; i++) {
		const struct codec *c = chain->codec[i];
		auto_buf before = { 0 };

		if (c->ops->trailer) {
			r = i ? 0 : buf_add_span(ret, in);
			r = r < 0 ? r : c->ops->add_trailer(ret, at);
			continue;
		}
		if (i) {
			r = buf_add(&before, ret->p + at, ret->n - at);
			ret->n = at;
			in = buf_span(&before);
		}
		r = r < 0 ? r : encode_one(c, in, ret);
	}
	if (r < 0)
		ret->n = at;
	return r;
}

bool codec_declares_size(const struct codec_chain *chain, struct span object)
{
	const struct codec_ops *ops = chain->n == 1 ? chain->codec[0]->ops : NULL;

	return ops && ops->declares_size && ops->declares_size(object);
}

bool codec_is_summed(const struct codec_chain *chain, struct span head)
{
	for (unsigned i = 0; i < chain->n; i++) {
		const struct codec_ops *ops = chain->codec[i]->ops;

		/* Only the head of the outermost codec's object is known. */
		if (ops->summed || (i + 1 == chain->n && ops->is_summed && ops->is_summed(head)))
			return true;
	}
	return false;
}
