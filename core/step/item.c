/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item.c - open a PyTree item and its store.
 *
 * item_tree.c reads its tree, item_documents.c the small files beside it. The
 * files that are there decide in which store the arrays are: a database at the
 * top, parts of a database that were never merged, or a directory for each
 * leaf.
 */
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/meter.h"
#include "core/ocdbt/ocdbt.h"
#include "core/step/item_impl.h"
#include "core/step/step_name.h"

#define COPY_LEAVES 4 /* the first leaves of an item; if all of them are files, it is a copy */

/* ---- the store ---- */

/* Open the parts of a database that was never merged. Takes dir if there are any. */
static int open_parts_of_database(struct item *item, struct io_dir *dir,
				  const struct ocdbt_open_opts *opts)
{
	auto_ocdbt_parts parts = { 0 };
	auto_buf names = { 0 };
	int r = ocdbt_parts_find(dir, &parts);

	if (r < 0)
		return r;
	if (parts.n == 0) {
		item->has_bare_parts = parts.n_bare;
		err_clear();
		return 0;
	}
	r = ocdbt_parts_text(&parts, &names);
	if (r < 0)
		return r;
	r = ocdbt_open_union(dir, &parts, item->ckpt->cache, opts, &item->kv);
	if (r < 0)
		return r;
	item->is_unmerged = true;
	log_info("item '%s' was never merged: it is read as the union of its parts, %.*s",
		 item->path, SPAN_ARG(buf_span(&names)));
	return 0;
}

static int open_database(struct item *item)
{
	struct ocdbt_open_opts opts = { .name = item->path };
	auto_of(io_dir) struct io_dir *dir = NULL;
	int r = io_dir_sub(item->dir, ".", &dir);

	if (r < 0)
		return r;
	r = ocdbt_open(dir, item->ckpt->cache, &opts, &item->kv);
	if (r == -ENOENT)
		r = open_parts_of_database(item, dir, &opts);
	if (r < 0 || !item->kv)
		return r;
	dir = NULL; /* taken */
	item->is_ocdbt = true;
	return 0;
}

static int open_stores(struct item *item)
{
	struct kv *dirs = NULL;
	int r = open_database(item);

	if (r < 0)
		return r;
	r = kv_dir_open_in(item->dir, ".", &dirs);
	if (r < 0)
		return r;
	kv_dir_use_table(dirs);
	/* In a mixed tree some leaves are directories beside the database. */
	if (item->kv)
		item->dirs = dirs;
	else
		item->kv = dirs;
	return 0;
}

/* ---- opening ---- */

/* The arrays of a flax file that many hosts wrote are in a directory beside it. */
static int open_gda(struct item *item, const char *name)
{
	auto_free char *gda = str_fmt("%s" STEP_NAME_GDA, name);
	int r = gda ? kv_dir_open_in(item->dir, gda, &item->kv) :
		      fail(-ENOMEM, "cannot open '%s'", name);

	if (r == -ENOENT || r == -ENOTDIR) {
		err_clear();
		return kv_mem_new(item->ckpt->io, &item->kv);
	}
	if (r < 0)
		return r;
	item->gda = take(gda);
	return 0;
}

/* A flax checkpoint is a single file, which contains the tree. */
static int open_file_item(struct item *item, const char *path)
{
	const char *slash = strrchr(path, '/');
	auto_free char *parent = slash ? span_dup_str(span_of(path, (size_t)(slash - path))) :
					 strdup(".");
	int r;

	if (!parent)
		return fail(-ENOMEM, "cannot open '%s'", path);
	r = io_dir_sub(item->within, parent, &item->dir);
	if (r < 0)
		return r;
	r = open_gda(item, slash ? slash + 1 : path);
	return r < 0 ? r : item_read_file(item, slash ? slash + 1 : path);
}

static int open_parts(struct item *item, const char *path)
{
	struct stat st;
	int r = io_stat(item->within, path, &st);

	if (r < 0)
		return r;
	item->id = file_id_of(&st);
	item->is_file = S_ISREG(st.st_mode);
	if (item->ckpt->only_item && !item->ckpt->is_flax)
		return item_read_safetensors(item, path);
	if (item->is_file)
		return open_file_item(item, path);
	r = io_dir_sub(item->within, path, &item->dir);
	if (r < 0)
		return r;
	io_pins_begin(&item->pins, item->dir);
	r = open_stores(item);
	return r < 0 ? r : item_read_tree(item);
}

/*
 * The names that the mount adds at the top of the tree; a key equal to one of these needs another
 * name.
 */
