/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_options.c - checks mesh=, active=, primary= and similar options, whatever the number of ranks
 * is.
 */
#include "handlers/options/job_options.h"

#include <ctype.h>

#include "core/base/err.h"
#include "core/job/collective.h"

int job_mesh_parse(const char *text, unsigned *axis, unsigned *ret_n)
{
	uint64_t product = 1;
	unsigned n = 0;

	for (const char *at = text; at; n++) {
		unsigned long one;
		char *end;

		one = isdigit((unsigned char)*at) ? strtoul(at, &end, 10) : 0;
		if (n == LIMIT_RANK || one == 0 || (*end && *end != 'x'))
			return fail(-EINVAL, "mesh=%s: it takes numbers as in '2x4'", text);
		if (one > INT32_MAX || !mul_fits(product, one, &product) || product > INT32_MAX)
			return fail(-EINVAL, "mesh=%s is too large", text);
		axis[n] = (unsigned)one;
		at = *end ? end + 1 : NULL;
	}
	*ret_n = n;
	return 0;
}

int job_scaling_parse(const char *text, double *ret)
{
	char *end;
	double v = strtod(text, &end);

	if (*end || end == text || !(v > 0 && v <= 1))
		return fail(-EINVAL,
			    "broadcast_memory_scaling=%s: it takes a number above 0 and at most 1",
			    text);
	*ret = v;
	return 0;
}

bool job_mesh_is_valid(const char *text)
{
	unsigned axis[LIMIT_RANK], n;

	return job_mesh_parse(text, axis, &n) >= 0;
}

bool job_active_is_valid(const char *text)
{
	return collective_parse_active(text, INT32_MAX, NULL, -1) >= 0;
}

bool job_scaling_is_valid(const char *text)
{
	double v;

	return job_scaling_parse(text, &v) >= 0;
}

static int check_mesh(const struct options *o)
{
	unsigned axis[LIMIT_RANK], n = 1;
	int r = o->mesh ? job_mesh_parse(o->mesh, axis, &n) : 0;

	if (r < 0)
		return r;
	if (o->replica_axis_index >= n)
		return fail(-EINVAL, "replica_axis_index=%llu: mesh=%s has %u %s, numbered from 0",
			    (unsigned long long)o->replica_axis_index, o->mesh ? o->mesh : "", n,
			    n == 1 ? "axis" : "axes");
	if (o->mesh && o->primary_replica_id >= axis[o->replica_axis_index])
		return fail(
			-EINVAL,
			"primary_replica_id=%llu: axis %llu of mesh=%s has %u positions, numbered "
			"from 0",
			(unsigned long long)o->primary_replica_id,
			(unsigned long long)o->replica_axis_index, o->mesh,
			axis[o->replica_axis_index]);
	return 0;
}

int job_options_check(const struct options *o)
{
	int r = check_mesh(o);

	if (r < 0)
		return r;
	if (o->primary > INT32_MAX || o->primary_replica_id > INT32_MAX)
		return fail(
			-EINVAL,
			"primary=%llu, primary_replica_id=%llu: no job can have that many ranks",
			(unsigned long long)o->primary, (unsigned long long)o->primary_replica_id);
	/* primary=0 may be the default, which stands for the first active rank. */
	if (o->active && o->primary &&
	    collective_parse_active(o->active, INT32_MAX, NULL, (int)o->primary) == 0)
		return fail(-EINVAL, "primary=%llu is not an active rank: active=%s",
			    (unsigned long long)o->primary, o->active);
	return 0;
}
