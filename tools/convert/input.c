/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input.c - detects from its contents what a path of the user is.
 *
 * A directory with .npy files is a directory of leaves, even if it has a `_METADATA`, since a copy
 * out of a mount has both. It is not one if all other commands read it as safetensors files.
 */
#include "tools/convert/input.h"

#include <fcntl.h>
#include <fts.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "core/base/err.h"
#include "core/step/item_safetensors.h"
#include "handlers/namespace/node_parts.h"

#define LOOK_AT 100000 /* largest number of names that are visited to find a leaf */

/* Whether a directory has a path. */
static bool has(const char *dir, const char *name)
{
	auto_free char *path = str_fmt("%s/%s", dir, name);
	struct stat st;

	return path && stat(path, &st) == 0;
}

/* ---- names of files ---- */

static bool ends_in(const char *name, const char *end)
{
	return span_ends(span_str(name), span_str(end));
}

static bool is_any(const char *name)
{
	(void)name;
	return true;
}

static bool is_leaf(const char *name)
{
	return ends_in(name, ".npy") || ends_in(name, ".null");
}

/* A number or a text, not a file that stored items have. */
static bool input_is_text(const char *name)
{
	return (ends_in(name, ".json") || ends_in(name, ".txt")) && strcmp(name, "_strings.json") &&
	       strcmp(name, "commit_success.txt");
}

static bool is_metadata(const char *name)
{
	return !strcmp(name, "_METADATA");
}

/* In which a checkpoint stores values. */
static bool is_store(const char *name)
{
	static const char *const names[] = { "manifest.ocdbt", ".zarray", "zarr.json",
					     "checkpoint" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strcmp(name, names[i]))
			return true;
	return !strncmp(name, "manifest.", 9);
}

/* Whether a file below dir has such a name. */
static bool input_has_file(const char *dir, bool (*is)(const char *name), int levels)
{
	char *const paths[] = { (char *)dir, NULL };
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOSTAT | FTS_NOCHDIR, NULL);
	bool found = false;
	FTSENT *e;

	for (int n = 0; fts && !found && n < LOOK_AT && (e = fts_read(fts)); n++) {
		if (e->fts_info == FTS_D && e->fts_level > levels)
			fts_set(fts, e, FTS_SKIP);
		found = e->fts_info != FTS_D && e->fts_info != FTS_DP && is(e->fts_name);
	}
	if (fts)
		fts_close(fts);
	return found;
}

