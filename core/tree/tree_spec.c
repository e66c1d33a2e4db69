/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_spec.c - TensorStore specs inside the legacy aggregate file.
 *
 * T5X (version 3 of its files) writes an array into a directory beside the file, and in the array's
 * place {"driver": "zarr", "dtype": "float32", "kvstore": {"driver": "file", "path": "target.w"},
 * "metadata": {"shape": [3], ...}}. The path is relative to the checkpoint, whatever the driver of
 * the kvstore: a checkpoint may have been copied from a bucket. TensorStore before 0.1.14 put it
 * beside the kvstore.
 */
#include "core/base/err.h"
#include "core/tree/tree_msgpack.h"

static const struct tree_node *member(const struct tree_node *map, const char *key)
{
	for (const struct tree_node *c = map && map->kind == TREE_DICT ? map->first : NULL; c;
	     c = c->next)
		if (span_eq(c->key, span_str(key)))
			return c;
	return NULL;
}

/* The text of a leaf; p is NULL when it is none. */
static struct span text_of(const struct tree_node *node)
{
	bool is_text = node && node->kind == TREE_LEAF && node->aggregate &&
		       node->aggregate->kind == AGGREGATE_STRING;

	return is_text ? node->aggregate->s : span_of(NULL, 0);
}

bool aggregate_is_spec(const struct tree_node *map)
{
	const struct tree_node *kvstore = member(map, "kvstore"), *meta = member(map, "metadata");

	return text_of(member(map, "driver")).p &&
	       (text_of(member(kvstore, "driver")).p ||
		(text_of(kvstore).p && meta && meta->kind == TREE_DICT));
}

static bool tree_spec_is_one_of(struct span s, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (span_eq(s, span_str(names[i])))
			return true;
	return false;
}

/* Why the array cannot be found or read, or NULL. */
static const char *reason_against(const struct tree_node *map, struct span path)
{
	static const char *const drivers[] = { "zarr", "zarr3" };
	static const char *const stores[] = { "file", "gfile", "gcs", "gs", "s3" };
	struct span store = text_of(member(member(map, "kvstore"), "driver"));

	if (!tree_spec_is_one_of(text_of(member(map, "driver")), drivers, ARRAY_LEN(drivers)))
		return "its driver is neither 'zarr' nor 'zarr3'";
	if (!tree_spec_is_one_of(store, stores, ARRAY_LEN(stores)))
		return "its kvstore is not of files";
	if (member(map, "transform"))
		return "it has a transform";
	if (member(map, "field"))
		return "it selects a field";
	if (!path.n)
		return "it has no path";
	return path.p[0] == '/' ? "its path does not begin in the checkpoint" : NULL;
}

/* Take the shape that the spec gives, if it gives one that an array can have. */
static int tree_spec_take_shape(struct tree *tree, const struct tree_node *shape,
				struct aggregate *ret)
{
	uint64_t *axes;
	unsigned n = 0;

	if (!shape || shape->kind != TREE_LIST || shape->n_children > AGGREGATE_RANK_MAX)
		return 0;
	axes = arena_calloc(&tree->arena, shape->n_children + 1, sizeof(*axes));
	if (!axes)
		return fail(-ENOMEM, "cannot read a spec: not enough memory");
	for (const struct tree_node *c = shape->first; c; c = c->next) {
		if (c->kind != TREE_LEAF || !c->aggregate || c->aggregate->kind != AGGREGATE_INT ||
		    c->aggregate->i < 0)
			return 0;
		axes[n++] = (uint64_t)c->aggregate->i;
	}
	ret->rank = (uint8_t)n;
	ret->shape = axes;
	return 0;
}

int aggregate_spec(struct tree *tree, const struct tree_node *map, struct aggregate *ret,
		   struct span *ret_path)
{
	struct span dtype = text_of(member(map, "dtype")),
		    path = text_of(member(member(map, "kvstore"), "path"));
	struct span copy;
	int r;

	if (!path.p)
		path = text_of(member(map, "path"));
	while (path.n && path.p[path.n - 1] == '/')
		path.n--;
	*ret = (struct aggregate){ .kind = AGGREGATE_SPEC };
	ret->unreadable = reason_against(map, path);
	r = arena_keep(&tree->arena, path, ret_path);
	if (r < 0)
		return r;
	if (dtype.n) {
		r = arena_keep(&tree->arena, dtype, &copy);
		ret->dtype = r < 0 ? NULL : (const char *)copy.p;
	}
	return r < 0 ? r :
		       tree_spec_take_shape(tree, member(member(map, "metadata"), "shape"), ret);
}
