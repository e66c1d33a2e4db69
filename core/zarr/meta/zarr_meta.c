/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_meta.c - .zarray and zarr.json -> struct zarr_meta.
 *
 * zarr_level.c has the codec list of v3, zarr_create.c prints our documents, zarr_key.c has chunk
 * keys, zarr_text.c the text for people.
 *
 * Invariants: a document that is accepted has a shape, a chunk and a fill value that all later
 * arithmetic can trust: products do not overflow, and no chunk is empty.
 */
#include "core/zarr/meta/zarr_meta.h"

#include <math.h>

#include "core/base/err.h"
#include "core/dtype/cast.h"
#include "core/zarr/meta/zarr_level.h"

/*
 * TensorStore accepts neither Python's bare words nor numbers beyond double. The depth is bounded.
 */
static bool has_bare_words(const struct json *j)
{
	if (j->kind == JSON_FLOAT)
		return !isfinite(j->d);
	if (j->kind != JSON_ARRAY && j->kind != JSON_OBJECT)
		return false;
	for (size_t i = 0; i < j->n; i++)
		if (has_bare_words(&j->items[i]))
			return true;
	return false;
}

/* ---- shapes ---- */

/* The number of sizes in "shape" is the rank. */
static int meta_parse_shape(const struct json *doc, struct zarr_meta *m)
{
	const struct json *shape = json_member(doc, "shape");

	if (json_is(shape, JSON_ARRAY) && shape->n > LIMIT_RANK)
		return fail(-EUCLEAN, "'shape' has %zu dimensions, at most %d", shape->n,
			    LIMIT_RANK);
	m->rank = json_is(shape, JSON_ARRAY) ? (unsigned)shape->n : 0;
	return zarr_sizes(shape, "shape", 0, m->rank, m->shape);
}

/* Compute the members that derive from shape, chunk and dtype. */
static int meta_count(struct zarr_meta *m)
{
	uint64_t n = 1;
	bool is_empty = false;

	for (unsigned i = 0; i < m->rank; i++) {
		m->grid[i] = div_up(m->shape[i], m->chunk[i]);
		is_empty |= m->shape[i] == 0;
	}
	for (unsigned i = 0; i < m->rank && !is_empty; i++)
		if (!mul_fits(n, m->shape[i], &n))
			return fail(-EFBIG, "the array has 2^64 elements or more");
	m->n_elements = is_empty ? 0 : n;
	if (!mul_fits(m->n_elements, dtype_info(m->dtype)->size, &m->bytes) || m->bytes > INT64_MAX)
		return fail(-EFBIG, "the array has 2^63 bytes or more");
	return 0;
}

static int unsupported_type(struct span name)
{
	if (span_starts(name, span_str("|S")))
		return fail(-EOPNOTSUPP,
			    "data type '%.*s' is not supported: these are texts of a fixed length, "
			    "of which TensorStore returns no bytes; store them as uint8 with one "
			    "more axis",
			    SPAN_ARG(name));
	return fail(-EOPNOTSUPP, "data type '%.*s' is not supported", SPAN_ARG(name));
}

/* ---- v2 ---- */

/* [name, type] or [name, type, shape] */
static bool is_field(const struct json *j)
{
	return json_is(j, JSON_ARRAY) && (j->n == 2 || j->n == 3) &&
	       json_is(&j->items[0], JSON_STRING) && j->items[0].s.n &&
	       json_is(&j->items[1], JSON_STRING);
}

static int no_type(const struct json *j)
{
	if (!json_is(j, JSON_ARRAY) || !j->n)
		return fail(-EUCLEAN, "the data type is %s",
			    j ? "neither a name nor a list" : "missing");
	for (size_t i = 0; i < j->n; i++)
		if (!is_field(&j->items[i]))
			return fail(-EUCLEAN, "field %zu of the data type is malformed", i);
	return fail(-EOPNOTSUPP, "structured data types are not supported");
}

static int parse_v2_dtype(const struct json *doc, struct zarr_meta *m)
{
	const struct json *j = json_member(doc, "dtype");

	if (!json_is(j, JSON_STRING))
		return no_type(j);
	m->dtype = dtype_by_v2(j->s, &m->level.big_endian);
	return m->dtype == DTYPE_UNKNOWN ? unsupported_type(j->s) : 0;
}

