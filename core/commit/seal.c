/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seal.c - write the database or the leaf directories of an item, then its files.
 *
 * Also merges the databases of several ranks into one.
 */
#include "core/commit/seal.h"

#include <fcntl.h>
#include <stdio.h>

#include "core/base/array.h"
#include "core/base/crc32c.h"
#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/kv/kv_table.h"

/* ---- a database: the keys of all leaves, sorted ---- */

struct keys {
	struct arena arena;
	struct ocdbt_entry *entry;
	size_t n, cap;
	const struct commit_leaf *leaf; /* the current leaf */
};

/* Whether this rank provides the chunk. */
static bool is_retained(const struct commit_leaf *leaf, struct span key)
{
	uint64_t index[LIMIT_RANK];

	if (!leaf->keep_to || zarr_chunk_key_parse(leaf->meta, key, index) != 1)
		return true;
	return index[leaf->keep_axis] >= leaf->keep_from && index[leaf->keep_axis] < leaf->keep_to;
}

/* Append "params.w" + "/" + "0.0"; chunks of a part are moved to their place in the whole array. */
static int full_key(const struct commit_leaf *leaf, struct span key, struct buf *ret)
{
	uint64_t index[LIMIT_RANK];
	int r = zarr_key_prefix(leaf->param, ret);

	if (r < 0)
		return r;
	if (!leaf->rank || zarr_chunk_key_parse(leaf->meta, key, index) != 1)
		return buf_add_span(ret, key);
	for (unsigned i = 0; i < leaf->rank; i++)
		index[i] += leaf->shift[i];
	return zarr_chunk_key(leaf->meta, index, ret);
}

static bool seal_is_metadata(struct span key)
{
	return span_eq(key, span_str(".zarray")) || span_eq(key, span_str("zarr.json"));
}

/* The path in the draft of a name in the item; NULL: no memory. */
static char *path_in_item(const struct commit_item *item, struct span name)
{
	return str_fmt("%.*s%s%.*s", SPAN_ARG(item->name), item->name.n ? "/" : "", SPAN_ARG(name));
}

/* Whether this rank provides a value: its document, or its chunk. */
static bool is_provided(const struct commit_leaf *leaf, struct span key)
{
	return seal_is_metadata(key) ? !leaf->no_document : is_retained(leaf, key);
}

static int seal_add_key(void *arg, struct span key, const struct ocdbt_value *value)
{
	struct keys *k = arg;
	struct ocdbt_entry *e;
	auto_buf full = { 0 };
	int r;

	if (!is_provided(k->leaf, key))
		return 0;
	/*
	 * The document of a part is omitted, since the document of the whole array is written once.
	 */
	if (seal_is_metadata(key) && k->leaf->rank && !k->leaf->json.p)
		return 0;
	r = full_key(k->leaf, key, &full);
	if (r < 0)
		return r;
	if (full.n > LIMIT_KEY_BYTES)
		return fail(-EINVAL, "leaf '%.*s': its name is too long for a database",
			    SPAN_ARG(k->leaf->param));
	if (!array_reserve(k->entry, k->cap, k->n + 1))
		return fail(-ENOMEM, "cannot collect %zu keys", k->n + 1);
	e = &k->entry[k->n];
	*e = (struct ocdbt_entry){ .key = span_of(arena_dup(&k->arena, buf_span(&full)), full.n),
				   .value = *value };
	if (!e->key.p)
		return fail(-ENOMEM, "cannot collect keys");
	if (seal_is_metadata(key) && k->leaf->json.p)
		e->value = (struct ocdbt_value){ .kind = OCDBT_INLINE, .bytes = k->leaf->json };
	k->n++;
	return 0;
}

static int seal_by_key(const void *a, const void *b)
{
	return span_cmp(((const struct ocdbt_entry *)a)->key, ((const struct ocdbt_entry *)b)->key);
}

static int two_leaves(struct span name)
{
	return fail(-EINVAL, "two leaves are stored under one name: '%.*s'", SPAN_ARG(name));
}

static int seal_collect(const struct commit_item *item, struct keys *k)
{
	int r = 0;

	for (size_t i = 0; i < item->n_leaves && r >= 0; i++) {
		k->leaf = &item->leaves[i];
		r = item_store_leaf_each(k->leaf->kv, seal_add_key, k);
	}
	if (r < 0)
		return r;
	if (k->n)
		qsort(k->entry, k->n, sizeof(*k->entry), seal_by_key);
	for (size_t i = 1; i < k->n; i++)
		if (span_eq(k->entry[i - 1].key, k->entry[i].key))
			return two_leaves(k->entry[i].key);
	return 0;
}

