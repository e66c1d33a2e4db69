/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_orbax.c - finds what Orbax refuses, although this program reads all values.
 */
#include "core/base/array.h"
#include "core/base/err.h"
#include "core/tree/sharding.h"
#include "core/zarr/zarr.h"
#include "tools/verify/verify.h"

void verify_refused(struct verify *v, const char *file, const char *text)
{
	verify_say(v, &(struct finding){ SEVERITY_REFUSED, 2, NULL, file, false, 0, 0, text });
}

/* Whether Orbax makes a sharding of the text; of a kind that JAX has removed it does not. */
static bool is_sharding(struct span text)
{
	auto_of(sharding) struct sharding *s = NULL;
	int r = sharding_parse(text, "'_sharding'", &s);

	if (r < 0)
		err_clear();
	return r >= 0 || r == -ENOMEM;
}

/* Orbax restores such arrays only with shardings, which are recorded or given by the caller. */
static int check_shardings(struct verify *v, const char *path, struct item *item)
{
	const struct tree_node *first = NULL;
	const struct tree *t = item->tree;
	auto_free char *file = verify_join(path, "_sharding");
	struct span good = { 0 }; /* most leaves have the text of their neighbour */
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
		if (r > 0 && (span_eq(sharding, good) || is_sharding(sharding)))
			good = sharding;
		else if (!n++)
			first = leaf;
	}
	if (!first)
		return 0;
	if (buf_addf(&text,
		     "no sharding of %llu %s is recorded that Orbax reads, the first is '%.*s': it "
		     "restores them only with shardings that its caller gives",
		     (unsigned long long)n, noun(n, "leaf", "leaves"),
		     SPAN_ARG(first->param)) < 0 ||
	    !buf_str(&text))
		return -ENOMEM;
	verify_refused(v, file, buf_str(&text));
	return 0;
}

int verify_orbax(struct verify *v, const char *path, struct item *item, bool named)
{
	auto_free char *file = verify_join(path, "_METADATA");
	int r;

	if (item->is_hierarchy || item->is_file || item->is_aggregate || v->level < 2)
		return 0;
	if (item->tree->has_metadata)
		return check_shardings(v, path, item);
	r = named ? 1 : item_has_trace(item);
	if (r > 0)
		verify_refused(
			v, file,
			"it is absent: the tree is made of names, and Orbax cannot restore it");
	return MIN(r, 0);
}

/* ---- the arrays of leaves ---- */

/*
 * Orbax looks for arrays where _METADATA says that they are, and in the format that it says; that
 * is v2 if it does not mention the format.
 */
static bool orbax_is_elsewhere(struct item *item, const struct tree_node *leaf,
			       const struct zarr *z, struct buf *ret)
{
	const struct tree *t = item->tree;
	bool in_database = item_has_nodes(item, z->kv);

	if (!t->has_metadata || !tree_leaf_is_stored(leaf) || tree_leaf_has_spec(leaf))
		return false;
	if (t->has_use_ocdbt && t->use_ocdbt != in_database)
		buf_addf(ret,
			 "_METADATA has use_ocdbt: %s, and its array is in a %s: Orbax does not "
			 "find it",
			 t->use_ocdbt ? "true" : "false", in_database ? "database" : "directory");
	else if (t->use_zarr3 != (z->meta.format == 3))
		buf_addf(
			ret,
			"_METADATA has use_zarr3: %s, and its array is of zarr v%u: Orbax does not "
			"find it",
			t->use_zarr3 ? "true" : "false", z->meta.format);
	return ret->n > 0;
}

/* The words of a key of each implementation that JAX has. */
static uint64_t key_words(struct span impl)
{
	static const struct {
		const char *impl;
		uint64_t words;
	} known[] = {
		{ "threefry2x32", 2 }, { "rbg", 4 },        { "unsafe_rbg", 4 },
		{ "philox2x32", 1 },   { "philox4x32", 2 },
	};

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (span_eq(impl, span_str(known[i].impl)))
			return known[i].words;
	return 0;
}

static bool has_other_keys(struct item *item, const struct tree_node *leaf,
			   const struct zarr_meta *m, struct buf *ret)
{
	uint64_t words, row = m->rank ? m->shape[m->rank - 1] : 0;
	struct span impl;
	int r = item_prng_impl(item, leaf, &impl);

	err_clear();
	words = r == 1 ? key_words(impl) : row;
	if (words == row || !m->rank)
		return false;
	if (!words)
		buf_addf(ret,
			 "array_metadatas say that it holds random keys of '%.*s', which JAX does "
			 "not have: Orbax restores them only for programs that add it",
			 SPAN_ARG(impl));
	else
		buf_addf(ret,
			 "array_metadatas say that it holds random keys of '%.*s', which have %llu "
			 "words, and its array has %llu: Orbax refuses them",
			 SPAN_ARG(impl), (unsigned long long)words, (unsigned long long)row);
	return true;
}

bool verify_orbax_array(struct item *item, const struct tree_node *leaf, const struct zarr *z,
			struct buf *ret)
{
	return orbax_is_elsewhere(item, leaf, z, ret) || has_other_keys(item, leaf, &z->meta, ret);
}
