/* SPDX-License-Identifier: Apache-2.0 */
/*
 * detect_advice.c - why a directory is not a checkpoint, and what in it was probably meant.
 */
#include "core/base/err.h"
#include "core/base/path.h"
#include "core/io/io_store.h"
#include "core/step/detect_impl.h"
#include "core/step/item_safetensors.h"

/* The directory in the cache of a hub that has a directory for each revision. */
static int fail_snapshots(const struct children *c, const char *path)
{
	const char *slash = strrchr(path, '/');

	for (size_t i = 0; i < c->n; i++)
		if (c->child[i].is_dir && !strcmp(slash ? slash + 1 : path, "snapshots"))
			return fail(-EINVAL,
				    "'%s' is not a checkpoint, but has the snapshots of a "
				    "repository: name one of them, '%s/%s'",
				    path, path, c->child[i].name);
	return 0;
}

/* The error for a child: it has steps below it, or files of tensors. 0: neither. */
static int fail_child(const struct children *c, const char *path)
{
	const char *slash = span_ends(span_str(path), span_str("/")) ? "" : "/";
	auto_free char *own = NULL;
	enum shape shape;
	int r;

	for (size_t i = 0; i < c->n; i++)
		if (!c->child[i].is_dir && item_is_safetensors(c->child[i].name))
			return fail(-EINVAL,
				    "'%s' is not a checkpoint, but '%s%s%s' has .safetensors files",
				    path, path, slash, c->rel);
	r = detect_find_own(c, &own, &shape);
	if (r < 0 || !own)
		return r;
	return fail(-EINVAL, "'%s' is not a checkpoint, but '%s%s%s' %s", path, path, slash, own,
		    shape == SHAPE_ROOT ? "has steps" : "is a step");
}

/* Look one level further down than for steps of a child: a directory of runs, parts of a model. */
static int fail_below(const struct children *c, const char *path)
{
	unsigned n_left = DETECT_OWN_MAX;
	int r = 0;

	if (strcmp(c->rel, "."))
		return 0;
	for (size_t i = 0; i < c->n && n_left && r >= 0; i++) {
		auto_children sub = { 0 };

		if (!detect_is_directory(&c->child[i]) || c->child[i].name[0] == '.')
			continue;
		n_left--;
		if (children_list(c->dir, c->child[i].name, false, &sub) >= 0)
			r = fail_child(&sub, path);
		else
			err_clear();
	}
	return r;
}

int detect_fail(const struct children *c, const char *path)
{
	const char *link = NULL, *file = NULL;
	int r;

	if (children_has(c, "blobs", true) && children_has(c, "snapshots", true))
		return fail(
			-EINVAL,
			"'%s' is not a checkpoint, but a repository in the cache of a hub: name a "
			"snapshot of it, '%s/snapshots/REVISION'",
			path, path);
	r = fail_snapshots(c, path);
	if (r < 0)
		return r;
	if (!io_dir_in_store(c->dir))
		r = fail_below(c, path);
	if (r < 0)
		return r;
	for (size_t i = 0; i < c->n; i++) {
		const struct child *at = &c->child[i];

		if (!link && at->leads_out && detect_has_number(at->name))
			link = at->name;
		if (!at->is_dir && (file ? item_is_safetensors : item_is_whole_file)(at->name))
			file = at->name;
	}
	if (file && item_is_safetensors(file))
		return fail(-EINVAL, "'%s' has .safetensors files, and no checkpoint", path);
	if (file)
		return detect_fail_file(c, path, file);
	return fail(-EINVAL,
		    "'%s' is not a checkpoint: no steps, no _CHECKPOINT_METADATA, no _METADATA, "
		    "no manifest.ocdbt and no arrays in it%s%s%s",
		    path, link ? "; '" : "", link ? link : "",
		    link ? "' leads out of it, and `cp -rL` makes a copy with what links lead to" :
			   "");
}
