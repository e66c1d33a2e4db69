/* SPDX-License-Identifier: Apache-2.0 */
/*
 * consolidated.c - the copy of all metadata below a zarr group.
 */
#include "core/step/consolidated.h"

#include "core/base/err.h"
#include "core/base/path.h"
#include "core/io/io.h"

/* A member of v2: the key of a document. Those of attributes name nothing. */
static int see_v2(const struct json *member, consolidated_fn *fn, void *arg)
{
	struct span key = member->name, name = key, file = key;
	const uint8_t *slash = key.n ? memrchr(key.p, '/', key.n) : NULL;
	bool is_array;

	name.n = slash ? (size_t)(slash - key.p) : 0;
	if (slash)
		file = span_from(key, name.n + 1);
	is_array = span_eq(file, span_str(".zarray"));
	return is_array || span_eq(file, span_str(".zgroup")) ? fn(arg, name, is_array, member) : 0;
}

/* A member of v3: the name of an array or a group, with its metadata. */
static int see_v3(const struct json *member, consolidated_fn *fn, void *arg)
{
	struct span type = { 0 };
	int r = json_get_str(member, "node_type", "consolidated metadata", &type);

	return r < 0 ? r : fn(arg, member->name, !span_eq(type, span_str("group")), member);
}

int consolidated_each(const struct json *root, consolidated_fn *fn, void *arg)
{
	bool is_v3 = json_member(root, "node_type") != NULL;
	const struct json *in = is_v3 ? json_member(root, "consolidated_metadata") : root;
	const struct json *all = json_member(in, "metadata");
	int r = 0;

	if (!json_is(all, JSON_OBJECT))
		return 0;
	for (size_t i = 0; i < all->n && r >= 0; i++) {
		const struct json *m = &all->items[i];

		if (m->name.n && io_path_check(m->name, "consolidated metadata") < 0)
			return fail(-EUCLEAN, "'%.*s' is not the name of an array or a group",
				    SPAN_ARG(m->name));
		r = is_v3 ? see_v3(m, fn, arg) : see_v2(m, fn, arg);
	}
	return r < 0 ? r : 1;
}
