/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_names.c - leaves, listings, attributes and files: names as a mount shows them.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#include "core/step/step_name.h"
#include "handlers/namespace/node_tree.h"
#include "tools/lib/lib.h"

/* ---- leaves ---- */

void lib_finder_init(struct lib_finder *f, struct pytreefs *ck)
{
	*f = (struct lib_finder){ .ck = ck };
	pthread_mutex_init(&f->lock, NULL);
}

void lib_finder_release(struct lib_finder *f)
{
	node_unref(f->dir, 1);
	free(f->dir_name);
	pthread_mutex_destroy(&f->lock);
}

static struct node *last_dir(struct lib_finder *f, struct span name)
{
	struct node *dir = NULL;

	pthread_mutex_lock(&f->lock);
	if (f->dir && span_eq(span_str(f->dir_name), name))
		dir = node_ref(f->dir);
	pthread_mutex_unlock(&f->lock);
	return dir;
}

static void set_last_dir(struct lib_finder *f, struct node *dir, struct span name)
{
	char *copy = span_dup_str(name), *old_name;
	struct node *old;

	if (!copy)
		return;
	pthread_mutex_lock(&f->lock);
	old = f->dir;
	old_name = f->dir_name;
	f->dir = node_ref(dir);
	f->dir_name = copy;
	pthread_mutex_unlock(&f->lock);
	node_unref(old, 1);
	free(old_name);
}

static int lib_find_node(struct lib_finder *f, const char *name, struct node **ret)
{
	const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
	struct span dir_name = span_of(name, slash ? (size_t)(slash - name) : 0);
	/* Names like "a/", "a/." and "" lead elsewhere. */
	bool is_entry = *last && strcmp(last, ".") != 0;
	auto_node *dir = is_entry ? last_dir(f, dir_name) : NULL;
	int r = dir ? node_lookup(dir, span_str(last), ret) : -ENOENT;

	if (r != -ENOENT)
		return r;
	r = lib_node(f->ck, name, ret);
	if (r < 0)
		return r;
	if (is_entry && !dir && (*ret)->parent)
		set_last_dir(f, (*ret)->parent, dir_name);
	return 0;
}

int lib_find_leaf(struct lib_finder *f, const char *name, uint64_t version, struct node **ret,
		  struct node_leaf **ret_leaf)
{
	auto_node *n = NULL;
	int r = lib_find_node(f, name, &n);

	if (r < 0)
		return r;
	if (n->ops != &node_leaf_ops)
		return fail(-EINVAL, "'%s' is not a leaf", name);
	if (version && lib_version_of(n) != version)
		return fail(-ESTALE, "it was replaced since it was described: look it up again");
	*ret_leaf = container_of(n, struct node_leaf, node);
	*ret = take(n);
	return 0;
}

/* ---- listings ---- */

static int lib_names_list(struct pytreefs *ck, const char *name, bool steps, pytreefs_list_fn *fn,
			  void *arg)
{
	auto_node *n = NULL;
	auto_listing l = { 0 };
	bool is_root;
	int r = lib_node(ck, name, &n);

	if (r < 0)
		return r;
	is_root = node_is_root(n);
	if (steps && !is_root)
		return fail(-EINVAL, "'%s' is not a directory of steps", ck->source.source);
	r = node_list(n, &l);
	/* Entries 0 and 1 are "." and "..". */
	for (size_t i = 2; i < l.n && r == 0; i++) {
		struct pytreefs_entry e = { .name = listing_name(&l, i), .step = UINT64_MAX };
		struct step_name step;

		e.is_directory = l.entry[i].type == DT_DIR;
		e.is_step = is_root && step_name_parse(span_str(e.name), &step) == 1;
		if (e.is_step)
			e.step = step.number;
		if (e.is_step || !steps)
			r = fn(arg, &e);
	}
	return r;
}

int pytreefs_list(struct pytreefs *ck, const char *name, pytreefs_list_fn *fn, void *arg)
{
	int r = lib_begin(ck, name);

	return (int)lib_end(r < 0 ? r : lib_names_list(ck, name, false, fn, arg));
}

int pytreefs_steps(struct pytreefs *ck, pytreefs_list_fn *fn, void *arg)
{
	int r = lib_begin(ck, "");

	return (int)lib_end(r < 0 ? r : lib_names_list(ck, "", true, fn, arg));
}

int pytreefs_kind(struct pytreefs *ck)
{
	int r = lib_begin(ck, "");
	struct pytreefs_tree *tree = NULL;
	auto_node *n = NULL;

	if (r < 0)
		return (int)lib_end(r);
	r = lib_node(ck, "", &n);
	if (r < 0)
		return (int)lib_end(r);
	r = (int)lib_kind_of(n);
	if (r != PYTREEFS_UNKNOWN)
		return r;
	r = pytreefs_describe(ck, "", &tree);
	if (r < 0)
		return r;
	r = (int)pytreefs_tree_node(tree, 0)->kind;
	pytreefs_tree_free(tree);
	return r;
}

