/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array_metadata.c - `array_metadatas/process_N`, parsed and printed.
 *
 * There is one file per process; a reader that wants one answer tries them in the order of their
 * numbers. `verify` checks whether they agree.
 */
#include "core/tree/array_metadata.h"

#include "core/base/err.h"
#include "core/base/json_pull.h"
#include "core/tree/interner.h"

struct reading {
	struct json_pull in;
	struct array_metadatas *ret;
	struct interner texts; /* shapes and key implementations, each stored once */
	struct buf entries;    /* of struct array_metadata */
};

static int array_metadata_no_memory(void)
{
	return fail(-ENOMEM, "cannot read array metadata: not enough memory");
}

void array_metadatas_free(struct array_metadatas *a)
{
	if (!a)
		return;
	arena_release(&a->arena);
	free(a);
}

/* ---- reading ---- */

static int take_shape(struct reading *x, const uint64_t **ret, unsigned *ret_rank)
{
	uint64_t shape[LIMIT_RANK];
	struct span copy;
	unsigned rank;
	int r = json_pull_shape(&x->in, shape, &rank);

	if (r < 0)
		return r;
	/* As bytes, shapes are texts like others; most arrays have one of a few. */
	r = interner_add(&x->texts, &x->ret->arena, span_of(shape, rank * sizeof(shape[0])), &copy);
	if (r < 0)
		return r;
	*ret = (const void *)copy.p;
	*ret_rank = rank;
	return 0;
}

static int take_text(struct reading *x, struct span *ret)
{
	struct span s;
	int r = json_pull_str(&x->in, &s);

	return r < 0 ? r : interner_add(&x->texts, &x->ret->arena, s, ret);
}

/* Parse the text of ext_metadata again, for the only member that is used. */
static int find_key_impl(struct reading *x, struct span ext, struct span *ret)
{
	auto_json_pull in = { 0 };
	struct span name, s;
	int r;

	json_pull_init(&in, ext, x->in.what);
	r = json_pull_enter(&in, JSON_OBJECT);
	while (r >= 0 && (r = json_pull_next(&in, &name)) > 0) {
		if (!span_eq(name, span_str("random_key_impl")) ||
		    json_pull_kind(&in) != JSON_STRING) {
			r = json_pull_skip(&in);
			continue;
		}
		r = json_pull_str(&in, &s);
		if (r < 0)
			return r;
		r = interner_add(&x->texts, &x->ret->arena, s, ret);
	}
	return r;
}

static int take_ext(struct reading *x, struct array_metadata *e)
{
	auto_buf text = { .metered = true };
	int r = json_pull_kind(&x->in);

	e->ext = e->key_impl = span_of(NULL, 0);
	if (r == JSON_NULL)
		return json_pull_skip(&x->in);
	if (r < 0)
		return r;
	if (r != JSON_OBJECT)
		return json_pull_bad(&x->in, "ext_metadata is not an object");
	r = json_pull_respell(&x->in, &text);
	if (r < 0)
		return r;
	r = interner_add(&x->texts, &x->ret->arena, buf_span(&text), &e->ext);
	return r < 0 ? r : find_key_impl(x, e->ext, &e->key_impl);
}

/* {"param_name": ..., "write_shape": ..., "chunk_shape": ..., "ext_metadata": ...} */
static int take_entry(struct reading *x)
{
	struct array_metadata e = { .write_shape = NULL };
	struct span name;
	int r = json_pull_enter(&x->in, JSON_OBJECT);

	while (r >= 0 && (r = json_pull_next(&x->in, &name)) > 0) {
		if (span_eq(name, span_str("param_name")))
			r = take_text(x, &e.param);
		else if (span_eq(name, span_str("write_shape")))
			r = take_shape(x, &e.write_shape, &e.write_rank);
		else if (span_eq(name, span_str("chunk_shape")))
			r = take_shape(x, &e.chunk_shape, &e.chunk_rank);
		else if (span_eq(name, span_str("ext_metadata")))
			r = take_ext(x, &e);
		else
			r = json_pull_skip(&x->in);
	}
	if (r < 0)
		return r;
	if (!e.param.p || !e.write_shape || !e.chunk_shape)
		return json_pull_bad(&x->in, "an array has no param_name, write_shape or "
					     "chunk_shape");
	return buf_add(&x->entries, &e, sizeof(e));
}

