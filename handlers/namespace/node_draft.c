/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_draft.c - directories and files of a draft as nodes; node_draft_file.c opens them.
 *
 * `_METADATA` and `_CHECKPOINT_METADATA` are generated for every read. Programs that copy a step
 * write them, too: that is accepted, and is a hint for the plan (copy_hints.h).
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h> /* for RENAME_NOREPLACE */

#include "core/base/err.h"
#include "handlers/draft/draft_file.h"
#include "handlers/namespace/node_draft_impl.h"
#include "handlers/plan/copy_hints.h"
#include "handlers/plan/draft_generated.h"

static const struct node_ops draft_ops, draft_file_ops, generated_ops;

bool node_is_draft(const struct node *n)
{
	return n->ops == &draft_ops;
}

bool node_is_draft_leaf(const struct node *n)
{
	return n->ops == &draft_file_ops;
}

int draft_set_size(struct draft_node *n, uint64_t size)
{
	if (size == 0)
		copy_hint_rewritten(n);
	return draft_file_truncate(n->file, size);
}

/* ---- making nodes ---- */

/* Takes the reference to n in any case, even on failure. */
static int new_node(struct node *dir, struct span name, struct draft_node *n, bool generated,
		    struct node **ret)
{
	const struct node_ops *ops = generated ? &generated_ops :
				     n->is_dir ? &draft_ops :
						 &draft_file_ops;
	struct node_draft *nd;
	int r = node_new(ops, dir->ns, dir, name, sizeof(*nd), &nd);

	if (r < 0) {
		draft_node_unref(n);
		return r;
	}
	nd->draft = draft_ref(n->draft);
	nd->n = n;
	nd->generated = nd->node.generated = generated;
	/*
	 * Directories inside a draft only change through the kernel, which may cache their names.
	 * The directory of the draft becomes a step. Files may appear (generated ones) or vanish
	 * (safetensors) by themselves.
	 */
	nd->node.ttl = !generated && n->is_dir && dir->ops == &draft_ops ? NS_ROOT_TTL : 0;
	nd->node.child_ttl = 0;
	/* The draft's own directory is listed beside steps, so its number comes from its path. */
	if (!generated && n != n->draft->root)
		nd->node.ino = n->ino;
	*ret = &nd->node;
	return 0;
}

static void draft_node_close(struct node *n)
{
	struct node_draft *nd = node_draft_of(n);

	draft_node_unref(nd->n);
	draft_unref(nd->draft);
	free(nd);
}

/* ---- stat, look-up, listing ---- */

static int draft_stat(struct node *n, struct stat *ret)
{
	struct node_draft *nd = node_draft_of(n);
	struct timespec mtime;
	struct access a;
	bool removed, ended;
	int r = 0;

	pthread_mutex_lock(&nd->draft->lock);
	mtime = nd->n->mtime;
	ended = nd->draft->life == DRAFT_GONE;
	/*
	 * An open file remains readable after the end of its draft, and the kernel asks for its
	 * size first.
	 */
	removed = (!nd->n->parent && nd->n != nd->draft->root) || ended;
	if (ended && nd->n->is_dir && !nd->generated)
		r = fail(-ESTALE, "'%s' belongs to a draft that has ended", n->name);
	pthread_mutex_unlock(&nd->draft->lock);
	if (r < 0)
		return r;
	/* Owner and permissions are those of the directory on disk. */
	r = draft_access(nd->draft, &a);
	if (r < 0)
		return r;
	/* Programs that use lock files check whether an open file still has its name. */
	ret->st_nlink = !removed;
	if (nd->generated && ended) {
		ns_stat_file(n->ns, &a, &mtime, nd->opened_size, nd->opened_size, ret);
	} else if (nd->generated) {
		auto_buf text = { 0 };

		r = draft_generated_text(nd->n, &text, &mtime);
		ns_stat_file(n->ns, &a, &mtime, text.n, text.n, ret);
	} else if (nd->n->is_dir) {
		ns_stat_dir(n->ns, &a, &mtime, ret);
		ret->st_mode = S_IFDIR | a.mode;
		return 0;
	} else {
		ns_stat_file(n->ns, &a, &mtime, draft_file_size(nd->n->file),
			     draft_file_stored_bytes(nd->n->file), ret);
	}
	ret->st_mode = S_IFREG | (a.mode & 0666);
	return r;
}

static int draft_node_lookup(struct node *dir, struct span name, struct node **ret)
{
	struct node_draft *nd = node_draft_of(dir);
	struct draft_node *n;
	int r;

	if (draft_is_generated(nd->n, name, false))
		return new_node(dir, name, draft_node_ref(nd->n), true, ret);
	r = draft_lookup(nd->n, name, &n);
	return r < 0 ? r : new_node(dir, name, n, false, ret);
}

