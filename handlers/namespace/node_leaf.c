/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_leaf.c - leaves as files, in their default format or as a view.
 *
 * Data is decoded before a reader requests it: the rest of the leaf for a sequential reader, and
 * the next leaves for a program that reads leaf after leaf.
 */
#include <fcntl.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/glob.h"
#include "core/base/log.h"
#include "handlers/leaf/leaf.h"
#include "handlers/namespace/node_tree.h"
#include "handlers/namespace/readahead.h"
#include "handlers/subtree/subtree.h"

/* a sequential reader that has read this much reads more than the header */
#define BEGUN_BYTES (256 * KiB)

struct leaf_file {
	struct file file;
	struct format format;
	struct readahead ahead;
	/* A sequential reader has reached BEGUN_BYTES; the last byte; so that all were read. */
	atomic_bool begun, reached, ended;
	struct memory_file *memory; /* a reference; NULL: it is not in memory */
	bool by_requests;           /* ahead_opened() */
};

static struct node_leaf *node_leaf_of(struct node *n)
{
	return container_of(n, struct node_leaf, node);
}

int node_leaf_new(struct node_dir *dir, struct span name, const struct tree_node *leaf,
		  enum name_ext ext, bool is_view, struct node **ret)
{
	struct node_leaf *l;
	int r = node_new(&node_leaf_ops, dir->node.ns, &dir->node, name, sizeof(*l), &l);

	if (r < 0)
		return r;
	l->item = item_ref(dir->item);
	l->tree = leaf;
	l->mtime = dir->mtime;
	l->ext = ext;
	l->is_view = is_view;
	*ret = &l->node;
	return 0;
}

bool node_leaf_is_whole(const struct node_leaf *l)
{
	struct name_view name;

	return !l->is_view ||
	       (name_view_parse(span_str(l->node.name), &name) >= 0 && name_view_is_plain(&name));
}

/* Apply the name of a view, and restore_dtype, to the view of the whole leaf. */
static int refine_view(const struct node_leaf *l, const struct value *v, struct zarr_view *view)
{
	const struct options *o = l->node.ns->options;
	struct name_view name;
	enum dtype dtype;
	int r = name_view_parse(span_str(l->node.name), &name);

	if (r < 0)
		return r;
	if (v->kind != VALUE_ARRAY && !name_view_is_plain(&name))
		return fail(-ENOENT, "only arrays have boxes, shapes and casts");
	if (v->kind != VALUE_ARRAY)
		return 0;
	r = view_of_name(&name, &v->array->meta, o->pad_truncate, view);
	if (r < 0 || !o->restore_dtype || name.has_cast)
		return r;
	dtype = view->dtype;
	r = leaf_restored_dtype(l->item, l->tree, o->restore_dtype, v->is_scalar, &dtype);
	return r < 0 ? r : zarr_view_cast(view, dtype);
}

int node_leaf_value(struct node_leaf *l, struct value *ret, struct zarr_view *ret_view)
{
	auto_value v = { 0 };
	struct zarr_view view = { 0 };
	int r = leaf_open(l->item, l->tree, &v);

	if (r < 0)
		return r;
	if (v.kind == VALUE_ARRAY)
		zarr_view_whole(&v.array->meta, &view);
	if (l->is_view || l->node.ns->options->restore_dtype)
		r = refine_view(l, &v, &view);
	if (r < 0)
		return r;
	*ret = v;
	*ret_view = view;
	v = (struct value){ 0 };
	return 0;
}

int node_leaf_format(struct node_leaf *l, struct format *ret)
{
	auto_value v = { 0 };
	struct zarr_view view;
	int r = node_leaf_value(l, &v, &view);

	return r < 0 ? r : format_open(l->ext, &v, &view, ret);
}

int leaf_stored(struct item *item, const struct tree_node *leaf, uint64_t *ret)
{
	auto_value v = { 0 };
	uint64_t objects;
	int r = leaf_open(item, leaf, &v);

	if (r < 0)
		return r;
	*ret = v.kind == VALUE_TEXT || v.kind == VALUE_FILE ? v.text.n : 0;
	return v.kind == VALUE_ARRAY ? zarr_stored(v.array, ret, &objects) : 0;
}

