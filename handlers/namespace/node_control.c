/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_control.c - `.pytreefs`: reachable by name, but not listed by its parent.
 *
 * The contents of its files are made at open, so that each open file is consistent however it is
 * read. Only the log grows while it is open: `tail -f` shows new lines.
 */
#include <dirent.h>
#include <fcntl.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "handlers/namespace/ns.h"

struct node_control {
	struct node node;
	int (*print)(struct ns *ns, struct buf *ret); /* NULL: the directory itself */
};

struct control_file {
	struct file file;
	struct buf text;
};

static int print_log(struct ns *ns, struct buf *ret)
{
	return log_text(ret);
}

static const struct {
	const char *name;
	int (*print)(struct ns *ns, struct buf *ret);
} entries[] = {
	{ "config", ns_config_json }, { "log", print_log },           { "metrics", ns_metrics },
	{ "stats", ns_stats_json },   { "version", ns_version_json },
};

static struct node_control *control_of(struct node *n)
{
	return container_of(n, struct node_control, node);
}

static int control_stat(struct node *n, struct stat *ret)
{
	struct node_control *c = control_of(n);
	auto_buf text = { 0 };
	struct timespec now;
	struct access a;
	int r = access_of_dir(n->ns->ckpt->source, &a);

	if (r < 0)
		return r;
	if (!c->print) {
		ns_stat_dir(n->ns, &a, &n->ns->started, ret);
		ret->st_mode &= ~(mode_t)0222;
		return 0;
	}
	/*
	 * The log names leaves of steps that not all users may read, so it is only readable for
	 * users who may write.
	 */
	if (c->print == print_log)
		a.mode &= (a.mode & 0222) << 1 | 0400;
	clock_gettime(CLOCK_REALTIME, &now);
	r = c->print(n->ns, &text);
	if (r < 0)
		return r;
	ns_stat_file(n->ns, &a, &now, text.n, text.n, ret);
	return r;
}

static const struct node_ops control_ops;

static int control_child(struct node *dir, struct span name,
			 int (*print)(struct ns *, struct buf *), struct node **ret)
{
	struct node_control *c;
	int r = node_new(&control_ops, dir->ns, dir, name, sizeof(*c), &c);

	if (r < 0)
		return r;
	c->print = print;
	c->node.ttl = c->node.child_ttl = 0;
	*ret = &c->node;
	return 0;
}

static int control_lookup(struct node *n, struct span name, struct node **ret)
{
	if (control_of(n)->print)
		return fail(-ENOTDIR, "'%s' is not a directory", n->name);
	for (size_t i = 0; i < ARRAY_LEN(entries); i++)
		if (span_eq(name, span_str(entries[i].name)))
			return control_child(n, name, entries[i].print, ret);
	if (span_eq(name, span_str("stored"))) {
		struct stat st;
		int r = io_stat(n->ns->ckpt->source, ".", &st);

		if (r < 0)
			return r;
		r = node_stored_new(n, name, ".", &st, STORED_BACKUP, ret);
		if (r < 0)
			return r;
		(*ret)->ttl = (*ret)->child_ttl = NS_ROOT_TTL;
		return r;
	}
	return -ENOENT;
}

static int control_list(struct node *n, struct listing *ret)
{
	int r;

	if (control_of(n)->print)
		return fail(-ENOTDIR, "'%s' is not a directory", n->name);
	r = listing_add_dots(ret, n);
	for (size_t i = 0; i < ARRAY_LEN(entries) && r >= 0; i++)
		r = listing_add(ret, n, span_str(entries[i].name), DT_REG);
	return r < 0 ? r : listing_add(ret, n, span_str("stored"), DT_DIR);
}

static int control_read(struct file *f, uint64_t off, size_t n, struct segments *g)
{
	struct control_file *cf = container_of(f, struct control_file, file);

	/* Only the log grows. Readers of one handle do not wait for each other. */
	if (off >= cf->text.n && control_of(f->node)->print == print_log) {
		auto_buf now = { 0 };
		int r = log_text(&now);

		return r < 0 ? r : segments_add_part(g, buf_span(&now), off, n);
	}
	return segments_add_part(g, buf_span(&cf->text), off, n);
}

static void control_close(struct file *f)
{
	struct control_file *cf = container_of(f, struct control_file, file);

	buf_release(&cf->text);
	free(cf);
}

static const struct file_ops control_file_ops = { .read = control_read, .free = control_close };

static int control_open(struct node *n, int flags, struct file **ret)
{
	struct control_file *cf;
	int r;

	if (!control_of(n)->print)
		return fail(-EISDIR, "'%s' is a directory", n->name);
	if (open_changes(flags))
		return fail(-EROFS, "'.pytreefs/%s' cannot be written", n->name);
	r = file_new(&control_file_ops, n, sizeof(*cf), &cf);
	if (r < 0)
		return r;
	r = control_of(n)->print(n->ns, &cf->text);
	if (r < 0) {
		file_close(&cf->file);
		return r;
	}
	/* The size may be different at the next open, so the kernel must not cache it. */
	cf->file.direct = true;
	*ret = &cf->file;
	return 0;
}

static void control_free(struct node *n)
{
	free(control_of(n));
}

static const struct node_ops control_ops = {
	.name = "control",
	.stat = control_stat,
	.lookup = control_lookup,
	.list = control_list,
	.open = control_open,
	.free = control_free,
};

int node_control_new(struct node *dir, struct span name, struct node **ret)
{
	return control_child(dir, name, NULL, ret);
}
