/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharding.c - one sharding: text <-> struct, and the box of each device.
 *
 * sharding_file.c has the file of many shardings.
 *
 * Invariants: a mesh axis occurs at most once in a spec; ids, if recorded, are as many as the mesh
 * has devices.
 */
#include "core/tree/sharding.h"

#include <inttypes.h>

#include "core/base/err.h"
#include "core/base/json_pull.h"

static int sharding_no_memory(void)
{
	return fail(-ENOMEM, "cannot read a sharding: not enough memory");
}

void sharding_free(struct sharding *s)
{
	if (!s)
		return;
	arena_release(&s->arena);
	free(s);
}

/* ---- text -> struct ---- */

struct parsing {
	struct json_pull in;
	struct sharding *s;
	bool has_mesh, has_names, has_spec, has_device;
	struct span type;
	struct span spec; /* unparsed: it needs the names, which may come later */
	struct buf ids;   /* of int64_t */
};

static int keep_text(struct parsing *p, struct span *ret)
{
	struct span s;
	int r = json_pull_str(&p->in, &s);

	return r < 0 ? r : arena_keep(&p->s->arena, s, ret);
}

static int take_texts(struct parsing *p, struct span *texts, unsigned *n)
{
	int r = json_pull_enter(&p->in, JSON_ARRAY);

	*n = 0;
	while (r >= 0 && (r = json_pull_next(&p->in, NULL)) > 0) {
		if (*n == LIMIT_RANK)
			return json_pull_bad(&p->in, "too many mesh axes");
		r = keep_text(p, &texts[(*n)++]);
	}
	return r;
}

static int take_mesh(struct parsing *p, unsigned *n)
{
	struct sharding *s = p->s;
	int r = json_pull_enter(&p->in, JSON_ARRAY);

	*n = 0;
	s->n_devices = 1;
	while (r >= 0 && (r = json_pull_next(&p->in, NULL)) > 0) {
		int64_t v;

		if (*n == LIMIT_RANK)
			return json_pull_bad(&p->in, "too many mesh axes");
		r = json_pull_int(&p->in, &v);
		if (r < 0)
			return r;
		if (v < 1)
			return json_pull_bad(&p->in, "a mesh axis is not positive");
		s->mesh[(*n)++] = (uint64_t)v;
		if (!mul_fits(s->n_devices, (uint64_t)v, &s->n_devices) ||
		    s->n_devices > LIMIT_SHARDING_DEVICES)
			return fail(-EFBIG, "%s: the mesh has more than %d devices", p->in.what,
				    LIMIT_SHARDING_DEVICES);
	}
	return r;
}

/* {"id": 5} */
static int take_device(struct parsing *p)
{
	int64_t id = 0;
	bool has = false;
	struct span name;
	int r = json_pull_enter(&p->in, JSON_OBJECT);

	while (r >= 0 && (r = json_pull_next(&p->in, &name)) > 0) {
		if (!span_eq(name, span_str("id"))) {
			r = json_pull_skip(&p->in);
			continue;
		}
		r = json_pull_int(&p->in, &id);
		has = true;
	}
	if (r < 0)
		return r;
	if (!has)
		return json_pull_bad(&p->in, "a device has no id");
	return buf_add(&p->ids, &id, sizeof(id));
}

/* Nested lists of devices, of any depth; only their order matters. */
static int take_devices(struct parsing *p)
{
	unsigned depth = p->in.depth;
	int r;

	do {
		r = json_pull_kind(&p->in);
		if (r < 0)
			return r;
		r = r == JSON_ARRAY ? json_pull_enter(&p->in, JSON_ARRAY) : take_device(p);
		while (r >= 0 && p->in.depth > depth) {
			r = json_pull_next(&p->in, NULL);
			if (r)
				break;
		}
	} while (r > 0);
	return r;
}

/* {"mesh": [...]}, null or {} */
static int take_device_mesh(struct parsing *p)
{
	struct span name;
	int r = json_pull_kind(&p->in);

	buf_clear(&p->ids);
	if (r == JSON_NULL)
		return json_pull_skip(&p->in);
	r = json_pull_enter(&p->in, JSON_OBJECT);
	while (r >= 0 && (r = json_pull_next(&p->in, &name)) > 0)
		r = span_eq(name, span_str("mesh")) ? take_devices(p) : json_pull_skip(&p->in);
	return r;
}

