/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atomic_step.c - begins, commits and aborts the draft of a command.
 */
#include "tools/convert/atomic_step.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/meter.h"
#include "core/base/path.h"
#include "core/commit/draft_dir.h"
#include "core/commit/replace.h"
#include "core/step/detect.h"
#include "core/step/step.h"
#include "core/step/step_name.h"
#include "handlers/commit/draft_commit.h"
#include "tools/cli/interrupt.h"
#include "tools/convert/input.h"
#include "tools/job/group_work.h"

/* The last name of a path, which may have slashes at its end. */
static struct span name_at_end(const char *path)
{
	size_t n = strlen(path), at;

	while (n > 1 && path[n - 1] == '/')
		n--;
	for (at = n; at > 0 && path[at - 1] != '/';)
		at--;
	return span_of(path + at, n - at);
}

int path_split(const char *path, char **ret_dir, char **ret_name)
{
	struct span last = name_at_end(path);
	size_t n = path_dir_len(path, (size_t)((const char *)last.p - path));
	char *name = span_dup_str(last), *dir = n ? span_dup_str(span_of(path, n)) : strdup(".");

	if (!dir || !name || !*name || !strcmp(name, ".") || !strcmp(name, "..")) {
		int r = dir && name ? fail(-EINVAL, "'%s' is not a name for something new", path) :
				      fail(-ENOMEM, "cannot write '%s'", path);

		free(dir);
		free(name);
		return r;
	}
	*ret_dir = dir;
	*ret_name = name;
	return 0;
}

int path_check_latest(const char *path)
{
	if (!span_eq(name_at_end(path), span_str(STEP_LATEST)))
		return 0;
	return fail(-EINVAL,
		    "'%s' is read as the newest step of a directory, so nothing is written by that "
		    "name: give a step its number ('7', 'step_7'), and a directory another name",
		    path);
}

int path_check_link(const char *path)
{
	char to[LIMIT_PATH_BYTES];
	struct stat st;
	ssize_t n = stat(path, &st) < 0 && errno == ENOENT ? readlink(path, to, sizeof(to)) : -1;

	return n < 0 ? 0 :
		       fail(-ENOENT, "'%s' is a symbolic link to '%.*s', which does not exist",
			    path, (int)n, to);
}

