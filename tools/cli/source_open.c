/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source_open.c - opens the SOURCE of a command: what a path of the user leads to, also through a
 * mount.
 */
#include "tools/cli/cmd.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <mntent.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/step/step_name.h"
#include "tools/cli/foreign_file.h"

#define DIRECTORIES_MAX 1000          /* looked into in search of files of arrays */
#define STORED_DIR ".pytreefs/stored" /* below a mountpoint */
#ifndef FUSE_SUPER_MAGIC
#define FUSE_SUPER_MAGIC 0x65735546
#endif

/* ---- paths ---- */

/* 1, or an error. */
static int source_open_directory(struct cmd_args *a, const char *dir, struct source *ret)
{
	int r = ns_open(dir, &a->options, &ret->ns);

	/* The error for a part of a directory does not name the directory. */
	return r >= 0 ? 1 : r == -EACCES || r == -ENOTCONN ? err_at(r, "'%s'", dir) : r;
}

/*
 * Whether the first n bytes of path are a checkpoint: 1; 0; or an error that the user should see.
 */
static int try_source(struct cmd_args *a, const char *path, size_t n, struct source *ret)
{
	char *dir = span_dup_str(span_of(path, n));
	struct stat st;
	int r;

	if (!dir)
		return fail(-ENOMEM, "cannot open '%s'", path);
	if (path_is_url(path)) {
		r = ns_open(dir, &a->options, &ret->ns);
		ret->source = r < 0 ? NULL : take(dir);
		free(dir);
		return r < 0 ? r : 1;
	}
	r = stat(dir, &st) < 0 ? -errno : 0;
	if (r < 0 && r != -ENOENT && r != -ENOTDIR && r != -ENAMETOOLONG)
		r = err_code(r, "cannot look at", dir);
	else if (r < 0 || !S_ISDIR(st.st_mode))
		r = 0;
	else
		r = source_open_directory(a, dir, ret);
	if (r <= 0) {
		free(dir);
		return r;
	}
	ret->source = dir;
	return 1;
}

/* ---- through a mount ---- */

/* Whether the first n bytes of an absolute path are the mount point of a pytreefs mount. */
static bool is_mountpoint(const char *path, size_t n)
{
	auto_free char *dir = str_fmt("%.*s/", (int)n, path),
		       *stored = str_fmt("%.*s/" STORED_DIR, (int)n, path);
	struct statfs fs;
	struct stat st;

	return dir && stored && stat(stored, &st) == 0 && S_ISDIR(st.st_mode) &&
	       statfs(dir, &fs) == 0 && fs.f_type == FUSE_SUPER_MAGIC;
}

/*
 * Returns an absolute path that ends before the first "..", whose target the text alone does not
 * show. NULL: no memory.
 */
static char *absolute_path(const char *path)
{
	auto_free char *here = path[0] == '/' ? NULL : getcwd(NULL, 0), *text = NULL, *real = NULL;
	size_t n = 0;

	text = str_fmt("%s%s%s", here ? here : "", here ? "/" : "", path);
	for (const char *at = text; at && (at = strstr(at, "/..")); at += 3)
		if (at[3] == '/' || at[3] == '\0')
			n = (size_t)(at - text) + 3;
	if (n) {
		auto_free char *up = span_dup_str(span_of(text, n));

		real = up ? realpath(up, NULL) : NULL;
	}
	return real ? str_fmt("%s%s", strcmp(real, "/") ? real : "", text + n) : take(text);
}

char *source_stored_path(const char *path)
{
	auto_free char *absolute = path_is_url(path) ? NULL : absolute_path(path);

	for (size_t n = absolute ? strlen(absolute) : 0; n > 0;) {
		const char *rest = absolute + n;

		if (is_mountpoint(absolute, n))
			return !strncmp(rest, "/.pytreefs", 10) ?
				       NULL :
				       str_fmt("%.*s/" STORED_DIR "%s", (int)n, absolute, rest);
		while (n > 0 && absolute[n - 1] != '/')
			n--;
		while (n > 0 && absolute[n - 1] == '/')
			n--;
	}
	return NULL;
}

char *mounted_on(const char *dir, char **ret_source)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	char text[2 * LIMIT_PATH_BYTES];
	char *type = NULL, *source = NULL;
	struct mntent e;

	/* The last entry is the topmost mount. */
	while (f && getmntent_r(f, &e, text, sizeof(text)))
		if (!strcmp(e.mnt_dir, dir)) {
			free(type);
			free(source);
			type = strdup(e.mnt_type);
			source = strdup(e.mnt_fsname);
		}
	if (f)
		endmntent(f);
	*ret_source = source;
	return type;
}

