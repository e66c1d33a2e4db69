/*
 * seal.c - values -> nodes -> manifest, or leaf directories; then the item's files.
 */
#include "core/step/seal.h"

#include <fcntl.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/log.h"

/* ---- a database: the keys of all leaves, sorted ---- */

struct keys {
	struct arena arena;
	struct ocdbt_entry *entry;
	size_t n, cap;
	const struct commit_leaf *leaf;	/* at work */
};

/* "params.w" + "/" + "0.0", a part's chunks moved to their place in the whole. */
static int full_key(const struct commit_leaf *leaf, struct span key, struct buf *ret)
{
	uint64_t index[LIMIT_RANK];
	int r = buf_add_span(ret, leaf->param);

	if (r >= 0 && leaf->param.n && leaf->param.p[leaf->param.n - 1] != '/')
		r = buf_add_byte(ret, '/');
	if (r < 0)
		return r;
	if (!leaf->rank || zarr_chunk_key_parse(leaf->meta, key, index) != 1)
		return buf_add_span(ret, key);
	for (unsigned i = 0; i < leaf->rank; i++)
		index[i] += leaf->shift[i];
	return zarr_chunk_key(leaf->meta, index, ret);
}

static bool is_metadata(struct span key)
{
	return span_eq(key, span_str(".zarray")) || span_eq(key, span_str("zarr.json"));
}

static int add_key(void *arg, struct span key, const struct ocdbt_value *value)
{
	struct keys *k = arg;
	struct ocdbt_entry *e;
	auto_buf full = { 0 };
	int r;

	/* Of a part's own document nothing is kept; the whole array's is given once. */
	if (is_metadata(key) && k->leaf->rank && !k->leaf->json.p)
		return 0;
	r = full_key(k->leaf, key, &full);
	if (r >= 0 && full.n > LIMIT_KEY_BYTES)
		r = fail(-EINVAL, "leaf '%.*s': its name is too long for a database", SPAN_ARG(k->leaf->param));
	if (r < 0)
		return r;
	if (k->n == k->cap) {
		size_t cap = k->cap ? 2 * k->cap : 256;
		struct ocdbt_entry *more = reallocarray(k->entry, cap, sizeof(*more));

		if (!more)
			return fail(-ENOMEM, "cannot collect %zu keys", cap);
		k->entry = more;
		k->cap = cap;
	}
	e = &k->entry[k->n];
	*e = (struct ocdbt_entry){ .key = span_of(arena_dup(&k->arena, buf_span(&full)), full.n), .value = *value };
	if (!e->key.p)
		return fail(-ENOMEM, "cannot collect keys");
	if (is_metadata(key) && k->leaf->json.p)
		e->value = (struct ocdbt_value){ .kind = OCDBT_INLINE, .bytes = k->leaf->json };
	k->n++;
	return 0;
}

static int by_key(const void *a, const void *b)
{
	return span_cmp(((const struct ocdbt_entry *)a)->key, ((const struct ocdbt_entry *)b)->key);
}

static int collect(const struct commit_item *item, struct keys *k)
{
	int r = 0;

	for (size_t i = 0; i < item->n_leaves && r >= 0; i++) {
		k->leaf = &item->leaves[i];
		r = store_leaf_each(k->leaf->kv, add_key, k);
	}
	if (r < 0)
		return r;
	if (k->n)
		qsort(k->entry, k->n, sizeof(*k->entry), by_key);
	for (size_t i = 1; i < k->n; i++)
		if (span_eq(k->entry[i - 1].key, k->entry[i].key))
			return fail(-EINVAL, "two leaves are stored under one name: '%.*s'", SPAN_ARG(k->entry[i].key));
	return 0;
}

