/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step.c - list the steps of a root.
 */
#include "core/step/step.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>

#include "core/base/array.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/io/io_store.h"
#include "core/step/detect.h"
#include "core/step/step_meta.h"
#include "core/step/step_name.h"

/* The time of the commit that the step's document has: 1; 0: it has none. */
static int commit_time(struct io_dir *dir, struct timespec *ret)
{
	auto_of(step_meta) struct step_meta *m = NULL;
	auto_buf text = { 0 };
	int r = io_read_file(dir, "_CHECKPOINT_METADATA", LIMIT_STEP_FILE, &text);

	if (r < 0)
		return r;
	r = step_meta_parse(buf_span(&text), "'_CHECKPOINT_METADATA'", &m);
	if (r < 0 || !m->has_commit || m->commit_ns <= 0)
		return r;
	*ret = clock_timespec(m->commit_ns);
	return 1;
}

int step_mtime(struct io_dir *dir, struct timespec *ret)
{
	struct stat st;
	int r = commit_time(dir, ret);

	/*
	 * A temporary error must not change the time of the step, which is kept as long as the
	 * mount lives.
	 */
	if (r > 0 || err_is_transient(r))
		return MIN(r, 0);
	/*
	 * The file is damaged or missing. The mtime of the directory is close to the time of its
	 * rename.
	 */
	err_clear();
	r = io_stat(dir, ".", &st);
	if (r < 0)
		return r;
	*ret = st.st_mtim;
	return 0;
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

static int has_file(struct io_dir *root, const char *name, const char *file)
{
	auto_free char *path = str_fmt("%s/%s", name, file);
	struct stat st;
	int r;

	if (!path)
		return fail(-ENOMEM, "cannot look up '%s'", name);
	r = io_stat(root, path, &st);
	if (is_absent(r)) {
		err_clear();
		return 0;
	}
	return r < 0 ? r : 1;
}

int step_has_marker(struct io_dir *root, const char *name)
{
	return has_file(root, name, "commit_success.txt");
}

int step_is_whole(struct io_dir *root, const char *name)
{
	bool may_be_partial = root->bucket && !step_name_is_tmp(span_str(name));
	int r = may_be_partial ? has_file(root, name, STEP_DRAFT) : 0;

	return r > 0 ? step_has_marker(root, name) : r < 0 ? r : 1;
}

/* step_find() without a look at the other names of the root. */
static int find_alone(struct io_dir *root, struct span name, bool need_marker, bool show_tmp,
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
	if (r <= 0)
		return r;
	return need_marker ? step_has_marker(root, path) : step_is_whole(root, path);
}

struct listing_steps {
	struct io_dir *root;
	bool need_marker, show_tmp;
	struct step_list *list;
};

/*
 * Whether an entry of the root is a step: 1 or 0. A directory whose name suffices is not examined.
 */
static int is_step(const struct listing_steps *ls, const char *name, unsigned char type,
		   bool *ret_is_file)
{
	int by_name = is_step_name(span_str(name), ls->show_tmp), r;
	struct stat st;

	*ret_is_file = false;
	if (by_name == 0 ||
	    (by_name > 0 && type == DT_DIR && !ls->need_marker && !ls->root->bucket))
		return by_name;
	r = find_alone(ls->root, span_str(name), ls->need_marker, ls->show_tmp, &st);
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
static int step_by_number(const void *a, const void *b)
{
	const struct step_entry *x = a, *y = b;
	struct step_name nx, ny;
	int px = step_name_parse(span_str(x->name), &nx),
	    py = step_name_parse(span_str(y->name), &ny);

	if (px == 1 && py == 1)
		return step_name_cmp(&nx, &ny);
	return px != py ? (px < py) - (px > py) : strcmp(x->name, y->name);
}

/* ---- the prefix of a root ---- */

#define EXAMINED_MAX 16 /* steps with one prefix that are looked into */
#define WIDTH_MAX 20    /* of numbers with zeros in front */

static struct span step_prefix_of(const struct step_entry *e)
{
	struct step_name n;

	return step_name_parse(span_str(e->name), &n) == 1 ? n.prefix : span_of(NULL, 0);
}

/* Temporary directories come last. */
static int by_prefix(const void *a, const void *b)
{
	const struct step_entry *x = a, *y = b;
	int c = step_name_is_tmp(span_str(x->name)) - step_name_is_tmp(span_str(y->name));

	if (!c)
		c = span_cmp(step_prefix_of(x), step_prefix_of(y));
	return c ? c : step_by_number(a, b);
}

/* Whether one of the latest of these steps is a checkpoint: 1 or 0. */
static int any_is_checkpoint(const struct listing_steps *ls, const struct step_entry *e, size_t n)
{
	for (size_t i = 0; i < MIN(n, (size_t)EXAMINED_MAX); i++) {
		const struct step_entry *at = &e[n - 1 - i];
		int r = 1;

		/* Files were looked into, and directories whose name alone is not a step's. */
		if (!at->is_file && is_step_name(span_str(at->name), false) > 0 && !ls->need_marker)
			r = is_step_content(ls->root, at->name);
		/* One that cannot be examined may be a checkpoint. */
		if (r == -ENOMEM || r > 0)
			return r;
		if (r < 0)
			return 1;
	}
	return 0;
}

/* Steps with one prefix: entries [from, to) in the order of prefixes. */
struct group {
	size_t from, to;
	size_t width; /* has_form() */
	bool is_checkpoint, is_own;
};

#define WIDTH_ANY SIZE_MAX

static bool is_padded(const struct step_name *n)
{
	return n->digits.n > 1 && n->digits.p[0] == '0';
}

/*
 * Orbax writes numbers as they are (width 0), or with zeros in front up to a fixed width. Without a
 * prefix, it has no names with a fraction.
 */
static bool has_form(const struct step_entry *e, size_t width)
{
	struct step_name n;

	if (width == WIDTH_ANY || step_name_parse(span_str(e->name), &n) != 1)
		return true;
	if (n.fraction.n && !n.prefix.n)
		return false;
	return is_padded(&n) ? n.digits.n == width : n.digits.n >= width;
}

/* The width of most names, WIDTH_ANY if no name has a form of Orbax. */
static size_t width_of(const struct step_list *l, const struct group *g)
{
	size_t best = WIDTH_ANY, most = 0;

	for (size_t width = 0; width <= WIDTH_MAX; width++) {
		size_t n = 0;

		for (size_t i = g->from; i < g->to; i++)
			n += has_form(&l->entry[i], width);
		if (n > most) {
			best = width;
			most = n;
		}
	}
	return best;
}

/* Get the groups, allocated; temporary directories are in none. */
static int step_find_groups(const struct listing_steps *ls, const struct step_list *l,
			    struct group **ret, size_t *ret_n)
{
	auto_free struct group *g = NULL;
	size_t n = 0, cap = 0;

	for (size_t i = 0; i < l->n && !step_name_is_tmp(span_str(l->entry[i].name)); i++) {
		const struct step_entry *e = &l->entry[i];

		if (n && span_eq(step_prefix_of(e), step_prefix_of(&l->entry[g[n - 1].from]))) {
			g[n - 1].to = i + 1;
			continue;
		}
		if (!array_reserve(g, cap, n + 1))
			return fail(-ENOMEM, "cannot list %zu steps", l->n);
		g[n++] = (struct group){ .from = i, .to = i + 1 };
	}
	for (size_t i = 0; i < n && n > 1; i++) {
		int r = any_is_checkpoint(ls, &l->entry[g[i].from], g[i].to - g[i].from);

		if (r < 0)
			return r;
		g[i].is_checkpoint = r;
	}
	*ret = take(g);
	*ret_n = n;
	return 0;
}

static size_t weight_of(const struct step_list *l, const struct group *g)
{
	return step_prefix_of(&l->entry[g->from]).n ? g->to - g->from : SIZE_MAX;
}

/*
 * Mark the groups that are steps of the root: that without a prefix, or else the largest. Several
 * may be. If there is no checkpoint in any, all are.
 */
static void mark_own(const struct step_list *l, struct group *g, size_t n)
{
	size_t most = 0;
	bool any = false;

	for (size_t i = 0; i < n; i++) {
		any |= g[i].is_checkpoint;
		if (g[i].is_checkpoint)
			most = MAX(most, weight_of(l, &g[i]));
	}
	for (size_t i = 0; i < n; i++) {
		g[i].is_own = !any || (g[i].is_checkpoint && weight_of(l, &g[i]) == most);
		g[i].width = width_of(l, &g[i]);
	}
}

static int keep_own_prefix(const struct listing_steps *ls, struct step_list *l)
{
	auto_free struct group *g = NULL;
	size_t n_groups = 0, n = 0;
	int r;

	if (l->n)
		qsort(l->entry, l->n, sizeof(*l->entry), by_prefix);
	r = step_find_groups(ls, l, &g, &n_groups);
	if (r < 0)
		return r;
	mark_own(l, g, n_groups);
	for (size_t i = 0, k = 0; i < l->n; i++) {
		struct step_entry *e = &l->entry[i];

		while (k < n_groups && i >= g[k].to)
			k++;
		if (k == n_groups || (g[k].is_own && has_form(e, g[k].width))) {
			l->entry[n++] = *e;
			continue;
		}
		l->n_others += g[k].is_checkpoint || g[k].is_own;
		if (!l->other && (g[k].is_checkpoint || g[k].is_own))
			l->other = e->name;
		else
			free(e->name);
	}
	l->n = n;
	if (l->n)
		qsort(l->entry, l->n, sizeof(*l->entry), step_by_number);
	return 0;
}

int step_list(struct io_dir *root, bool need_marker, bool show_tmp, struct step_list *ret)
{
	auto_step_list l = { 0 };
	struct listing_steps ls = { root, need_marker, show_tmp, &l };
	int r = io_list(root, ".", add_step, &ls);

	if (r < 0)
		return r;
	r = keep_own_prefix(&ls, &l);
	if (r < 0)
		return r;
	*ret = l;
	l = (struct step_list){ 0 };
	return 0;
}

int step_latest(struct io_dir *root, const struct step_list *l, bool need_marker, char **ret)
{
	const struct listing_steps ls = { .root = root, .need_marker = need_marker };
	size_t n = l->n;
	int r;

	while (n > 0 && step_name_is_tmp(span_str(l->entry[n - 1].name)))
		n--;
	if (n == 0)
		return -ENOENT;
	/* A name that is only a number is a step's; others may be those of other programs. */
	r = step_prefix_of(&l->entry[n - 1]).n ? any_is_checkpoint(&ls, l->entry, n) : 1;
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	*ret = strdup(l->entry[n - 1].name);
	return *ret ? 0 : fail(-ENOMEM, "cannot name the latest step");
}

int step_meant(struct io_dir *root, struct span typed, bool need_marker, char **ret)
{
	auto_step_list l = { 0 };
	const char *found = NULL;
	struct step_name wanted;
	bool latest = span_eq(typed, span_str(STEP_LATEST));
	int r;

	if (!latest && (step_name_parse(typed, &wanted) != 1 || wanted.number == UINT64_MAX))
		return -ENOENT;
	r = step_list(root, need_marker, false, &l);
	if (r < 0 || latest)
		return r < 0 ? r : step_latest(root, &l, need_marker, ret);
	/* step_000008 may be typed as 8, or as step_8. */
	for (size_t i = 0; i < l.n && !found; i++) {
		struct step_name own;

		if (step_name_parse(span_str(l.entry[i].name), &own) == 1 &&
		    own.number == wanted.number &&
		    (!wanted.prefix.n || span_eq(own.prefix, wanted.prefix)))
			found = l.entry[i].name;
	}
	if (!found)
		return -ENOENT;
	*ret = strdup(found);
	return *ret ? 0 : fail(-ENOMEM, "cannot name a step");
}

static int find_latest(struct io_dir *root, bool need_marker, char **ret)
{
	auto_step_list l = { 0 };
	enum shape shape = SHAPE_UNKNOWN;
	int r = detect_shape(root, ".", NULL, &shape);

	if (r < 0)
		return r;
	if (shape != SHAPE_ROOT)
		return -ENOENT;
	r = step_list(root, need_marker, false, &l);
	return r < 0 ? r : step_latest(root, &l, need_marker, ret);
}

/*
 * Get the name of the latest step, allocated. Untouched: no steps are there, or the caller may not
 * list them.
 */
static int latest_of(struct io_dir *root, bool need_marker, char **ret)
{
	int r = find_latest(root, need_marker, ret);

	/* It is not there yet, or who may write to it may not read it. */
	if (r != -ENOENT && r != -EINVAL && r != -EACCES && r != -EPERM)
		return MIN(r, 0);
	err_clear();
	return 0;
}

int step_check_name(struct io_dir *root, struct span name, bool need_marker)
{
	auto_free char *latest = NULL;
	struct step_name to, own;
	struct err_note why;
	int r = step_name_check(name);

	if (r >= 0 || step_name_parse(name, &to) != 1 || to.fraction.n || to.power.n)
		return r;
	err_save(r, &why);
	r = latest_of(root, need_marker, &latest);
	if (r < 0)
		return r;
	if (latest && step_name_parse(span_str(latest), &own) == 1 &&
	    span_eq(own.prefix, to.prefix))
		return 0;
	return err_restore(&why);
}

/* Whether a list of steps may have both names: the same prefix, and the same width with zeros. */
static bool is_alike(const struct step_name *to, const struct step_name *own)
{
	if (!span_eq(to->prefix, own->prefix))
		return false;
	if (is_padded(own) && !is_padded(to))
		return to->digits.n >= own->digits.n;
	return !is_padded(to) || to->digits.n == own->digits.n;
}

/*
 * Whether something is between the prefix and the number, as in Orbax's formats ("step_7") and
 * those of other programs ("step-7"). "model1" may be a step of flax, and is the name of a model as
 * well.
 */
static bool is_set_off(const struct step_name *n)
{
	return !n->prefix.n || !isalpha(n->prefix.p[n->prefix.n - 1]);
}

int step_check_new(struct io_dir *root, struct span name, bool need_marker)
{
	auto_free char *latest = NULL;
	struct step_name to, own;
	int r;

	if (step_name_parse(name, &to) != 1 || to.fraction.n || !is_set_off(&to))
		return 0;
	r = latest_of(root, need_marker, &latest);
	if (r < 0 || !latest || step_name_parse(span_str(latest), &own) != 1 || own.fraction.n ||
	    is_alike(&to, &own) || (to.prefix.n && !is_set_off(&own)))
		return r;
	return fail(-EINVAL,
		    "'%.*s' would hide the steps of '%s', which have names like '%s': name it "
		    "'%.*s%0*llu'",
		    SPAN_ARG(name), root->path, latest, SPAN_ARG(own.prefix),
		    is_padded(&own) ? (int)own.digits.n : 1, (unsigned long long)to.number);
}

int step_find(struct io_dir *root, struct span name, bool need_marker, bool show_tmp,
	      struct stat *st)
{
	auto_free char *path = span_dup_str(name);
	auto_step_list l = { 0 };
	struct step_name n;
	int r = path ? find_alone(root, name, need_marker, show_tmp, st) :
		       fail(-ENOMEM, "cannot look up '%.*s'", SPAN_ARG(name));

	/*
	 * In a store, each look costs requests; without one, opening the step says what is wrong.
	 */
	if (r <= 0 || need_marker || !S_ISDIR(st->st_mode) || is_step_name(name, false) <= 0 ||
	    step_name_parse(name, &n) != 1 || !n.prefix.n || io_dir_in_store(root))
		return r;
	r = is_step_content(root, path);
	if (r < 0 && r != -ENOMEM) {
		err_clear();
		return 1;
	}
	if (r != 0)
		return r;
	/* It is empty, or another program has made it: the listing decides. */
	r = step_list(root, need_marker, show_tmp, &l);
	for (size_t i = 0; i < l.n && r == 0; i++)
		r = !strcmp(l.entry[i].name, path);
	return r;
}

void step_list_release(struct step_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->entry[i].name);
	free(l->entry);
	free(l->other);
	*l = (struct step_list){ 0 };
}