int source_in_no_mount(const struct cmd_args *a, const char *path)
{
	auto_free char *stored = source_stored_path(path);

	return stored ? fail(-EINVAL, "'%s' is in a mount of pytreefs: %s takes the source of that",
			     path, a->cmd->name) :
			0;
}

int source_in_place(const struct cmd_args *a, const char *path, char **ret)
{
	struct stat st;
	int r = source_in_no_mount(a, path);

	if (r < 0)
		return r;
	if (path_is_url(path) || stat(path, &st) == 0 || ns_find_step(path, &a->options, ret) < 0) {
		err_clear();
		*ret = strdup(path);
	}
	return *ret ? 0 : fail(-ENOMEM, "cannot open '%s'", path);
}

/* Returns the offset of the path in a URL; 0: not a URL. A directory cannot end before it. */
static size_t url_host(const char *path)
{
	const char *host = path_is_url(path) ? strstr(path, "://") + 3 : NULL;

	return host ? (size_t)(host - path) + strcspn(host, "/") : 0;
}

/* Whether the last name is that of a leaf or view. Names of steps and items have no dot. */
static bool names_file(const char *path, size_t n)
{
	while (n > 0 && path[n - 1] != '/' && path[n - 1] != '.')
		n--;
	return n > 0 && path[n - 1] == '.';
}

/*
 * Find the longest prefix of a URL that may be a checkpoint, with one request instead of one per
 * component.
 */
static int begin_of_search(struct cmd_args *a, const char *path, size_t n, size_t *ret)
{
	auto_free char *url = NULL;

	*ret = n;
	if (path[url_host(path) - 1] == '/')
		return fail(-EINVAL,
			    "'%s' names no bucket or host: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, "
			    "https://HOST/PATH",
			    path);
	if (a->options.search)
		url_search_end(a->options.search);
	if (!a->options.search || !names_file(path + url_host(path), n - url_host(path)))
		return 0;
	url = span_dup_str(span_of(path, n));
	return url ? ns_search(url, &a->options, ret) : fail(-ENOMEM, "cannot open '%s'", path);
}

/* No directory along the path is a checkpoint; `why` is the error of the deepest existing one. */
static int fail_no_source(const char *path, bool is_url, const struct err_note *why)
{
	struct stat st;

	if (is_url && source_safetensors_url(path))
		return fail(-ENOENT, "'%s' does not exist, nor is a checkpoint on its path", path);
	if (is_url || why->code != -EINVAL)
		return err_restore(why);
	if (stat(path, &st) < 0)
		return errno == ENOENT ? fail(-ENOENT, "'%s' does not exist; %s", path, why->text) :
					 err_restore(why);
	return S_ISREG(st.st_mode) ? foreign_fail(path, why) : err_restore(why);
}

/*
 * The checkpoint does not have the path. If it is something on the disk all the same, the error is
 * that of the deepest directory that is not a checkpoint.
 */
static int fail_inner(const struct source *s, const char *path, bool is_here,
		      const struct err_note *first)
{
	bool is_url = path_is_url(path);
	struct stat st;
	bool is_there = !is_url && stat(path, &st) == 0;
	bool is_below_file = !is_url && !is_there && errno == ENOTDIR;
	bool is_in_item = is_there && source_stores(s->ns->root, s->inner) &&
			  !source_is_unmarked_item(s);

	if (first->code && !is_in_item &&
	    (is_here || is_there || is_below_file || (!is_url && source_leads_elsewhere(s))))
		return fail_no_source(path, is_url, first);
	if (is_here ||
	    (is_there && !is_in_item && (foreign_is_of_arrays(path) || !strchr(s->inner, '/'))))
		return foreign_fail(path, first);
	if (is_there)
		return fail(-EINVAL,
			    "'%s' is a stored part of '%s', not a name in it: `pytreefs tree %s` "
			    "lists the names",
			    path, s->source, s->source);
	return *err_where(-ENOENT) ? err_at(-ENOENT, "'%s' in '%s'", s->inner, s->source) :
				     fail_absent_name(s->ns->root, s->source, s->inner, true);
}

/* Whether a path ends with "..": what is above it is not the rest of the path. */
static bool ends_above(const char *path, size_t n)
{
	return span_ends(span_of(path, n), span_str("/..")) || (n == 2 && !strncmp(path, "..", 2));
}

