/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.c - turns the parts of a name into a view of an array: shape, then box, then cast.
 */
#include "core/base/err.h"
#include "handlers/format/format.h"

/*
 * Resolve an index that may count from the end, as in Python. Returns false when it is before the
 * start.
 */
static bool from_end(int64_t at, uint64_t extent, uint64_t *ret)
{
	if (at >= 0) {
		*ret = (uint64_t)at;
		return true;
	}
	if ((uint64_t)-at > extent)
		return false;
	*ret = extent - (uint64_t)-at;
	return true;
}

static int slice_axis(struct zarr_view *v, unsigned axis, const struct name_slice *s, bool pad)
{
	uint64_t extent = v->shape[axis], start = 0, stop = extent, step = (uint64_t)s->step, count;
	bool ok = true;

	if (s->kind == NAME_SLICE_INDEX) {
		ok = from_end(s->start, extent, &start);
		stop = start + 1;
		step = 1;
	} else {
		if (s->has_start)
			ok = from_end(s->start, extent, &start);
		if (s->has_stop)
			ok &= from_end(s->stop, extent, &stop);
	}
	/*
	 * A box is not clipped: one that exceeds the bounds does not exist, unless the mount pads.
	 */
	if (!ok || (!pad && (stop > extent || start > extent)))
		return fail(-ENOENT, "the box leaves axis %u, which has %llu %s", axis,
			    (unsigned long long)extent, noun(extent, "position", "positions"));
	count = stop > start ? div_up(stop - start, step) : 0;
	if (pad && stop > v->shape[axis])
		v->shape[axis] = stop;
	if (count == 0 && start > v->shape[axis])
		start = v->shape[axis];
	return zarr_view_slice(v, axis, start, step, count, s->kind == NAME_SLICE_INDEX);
}

static int apply_box(const struct name_view *name, struct zarr_view *v, bool pad)
{
	unsigned given = 0, axis = 0;
	bool ellipsis = false;

	for (unsigned i = 0; i < name->n_box; i++) {
		given += name->box[i].kind != NAME_SLICE_ELLIPSIS;
		ellipsis |= name->box[i].kind == NAME_SLICE_ELLIPSIS;
	}
	if (given > v->rank)
		return fail(-ENOENT, "the box has %u %s, the array has %u", given,
			    noun(given, "axis", "axes"), v->rank);
	for (unsigned i = 0; i < name->n_box; i++) {
		int r;

		if (name->box[i].kind == NAME_SLICE_ELLIPSIS) {
			axis += v->rank - given;
			continue;
		}
		r = slice_axis(v, axis++, &name->box[i], pad);
		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * Pad and truncate the view to the shape in the name. A shape that makes one axis longer and
 * another one shorter is refused without `pad`: the user nearly always meant a reshape, which would
 * give other elements.
 */
static int apply_shape(const struct name_view *name, bool pad, struct zarr_view *v)
{
	int longer = -1, shorter = -1;

	if (name->n_shape != v->rank)
		return fail(-ENOENT,
			    "the shape has %u %s, the array has %u: a shape pads and truncates, it "
			    "does not reshape",
			    name->n_shape, noun(name->n_shape, "axis", "axes"), v->rank);
	for (unsigned i = 0; i < v->rank; i++) {
		if (name->shape[i] > v->shape[i])
			longer = (int)i;
		else if (name->shape[i] < v->shape[i])
			shorter = (int)i;
	}
	if (longer >= 0 && shorter >= 0 && !pad)
		return fail(-ENOENT,
			    "the shape truncates axis %d (%llu to %llu) and pads axis %d (%llu to "
			    "%llu): this is not a reshape; -o pad_truncate permits it",
			    shorter, (unsigned long long)v->shape[shorter],
			    (unsigned long long)name->shape[shorter], longer,
			    (unsigned long long)v->shape[longer],
			    (unsigned long long)name->shape[longer]);
	return zarr_view_reshape(v, name->n_shape, name->shape);
}

int view_of_name(const struct name_view *name, const struct zarr_meta *m, bool pad,
		 struct zarr_view *ret)
{
	struct zarr_view v;
	int r = 0;

	zarr_view_whole(m, &v);
	if (name->has_shape)
		r = apply_shape(name, pad, &v);
	if (r >= 0 && name->has_box)
		r = apply_box(name, &v, pad);
	if (r < 0)
		return r == -EINVAL ? fail(-ENOENT, "box: %s", err_text(r)) : r;
	if (name->has_cast) {
		v.dtype = dtype_by_user(name->cast);
		if (v.dtype == DTYPE_UNKNOWN)
			return fail(-ENOENT, "'%.*s' is not a dtype", SPAN_ARG(name->cast));
		v.plain &= v.dtype == m->dtype;
	}
	r = zarr_view_finish(&v);
	if (r < 0)
		return r;
	*ret = v;
	return 0;
}