/* Builds the nodes of a database from its keys, or from the databases of ranks. */
struct building {
	struct io_dir *dir;
	struct io_dir *parts_in; /* where the databases of ranks are */
	const struct keys *keys;
	const struct ocdbt_parts *parts; /* NULL: from the keys */
	struct cache *cache;
};

static int build_nodes(void *arg, const struct ocdbt_config *config, struct ocdbt_data *nodes,
		       struct ocdbt_version *root)
{
	const struct building *b = arg;
	struct ocdbt_array_source source;

	if (b->parts)
		return ocdbt_merge_dirs(b->parts_in, b->parts, b->cache, config, nodes, root, NULL);
	ocdbt_array_source_init(&source, b->keys->entry, b->keys->n);
	return ocdbt_build(&source.base, config, nodes, root);
}

static int seal_build(struct commit *c, struct building *b)
{
	auto_of(ocdbt_data) struct ocdbt_data *nodes = NULL;
	struct ocdbt_data_stats stats;
	int r = ocdbt_database_write(b->dir, c->dir_mode, NULL, build_nodes, b, &nodes);

	if (r < 0)
		return r;
	ocdbt_data_stats(nodes, &stats);
	trace(TRACE_OCDBT, "wrote %llu bytes of nodes", (unsigned long long)stats.bytes);
	if (b->parts && c->merged)
		*c->merged += stats.bytes;
	return 0;
}

int seal_database(struct commit *c, struct commit_item *item)
{
	struct keys k = { 0 };
	int r = item_store_sync(item->store);

	if (r < 0)
		return r;
	r = seal_collect(item, &k);
	/* A tree of strings and empty containers has no database. */
	if (r >= 0 && k.n)
		r = seal_build(c, &(struct building){ .dir = item_store_dir(item->store),
						      .keys = &k });
	trace(TRACE_OCDBT, "sealed %zu keys", k.n);
	free(k.entry);
	arena_release(&k.arena);
	return r;
}

/* The values remain where the ranks have written them. */
static int merge_databases(struct commit *c, const struct commit_item *item)
{
	auto_free char *name = item->name.n ? span_dup_str(item->name) : strdup(".");
	auto_of(io_dir) struct io_dir *dir = NULL, *parts_in = NULL;
	int r = name ? 0 : -ENOMEM;

	if (r < 0)
		return r;
	/* Only other ranks may have values of this item. */
	if (item->name.n)
		r = io_mkdir(c->draft->dir, name, io_dir_mode(c->dir_mode));
	if (r < 0)
		return r;
	r = io_dir_sub(c->draft->dir, name, &dir);
	if (r < 0)
		return r;
	r = io_dir_sub(c->parts_in ? c->parts_in : c->draft->dir, name, &parts_in);
	return r < 0 ? r :
		       seal_build(c, &(struct building){ .dir = dir,
							 .parts_in = parts_in,
							 .parts = item->parts,
							 .cache = c->ckpt->cache });
}

/* Copies one chunk, or the document, of a leaf that several ranks write. */
struct placing {
	struct commit *c;
	const struct commit_item *item;
	const struct commit_leaf *leaf;
};

static int copy_value(void *arg, struct span key, uint64_t len)
{
	struct placing *l = arg;
	struct io_dir *dir = l->c->draft->dir;
	auto_free char *to = NULL;
	auto_buf name = { 0 };
	int r;

	if (!is_provided(l->leaf, key))
		return 0;
	r = full_key(l->leaf, key, &name);
	if (r < 0)
		return r;
	r = io_path_check(buf_span(&name), "leaf");
	if (r < 0)
		return r;
	to = path_in_item(l->item, buf_span(&name));
	if (!to)
		return -ENOMEM;
	r = io_make_parents(dir, to, io_dir_mode(l->c->dir_mode));
	if (r < 0)
		return r;
	if (seal_is_metadata(key) && l->leaf->json.p)
		r = io_write_file(dir, to, l->leaf->json);
	else
		r = item_store_leaf_copy(l->leaf->kv, key, dir, to);
	return r < 0 ? r : io_sync_parents(dir, to);
}

struct summing {
	const struct commit_leaf *leaf;
	struct kv_table *table;
};

