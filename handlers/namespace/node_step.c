/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_step.c - a step: its metadata file as stored, its items, and other files beside them.
 *
 * The kind of a child is detected from its contents at lookup. An item that is being deleted
 * (`_CHECKPOINT_DELETION`) is hidden. Composite items (random keys) are small steps themselves.
 *
 * A step that is mounted alone takes new items: `ITEM.tmp` beside the others is a draft.
 */
#include <dirent.h>
#include <pthread.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/io/io_store.h"
#include "core/step/children.h"
#include "core/step/detect.h"
#include "core/step/item_others.h"
#include "core/step/known_names.h"
#include "core/step/step.h"
#include "core/step/step_deletion.h"
#include "core/step/step_meta.h"
#include "core/step/step_name.h"
#include "handlers/namespace/node_draft.h"
#include "handlers/namespace/node_tree.h"
#include "handlers/plugin/plugins.h"

struct node_step {
	struct node node;
	char *path; /* below SOURCE */
	struct io_dir *dir;
	struct file_id id;
	pthread_mutex_t lock; /* protects mtime until it is set */
	bool has_mtime;
	struct timespec mtime;
	struct buf deleting; /* name of the item that is being deleted; empty: none */
};

static struct node_step *step_of(struct node *n)
{
	return container_of(n, struct node_step, node);
}

static int step_stat(struct node *n, struct stat *ret)
{
	struct node_step *s = step_of(n);
	struct access a;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	if (!s->has_mtime) {
		r = step_mtime(s->dir, &s->mtime);
		s->has_mtime = r >= 0;
	}
	pthread_mutex_unlock(&s->lock);
	if (r < 0)
		return r;
	if (n == n->ns->root)
		return ns_stat_root(n->ns, &s->mtime, ret);
	r = access_of_dir(s->dir, &a);
	if (r < 0)
		return r;
	ns_stat_dir(n->ns, &a, &s->mtime, ret);
	return r;
}

static bool is_item_name(const struct node_step *s, struct span name)
{
	return !step_name_is_tmp(name) && !span_eq(name, buf_span(&s->deleting)) && name.n > 0 &&
	       name.p[0] != '.';
}

int node_step_knows(struct node *step, struct span item, const char *path)
{
	struct io_dir *source = step->ns->ckpt->source;
	auto_of(step_meta) struct step_meta *meta = NULL;
	auto_buf text = { 0 };
	int r = io_dir_can_list(source) ? known_names_any(source, path) : 0;

	if (r != 0)
		return r;
	r = io_read_file(step_of(step)->dir, "_CHECKPOINT_METADATA", LIMIT_STEP_FILE, &text);
	if (r >= 0)
		r = step_meta_parse(buf_span(&text), "'_CHECKPOINT_METADATA'", &meta);
	if (r < 0 && err_is_transient(r))
		return r;
	return known_names_of_item(source, path, meta, item);
}

static int item_child(struct node_step *s, struct span name, const struct stat *st,
		      struct node **ret)
{
	auto_free char *path = NULL, *item = span_dup_str(name);
	enum item_binding bound = item ? item_bound(item) : ITEM_UNBOUND;
	enum item_kind kind;
	int r = item ? path_join(s->path, name, &path) : -ENOMEM;

	if (r < 0)
		return r;
	r = node_plugin_lookup(&s->node, name, path, ret);
	if (r != 0)
		return MIN(r, 0);
	r = detect_item(s->node.ns->ckpt->source, path, &kind);
	if (r < 0)
		return r;
	if (bound == ITEM_AS_TREE || bound == ITEM_AS_FILES)
		kind = bound == ITEM_AS_TREE ? ITEM_PYTREE : ITEM_STORED;
	switch (kind) {
	case ITEM_PYTREE:
		return node_item_new(s->node.ns, &s->node, name, path, ret);
	case ITEM_COMPOSITE:
		return node_step_new(s->node.ns, &s->node, name, path, ret);
	case ITEM_STORED:
		break;
	}
	/* A server that cannot list may have more of it, or it has lost its files. */
	r = node_step_knows(&s->node, name, path);
	if (r == 0)
		log_warn("%s", err_text(-EOPNOTSUPP));
	return r < 0 ? r : node_stored_new(&s->node, name, path, st, STORED_OPAQUE, ret);
}

