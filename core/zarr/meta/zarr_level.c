/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_level.c - the codec list of zarr v3 -> levels: axes, shards, compressors.
 *
 * A list is any number of transposes, one array -> bytes codec ("bytes" or "sharding_indexed") and
 * bytes -> bytes codecs. Transposes are resolved here: each level says which axes of the array its
 * dimensions are.
 *
 * Invariants: level.shape[i] is an extent along axis[i] of the array; axis is a permutation; a
 * shard's grid times its inner shape is the shape of its level.
 */
#include "core/zarr/meta/zarr_level.h"

#include "core/base/err.h"

/* The layout of a chunk at a position in the list of codecs. */
struct layout {
	uint8_t axis[LIMIT_RANK];
	uint64_t shape[LIMIT_RANK];
};

/* ---- members ---- */

int zarr_only(const struct json *obj, const char *what, const char *const *names)
{
	for (size_t i = 0; obj && i < obj->n; i++) {
		const char *const *name = names;

		while (*name && !span_eq(obj->items[i].name, span_str(*name)))
			name++;
		if (!*name)
			return fail(-EUCLEAN, "%s: unknown member '%.*s'", what,
				    SPAN_ARG(obj->items[i].name));
	}
	return 0;
}

int zarr_extension(const struct json *j, const char *what, struct span *ret_name,
		   const struct json **ret_conf)
{
	static const char *const names[] = { "name", "configuration", NULL };
	const struct json *conf = NULL;
	struct span name;
	int r;

	if (!json_is(j, JSON_OBJECT))
		return fail(-EUCLEAN, "%s is %s", what, j ? "not an object" : "missing");
	r = json_get_str(j, "name", what, &name);
	if (r == 0)
		return fail(-EUCLEAN, "%s has no name", what);
	if (r < 0)
		return r;
	r = json_get_object(j, "configuration", what, &conf);
	if (r < 0)
		return r;
	r = zarr_only(j, what, names);
	if (r < 0)
		return r;
	*ret_name = name;
	*ret_conf = conf;
	return 0;
}

int zarr_sizes(const struct json *j, const char *name, uint64_t least, unsigned rank, uint64_t *ret)
{
	uint64_t sizes[LIMIT_RANK];

	if (!json_is(j, JSON_ARRAY))
		return fail(-EUCLEAN, "'%s' is %s", name, j ? "not a list" : "missing");
	if (j->n != rank)
		return fail(-EUCLEAN, "'%s' has %zu %s, expected %u", name, j->n,
			    noun(j->n, "dimension", "dimensions"), rank);
	for (unsigned i = 0; i < rank; i++) {
		int64_t v;

		if (!json_as_int(&j->items[i], &v) || v < (int64_t)least || v == INT64_MAX)
			return fail(-EUCLEAN, "'%s': dimension %u is not a size", name, i);
		sizes[i] = (uint64_t)v;
	}
	memcpy(ret, sizes, rank * sizeof(*ret));
	return 0;
}

int zarr_level_bytes(const struct zarr_level *l, unsigned rank, enum dtype t, uint64_t *ret)
{
	uint64_t n = dtype_info(t)->size;

	for (unsigned i = 0; i < rank; i++)
		if (!mul_fits(n, l->shape[i], &n) || n > INT64_MAX)
			return fail(-EUCLEAN, "a chunk has 2^63 bytes or more");
	*ret = n;
	return 0;
}

/* The codecs that concern arrays; all three are in this file. */
static bool is_layout_codec(struct span name)
{
	return span_eq(name, span_str("bytes")) || span_eq(name, span_str("transpose")) ||
	       span_eq(name, span_str("sharding_indexed"));
}

/* ---- transpose ---- */

/* "order" lists the decoded dimension that becomes each encoded one, or is "C" or "F". */
static int transpose(const struct json *conf, unsigned rank, struct layout *l)
{
	static const char *const names[] = { "order", NULL };
	const struct json *order = json_member(conf, "order");
	bool is_word = json_is(order, JSON_STRING),
	     is_f = is_word && span_eq(order->s, span_str("F"));
	struct layout out;
	uint32_t seen = 0;
	int r = zarr_only(conf, "codec 'transpose'", names);

	if (r < 0)
		return r;
	is_word = is_f || (is_word && span_eq(order->s, span_str("C")));
	if (!is_word && (!json_is(order, JSON_ARRAY) || order->n != rank))
		return fail(-EUCLEAN, "codec 'transpose': 'order' is not a list of %u %s", rank,
			    noun(rank, "dimension", "dimensions"));
	for (unsigned i = 0; i < rank; i++) {
		int64_t from = is_f ? rank - 1 - i : i;

		if (!is_word && (!json_as_int(&order->items[i], &from) || from < 0 ||
				 from >= rank || seen >> from & 1))
			return fail(-EUCLEAN, "codec 'transpose': 'order' is not a permutation");
		seen |= 1u << from;
		out.axis[i] = l->axis[from];
		out.shape[i] = l->shape[from];
	}
	*l = out;
	return 0;
}

