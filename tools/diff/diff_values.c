/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_values.c - compares leaves that are on both sides: types, texts, and arrays box by box of
 * the chunks of the first one.
 */
#include <math.h>

#include "core/base/array.h"
#include "core/base/blocks.h"
#include "core/base/err.h"
#include "handlers/leaf/leaf.h"
#include "tools/diff/diff.h"
#include "tools/scan/chunk_scan.h"
#include "tools/scan/numbers.h"

/* A pair of leaves that is being compared. */
struct pair {
	struct value b;
	enum { PAIR_SAME, PAIR_TYPE, PAIR_DTYPE, PAIR_KEYS, PAIR_SHAPE, PAIR_TEXT } what;
	bool values;               /* values are compared */
	struct span key_a, key_b;  /* implementations of random keys; empty: other arrays */
	struct numbers_diff *part; /* one for each task */
};

static const char *type_name(const struct value *v)
{
	switch (v->kind) {
	case VALUE_ARRAY:
		return v->is_scalar ? "scalar" : "array";
	case VALUE_TEXT:
		return "string";
	case VALUE_NONE:
		return "None";
	case VALUE_FILE:
		return "file";
	case VALUE_UNKNOWN:
		break;
	}
	return "unknown";
}

/* types: both trees distinguish numbers from arrays. */
static void look_at_types(const struct diff *d, struct pair *p, const struct value *a, bool types)
{
	const struct value *b = &p->b;
	const struct zarr_meta *m = a->kind == VALUE_ARRAY ? &a->array->meta : NULL;

	if (a->kind != b->kind || (types && a->is_scalar != b->is_scalar)) {
		p->what = PAIR_TYPE;
	} else if (a->kind == VALUE_TEXT || a->kind == VALUE_FILE) {
		p->what = span_eq(buf_span(&a->text), buf_span(&b->text)) ? PAIR_SAME : PAIR_TEXT;
	} else if (m && (m->rank != b->array->meta.rank ||
			 memcmp(m->shape, b->array->meta.shape, m->rank * sizeof(m->shape[0])))) {
		p->what = PAIR_SHAPE;
	} else if (m) {
		p->what = d->ignore_dtype || m->dtype == b->array->meta.dtype ? PAIR_SAME :
										PAIR_DTYPE;
		p->values = true;
	}
}

/* Integers with the same values are random keys, or others, only where both sides record that. */
static int look_at_keys(struct pair *p, const struct walk_leaf *leaf,
			const struct subtree_part *part, const struct tree_node *b)
{
	struct item *item = leaf->part->item;
	int r;

	if (p->what != PAIR_SAME || !p->values || !item->tree->has_metadata ||
	    !part->item->tree->has_metadata)
		return 0;
	r = item_prng_impl(item, leaf->node, &p->key_a);
	if (r < 0)
		return r;
	r = item_prng_impl(part->item, b, &p->key_b);
	if (r < 0)
		return r;
	if (!span_eq(p->key_a, p->key_b))
		p->what = PAIR_KEYS;
	return MIN(r, 0);
}

static int diff_begin(void *arg, struct walk_leaf *leaf)
{
	struct diff *d = arg;
	const struct subtree_part *part;
	const struct tree_node *b = diff_partner(d, leaf->part, leaf->node, &part);
	struct pair *p;
	int r;

	/* The leaf is on one side only, which has been reported. */
	if (!b) {
		leaf->n_tasks = 0;
		return 0;
	}
	p = calloc(1, sizeof(*p));
	leaf->state = p;
	r = p ? leaf_open(part->item, b, &p->b) : fail(-ENOMEM, "cannot compare '%s'", leaf->path);
	if (r < 0)
		return p ? err_at(r, "in '%s'", d->name_b) : r;
	look_at_types(d, p, &leaf->value, leaf->node->value_type.n && b->value_type.n);
	r = look_at_keys(p, leaf, part, b);
	if (r < 0)
		return r;
	if (!p->values)
		leaf->n_tasks = 0;
	p->part = calloc(leaf->n_tasks + 1, sizeof(*p->part));
	return p->part ? 0 : fail(-ENOMEM, "cannot compare '%s'", leaf->path);
}