/* A file beside the items, or a document of the step. */
static int file_child(struct node_step *s, struct span name, const struct stat *st,
		      enum stored_role role, struct node **ret)
{
	auto_free char *path = NULL;
	int r = path_join(s->path, name, &path);

	if (r < 0)
		return r;
	return node_stored_new(&s->node, name, path, st, role, ret);
}

static int step_lookup(struct node *n, struct span name, struct node **ret)
{
	struct node_step *s = step_of(n);
	auto_free char *file = span_dup_str(name);
	bool is_other, is_listed = others_are_listed(n->ns->ckpt);
	struct stat st = { 0 };
	int r;

	if (!file)
		return fail(-ENOMEM, "cannot look up '%.*s'", SPAN_ARG(name));
	if (n == n->ns->root && !strcmp(file, ".pytreefs"))
		return node_control_new(n, name, ret);
	if (n == n->ns->root) {
		r = draft_root_lookup(n, name, ret);
		if (r != -ENOENT)
			return r;
	}
	r = io_stat(s->dir, file, &st);
	if (r < 0 && r != -ENOENT && r != -ENOTDIR)
		return r;
	/* The mode of what does not exist is 0: that of no kind. */
	if (S_ISDIR(st.st_mode)) {
		r = step_is_whole(s->dir, file);
		if (r <= 0)
			return r < 0 ? r : -ENOENT;
	}
	if (S_ISDIR(st.st_mode) && is_item_name(s, name))
		return item_child(s, name, &st, ret);
	if (S_ISREG(st.st_mode) && !strcmp(file, "_CHECKPOINT_METADATA"))
		return file_child(s, name, &st, STORED_DOCUMENT, ret);
	is_other = r >= 0 && step_has_other(name, S_ISDIR(st.st_mode) ? DT_DIR :
						  S_ISREG(st.st_mode) ? DT_REG :
									DT_UNKNOWN);
	err_clear();
	/* Names that are not listed do not hide views. */
	if (!is_other || !is_listed)
		r = node_subtree_lookup(n, name, ret);
	if (is_other && (is_listed || r == -ENOENT))
		r = file_child(s, name, &st, STORED_OTHER, ret);
	return r;
}

struct listing_items {
	struct node_step *s;
	struct listing *list;
	bool any;
};

static int add_item(void *arg, const char *name, unsigned char type)
{
	struct listing_items *li = arg;
	bool is_own;
	int r;

	type = child_type(li->s->dir, name, type);
	r = type == DT_DIR ? step_is_whole(li->s->dir, name) : 1;
	if (r <= 0)
		return r;
	is_own = type == DT_DIR ? is_item_name(li->s, span_str(name)) :
				  type == DT_REG && !strcmp(name, "_CHECKPOINT_METADATA");
	li->any |= is_own;
	return is_own || step_has_other(span_str(name), type) ?
		       listing_add(li->list, &li->s->node, span_str(name), type) :
		       0;
}

static int step_list_items(struct node *n, struct listing *ret)
{
	struct listing_items li = { .s = step_of(n), .list = ret };
	int r = listing_add_dots(ret, n);

	if (r < 0)
		return r;
	r = io_list(li.s->dir, ".", add_item, &li);
	if (r < 0)
		return r;
	/* The step was complete when it was opened, and is being removed. */
	if (!li.any && !ns_is_same(n->ns, li.s->path, &li.s->id))
		return -ENOENT;
	if (!li.any)
		return fail(-EUCLEAN, "step '%s' holds no items and no metadata", li.s->path);
	/* The order of the directory itself differs between machines. */
	listing_sort(ret, 2);
	return r >= 0 && n == n->ns->root ? draft_root_list(n, ret) : r;
}