/* Nodes and manifest; nodes have data files of their own, so that a failure takes them back. */
static int build(struct commit *c, struct commit_item *item, const struct keys *k)
{
	struct ocdbt_data_opts opts = { .file_mode = c->file_mode, .dir_mode = c->dir_mode };
	auto_of(ocdbt_data) struct ocdbt_data *nodes = NULL;
	__attribute__((cleanup(ocdbt_manifest_release))) struct ocdbt_manifest manifest = { 0 };
	struct ocdbt_array_source source;
	struct ocdbt_version root;
	struct ocdbt_config config;
	int r = ocdbt_config_init(&config);

	if (r >= 0)
		r = ocdbt_data_new(store_dir(item->store), &opts, &nodes);
	if (r < 0)
		return r;
	ocdbt_array_source_init(&source, k->entry, k->n);
	r = ocdbt_build(&source.base, &config, nodes, &root);
	if (r >= 0)
		r = ocdbt_data_sync(nodes);
	if (r >= 0)
		r = ocdbt_manifest_first(&config, &root, 0, &manifest);
	if (r >= 0)
		r = ocdbt_manifest_write(store_dir(item->store), &manifest, NULL, c->file_mode);
	if (r < 0) {
		struct err_note note;

		err_save(r, &note);
		ocdbt_data_discard(nodes);
		return err_restore(&note);
	}
	return 0;
}

static int seal_database(struct commit *c, struct commit_item *item)
{
	struct keys k = { 0 };
	int r = store_sync(item->store);

	if (r >= 0)
		r = collect(item, &k);
	/* A tree of strings and empty containers has no database. */
	if (r >= 0 && k.n)
		r = build(c, item, &k);
	trace(TRACE_OCDBT, "sealed %zu keys", k.n);
	free(k.entry);
	arena_release(&k.arena);
	return r;
}

static int seal_directories(struct commit_item *item)
{
	int r = 0;

	for (size_t i = 0; i < item->n_leaves && r >= 0; i++)
		r = store_leaf_displace(item->leaves[i].kv, item->leaves[i].param);
	for (size_t i = 0; i < item->n_leaves && r >= 0; i++)
		r = store_leaf_place(item->leaves[i].kv, item->leaves[i].param);
	return r;
}

/* ---- files ---- */

static int write_long(struct io_dir *dir, const char *path, unsigned mode, const struct commit_file *f)
{
	auto_of(io_file) struct io_file *out = NULL;
	auto_free uint8_t *piece = malloc(MiB);
	int r = piece ? io_file_open(dir, path, O_RDWR | O_CREAT | O_TRUNC, mode, &out) : -ENOMEM;

	for (uint64_t at = 0; at < f->size && r >= 0; at += MiB) {
		struct io_req req = { .op = IO_WRITE, .file = out, .p = piece, .off = at,
				      .n = (size_t)MIN((uint64_t)MiB, f->size - at) };

		r = f->source(f->arg, at, req.n, piece);
		if (r >= 0)
			r = io_run(dir->io, &req, 1);
	}
	return r < 0 ? r : io_file_sync(out);
}

static int make_dir(struct io_dir *dir, const char *path, unsigned mode)
{
	int r = io_dirop(dir, IO_MKDIR, path, NULL, mode);

	if (r == -EEXIST) {
		err_clear();
		r = 0;
	}
	return r < 0 ? r : io_dirop(dir, IO_SYNC_DIR, path, NULL, 0);
}

/* The directories in a file's name, and all of them durable afterwards. */
static int make_parents(struct io_dir *dir, const char *path, unsigned mode)
{
	int r = 0;

	for (const char *at = path; (at = strchr(at, '/')) && r >= 0; at++) {
		auto_free char *parent = span_dup_str(span_of(path, (size_t)(at - path)));

		r = parent ? io_dirop(dir, IO_MKDIR, parent, NULL, mode) : -ENOMEM;
		if (r == -EEXIST) {
			err_clear();
			r = 0;
		}
	}
	return r;
}

static int sync_parents(struct io_dir *dir, const char *path)
{
	auto_free char *at = strdup(path);
	char *slash;
	int r = at ? 0 : -ENOMEM;

	while (r >= 0 && (slash = strrchr(at, '/'))) {
		*slash = '\0';
		r = io_dirop(dir, IO_SYNC_DIR, at, NULL, 0);
	}
	return r;
}