static bool draft_still_valid(struct node *node)
{
	struct node_draft *nd = node_draft_of(node);
	struct draft_node *now = NULL;
	auto_node *dir = NULL;
	bool same;

	if (nd->generated)
		return draft_is_generated(nd->n, span_str(node->name), false);
	if (nd->n == nd->draft->root) {
		struct draft *d = draft_find(&node->ns->drafts, span_str(node->name));

		same = d == nd->draft;
		draft_unref(d);
		return same;
	}
	dir = node_parent(node);
	if (!node_is_draft(dir) ||
	    draft_lookup(node_draft_of(dir)->n, span_str(node->name), &now) < 0)
		return false;
	same = now == nd->n;
	draft_node_unref(now);
	return same;
}

static int draft_list(struct node *dir, struct listing *ret)
{
	struct node_draft *nd = node_draft_of(dir);
	auto_draft_list child = { 0 };
	const char *generated;
	int r = draft_children(nd->n, &child);

	if (r < 0)
		return r;
	r = listing_add_dots(ret, dir);
	for (size_t i = 0; i < child.n && r >= 0; i++) {
		const struct draft_node *c = child.node[i];

		if (!draft_is_generated(nd->n, span_str(c->name), false))
			r = listing_add(ret, dir, span_str(c->name), c->is_dir ? DT_DIR : DT_REG);
	}
	if (r < 0)
		return r;
	pthread_mutex_lock(&nd->draft->lock);
	generated = draft_generated_name(nd->n, false);
	pthread_mutex_unlock(&nd->draft->lock);
	return generated ? listing_add(ret, dir, span_str(generated), DT_REG) : 0;
}

/* ---- changes ---- */

/* Remove a name whose creation failed. */
static int take_back(struct draft_node *dir, struct span name, bool is_dir, int r)
{
	struct err_note note;

	err_save(r, &note);
	if (is_dir)
		draft_rmdir(dir, name);
	else
		draft_unlink(dir, name);
	return err_restore(&note);
}

static int draft_do_mkdir(struct node *dir, struct span name, unsigned mode, struct node **ret)
{
	struct draft_node *n;
	int r = draft_mkdir(node_draft_of(dir)->n, name, &n);

	if (r < 0)
		return r;
	draft_node_unref(n);
	r = node_lookup(dir, name, ret);
	return r < 0 ? take_back(node_draft_of(dir)->n, name, true, r) : 0;
}

static int draft_do_create(struct node *dir, struct span name, int flags, struct node **ret,
			   struct file **ret_file)
{
	struct node_draft *nd = node_draft_of(dir);
	struct draft_node *n;
	struct node *made = NULL;
	bool is_new = false;
	int r;

	if (draft_is_generated(nd->n, name, true)) {
		draft_hide_generated(nd->n, false);
	} else {
		r = draft_create(nd->n, name, &n);
		is_new = r >= 0;
		if (r == -EEXIST && !(flags & O_EXCL) && draft_lookup(nd->n, name, &n) >= 0)
			r = 0;
		if (r < 0)
			return r;
		draft_node_unref(n);
	}
	r = node_lookup(dir, name, &made);
	if (r >= 0)
		r = node_open(made, flags, ret_file);
	if (r < 0) {
		node_unref(made, 1);
		return is_new ? take_back(nd->n, name, false, r) : r;
	}
	*ret = made;
	return 0;
}

static int draft_do_unlink(struct node *dir, struct span name)
{
	struct node_draft *nd = node_draft_of(dir);

	if (draft_is_generated(nd->n, name, false)) {
		draft_hide_generated(nd->n, true);
		return 0;
	}
	return draft_unlink(nd->n, name);
}

static int draft_do_rmdir(struct node *dir, struct span name)
{
	return draft_rmdir(node_draft_of(dir)->n, name);
}

static int draft_do_rename(struct node *dir, struct span name, struct node *to_dir,
			   struct span to_name, unsigned flags)
{
	struct node_draft *nd = node_draft_of(dir);
	struct timespec mtime = { 0 };
	auto_node *n = NULL;
	int r;

