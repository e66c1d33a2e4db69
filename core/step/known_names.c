/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known_names.c - the names of files that a checkpoint may have, for sources that cannot be listed.
 *
 * These are the documents of a step, of an item, of an array and of a zarr group. The items of a
 * step are named in its _CHECKPOINT_METADATA.
 */
#include "core/step/known_names.h"

#include "core/base/json.h"

static const char *const names[] = {
	"_METADATA",
	"_CHECKPOINT_METADATA",
	"manifest.ocdbt",
	"checkpoint",
	".zarray",
	"zarr.json",
#define N_FIRST 6
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
	.document = "_CHECKPOINT_METADATA",
	.directories = items_of,
};