static int write_file(struct commit *c, const struct commit_item *item, const struct commit_file *f)
{
	unsigned mode = c->file_mode ? c->file_mode : 0666;
	auto_free char *path = NULL;
	int r;

	if (asprintf(&path, "%.*s%s%.*s", SPAN_ARG(item->name), item->name.n ? "/" : "", SPAN_ARG(f->name)) < 0) {
		path = NULL;
		return fail(-ENOMEM, "cannot write '%.*s'", SPAN_ARG(f->name));
	}
	r = make_parents(c->draft->dir, path, c->dir_mode ? c->dir_mode : 0777);
	if (r >= 0 && f->is_dir)
		return make_dir(c->draft->dir, path, c->dir_mode ? c->dir_mode : 0777);
	if (r >= 0)
		r = f->text.p ? io_spit(c->draft->dir, path, mode, f->text) :
				write_long(c->draft->dir, path, mode, f);
	return r < 0 ? r : sync_parents(c->draft->dir, path);
}

/* ---- what is there already ---- */

struct cleaning {
	const struct commit_item *item;
	struct buf names;		/* each ends in NUL */
	struct span *kept;		/* entries that stay, sorted */
	size_t n;
};

static int by_name(const void *a, const void *b)
{
	return span_cmp(*(const struct span *)a, *(const struct span *)b);
}

static int add_other(void *arg, const char *name, unsigned char type)
{
	struct cleaning *cl = arg;
	struct span key = span_str(name);

	/* The draft's lock lies beside the files of an item that is the draft itself. */
	if (!strcmp(name, DRAFT_LOCK_FILE) || (cl->n && bsearch(&key, cl->kept, cl->n, sizeof(key), by_name)))
		return 0;
	return buf_add(&cl->names, name, strlen(name) + 1);
}

static int keep_entries(struct cleaning *cl)
{
	const struct commit_item *item = cl->item;
	size_t at = 0;
	int r = 0;

	for (size_t i = 0; i < item->n_leaves && r >= 0; i++) {
		r = store_leaf_entry(item->leaves[i].kv, &cl->names);
		if (r >= 0)
			r = buf_add_byte(&cl->names, 0);
	}
	cl->kept = calloc(item->n_leaves + 1, sizeof(*cl->kept));
	if (r < 0 || !cl->kept)
		return r < 0 ? r : fail(-ENOMEM, "cannot look at %zu leaves", item->n_leaves);
	for (; at < cl->names.n; at += cl->kept[cl->n++].n + 1)
		cl->kept[cl->n] = span_str((char *)cl->names.p + at);
	qsort(cl->kept, cl->n, sizeof(*cl->kept), by_name);
	return 0;
}

/* Only the leaves' values stay: not what a commit that failed, or a leaf that is gone, left behind. */
static int clean_item(struct commit_item *item)
{
	struct cleaning cl = { .item = item };
	struct io_dir *dir = store_dir(item->store);
	auto_buf others = { 0 };
	int r = 0;

	for (size_t i = 0; i < item->n_leaves && r >= 0; i++)
		r = store_leaf_unplace(item->leaves[i].kv);
	if (r >= 0)
		r = keep_entries(&cl);
	if (r >= 0) {
		/* The spans point into the names, which must not grow any more. */
		struct cleaning look = { .item = item, .kept = cl.kept, .n = cl.n };

		r = io_list(dir, ".", add_other, &look);
		others = look.names;
	}
	for (size_t at = 0; at < others.n && r >= 0; at += strlen((char *)others.p + at) + 1)
		r = io_remove_tree(dir, (char *)others.p + at);
	buf_release(&cl.names);
	free(cl.kept);
	return r;
}

int seal_item(struct commit *c, struct commit_item *item)
{
	int r = item->store ? clean_item(item) : 0;

	/* Without leaves there is no database: all values are in other files. */
	if (r >= 0 && item->store && item->n_leaves)
		r = store_is_ocdbt(item->store) ? seal_database(c, item) : seal_directories(item);
	for (size_t i = 0; i < item->n_files && r >= 0; i++)
		r = write_file(c, item, &item->files[i]);
	if (r >= 0 && item->name.n) {
		auto_free char *dir = span_dup_str(item->name);

		r = dir ? io_dirop(c->draft->dir, IO_SYNC_DIR, dir, NULL, 0) : -ENOMEM;
	}
	return r < 0 ? err_at(r, "item '%.*s'", SPAN_ARG(item->name)) : 0;
}
