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
#include "handlers/format/safetensors.h"

#define LOOK_AT 100000 /* largest number of names that are visited to find a leaf */

/* Whether a directory has a path. */
static bool has(const char *dir, const char *name)
{
	auto_buf path = { 0 };
	struct stat st;

	return buf_addf(&path, "%s/%s", dir, name) >= 0 && buf_str(&path) &&
	       stat(buf_str(&path), &st) == 0;
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
 * Whether a directory without stores has the metadata of an item and files of leaves that are
 * texts: a copy out of a mount whose leaves are all numbers and texts. Looks at one level of items.
 */
static bool is_copied_text(const char *path)
{
	char *const paths[] = { (char *)path, NULL };
	bool has_item = has(path, "_METADATA"), has_leaf = false;
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOSTAT | FTS_NOCHDIR, NULL);
	FTSENT *e;

	if (!fts)
		return false;
	for (int n = 0; n < LOOK_AT && !(has_item && has_leaf) && (e = fts_read(fts)); n++) {
		if (e->fts_info == FTS_D || e->fts_info == FTS_DP)
			continue;
		has_item |= e->fts_level == 2 && !strcmp(e->fts_name, "_METADATA");
		has_leaf |= input_is_text(e->fts_name);
	}
	fts_close(fts);
	return has_item && has_leaf;
}

/* Whether the values are in files of leaves: a copy out of a mount has the metadata as well. */
static bool holds_leaves(const char *path)
{
	return !input_has_file(path, is_store, LIMIT_TREE_DEPTH) &&
	       (input_has_file(path, is_leaf, LIMIT_TREE_DEPTH) || is_copied_text(path));
}

/* The shape that all other commands see; SHAPE_UNKNOWN: it is not a checkpoint. */
static int shape_of(const char *path, enum shape *ret)
{
	auto_of(io_engine) struct io_engine *io = NULL;
	auto_of(io_dir) struct io_dir *dir = NULL;
	int r = io_engine_open("sync", &io);

	*ret = SHAPE_UNKNOWN;
	if (r < 0)
		return r;
	r = io_dir_open(io, path, &dir);
	if (r >= 0)
		r = detect_shape(dir, ".", NULL, ret);
	if (r != -EINVAL && r != -EBUSY)
		return r;
	err_clear();
	return 0;
}

static bool input_is_group(const char *path)
{
	return (has(path, ".zgroup") || has(path, "zarr.json")) && !has(path, "_METADATA") &&
	       !has(path, "manifest.ocdbt");
}

static int kind_of_directory(const char *path, enum input_kind *ret)
{
	enum shape shape;
	int r = shape_of(path, &shape);
	bool is_item = r >= 0 && (shape == SHAPE_UNKNOWN || shape == SHAPE_ITEM), is_export = false;

	if (r < 0)
		return r;
	if (is_item && input_is_group(path)) {
		r = input_zarr_is_export(path);
		is_export = r > 0;
	}
	if (r < 0)
		return r;
	/* Files of leaves beside no metadata of a tree are those of an item of another kind. */
	if (shape == SHAPE_UNKNOWN && source_has_shards(path))
		*ret = INPUT_SAFETENSORS;
	else if (holds_leaves(path) &&
		 (shape == SHAPE_UNKNOWN || input_has_file(path, is_metadata, 2)))
		*ret = INPUT_FILES;
	else if (is_export)
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

/* Get the trees of the source. */
int input_open_subtree(struct input *in)
{
	int r;

	in->is_root = in->source.node == in->source.ns->root &&
		      in->source.ns->ckpt->shape == SHAPE_ROOT;
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
	return r;
}

static int open_orbax(struct cmd_args *a, struct input *in)
{
	int r = source_open(a, in->path, &in->source);

	return r < 0 ? r : input_open_subtree(in);
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
	r = input_open_subtree(in);
	if (r != -EINVAL)
		return r < 0 ? r : 1;
	err_clear();
	subtree_release(&in->st);
	source_close(&in->source);
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

/*
 * Open a safetensors file or a directory of shards, which must be complete and agree with its
 * index, as for all other commands.
 */
static int open_tensor_files(struct cmd_args *a, struct input *in)
{
	const char *path = in->path, *slash = strrchr(path, '/');
	struct source src = { 0 };
	unsigned stem, width;
	struct stat st;
	int r = 0;

	/* One shard alone is a remark. */
	if ((stat(path, &st) == 0 && S_ISDIR(st.st_mode)) ||
	    item_shards_of(slash ? slash + 1 : path, &stem, &width) > 1)
		r = source_open(a, path, &src);
	source_close(&src);
	return r < 0 ? r : input_safetensors_open(in);
}

int input_open(struct cmd_args *a, const char *path, struct input *ret)
{
	struct input in = { .path = path, .separator = a->options.safetensors_separator };
	struct stat st;
	int r = input_open_stored(a, &in);

	in.kind = r > 0 ? INPUT_ORBAX : INPUT_UNKNOWN;
	if (r == 0)
		r = input_kind_of(path, &in.kind);
	switch (in.kind) {
	case INPUT_SAFETENSORS:
		r = open_tensor_files(a, &in);
		break;
	case INPUT_NPZ:
		r = input_npz_open(&in);
		break;
	case INPUT_ZARR:
		r = input_zarr_open(&in, a);
		break;
	case INPUT_ORBAX:
		r = r > 0 ? 0 : open_orbax(a, &in);
		/*
		 * A directory of numbers and texts only is a tree, too, also beside arrays that are
		 * a checkpoint. Beside a file of flax they describe that, as config.json does.
		 */
		if ((r == -EINVAL || r == -ENOENT) && stat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
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
		r = input_orbax_list(in, only, f);
		break;
	case INPUT_FILES:
	case INPUT_LEAF:
		r = input_files_list(in, only, f);
		break;
	case INPUT_SAFETENSORS:
		r = input_safetensors_list(in, only, f);
		break;
	case INPUT_NPZ:
		r = input_npz_list(in, only, f);
		break;
	case INPUT_ZARR:
		r = input_zarr_list(in, only, f);
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
	subtree_release(&in->st);
	if (in->source.ns)
		source_close(&in->source);
	spill_dir_remove(&in->spill);
	io_engine_close(in->spill_io);
	for (size_t i = 0; i < in->n_fds; i++)
		close(in->fd[i]);
	for (size_t i = 0; in->shard && i < in->n_fds; i++)
		safetensors_release(&in->shard[i]);
	free(in->shard);
	free(in->fd);
	tree_manifest_release(&in->tree_manifest);
	zip_reader_release(&in->zip);
	ns_close(in->ns);
	*in = (struct input){ 0 };
}

int input_add_fd(struct input *in, const char *path)
{
	int *more = reallocarray(in->fd, in->n_fds + 1, sizeof(*more)), fd;

	if (!more)
		return fail(-ENOMEM, "cannot open '%s'", path);
	in->fd = more;
	fd = io_open_regular(path);
	if (fd < 0)
		return fd;
	in->fd[in->n_fds++] = fd;
	return fd;
}