static unsigned names_of_ours(const struct item *item)
{
	const struct tree_node *root = item->tree->root;
	unsigned ours = NAME_OURS_METADATA;
	struct stat st;

	if (item->ckpt->shape == SHAPE_ITEM)
		ours |= NAME_OURS_CONTROL;
	/* Checked only if a key has this name. If the check fails, the file may exist. */
	if (root->kind != TREE_LEAF && tree_child_by_key(root, span_str("_CHECKPOINT_METADATA")) &&
	    io_stat(item->dir, "_CHECKPOINT_METADATA", &st) != -ENOENT)
		ours |= NAME_OURS_STEP;
	err_clear();
	return ours;
}

/*
 * Programs also copy `_METADATA` when they copy what a mount shows. Such a directory has the names
 * of an item, and none of its arrays: its leaves are files.
 */
static int check_not_copied(const struct item *item)
{
	const struct tree *t = item->tree;
	struct stat st;
	int n = 0;

	/* Nobody copies that to a server, where it would cost a request. */
	if (!t->has_metadata || item->is_ocdbt || item->aggregate || io_dir_in_store(item->dir))
		return 0;
	for (uint32_t i = 0; i < t->n_nodes && n < COPY_LEAVES; i++) {
		auto_buf path = { 0 };
		int r;

		if (t->nodes[i]->kind != TREE_LEAF)
			continue;
		if (tree_path(t->nodes[i], &path) < 0 || !buf_str(&path))
			return -ENOMEM;
		r = io_stat(item->dir, buf_str(&path), &st);
		if (err_is_transient(r))
			return r;
		err_clear();
		if (r < 0 || !S_ISREG(st.st_mode))
			return 0;
		n++;
	}
	return n == 0 ? 0 :
			fail(-EINVAL, "it is a copy of files that a mount shows, not a checkpoint: "
				      "`pytreefs save` makes a checkpoint of it");
}

static int open_tree(struct item *item, const char *path, bool as_shown)
{
	const struct ckpt_opts *opts = &item->ckpt->opts;
	int r = open_parts(item, path);

	if (r < 0)
		return r;
	r = tree_find_shared(item->tree);
	if (r < 0)
		return r;
	if (as_shown && opts->retree)
		r = opts->retree(opts->retree_arg, path, &item->tree);
	if (r < 0)
		return r;
	r = tree_name(item->tree, names_of_ours(item), opts->ext_of, opts->ext_arg);
	return r < 0 ? r : check_not_copied(item);
}

static int open_item(struct ckpt *ckpt, struct io_dir *within, const char *path, bool as_shown,
		     struct item **ret)
{
	auto_of(item) struct item *item = calloc(1, sizeof(*item));
	int r;

	if (!item)
		return fail(-ENOMEM, "cannot open item '%s'", path);
	atomic_init(&item->refs, 1);
	pthread_mutex_init(&item->lock, NULL);
	pthread_mutex_init(&item->access_lock, NULL);
	pthread_mutex_init(&item->below_lock, NULL);
	item->below_listed = true;
	item->ckpt = ckpt;
	item->within = within;
	item->owner = cache_owner();
	item->path = strdup(path);
	if (!item->path)
		return fail(-ENOMEM, "cannot open item '%s'", path);
	r = open_tree(item, path, as_shown);
	if (r < 0)
		return err_at(r, "item '%s'", path);
	item->missing_is_error =
		ckpt->opts.missing == MISSING_ERROR ||
		(ckpt->opts.missing == MISSING_AUTO && item->tree->store_fill_value);
	trace(TRACE_STEP, "item '%s': %u leaves, %s%s", path, item->tree->n_leaves,
	      item->is_ocdbt ? "ocdbt" : "directories", item->is_unmerged ? ", unmerged" : "");
	*ret = take(item);
	return 0;
}

static int open_metered(struct ckpt *ckpt, struct io_dir *within, const char *path, bool as_shown,
			struct item **ret)
{
	int r;

	meter_begin();
	r = open_item(ckpt, within, path, as_shown, ret);
	meter_end();
	return r;
}

int item_open(struct ckpt *ckpt, const char *path, struct item **ret)
{
	return open_metered(ckpt, ckpt->source, path, false, ret);
}

int item_open_in(struct ckpt *ckpt, struct io_dir *within, const char *path, struct item **ret)
{
	return open_metered(ckpt, within, path, false, ret);
}

int item_open_shown(struct ckpt *ckpt, const char *path, struct item **ret)
{
	return open_metered(ckpt, ckpt->source, path, true, ret);
}

struct item *item_ref(struct item *item)
{
	atomic_fetch_add_explicit(&item->refs, 1, memory_order_relaxed);
	return item;
}

bool item_format(const struct item *item, bool *ret_ocdbt, bool *ret_zarr3)
{
	const struct tree *t = item->tree;

	if (!t->has_metadata || (!t->has_use_ocdbt && item->is_aggregate))
		return false;
	*ret_ocdbt = t->has_use_ocdbt ? t->use_ocdbt : item_is_database(item);
	*ret_zarr3 = t->use_zarr3;
	return true;
}