static bool is_file_of(const char *path, const char *end)
{
	struct stat st;

	return ends_in(path, end) && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* ---- the kind of a directory ---- */

/*
 * Whether the values are in files of leaves: a copy out of a mount has the metadata of an item as
 * well, and its leaves may all be numbers and texts. Looks at one level of items.
 */
static bool holds_leaves(const char *path)
{
	if (input_has_file(path, is_store, LIMIT_TREE_DEPTH))
		return false;
	return input_has_file(path, is_leaf, LIMIT_TREE_DEPTH) ||
	       (input_has_file(path, is_metadata, 1) &&
		input_has_file(path, input_is_text, LIMIT_TREE_DEPTH));
}

static bool input_is_group(const char *path)
{
	return (has(path, ".zgroup") || has(path, "zarr.json")) && !has(path, "_METADATA") &&
	       !has(path, "manifest.ocdbt");
}

static int kind_of_directory(const char *path, enum input_kind *ret)
{
	auto_of(io_engine) struct io_engine *io = NULL;
	auto_of(io_dir) struct io_dir *dir = NULL;
	enum shape shape = SHAPE_UNKNOWN;
	int r = io_engine_open("sync", &io);

	if (r < 0)
		return r;
	r = io_dir_open(io, path, &dir);
	/* The shape that all other commands see; SHAPE_UNKNOWN: it is not a checkpoint. */
	if (r >= 0)
		r = detect_shape(dir, ".", NULL, &shape);
	r = err_except(r, -EINVAL, -EBUSY);
	if (r < 0)
		return r;
	/* Files of leaves beside no metadata of a tree are those of an item of another kind. */
	if (shape == SHAPE_UNKNOWN && source_has_shards(path))
		*ret = INPUT_SAFETENSORS;
	else if (holds_leaves(path) &&
		 (shape == SHAPE_UNKNOWN || input_has_file(path, is_metadata, 2)))
		*ret = INPUT_FILES;
	else if ((shape == SHAPE_UNKNOWN || shape == SHAPE_ITEM) && input_is_group(path))
		*ret = INPUT_ZARR;
	else
		*ret = INPUT_ORBAX;
	return 0;
}

bool input_is_export(const char *path)
{
	enum input_kind kind;
	int r = kind_of_directory(path, &kind);

	err_clear();
	return r >= 0 && (kind != INPUT_ORBAX || input_is_group(path) ||
			  !input_has_file(path, is_any, LIMIT_TREE_DEPTH));
}

static int find_trees(struct input *in)
{
	const struct tree *tree;
	int r;

	in->is_root = node_is_root(in->source.node);
	if (in->is_root)
		return 0;
	r = node_open_subtree(in->source.node, &in->st);
	if (r < 0)
		return r;
	r = node_add_custom(in->source.node, &in->st);
	if (r < 0)
		return r;
	in->is_step |= in->st.n_others > 0;
	for (size_t i = 0; i < in->st.n; i++)
		in->is_step |= *in->st.part[i].path != '\0';
	/* Zarr groups of other programs, and files of flax and safetensors. */
	in->is_foreign |= in->source.ns->ckpt->only_item ||
			  (in->st.n == 1 && in->st.part[0].kind == PART_TREE &&
			   (in->st.part[0].item->is_hierarchy || in->st.part[0].item->is_file));
	if (in->st.n == 0 && in->st.n_others == 0)
		return fail(-EINVAL, "'%s' holds nothing", in->path);
	tree = in->st.n && in->st.part[0].kind == PART_TREE ? in->st.part[0].item->tree : NULL;
	in->is_step |= tree && tree->is_step;
	if (in->kind == INPUT_ZARR && !(tree && tree->has_manifest))
		in->kind = INPUT_ORBAX;
	return r;
}

int input_open_source(struct cmd_args *a, struct input *in, const char *path, bool as_is)
{
	struct transform *transform = a->options.transform;
	int r;

	if (as_is)
		a->options.transform = NULL;
	r = in->kind == INPUT_SAFETENSORS ? source_open_safetensors(a, path, &in->source) :
					    source_open(a, path, &in->source);
	a->options.transform = transform;
	if (r < 0)
		return r;
	return in->source.ns ? find_trees(in) : fail(-ESTALE, "'%s' was replaced", path);
}

void input_close_source(struct input *in)
{
	subtree_release(&in->st);
	source_close(&in->source);
}

static int open_as_checkpoint(struct cmd_args *a, struct input *in)
{
	const enum input_kind kind = in->kind;
	int r = input_open_source(a, in, in->path, kind != INPUT_ORBAX);

	if (r < 0 || kind == in->kind || !a->options.transform)
		return r;
	/* A group of another program, not of an export: as options show it. */
	input_close_source(in);
	return input_open_source(a, in, in->path, false);
}

/*
 * In a mount, open the stored checkpoint, not the files that are shown. 1; 0: the path is only a
 * file, such as a view.
 */
static int input_open_stored(struct cmd_args *a, struct input *in)
{
	int r = source_open_stored(a, in->path, &in->source);

	if (r <= 0)
		return r;
	r = find_trees(in);
	if (r != -EINVAL)
		return r < 0 ? r : 1;
	err_clear();
	input_close_source(in);
	return 0;
}

static int input_kind_of(const char *path, enum input_kind *ret)
{
	struct stat st;

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return kind_of_directory(path, ret);
	*ret = is_file_of(path, ".safetensors") ? INPUT_SAFETENSORS :
	       is_file_of(path, ".npz")         ? INPUT_NPZ :
	       is_file_of(path, ".npy")         ? INPUT_LEAF :
						  INPUT_ORBAX;
	return 0;
}

bool input_is_foreign(const char *path)
{
	enum input_kind kind;
	int r = input_kind_of(path, &kind);

	err_clear();
	return r >= 0 && kind != INPUT_ORBAX;
}

int input_open(struct cmd_args *a, const char *path, struct input *ret)
{
	struct input in = { .path = path, .fd = -1 };
	struct stat st;
	int r = input_open_stored(a, &in);

	in.kind = r > 0 ? INPUT_ORBAX : INPUT_UNKNOWN;
	if (r == 0)
		r = input_kind_of(path, &in.kind);
	switch (in.kind) {
	case INPUT_NPZ:
		r = input_npz_open(&in);
		break;
	case INPUT_SAFETENSORS:
	case INPUT_ZARR:
	case INPUT_ORBAX:
		r = r > 0 ? 0 : open_as_checkpoint(a, &in);
		/*
		 * A directory of numbers and texts only is a tree, too, also beside arrays that are
		 * a checkpoint. Beside a file of flax they describe that, as config.json does.
		 */
		if (in.kind != INPUT_SAFETENSORS && (r == -EINVAL || r == -ENOENT) &&
		    stat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
		    input_has_file(path, input_is_text, LIMIT_TREE_DEPTH) &&
		    !input_has_file(path, item_is_whole_file, 0)) {
			err_clear();
			in.kind = INPUT_FILES;
			r = 0;
		}
		break;
	case INPUT_FILES:
	case INPUT_LEAF:
	case INPUT_UNKNOWN:
	default:
		break;
	}
	if (in.kind == INPUT_FILES)
		in.is_step = (has(path, "_CHECKPOINT_METADATA") && !has(path, "_METADATA")) ||
			     getxattr(path, TREE_MANIFEST_STEP, NULL, 0) > 0;
	if (r < 0) {
		input_close(&in);
		return r;
	}
	in.is_step |= in.tree_manifest.is_step;
	*ret = in;
	return 0;
}

int input_list(struct input *in, struct select *only, struct import_list *f)
{
	int r;

	f->arena.metered = true;
	f->is_step = in->is_step;
	if (only)
		only->skip = in->is_step;
	switch (in->kind) {
	case INPUT_ORBAX:
	case INPUT_SAFETENSORS:
	case INPUT_ZARR:
		r = input_orbax_list(in, only, f);
		break;
	case INPUT_FILES:
	case INPUT_LEAF:
		r = input_files_list(in, only, f);
		break;
	case INPUT_NPZ:
		r = input_npz_list(in, only, f);
		break;
	case INPUT_UNKNOWN:
	default:
		r = -EINVAL;
		break;
	}
	if (r < 0)
		return r;
	r = select_end(only) < 0 ? err_at(-ENOENT, "'%s'", in->path) : 0;
	if (r < 0)
		return r;
	if (only)
		r = import_list_choose(f);
	if (r < 0)
		return r;
	if (f->n == 0 && f->n_dirs == 0)
		return fail(-EINVAL, "'%s' holds no leaf", in->path);
	return r;
}

void input_close(struct input *in)
{
	input_close_source(in);
	spill_dir_remove(&in->spill);
	io_engine_close(in->spill_io);
	if (in->kind == INPUT_NPZ && in->fd >= 0)
		close(in->fd);
	tree_manifest_release(&in->tree_manifest);
	zip_reader_release(&in->zip);
	*in = (struct input){ 0 };
}
