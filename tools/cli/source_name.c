/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source_name.c - names in a checkpoint as users type them: the number of a step, a leaf without
 * the extension of its file; the error for what is not there, with the nearest name that is; and
 * sources without a mark, for which a directory above may have been meant.
 */
#include <dirent.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/base/nearest.h"
#include "core/step/step.h"
#include "core/step/step_name.h"
#include "handlers/namespace/node_tree.h"
#include "tools/cli/cmd.h"

#define SUGGEST 4096 /* largest number of names in a directory that are compared */
#define LACKING 34   /* largest number of names in one below which a name is looked for */

/* Returns the deepest existing directory along a path; *ret_n is the length of the path to it. */
static struct node *deepest(struct node *top, const char *path, size_t *ret_n)
{
	struct node *at = node_ref(top);

	*ret_n = 0;
	for (size_t end = strcspn(path, "/"); path[end]; end += 1 + strcspn(path + end + 1, "/")) {
		auto_free char *part = span_dup_str(span_of(path, end));
		struct node *next;

		if (!part || node_walk(top, part, &next) < 0)
			break;
		node_unref(at, 1);
		at = next;
		*ret_n = end + 1;
	}
	return at;
}

/* The part of a listed name that is compared: without its extension if the user typed none. */
static struct span comparable(const char *name, bool has_extension)
{
	const char *dot = has_extension ? NULL : strrchr(name, '.');

	return dot && dot > name ? span_of(name, (size_t)(dot - name)) : span_str(name);
}

/* The name of the one file in dir that has an extension besides, or "". */
static int leaf_meant(struct node *dir, const char *typed, struct buf *ret)
{
	const char *found = NULL;
	auto_listing l = { 0 };
	int r = strchr(typed, '.') ? 0 : node_list(dir, &l);

	for (size_t i = 2; i < l.n && r >= 0; i++) {
		const char *name = listing_name(&l, i);

		if (l.entry[i].type == DT_DIR || !strcmp(name, typed) ||
		    !span_eq(comparable(name, false), span_str(typed)))
			continue;
		if (found)
			return 0;
		found = name;
	}
	return r < 0 || !found ? r : buf_add_str(ret, found);
}

/* Append the name in dir that was meant by one that is not there, if that is clear. */
static int name_meant(struct node *dir, const char *typed, bool is_last, struct buf *ret)
{
	const struct ckpt *ckpt = dir->ns->ckpt;

	if (node_is_root(dir)) {
		auto_free char *step = NULL;
		int r = step_meant(ckpt->source, span_str(typed), ckpt_needs_marker(ckpt), &step);

		if (r < 0 || !strcmp(step, typed))
			return r == -ENOENT ? 0 : r;
		return buf_add_str(ret, step);
	}
	if (!is_last)
		return 0;
	if (!strpbrk(typed, "[@"))
		return leaf_meant(dir, typed, ret);
	return span_ends(span_str(typed), span_str(".npy")) ? 0 : buf_addf(ret, "%s.npy", typed);
}

int source_walk(struct node *root, char **path, struct node **ret)
{
	int r;

	while ((r = node_walk(root, *path, ret)) == -ENOENT && !*err_where(r)) {
		size_t at, n;
		auto_node *dir = deepest(root, *path, &at);
		auto_buf meant = { 0 };
		auto_free char *typed = NULL;
		char *whole;

		n = strcspn(*path + at, "/");
		typed = span_dup_str(span_of(*path + at, n));
		r = typed ? name_meant(dir, typed, !(*path)[at + n], &meant) : -ENOMEM;
		err_clear();
		if (r < 0)
			return r;
		if (!meant.n)
			return -ENOENT;
		whole = str_fmt("%.*s%.*s%s", (int)at, *path, SPAN_ARG(buf_span(&meant)),
				*path + at + n);
		if (!whole)
			return fail(-ENOMEM, "cannot open '%s'", *path);
		free(*path);
		*path = whole;
	}
	return r;
}