static int parse_v2_compressor(const struct json *doc, struct zarr_meta *m)
{
	const struct json *j = json_member(doc, "compressor");
	int r;

	m->level.codecs.dialect = CODEC_V2;
	if (json_is(j, JSON_NULL))
		return 0;
	if (!j)
		return fail(-EUCLEAN, "'compressor' is missing");
	r = codec_parse(j, CODEC_V2, dtype_info(m->dtype)->size, &m->arena,
			&m->level.codecs.codec[0]);
	m->level.codecs.n = r >= 0;
	return r;
}

static int parse_v2_fill(const struct json *doc, struct zarr_meta *m)
{
	const struct json *j = json_member(doc, "fill_value");
	int r;

	if (!j)
		return fail(-EUCLEAN, "'fill_value' is missing");
	m->fill_is_null = j->kind == JSON_NULL;
	if (m->fill_is_null)
		return 0;
	r = dtype_fill_parse(m->dtype, 2, j, m->fill);
	if (r < 0)
		return r;
	/* Base64 has the bytes as they are stored. */
	if (j->kind == JSON_STRING && dtype_info(m->dtype)->kind == DTYPE_KIND_COMPLEX &&
	    m->level.big_endian)
		cast_swap(m->dtype, m->fill, 1);
	return r;
}

static int parse_v2_filters(const struct json *doc, struct zarr_meta *m)
{
	const struct json *j = json_member(doc, "filters");

	if (json_is(j, JSON_NULL) || (json_is(j, JSON_ARRAY) && !j->n))
		return 0;
	if (!json_is(j, JSON_ARRAY))
		return fail(-EUCLEAN, "'filters' is %s", j ? "neither null nor a list" : "missing");
	return fail(-EOPNOTSUPP, "filters are not supported");
}

static int parse_v2_order(const struct json *doc, struct zarr_meta *m)
{
	struct span order;
	bool is_f;
	int r = json_get_str(doc, "order", "metadata", &order);

	if (r <= 0)
		return r < 0 ? r : fail(-EUCLEAN, "'order' is missing");
	is_f = span_eq(order, span_str("F"));
	if (!is_f && !span_eq(order, span_str("C")))
		return fail(-EUCLEAN, "unknown order '%.*s'", SPAN_ARG(order));
	for (unsigned i = 0; i < m->rank; i++) {
		unsigned axis = is_f ? m->rank - 1 - i : i;

		m->level.axis[i] = (uint8_t)axis;
		m->level.shape[i] = m->chunk[axis];
	}
	return 0;
}

static int parse_separator(const struct json *obj, const char *name, char *ret)
{
	struct span s;
	int r = json_get_str(obj, name, "metadata", &s);

	if (r <= 0)
		return r;
	if (!span_eq(s, span_str(".")) && !span_eq(s, span_str("/")))
		return fail(-EUCLEAN, "unknown separator '%.*s'", SPAN_ARG(s));
	*ret = (char)s.p[0];
	return 0;
}

/* Parse the members of a document in turn. */
typedef int member_fn(const struct json *doc, struct zarr_meta *m);

static int parse_members(const struct json *doc, struct zarr_meta *m, member_fn *const *parse)
{
	int r = 0;

	while (*parse && r >= 0)
		r = (*parse++)(doc, m);
	return r;
}

static int parse_v2_chunks(const struct json *doc, struct zarr_meta *m)
{
	return zarr_sizes(json_member(doc, "chunks"), "chunks", 1, m->rank, m->chunk);
}

static int parse_v2_separator(const struct json *doc, struct zarr_meta *m)
{
	return parse_separator(doc, "dimension_separator", &m->separator);
}

