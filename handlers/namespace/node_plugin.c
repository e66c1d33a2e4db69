/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_plugin.c - an item that a plugin handles, with the files that the plugin makes of it.
 *
 * The item is decoded once, when its directory is looked up, and kept as long as a node of it is
 * held: such items are small (PYTREEFS_MAX_BYTES). Names have one level: a file "a/b" of the plugin
 * is shown in a directory "a".
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/step/step.h"
#include "handlers/namespace/node_tree.h"
#include "handlers/plugin/plugins.h"

struct shown {
	atomic_uint refs;
	struct timespec mtime;
	char *path;           /* of the item below SOURCE */
	pthread_mutex_t lock; /* protects the following members */
	struct timed_access access;
	struct plugin_files files; /* immutable */
};

struct node_plugin {
	struct node node;
	struct shown *shown;            /* a reference */
	char *prefix;                   /* of this directory: "a/", or "" for the top */
	const struct plugin_file *file; /* NULL: the node is a directory */
};

struct plugin_open_file {
	struct file file;
	const struct plugin_file *bytes;
};

static const struct node_ops plugin_node_ops;

static struct node_plugin *plugin_of(struct node *n)
{
	return container_of(n, struct node_plugin, node);
}

static void shown_unref(struct shown *s)
{
	if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	plugin_files_release(&s->files);
	pthread_mutex_destroy(&s->lock);
	free(s->path);
	free(s);
}
DEFINE_AUTO(shown, struct shown, shown_unref);

static int child_new(struct node *dir, struct span name, struct shown *s, const char *prefix,
		     const struct plugin_file *file, struct node **ret)
{
	struct node_plugin *p;
	int r = node_new(&plugin_node_ops, dir->ns, dir, name, sizeof(*p), &p);

	if (r < 0)
		return r;
	atomic_fetch_add(&s->refs, 1);
	p->shown = s;
	p->file = file;
	p->prefix = strdup(prefix);
	if (!p->prefix) {
		node_unref(&p->node, 1);
		return fail(-ENOMEM, "cannot look up '%.*s'", SPAN_ARG(name));
	}
	*ret = &p->node;
	return 0;
}

/*
 * Get the permissions: users who may read all files of the item, since every shown file depends on
 * all.
 */
static int shown_access(struct ns *ns, struct shown *s, struct access *ret)
{
	int64_t now = clock_ns();
	int r = 0;

	pthread_mutex_lock(&s->lock);
	if (!timed_access_is_fresh(&s->access, now)) {
		r = access_of_all(ns->ckpt->source, s->path, &s->access.access);
		s->access.at = r < 0 ? 0 : clock_ns();
		s->access.took = s->access.at - now;
	}
	*ret = s->access.access;
	pthread_mutex_unlock(&s->lock);
	return r;
}

static int plugin_stat(struct node *n, struct stat *ret)
{
	const struct node_plugin *p = plugin_of(n);
	struct access a;
	int r = shown_access(n->ns, p->shown, &a);

	if (r < 0)
		return r;
	if (p->file)
		ns_stat_file(n->ns, &a, &p->shown->mtime, p->file->n, p->file->n, ret);
	else
		ns_stat_dir(n->ns, &a, &p->shown->mtime, ret);
	return r;
}

/*
 * Returns the part of a file's name after the prefix of the directory; NULL: it is not in the
 * directory.
 */
static const char *below(const struct node_plugin *p, const struct plugin_file *f)
{
	size_t n = strlen(p->prefix);

	return strncmp(f->name, p->prefix, n) ? NULL : f->name + n;
}

static int plugin_lookup(struct node *n, struct span name, struct node **ret)
{
	const struct node_plugin *p = plugin_of(n);

	if (p->file)
		return -ENOTDIR;
	for (size_t i = 0; i < p->shown->files.n; i++) {
		const struct plugin_file *f = &p->shown->files.file[i];
		const char *rest = below(p, f);
		auto_buf prefix = { 0 };

		if (!rest || strncmp(rest, (const char *)name.p, name.n))
			continue;
		if (!rest[name.n])
			return child_new(n, name, p->shown, "", f, ret);
		if (rest[name.n] != '/')
			continue;
		if (buf_addf(&prefix, "%s%.*s/", p->prefix, SPAN_ARG(name)) < 0 ||
		    !buf_str(&prefix))
			return -ENOMEM;
		return child_new(n, name, p->shown, buf_str(&prefix), NULL, ret);
	}
	return -ENOENT;
}