/* Append the name in dir that is nearest to the typed one; of a view, that of its array. */
static void nearest_in(struct node *dir, const char *typed, struct buf *ret)
{
	size_t stem = strcspn(typed, "[@");
	auto_free char *array = typed[stem] ? span_dup_str(span_of(typed, stem)) : NULL;
	const char *wanted = array && stem ? array : typed, *best = NULL;
	auto_listing l = { 0 };
	struct nearest n;

	if (node_list(dir, &l) < 0 || l.n > SUGGEST)
		return;
	nearest_begin(&n, wanted);
	if (node_is_root(dir) && l.n > 2) {
		nearest_try(&n, STEP_LATEST);
		best = n.best;
	}
	for (size_t i = 2; i < l.n; i++) {
		/* There are no views of directories. */
		auto_free char *name =
			wanted == array && l.entry[i].type == DT_DIR ?
				NULL :
				span_dup_str(comparable(listing_name(&l, i),
							strchr(wanted, '.') != NULL));

		n.best = NULL;
		if (name)
			nearest_try(&n, name);
		if (n.best)
			best = listing_name(&l, i);
	}
	if (best && wanted == array)
		buf_addf(ret, "%.*s%s", SPAN_ARG(comparable(best, false)), typed + stem);
	else if (best)
		buf_add_str(ret, best);
}

/* Append where the path is, if it lacks the name of an item, of a directory in it, or of a step. */
static void deeper_in(struct node *dir, const char *typed, struct buf *ret)
{
	auto_listing l = { 0 };

	if (node_list(dir, &l) < 0 || (l.n > LACKING && !node_is_root(dir)))
		return;
	for (size_t i = 2; i < l.n && !ret->n; i++) {
		const char *name = node_is_root(dir) ? STEP_LATEST : listing_name(&l, i);
		auto_free char *path = l.entry[i].type != DT_DIR ? NULL :
								   str_fmt("%s/%s", name, typed);
		auto_node *found = NULL;

		if (path && source_walk(dir, &path, &found) >= 0)
			buf_add_str(ret, path);
		if (node_is_root(dir))
			return;
	}
}

bool source_stores(struct node *root, const char *path)
{
	size_t n;
	auto_node *at = deepest(root, path, &n);

	err_clear();
	return at->ops == &node_dir_ops;
}

/* Append which step `latest` is, if the path leads through it. */
static void add_latest(struct node *dir, const char *path, struct buf *ret)
{
	const struct ckpt *ckpt = dir->ns->ckpt;
	auto_free char *step = NULL;

	if (!node_is_root(dir) ||
	    !span_eq(span_of(path, strcspn(path, "/")), span_str(STEP_LATEST)))
		return;
	if (step_meant(ckpt->source, span_str(STEP_LATEST), ckpt_needs_marker(ckpt), &step) < 0)
		buf_add_str(ret, ": it has no steps yet");
	else
		buf_addf(ret, " (" STEP_LATEST " is '%s')", step);
}

int fail_absent_name(struct node *dir, const char *source, const char *path, bool deep)
{
	auto_buf near = { 0 }, latest = { 0 };
	size_t n;
	auto_node *at = deepest(dir, path, &n);
	auto_free char *typed = span_dup_str(span_of(path + n, strcspn(path + n, "/")));

	if (typed && *typed)
		nearest_in(at, typed, &near);
	if (typed && *typed && !near.n && deep)
		deeper_in(at, path + n, &near);
	add_latest(dir, path, &latest);
	err_clear();
	if (!near.n)
		return fail(-ENOENT, "'%s' has no '%s'%.*s", source, path,
			    SPAN_ARG(buf_span(&latest)));
	return fail(-ENOENT, "'%s' has no '%s'%.*s; did you mean '%.*s%.*s'?", source, path,
		    SPAN_ARG(buf_span(&latest)), (int)n, path, SPAN_ARG(buf_span(&near)));
}

/* ---- directories of something else on a path ---- */