static int take_members(struct parsing *p, unsigned *n_names, unsigned *n_types)
{
	struct sharding *s = p->s;
	struct span name;
	int r = json_pull_enter(&p->in, JSON_OBJECT);

	while (r >= 0 && (r = json_pull_next(&p->in, &name)) > 0) {
		if (span_eq(name, span_str("sharding_type"))) {
			r = keep_text(p, &p->type);
		} else if (span_eq(name, span_str("shape"))) {
			p->has_mesh = true;
			r = take_mesh(p, &s->n_mesh);
		} else if (span_eq(name, span_str("axis_names"))) {
			p->has_names = true;
			r = take_texts(p, s->names, n_names);
		} else if (span_eq(name, span_str("axis_types"))) {
			r = json_pull_kind(&p->in) == JSON_NULL ? json_pull_skip(&p->in) :
								  take_texts(p, s->types, n_types);
		} else if (span_eq(name, span_str("partition_spec"))) {
			p->has_spec = true;
			r = json_pull_raw(&p->in, &p->spec);
		} else if (span_eq(name, span_str("device_mesh"))) {
			r = take_device_mesh(p);
		} else if (span_eq(name, span_str("device_str"))) {
			p->has_device = true;
			r = keep_text(p, &s->device);
		} else {
			r = json_pull_skip(&p->in);
		}
	}
	return r < 0 ? r : json_pull_end(&p->in);
}

/* Take the name of a mesh axis that no earlier array axis has; used has a bit per mesh axis. */
static int take_axis(struct json_pull *in, const struct sharding *s, uint32_t *used, uint8_t *ret)
{
	struct span name;
	int r = json_pull_str(in, &name);

	for (unsigned i = 0; i < s->n_mesh && r >= 0; i++) {
		if (!span_eq(s->names[i], name))
			continue;
		if (*used >> i & 1)
			return json_pull_bad(in, "a mesh axis occurs twice in partition_spec");
		*used |= (uint32_t)1 << i;
		*ret = (uint8_t)i;
		return 0;
	}
	return r < 0 ? r :
		       err_at(json_pull_bad(in, "partition_spec names no axis of the mesh"),
			      "'%.*s'", SPAN_ARG(name));
}

/* null, "x" or ["x", "y"] */
static int take_spec_axis(struct json_pull *in, struct sharding *s, uint32_t *used,
			  struct sharding_axis *ret)
{
	uint8_t axes[LIMIT_RANK];
	unsigned n = 0;
	int r = json_pull_kind(in);

	if (r < 0)
		return r;
	if (r == JSON_NULL) {
		ret->format = SHARDING_WHOLE;
		r = json_pull_skip(in);
	} else if (r == JSON_ARRAY) {
		ret->format = SHARDING_LIST;
		r = json_pull_enter(in, JSON_ARRAY);
		/* Each axis occurs at most once, so there are at most LIMIT_RANK. */
		while (r >= 0 && (r = json_pull_next(in, NULL)) > 0)
			r = take_axis(in, s, used, &axes[n++]);
	} else {
		ret->format = SHARDING_ONE;
		r = take_axis(in, s, used, &axes[n++]);
	}
	if (r < 0)
		return r;
	ret->n = n;
	ret->mesh_axes = arena_dup(&s->arena, span_of(axes, n));
	return ret->mesh_axes ? 0 : sharding_no_memory();
}

static int take_spec(struct span raw, const char *what, struct sharding *s)
{
	auto_json_pull in = { 0 };
	uint32_t used = 0;
	int r;

	json_pull_init(&in, raw, what);
	r = json_pull_enter(&in, JSON_ARRAY);
	while (r >= 0 && (r = json_pull_next(&in, NULL)) > 0) {
		if (s->n_spec == LIMIT_RANK)
			return json_pull_bad(&in, "partition_spec has too many axes");
		r = take_spec_axis(&in, s, &used, &s->spec[s->n_spec++]);
	}
	return r;
}

static int sharding_broken(const struct parsing *p, const char *why)
{
	return fail(-EUCLEAN, "%s: %s", p->in.what, why);
}