/* The length of the last directory to try: the stored files of a mount are those of one source. */
static size_t last_of_search(const char *path)
{
	const char *stored = strstr(path, "/" STORED_DIR);

	return stored ? (size_t)(stored - path) + strlen("/" STORED_DIR) : url_host(path);
}

/*
 * Open a path of n bytes in the deepest checkpoint among its directories, from the one of `end`
 * bytes upwards. -ENOENT with *ret_above >= 0: that directory has no mark of a checkpoint, so that
 * the path may be one of a directory above, of which *ret_above is the first.
 */
static int open_from(struct cmd_args *a, const char *path, size_t n, size_t end, struct source *ret,
		     ssize_t *ret_above)
{
	size_t last = last_of_search(path), above, below = end;
	bool is_url = url_host(path) > 0;
	struct err_note first = { 0 };
	bool is_here = false;
	struct stat st;
	int r = 0;

	*ret = (struct source){ 0 };
	*ret_above = -1;
	if (is_url)
		r = begin_of_search(a, path, n, &end);
	if (r < 0)
		return r;
	/* Try directories from the whole path upwards, up to the first that is a checkpoint. */
	while (end > 0 && r == 0) {
		a->options.is_above = end < n;
		r = try_source(a, path, end, ret);
		if (r < 0 && r != -EINVAL && first.code && source_is_directory(path, below))
			return fail_no_source(path, is_url, &first);
		if (r == -EINVAL || (r == -ENOENT && is_url)) {
			/* The directory is not a checkpoint, but one above it may be. */
			if (!first.code)
				err_save(r, &first);
			r = 0;
		}
		if (r != 0 || ends_above(path, end))
			break;
		below = end;
		end = path_dir_len(path, end);
		if ((end == 1 && path[0] == '/') || end < last)
			break;
	}
	/*
	 * In a directory inside a checkpoint, paths need not name the directory. They may not leave
	 * it.
	 */
	if (r == 0 && !is_url && path[0] != '/' && strncmp(path, "../", 3)) {
		a->options.is_above = true;
		r = try_source(a, ".", 1, ret);
		is_here = r > 0;
		r = r == -EINVAL ? 0 : r;
	}
	if (r == 0)
		r = first.code ? fail_no_source(path, is_url, &first) : foreign_fail(path, NULL);
	if (r < 0)
		return r;
	while (path[end] == '/')
		end++;
	ret->inner = span_dup_str(span_of(path + MIN(end, n), n - MIN(end, n)));
	r = ret->inner ? ns_start(ret->ns, NULL) : fail(-ENOMEM, "cannot open '%s'", path);
	if (r >= 0) {
		/* Drop notes about directories that are not checkpoints. */
		err_clear();
		r = source_walk(ret->ns->root, &ret->inner, &ret->node);
	}
	if (r >= 0)
		return r;
	end = strlen(ret->source);
	above = !is_url && !is_here && !ends_above(path, end) ? path_dir_len(path, end) : end;
	if (r == -ENOENT && above < end && (above != 1 || path[0] != '/') && stat(path, &st) < 0 &&
	    source_is_unmarked_item(ret))
		*ret_above = (ssize_t)above;
	if (r == -ENOENT)
		r = fail_inner(ret, path, is_here, &first);
	source_close(ret);
	ret->above = r == -ENOENT ? end : 0;
	return r;
}

static int open_path(struct cmd_args *a, const char *path, struct source *ret)
{
	size_t n = strlen(path);
	ssize_t above;
	struct err_note why;
	int r;

	if (n == 0)
		return fail(-EINVAL, "'' is not a path");
	while (n > 1 && path[n - 1] == '/')
		n--;
	r = open_from(a, path, n, n, ret, &above);
	if (r >= 0 || above < 0)
		return r;
	/* Each directory on the way to arrays looks like an item; the deepest has the error. */
	err_save(r, &why);
	while (r < 0 && above >= 0)
		r = open_from(a, path, n, (size_t)above, ret, &above);
	return r < 0 ? err_restore(&why) : r;
}

/* Where no checkpoint was found, with the error r: a safetensors file or a directory of them, or r.
 */
static int or_safetensors(struct cmd_args *a, const char *path, int r, struct source *ret)
{
	struct err_note why;
	int found;

	err_save(r, &why);
	found = source_open_safetensors(a, path, ret);
	return found > 0 ? 0 : found < 0 ? found : err_restore(&why);
}

