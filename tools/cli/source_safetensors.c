/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source_safetensors.c - a safetensors file, or a directory of shards, in place of a checkpoint.
 */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/step/item_safetensors.h"
#include "tools/cli/cmd.h"
#include "tools/cli/foreign_file.h"

bool source_has_shards(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	bool found = false;

	while (d && !found && (e = readdir(d)))
		found = item_is_safetensors(e->d_name);
	if (d)
		closedir(d);
	return found;
}

bool source_has_safetensors_index(const char *dir)
{
	auto_free char *path = str_fmt("%s/" ITEM_SHARDS_INDEX, dir);

	return path && access(path, F_OK) == 0;
}

/*
 * Returns the length of the longest existing prefix of a path if it is a safetensors file or a
 * directory of shards; else 0.
 */
static size_t leading_part(const char *path, bool *ret_is_dir)
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	while (n > 0) {
		auto_free char *part = span_dup_str(span_of(path, n));
		struct stat st;

		if (part && stat(part, &st) == 0) {
			*ret_is_dir = S_ISDIR(st.st_mode);
			if (*ret_is_dir)
				return source_has_shards(part) ? n : 0;
			return S_ISREG(st.st_mode) && item_is_whole_file(part) ? n : 0;
		}
		n = path_dir_len(path, n);
		if (n == 1 && path[0] == '/')
			break;
	}
	return 0;
}

void source_warn_of_others(const struct ns *ns)
{
	const struct ckpt *c = ns->ckpt;
	auto_free char *path = c->only_item && !ckpt_is_file(c) ? foreign_beside_shards(c->source) :
								  NULL;

	if (path)
		log_warn("'%s' is read as the .safetensors files in it, without '%s/%s'",
			 c->opts.source, c->opts.source, path + strlen("./"));
}

static int open_at(struct cmd_args *a, const char *path, size_t n, struct source *ret)
{
	const enum tensors tensors = a->options.tensors;
	int r;

	ret->source = span_dup_str(span_of(path, n));
	ret->inner = strdup(path + n + strspn(path + n, "/"));
	if (!ret->source || !ret->inner)
		return fail(-ENOMEM, "cannot open '%s'", path);
	a->options.tensors = TENSORS_ONLY;
	r = ns_open(ret->source, &a->options, &ret->ns);
	a->options.tensors = tensors;
	if (r >= 0)
		r = ns_start(ret->ns, NULL);
	if (r >= 0) {
		source_warn_of_others(ret->ns);
		r = source_walk(ret->ns->root, &ret->inner, &ret->node);
	}
	if (r == -ENOENT && ret->ns)
		return fail_absent_name(ret->ns->root, ret->source, ret->inner, true);
	return r < 0 ? err_at(r, "'%s'", ret->source) : 1;
}

/* ---- a URL ---- */

/* The length of the path up to the end of the part that begins at n. */
static size_t end_of_part(const char *path, size_t n)
{
	return n + strcspn(path + n, "/");
}

size_t source_safetensors_url(const char *path)
{
	const char *host = path_is_url(path) ? strstr(path, "://") + 3 : NULL;

	for (size_t n = host ? end_of_part(path, (size_t)(host - path)) : 0; n && path[n];) {
		auto_free char *part = NULL;

		n = end_of_part(path, n + 1);
		part = span_dup_str(span_of(path, n));
		if (part && item_is_whole_file(part))
			return n;
	}
	return 0;
}

/*
 * Open the file that a URL names, or the deepest directory on its path that has a model: 1; 0:
 * there is none.
 */
static int open_url(struct cmd_args *a, const char *path, size_t above, struct source *ret)
{
	size_t file = source_safetensors_url(path), n = file ? file : strlen(path);
	const size_t host = end_of_part(path, (size_t)(strstr(path, "://") + 3 - path));
	int r = -ENOENT;

	/* A search has found that deeper ones do not exist, or have no model. */
	if (!file && a->options.search && a->options.search->end)
		n = MIN(n, a->options.search->end);
	while (n > above) {
		r = open_at(a, path, n, ret);
		/* A directory above the named one may be closed. */
		if (r == -EACCES && !file && n < strlen(path))
			break;
		if (r != -ENOENT && r != -EINVAL && r != -ENOTDIR)
			return r;
		/* It has the model, and lacks the leaf. */
		if (file || ret->ns || n <= host)
			break;
		source_close(ret);
		n = MAX(path_dir_len(path, n), host);
	}
	return ret->ns ? r : 0;
}

int source_open_safetensors(struct cmd_args *a, const char *path, struct source *ret)
{
	bool is_dir = false, is_url = path_is_url(path);
	size_t n = is_url ? 0 : leading_part(path, &is_dir), above = ret->above;
	int r;

	*ret = (struct source){ 0 };
	if (n == 0 && !is_url)
		return 0;
	r = is_url ? open_url(a, path, above, ret) : open_at(a, path, n, ret);
	if (r <= 0)
		source_close(ret);
	return r;
}
