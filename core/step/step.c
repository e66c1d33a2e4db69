/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step.c - list the steps of a root without opening any.
 */
#include "core/step/step.h"

#include <dirent.h>
#include <stdio.h>

#include "core/base/array.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/step/detect.h"
#include "core/step/step_meta.h"
#include "core/step/step_name.h"

int step_mtime(struct io_dir *dir, struct timespec *ret)
{
	auto_of(step_meta) struct step_meta *m = NULL;
	auto_buf text = { 0 };
	struct stat st;
	int r = io_read_file(dir, "_CHECKPOINT_METADATA", LIMIT_STEP_FILE, &text);

	if (r >= 0)
		r = step_meta_parse(buf_span(&text), "'_CHECKPOINT_METADATA'", &m);
	if (r >= 0 && m->has_commit && m->commit_ns > 0) {
		*ret = clock_timespec(m->commit_ns);
		return 0;
	}
	/*
	 * A temporary error must not change the time of the step, which is kept as long as the
	 * mount lives.
	 */
	if (err_is_transient(r))
		return r;
	/*
	 * The file is damaged or missing. The mtime of the directory is close to the time of its
	 * rename.
	 */
	err_clear();
	r = io_stat(dir, ".", &st);
	if (r >= 0)
		*ret = st.st_mtim;
	return r;
}

/*
 * Whether a name is a step's: 1 yes, 0 no, -1 if it depends on the contents. "ckpt_" and a number
 * is a step by Orbax's formats; another prefix ("checkpoint3" of flax, "run-7" of a user's format)
 * may be.
 */
static int is_step_name(struct span name, bool show_tmp)
{
	struct step_name n;

	if (step_name_is_tmp(name))
		return show_tmp;
	if (step_name_parse(name, &n) != 1)
		return 0;
	return step_name_is_orbax(&n) ? 1 : -1;
}

static int is_step_content(struct io_dir *root, const char *name)
{
	enum shape shape;
	int r = detect_step(root, name, &shape);

	return r < 0 ? r : shape != SHAPE_UNKNOWN;
}

static bool is_absent(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ENAMETOOLONG;
}

static int has_marker(struct io_dir *root, const char *name)
{
	auto_free char *path = NULL;
	struct stat st;
	int r;

	path = str_fmt("%s/commit_success.txt", name);
	if (!path)
		return fail(-ENOMEM, "cannot look up '%s'", name);
	r = io_stat(root, path, &st);
	if (is_absent(r)) {
		err_clear();
		return 0;
	}
	return r < 0 ? r : 1;
}

int step_find(struct io_dir *root, struct span name, bool need_marker, bool show_tmp,
	      struct stat *st)
{
	auto_free char *path = span_dup_str(name);
	int by_name = is_step_name(name, show_tmp), r;

	if (!path)
		return fail(-ENOMEM, "cannot look up '%.*s'", SPAN_ARG(name));
	if (by_name == 0)
		return 0;
	r = io_stat(root, path, st);
	if (is_absent(r)) {
		err_clear();
		return 0;
	}
	if (r < 0)
		return r;
	if (S_ISREG(st->st_mode))
		return step_name_is_tmp(name) ? 0 : detect_flax_file(root, path);
	if (!S_ISDIR(st->st_mode))
		return 0;
	if (by_name < 0)
		r = is_step_content(root, path);
	else
		r = 1;
	return r > 0 && need_marker ? has_marker(root, path) : r;
}

struct listing_steps {
	struct io_dir *root;
	bool need_marker, show_tmp;
	struct step_list *list;
};

/* Whether an entry of the root is a step: 1 or 0. A directory whose name suffices is not examined. */
static int is_step(const struct listing_steps *ls, const char *name, unsigned char type,
		   bool *ret_is_file)
{
	int by_name = is_step_name(span_str(name), ls->show_tmp), r;
	struct stat st;

	*ret_is_file = false;
	if (by_name == 0 || (by_name > 0 && type == DT_DIR && !ls->need_marker))
		return by_name;
	r = step_find(ls->root, span_str(name), ls->need_marker, ls->show_tmp, &st);
	if (r > 0)
		*ret_is_file = S_ISREG(st.st_mode);
	return r;
}

/* Ends the listing with 1 at the first step. */
static int find_step(void *arg, const char *name, unsigned char type)
{
	bool is_file;
	int r = is_step(arg, name, type, &is_file);

	if (r >= 0 || r == -ENOMEM)
		return r;
	err_clear();
	return 0;
}

int step_any(struct io_dir *root)
{
	struct listing_steps ls = { .root = root, .show_tmp = true };

	return io_list(root, ".", find_step, &ls);
}

static int add_step(void *arg, const char *name, unsigned char type)
{
	struct listing_steps *ls = arg;
	struct step_list *l = ls->list;
	struct step_entry e = { 0 };
	int r = is_step(ls, name, type, &e.is_file);

	/* A step that cannot be examined is omitted; the others are listed. */
	if (r < 0 && r != -ENOMEM) {
		log_warn("'%s' is left out: %s", name, err_text(r));
		err_clear();
		return 0;
	}
	if (r <= 0)
		return r;
	if (!array_reserve(l->entry, l->cap, l->n + 1))
		return fail(-ENOMEM, "cannot list %zu steps", l->n + 1);
	e.name = strdup(name);
	if (!e.name)
		return fail(-ENOMEM, "cannot list the steps");
	l->entry[l->n++] = e;
	return 0;
}

/* Temporary directories, which have no number, come last. */
static int by_number(const void *a, const void *b)
{
	const struct step_entry *x = a, *y = b;
	struct step_name nx, ny;
	int px = step_name_parse(span_str(x->name), &nx),
	    py = step_name_parse(span_str(y->name), &ny);

	if (px == 1 && py == 1)
		return step_name_cmp(&nx, &ny);
	return px != py ? (px < py) - (px > py) : strcmp(x->name, y->name);
}

int step_list(struct io_dir *root, bool need_marker, bool show_tmp, struct step_list *ret)
{
	struct step_list l = { 0 };
	struct listing_steps ls = { root, need_marker, show_tmp, &l };
	int r = io_list(root, ".", add_step, &ls);

	if (r < 0) {
		step_list_release(&l);
		return r;
	}
	if (l.n)
		qsort(l.entry, l.n, sizeof(*l.entry), by_number);
	*ret = l;
	return 0;
}

void step_list_release(struct step_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->entry[i].name);
	free(l->entry);
	*l = (struct step_list){ 0 };
}
