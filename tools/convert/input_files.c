/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input_files.c - a directory of leaves on disk, made by `cp -r` out of a mount, np.save or `export
 * --format npy`. Xattrs user.pytree.* have the same meaning as in a draft.
 */
#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/tree/name.h"
#include "handlers/namespace/ns.h"
#include "tools/convert/input.h"
#include "tools/convert/atomic_file.h"

/* xattrs with a meaning in a draft */
static const char *const marks[] = { "kind",     "namedtuple", "dtype", "key", "custom_metadata",
				     "sharding", "prng_impl" };

/*
 * Add the xattrs of a copied file. user.pytree.dtype of an array only matters if its header lacks
 * the dtype.
 */
static int import_xattrs(const char *file, const char *path, bool is_dir, struct import_list *f)
{
	char text[32], name[64];
	ssize_t n;
	int r;

	for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
		auto_free char *value = NULL;

		snprintf(name, sizeof(name), "user.pytree.%s", marks[i]);
		n = getxattr(file, name, NULL, 0);
		if (n < 0)
			continue;
		value = calloc(1, (size_t)n + 1);
		if (!value)
			return fail(-ENOMEM, "cannot describe '%s'", path);
		n = getxattr(file, name, value, (size_t)n);
		if (n < 0)
			return err_sys("cannot read an xattr of", file);
		r = import_list_mark(f, path, marks[i], value);
		if (r < 0)
			return r;
	}
	if (is_dir || f->any_leaf_type)
		return 0;
	n = getxattr(file, "user.pytree.typestr", text, sizeof(text));
	if (n == (ssize_t)strlen("\"jax.Array\"") && !memcmp(text, "\"jax.Array\"", (size_t)n))
		return import_list_mark(f, path, "save.leaf_type", "jax.Array");
	return 0;
}

/*
 * Whether the file is one that programs leave behind. A key may begin with a dot, so other hidden
 * files count.
 */
static bool is_litter(const char *name, const struct stat *st)
{
	static const char *const files[] = { ".DS_Store", ".directory", ".gitattributes",
					     ".gitignore", ".gitkeep" };

	for (size_t i = 0; i < ARRAY_LEN(files) && !S_ISDIR(st->st_mode); i++)
		if (!strcmp(name, files[i]))
			return true;
	return atomic_file_is_temp(name);
}

static int import_file(const char *file, const char *path, uint64_t size, struct import_list *f)
{
	int r = import_add_stored(f, path, file, size);

	return r < 0 ? r : import_xattrs(file, path, false, f);
}

/* Whether a directory has files, none of which is a leaf. */
static bool has_other_files(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	size_t files = 0;
	bool other = d != NULL;

	while (other && (e = readdir(d))) {
		files += e->d_name[0] != '.';
		other = e->d_name[0] == '.' ||
			(e->d_type != DT_DIR && strcmp(e->d_name, "_METADATA") &&
			 name_ext_of(span_str(e->d_name)) == NAME_EXT_NONE);
	}
	if (d)
		closedir(d);
	return other && files;
}

/* Whether a directory is a random key as Orbax saves it: a tree, and a file about it. */
static bool input_files_is_random_key(const char *dir)
{
	static const char *const names[] = { "jax_random_key_metadata", "np_random_key_metadata" };
	struct stat st;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		auto_free char *path = str_fmt("%s/%s", dir, names[i]);

		if (path && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
			return true;
	}
	return false;
}

/* Whether an entry of a step is an item that is not a tree. */
static bool is_other_item(const char *file, const struct stat *st)
{
	char kind[16];
	ssize_t n = getxattr(file, "user.pytree.kind", kind, sizeof(kind));
	struct span text = span_of(kind, n > 0 ? (size_t)n : 0);

	/* A mount shows the kind as JSON. */
	if (!S_ISDIR(st->st_mode) || span_eq(text, span_str("\"opaque\"")) ||
	    span_eq(text, span_str("opaque")))
		return true;
	return has_other_files(file) || input_files_is_random_key(file);
}

static int import_directory(const char *dir, const char *path, struct select *only,
			    struct import_list *f, unsigned depth);

static int import_entry(const char *dir, const char *name, const char *path, struct select *only,
			struct import_list *f, unsigned depth)
{
	auto_free char *file = NULL, *below = NULL;
	struct stat st;
	int r = path_join(dir, span_str(name), &file);

	if (r < 0)
		return r;
	r = path_join(*path ? path : ".", span_str(name), &below);
	if (r < 0)
		return r;
	if (stat(file, &st) < 0)
		return err_sys("cannot look at", file);
	if (S_ISDIR(st.st_mode) && depth == 0 && !strcmp(name, ".pytreefs"))
		return 0;
	/*
	 * Metadata are generated anew. Unless xattrs were copied, those of an item are the only
	 * record of its lists. Those of the top are in input_files_list(), which knows what it is.
	 * A container may have such a name, but a file without an extension is not a leaf.
	 */
	if (!S_ISDIR(st.st_mode) && !strcmp(name, "_METADATA"))
		return depth ? import_list_hint(f, path, file) : 0;
	if (!S_ISDIR(st.st_mode) && !strcmp(name, "_CHECKPOINT_METADATA"))
		return 0;
	if (is_litter(name, &st)) {
		log_warn("'%s' is not a leaf and is left out", file);
		return 0;
	}
	if (f->is_step && depth == 0 && is_other_item(file, &st)) {
		if (f->no_items)
			return 0;
		only = NULL;
		r = import_list_keep(f, below);
	}
	if (r < 0)
		return r;
	if (S_ISDIR(st.st_mode))
		return import_directory(file, below, only, f, depth + 1);
	if (!S_ISREG(st.st_mode))
		return fail(-EINVAL, "'%s' is neither a file nor a directory", file);
	return select_path(only, span_str(below)) ?
		       import_file(file, below, (uint64_t)st.st_size, f) :
		       import_list_leave_out(f, below);
}

static int by_entry_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* In the order of names: that of the directory differs between file systems. */
static int import_directory(const char *dir, const char *path, struct select *only,
			    struct import_list *f, unsigned depth)
{
	struct dirent **entry;
	int n, r;

	if (depth > LIMIT_TREE_DEPTH)
		return fail(-EFBIG, "'%s' is deeper than %d names", dir, LIMIT_TREE_DEPTH);
	r = import_add_dir(f, path);
	if (r < 0)
		return r;
	r = import_xattrs(dir, path, true, f);
	if (r < 0)
		return r;
	n = scandir(dir, &entry, NULL, by_entry_name);
	if (n < 0)
		return err_sys("cannot list", dir);
	for (int i = 0; i < n; i++) {
		const char *name = entry[i]->d_name;

		if (r >= 0 && strcmp(name, ".") && strcmp(name, ".."))
			r = import_entry(dir, name, path, only, f, depth);
		free(entry[i]);
	}
	free(entry);
	return r;
}

int input_files_list(struct input *in, struct select *only, struct import_list *f)
{
	auto_free char *metadata = NULL;
	struct stat st;
	int r;

	/* A single array is a tree of one bare leaf. */
	if (in->kind != INPUT_FILES)
		return stat(in->path, &st) < 0 ?
			       err_sys("cannot look at", in->path) :
			       import_file(in->path, "%.npy", (uint64_t)st.st_size, f);
	r = path_join(in->path, span_str(in->is_step ? "_CHECKPOINT_METADATA" : "_METADATA"),
		      &metadata);
	if (r < 0)
		return r;
	r = import_list_hint(f, "", metadata);
	return r < 0 ? r : import_directory(in->path, "", only, f, 0);
}