struct comparing {
	struct diff *d;
	struct numbers_diff *part;
	struct chunk_scan other; /* for the array of B */
};

/* Returns the index in its array of element i of a tile. */
static uint64_t diff_place(const struct tiling *t, const struct tile *tile, uint64_t i)
{
	uint64_t index[LIMIT_RANK], at = 0;

	for (unsigned k = t->rank; k > 0; k--) {
		index[k - 1] = tile->start[k - 1] + i % tile->count[k - 1];
		i /= tile->count[k - 1];
	}
	for (unsigned k = 0; k < t->rank; k++)
		at = at * t->shape[k] + index[k];
	return at;
}

static bool diff_values_is_float(enum dtype t)
{
	return dtype_info(t)->kind == DTYPE_KIND_FLOAT || dtype_info(t)->kind == DTYPE_KIND_COMPLEX;
}

/*
 * Only the place of the first element is reported, since elements of a tile are not adjacent in the
 * array.
 */
static int compare_tile(void *arg, struct walk_leaf *leaf, const struct tile *tile, void *bytes,
			struct walk_worker *worker)
{
	struct comparing *c = arg;
	const struct pair *p = leaf->state;
	struct zarr *za = leaf->value.array, *zb = p->b.array;
	enum dtype ta = za->meta.dtype, tb = zb->meta.dtype;
	void *own = dtype_info(tb)->size > dtype_info(ta)->size ?
			    block_alloc(tile->n * dtype_info(tb)->size) :
			    NULL;
	void *other = own ? own : walk_buf(worker, 1);
	struct numbers_diff d = { 0 };
	struct zarr_view v;
	int r = other ? tile_view(zb, tile, &v) : fail(-ENOMEM, "cannot compare '%s'", leaf->path);

	if (r >= 0)
		r = chunk_scan_read(&c->other, zb, tile, &v, other);
	if (r < 0) {
		err_at(r, "in '%s'", c->d->name_b);
	} else if (ta != tb && c->d->ignore_dtype && diff_values_is_float(ta) &&
		   diff_values_is_float(tb)) {
		numbers_compare_narrow(&d, ta, bytes, tb, other, tile->n, c->d->tolerance);
	} else if (ta == tb) {
		numbers_compare(&d, ta, bytes, other, tile->n, c->d->tolerance, 0);
	} else {
		numbers_compare_mixed(&d, ta, bytes, tb, other, tile->n, c->d->tolerance, 0);
	}
	if (d.n)
		d.first = diff_place(&leaf->tiling, tile, d.first);
	numbers_diff_merge(c->part, &d);
	if (own)
		block_free(own, tile->n * dtype_info(tb)->size);
	return r;
}

static int diff_task(void *arg, struct walk_leaf *leaf, uint64_t task, struct walk_worker *worker)
{
	struct pair *p = leaf->state;
	struct comparing c = { arg, &p->part[task] };
	int r = walk_tiles(leaf, task, worker, compare_tile, &c);

	chunk_scan_release(&c.other);
	return r;
}

static void say_index(struct buf *out, const struct zarr_meta *m, uint64_t at)
{
	uint64_t index[LIMIT_RANK];

	for (unsigned i = m->rank; i > 0; i--) {
		index[i - 1] = at % m->shape[i - 1];
		at /= m->shape[i - 1];
	}
	json_put_uints(out, index, m->rank, JSON_PYTHON);
}

/* ---- rows ---- */