/* Skips the values that copy_value() skips, since they are in the tables of other ranks. */
static int seal_add_sum(void *arg, struct span key, uint32_t crc)
{
	struct summing *s = arg;
	auto_buf name = { 0 };
	int r;

	if (!is_provided(s->leaf, key))
		return 0;
	if (seal_is_metadata(key) && s->leaf->json.p)
		crc = crc32c(s->leaf->json);
	r = full_key(s->leaf, key, &name);
	return r < 0 ? r : kv_table_add(s->table, buf_span(&name), crc);
}

/*
 * Write the checksums of values in directories (kv_table.h). The ranks write different values, so
 * the hashes of their tables, which are their names, differ.
 */
static int write_table(struct commit *c, struct commit_item *item)
{
	auto_kv_table table = { 0 };
	struct summing s = { .table = &table };
	auto_free char *path = NULL;
	auto_buf bytes = { 0 };
	char name[64];
	int r;

	for (size_t i = 0; i < item->n_leaves; i++) {
		s.leaf = &item->leaves[i];
		r = item_store_leaf_each_sum(s.leaf->kv, seal_add_sum, &s);
		if (r < 0)
			return r;
	}
	r = kv_table_pack(&table, &bytes);
	if (r <= 0)
		return r;
	snprintf(name, sizeof(name), KV_TABLE_DIR "/%016llx",
		 (unsigned long long)hash64(buf_span(&bytes), 0));
	path = path_in_item(item, span_str(name));
	if (!path)
		return fail(-ENOMEM, "cannot write checksums");
	r = io_make_parents(c->draft->dir, path, io_dir_mode(c->dir_mode));
	if (r < 0)
		return r;
	r = io_write_file(c->draft->dir, path, buf_span(&bytes));
	return r < 0 ? r : io_sync_parents(c->draft->dir, path);
}

static int seal_directories(struct commit *c, struct commit_item *item)
{
	int r = 0;

	for (size_t i = 0; i < item->n_leaves && r >= 0; i++)
		r = item_store_leaf_displace(item->leaves[i].kv, item->leaves[i].param);
	for (size_t i = 0; i < item->n_leaves && r >= 0; i++) {
		r = item_store_leaf_place(item->leaves[i].kv, item->leaves[i].param);
		/*
		 * Leaves of this item no longer have other names in the way, so another leaf has
		 * the same name.
		 */
		if (r == -EEXIST || r == -ENOTEMPTY)
			r = two_leaves(item->leaves[i].param);
	}
	return r < 0 ? r : write_table(c, item);
}

/* ---- files ---- */

static int write_long(struct io_dir *dir, const char *path, const struct commit_file *f)
{
	auto_of(io_file) struct io_file *out = NULL;
	auto_free uint8_t *piece = malloc(MiB);
	int r = piece ? io_file_open(dir, path, O_RDWR | O_CREAT | O_TRUNC, IO_FILE_MODE, &out) :
			-ENOMEM;

	for (uint64_t at = 0; at < f->size && r >= 0; at += MiB) {
		size_t n = (size_t)MIN((uint64_t)MiB, f->size - at);

		r = f->source(f->arg, at, n, piece);
		if (r < 0)
			return r;
		r = io_write_exact(out, piece, n, at);
	}
	return r < 0 ? r : io_file_sync(out);
}

int seal_file(struct commit *c, const struct commit_item *item, const struct commit_file *f)
{
	auto_free char *path = path_in_item(item, f->name);
	int r;

	if (!path)
		return fail(-ENOMEM, "cannot write '%.*s'", SPAN_ARG(f->name));
	r = io_make_parents(c->draft->dir, path, io_dir_mode(c->dir_mode));
	if (r < 0)
		return r;
	if (f->is_dir) {
		r = io_mkdir(c->draft->dir, path, io_dir_mode(c->dir_mode));
		return r < 0 ? r : io_dirop(c->draft->dir, IO_SYNC_DIR, path, NULL, 0);
	}
	r = f->text.p ? io_write_file(c->draft->dir, path, f->text) :
			write_long(c->draft->dir, path, f);
	return r < 0 ? r : io_sync_parents(c->draft->dir, path);
}

/* ---- files of earlier attempts ---- */

struct cleaning {
	struct buf names;      /* each name is NUL-terminated */
	struct span *retained; /* sorted entries that are kept */
	size_t n;
};

static int seal_by_name(const void *a, const void *b)
{
	return span_cmp(*(const struct span *)a, *(const struct span *)b);
}

