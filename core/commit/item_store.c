/* SPDX-License-Identifier: Apache-2.0 */
/* item_store.c - the common interface of the two kinds of store. */
#include "core/commit/item_store_impl.h"

#include "core/base/err.h"

int item_store_new(struct io_dir *dir, const struct item_store_opts *opts, struct item_store **ret)
{
	struct ocdbt_data_opts data = { .target_size = opts->target_size,
					.dir_mode = opts->dir_mode,
					.sums = true,
					.watcher = opts->watcher };
	struct item_store *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return fail(-ENOMEM, "cannot write to '%s'", dir->path);
	/* All leaves are read by one store: a descriptor for each would be too many. */
	r = opts->ocdbt ? ocdbt_data_new(dir, &data, &s->data) :
			  kv_dir_open_in(dir, ".", &s->files);
	if (r < 0) {
		free(s);
		return r;
	}
	s->opts = *opts;
	s->opts.dir_mode = io_dir_mode(opts->dir_mode);
	s->dir = dir;
	atomic_init(&s->refs, 1);
	atomic_init(&s->next_leaf, opts->first_leaf);
	*ret = s;
	return 0;
}

struct item_store *item_store_ref(struct item_store *s)
{
	atomic_fetch_add(&s->refs, 1);
	return s;
}

void item_store_free(struct item_store *s)
{
	if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	ocdbt_data_free(s->data);
	kv_free(s->files);
	if (s->opts.unwatch)
		s->opts.unwatch(s->opts.watcher.arg);
	io_dir_close(s->dir);
	free(s);
}

bool item_store_is_ocdbt(const struct item_store *s)
{
	return s->data != NULL;
}

unsigned item_store_next_leaf(struct item_store *s)
{
	return atomic_load(&s->next_leaf);
}

struct io_dir *item_store_dir(struct item_store *s)
{
	return s->dir;
}

int item_store_leaf(struct item_store *s, struct kv **ret)
{
	return s->data ? item_store_ocdbt_leaf(s, ret) : item_store_dir_leaf(s, ret);
}

int item_store_sync(struct item_store *s)
{
	/* Files of a directory store are synced one by one when they are written. */
	return s->data ? ocdbt_data_sync(s->data) : 0;
}

int item_store_each_file(struct item_store *s, ocdbt_data_fn *each, void *arg)
{
	return s->data ? ocdbt_data_each(s->data, each, arg) : 0;
}