/* [{"array_metadata": {...}}, ...]; elements without that member are skipped, as by Orbax. */
static int take_elements(struct reading *x)
{
	struct span name;
	int r = json_pull_enter(&x->in, JSON_ARRAY);

	buf_clear(&x->entries);
	while (r >= 0 && (r = json_pull_next(&x->in, NULL)) > 0) {
		r = json_pull_enter(&x->in, JSON_OBJECT);
		while (r >= 0 && (r = json_pull_next(&x->in, &name)) > 0)
			r = span_eq(name, span_str("array_metadata")) ? take_entry(x) :
									json_pull_skip(&x->in);
	}
	return r;
}

static int take_document(struct reading *x)
{
	struct span name;
	int r = json_pull_enter(&x->in, JSON_OBJECT);

	while (r >= 0 && (r = json_pull_next(&x->in, &name)) > 0)
		r = span_eq(name, span_str("array_metadatas")) ? take_elements(x) :
								 json_pull_skip(&x->in);
	return r < 0 ? r : json_pull_end(&x->in);
}

static int by_param(const void *a, const void *b)
{
	const struct array_metadata *x = *(const struct array_metadata *const *)a;
	const struct array_metadata *y = *(const struct array_metadata *const *)b;
	int c = span_cmp(x->param, y->param);

	return c ? c : (x > y) - (x < y);
}

int array_metadatas_parse(struct span json, const char *what, struct array_metadatas **ret)
{
	auto_of(array_metadatas) struct array_metadatas *a = calloc(1, sizeof(*a));
	struct reading x = { .ret = a };
	int r;

	if (!a)
		return array_metadata_no_memory();
	a->arena.metered = x.entries.metered = true;
	json_pull_init(&x.in, json, what);
	r = take_document(&x);
	a->n = x.entries.n / sizeof(*a->entries);
	a->entries = (void *)arena_dup(&a->arena, buf_span(&x.entries));
	buf_release(&x.entries);
	json_pull_release(&x.in);
	interner_release(&x.texts);
	if (r < 0)
		return r;
	a->by_param = a->entries ? arena_calloc(&a->arena, a->n + 1, sizeof(*a->by_param)) : NULL;
	if (!a->by_param)
		return array_metadata_no_memory();
	for (size_t i = 0; i < a->n; i++)
		a->by_param[i] = &a->entries[i];
	qsort(a->by_param, a->n, sizeof(*a->by_param), by_param);
	*ret = take(a);
	return 0;
}

const struct array_metadata *array_metadatas_find(const struct array_metadatas *a,
						  struct span param)
{
	size_t lo = 0, hi = a->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (span_cmp(a->by_param[mid]->param, param) <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && span_eq(a->by_param[lo - 1]->param, param) ? a->by_param[lo - 1] : NULL;
}

/* ---- writing ---- */

static int put_entry(struct buf *out, const struct array_metadata *e)
{
	struct span ext = e->ext.p ? e->ext : span_str("null");
	auto_buf param = { 0 }, write = { 0 }, chunk = { 0 };

	if (json_put_str(&param, e->param, JSON_PYTHON) < 0 ||
	    json_put_uints(&write, e->write_shape, e->write_rank, JSON_PYTHON) < 0 ||
	    json_put_uints(&chunk, e->chunk_shape, e->chunk_rank, JSON_PYTHON) < 0)
		return -ENOMEM;
	return buf_addf(out,
			"{\"array_metadata\": {\"param_name\": %.*s, \"write_shape\": %.*s, "
			"\"chunk_shape\": %.*s, \"ext_metadata\": %.*s}}",
			SPAN_ARG(param), SPAN_ARG(write), SPAN_ARG(chunk), SPAN_ARG(ext));
}

int array_metadatas_print(const struct array_metadata *entries, size_t n, struct buf *ret)
{
	size_t was = ret->n;
	int r = buf_add_str(ret, "{\"array_metadatas\": [");

	for (size_t i = 0; i < n && r >= 0; i++) {
		r = buf_add_str(ret, i ? ", " : "");
		if (r < 0)
			break;
		r = put_entry(ret, &entries[i]);
	}
	if (r >= 0)
		r = buf_add_str(ret, "]}");
	if (r < 0)
		ret->n = was;
	return r;
}

int array_metadata_key_ext(struct span key_impl, struct buf *ret)
{
	auto_buf impl = { .metered = ret->metered };
	int r = json_put_str(&impl, key_impl, JSON_PYTHON);

	return r < 0 ? r : buf_addf(ret, "{\"random_key_impl\": %.*s}", SPAN_ARG(impl));
}
