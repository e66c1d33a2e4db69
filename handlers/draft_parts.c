/*
 * draft_parts.c - one array that several files hold, each its box.
 *
 * Where all parts are cut alike their chunks are used as they are, under the
 * numbers that they have in the whole. Where they are not, the array is encoded
 * again from all of them.
 */
#include "core/base/err.h"
#include "core/base/log.h"
#include "handlers/draft_plan.h"
#include "handlers/ns.h"

static int same_whole(const struct draft_part *a, const struct draft_node *na, const struct draft_part *b,
		      const struct draft_node *nb)
{
	bool same = a->rank == b->rank;

	for (unsigned i = 0; i < a->rank && same; i++)
		same = a->whole[i] == b->whole[i];
	return same ? 0 : fail(-EINVAL, "parts '%s' and '%s' are of arrays of different shapes", na->name, nb->name);
}

static bool overlap(const struct draft_part *a, const struct draft_part *b)
{
	for (unsigned i = 0; i < a->rank; i++)
		if (a->start[i] >= b->start[i] + b->extent[i] || b->start[i] >= a->start[i] + a->extent[i])
			return false;
	return true;
}

/* Where a hole begins: the smallest corner of a part's end that nobody covers. */
static void describe_hole(const struct draft_part *p, size_t n, struct buf *ret)
{
	const struct draft_part *w = &p[0];
	uint64_t at[LIMIT_RANK];

	/* Candidates are combinations of coordinates where some part begins or ends. */
	for (size_t k = 0; k <= n; k++)
		for (unsigned axis = 0; axis < w->rank; axis++) {
			bool covered = false;

			for (unsigned i = 0; i < w->rank; i++)
				at[i] = k < n ? p[k].start[i] : 0;
			if (k < n)
				at[axis] += p[k].extent[axis];
			if (at[axis] >= w->whole[axis])
				continue;
			for (size_t j = 0; j < n && !covered; j++) {
				covered = true;
				for (unsigned i = 0; i < w->rank; i++)
					covered &= at[i] >= p[j].start[i] && at[i] < p[j].start[i] + p[j].extent[i];
			}
			if (covered)
				continue;
			buf_add_str(ret, ", nobody has [");
			for (unsigned i = 0; i < w->rank; i++)
				buf_addf(ret, "%s%llu", i ? "," : "", (unsigned long long)at[i]);
			buf_add_byte(ret, ']');
			return;
		}
}

/* No overlap and as many elements as the whole: a tiling. */
static int check_tiling(struct draft_node **parts, const struct draft_part *p, size_t n)
{
	uint64_t covered = 0, whole = 1;

	for (unsigned i = 0; i < p[0].rank; i++)
		if (!mul_fits(whole, p[0].whole[i], &whole))
			return fail(-EINVAL, "'%s': the shape overflows", parts[0]->name);
	for (size_t a = 0; a < n; a++) {
		uint64_t elements = 1;
		int r = same_whole(&p[0], parts[0], &p[a], parts[a]);

		if (r < 0)
			return r;
		for (unsigned i = 0; i < p[a].rank; i++)
			elements *= p[a].extent[i];
		covered += elements;
		for (size_t b = 0; b < a; b++)
			if (overlap(&p[a], &p[b]))
				return fail(-EINVAL, "parts '%s' and '%s' overlap", parts[b]->name, parts[a]->name);
	}
	if (covered != whole) {
		auto_buf hole = { 0 };

		describe_hole(p, n, &hole);
		return fail(-EINVAL, "the parts of '%.*s' have %llu of %llu elements%.*s", SPAN_ARG(p[0].stem),
			    (unsigned long long)covered, (unsigned long long)whole, SPAN_ARG(buf_span(&hole)));
	}
	return 0;
}