static bool holds(const char *dir, const char *name)
{
	auto_free char *path = str_fmt("%s/%s", dir, name);
	struct stat st;

	return path && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/*
 * The kind of checkpoint by the marker files in a directory: an item, a step, or SHAPE_UNKNOWN. A
 * copy out of a mount is none.
 */
static enum shape marked_shape(const char *dir)
{
	bool is_item = holds(dir, "_METADATA") || holds(dir, "manifest.ocdbt");

	if (!is_item && !holds(dir, "_CHECKPOINT_METADATA"))
		return SHAPE_UNKNOWN;
	return input_is_foreign(dir) ? SHAPE_UNKNOWN : is_item ? SHAPE_ITEM : SHAPE_STEP;
}

static bool atomic_step_is_empty(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	bool found = false;

	while (d && !found && (e = readdir(d)))
		found = strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	if (d)
		closedir(d);
	return !found;
}

/* Whether a directory is not there yet, was just made, or is one that checkpoints consist of. */
static bool may_be_part(const char *dir)
{
	static const char *const marks[] = { ".zarray", ".zgroup", "zarr.json", "metadata" };
	const char *slash = strrchr(dir, '/'), *name = slash ? slash + 1 : dir;
	bool found = !strcmp(name, "d") || !strncmp(name, "ocdbt.process_", 14) ||
		     !strcmp(name, "array_metadatas") || atomic_step_is_empty(dir);

	for (size_t i = 0; i < ARRAY_LEN(marks); i++)
		found |= holds(dir, marks[i]);
	return found;
}

static int check_above(const char *path, const char *dir, bool may_be_item)
{
	auto_free char *at = strdup(dir);
	size_t n = at ? strlen(at) : 0;

	if (!at)
		return fail(-ENOMEM, "cannot write '%s'", path);
	while (n > 0) {
		enum shape shape = marked_shape(at);

		if (shape == SHAPE_ITEM || (shape == SHAPE_STEP && !may_be_item))
			return fail(-EINVAL, "'%s' is inside of the checkpoint '%s'", path, at);
		/* Above a directory of something else, a mark may be a stranger's. */
		if (shape == SHAPE_UNKNOWN && !may_be_part(at))
			return 0;
		may_be_item = false;
		while (n > 0 && at[n - 1] != '/')
			n--;
		while (n > 0 && at[n - 1] == '/')
			n--;
		at[n] = '\0';
	}
	return 0;
}

int path_check_outside(const char *path, const char *dir, bool may_be_item)
{
	auto_free char *stored = source_stored_path(dir), *real = NULL;
	int r;

	/* A bucket has no directories to check. */
	if (path_is_url(path))
		return 0;
	/* A mount does its own checks. */
	if (stored)
		return 0;
	/* First check the path as the user gave it, for the message. */
	r = check_above(path, dir, may_be_item);
	real = r < 0 ? NULL : realpath(dir, NULL);
	return real ? check_above(path, real, may_be_item) : r;
}

/*
 * Refuse a path in a mount: the checkpoint is made in a directory on disk and renamed, and a mount
 * has other names.
 */
static int check_no_mount(const char *dir, const char *name)
{
	auto_free char *real = realpath(dir, NULL), *stored = source_stored_path(real ? real : dir),
		       *source = NULL;
	auto_free char *type = NULL;

	if (!stored)
		return 0;
	type = real ? mounted_on(real, &source) : NULL;
	if (!type || !source || strncmp(type, "fuse", 4))
		return fail(-EINVAL, "'%s' is in a mount of pytreefs: write to its source", dir);
	return fail(-EINVAL,
		    "'%s' is a mount of pytreefs: write to its source '%s', or to %s/%s.tmp", dir,
		    source, dir, name);
}

void bound_memory(struct cmd_args *a)
{
	static const struct {
		const char *name, *value;
	} bounds[] = { { "cache", "192M" }, { "read_budget", "96M" }, { "write_budget", "128M" } };

	for (size_t i = 0; i < ARRAY_LEN(bounds); i++) {
		char text[64];

		snprintf(text, sizeof(text), "%s=%s", bounds[i].name, bounds[i].value);
		if (!options_given(&a->options, bounds[i].name))
			option_set(&a->options, text, false);
	}
}

/* Measured: a draft of 100,000 leaves takes 440 MiB. */
#define METADATA_BYTES (448 * MiB)

uint64_t bound_leaves(struct cmd_args *a)
{
	uint64_t more = options_given(&a->options, "cache") ? 0 : METADATA_BYTES;

	bound_memory(a);
	/* Headers are read before there is a cache. */
	meter_bound(more, a->options.cache);
	/*
	 * Half of the cache must remain: without it, each leaf would decode its node of the tree
	 * again.
	 */
	return METER_FREE + more + a->options.cache / 2;
}

/*
 * Whether the directory of that name is an interrupted save, or one in progress, when the marker
 * makes it a step (atomicity=commit_file). The draft removes it, or fails if it is being written.
 */
static int is_unfinished(const struct cmd_args *a, const struct atomic_step *n,
			 const struct stat *st)
{
	struct io_dir *dir = n->ns->ckpt->source;
	enum draft_state state;
	int r;

	if (!S_ISDIR(st->st_mode) ||
	    (a->options.atomicity != ATOMICITY_COMMIT_FILE && !dir->bucket))
		return 0;
	/* It was interrupted before its first file, or removed since. */
	r = io_dir_is_empty(dir, n->name);
	if (r == 0) {
		r = draft_dir_state(dir, n->name, &state);
		if (r < 0 || state == DRAFT_FOREIGN)
			return MIN(r, 0);
		r = step_has_marker(dir, n->name);
		return r < 0 ? r : !r;
	}
	if (r == -ENOENT) {
		err_clear();
		return 1;
	}
	return r;
}

/* Open a directory of steps with the options of the command, whatever shape= says of the input. */
static int open_root(struct cmd_args *a, const char *dir, struct ns **ret)
{
	enum shape shape = a->options.shape;
	int r;

	a->options.shape = SHAPE_ROOT;
	r = ns_open(dir, &a->options, ret);
	a->options.shape = shape;
	return r;
}

int path_check_step_name(struct cmd_args *a, const char *dir, const char *name)
{
	struct ns *ns = NULL;
	struct err_note why;
	int r = step_name_check(span_str(name));

	if (r >= 0)
		return r;
	err_save(r, &why);
	r = open_root(a, dir, &ns);
	r = r < 0 ? err_restore(&why) :
		    step_check_name(ns->ckpt->source, span_str(name), ckpt_needs_marker(ns->ckpt));
	ns_close(ns);
	return r;
}

static int check_new(const struct atomic_step *n)
{
	return step_check_new(n->ns->ckpt->source, span_str(n->name),
			      ckpt_needs_marker(n->ns->ckpt));
}

/* Check that the target does not exist, or may be replaced. */
static int atomic_step_check_target(const struct cmd_args *a, struct atomic_step *n,
				    const char *path)
{
	const struct commit_driver *driver = n->ns->drafts.driver;
	struct stat st;
	int r = io_stat(n->ns->ckpt->source, n->name, &st);

	if (r == -ENOENT) {
		err_clear();
		return check_new(n);
	}
	if (r < 0)
		return r;
	r = is_unfinished(a, n, &st);
	if (r != 0)
		return MIN(r, 0);
	r = driver->check_replace ? driver->check_replace(path) : 0;
	if (r < 0)
		return n->force ? r : fail(-EEXIST, "'%s' is there already", path);
	/* The library has no --force, but a flag of its own. */
	if (!n->force)
		return fail(-EEXIST, "'%s' is there already%s", path,
			    a->cmd ? "; --force replaces it" : ", and is not to be replaced");
	return replace_check(n->ns->ckpt->source, n->name, &st, path);
}

static int check_url(const struct atomic_step *n, const char *url)
{
	const char *host = strstr(n->dir, "://");

	if (!host || !host[3])
		return fail(-EINVAL,
			    "'%s' is not the URL of a step: that is s3://BUCKET/PREFIX/STEP", url);
	if (!strncmp(url, "http", 4))
		return fail(-EROFS, "'%s' cannot be written: only s3:// and gs:// can", url);
	return n->force ? fail(-EINVAL, "'%s': a step in a bucket is not replaced", url) : 0;
}

/* Check the name, and that of a directory for it that is not there or, in a bucket, may not be. */
static int check_words(const char *path, const struct atomic_step *n, enum layout_kind layout)
{
	struct stat st;
	bool is_new = path_is_url(path) ? layout == LAYOUT_DIRECT : stat(n->dir, &st) < 0;
	int r = path_check_latest(path);

	return r < 0 || !is_new ? r : path_check_latest(n->dir);
}

static int open_dir(struct cmd_args *a, const char *path, enum layout_kind layout,
		    struct atomic_step *n)
{
	bool is_url = path_is_url(path);
	int r = path_split(path, &n->dir, &n->name);

	if (r < 0)
		return r;
	r = check_words(path, n, layout);
	if (r < 0)
		return r;
	r = is_url ? 0 : path_check_link(path);
	if (r < 0)
		return r;
	if (step_name_is_tmp(span_str(n->name)) || n->name[0] == '.')
		return fail(-EINVAL, "'%s' is not a name of a checkpoint", n->name);
	if (strlen(n->name) + strlen(STEP_TMP) + 4 > LIMIT_NAME_BYTES)
		return fail(-ENAMETOOLONG, "'%s' is too long for the name of a checkpoint",
			    n->name);
	r = is_url ? check_url(n, path) : check_no_mount(n->dir, n->name);
	if (r < 0)
		return r;
	r = path_check_outside(path, n->dir, layout == LAYOUT_DIRECT);
	if (r < 0)
		return r;
	/* How long an upload takes is known to who started it, and nobody else waits. */
	if (is_url && !n->group && !options_given(&a->options, "commit_timeout"))
		a->options.commit_timeout = 0;
	r = new_root_make(a, n->dir, &n->root);
	if (r < 0)
		return r;
	/* The directory may contain other checkpoints, or anything else. */
	r = open_root(a, n->dir, &n->ns);
	if (r < 0)
		return r;
	n->ns->ckpt->write_env.check = interrupt_check_arg;
	r = ns_start(n->ns, NULL);
	if (r < 0)
		return r;
	/* The claim of the place of a step in a bucket fails if it is there, or being written. */
	return is_url ? check_new(n) : atomic_step_check_target(a, n, path);
}

int atomic_step_begin(struct cmd_args *a, struct rank_group *group, const char *path,
		      enum layout_kind layout, bool force, struct atomic_step *ret)
{
	auto_atomic_step n = { .force = force, .group = group };
	int r = open_dir(a, path, layout, &n);

	if (group) {
		/* Rank 0 prints for all, and the work is already distributed. */
		a->options.primary = 0;
		a->options.load_and_broadcast = false;
		a->options.replica_parallel = false;
		/* From now on, ranks answer each other's requests. */
		if (r >= 0)
			r = ns_share(n.ns, group->peers);
		r = group_reduce(group, r);
		n.is_shared = r >= 0;
	}
	if (r < 0)
		return r;
	r = draft_begin_as(&n.ns->drafts, span_str(n.name), layout == LAYOUT_DIRECT, &n.draft);
	if (r < 0 && !path_is_url(path))
		r = err_at(r, "'%s' is not written", path);
	r = group_reduce(group, r);
	if (r < 0)
		return r;
	n.draft->replaces = force;
	*ret = n;
	n = (struct atomic_step){ 0 };
	return 0;
}

int atomic_step_commit(struct atomic_step *n)
{
	int r = draft_commit(n->draft, span_str(n->name));

	if (r >= 0) {
		draft_unref(take(n->draft));
		new_root_release(&n->root);
	}
	return group_reduce(n->group, r);
}

void atomic_step_release(struct atomic_step *n)
{
	struct draft_dir *d = n->draft ? n->draft->dir : NULL;
	struct err_note why, left;
	int r;

	/* Save the reason of the failure, which the caller reports. */
	err_peek(&why);
	r = n->draft ? draft_abort(n->draft, true) : 0;
	if (r < 0 && r != -ENOENT) {
		err_save(r, &left);
		/* The library prints nothing, since its log is in memory. */
		log_warn("'%s' stays behind: %s", d->name, left.text);
	}
	/* A shared draft is removed when all ranks have left it, unless one of them died. */
	if (n->is_shared && group_reduce(n->group, 0) < 0 && d && group_is_lead(n->group) &&
	    draft_dir_find(d, (unsigned)n->draft->member.attempt + 1) == 0)
		draft_dir_remove(d);
	draft_unref(n->draft);
	ns_close(n->ns);
	new_root_remove(&n->root);
	new_root_release(&n->root);
	free(n->dir);
	free(n->name);
	*n = (struct atomic_step){ 0 };
	err_restore(&why);
}