static double sort_key(const struct diff *d, const struct numbers_diff *n, double rms,
		       double relative)
{
	double key = d->sort == DIFF_MAX_ABS ? n->max_abs :
		     d->sort == DIFF_MAX_ULP ? (double)n->max_ulp :
		     d->sort == DIFF_RMS     ? rms :
					       relative;

	/* NaN on one side is farther than any number, and so is a change of zeros. */
	return n->one_nan || isnan(key) ? INFINITY : key;
}

static int keep_row(struct diff *d, double key, const char *path, const char *text)
{
	struct diff_row row = { key, strdup(path), text ? strdup(text) : NULL };

	if (row.path && row.text && array_reserve(d->row, d->cap_rows, d->n_rows + 1)) {
		d->row[d->n_rows++] = row;
		return 0;
	}
	free(row.path);
	free(row.text);
	return fail(-ENOMEM, "cannot compare '%s'", path);
}

/* Rows with one key stay in the order of the tree. */
static int diff_values_by_key(const void *a, const void *b, void *arg)
{
	const struct diff *d = arg;
	const size_t *x = a, *y = b;
	double kx = d->row[*x].key, ky = d->row[*y].key;

	return kx != ky ? (kx < ky ? 1 : -1) : (*x > *y) - (*x < *y);
}

void diff_say_rows(struct diff *d)
{
	auto_free size_t *at = calloc(d->n_rows + 1, sizeof(*at));

	for (size_t i = 0; at && i < d->n_rows; i++)
		at[i] = i;
	if (at)
		qsort_r(at, d->n_rows, sizeof(*at), diff_values_by_key, d);
	for (size_t i = 0; i < d->n_rows; i++) {
		struct diff_row *row = &d->row[at ? at[i] : i];

		if (i < d->top || !at) {
			diff_say(d, row->path, "values", row->text);
		} else {
			d->differences++;
			d->omitted++;
		}
		free(row->path);
		free(row->text);
	}
	free(d->row);
	d->row = NULL;
}

static void diff_values_put_number(struct buf *out, double x)
{
	if (isfinite(x))
		json_put_double(out, x, JSON_PRETTY);
	else
		buf_add_str(out, "null");
}

static int say_values(struct diff *d, const struct walk_leaf *leaf, const struct numbers_diff *n)
{
	const struct zarr_meta *m = &leaf->value.array->meta;
	double rms = sqrt(n->squares / (double)m->n_elements);
	double relative = sqrt(n->squares_other) / sqrt(n->squares_a);
	auto_buf first = { 0 }, far = { 0 }, text = { 0 };

	say_index(&first, m, n->first);
	json_put_double(&far, n->max_abs, JSON_PRETTY);
	if (d->json) {
		buf_addf(&text,
			 "\"differing\": %llu, \"count\": %llu, \"first\": %s, \"max_abs\": %s",
			 (unsigned long long)n->n, (unsigned long long)m->n_elements,
			 buf_str(&first), buf_str(&far));
		if (n->has_ulp)
			buf_addf(&text, ", \"max_ulp\": %llu", (unsigned long long)n->max_ulp);
		buf_add_str(&text, ", \"rms\": ");
		diff_values_put_number(&text, rms);
		buf_add_str(&text, ", \"relative\": ");
		diff_values_put_number(&text, relative);
		buf_addf(&text, ", \"one_nan\": %llu", (unsigned long long)n->one_nan);
	} else {
		buf_addf(&text, "%llu of %llu %s %s, the first at %s, max abs %s",
			 (unsigned long long)n->n, (unsigned long long)m->n_elements,
			 noun(m->n_elements, "element", "elements"),
			 noun(n->n, "differs", "differ"), buf_str(&first), buf_str(&far));
		if (n->has_ulp)
			buf_addf(&text, ", max ulp %llu", (unsigned long long)n->max_ulp);
		if (!isnan(rms))
			buf_addf(&text, ", rms %.4g", rms);
		if (!isnan(relative))
			buf_addf(&text, ", relative %.4g", relative);
		if (n->one_nan)
			buf_addf(&text, ", %llu %s NaN on one side only",
				 (unsigned long long)n->one_nan,
				 noun(n->one_nan, "element is", "elements are"));
	}
	if (d->sort != DIFF_UNSORTED)
		return keep_row(d, sort_key(d, n, rms, relative), leaf->path, buf_str(&text));
	diff_say(d, leaf->path, "values", buf_str(&text));
	return 0;
}