/* ---- attributes ---- */

int pytreefs_stat(struct pytreefs *ck, const char *name, struct pytreefs_stat *ret)
{
	auto_node *n = NULL;
	struct stat st;
	int r = lib_begin(ck, name);

	if (r >= 0)
		r = lib_node(ck, name, &n);
	if (r >= 0)
		r = node_stat(n, &st);
	if (r < 0)
		return (int)lib_end(r);
	*ret = (struct pytreefs_stat){ .size = (uint64_t)st.st_size,
				       .stored = (uint64_t)st.st_blocks * 512,
				       .mtime_s = st.st_mtim.tv_sec,
				       .mtime_ns = (uint32_t)st.st_mtim.tv_nsec,
				       .is_directory = S_ISDIR(st.st_mode) };
	return 0;
}

int pytreefs_attribute(struct pytreefs *ck, const char *name, const char *attr, char **ret)
{
	auto_node *n = NULL;
	auto_buf value = { 0 };
	int r = lib_begin(ck, name);

	if (r >= 0)
		r = lib_node(ck, name, &n);
	if (r >= 0)
		r = node_xattr_get(n, attr, &value);
	if (r == -ENODATA)
		r = fail(r, "'%s' has no attribute '%s'", name, attr);
	if (r < 0)
		return (int)lib_end(r);
	*ret = span_dup_str(buf_span(&value));
	return *ret ? 0 : (int)lib_end(fail(-ENOMEM, "cannot copy attribute '%s'", attr));
}

void pytreefs_free_text(char *text)
{
	free(text);
}

/* ---- files ---- */

struct pytreefs_file {
	struct pytreefs *ck;
	struct node *node;
	struct file *file;
	uint64_t size;
};

static int file_open_at(struct pytreefs *ck, const char *name, struct pytreefs_file *f)
{
	struct stat st;
	int r = lib_node(ck, name, &f->node);

	f->ck = ck;
	if (r < 0)
		return r;
	r = node_stat(f->node, &st);
	if (r < 0)
		return r;
	if (S_ISDIR(st.st_mode))
		return fail(-EISDIR, "'%s' is a directory", name);
	r = node_open(f->node, O_RDONLY, &f->file);
	if (r < 0)
		return r;
	f->size = (uint64_t)st.st_size;
	return r;
}

static void file_release(struct pytreefs_file *f)
{
	file_close(f->file);
	node_unref(f->node, 1);
}

static ssize_t file_read_at(struct pytreefs_file *f, void *p, size_t n, uint64_t off)
{
	if (off >= f->size)
		return 0;
	n = (size_t)MIN((uint64_t)n, f->size - off);
	for (size_t done = 0; done < n;) {
		auto_segments g;
		int r;

		segments_init(&g, f->ck->source.ns->ckpt->cache);
		r = file_read(f->file, off + done, MIN(n - done, (size_t)4 * MiB), &g);
		if (r < 0)
			return r;
		if (g.bytes == 0)
			return fail(-EIO, "the file ends at byte %llu, %llu were expected",
				    (unsigned long long)off + done, (unsigned long long)f->size);
		r = segments_copy(&g, (uint8_t *)p + done);
		if (r < 0)
			return r;
		done += g.bytes;
	}
	return (ssize_t)n;
}

int pytreefs_file_open(struct pytreefs *ck, const char *name, struct pytreefs_file **ret)
{
	struct pytreefs_file *f;
	int r = lib_begin(ck, name);

	if (r < 0)
		return (int)lib_end(r);
	f = calloc(1, sizeof(*f));
	if (!f)
		return (int)lib_end(fail(-ENOMEM, "cannot open '%s'", name));
	r = (int)lib_end(file_open_at(ck, name, f));
	if (r < 0) {
		file_release(f);
		free(f);
		return r;
	}
	*ret = f;
	return 0;
}

uint64_t pytreefs_file_size(const struct pytreefs_file *f)
{
	return f->size;
}

ssize_t pytreefs_file_read(struct pytreefs_file *f, void *p, size_t n, uint64_t off)
{
	int r = lib_begin(f->ck, f->node->name);

	return lib_end(r < 0 ? r : file_read_at(f, p, n, off));
}

void pytreefs_file_close(struct pytreefs_file *f)
{
	if (!f)
		return;
	if (lib_begin(f->ck, NULL) >= 0)
		file_release(f);
	free(f);
}

ssize_t pytreefs_read(struct pytreefs *ck, const char *name, void *p, size_t n, uint64_t off)
{
	struct pytreefs_file f = { 0 };
	ssize_t r = lib_begin(ck, name);

	if (r < 0)
		return lib_end(r);
	r = file_open_at(ck, name, &f);
	if (r >= 0)
		r = file_read_at(&f, p, n, off);
	r = lib_end(r);
	file_release(&f);
	return r;
}
