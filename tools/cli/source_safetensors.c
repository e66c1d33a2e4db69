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
#include "tools/cli/cmd.h"
#include "tools/cli/foreign_file.h"

static bool is_safetensors(struct span name)
{
	return span_ends(name, span_str(".safetensors"));
}

bool source_has_shards(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	bool found = false;

	while (d && !found && (e = readdir(d)))
		found = e->d_name[0] != '.' && is_safetensors(span_str(e->d_name));
	if (d)
		closedir(d);
	return found;
}

bool source_has_safetensors_index(const char *dir)
{
	auto_free char *path = str_fmt("%s/model.safetensors.index.json", dir);

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
			return S_ISREG(st.st_mode) && is_safetensors(span_of(path, n)) ? n : 0;
		}
		while (n > 0 && path[n - 1] != '/')
			n--;
		while (n > 1 && path[n - 1] == '/')
			n--;
		if (n == 1 && path[0] == '/')
			break;
	}
	return 0;
}

/* Copy a text that lives as long as the command's arguments. NULL: no memory. */
static const char *keep(struct cmd_args *a, struct span text)
{
	char *p = arena_alloc(&a->arena, text.n + 1);

	if (p) {
		memcpy(p, text.p, text.n);
		p[text.n] = '\0';
	}
	return p;
}

/* Other files of arrays are read by their names, by the commands that read them. */
static void warn_of_others(const struct source *s)
{
	auto_free char *path = foreign_beside_shards(s->ns->ckpt->source);

	if (path)
		log_warn("'%s' is read as the .safetensors files in it, without '%s/%s'", s->source,
			 s->source, path + strlen("./"));
}

static int open_at(struct cmd_args *a, const char *path, size_t n, bool is_dir, struct source *ret)
{
	const char *slash = memrchr(path, '/', n);
	struct span dir = is_dir        ? span_of(path, n) :
			  slash == path ? span_str("/") :
			  slash         ? span_of(path, (size_t)(slash - path)) :
					  span_str(".");
	struct span file = slash ? span_of(slash + 1, n - (size_t)(slash + 1 - path)) :
				   span_of(path, n);
	const enum shape shape = a->options.shape;
	const char *source = keep(a, dir), *item = keep(a, is_dir ? span_str(".") : file);
	int r;

	ret->source = span_dup_str(span_of(path, n));
	ret->inner = strdup(path + n + strspn(path + n, "/"));
	if (!source || !item || !ret->source || !ret->inner)
		return fail(-ENOMEM, "cannot open '%s'", path);
	a->options.shape = SHAPE_ITEM;
	a->options.safetensors = item;
	r = ns_open(source, &a->options, &ret->ns);
	a->options.shape = shape;
	a->options.safetensors = NULL;
	if (r >= 0)
		r = ns_start(ret->ns, NULL);
	if (r >= 0 && is_dir)
		warn_of_others(ret);
	if (r >= 0)
		r = node_walk(ret->ns->root, ret->inner, &ret->node);
	if (r == -ENOENT && *ret->inner)
		return fail(r, "'%s' has no '%s'", ret->source, ret->inner);
	return r < 0 ? err_at(r, "'%s'", ret->source) : 1;
}

int source_open_safetensors(struct cmd_args *a, const char *path, struct source *ret)
{
	bool is_dir = false;
	size_t n = leading_part(path, &is_dir);
	int r;

	*ret = (struct source){ 0 };
	if (n == 0)
		return 0;
	r = open_at(a, path, n, is_dir, ret);
	if (r < 0)
		source_close(ret);
	return r;
}
