/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_release.c - free an opened item, or the data kept for its readers.
 */
#include "core/step/item_impl.h"
#include "core/tree/array_metadata.h"
#include "core/tree/digests.h"
#include "core/tree/sharding.h"
#include "core/tree/strings.h"
#include "core/zarr/meta/meta_cache.h"
#include "core/zarr/stream.h"

static void drop_decoded(struct item *item)
{
	if (item->ckpt->streams)
		streams_drop(item->ckpt->streams, item->owner);
	cache_drop(item->ckpt->cache, item->owner);
}

void item_close_files(struct item *item)
{
	/* A partly decoded stream holds its file open. */
	drop_decoded(item);
	kv_close_files(item->kv);
	if (item->dirs)
		kv_close_files(item->dirs);
	item_below_close_files(item);
}

void item_unref(struct item *item)
{
	if (!item || atomic_fetch_sub_explicit(&item->refs, 1, memory_order_acq_rel) != 1)
		return;
	drop_decoded(item);
	if (item->ckpt->env.in_store)
		meta_cache_drop(item->ckpt->metas, item->owner);
	for (uint32_t i = 0; item->made && i < item->tree->n_nodes; i++)
		kv_free(item->made[i]);
	free(item->made);
	tree_free(item->tree);
	kv_free(item->kv);
	kv_free(item->dirs);
	item_below_release(item);
	io_dir_close(item->dir);
	free(item->gda);
	free(item->remark);
	for (size_t i = 0; i < item->n_shards; i++)
		free(item->shard[i].name);
	free(item->shard);
	io_file_unref(item->aggregate);
	document_release(&item->aggregate_text);
	strings_free(item->strings);
	io_file_unref(item->strings_file);
	io_pins_release(&item->pins);
	shardings_free(item->shardings);
	array_metadatas_free(item->arrays);
	digests_free(item->digests);
	pthread_mutex_destroy(&item->lock);
	pthread_mutex_destroy(&item->access_lock);
	free(item->path);
	free(item);
}

uint64_t item_memory(struct item *item)
{
	uint64_t n = sizeof(*item) + item->aggregate_text.buf.cap;

	for (const struct tree *t = item->tree; t; t = t->made_of)
		n += t->arena.total;
	pthread_mutex_lock(&item->lock);
	if (item->strings)
		n += item->strings->arena.total;
	if (item->shardings)
		n += item->shardings->arena.total;
	if (item->arrays)
		n += item->arrays->arena.total;
	if (item->digests)
		n += item->digests->arena.total;
	pthread_mutex_unlock(&item->lock);
	return n;
}