static int set_named(struct parsing *p, unsigned n_names, unsigned n_types)
{
	struct sharding *s = p->s;
	int r;

	if (!p->has_mesh || !p->has_names || !p->has_spec)
		return sharding_broken(p, "shape, axis_names or partition_spec is missing");
	if (n_names != s->n_mesh || (n_types && n_types != s->n_mesh))
		return sharding_broken(p, "the mesh has not as many names or types as axes");
	for (unsigned i = 0; i < n_names; i++)
		for (unsigned k = 0; k < i; k++)
			if (span_eq(s->names[i], s->names[k]))
				return sharding_broken(p, "two mesh axes have one name");
	s->kind = SHARDING_NAMED;
	s->has_types = n_types > 0;
	r = take_spec(p->spec, p->in.what, s);
	if (r < 0 || !p->ids.n)
		return r;
	if (p->ids.n / sizeof(int64_t) != s->n_devices)
		return sharding_broken(p, "device_mesh has not as many devices as the mesh");
	s->ids = (void *)arena_dup(&s->arena, buf_span(&p->ids));
	return s->ids ? 0 : sharding_no_memory();
}

static int sharding_set_kind(struct parsing *p, unsigned n_names, unsigned n_types)
{
	if (!p->type.p)
		return sharding_broken(p, "sharding_type is missing");
	if (span_eq(p->type, span_str("NamedSharding")))
		return set_named(p, n_names, n_types);
	if (!span_eq(p->type, span_str("SingleDeviceSharding")))
		return fail(-EOPNOTSUPP, "%s: sharding type '%.*s' is not supported", p->in.what,
			    SPAN_ARG(p->type));
	if (!p->has_device)
		return sharding_broken(p, "device_str is missing");
	p->s->kind = SHARDING_SINGLE;
	p->s->n_devices = 1;
	return 0;
}

int sharding_parse(struct span text, const char *what, struct sharding **ret)
{
	auto_of(sharding) struct sharding *s = calloc(1, sizeof(*s));
	struct parsing p = { .s = s };
	unsigned n_names = 0, n_types = 0;
	int r;

	if (!s)
		return sharding_no_memory();
	s->arena.metered = p.ids.metered = true;
	json_pull_init(&p.in, text, what);
	r = take_members(&p, &n_names, &n_types);
	if (r >= 0)
		r = sharding_set_kind(&p, n_names, n_types);
	json_pull_release(&p.in);
	buf_release(&p.ids);
	if (r < 0)
		return r;
	*ret = take(s);
	return 0;
}

/* ---- struct -> text ---- */

static int put_texts(struct buf *out, const struct span *texts, unsigned n)
{
	int r = buf_add_byte(out, '[');

	for (unsigned i = 0; i < n && r >= 0; i++) {
		r = buf_add_str(out, i ? ", " : "");
		if (r < 0)
			return r;
		r = json_put_str(out, texts[i], JSON_PYTHON);
	}
	return r < 0 ? r : buf_add_byte(out, ']');
}

/*
 * Print devices as lists nested like the mesh: brackets open and close where an axis begins and
 * ends.
 */
static int put_devices(struct buf *out, const struct sharding *s)
{
	int r = 0;

	for (uint64_t i = 0; i < s->n_devices && r >= 0; i++) {
		unsigned opens = 0, closes = 0;
		uint64_t size = 1;

		for (unsigned k = s->n_mesh; k > 0; k--) {
			size *= s->mesh[k - 1];
			opens += i % size == 0;
			closes += (i + 1) % size == 0;
		}
		r = buf_add_str(out, i ? ", " : "");
		while (opens-- && r >= 0)
			r = buf_add_byte(out, '[');
		if (r < 0)
			return r;
		r = buf_addf(out, "{\"id\": %" PRId64 "}", s->ids[i]);
		while (closes-- && r >= 0)
			r = buf_add_byte(out, ']');
	}
	return r;
}

static int put_spec(struct buf *out, const struct sharding *s)
{
	int r = buf_add_byte(out, '[');

	for (unsigned i = 0; i < s->n_spec && r >= 0; i++) {
		const struct sharding_axis *a = &s->spec[i];
		struct span names[LIMIT_RANK];

		for (unsigned k = 0; k < a->n; k++)
			names[k] = s->names[a->mesh_axes[k]];
		r = buf_add_str(out, i ? ", " : "");
		if (r < 0)
			return r;
		r = a->format == SHARDING_WHOLE ? buf_add_str(out, "null") :
		    a->format == SHARDING_ONE   ? json_put_str(out, names[0], JSON_PYTHON) :
						  put_texts(out, names, a->n);
	}
	return r < 0 ? r : buf_add_byte(out, ']');
}

