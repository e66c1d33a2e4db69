/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_draft_file.c - open files of a draft: leaves, and generated files.
 */
#include <fcntl.h>

#include "core/base/err.h"
#include "handlers/draft/draft_file.h"
#include "handlers/namespace/node_draft_impl.h"
#include "handlers/namespace/node_tree.h"
#include "handlers/plan/copy_hints.h"
#include "handlers/plan/draft_generated.h"

static struct draft_file *contents(struct file *f)
{
	return node_draft_of(f->node)->n->file;
}

static int handle_read(struct file *f, uint64_t off, size_t n, struct segments *g)
{
	return draft_file_read(contents(f), off, n, g);
}

static ssize_t handle_write(struct file *f, uint64_t off, const void *p, size_t n)
{
	struct draft_handle *h = draft_handle_of(f);

	if (!h->writes)
		return -EBADF;
	draft_file_flush(contents(f), &h->flushed, false);
	return draft_file_write(contents(f), off, p, n);
}

static int handle_flush(struct file *f)
{
	struct draft_handle *h = draft_handle_of(f);

	if (!h->writes)
		return 0;
	draft_file_flush(contents(f), &h->flushed, true);
	return draft_file_take_error(contents(f));
}

static int handle_sync(struct file *f)
{
	return draft_file_sync(contents(f));
}

static void handle_close(struct file *f)
{
	struct draft_handle *h = draft_handle_of(f);

	/*
	 * Once the file is closed, a commit may begin, which would copy the contents for this
	 * reader.
	 */
	draft_file_used(contents(f), false);
	if (h->writes)
		draft_file_closed(contents(f), &h->flushed);
	buf_release(&h->text);
	free(h);
}

static ssize_t handle_copy(struct file *f, uint64_t off, struct zarr *from)
{
	if (!draft_handle_of(f)->writes)
		return -EBADF;
	return off == 0 ? draft_file_copy_leaf(contents(f), from) : 0;
}

static void hint_source(struct draft_node *n, const struct node *from)
{
	const struct item *item = NULL;
	const char *step = NULL;
	struct copied_format f;

	for (const struct node *at = from->parent; at; at = at->parent) {
		if (at->ops == &node_dir_ops && container_of(at, struct node_dir, node)->is_item)
			item = container_of(at, struct node_dir, node)->item;
		if (at->ops == &node_step_ops)
			step = node_step_path((struct node *)at);
	}
	copy_hint_source(n, item ? item->path : NULL, step);
	if (item && from->ops == &node_leaf_ops && item_format(item, &f.ocdbt, &f.zarr3))
		copy_hint_format_of_source(n, f.ocdbt, f.zarr3);
}

/* A view is a different array from its leaf. Only in names of views are '@' and '[' not escaped. */
static void handle_copied(struct file *f, struct node *from)
{
	struct copied_leaf copied = { 0 };
	auto_buf path = { 0 }, write_shape = { 0 };
	enum stored_role role;
	int of_step;

	if (!draft_handle_of(f)->writes)
		return;
	if (node_stored_role(from, &role) && (role == STORED_OPAQUE || role == STORED_OTHER))
		copy_hint_stored(node_draft_of(f->node)->n, role == STORED_OTHER);
	hint_source(node_draft_of(f->node)->n, from);
	copy_hint_sha256(node_draft_of(f->node)->n, NULL);
	of_step = node_path_in_tree(from, &path);
	if (of_step >= 0)
		copy_hint_tree(node_draft_of(f->node)->n, of_step ? buf_str(&path) : NULL);
	if (strpbrk(from->name, "@[") || node_is_draft_leaf(from))
		return;
	if (from->ops == &node_leaf_ops)
		leaf_copied(from, &write_shape, &copied);
	copy_hint_leaf(node_draft_of(f->node)->n, &copied);
}

static void handle_lost(struct file *f, int code)
{
	draft_file_set_lost(contents(f), code);
}

static const struct file_ops handle_ops = {
	.read = handle_read,
	.write = handle_write,
	.lost = handle_lost,
	.copy_array = handle_copy,
	.copied = handle_copied,
	.flush = handle_flush,
	.sync = handle_sync,
	.free = handle_close,
};

int draft_open(struct node *n, int flags, struct file **ret)
{
	struct node_draft *nd = node_draft_of(n);
	struct draft_handle *h;
	bool writes = open_changes(flags);
	int r = draft_check_life(nd->n, writes);

	if (r < 0)
		return r;
	r = file_new(&handle_ops, n, sizeof(*h), &h);
	if (r < 0)
		return r;
	r = draft_file_used(nd->n->file, true);
	/* A program that only writes needs no page cache; reads and maps need it. */
	h->file.direct = (flags & O_ACCMODE) == O_WRONLY;
	if (r >= 0 && writes)
		r = draft_file_opened(nd->n->file);
	h->writes = writes && r >= 0;
	if (h->writes && flags & O_TRUNC)
		r = draft_set_size(nd->n, 0);
	if (r < 0)
		file_close(&h->file);
	else
		*ret = &h->file;
	return r;
}

static int generated_read(struct file *f, uint64_t off, size_t n, struct segments *g)
{
	struct draft_handle *h = draft_handle_of(f);
	auto_buf text = { 0 };
	struct timespec mtime;
	int r;

	if (!atomic_load(&h->wrote))
		return segments_add_part(g, buf_span(&h->text), off, n);
	/* The program that wrote the text reads it back, not the text at the time of open. */
	r = draft_generated_text(node_draft_of(f->node)->n, &text, &mtime);
	return r < 0 ? r : segments_add_part(g, buf_span(&text), off, n);
}

static ssize_t generated_write(struct file *f, uint64_t off, const void *p, size_t n)
{
	struct draft_handle *h = draft_handle_of(f);

	draft_hint_open(node_draft_of(f->node)->n, &h->is_writing);
	atomic_store(&h->wrote, true);
	copy_hint_text(node_draft_of(f->node)->n, off, p, n);
	return (ssize_t)n;
}

/*
 * The kernel releases a file some time after its program has closed it, and has changed other files
 * since.
 */
static int generated_flush(struct file *f)
{
	draft_hint_close(node_draft_of(f->node)->n, &draft_handle_of(f)->is_writing);
	return 0;
}

static void generated_close(struct file *f)
{
	generated_flush(f);
	buf_release(&draft_handle_of(f)->text);
	free(draft_handle_of(f));
}

static const struct file_ops generated_file_ops = {
	.read = generated_read,
	.write = generated_write,
	.flush = generated_flush,
	.free = generated_close,
};

int draft_open_generated(struct node *n, int flags, struct file **ret)
{
	struct draft_handle *h;
	struct timespec mtime;
	int r = file_new(&generated_file_ops, n, sizeof(*h), &h);

	if (r < 0)
		return r;
	r = draft_generated_text(node_draft_of(n)->n, &h->text, &mtime);
	if (r < 0) {
		file_close(&h->file);
		return r;
	}
	h->file.direct = true;
	atomic_store(&node_draft_of(n)->opened_size, h->text.n);
	*ret = &h->file;
	return 0;
}
