/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known_names.c - the names of files that a checkpoint may have, for sources that cannot be listed.
 *
 * These are the documents of a step, of an item, of an array, of a zarr group and of a directory of
 * safetensors files. The items of a
 * step are named in its _CHECKPOINT_METADATA.
 */
#include "core/step/known_names.h"

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/step/children.h"
#include "core/step/item_safetensors.h"
#include "core/step/step_meta.h"

static const char *const names[] = {
	"_METADATA",
	"_CHECKPOINT_METADATA",
	"manifest.ocdbt",
	"checkpoint",
	".zarray",
	"zarr.json",
#define N_FIRST 6
	ITEM_SHARDS_INDEX,
	ITEM_SHARDS_FILE,
#define N_MODEL 8
	"commit_success.txt",
	"orbax.checkpoint",
	"_sharding",
	"_strings.json",
	"array_metadatas/process_0",
	/* Files of items that are not trees. */
	"metadata",
	"data.json",
	"metrics",
	"proto.pbtxt",
	".zgroup",
	/* The items inside a random key. */
	"jax_random_key/_METADATA",
	"jax_random_key_metadata/metadata",
	"np_random_key/_METADATA",
	"np_random_key_metadata/metadata",
	NULL,
};

/* A damaged document names no items. */
static int items_of(struct span text, int (*add)(void *arg, const char *name), void *arg)
{
	auto_json doc = { 0 };
	const struct json *items;
	int r = json_parse(text, "'_CHECKPOINT_METADATA'", &doc);

	if (r < 0)
		return r == -ENOMEM ? r : 0;
	items = json_member(doc.root, "item_handlers");
	for (size_t i = 0; json_is(items, JSON_OBJECT) && i < items->n && r >= 0; i++) {
		auto_free char *name = span_dup_str(items->items[i].name);

		r = name ? add(arg, name) : -ENOMEM;
	}
	return r;
}

const struct store_names known_names = {
	.name = names,
	.n_first = N_FIRST,
	.n_model = N_MODEL,
	.document = "_CHECKPOINT_METADATA",
	.directories = items_of,
};

/* ---- items ---- */

/* Of a handler of Orbax that is not of trees: its files have names of the table. */
static bool is_orbax(struct span handler)
{
	return span_starts(handler, span_str("orbax.checkpoint.")) &&
	       (memmem(handler.p, handler.n, "Json", 4) ||
		memmem(handler.p, handler.n, "Proto", 5));
}

int known_names_any(struct io_dir *dir, const char *rel)
{
	auto_children c = { 0 };
	int r = children_list(dir, rel, true, &c);

	return r < 0 ? r : c.n > (size_t)children_has(&c, "commit_success.txt", false);
}

int known_names_of_item(struct io_dir *dir, const char *rel, const struct step_meta *meta,
			struct span item)
{
	bool is_tree = meta && step_meta_is_tree(meta, item);
	/* Without a document, only those inside a random key are known. */
	bool is_known = is_tree || (!meta && span_ends(item, span_str("_random_key_metadata")));
	struct span handler = { 0 };
	int r;

	if (meta && step_meta_handler(meta, item, &handler) == 1 && handler.p)
		is_known |= is_orbax(handler);
	if (is_tree && !io_dir_can_list(dir))
		return fail(-EOPNOTSUPP,
			    "item '%.*s' is a tree without _METADATA, and its server cannot list: "
			    "its arrays are not known",
			    SPAN_ARG(item));
	r = known_names_any(dir, rel);
	if (r < 0)
		return r;
	if (io_dir_can_list(dir))
		return r || !is_known ?
			       1 :
			       fail(-EUCLEAN, "item '%.*s' has lost the files of its '%.*s'",
				    SPAN_ARG(item), SPAN_ARG(handler));
	if (!r)
		return fail(-EOPNOTSUPP,
			    "item '%.*s' has no file of a known name, and its server cannot list: "
			    "its contents are not known",
			    SPAN_ARG(item));
	if (is_known)
		return 1;
	fail(-EOPNOTSUPP,
	     "item '%.*s' may have more files: its server cannot list, and their names are known "
	     "to its handler alone",
	     SPAN_ARG(item));
	return 0;
}