static int leaf_access(struct node_leaf *l, struct access *ret)
{
	int64_t now = clock_ns();
	struct timed_access own;
	int r = item_access(l->item, ret);

	if (r < 0)
		return r;
	pthread_mutex_lock(&l->item->access_lock);
	own = l->own;
	pthread_mutex_unlock(&l->item->access_lock);
	if (!timed_access_is_fresh(&own, now)) {
		own.access = (struct access){ .mode = 0777 };
		r = item_access_leaf(l->item, l->tree, &own.access);
		if (r < 0)
			return r;
		own.at = clock_ns();
		own.took = own.at - now;
		pthread_mutex_lock(&l->item->access_lock);
		l->own = own;
		pthread_mutex_unlock(&l->item->access_lock);
	}
	access_both(ret, &own.access);
	return 0;
}

static int leaf_stat(struct node *n, struct stat *ret)
{
	struct node_leaf *l = node_leaf_of(n);
	struct access a;
	int r = leaf_access(l, &a);

	if (r < 0)
		return r;

	/* Two threads may compute it at once. They get the same result, so both may store it. */
	if (!__atomic_load_n(&l->has_size, __ATOMIC_ACQUIRE)) {
		auto_format f = { 0 };
		uint64_t stored = 0, objects;

		r = node_leaf_format(l, &f);
		if (r < 0)
			return r;
		if (f.value.kind == VALUE_ARRAY && !l->is_view)
			r = zarr_stored(f.value.array, &stored, &objects);
		if (r < 0)
			return r;
		stored = f.value.kind == VALUE_ARRAY && !l->is_view ? stored : f.size;
		__atomic_store_n(&l->size, f.size, __ATOMIC_RELAXED);
		__atomic_store_n(&l->stored, stored, __ATOMIC_RELAXED);
		__atomic_store_n(&l->has_size, true, __ATOMIC_RELEASE);
	}
	ns_stat_file(n->ns, &a, &l->mtime, __atomic_load_n(&l->size, __ATOMIC_RELAXED),
		     __atomic_load_n(&l->stored, __ATOMIC_RELAXED), ret);
	return 0;
}

/* ---- decode-ahead ---- */

static bool node_leaf_is_chosen(const struct item *item, const struct tree_node *leaf,
				const char *glob)
{
	auto_buf path = { 0 };
	unsigned skip;
	int r = subtree_rule_path(item, leaf, &path, &skip);

	return r >= 0 && glob_selects(glob, buf_span(&path), skip,
				      strlen(name_ext_text(leaf_ext(NULL, leaf))));
}

/* The top of the leaf's item, which exists since nodes hold their parents. */
static struct node_dir *item_top(const struct node_leaf *l)
{
	struct node_dir *d = container_of(l->node.parent, struct node_dir, node);

	while (!d->is_item)
		d = container_of(d->node.parent, struct node_dir, node);
	return d;
}

/* Decode the leaves of priority= as soon as a program opens any leaf of their item. */
static void prefetch_priority(struct node_leaf *l)
{
	const char *glob = l->node.ns->options->priority;
	uint64_t left = MIN(READAHEAD_BYTES, cache_limit(l->node.ns->ckpt->cache) / 4);
	const struct tree *tree = l->item->tree;
	struct node_dir *top = item_top(l);

	if (!glob || !l->item->ckpt->pool || atomic_exchange(&top->priority_asked, true))
		return;
	for (uint32_t i = 0; i < tree->n_nodes && left; i++) {
		uint64_t n = MIN(left, MiB);

		if (tree->nodes[i]->kind != TREE_LEAF ||
		    tree->nodes[i]->value != TREE_VALUE_STORED ||
		    !node_leaf_is_chosen(l->item, tree->nodes[i], glob))
			continue;
		trace(TRACE_LEAF, "prefetch '%.*s'", SPAN_ARG(tree->nodes[i]->param));
		ahead_leaf(top->ahead, tree->nodes[i], n);
		left -= n;
	}
}