/* ---- drafts of items ---- */

static int immutable(const struct node *n)
{
	return fail(-EROFS, "'%s' is committed, and cannot be changed", n->name);
}

static int step_mkdir(struct node *n, struct span name, unsigned mode, struct node **ret)
{
	return n == n->ns->root ? draft_root_mkdir(n, name, mode, ret) : immutable(n);
}

static int step_create(struct node *n, struct span name, int flags, struct node **ret,
		       struct file **ret_file)
{
	return n == n->ns->root ? draft_root_create(n, name, flags, ret, ret_file) : immutable(n);
}

static int step_rmdir(struct node *n, struct span name)
{
	return n == n->ns->root ? draft_root_rmdir(n, name) : node_refuse_removal(n, name);
}

static int step_rename(struct node *n, struct span name, struct node *to_dir, struct span to_name,
		       unsigned flags)
{
	return n == n->ns->root ? draft_root_rename(n, name, to_dir, to_name, flags) : immutable(n);
}

static bool step_still_valid(struct node *n)
{
	struct node_step *s = step_of(n);

	return ns_is_same(n->ns, s->path, &s->id);
}

static void step_free(struct node *n)
{
	struct node_step *s = step_of(n);

	io_dir_close(s->dir);
	buf_release(&s->deleting);
	pthread_mutex_destroy(&s->lock);
	free(s->path);
	free(s);
}

const struct node_ops node_step_ops = {
	.name = "step",
	.stat = step_stat,
	.lookup = step_lookup,
	.list = step_list_items,
	.xattr_list = tree_xattr_list,
	.xattr_get = tree_xattr_get,
	.still_valid = step_still_valid,
	.mkdir = step_mkdir,
	.create = step_create,
	.rmdir = step_rmdir,
	.rename = step_rename,
	.free = step_free,
};

struct io_dir *node_step_dir(struct node *n)
{
	return step_of(n)->dir;
}

const char *node_step_path(struct node *n)
{
	return step_of(n)->path;
}

const struct file_id *node_step_id(struct node *n)
{
	return &step_of(n)->id;
}

/* Read the name of the item that a v1 deletion is removing. It is hidden, as in Orbax. */
static void read_deletion(struct node_step *s)
{
	auto_of(step_deletion) struct step_deletion *d = NULL;
	auto_buf text = { 0 };

	if (io_read_file(s->dir, "_CHECKPOINT_DELETION", LIMIT_STEP_FILE, &text) >= 0 &&
	    step_deletion_parse(buf_span(&text), "'_CHECKPOINT_DELETION'", &d) >= 0)
		buf_add_span(&s->deleting, d->item);
	err_clear();
}

int node_step_new(struct ns *ns, struct node *dir, struct span name, const char *path,
		  struct node **ret)
{
	auto_of(io_dir) struct io_dir *d = NULL;
	struct node_step *s;
	struct stat st;
	int r = io_dir_sub(ns->ckpt->source, path, &d);

	if (r < 0)
		return r;
	r = io_stat(d, ".", &st);
	if (r < 0)
		return r;
	r = node_new(&node_step_ops, ns, dir, name, sizeof(*s), &s);
	if (r < 0)
		return r;
	pthread_mutex_init(&s->lock, NULL);
	s->dir = take(d);
	s->id = file_id_of(&st);
	/*
	 * Names expire soon: a step that is being copied here exists before all files of its items
	 * do.
	 */
	s->node.child_ttl = NS_ROOT_TTL;
	if (!dir)
		s->node.ttl = NS_STEP_TTL;
	s->path = strdup(path);
	if (!s->path) {
		node_unref(&s->node, 1);
		return fail(-ENOMEM, "cannot open step '%s'", path);
	}
	read_deletion(s);
	*ret = &s->node;
	return 0;
}
