/* SPDX-License-Identifier: Apache-2.0 */
/*
 * children.c - the entries of a directory, and which of them are directories.
 */
#include "core/step/children.h"

#include <dirent.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/path.h"

static int add_child(void *arg, const char *name, unsigned char type)
{
	struct children *c = arg;
	bool is_dir = type == DT_DIR;
	bool may_be_dir = is_dir, leads_out = false;

	if (type != DT_DIR && type != DT_REG) {
		auto_free char *path = NULL;
		struct stat st;
		int r = path_join(c->rel, span_str(name), &path);

		if (r >= 0)
			r = io_stat(c->dir, path, &st);
		leads_out = r == -EUCLEAN;
		if (r < 0 && !leads_out && !c->all)
			return err_is_transient(r) ? r : 0;
		is_dir = r >= 0 && S_ISDIR(st.st_mode);
		may_be_dir = is_dir || err_is_transient(r) || r == -EACCES || r == -EPERM;
		if (r < 0)
			err_clear();
	}
	if (!array_reserve(c->child, c->cap, c->n + 1))
		return fail(-ENOMEM, "cannot list '%s'", c->rel);
	c->child[c->n] = (struct child){ strdup(name), type, is_dir, may_be_dir, leads_out };
	if (!c->child[c->n].name)
		return fail(-ENOMEM, "cannot list '%s'", c->rel);
	c->n++;
	return 0;
}

int children_list(struct io_dir *dir, const char *rel, bool all, struct children *ret)
{
	*ret = (struct children){ .dir = dir, .rel = rel, .all = all };
	return io_list(dir, rel, add_child, ret);
}

static int children_by_name(const void *a, const void *b)
{
	return strcmp(((const struct child *)a)->name, ((const struct child *)b)->name);
}

void children_sort(struct children *c)
{
	if (c->n)
		qsort(c->child, c->n, sizeof(*c->child), children_by_name);
}

void children_release(struct children *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->child[i].name);
	free(c->child);
	*c = (struct children){ 0 };
}

bool children_has(const struct children *c, const char *name, bool is_dir)
{
	for (size_t i = 0; i < c->n; i++)
		if (c->child[i].is_dir == is_dir && !strcmp(c->child[i].name, name))
			return true;
	return false;
}

unsigned char child_type(struct io_dir *dir, const char *path, unsigned char type)
{
	struct stat st;
	int r;

	if (type == DT_DIR || type == DT_REG)
		return type;
	r = io_stat(dir, path, &st);
	/* A link that is not followed does not count as absent. */
	if (r == -EUCLEAN)
		log_warn("%s", err_text(r));
	err_clear();
	if (r < 0)
		return DT_UNKNOWN;
	return S_ISDIR(st.st_mode) ? DT_DIR : S_ISREG(st.st_mode) ? DT_REG : DT_UNKNOWN;
}