/* ---- bytes ---- */

/* Elements of one byte need no "endian", but an unknown one is refused. */
static int parse_endian(const struct json *conf, size_t item_bytes, bool *ret_big)
{
	static const char *const names[] = { "endian", NULL };
	struct span endian = { 0 };
	bool big;
	int r = zarr_only(conf, "codec 'bytes'", names);

	if (r < 0)
		return r;
	r = json_get_str(conf, "endian", "codec 'bytes'", &endian);
	if (r < 0)
		return r;
	if (r == 0 && item_bytes > 1)
		return fail(-EUCLEAN, "codec 'bytes' has no 'endian'");
	big = span_eq(endian, span_str("big"));
	if (r > 0 && !big && !span_eq(endian, span_str("little")))
		return fail(-EUCLEAN, "codec 'bytes': unknown endian '%.*s'", SPAN_ARG(endian));
	*ret_big = big && item_bytes > 1;
	return 0;
}

/* ---- sharding_indexed ---- */

/* The index is an array of uint64; its codecs are bytes, and optionally a crc32c. */
static int parse_index_codecs(const struct json *j, struct zarr_shard *s)
{
	static const char *const only_crc[] = { NULL };
	bool has_bytes = false;

	if (!json_is(j, JSON_ARRAY))
		return fail(-EUCLEAN, "'index_codecs' is %s", j ? "not a list" : "missing");
	for (size_t i = 0; i < j->n; i++) {
		const struct json *conf;
		struct span name;
		int r = zarr_extension(&j->items[i], "index codec", &name, &conf);

		if (r < 0)
			return r;
		if (span_eq(name, span_str("bytes")) && !has_bytes) {
			r = parse_endian(conf, 8, &s->index_big_endian);
			has_bytes = true;
		} else if (span_eq(name, span_str("crc32c")) && has_bytes && !s->index_crc32c) {
			r = zarr_only(conf, "codec 'crc32c'", only_crc);
			s->index_crc32c = true;
		} else if (span_eq(name, span_str(has_bytes ? "crc32c" : "transpose"))) {
			/* TensorStore accepts a permuted index, and several checksums. */
			r = fail(-EOPNOTSUPP, "index codec '%.*s' in this place is not supported",
				 SPAN_ARG(name));
		} else if (codec_is_known(name) || is_layout_codec(name)) {
			r = fail(-EUCLEAN,
				 "index codec '%.*s' has no fixed size or stands in a wrong place",
				 SPAN_ARG(name));
		} else {
			r = fail(-EOPNOTSUPP, "codec '%.*s' is not supported", SPAN_ARG(name));
		}
		if (r < 0)
			return r;
	}
	return has_bytes ? 0 : fail(-EUCLEAN, "'index_codecs' have no 'bytes'");
}

static int parse_location(const struct json *conf, struct zarr_shard *s)
{
	struct span at = span_str("end");
	int r = json_get_str(conf, "index_location", "codec 'sharding_indexed'", &at);

	if (r < 0)
		return r;
	s->index_at_start = span_eq(at, span_str("start"));
	if (!s->index_at_start && !span_eq(at, span_str("end")))
		return fail(-EUCLEAN, "codec 'sharding_indexed': unknown index_location '%.*s'",
			    SPAN_ARG(at));
	return 0;
}

static int shard_grid(const struct layout *l, const uint64_t *inner, unsigned rank,
		      struct zarr_shard *s)
{
	s->entries = 1;
	for (unsigned i = 0; i < rank; i++) {
		if (l->shape[i] % inner[i])
			return fail(-EUCLEAN,
				    "inner chunk of %llu does not divide chunk of %llu in "
				    "dimension %u",
				    (unsigned long long)inner[i], (unsigned long long)l->shape[i],
				    i);
		s->grid[i] = l->shape[i] / inner[i];
		if (!mul_fits(s->entries, s->grid[i], &s->entries) ||
		    s->entries > LIMIT_SHARD_ENTRIES)
			return fail(-EFBIG, "a shard has more than %llu inner chunks",
				    (unsigned long long)LIMIT_SHARD_ENTRIES);
	}
	s->index_bytes = 16 * s->entries + (s->index_crc32c ? 4 : 0);
	return 0;
}

static int parse_list(struct zarr_meta *m, const struct json *list, struct layout l, unsigned depth,
		      struct zarr_level *ret);