int source_open_stored(struct cmd_args *a, const char *path, struct source *ret)
{
	auto_free char *stored = *path ? source_stored_path(path) : NULL;
	int r = stored ? open_path(a, stored, ret) : -ENOENT;

	if (stored && (r == -EINVAL || r == -ENOENT))
		r = or_safetensors(a, stored, r, ret);
	if (r != -ENOENT)
		return r < 0 ? r : 1;
	err_clear();
	return 0;
}

/*
 * A path that is stored in a source that has no mark: is it something of its own, which has
 * checkpoints beside it? Steps of old releases have no mark, either, and items of any kind; their
 * names are numbers.
 */
static int source_open_check_own(struct cmd_args *a, const char *path, const struct source *s,
				 bool is_dir)
{
	const char *slash = strrchr(s->source, '/');
	struct source file = { 0 };
	struct step_name number;
	int r;

	/* A file of tensors on the disk is tried next: it is a tree. */
	if (!is_dir && !path_is_url(path) && span_ends(span_str(path), span_str(".safetensors")))
		return 0;
	if (!*s->inner || (!source_is_unmarked_step(s) && !source_is_unmarked_item(s)))
		return 0;
	if (is_dir && step_name_parse(span_str(slash ? slash + 1 : s->source), &number) == 1 &&
	    !foreign_in_directory(s->ns->ckpt->source, s->inner) &&
	    detect_holds_steps(s->ns->ckpt->source, s->inner) <= 0)
		return 0;
	if (!is_dir)
		return foreign_is_of_arrays(path) ? foreign_fail(path, NULL) : 0;
	/* The reason was given when it was tried first. */
	r = source_open_directory(a, path, &file);
	source_close(&file);
	return MIN(r, 0);
}

int source_fail_query(const char *path, int r)
{
	const char *query = strncmp(path, "http", 4) || !path_is_url(path) ? NULL :
									     strchr(path, '?');

	if (!query || (r != -ENOENT && r != -EINVAL))
		return r;
	return fail(r,
		    "'%s': the query of a URL is not sent, and there is no such name: is '%.*s' "
		    "meant?",
		    path, (int)(query - path), path);
}

/* is_bytes: a safetensors file in a checkpoint is wanted as it is stored. */
static int open_with_search(struct cmd_args *a, const char *path, bool is_bytes, struct source *ret)
{
	size_t n = source_safetensors_url(path);
	auto_url_search search = { 0 };
	bool is_dir;
	int r;

	*ret = (struct source){ 0 };
	a->options.search = &search;
	r = source_open_stored(a, path, ret);
	/*
	 * Open what is a file by its URL, before directories on the way are looked at, which takes
	 * many requests. If it is not there, it may be a view.
	 */
	if (r == 0 && n && (path[n] || !is_bytes))
		r = source_open_safetensors(a, path, ret);
	if (r == 0)
		r = open_path(a, path, ret);
	if (r == 0 && node_is_stored(ret->node, &is_dir)) {
		r = source_open_check_own(a, path, ret, is_dir);
		if (r < 0)
			source_close(ret);
	}
	/* Try a checkpoint first, since such a file may be an item of it. */
	if (r == -EINVAL || r == -ENOENT || r == -ENOTDIR)
		r = or_safetensors(a, path, r, ret);
	a->options.search = NULL;
	return source_fail_query(path, MIN(r, 0));
}

int source_open_file(struct cmd_args *a, const char *path, struct source *ret)
{
	return open_with_search(a, path, true, ret);
}

int source_open(struct cmd_args *a, const char *path, struct source *ret)
{
	int r = open_with_search(a, path, false, ret);
	struct source file = { 0 };
	bool is_dir;

	/* The directory was taken for a step, and contains safetensors files: each is a tree. */
	if (r < 0 || !node_is_stored(ret->node, &is_dir))
		return r;
	r = source_open_safetensors(a, path, &file);
	/*
	 * Without an index, a directory of safetensors files in a step is not a model. A stray item
	 * in a directory above, such as /tmp, does not make it a part of a step.
	 */
	if (r < 0 && is_dir && !source_has_safetensors_index(path) &&
	    !source_is_unmarked_step(ret)) {
		err_clear();
		r = 0;
	}
	if (r == 0)
		return 0;
	source_close(ret);
	if (r > 0)
		*ret = file;
	return MIN(r, 0);
}

void source_close(struct source *s)
{
	node_unref(s->node, 1);
	ns_close(s->ns);
	free(s->source);
	free(s->inner);
	*s = (struct source){ 0 };
}
