/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_access.c - find out who may read an item, by the modes of its directory and of all files
 * that hold its values.
 *
 * Since modes may change, results expire: those of the directory after ACCESS_FRESH_NS, those of
 * the files after access_fresh_ns().
 */
#include <dirent.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/step/item_impl.h"
#include "core/step/item_safetensors.h"

struct item_look {
	struct item *item;
	struct access *a;
	bool has_leaf_dirs;
};

/* Whether the item is a file, in a directory that is not its own. */
static bool is_file_item(const struct item *item)
{
	return item->is_file;
}

/*
 * Add the access of a directory that holds data of every leaf, and note the directories of leaves.
 */
static int add_directory(void *arg, const char *name, unsigned char type)
{
	struct item_look *l = arg;
	bool is_data = !strcmp(name, "array_metadatas") || !strncmp(name, "ocdbt.process_", 14) ||
		       (l->item->is_ocdbt && !strcmp(name, "d"));

	if (type == DT_REG)
		return 0;
	l->has_leaf_dirs |= !is_data;
	return is_data ? access_below(l->item->dir, name, true, l->a) : 0;
}

static struct access access_all(void)
{
	return (struct access){ .uid = geteuid(), .gid = getegid(), .mode = 0777 };
}

/* Reduce a to the users who may read a file of a directory of safetensors. opened: NULL: any. */
static int look_at_shard(struct item *item, const char *name, const struct item_shard *opened,
			 struct access *a)
{
	struct stat st;
	int r = io_stat(item->dir, name, &st);

	/* The file that was opened is still read, although no name leads to it any more. */
	if (r == -ENOENT || r == -EUCLEAN ||
	    (r >= 0 && opened && (st.st_dev != opened->dev || st.st_ino != opened->ino))) {
		err_clear();
		access_own(a);
		return 0;
	}
	if (r < 0)
		return r;
	r = access_on_the_way(item->dir, name, a);
	return r < 0 ? r : access_below(item->dir, name, false, a);
}

/* The same, by a result that many tensors share. */
static int access_of_shard(struct item *item, struct item_shard *s, struct access *a)
{
	struct access found;
	int64_t now = clock_ns(), looked_at;
	int r;

	pthread_mutex_lock(&item->access_lock);
	found = s->access;
	looked_at = s->looked_at;
	pthread_mutex_unlock(&item->access_lock);
	if (!looked_at || now - looked_at > ACCESS_FRESH_NS) {
		found = access_all();
		r = look_at_shard(item, s->name, s, &found);
		if (r < 0)
			return r;
		pthread_mutex_lock(&item->access_lock);
		s->access = found;
		s->looked_at = now;
		pthread_mutex_unlock(&item->access_lock);
	}
	access_both(a, &found);
	return 0;
}

static int access_of_shards(struct item *item, struct access *a)
{
	int r = 0;

	for (size_t i = 0; i < item->n_shards && r >= 0 && !io_dir_in_store(item->dir); i++)
		r = access_of_shard(item, &item->shard[i], a);
	return r;
}

struct chunk_key {
	struct span prefix; /* "NAME/" */
	struct buf key;
};

/* The only chunk of a tensor: "NAME/0.0". */
static int take_chunk(void *arg, struct span key, uint64_t len)
{
	struct chunk_key *c = arg;

	(void)len;
	for (size_t i = c->prefix.n; i < key.n; i++)
		if (key.p[i] != '0' && key.p[i] != '.')
			return 0;
	return buf_add_span(&c->key, key) < 0 ? -ENOMEM : 1;
}

/* The file that has the tensor decides. Without elements it is in none. */
static int access_of_stored_tensor(struct item *item, struct span param, struct access *a)
{
	auto_buf prefix = { 0 }, key = { 0 };
	struct chunk_key c = { 0 };
	auto_kv_loc loc = { 0 };
	int r = param.n ? buf_addf(&prefix, "%.*s/", SPAN_ARG(param)) : 0;

	if (r < 0)
		return r;
	c.prefix = buf_span(&prefix);
	r = kv_list(item->kv, c.prefix, take_chunk, &c);
	key = c.key;
	if (r > 0)
		r = kv_locate(item->kv, &(struct span){ key.p, key.n }, &loc, 1);
	if (r < 0 || loc.where != KV_FILE)
		return r;
	for (size_t i = 0; i < item->n_shards; i++)
		if (item->shard[i].dev == loc.file->dev && item->shard[i].ino == loc.file->ino)
			return access_of_shard(item, &item->shard[i], a);
	access_own(a);
	return 0;
}

static int access_of_tensor(struct item *item, const struct tree_node *leaf, struct access *a)
{
	if (io_dir_in_store(item->dir))
		return 0;
	return tree_leaf_is_stored(leaf) ? access_of_stored_tensor(item, leaf->param, a) :
					   access_of_shards(item, a);
}

/*
 * Those who may see names, types and shapes of all tensors of a directory of safetensors: names
 * come from the index, or from the headers.
 */
static int look_at_shards(struct item *item, struct access *a)
{
	struct stat st;
	int r = io_stat(item->dir, ITEM_SHARDS_INDEX, &st);
	bool has_index = r != -ENOENT;

	err_clear();
	r = has_index ? look_at_shard(item, ITEM_SHARDS_INDEX, NULL, a) : 0;
	return r < 0 || (has_index && !item->shows_headers) ? r : access_of_shards(item, a);
}