/* depth is the number of shards around this one. */
static int sharding(struct zarr_meta *m, const struct json *conf, const struct layout *l,
		    unsigned depth, const struct zarr_shard **ret)
{
	static const char *const names[] = {
		"chunk_shape", "codecs", "index_codecs", "index_location", NULL,
	};
	struct zarr_shard *s = arena_calloc(&m->arena, 1, sizeof(*s));
	struct layout inner = *l;
	int r;

	if (!s)
		return fail(-ENOMEM, "not enough memory");
	if (depth == LIMIT_SHARD_NESTING)
		return fail(-EFBIG, "shards are nested more than %d deep", LIMIT_SHARD_NESTING);
	/* The index has one more dimension, and TensorStore allows no rank above 32. */
	if (m->rank == LIMIT_RANK)
		return fail(-EUCLEAN, "codec 'sharding_indexed' has rank %u, at most %d", m->rank,
			    LIMIT_RANK - 1);
	r = zarr_only(conf, "codec 'sharding_indexed'", names);
	if (r < 0)
		return r;
	r = zarr_sizes(json_member(conf, "chunk_shape"), "chunk_shape", 1, m->rank, inner.shape);
	if (r < 0)
		return r;
	r = parse_index_codecs(json_member(conf, "index_codecs"), s);
	if (r < 0)
		return r;
	r = parse_location(conf, s);
	if (r < 0)
		return r;
	r = shard_grid(l, inner.shape, m->rank, s);
	if (r < 0)
		return r;
	r = parse_list(m, json_member(conf, "codecs"), inner, depth + 1, &s->inner);
	if (r < 0)
		return r;
	*ret = s;
	return r;
}

/* ---- a list ---- */

/* Parse the codecs from the i-th on, which convert bytes to bytes. */
static int parse_compressors(struct zarr_meta *m, const struct json *list, size_t i,
			     struct codec_chain *ret)
{
	ret->dialect = CODEC_V3;
	for (; i < list->n; i++) {
		const struct json *conf;
		struct span name;
		int r = zarr_extension(&list->items[i], "codec", &name, &conf);

		if (r < 0)
			return r;
		if (is_layout_codec(name))
			return fail(-EUCLEAN, "codec '%.*s' follows the array -> bytes codec",
				    SPAN_ARG(name));
		if (ret->n == LIMIT_CODECS)
			return fail(-EFBIG, "a chain has more than %d codecs", LIMIT_CODECS);
		r = codec_parse(&list->items[i], CODEC_V3, dtype_info(m->dtype)->size, &m->arena,
				&ret->codec[ret->n]);
		if (r < 0)
			return r;
		ret->n++;
	}
	return 0;
}

/* Parse the array -> bytes codec and those after it. sharding() limits the nesting. */
static int parse_tail(struct zarr_meta *m, const struct json *list, size_t i, struct span name,
		      const struct json *conf, const struct layout *l, unsigned depth,
		      struct zarr_level *ret)
{
	int r;

	memcpy(ret->axis, l->axis, sizeof(ret->axis));
	memcpy(ret->shape, l->shape, sizeof(ret->shape));
	if (span_eq(name, span_str("bytes"))) {
		r = parse_endian(conf, dtype_info(m->dtype)->word, &ret->big_endian);
		r = r < 0 ? r : zarr_level_bytes(ret, m->rank, m->dtype, &ret->bytes);
	} else {
		r = sharding(m, conf, l, depth, &ret->shard);
	}
	if (r < 0)
		return r;
	r = parse_compressors(m, list, i + 1, &ret->codecs);
	if (r < 0)
		return r;
	if (ret->shard && ret->codecs.n)
		return fail(-EUCLEAN, "codecs follow 'sharding_indexed'");
	return r;
}

static int parse_list(struct zarr_meta *m, const struct json *list, struct layout l, unsigned depth,
		      struct zarr_level *ret)
{
	if (!json_is(list, JSON_ARRAY))
		return fail(-EUCLEAN, "'codecs' is %s", list ? "not a list" : "missing");
	for (size_t i = 0; i < list->n; i++) {
		const struct json *conf;
		struct span name;
		int r = zarr_extension(&list->items[i], "codec", &name, &conf);

		if (r < 0)
			return r;
		if (span_eq(name, span_str("transpose"))) {
			r = transpose(conf, m->rank, &l);
			if (r < 0)
				return r;
			continue;
		}
		if (is_layout_codec(name))
			return parse_tail(m, list, i, name, conf, &l, depth, ret);
		if (!codec_is_known(name))
			return fail(-EOPNOTSUPP, "codec '%.*s' is not supported", SPAN_ARG(name));
		break;
	}
	return fail(-EUCLEAN,
		    "'codecs' have neither 'bytes' nor 'sharding_indexed' where it belongs");
}

int zarr_levels_parse(struct zarr_meta *m, const struct json *codecs, struct zarr_level *ret)
{
	struct layout l = { 0 };
	struct zarr_level level = { 0 };
	int r;

	for (unsigned i = 0; i < m->rank; i++) {
		l.axis[i] = (uint8_t)i;
		l.shape[i] = m->chunk[i];
	}
	r = parse_list(m, codecs, l, 0, &level);
	if (r < 0)
		return r;
	*ret = level;
	return r;
}