/* Other members may be anything, and are ignored. */
static int meta_parse_v2(const struct json *doc, struct zarr_meta *m)
{
	static member_fn *const members[] = {
		meta_parse_shape,    parse_v2_chunks,    parse_v2_dtype,
		parse_v2_compressor, parse_v2_fill,      parse_v2_order,
		parse_v2_filters,    parse_v2_separator, NULL
	};
	int r;

	m->keys = ZARR_KEYS_V2;
	m->separator = '.';
	r = parse_members(doc, m, members);
	return r < 0 ? r : zarr_level_bytes(&m->level, m->rank, m->dtype, &m->level.bytes);
}

/* ---- v3 ---- */

/* A name, or an object with a name; TensorStore ignores the rest of the object for these types. */
static int parse_v3_dtype(const struct json *doc, struct zarr_meta *m)
{
	const struct json *j = json_member(doc, "data_type"), *name = j;

	if (json_is(j, JSON_OBJECT)) {
		name = json_member(j, "name");
		if (!json_is(name, JSON_STRING) || !json_member(j, "configuration"))
			return fail(-EUCLEAN, "'data_type' has no name or no configuration");
	} else if (!json_is(j, JSON_STRING)) {
		return no_type(j);
	}
	m->dtype = dtype_by_name(name->s);
	return m->dtype == DTYPE_UNKNOWN ? unsupported_type(name->s) : 0;
}

static int parse_v3_grid(const struct json *doc, struct zarr_meta *m)
{
	static const char *const names[] = { "chunk_shape", NULL };
	const struct json *conf;
	struct span name;
	int r = zarr_extension(json_member(doc, "chunk_grid"), "'chunk_grid'", &name, &conf);

	if (r < 0)
		return r;
	if (!span_eq(name, span_str("regular")))
		return fail(-EOPNOTSUPP, "chunk grid '%.*s' is not supported", SPAN_ARG(name));
	r = zarr_only(conf, "'chunk_grid'", names);
	if (r < 0)
		return r;
	return zarr_sizes(json_member(conf, "chunk_shape"), "chunk_shape", 1, m->rank, m->chunk);
}

static int parse_v3_keys(const struct json *doc, struct zarr_meta *m)
{
	static const char *const names[] = { "separator", NULL };
	const struct json *conf;
	struct span name;
	int r = zarr_extension(json_member(doc, "chunk_key_encoding"), "'chunk_key_encoding'",
			       &name, &conf);

	if (r < 0)
		return r;
	if (span_eq(name, span_str("default"))) {
		m->keys = ZARR_KEYS_DEFAULT;
		m->separator = '/';
	} else if (span_eq(name, span_str("v2"))) {
		m->keys = ZARR_KEYS_V2;
		m->separator = '.';
	} else {
		return fail(-EOPNOTSUPP, "chunk key encoding '%.*s' is not supported",
			    SPAN_ARG(name));
	}
	r = zarr_only(conf, "'chunk_key_encoding'", names);
	return r < 0 ? r : parse_separator(conf, "separator", &m->separator);
}

/* Check a list of a string or null for each dimension. */
static int check_labels(const struct json *j, const char *name, unsigned rank, bool unique)
{
	if (!j)
		return 0;
	if (j->kind != JSON_ARRAY || j->n != rank)
		return fail(-EUCLEAN, "'%s' is not a list of %u", name, rank);
	for (size_t i = 0; i < rank; i++) {
		const struct json *label = &j->items[i];

		if (label->kind == JSON_NULL)
			continue;
		if (label->kind != JSON_STRING)
			return fail(-EUCLEAN, "'%s' has a member that is neither a string nor null",
				    name);
		for (size_t k = 0; unique && label->s.n && k < i; k++)
			if (json_is(&j->items[k], JSON_STRING) && span_eq(j->items[k].s, label->s))
				return fail(-EUCLEAN, "'%s' has '%.*s' twice", name,
					    SPAN_ARG(label->s));
	}
	return 0;
}

