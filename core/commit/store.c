/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.c - the common interface of the two kinds of store.
 */
#include "core/commit/store_impl.h"

#include "core/base/err.h"

int store_new(struct io_dir *dir, const struct store_opts *opts, struct store **ret)
{
	struct ocdbt_data_opts data = { .target_size = opts->target_size,
					.dir_mode = opts->dir_mode,
					.sums = true,
					.watcher = opts->watcher };
	struct store *s = calloc(1, sizeof(*s));
	int r = s ? 0 : fail(-ENOMEM, "cannot write to '%s'", dir->path);

	if (r >= 0 && opts->ocdbt)
		r = ocdbt_data_new(dir, &data, &s->data);
	if (r < 0) {
		free(s);
		return r;
	}
	s->opts = *opts;
	if (!s->opts.dir_mode)
		s->opts.dir_mode = 0777;
	s->dir = dir;
	atomic_init(&s->refs, 1);
	atomic_init(&s->next_leaf, opts->first_leaf);
	*ret = s;
	return 0;
}

struct store *store_ref(struct store *s)
{
	atomic_fetch_add(&s->refs, 1);
	return s;
}

void store_free(struct store *s)
{
	if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	ocdbt_data_free(s->data);
	if (s->opts.unwatch)
		s->opts.unwatch(s->opts.watcher.arg);
	io_dir_close(s->dir);
	free(s);
}

bool store_is_ocdbt(const struct store *s)
{
	return s->data != NULL;
}

unsigned store_next_leaf(struct store *s)
{
	return atomic_load(&s->next_leaf);
}

struct io_dir *store_dir(struct store *s)
{
	return s->dir;
}

int store_leaf(struct store *s, struct kv **ret)
{
	return s->data ? store_ocdbt_leaf(s, ret) : store_dir_leaf(s, ret);
}

int store_sync(struct store *s)
{
	/* Files of a directory store are synced one by one when they are written. */
	return s->data ? ocdbt_data_sync(s->data) : 0;
}

int store_each_file(struct store *s, ocdbt_data_fn *each, void *arg)
{
	return s->data ? ocdbt_data_each(s->data, each, arg) : 0;
}