/* What the file holds is the box that its name says, and of the type of the others. */
static int check_part(struct draft_node *n, const struct draft_part *p, struct draft_node *first, enum dtype *dtype)
{
	const struct draft_array *a;
	int r = draft_file_seal(n->file);

	if (r < 0)
		return err_at(r, "'%s'", n->name);
	pthread_mutex_lock(&n->file->lock);
	a = n->file->n_arrays == 1 ? &n->file->array[0] : NULL;
	if (!a || a->rank != p->rank || memcmp(a->shape, p->extent, p->rank * sizeof(uint64_t)))
		r = fail(-EINVAL, "'%s': the array in it has not the shape of the box", n->name);
	else if (*dtype != DTYPE_UNKNOWN && a->stored != *dtype)
		r = fail(-EINVAL, "'%s' is of dtype %s, and '%s' of %s", n->name, dtype_info(a->stored)->name, first->name,
			 dtype_info(*dtype)->name);
	else
		*dtype = a->stored;
	pthread_mutex_unlock(&n->file->lock);
	return r;
}

static int check_parts(struct draft_node **parts, const struct draft_part *p, size_t n)
{
	enum dtype dtype = DTYPE_UNKNOWN;
	int r = check_tiling(parts, p, n);

	for (size_t i = 0; i < n && r >= 0; i++)
		r = check_part(parts[i], &p[i], parts[0], &dtype);
	return r;
}

int plan_parts(struct plan *p, struct tree_node *parent, struct draft_node **parts, size_t n)
{
	auto_free struct draft_part *part = calloc(n, sizeof(*part));
	struct plan_leaf *l;
	auto_buf key = { 0 };
	int r = part ? 0 : fail(-ENOMEM, "cannot look at %zu parts", n);

	for (size_t i = 0; i < n && r >= 0; i++)
		r = draft_part_of(span_str(parts[i]->name), &part[i]);
	if (r >= 0 && p->strict)
		r = check_parts(parts, part, n);
	if (r >= 0)
		r = plan_key(parts[0], part[0].stem, false, &key);
	if (r == -EINVAL && !p->strict) {
		err_clear();
		return 0;
	}
	if (r >= 0)
		r = plan_leaf_new(p, parent, parts[0], buf_span(&key), &l);
	if (r < 0 || !l)
		return r;
	l->part = malloc(n * sizeof(struct draft_node *));
	if (!l->part)
		return fail(-ENOMEM, "cannot look at %zu parts", n);
	memcpy(l->part, parts, n * sizeof(struct draft_node *));
	l->n_parts = n;
	l->has_shape = true;
	l->rank = part[0].rank;
	memcpy(l->shape, part[0].whole, sizeof(l->shape));
	return plan_array(p, l, span_of(NULL, 0));
}

/* ---- for the commit ---- */

/* Whether all parts are cut in one way, at whole chunks. */
static bool aligned(const struct plan_leaf *l, const struct draft_part *p)
{
	const struct array_layout *first = &l->part[0]->file->array[0].layout;

	for (size_t i = 0; i < l->n_parts; i++) {
		const struct draft_array *a = &l->part[i]->file->array[0];

		if (memcmp(&a->layout, first, sizeof(*first)))
			return false;
		for (unsigned k = 0; k < l->rank; k++)
			if (p[i].start[k] % first->chunk[k] ||
			    (p[i].extent[k] % first->chunk[k] && p[i].start[k] + p[i].extent[k] != p[i].whole[k]))
				return false;
	}
	return true;
}

struct joining {
	const struct plan_leaf *l;
	const struct draft_part *part;
	uint64_t item;
};

/* The part that has an element, and how many follow it in its row. */
static size_t part_at(const struct joining *j, const uint64_t *at, uint64_t *ret_run)
{
	unsigned rank = j->l->rank;

	for (size_t i = 0; i < j->l->n_parts; i++) {
		const struct draft_part *p = &j->part[i];
		bool inside = true;

		for (unsigned k = 0; k < rank && inside; k++)
			inside = at[k] >= p->start[k] && at[k] < p->start[k] + p->extent[k];
		if (inside) {
			*ret_run = rank ? p->start[rank - 1] + p->extent[rank - 1] - at[rank - 1] : 1;
			return i;
		}
	}
	return j->l->n_parts;
}