static int look_at_files(struct item *item, struct access *ret, bool *ret_leaf_dirs)
{
	struct item_look l = { item, ret, false };
	int r;

	*ret_leaf_dirs = item->gda != NULL;
	*ret = access_all();
	if (is_file_item(item))
		return 0;
	if (item->n_shards)
		return look_at_shards(item, ret);
	r = access_below(item->dir, ".", false, ret);
	if (r < 0)
		return r;
	r = io_list(item->dir, ".", add_directory, &l);
	*ret_leaf_dirs = l.has_leaf_dirs;
	return r;
}

static int look_at_top(struct item *item, struct access *ret)
{
	struct stat st;
	int r;

	if (!is_file_item(item))
		return access_of_dir(item->dir, ret);
	r = access_of(item->within, item->path, ret);
	if (r < 0 || io_dir_in_store(item->within))
		return r;
	r = io_stat(item->within, item->path, &st);
	if (r < 0)
		return r;
	/* The file that was opened is still read, although the name is another's. */
	if (st.st_dev != item->id.dev || st.st_ino != item->id.ino)
		access_own(ret);
	return r;
}

int item_access(struct item *item, struct access *ret)
{
	struct item_access_cache m;
	int64_t now = clock_ns();
	int r = 0;

	pthread_mutex_lock(&item->access_lock);
	m = item->access;
	pthread_mutex_unlock(&item->access_lock);
	if (!m.top_at || now - m.top_at > ACCESS_FRESH_NS) {
		r = look_at_top(item, &m.top);
		m.top_at = now;
	}
	if (r >= 0 && (!m.files_at || now - m.files_at > access_fresh_ns(m.files_took))) {
		r = look_at_files(item, &m.files, &m.has_leaf_dirs);
		m.files_at = clock_ns();
		m.files_took = m.files_at - now;
	}
	if (r < 0)
		return err_at(r, "item '%s'", item->path);
	/* If two threads do this at the same time, they find the same. */
	pthread_mutex_lock(&item->access_lock);
	item->access = m;
	pthread_mutex_unlock(&item->access_lock);
	*ret = m.top;
	access_readers(ret, !is_file_item(item));
	access_both(ret, &m.files);
	/*
	 * Write permission, for deleting, is shown if the owner and group are still the
	 * directory's.
	 */
	if (ret->uid == m.top.uid && ret->gid == m.top.gid)
		ret->mode |= m.top.mode & 0222;
	return 0;
}

/* Reduce a to the users who may also read the databases below the item that may have a leaf. */
static int access_of_databases(struct item *item, struct span param, struct access *a)
{
	size_t n = param.n;
	struct kv *kv;
	int r;

	while ((r = item_below_find(item, param, &n, &kv)) > 0) {
		r = access_on_the_way(item->dir, item_database_dir(item, kv), a);
		if (r < 0)
			return r;
		r = access_below(item->dir, item_database_dir(item, kv), true, a);
		if (r < 0)
			return r;
	}
	return r;
}

/* Those who may read all that a leaf is computed from. */
static int access_of_inputs(struct item *item, const struct tree_source *s, struct access *a)
{
	const struct tree_node *input;
	int r = 0;

	for (unsigned i = 0; r >= 0 && (input = s->input(s, i)); i++)
		r = item_access_leaf(item, input, a);
	return r;
}

/* dir: where the leaf would be if it has a directory of its own */
static int access_of_stored_leaf(struct item *item, struct span param, const char *dir,
				 struct access *a)
{
	/* A name that is not a valid path has no directory. */
	int r = param.n ? io_path_check(param, "leaf") : 0;

	if (r < 0)
		return r;
	if (item->gda)
		r = access_on_the_way(item->dir, dir, a);
	if (r < 0)
		return r;
	r = access_below(item->dir, dir, true, a);
	return r < 0 ? r : access_of_databases(item, param, a);
}

int item_access_leaf(struct item *item, const struct tree_node *leaf, struct access *a)
{
	auto_free char *dir = NULL;
	bool has_dirs;
	int r;

	if (leaf->source)
		return access_of_inputs(item, leaf->source, a);
	if (item->n_shards)
		return access_of_tensor(item, leaf, a);

	/* In most databases no leaf has a directory of its own. */
	pthread_mutex_lock(&item->access_lock);
	has_dirs = item->access.has_leaf_dirs || !item->access.files_at;
	pthread_mutex_unlock(&item->access_lock);
	if (!has_dirs || (is_file_item(item) && !item->gda) || !tree_leaf_is_stored(leaf) ||
	    !(leaf->param.n || item->gda))
		return 0;
	dir = str_fmt("%s%s%.*s", item->gda ? item->gda : "", item->gda && leaf->param.n ? "/" : "",
		      SPAN_ARG(leaf->param));
	if (!dir)
		return fail(-ENOMEM, "cannot look at leaf '%.*s'", SPAN_ARG(leaf->param));
	r = access_of_stored_leaf(item, leaf->param, dir, a);
	/* A leaf in a database has no directory. */
	return err_except(r, -EUCLEAN, -ENAMETOOLONG, -ENOTDIR);
}

int item_access_leaves(struct item *item, const struct tree_node *top, uint32_t end,
		       struct access *ret)
{
	int r = item_access(item, ret);

	for (uint32_t i = top->id; i < end && r >= 0; i++)
		if (item->tree->nodes[i]->kind == TREE_LEAF)
			r = item_access_leaf(item, item->tree->nodes[i], ret);
	return r;
}