/* Two words: `a` in the first, `b` in the second. */
static void say_both(struct diff *d, const char *path, const char *what, const char *a,
		     const char *b)
{
	auto_buf text = { 0 };

	buf_addf(&text, d->json ? "\"a\": \"%s\", \"b\": \"%s\"" : "%s, and %s", a, b);
	diff_say(d, path, what, buf_str(&text));
}

/* The implementation is any text of a file, so it is escaped as in JSON. */
static void dtype_text(const struct value *v, struct span key, struct buf *out)
{
	auto_buf text = { 0 };

	if (!key.n)
		buf_add_str(out, dtype_info(v->array->meta.dtype)->name);
	else if (json_put_str(&text, key, JSON_PYTHON) >= 0)
		buf_addf(out, "key<%.*s>", (int)(text.n - 2), text.p + 1);
}

static void say_pair(struct diff *d, const struct walk_leaf *leaf, const struct pair *p)
{
	const struct value *a = &leaf->value, *b = &p->b;
	auto_buf sa = { 0 }, sb = { 0 };

	switch (p->what) {
	case PAIR_SAME:
		break;
	case PAIR_TYPE:
		say_both(d, leaf->path, "type", type_name(a), type_name(b));
		break;
	case PAIR_TEXT:
		diff_say(d, leaf->path, "text", d->json ? "" : "the strings differ");
		break;
	case PAIR_DTYPE:
		say_both(d, leaf->path, "dtype", dtype_info(a->array->meta.dtype)->name,
			 dtype_info(b->array->meta.dtype)->name);
		break;
	case PAIR_KEYS:
		dtype_text(a, p->key_a, &sa);
		dtype_text(b, p->key_b, &sb);
		say_both(d, leaf->path, "dtype", buf_str(&sa), buf_str(&sb));
		break;
	case PAIR_SHAPE:
		json_put_uints(&sa, a->array->meta.shape, a->array->meta.rank, JSON_PYTHON);
		json_put_uints(&sb, b->array->meta.shape, b->array->meta.rank, JSON_PYTHON);
		say_both(d, leaf->path, "shape", buf_str(&sa), buf_str(&sb));
		break;
	}
}

static int diff_end(void *arg, struct walk_leaf *leaf)
{
	struct pair *p = leaf->state;
	struct diff *d = arg;
	struct numbers_diff sum = { 0 };
	int r = 0;

	if (leaf->failed.code)
		selection_failed(&d->t, leaf->path, &leaf->failed);
	if (p && !leaf->failed.code) {
		for (uint64_t i = 0; i < leaf->n_tasks; i++)
			numbers_diff_merge(&sum, &p->part[i]);
		progress_clear(&d->t.progress);
		d->compared++;
		d->same += p->what == PAIR_SAME && sum.n == 0;
		say_pair(d, leaf, p);
		if (sum.n)
			r = say_values(d, leaf, &sum);
		else if (p->what == PAIR_SAME && cmd_flag(d->t.a, "verbose") && !d->json) {
			print_name(stdout, leaf->path);
			printf(": same\n");
		}
	}
	if (p) {
		value_release(&p->b);
		free(p->part);
		free(p);
	}
	return r;
}

int diff_values(struct diff *d, const struct subtree *a, const char *prefix)
{
	static const struct walk_ops ops = { .begin = diff_begin,
					     .task = diff_task,
					     .end = diff_end };

	return selection_walk(&d->t, a, prefix, &ops, d);
}
