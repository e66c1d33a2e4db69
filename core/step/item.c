/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item.c - open a PyTree item: its store, and the small files beside it.
 *
 * item_tree.c reads its tree. The files that are there decide in which store
 * the arrays are: a database at the top, parts of a database that were never
 * merged, or a directory for each leaf.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/meter.h"
#include "core/base/path.h"
#include "core/io/io_store.h"
#include "core/ocdbt/ocdbt.h"
#include "core/step/item_impl.h"
#include "core/step/step_name.h"
#include "core/tree/array_metadata.h"
#include "core/tree/digests.h"
#include "core/tree/sharding.h"
#include "core/tree/strings.h"
#include "core/zarr/stream.h"

#define COPY_LEAVES 4 /* the first leaves of an item; if all of them are files, it is a copy */

/* ---- the store ---- */

static int open_dir_store(struct item *item, struct kv **ret)
{
	int r = kv_dir_open_in(item->dir, ".", ret);

	if (r < 0)
		return r;
	kv_dir_use_table(*ret);
	return r;
}

static int open_database(struct item *item)
{
	struct ocdbt_open_opts opts = { .name = item->path };
	auto_of(io_dir) struct io_dir *dir = NULL;
	struct ocdbt_parts parts = { 0 };
	auto_buf names = { 0 };
	int r = io_dir_sub(item->dir, ".", &dir);

	if (r >= 0)
		r = ocdbt_open(dir, item->ckpt->cache, &opts, &item->kv);
	if (r == -ENOENT) {
		r = ocdbt_parts_find(dir, &parts);
		if (r >= 0 && parts.n == 0) {
			item->has_bare_parts = parts.n_bare;
			ocdbt_parts_release(&parts);
			err_clear();
			return 0;
		}
		if (r >= 0)
			r = ocdbt_parts_text(&parts, &names);
		if (r >= 0)
			r = ocdbt_open_union(dir, &parts, item->ckpt->cache, &opts, &item->kv);
		ocdbt_parts_release(&parts);
		item->is_unmerged = r >= 0;
		if (r >= 0)
			log_info(
				"item '%s' was never merged: it is read as the union of its parts, "
				"%.*s",
				item->path, SPAN_ARG(buf_span(&names)));
	}
	if (r < 0)
		return r;
	dir = NULL;
	item->is_ocdbt = true;
	return 0;
}