static int check_v3_rest(const struct json *doc, struct zarr_meta *m)
{
	const struct json *attributes = NULL, *transformers = NULL;
	struct span node;
	int r = json_get_str(doc, "node_type", "metadata", &node);

	if (r == 0 || (r > 0 && !span_eq(node, span_str("array"))))
		return fail(-EUCLEAN, "'node_type' is %s", r ? "not 'array'" : "missing");
	if (r < 0)
		return r;
	r = json_get_object(doc, "attributes", "metadata", &attributes);
	if (r < 0)
		return r;
	r = check_labels(json_member(attributes, "dimension_units"), "dimension_units", m->rank,
			 false);
	if (r < 0)
		return r;
	r = check_labels(json_member(doc, "dimension_names"), "dimension_names", m->rank, true);
	if (r < 0)
		return r;
	r = json_get_array(doc, "storage_transformers", "metadata", &transformers);
	if (r < 0)
		return r;
	if (transformers && transformers->n)
		return fail(-EOPNOTSUPP, "storage transformers are not supported");
	return r;
}

/* Refuse unknown members, unless they say that they need not be understood. */
static int check_v3_extensions(const struct json *doc, struct zarr_meta *m)
{
	static const char *const known[] = {
		"zarr_format",          "node_type",  "shape",  "data_type",  "chunk_grid",
		"chunk_key_encoding",   "fill_value", "codecs", "attributes", "dimension_names",
		"storage_transformers",
	};

	for (size_t i = 0; i < doc->n; i++) {
		struct span name = doc->items[i].name;
		const struct json *need =
			json_member(json_member_span(doc, name), "must_understand");
		size_t k = 0;

		while (k < ARRAY_LEN(known) && !span_eq(name, span_str(known[k])))
			k++;
		if (k == ARRAY_LEN(known) && !(json_is(need, JSON_BOOL) && !need->b))
			return fail(-EOPNOTSUPP, "extension '%.*s' is not supported",
				    SPAN_ARG(name));
	}
	return 0;
}

static int meta_parse_v3(const struct json *doc, struct zarr_meta *m)
{
	static member_fn *const members[] = {
		check_v3_extensions, meta_parse_shape, check_v3_rest, parse_v3_grid,
		parse_v3_keys,       parse_v3_dtype,   NULL
	};
	const struct json *fill = json_member(doc, "fill_value");
	int r = parse_members(doc, m, members);

	if (r < 0)
		return r;
	r = fill ? dtype_fill_parse(m->dtype, 3, fill, m->fill) :
		   fail(-EUCLEAN, "'fill_value' is missing");
	return r < 0 ? r : zarr_levels_parse(m, json_member(doc, "codecs"), &m->level);
}

/* ---- whole documents ---- */

static int meta_parse_document(const struct json *doc, const char *what, struct zarr_meta *m)
{
	int64_t format;
	int r;

	if (doc->kind != JSON_OBJECT)
		return fail(-EUCLEAN, "not an object");
	if (has_bare_words(doc))
		return fail(-EUCLEAN, "a number is not finite");
	r = json_get_int(doc, "zarr_format", "metadata", &format);
	if (r <= 0)
		return r < 0 ? r : fail(-EUCLEAN, "'zarr_format' is missing");
	if (format != 2 && format != 3)
		return fail(-EUCLEAN, "zarr_format is %lld, not 2 or 3", (long long)format);
	m->format = (unsigned)format;
	r = format == 2 ? meta_parse_v2(doc, m) : meta_parse_v3(doc, m);
	return r < 0 ? r : meta_count(m);
}

int zarr_meta_parse(struct span json, const char *what, struct zarr_meta *ret)
{
	auto_free struct zarr_meta *m = calloc(1, sizeof(*m));
	auto_json doc = { 0 };
	int r;

	if (!m)
		return fail(-ENOMEM, "%s: not enough memory", what);
	if (json.n > LIMIT_ZARR_META_BYTES)
		return fail(-EFBIG, "%s: %zu bytes exceed the limit of %llu", what, json.n,
			    (unsigned long long)LIMIT_ZARR_META_BYTES);
	r = json_parse(json, what, &doc);
	if (r < 0)
		return r;
	m->arena.metered = true;
	r = meta_parse_document(doc.root, what, m);
	if (r < 0) {
		arena_release(&m->arena);
		return err_at(r, "%s", what);
	}
	*ret = *m;
	return 0;
}

void zarr_meta_release(struct zarr_meta *m)
{
	arena_release(&m->arena);
	*m = (struct zarr_meta){ 0 };
}