/* Elements of a sealed part, as they are stored. */
static int read_part(const struct joining *j, size_t i, uint64_t element, uint64_t n, uint8_t *p)
{
	struct draft_node *node = j->l->part[i];
	struct zarr_view v;
	struct zarr *z;
	int r = zarr_open(&node->draft->ns->ckpt->env, node->file->array[0].kv, span_of(NULL, 0), cache_owner(), 0, &z);

	if (r < 0)
		return r;
	zarr_view_whole(&z->meta, &v);
	r = zarr_read_into(z, &v, element * j->item, n * j->item, p);
	zarr_unref(z);
	return r;
}

/* Bytes of the whole, in C order. */
static int read_whole(void *arg, uint64_t off, size_t n, void *out)
{
	const struct joining *j = arg;
	uint8_t *p = out;
	unsigned rank = j->l->rank;

	for (uint64_t e = off / j->item, end = (off + n) / j->item; e < end;) {
		uint64_t at[LIMIT_RANK], rest = e, run = 1, element = 0;
		size_t i;
		int r;

		for (unsigned k = rank; k > 0; k--) {
			at[k - 1] = rest % j->l->shape[k - 1];
			rest /= j->l->shape[k - 1];
		}
		i = part_at(j, at, &run);
		if (i == j->l->n_parts)
			return fail(-EINVAL, "an element that no part has");
		run = MIN(run, end - e);
		for (unsigned k = 0; k < rank; k++)
			element = element * j->part[i].extent[k] + at[k] - j->part[i].start[k];
		r = read_part(j, i, element, run, p);
		if (r < 0)
			return r;
		p += run * j->item;
		e += run;
	}
	return 0;
}

static int join(struct plan_leaf *l, const struct draft_part *part)
{
	const struct draft_array *first = &l->part[0]->file->array[0];
	struct draft_array whole = { .dtype = first->stored, .item = first->layout.item, .rank = l->rank };
	struct joining j = { l, part, first->layout.item };
	const struct store *store;
	auto_of(kv) struct kv *kv = NULL;
	struct array_wanted w;
	auto_buf json = { 0 };
	int r;

	memcpy(whole.shape, l->shape, sizeof(whole.shape));
	r = array_wanted_plain(l->source, &whole, &w);
	if (r >= 0)
		r = array_json(&w.layout, first->stored, l->rank, l->shape, &json);
	if (r >= 0)
		r = draft_leaf_kv(l->source, &kv, &store);
	if (r >= 0)
		r = zarr_write_all(&l->source->draft->ns->ckpt->write_env, kv, buf_span(&json),
				   w.layout.omit_fill ? ZARR_FILL_OMIT : ZARR_FILL_STORE, read_whole, &j);
	if (r >= 0)
		l->kv = take(kv);
	return r;
}

int plan_join_parts(struct plan *p, struct plan_leaf *l, bool *ret_shifted)
{
	auto_free struct draft_part *part = calloc(l->n_parts, sizeof(*part));
	int r = 0;

	if (!part)
		return fail(-ENOMEM, "cannot join %zu parts", l->n_parts);
	for (size_t i = 0; i < l->n_parts && r >= 0; i++)
		r = draft_part_of(span_str(l->part[i]->name), &part[i]);
	if (r < 0)
		return r;
	/* Only a database can give stored chunks another name for nothing. */
	*ret_shifted = p->opts.ocdbt && aligned(l, part);
	trace(TRACE_LEAF, "%zu parts of '%s': %s", l->n_parts, l->source->name,
	      *ret_shifted ? "by reference" : "encoded again");
	return *ret_shifted ? 0 : join(l, part);
}
