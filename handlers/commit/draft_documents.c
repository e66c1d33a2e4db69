/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_documents.c - the files that describe a tree: strings, shardings, array metadata and
 * `_METADATA`.
 *
 * Invariants: they are made from the same plan as the arrays, so they cannot disagree.
 */
#include "core/base/err.h"
#include "core/tree/array_metadata.h"
#include "core/tree/sharding.h"
#include "core/tree/strings.h"
#include "handlers/commit/draft_items.h"

/* The record of a leaf in files besides the arrays; empty when its value is in the legacy file. */
static struct leaf_record record_of(const struct plan_leaf *l)
{
	return l->aggregated ? (struct leaf_record){ 0 } : leaf_describe(&l->desc);
}

static int print_strings(struct sealing_item *it)
{
	struct plan *p = it->plan;
	auto_free struct strings_pair *pairs = calloc(p->n_leaves + 1, sizeof(*pairs));
	size_t n = 0;
	int r;

	if (!pairs)
		return fail(-ENOMEM, "cannot list strings");
	for (size_t i = 0; i < p->n_leaves; i++) {
		struct span text = record_of(&p->leaf[i]).text;

		if (text.p)
			pairs[n++] = (struct strings_pair){ p->leaf[i].node->param, text };
	}
	/* Escapes make a text up to six times as long. */
	it->strings.metered = true;
	r = n ? strings_print(pairs, n, &it->strings) : 0;
	return r < 0 || !n ? r : sealing_item_add_text(it, "_strings.json", &it->strings);
}

/* The default sharding: the one device that every machine has. */
#define ONE_DEVICE "{\"sharding_type\": \"SingleDeviceSharding\", \"device_str\": \"TFRT_CPU_0\"}"

static int print_shardings(struct sealing_item *it)
{
	struct plan *p = it->plan;
	auto_free struct sharding_entry *entries = calloc(p->n_leaves + 1, sizeof(*entries));
	size_t n = 0;
	int r;

	if (!entries)
		return fail(-ENOMEM, "cannot list shardings");
	for (size_t i = 0; i < p->n_leaves; i++)
		if (record_of(&p->leaf[i]).is_sharded)
			entries[n++] = (struct sharding_entry){ p->leaf[i].node->param,
								p->leaf[i].desc.sharding.p ?
									p->leaf[i].desc.sharding :
									span_str(ONE_DEVICE) };
	if (!n || !p->opts.sharding_file)
		return 0;
	r = shardings_print(entries, n, &it->sharding);
	return r < 0 ? r : sealing_item_add_text(it, "_sharding", &it->sharding);
}

static int items_describe_array(struct sealing_item *it, struct plan_leaf *l,
				struct array_metadata *ret)
{
	uint64_t *chunk = arena_calloc(&it->arena, LIMIT_RANK, sizeof(*chunk));
	const uint64_t *from = l->chunk;
	struct array_wanted w;
	auto_buf ext = { 0 };
	int r = chunk ? 0 : -ENOMEM;

	/* The chunk shape, whatever the source of the chunks is. */
	if (!from && l->kv && r >= 0) {
		r = array_wanted_plain(l->source, &l->desc.array, &w);
		from = w.layout.chunk;
	} else if (!from && !l->kv) {
		from = l->source->file->array[l->index].layout.chunk;
	}
	if (r < 0)
		return r;
	memcpy(chunk, from, sizeof(w.layout.chunk));
	*ret = (struct array_metadata){ .param = l->node->param,
					.write_rank = l->desc.array.rank,
					.chunk_rank = l->desc.array.rank,
					.write_shape = l->write ? l->write : l->desc.array.shape,
					.chunk_shape = chunk };
	if (!l->desc.key_impl.p)
		return 0;
	r = array_metadata_key_ext(l->desc.key_impl, &ext);
	return r < 0 ? r : arena_keep(&it->arena, buf_span(&ext), &ret->ext);
}

static int print_arrays(struct sealing_item *it)
{
	struct plan *p = it->plan;
	auto_free struct array_metadata *entries = calloc(p->n_leaves + 1, sizeof(*entries));
	size_t n = 0;
	int r = entries ? 0 : fail(-ENOMEM, "cannot describe arrays");

	for (size_t i = 0; i < p->n_leaves && r >= 0; i++)
		if (record_of(&p->leaf[i]).is_sharded)
			r = items_describe_array(it, &p->leaf[i], &entries[n++]);
	if (r < 0 || !n || !p->opts.array_metadata)
		return r;
	r = array_metadatas_print(entries, n, &it->arrays);
	return r < 0 ? r : sealing_item_add_text(it, "array_metadatas/process_0", &it->arrays);
}

int sealing_item_describe(struct sealing_item *it)
{
	int r = print_strings(it);

	if (r < 0)
		return r;
	r = print_shardings(it);
	if (r < 0)
		return r;
	r = print_arrays(it);
	if (r < 0)
		return r;
	r = tree_print_metadata(it->plan->tree, it->plan->opts.rich_types, &it->metadata);
	return r < 0 ? r : sealing_item_add_text(it, "_METADATA", &it->metadata);
}