/* A sequential reader has reached `end`. */
static void begin_leaf(struct leaf_file *lf, uint64_t end)
{
	struct node_leaf *l = node_leaf_of(lf->file.node);
	const struct format *f = &lf->format;
	/* Another leaf follows it in some order only if the file contains the whole leaf. */
	bool is_whole = f->value.kind != VALUE_ARRAY ||
			f->view.n_elements == f->value.array->meta.n_elements;

	if (lf->file.is_single || end < MIN(f->size, BEGUN_BYTES) || !is_whole ||
	    atomic_load_explicit(&lf->begun, memory_order_relaxed) ||
	    atomic_exchange(&lf->begun, true))
		return;
	ahead_begun(item_top(l)->ahead, lf->file.reader, l->tree, f->size,
		    format_is_whole_npy(f) ? AHEAD_FILES : AHEAD_CHUNKS);
}

/*
 * A sequential reader requests bytes up to `end`, n in all. If it comes to the last one, and as
 * many bytes as there are were requested by it and by others beside it, it reads leaves whole.
 */
static void end_leaf(struct leaf_file *lf, uint64_t end, uint64_t n)
{
	struct node_leaf *l = node_leaf_of(lf->file.node);
	uint64_t requested = atomic_fetch_add(&l->requested, n) + n;

	if (end == lf->format.size)
		atomic_store(&lf->reached, true);
	if (requested >= lf->format.size && atomic_load(&lf->reached) && atomic_load(&lf->begun) &&
	    !atomic_exchange(&lf->ended, true))
		ahead_ended(item_top(l)->ahead, lf->file.reader, l->tree);
}

static void leaf_prefetch(struct file *f, uint64_t off, uint64_t n, struct zarr_guess *guess)
{
	format_prefetch(&container_of(f, struct leaf_file, file)->format, off, n, guess);
}

static void leaf_drop_behind(struct file *f, uint64_t from, uint64_t to)
{
	format_drop_behind(&container_of(f, struct leaf_file, file)->format, from, to);
}

static const struct readahead_ops leaf_ahead_ops = { .prefetch = leaf_prefetch,
						     .drop_behind = leaf_drop_behind };

static int leaf_read(struct file *f, uint64_t off, size_t n, struct segments *g)
{
	struct leaf_file *lf = container_of(f, struct leaf_file, file);
	uint64_t end = MIN(off + n, lf->format.size);
	int r;

	if (off >= lf->format.size)
		return 0;
	if (readahead_request(&lf->ahead, off, end)) {
		begin_leaf(lf, end);
		end_leaf(lf, end, end - off);
	}
	r = format_read(&lf->format, off, n, g);
	if (r < 0)
		return err_at(r, "leaf '%.*s'", SPAN_ARG(node_leaf_of(f->node)->tree->param));
	readahead_answered(&lf->ahead, end);
	return r;
}

static int leaf_seek(struct file *f, uint64_t off, int whence, uint64_t *ret)
{
	struct leaf_file *lf = container_of(f, struct leaf_file, file);

	if (off >= lf->format.size)
		return -ENXIO;
	return format_seek(&lf->format, off, whence, ret);
}

static void leaf_close(struct file *f)
{
	struct leaf_file *lf = container_of(f, struct leaf_file, file);

	if (lf->by_requests)
		ahead_closed(item_top(node_leaf_of(f->node))->ahead, node_leaf_of(f->node)->tree);
	memory_file_put(f->node->ns->memory, lf->memory);
	readahead_release(&lf->ahead);
	format_release(&lf->format);
	free(lf);
}

static struct zarr *whole_array(struct file *f)
{
	const struct format *format = &container_of(f, struct leaf_file, file)->format;

	return format_is_whole_npy(format) ? format->value.array : NULL;
}

/* The file in memory, if the leaf has one or was expected; waits until it is decoded. */
static int leaf_in_memory(struct file *f)
{
	struct leaf_file *lf = container_of(f, struct leaf_file, file);
	struct node_leaf *l = node_leaf_of(f->node);

	lf->memory = ahead_open(item_top(l)->ahead, f->reader, l->tree, &lf->format);
	return lf->memory ? memory_file_fd(lf->memory) : -1;
}