static int put_named(struct buf *out, const struct sharding *s)
{
	auto_buf shape = { 0 }, names = { 0 }, types = { 0 }, spec = { 0 }, devices = { 0 };

	if (json_put_uints(&shape, s->mesh, s->n_mesh, JSON_PYTHON) < 0 ||
	    put_texts(&names, s->names, s->n_mesh) < 0 ||
	    (s->has_types && put_texts(&types, s->types, s->n_mesh) < 0) ||
	    put_spec(&spec, s) < 0 || (s->ids && put_devices(&devices, s) < 0))
		return -ENOMEM;
	return buf_addf(out,
			"{\"sharding_type\": \"NamedSharding\", \"shape\": %.*s, "
			"\"axis_names\": %.*s%s%.*s, \"partition_spec\": %.*s%s%.*s%s}",
			SPAN_ARG(shape), SPAN_ARG(names), s->has_types ? ", \"axis_types\": " : "",
			SPAN_ARG(types), SPAN_ARG(spec),
			s->ids ? ", \"device_mesh\": {\"mesh\": " : "", SPAN_ARG(devices),
			s->ids ? "}" : "");
}

int sharding_print(const struct sharding *s, struct buf *ret)
{
	auto_buf device = { 0 };

	if (s->kind == SHARDING_NAMED)
		return put_named(ret, s);
	if (json_put_str(&device, s->device, JSON_PYTHON) < 0)
		return -ENOMEM;
	return buf_addf(ret, "{\"sharding_type\": \"SingleDeviceSharding\", \"device_str\": %.*s}",
			SPAN_ARG(device));
}

/* ---- boxes ---- */

/* The number of parts into which a spec divides its axis. */
static uint64_t parts_of(const struct sharding *s, const struct sharding_axis *a)
{
	uint64_t parts = 1;

	for (unsigned i = 0; i < a->n; i++)
		parts *= s->mesh[a->mesh_axes[i]];
	return parts;
}

int sharding_check(const struct sharding *s, const uint64_t *shape, unsigned rank)
{
	if (s->n_spec > rank)
		return fail(-EINVAL, "the partition spec has %u %s, the array %u", s->n_spec,
			    noun(s->n_spec, "axis", "axes"), rank);
	for (unsigned i = 0; i < s->n_spec; i++)
		if (shape[i] % parts_of(s, &s->spec[i]))
			return fail(-EINVAL,
				    "axis %u of %" PRIu64 " cannot be cut in %" PRIu64 " equal "
				    "parts",
				    i, shape[i], parts_of(s, &s->spec[i]));
	return 0;
}

/* The number at the end of "cpu:3" and "TFRT_CPU_3"; 0 when there is none. */
static int64_t id_of_device(struct span text)
{
	int64_t id = 0;
	size_t from = text.n;

	while (from > 0 && text.p[from - 1] >= '0' && text.p[from - 1] <= '9')
		from--;
	for (size_t i = from; i < text.n && id < INT64_MAX / 10 - 1; i++)
		id = id * 10 + (text.p[i] - '0');
	return id;
}

void sharding_box(const struct sharding *s, const uint64_t *shape, unsigned rank, uint64_t i,
		  struct sharding_box *ret)
{
	uint64_t at[LIMIT_RANK]; /* place of the device in the mesh */
	uint32_t cuts = 0;       /* mesh axes along which boxes differ */
	uint64_t left = i;

	for (unsigned k = s->n_mesh; k > 0; k--) {
		at[k - 1] = left % s->mesh[k - 1];
		left /= s->mesh[k - 1];
	}
	for (unsigned d = 0; d < rank; d++) {
		const struct sharding_axis *a = d < s->n_spec ? &s->spec[d] : NULL;
		uint64_t part = 0, size = a ? shape[d] / parts_of(s, a) : shape[d];

		for (unsigned k = 0; a && k < a->n; k++) {
			part = part * s->mesh[a->mesh_axes[k]] + at[a->mesh_axes[k]];
			/* The parts of an empty axis are all equal. */
			if (shape[d])
				cuts |= (uint32_t)1 << a->mesh_axes[k];
		}
		ret->start[d] = part * size;
		ret->stop[d] = ret->start[d] + size;
	}
	ret->replica = 0;
	for (unsigned k = 0; k < s->n_mesh; k++)
		if (!(cuts >> k & 1))
			ret->replica = ret->replica * s->mesh[k] + at[k];
	ret->device = s->kind == SHARDING_SINGLE ? id_of_device(s->device) :
		      s->ids                     ? s->ids[i] :
						   (int64_t)i;
}