bool source_is_directory(const char *path, size_t n)
{
	auto_free char *dir = span_dup_str(span_of(path, n));
	struct stat st;

	return dir && stat(dir, &st) == 0 && S_ISDIR(st.st_mode);
}

bool source_leads_elsewhere(const struct source *s)
{
	size_t n = strcspn(s->inner, "/");
	auto_free char *dir = str_fmt("%s/%.*s", s->source, (int)n, s->inner),
		       *name = span_dup_str(span_of(s->inner, n));
	auto_node *node = NULL;
	struct stat st;
	bool is_there = name && node_walk(s->ns->root, name, &node) >= 0;

	err_clear();
	return s->inner[n] && !is_there && dir && stat(dir, &st) == 0 && S_ISDIR(st.st_mode);
}

/* ---- parts of a source where a whole one is wanted ---- */

static bool source_name_is_whole(const struct node *n)
{
	return !n->parent || n->ops == &node_step_ops ||
	       (n->ops == &node_dir_ops && container_of(n, struct node_dir, node)->is_item);
}

/* The kind of a part of a source, for a message; NULL: it is a step, an item, or all of it.
 */
static const char *part_kind(struct node *n)
{
	struct stat st;
	int r;

	if (source_name_is_whole(n))
		return NULL;
	if (n->ops == &node_leaf_ops)
		return "a leaf";
	if (n->ops == &node_dir_ops)
		return "a directory of leaves";
	r = node_stat(n, &st);
	return r >= 0 && S_ISDIR(st.st_mode) ? "a directory" : "a file";
}

int fail_part(const struct source *s, const char *path, const char *hint)
{
	const char *kind = part_kind(s->node);
	auto_free char *inner = strdup(s->inner);
	size_t n = inner ? strlen(inner) : 0;

	if (!kind || !inner)
		return kind ? -ENOMEM : 0;
	for (const struct node *at = s->node; !source_name_is_whole(at); at = at->parent) {
		while (n > 0 && inner[n - 1] != '/')
			n--;
		inner[n ? --n : 0] = '\0';
	}
	return fail(-EINVAL, "'%s' is %s: name the checkpoint that it is in, '%s%s%s'%s", path,
		    kind, s->source, *inner ? "/" : "", inner, hint);
}

int source_fail_part(struct cmd_args *a, const char *path, int r)
{
	auto_source s = { 0 };
	struct err_note why;
	int found;

	if (r != -ENOENT && r != -ENOTDIR && r != -EINVAL)
		return r;
	err_save(r, &why);
	found = source_open(a, path, &s);
	if (found >= 0)
		found = fail_part(&s, path, "");
	/* A mount has said the same, and what a bucket needs. */
	if (found == -ENOENT && !strncmp(why.text, err_text(found), strlen(err_text(found))))
		return err_restore(&why);
	/* ENOTDIR: it is a file, of which the other error says more. */
	return found == -ENOENT || (found == -EINVAL && (s.node || r == -ENOTDIR)) ?
		       found :
		       err_restore(&why);
}

/* ---- what a source is only by what lies in it ---- */

bool source_is_unmarked_item(const struct source *s)
{
	static const char *const marks[] = { "_METADATA", "manifest.ocdbt", "checkpoint",
					     ".zgroup",   ".zarray",        "zarr.json" };
	struct err_note note;
	struct stat st;
	bool found = false;

	if (s->ns->ckpt->shape != SHAPE_ITEM)
		return false;
	err_peek(&note);
	for (size_t i = 0; i < ARRAY_LEN(marks) && !found; i++)
		found = io_stat(s->ns->ckpt->source, marks[i], &st) >= 0;
	err_restore(&note);
	return !found;
}

bool source_is_unmarked_step(const struct source *s)
{
	enum shape shape = SHAPE_UNKNOWN;
	struct err_note note;
	int r;

	if (s->ns->ckpt->shape != SHAPE_STEP)
		return false;
	err_peek(&note);
	r = detect_marked(s->ns->ckpt->source, ".", &shape);
	err_restore(&note);
	return r >= 0 && shape == SHAPE_UNKNOWN;
}