	if (!to_dir->ops->create)
		return fail(-EROFS, "'%.*s' cannot go to '%s': committed steps are immutable",
			    SPAN_ARG(name), to_dir->name);
	if (!node_is_draft(to_dir) || node_draft_of(to_dir)->draft != nd->draft)
		return fail(-EXDEV, "'%.*s' cannot leave its draft", SPAN_ARG(name));
	if (flags & ~(unsigned)RENAME_NOREPLACE)
		return fail(-EINVAL, "names of a draft cannot be exchanged");
	if (draft_is_generated(nd->n, name, false))
		return fail(-EPERM, "'%.*s' is generated", SPAN_ARG(name));
	/*
	 * The text was written under a temporary name; treat it as if it had been written in place.
	 */
	if (draft_is_generated(node_draft_of(to_dir)->n, to_name, true)) {
		struct draft_node *written;

		if (draft_lookup(nd->n, name, &written) >= 0) {
			if (!written->is_dir)
				copy_hint_file(node_draft_of(to_dir)->n, written->file);
			mtime = written->mtime;
			draft_node_unref(written);
		}
		draft_hide_generated(node_draft_of(to_dir)->n, false);
		r = draft_unlink(nd->n, name);
		if (r < 0)
			return r;
		draft_hint_renamed(node_draft_of(to_dir)->n, &mtime);
		return r;
	}
	r = node_lookup(dir, name, &n);
	if (r < 0)
		return r;
	r = draft_rename(nd->n, name, node_draft_of(to_dir)->n, to_name, flags & RENAME_NOREPLACE);
	return r < 0 ? r : node_moved(n, to_dir, to_name);
}

static int draft_setattr(struct node *n, const struct stat *st, unsigned which, struct file *file)
{
	struct node_draft *nd = node_draft_of(n);
	bool flushed = false;
	int r;

	if (which & NODE_SET_TIMES && !(which & NODE_SET_SIZE))
		draft_set_mtime(nd->n, nd->generated, &st->st_mtim);
	/* The mount determines owner and permissions; setting them succeeds without effect. */
	if (!(which & NODE_SET_SIZE) || nd->generated)
		return 0;
	if (nd->n->is_dir)
		return -EISDIR;
	/* The commit does not begin while the program has the file open. */
	if (file && draft_handle_of(file)->writes)
		return draft_set_size(nd->n, (uint64_t)st->st_size);
	r = draft_check_life(nd->n, true);
	if (r < 0)
		return r;
	r = draft_file_opened(nd->n->file);
	if (r < 0)
		return r;
	r = draft_set_size(nd->n, (uint64_t)st->st_size);
	draft_file_closed(nd->n->file, &flushed);
	return r;
}

static int draft_xattr_set(struct node *n, const char *name, const struct span *value, int flags)
{
	struct node_draft *nd = node_draft_of(n);

	if (nd->generated)
		return value ? 0 : -ENODATA;
	return draft_set_xattr(nd->n, name, value, flags);
}

static int draft_xattr_get(struct node *n, const char *name, struct buf *ret)
{
	return node_draft_of(n)->generated ? -ENODATA :
					     draft_get_xattr(node_draft_of(n)->n, name, ret);
}

static int draft_xattr_list(struct node *n, struct buf *ret)
{
	return node_draft_of(n)->generated ? 0 : draft_list_xattr(node_draft_of(n)->n, ret);
}

static const struct node_ops draft_ops = {
	.name = "draft",
	.stat = draft_stat,
	.lookup = draft_node_lookup,
	.list = draft_list,
	.xattr_list = draft_xattr_list,
	.xattr_get = draft_xattr_get,
	.still_valid = draft_still_valid,
	.mkdir = draft_do_mkdir,
	.create = draft_do_create,
	.unlink = draft_do_unlink,
	.rmdir = draft_do_rmdir,
	.rename = draft_do_rename,
	.setattr = draft_setattr,
	.xattr_set = draft_xattr_set,
	.free = draft_node_close,
};

static const struct node_ops draft_file_ops = {
	.name = "draft leaf",
	.stat = draft_stat,
	.open = draft_open,
	.xattr_list = draft_xattr_list,
	.xattr_get = draft_xattr_get,
	.still_valid = draft_still_valid,
	.setattr = draft_setattr,
	.xattr_set = draft_xattr_set,
	.free = draft_node_close,
};

static const struct node_ops generated_ops = {
	.name = "generated",
	.stat = draft_stat,
	.open = draft_open_generated,
	.still_valid = draft_still_valid,
	.setattr = draft_setattr,
	.xattr_set = draft_xattr_set,
	.free = draft_node_close,
};

/* ---- operations on the root of a mount ---- */

int draft_root_lookup(struct node *root, struct span name, struct node **ret)
{
	auto_of(draft) struct draft *d = draft_find(&root->ns->drafts, name);

	return d ? new_node(root, name, draft_node_ref(d->root), false, ret) : -ENOENT;
}