static int open_stores(struct item *item)
{
	struct kv *dirs = NULL;
	int r = open_database(item);

	if (r < 0)
		return r;
	r = open_dir_store(item, &dirs);
	if (r < 0)
		return r;
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
	if (r >= 0)
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
		int r = 0;

		if (t->nodes[i]->kind != TREE_LEAF)
			continue;
		r = tree_path(t->nodes[i], &path);
		if (r >= 0)
			r = buf_str(&path) ? io_stat(item->dir, buf_str(&path), &st) : -ENOMEM;
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
	r = item->path ? open_parts(item, path) : fail(-ENOMEM, "cannot open item '%s'", path);
	if (r >= 0)
		r = tree_find_shared(item->tree);
	if (r >= 0 && as_shown && ckpt->opts.retree)
		r = ckpt->opts.retree(ckpt->opts.retree_arg, path, &item->tree);
	if (r >= 0)
		r = tree_name(item->tree, names_of_ours(item), ckpt->opts.ext_of,
			      ckpt->opts.ext_arg);
	if (r >= 0)
		r = check_not_copied(item);
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

/* ---- small files, read on demand ---- */

/*
 * Read a file of the item, of the time when the item was opened: -ESTALE. ret_file, which keeps it
 * open, may be NULL. Called with the item's lock held.
 */
static int read_pinned(struct item *item, const char *name, uint64_t limit, struct document *ret,
		       struct io_file **ret_file)
{
	auto_of(io_file) struct io_file *file = NULL;
	int r = io_file_open_range(item->dir, name, 0, IO_FIRST_BYTES, &file);

	if (r == -EISDIR)
		return fail(-EUCLEAN, "'%s' is not a regular file", name);
	if (r >= 0)
		r = io_pins_check(&item->pins, item->dir, file);
	if (r >= 0 && file->size > limit)
		return fail(-EFBIG, "'%s' has %llu bytes, the limit is %llu", name,
			    (unsigned long long)file->size, (unsigned long long)limit);
	if (r >= 0)
		r = document_of(item->ckpt, file, ret);
	if (r >= 0 && ret_file)
		*ret_file = take(file);
	return r;
}

static int index_strings(struct item *item)
{
	auto_of(strings) struct strings *strings = NULL;
	auto_of(io_file) struct io_file *file = NULL;
	auto_document text = { 0 };
	int r = read_pinned(item, "_strings.json", LIMIT_STRINGS_BYTES, &text, &file);

	if (r >= 0)
		r = strings_parse(text.text, "'_strings.json'", &strings);
	if (r < 0)
		return r;
	/* Each text is read from the file on demand, since all together may be large. */
	item->strings_file = take(file);
	item->strings = take(strings);
	return r;
}

/*
 * Read one of these files, or return the remembered error of a recent attempt. Called with the
 * item's lock held.
 */
static int read_small(struct item *item, const char *name, int (*read)(struct item *item),
		      struct refusal *refusal)
{
	uint64_t bytes = 0, mark = io_mark(item->dir, name, 1, &bytes);
	int64_t began = clock_ns();
	int r = refusal_ask(refusal, mark);

	if (r < 0)
		return r;
	meter_begin();
	r = read(item);
	meter_end();
	return refusal_keep(refusal, mark, began, r);
}

int item_read_strings(struct item *item)
{
	int r = 0;

	pthread_mutex_lock(&item->lock);
	if (!item->strings_read) {
		r = read_small(item, "_strings.json", index_strings, &item->strings_refused);
		if (r == -ENOENT) {
			err_clear();
			r = 0;
		}
		item->strings_read = r >= 0;
	}
	pthread_mutex_unlock(&item->lock);
	return r;
}

static int check_length(uint64_t n)
{
	return n <= LIMIT_STRING_BYTES ?
		       0 :
		       fail(-EFBIG, "a text of %llu bytes, the limit is %llu",
			    (unsigned long long)n, (unsigned long long)LIMIT_STRING_BYTES);
}

static int read_string(struct item *item, const struct strings_entry *e, struct buf *ret)
{
	auto_buf json = { .metered = true };
	int r = check_length(e->text_len);

	if (r < 0)
		return r;
	r = buf_reserve(&json, e->len);
	if (r < 0)
		return r;
	r = io_read_exact(item->strings_file, json.p, e->len, e->off);
	if (r < 0)
		return r;
	json.n = e->len;
	return strings_take(&json, e->text_len, "'_strings.json'", ret);
}

/* Releases 0.3.x wrote one file for each string leaf, in a directory with its name. */
static int read_string_leaf(struct item *item, const struct tree_node *leaf, struct buf *ret)
{
	auto_document text = { 0 };
	auto_buf path = { 0 };
	int r = io_path_check(leaf->param, "string leaf");

	if (r < 0)
		return r;
	r = buf_addf(&path, "%.*s/_strings.json", SPAN_ARG(leaf->param));
	if (r < 0)
		return r;
	if (!buf_str(&path))
		r = -ENOMEM;
	if (r < 0)
		return r;
	pthread_mutex_lock(&item->lock);
	r = read_pinned(item, buf_str(&path), 6 * LIMIT_STRING_BYTES, &text, NULL);
	pthread_mutex_unlock(&item->lock);
	if (r == -ENOENT || r == -ENOTDIR)
		return fail(-EUCLEAN, "its text is not stored");
	return r < 0 ? r : strings_parse_leaf(text.text, "'_strings.json'", leaf->param, ret);
}

int item_string(struct item *item, const struct tree_node *leaf, struct buf *ret)
{
	const struct strings_entry *e;
	int r;

	ret->metered |= ret->cap == 0;
	if (leaf->value == TREE_VALUE_AGGREGATE) {
		if (!leaf->aggregate || leaf->aggregate->kind != AGGREGATE_STRING)
			return fail(-EUCLEAN, "the aggregate file does not have its text");
		r = check_length(leaf->aggregate->s.n);
		return r < 0 ? r : buf_add_span(ret, leaf->aggregate->s);
	}
	if (leaf->shared)
		return tree_fail_shared(leaf);
	r = item_read_strings(item);
	if (r < 0)
		return r;
	e = item->strings ? strings_find(item->strings, leaf->param) : NULL;
	return e ? read_string(item, e, ret) : read_string_leaf(item, leaf, ret);
}

int item_optional(const struct item *item, const char *name, int r)
{
	if (r >= 0 || err_is_transient(r))
		return MIN(r, 0);
	if (r != -ENOENT)
		log_warn("item '%s': %s: %s", item->path, name, err_text(r));
	err_clear();
	return 0;
}

static int parse_shardings_in(void *arg, const char *dir, struct kv *kv)
{
	auto_free char *name = NULL;
	struct item *item = arg;
	auto_document text = { 0 };
	int r = path_join(dir, span_str("_sharding"), &name);

	if (r >= 0)
		r = read_pinned(item, name, LIMIT_SMALL_FILE, &text, NULL);
	if (r == -ENOENT && kv)
		return 0;
	if (r >= 0)
		r = shardings_parse(text.text, "'_sharding'", &item->shardings);
	return r < 0 ? r : 1;
}

/* Orbax 0.4.0 and 0.4.1 put the file into the directory of the first array. */
static int parse_shardings(struct item *item)
{
	int r = parse_shardings_in(item, ".", NULL);

	if (r == -ENOENT && !item->below_listed) {
		err_clear();
		r = item_below_each(item, parse_shardings_in, item);
		r = r == 0 ? -ENOENT : r;
	}
	return MIN(r, 0);
}

/* Called with the item's lock held. */
static int read_shardings(struct item *item)
{
	int r;

	if (item->shardings_read)
		return 0;
	r = read_small(item, "_sharding", parse_shardings, &item->shardings_refused);
	r = item_optional(item, "_sharding", r);
	item->shardings_read = r >= 0;
	return r;
}

int item_sharding(struct item *item, const struct tree_node *leaf, struct span *ret)
{
	int r;

	if (leaf->source)
		return 0;

	pthread_mutex_lock(&item->lock);
	r = read_shardings(item);
	pthread_mutex_unlock(&item->lock);
	if (r < 0 || !item->shardings)
		return r;
	return shardings_find(item->shardings, leaf->param, ret);
}

struct first_process {
	char name[64];
	uint64_t number;
};

static int pick_process(void *arg, const char *name, unsigned char type)
{
	struct first_process *f = arg;
	uint64_t number;
	char *end;

	if (strncmp(name, "process_", 8) || strlen(name) >= sizeof(f->name))
		return 0;
	number = strtoull(name + 8, &end, 10);
	if (*end || (f->name[0] && number >= f->number))
		return 0;
	strcpy(f->name, name);
	f->number = number;
	return 0;
}

/* Only the first file is read, as in Orbax. */
static int read_first_process(struct item *item)
{
	struct first_process first = { 0 };
	auto_document text = { 0 };
	char path[96];
	int r = io_list(item->dir, "array_metadatas", pick_process, &first);

	if (r < 0 || !first.name[0])
		return r;
	snprintf(path, sizeof(path), "array_metadatas/%s", first.name);
	r = read_pinned(item, path, LIMIT_SMALL_FILE, &text, NULL);
	return r < 0 ? r : array_metadatas_parse(text.text, first.name, &item->arrays);
}

/* Called with the item's lock held. */
static int read_arrays(struct item *item)
{
	int r;

	if (item->arrays_read)
		return 0;
	r = read_small(item, "array_metadatas", read_first_process, &item->arrays_refused);
	r = item_optional(item, "array_metadatas", r);
	item->arrays_read = r >= 0;
	return r;
}

/* Get the record of a leaf; *ret is NULL if there is none. */
static int find_array(struct item *item, const struct tree_node *leaf,
		      const struct array_metadata **ret)
{
	int r;

	*ret = NULL;
	if (leaf->source)
		return 0;
	pthread_mutex_lock(&item->lock);
	r = read_arrays(item);
	pthread_mutex_unlock(&item->lock);
	if (r < 0)
		return r;
	if (item->arrays)
		*ret = array_metadatas_find(item->arrays, leaf->param);
	return r;
}

int item_prng_impl(struct item *item, const struct tree_node *leaf, struct span *ret)
{
	const struct array_metadata *m;
	int r = find_array(item, leaf, &m);

	if (r < 0 || !m || !m->key_impl.p)
		return MIN(r, 0);
	*ret = m->key_impl;
	return 1;
}

int item_write_shape(struct item *item, const struct tree_node *leaf, const uint64_t **ret,
		     unsigned *ret_rank)
{
	const struct array_metadata *m = NULL;
	int r = leaf->has_write_shape ? 0 : find_array(item, leaf, &m);

	if (r < 0 || (!m && !leaf->has_write_shape))
		return MIN(r, 0);
	*ret = m ? m->write_shape : leaf->write_shape;
	*ret_rank = m ? m->write_rank : leaf->write_rank;
	return 1;
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