static bool is_needed(void *arg, const char *name)
{
	const struct cleaning *cl = arg;
	struct span key = span_str(name);

	/* If the item is the whole draft, the draft's lock file is in the same directory. */
	return !strcmp(name, DRAFT_LOCK_FILE) ||
	       (cl->n && bsearch(&key, cl->retained, cl->n, sizeof(key), seal_by_name));
}

/*
 * Give leaves that an earlier commit named temporary names again, so that names of removed leaves
 * are free.
 */
static int take_names_back(struct commit_item *item)
{
	int r = 0;

	for (size_t i = 0; i < item->n_leaves && r >= 0; i++)
		r = item_store_leaf_unplace(item->leaves[i].kv);
	for (size_t i = 0; i < item->n_retained && r >= 0 && !item_store_is_ocdbt(item->store);
	     i++) {
		r = item_store_leaf_unplace(item->retained[i]);
		if (r < 0)
			return r;
		r = item_store_leaf_displace(item->retained[i], span_of(NULL, 0));
	}
	return r;
}

/* Remove all files that the draft does not need: those of a failed commit, or of removed leaves. */
static int seal_clean_item(struct commit_item *item)
{
	struct cleaning cl = { 0 };
	size_t n = item->n_leaves + item->n_retained;
	int r = take_names_back(item);

	for (size_t i = 0; i < n && r >= 0; i++) {
		r = item_store_leaf_entry(i < item->n_leaves ? item->leaves[i].kv :
							       item->retained[i - item->n_leaves],
					  &cl.names);
		r = r < 0 ? r : buf_add_byte(&cl.names, 0);
	}
	cl.retained = calloc(n + 1, sizeof(*cl.retained));
	if (!cl.retained)
		r = fail(-ENOMEM, "cannot look at %zu leaves", n);
	if (r >= 0) {
		for (size_t at = 0; at < cl.names.n; at += cl.retained[cl.n++].n + 1)
			cl.retained[cl.n] = span_str((char *)cl.names.p + at);
		qsort(cl.retained, cl.n, sizeof(*cl.retained), seal_by_name);
		r = io_remove_entries(item_store_dir(item->store), ".", is_needed, &cl);
	}
	buf_release(&cl.names);
	free(cl.retained);
	return r;
}

static int seal_values_own(struct commit *c, struct commit_item *item)
{
	int r = item->store ? seal_clean_item(item) : 0;

	/* Without leaves there is no database; all values are in other files. */
	if (r < 0 || !item->store || !item->n_leaves)
		return r;
	return item_store_is_ocdbt(item->store) ? seal_database(c, item) :
						  seal_directories(c, item);
}

/* The merged databases, and the files that describe the values. */
static int seal_documents(struct commit *c, struct commit_item *item)
{
	auto_free char *dir = span_dup_str(item->name);
	int r = !dir ? -ENOMEM : item->parts ? merge_databases(c, item) : 0;

	for (size_t i = 0; i < item->n_files && r >= 0; i++)
		r = seal_file(c, item, &item->files[i]);
	/* If the checkpoint is a single tree, the item has no name. */
	if (r < 0 || !*dir)
		return MIN(r, 0);
	/* An item that is not a tree may be an empty directory. */
	if (!item->n_files)
		r = io_mkdir(c->draft->dir, dir, io_dir_mode(c->dir_mode));
	return r < 0 ? r : io_dirop(c->draft->dir, IO_SYNC_DIR, dir, NULL, 0);
}

static int seal_of_item(const struct commit_item *item, int r)
{
	return r < 0 && item->name.n ? err_at(r, "item '%.*s'", SPAN_ARG(item->name)) : MIN(r, 0);
}

int seal_item(struct commit *c, struct commit_item *item)
{
	int r = seal_values_own(c, item);

	return seal_of_item(item, r < 0 ? r : seal_documents(c, item));
}

int seal_shared_item(struct commit *c, struct commit_item *item)
{
	int r = 0;

	if (!item->store || item_store_is_ocdbt(item->store)) {
		r = seal_values_own(c, item);
	} else {
		/* The rank may need the leaves in its directories again: nothing is removed. */
		for (size_t i = 0; i < item->n_leaves && r >= 0; i++) {
			struct placing l = { c, item, &item->leaves[i] };

			r = kv_list(l.leaf->kv, span_of(NULL, 0), copy_value, &l);
		}
		if (r >= 0 && item->n_leaves)
			r = write_table(c, item);
	}
	return seal_of_item(item, r < 0 ? r : seal_documents(c, item));
}
