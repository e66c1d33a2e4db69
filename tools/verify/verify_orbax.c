/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_orbax.c - finds what Orbax refuses, although this program reads all values.
 */
#include "core/base/err.h"
#include "tools/verify/verify.h"

void verify_refused(struct verify *v, const char *file, const char *text)
{
	verify_say(v, &(struct finding){ SEVERITY_REFUSED, 2, NULL, file, false, 0, 0, text });
}

static int check_metadata(struct verify *v, const char *path, const struct item *item, bool named)
{
	auto_free char *file = verify_join(path, "_METADATA");
	int r = named ? 1 : item_has_trace(item);

	if (r > 0)
		verify_refused(
			v, file,
			"it is absent: the tree is made of names, and Orbax cannot restore it");
	return MIN(r, 0);
}

/* Orbax restores such arrays only with shardings, which are recorded or given by the caller. */
static int check_shardings(struct verify *v, const char *path, struct item *item)
{
	const struct tree_node *first = NULL;
	const struct tree *t = item->tree;
	auto_free char *file = verify_join(path, "_sharding");
	auto_buf text = { 0 };
	uint64_t n = 0;

	for (uint32_t i = 0; i < t->n_nodes; i++) {
		const struct tree_node *leaf = t->nodes[i];
		struct span sharding;
		int r;

		if (leaf->kind != TREE_LEAF || leaf->value != TREE_VALUE_STORED ||
		    !span_eq(leaf->value_type, span_str("jax.Array")))
			continue;
		r = item_sharding(item, leaf, &sharding);
		if (r < 0)
			return r;
		if (r == 0 && !n++)
			first = leaf;
	}
	if (!first)
		return 0;
	if (buf_addf(&text,
		     "no sharding of %llu leaves is recorded, the first is '%.*s': Orbax restores them "
		     "only with shardings that its caller gives",
		     (unsigned long long)n, SPAN_ARG(first->param)) < 0 ||
	    !buf_str(&text))
		return -ENOMEM;
	verify_refused(v, file, buf_str(&text));
	return 0;
}

int verify_orbax(struct verify *v, const char *path, struct item *item, bool named)
{
	if (item->is_hierarchy || item->is_file || item->is_aggregate || v->level < 2)
		return 0;
	return item->tree->has_metadata ? check_shardings(v, path, item) :
					  check_metadata(v, path, item, named);
}
