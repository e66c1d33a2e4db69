/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input.c - detects from its contents what a path of the user is.
 *
 * A directory with .npy files is a directory of leaves, even if it has a `_METADATA`, since a copy
 * out of a mount has both.
 */
#include "tools/convert/input.h"

#include <fcntl.h>
#include <fts.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "core/base/err.h"
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

/* Whether a file below dir has one of these extensions. */
static bool has_file(const char *dir, const char *const *ends, int levels)
{
	char *const paths[] = { (char *)dir, NULL };
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOSTAT | FTS_NOCHDIR, NULL);
	bool found = false;
	FTSENT *e;

	for (int n = 0; fts && !found && n < LOOK_AT && (e = fts_read(fts)); n++) {
		if (e->fts_info == FTS_D && e->fts_level > levels)
			fts_set(fts, e, FTS_SKIP);
		for (size_t i = 0; ends[i] && e->fts_info != FTS_D && e->fts_info != FTS_DP; i++)
			found |= span_ends(span_str(e->fts_name), span_str(ends[i]));
	}
	if (fts)
		fts_close(fts);
	return found;
}

static bool is_file_of(const char *path, const char *end)
{
	struct stat st;

	return span_ends(span_str(path), span_str(end)) && stat(path, &st) == 0 &&
	       S_ISREG(st.st_mode);
}

/* Files with the extension of a text leaf that a checkpoint has, too. */
static bool is_file_of_orbax(const char *name)
{
	static const char *const names[] = { "zarr.json", "_strings.json", "commit_success.txt",
					     ".zarray", ".zattrs" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

/*
 * Whether a directory without databases has the metadata of an item and files of leaves that are
 * texts, but no arrays: a copy out of a mount whose leaves are all numbers and texts. Looks at one
 * level of items.
 */
static bool is_copied_text(const char *path)
{
	static const char *const arrays[] = { ".zarray", NULL };
	char *const paths[] = { (char *)path, NULL };
	bool has_item = has(path, "_METADATA"), has_leaf = false;
	FTS *fts;
	FTSENT *e;

	if (has_file(path, arrays, 2) ||
	    !(fts = fts_open(paths, FTS_PHYSICAL | FTS_NOSTAT | FTS_NOCHDIR, NULL)))
		return false;
	for (int n = 0; n < LOOK_AT && !(has_item && has_leaf) && (e = fts_read(fts)); n++) {
		struct span name = span_str(e->fts_name);

		if (e->fts_info == FTS_D || e->fts_info == FTS_DP)
			continue;
		has_item |= e->fts_level == 2 && span_eq(name, span_str("_METADATA"));
		has_leaf |= !is_file_of_orbax(e->fts_name) && (span_ends(name, span_str(".json")) ||
							       span_ends(name, span_str(".txt")));
	}
	fts_close(fts);
	return has_item && has_leaf;
}

static enum input_kind kind_of_directory(const char *path)
{
	static const char *const leaves[] = { ".npy", ".null", NULL };
	static const char *const shards[] = { ".safetensors", NULL };
	static const char *const stores[] = { "manifest.ocdbt", NULL };

	if (has(path, ".zgroup") || (has(path, "zarr.json") && !has(path, "_METADATA")))
		return INPUT_ZARR;
	if (has(path, "model.safetensors.index.json") || has_file(path, shards, 0))
		return INPUT_SAFETENSORS;
	/* A checkpoint may have such files in an item that is not a tree. */
	if (has_file(path, stores, 2))
		return INPUT_ORBAX;
	/* In a tree, only directories have such names. */
	if (has_file(path, leaves, LIMIT_TREE_DEPTH) || is_copied_text(path))
		return INPUT_FILES;
	return INPUT_ORBAX;
}

bool input_is_export(const char *path)
{
	static const char *const anything[] = { "", NULL };

	return kind_of_directory(path) != INPUT_ORBAX ||
	       !has_file(path, anything, LIMIT_TREE_DEPTH);
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
	if (r >= 0)
		r = node_add_custom(in->source.node, &in->st);
	for (size_t i = 0; i < in->st.n; i++)
		in->is_step |= *in->st.part[i].path != '\0';
	if (r >= 0 && in->st.n == 0)
		r = fail(-EINVAL, "'%s' holds nothing", in->path);
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
static int open_stored(struct cmd_args *a, struct input *in)
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

static enum input_kind kind_of(const char *path)
{
	struct stat st;

	if (is_file_of(path, ".safetensors"))
		return INPUT_SAFETENSORS;
	if (is_file_of(path, ".npz"))
		return INPUT_NPZ;
	if (is_file_of(path, ".npy"))
		return INPUT_LEAF;
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? kind_of_directory(path) : INPUT_ORBAX;
}

bool input_is_foreign(const char *path)
{
	return kind_of(path) != INPUT_ORBAX;
}

int input_open(struct cmd_args *a, const char *path, struct input *ret)
{
	static const char *const texts[] = { ".json", ".txt", NULL };
	struct input in = { .path = path, .separator = a->options.safetensors_separator };
	struct stat st;
	int r = open_stored(a, &in);

	in.kind = r == 0 ? kind_of(path) : r > 0 ? INPUT_ORBAX : INPUT_UNKNOWN;
	switch (in.kind) {
	case INPUT_SAFETENSORS:
		r = input_safetensors_open(&in);
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
		 * a checkpoint.
		 */
		if ((r == -EINVAL || r == -ENOENT) && stat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
		    has_file(path, texts, LIMIT_TREE_DEPTH)) {
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
		/* The files of a safetensors model that is shown as a checkpoint. */
		if (r >= 0 && in->shard && !in->tree_manifest.doc.root)
			r = input_safetensors_custom(in, only, f);
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
	if (r >= 0)
		r = select_end(only) < 0 ? err_at(-ENOENT, "'%s'", in->path) : 0;
	if (r >= 0 && only)
		r = import_list_choose(f);
	if (r >= 0 && f->n == 0 && f->n_dirs == 0)
		r = fail(-EINVAL, "'%s' holds no leaf", in->path);
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