static void leaf_by_requests(struct file *f)
{
	struct leaf_file *lf = container_of(f, struct leaf_file, file);
	struct node_leaf *l = node_leaf_of(f->node);

	memory_file_put(f->node->ns->memory, take(lf->memory));
	lf->by_requests = ahead_opened(item_top(l)->ahead, l->tree);
}

static const struct file_ops leaf_file_ops = {
	.array = whole_array,
	.read = leaf_read,
	.seek = leaf_seek,
	.free = leaf_close,
};

static const struct file_ops memory_leaf_file_ops = {
	.array = whole_array,
	.read = leaf_read,
	.seek = leaf_seek,
	.stored = leaf_in_memory,
	.by_requests = leaf_by_requests,
	.free = leaf_close,
};

static int leaf_node_open(struct node *n, int flags, struct file **ret)
{
	struct node_leaf *l = node_leaf_of(n);
	struct leaf_file *lf;
	int r;

	if (open_changes(flags)) {
		auto_buf path = { 0 };

		node_path(n, &path);
		return fail(-EROFS, "'%s' cannot be written: %s", buf_str(&path),
			    node_why_read_only(n));
	}
	r = file_new(&leaf_file_ops, n, sizeof(*lf), &lf);
	if (r < 0)
		return r;
	r = node_leaf_format(l, &lf->format);
	if (r < 0) {
		file_close(&lf->file);
		return r;
	}
	if (n->ns->memory && ahead_is_for_memory(&lf->format))
		lf->file.ops = &memory_leaf_file_ops;
	lf->file.keep_cache = true;
	readahead_init(&lf->ahead, &leaf_ahead_ops, &lf->file, lf->format.size);
	prefetch_priority(l);
	*ret = &lf->file;
	return 0;
}

static void leaf_free(struct node *n)
{
	item_unref(node_leaf_of(n)->item);
	free(node_leaf_of(n));
}

const struct node_ops node_leaf_ops = {
	.name = "leaf",
	.stat = leaf_stat,
	.open = leaf_node_open,
	.xattr_list = tree_xattr_list,
	.xattr_get = tree_xattr_get,
	.free = leaf_free,
};

int node_view_absent(struct span name, int r)
{
	struct err_note note;

	/* The name looks like a view, so say what is wrong with it. */
	if (r < 0 && name_ext_of(name) != NAME_EXT_NONE &&
	    (memchr(name.p, '[', name.n) || memchr(name.p, '@', name.n))) {
		err_save(r, &note);
		return fail(-ENOENT, "%s", note.text);
	}
	err_clear();
	return -ENOENT;
}

int node_view_lookup(struct node_dir *dir, struct span name, struct node **ret)
{
	const struct tree_node *leaf = NULL;
	struct name_view v;
	auto_node *n = NULL;
	struct stat st;
	int r;

	r = name_view_parse(name, &v);
	if (r < 0 || v.ext == NAME_EXT_NONE)
		return node_view_absent(name, r);
	for (int ext = NAME_EXT_NPY; ext < NAME_EXT_COUNT && !leaf; ext++) {
		const char *text = name_ext_text((enum name_ext)ext);
		auto_buf whole = { 0 };

		if (!text[0])
			break; /* no more plugins */
		if (buf_add_span(&whole, v.stem) < 0 || buf_add_str(&whole, text) < 0)
			return -ENOMEM;
		leaf = dir->tree->kind == TREE_LEAF ?
			       (span_eq(dir->tree->name, buf_span(&whole)) ? dir->tree : NULL) :
			       tree_child(dir->tree, buf_span(&whole));
		if (leaf && leaf->kind != TREE_LEAF)
			leaf = NULL;
	}
	if (!leaf || !leaf_type_of(leaf)) {
		err_clear();
		return -ENOENT;
	}
	if (v.ext >= NAME_EXT_PLUGIN && v.ext != leaf_type_of(leaf)->ext)
		return -ENOENT;
	r = node_leaf_new(dir, name, leaf, v.ext, true, &n);
	if (r < 0)
		return r;
	/* A name only exists if its leaf can have this form. */
	r = node_stat(n, &st);
	if (r < 0)
		return r;
	*ret = take(n);
	return 0;
}