static int plugin_list(struct node *n, struct listing *ret)
{
	const struct node_plugin *p = plugin_of(n);
	int r = listing_add_dots(ret, n);

	for (size_t i = 0; i < p->shown->files.n && r >= 0; i++) {
		const char *rest = below(p, &p->shown->files.file[i]);
		struct span name = span_of(rest, rest ? strcspn(rest, "/") : 0);
		bool listed = false;

		for (size_t k = 2; rest && k < ret->n; k++)
			listed |= span_eq(span_str(listing_name(ret, k)), name);
		if (rest && !listed)
			r = listing_add(ret, n, name, rest[name.n] ? DT_DIR : DT_REG);
	}
	if (r < 0)
		return r;
	listing_sort(ret, 2);
	return r;
}

static int plugin_read(struct file *f, uint64_t off, size_t n, struct segments *g)
{
	const struct plugin_file *b = container_of(f, struct plugin_open_file, file)->bytes;

	return segments_add_part(g, span_of(b->p, b->n), off, n);
}

static void plugin_close(struct file *f)
{
	free(container_of(f, struct plugin_open_file, file));
}

static const struct file_ops plugin_file_ops = { .read = plugin_read, .free = plugin_close };

static int node_plugin_open(struct node *n, int flags, struct file **ret)
{
	struct plugin_open_file *f;
	int r;

	if (open_changes(flags))
		return fail(-EROFS, "'%s' cannot be written: committed steps are immutable",
			    n->name);
	if (!plugin_of(n)->file)
		return fail(-EISDIR, "'%s' is a directory", n->name);
	r = file_new(&plugin_file_ops, n, sizeof(*f), &f);
	if (r < 0)
		return r;
	f->bytes = plugin_of(n)->file;
	f->file.keep_cache = true;
	*ret = &f->file;
	return 0;
}

static void plugin_free(struct node *n)
{
	shown_unref(plugin_of(n)->shown);
	free(plugin_of(n)->prefix);
	free(plugin_of(n));
}

static const struct node_ops plugin_node_ops = {
	.name = "plugin",
	.stat = plugin_stat,
	.lookup = plugin_lookup,
	.list = plugin_list,
	.open = node_plugin_open,
	.free = plugin_free,
};

static int node_plugin_by_name(const void *a, const void *b)
{
	return strcmp(((const struct plugin_file *)a)->name, ((const struct plugin_file *)b)->name);
}

/* A file and a directory with the same name cannot both be shown. */
static int node_plugin_check_names(const struct plugin_files *f)
{
	for (size_t i = 1; i < f->n; i++) {
		size_t n = strlen(f->file[i - 1].name);

		if (!strncmp(f->file[i - 1].name, f->file[i].name, n) &&
		    (!f->file[i].name[n] || f->file[i].name[n] == '/'))
			return fail(-EUCLEAN, "a plugin gave '%s' and '%s'", f->file[i - 1].name,
				    f->file[i].name);
	}
	return 0;
}

/* Let the plugin make the files of an item. */
static int shown_new(struct plugin *plugin, struct io_dir *source, const char *path,
		     struct shown **ret)
{
	auto_plugin_files stored = { 0 };
	auto_of(shown) struct shown *s = NULL;
	struct stat st;
	int r = io_stat(source, path, &st);

	if (r < 0)
		return r;
	r = plugin_files_read(source, path, true, &stored);
	if (r < 0)
		return r;
	s = calloc(1, sizeof(*s));
	if (!s)
		return fail(-ENOMEM, "cannot open item '%s'", path);
	atomic_init(&s->refs, 1);
	pthread_mutex_init(&s->lock, NULL);
	s->mtime = st.st_mtim;
	s->path = strdup(path);
	r = s->path ? plugin_decode_item(plugin, &stored, &s->files) : -ENOMEM;
	if (r < 0)
		return err_at(r, "item '%s'", path);
	if (s->files.n)
		qsort(s->files.file, s->files.n, sizeof(*s->files.file), node_plugin_by_name);
	r = node_plugin_check_names(&s->files);
	if (r < 0)
		return err_at(r, "item '%s'", path);
	*ret = take(s);
	return 0;
}

int node_plugin_lookup(struct node *dir, struct span name, const char *path, struct node **ret)
{
	struct io_dir *source = dir->ns->ckpt->source;
	auto_free char *item = span_dup_str(name);
	auto_of(shown) struct shown *s = NULL;
	struct plugin *plugin;
	int r = item ? plugin_of_item(item, source, path, &plugin) : -ENOMEM;

	if (r < 0 || !plugin)
		return r;
	r = shown_new(plugin, source, path, &s);
	if (r < 0)
		return r;
	r = child_new(dir, name, s, "", NULL, ret);
	return r < 0 ? err_at(r, "item '%s'", path) : 1;
}
