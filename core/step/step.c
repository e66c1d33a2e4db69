/*
 * step.c - listing the steps of a root without opening any.
 */
#include "core/step/step.h"

#include <dirent.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/limits.h"
#include "core/step/detect.h"
#include "core/step/step_name.h"

int step_mtime(struct io_dir *dir, struct timespec *ret)
{
	auto_buf text = { 0 };
	auto_json doc = { 0 };
	struct stat st;
	int64_t ns = 0;
	int r;

	if (io_slurp(dir, "_CHECKPOINT_METADATA", LIMIT_SMALL_FILE, &text) >= 0 &&
	    json_parse(buf_span(&text), "'_CHECKPOINT_METADATA'", &doc) >= 0 &&
	    json_as_int(json_member(doc.root, "commit_timestamp_nsecs"), &ns) && ns > 0) {
		ret->tv_sec = ns / 1000000000;
		ret->tv_nsec = ns % 1000000000;
		return 0;
	}
	/* Damaged or missing: the directory knows when it was renamed. */
	err_clear();
	r = io_stat(dir, ".", &st);
	if (r >= 0)
		*ret = st.st_mtim;
	return r;
}

int step_find(struct io_dir *root, struct span name, bool need_marker, bool show_tmp, struct stat *st)
{
	auto_free char *path = span_dup_str(name), *marker = NULL;
	uint64_t number;
	struct stat ms;
	int r;

	if (!path)
		return fail(-ENOMEM, "cannot look up '%.*s'", SPAN_ARG(name));
	if (step_name_is_tmp(name) ? !show_tmp : !step_name_number(name, &number))
		return 0;
	r = io_stat(root, path, st);
	if (r < 0) {
		err_clear();
		return 0;
	}
	if (S_ISREG(st->st_mode))
		return step_name_is_tmp(name) ? 0 : detect_flax_file(root, path);
	if (!S_ISDIR(st->st_mode))
		return 0;
	if (!need_marker)
		return 1;
	if (asprintf(&marker, "%s/commit_success.txt", path) < 0) {
		marker = NULL;
		return fail(-ENOMEM, "cannot look up '%s'", path);
	}
	r = io_stat(root, marker, &ms) >= 0;
	err_clear();
	return r;
}

struct listing_steps {
	struct io_dir *root;
	bool need_marker, show_tmp;
	struct step_list *list;
};

static int add_step(void *arg, const char *name, unsigned char type)
{
	struct listing_steps *ls = arg;
	struct step_list *l = ls->list;
	struct step_entry e = { 0 };
	bool tmp = step_name_is_tmp(span_str(name));
	struct stat st;
	int r;

	if (tmp ? !ls->show_tmp : !step_name_number(span_str(name), &e.number))
		return 0;
	/* A plain directory needs no look of its own. */
	if (type != DT_DIR || ls->need_marker) {
		r = step_find(ls->root, span_str(name), ls->need_marker, ls->show_tmp, &st);
		if (r <= 0)
			return r;
		e.is_file = S_ISREG(st.st_mode);
	}
	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 64;
		struct step_entry *more = reallocarray(l->entry, cap, sizeof(*more));

		if (!more)
			return fail(-ENOMEM, "cannot list %zu steps", cap);
		l->entry = more;
		l->cap = cap;
	}
	e.name = strdup(name);
	if (!e.name)
		return fail(-ENOMEM, "cannot list the steps");
	l->entry[l->n++] = e;
	return 0;
}

static int by_number(const void *a, const void *b)
{
	const struct step_entry *x = a, *y = b;

	return x->number != y->number ? (x->number > y->number) - (x->number < y->number) :
					strcmp(x->name, y->name);
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
