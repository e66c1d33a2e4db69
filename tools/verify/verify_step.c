/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_step.c - checks roots and steps: their metadata, and that all items exist.
 */
#include <dirent.h>
#include <string.h>

#include "core/base/err.h"
#include "core/io/io_store.h"
#include "core/base/json.h"
#include "core/step/item_others.h"
#include "core/step/known_names.h"
#include "core/step/step.h"
#include "core/step/step_deletion.h"
#include "core/step/step_meta.h"
#include "core/step/children.h"
#include "core/step/step_name.h"
#include "tools/verify/verify.h"

#define MAX_NESTING 8 /* levels of composite items inside each other */

static int step_by_name(const void *a, const void *b)
{
	return strcmp(((const struct child *)a)->name, ((const struct child *)b)->name);
}

static int list_children(struct verify *v, const char *path, struct children *c)
{
	int r = children_list(v->ckpt->source, path, true, c);

	if (r < 0)
		return r;
	if (c->n)
		qsort(c->child, c->n, sizeof(*c->child), step_by_name);
	return r;
}

/* ---- items that are not trees ---- */

/*
 * Check the files of an item: those of a JSON item must be JSON; only its handler knows the format
 * of others.
 */
static int step_check_files(struct verify *v, const char *path, bool json)
{
	auto_children c = { 0 };
	int r = list_children(v, path, &c);
	uint64_t n_files = 0;

	for (size_t i = 0; i < c.n && r >= 0; i++) {
		auto_free char *file = verify_join(path, c.child[i].name);
		auto_buf text = { 0 };
		auto_json doc = { 0 };

		if (step_name_is_tmp(span_str(c.child[i].name))) {
			r = verify_draft(v, path, c.child[i].name);
			continue;
		}
		if (detect_is_hidden(span_str(c.child[i].name)))
			continue;
		n_files += json ? !c.child[i].is_dir : 1;
		if (!json || c.child[i].is_dir)
			continue;
		if (!file)
			return -ENOMEM;
		r = io_read_file(v->ckpt->source, file, LIMIT_STEP_FILE, &text);
		if (r >= 0)
			r = json_parse(buf_span(&text), "JSON item", &doc);
		if (r < 0)
			r = verify_failed(v, file, r);
	}
	if (r >= 0 && json && !n_files)
		verify_file(v, 2, path, "its handler is of JSON, and it has no file");
	v->opaque_items += !json;
	v->opaque_files += json ? 0 : n_files;
	return r;
}

/* ---- steps ---- */

/* Read the metadata: 1; 0: it does not exist, or an error was reported. */
static int step_read_meta(struct verify *v, const char *path, struct step_meta **ret)
{
	auto_free char *file = verify_join(path, "_CHECKPOINT_METADATA");
	auto_buf text = { 0 };
	auto_json doc = { 0 };
	int r = file ? io_read_file(v->ckpt->source, file, LIMIT_STEP_FILE, &text) : -ENOMEM;

	if (r == -ENOENT) {
		err_clear();
		return 0;
	}
	/* An interrupted process leaves an empty file, which Orbax treats like a missing one. */
	if (r == 0 && text.n == 0) {
		verify_file(v, 1, file, "the file is empty");
		return 0;
	}
	if (r == 0)
		r = json_parse(buf_span(&text), "'_CHECKPOINT_METADATA'", &doc);
	if (r == 0)
		r = step_meta_parse(buf_span(&text), "'_CHECKPOINT_METADATA'", ret);
	return r < 0 ? verify_failed(v, file, r) : 1;
}

static int check_deletion(struct verify *v, const char *path)
{
	auto_free char *file = verify_join(path, "_CHECKPOINT_DELETION");
	auto_of(step_deletion) struct step_deletion *d = NULL;
	auto_buf text = { 0 };
	int r = file ? io_read_file(v->ckpt->source, file, LIMIT_STEP_FILE, &text) : -ENOMEM;

	if (r >= 0)
		r = step_deletion_parse(buf_span(&text), "'_CHECKPOINT_DELETION'", &d);
	if (r < 0 && r != -ENOENT)
		return verify_failed(v, file, r);
	err_clear();
	return 0;
}

static void check_times(struct verify *v, const char *path, const struct step_meta *m)
{
	auto_free char *file = verify_join(path, "_CHECKPOINT_METADATA");

	if (m->has_init && m->has_commit && m->init_ns > 0 && m->commit_ns > 0 &&
	    m->commit_ns < m->init_ns)
		verify_file(v, 2, file, "committed at %lld, before it was begun at %lld",
			    (long long)m->commit_ns, (long long)m->init_ns);
}

int verify_own_metadata(struct verify *v, const char *path)
{
	auto_of(step_meta) struct step_meta *m = NULL;
	int r = step_read_meta(v, path, &m);

	if (m && v->level >= 2)
		check_times(v, path, m);
	return r < 0 ? r : check_deletion(v, path);
}

static int check_step(struct verify *v, const char *path, unsigned depth);

static int check_child(struct verify *v, const char *path, const char *name,
		       const struct step_meta *m, unsigned depth)
{
	auto_free char *below = verify_join(path, name);
	struct span handler;
	enum item_kind kind;
	int r = below ? detect_item(v->ckpt->source, below, &kind) : -ENOMEM;
	bool is_known = true, is_tree;
	struct err_note why;

	/* It may be there: none of its names is known. */
	if (r == -ENOENT && !io_dir_can_list(v->ckpt->source)) {
		err_save(r, &why);
		r = fail(-EOPNOTSUPP, "%s", why.text);
	}

	if (r >= 0 && kind == ITEM_STORED) {
		r = known_names_of_item(v->ckpt->source, below, m, span_str(name));
		is_known = r != 0;
	}
	if (!is_known)
		verify_failed(v, below, -EOPNOTSUPP);
	if (r < 0)
		return verify_failed(v, below, r);
	is_tree = m && step_meta_is_tree(m, span_str(name));
	if (kind == ITEM_PYTREE)
		return verify_item(v, below, is_tree);
	if (is_tree) {
		v->items++;
		verify_file(v, 2, below, "its handler is of a tree, and it has no file of one");
		return 0;
	}
	if (kind == ITEM_COMPOSITE && depth < MAX_NESTING)
		return check_step(v, below, depth + 1);
	v->items++;
	return step_check_files(v, below,
				m && step_meta_handler(m, span_str(name), &handler) == 1 &&
					handler.p &&
					memmem(handler.p, handler.n, "Json", strlen("Json")));
}

static int check_step(struct verify *v, const char *path, unsigned depth)
{
	auto_free char *file = verify_join(path, "_CHECKPOINT_METADATA");
	auto_of(step_meta) struct step_meta *m = NULL;
	auto_children c = { 0 };
	int r = step_read_meta(v, path, &m);

	if (r < 0)
		return r;
	r = list_children(v, path, &c);
	if (r < 0)
		return r;
	if (m && v->level >= 2)
		check_times(v, path, m);
	/* The items in the metadata must exist. */
	for (size_t i = 0; m && v->level >= 2 && m->kind == STEP_ITEMS_MAP && i < m->n_items; i++) {
		bool found = false;

		for (size_t k = 0; k < c.n; k++)
			found |= c.child[k].may_be_dir &&
				 span_eq(m->items[i].name, span_str(c.child[k].name));
		if (!found)
			verify_file(v, 2, file, "item '%.*s' is named, and is not there",
				    SPAN_ARG(m->items[i].name));
	}
	r = check_deletion(v, path);
	for (size_t i = 0; i < c.n && r >= 0; i++) {
		const char *name = c.child[i].name;

		if (step_name_is_tmp(span_str(name)))
			r = verify_draft(v, path, name);
		else if (c.child[i].may_be_dir && name[0] != '.')
			r = check_child(v, path, name, m, depth);
		else
			v->other_files += step_has_other(span_str(name),
							 c.child[i].may_be_dir ? DT_DIR : DT_REG);
	}
	return r;
}

int verify_step(struct verify *v, const char *path)
{
	int r;

	v->steps++;
	r = check_step(v, path, 0);
	/* As with items: continue with the next step. */
	return r < 0 ? verify_failed(v, path, r) : r;
}

/* ---- roots ---- */

static int check_root_metadata(struct verify *v)
{
	static const char *const files[] = { "metadata/_ROOT_METADATA", "metadata/metadata" };

	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		auto_of(root_meta) struct root_meta *m = NULL;
		auto_buf text = { 0 };
		int r = io_read_file(v->ckpt->source, files[i], LIMIT_STEP_FILE, &text);

		if (r >= 0)
			r = root_meta_parse(buf_span(&text), files[i], &m);
		if (r == -ENOENT || r == -ENOTDIR)
			err_clear();
		else if (r < 0)
			r = verify_failed(v, files[i], r);
		if (r == -ENOMEM || r == -EINTR)
			return r;
	}
	return 0;
}

static int verify_one(struct verify *v, const struct step_entry *e)
{
	enum shape shape = SHAPE_ITEM;
	int r = e->is_file ? 0 : detect_step(v->ckpt->source, e->name, &shape);

	if (r < 0)
		return verify_failed(v, e->name, r);
	if (shape == SHAPE_ITEM) {
		v->steps++;
		return verify_item(v, e->name, false);
	}
	if (shape == SHAPE_UNKNOWN)
		verify_file(v, 1, e->name, "the name of a step, and nothing of one in it");
	return verify_step(v, e->name);
}

static void step_say_others(struct verify *v, const struct step_list *l)
{
	auto_buf text = { 0 };

	if (!l->n || !l->n_others)
		return;
	if (buf_addf(&text,
		     "not checked: the steps are called like '%s'%s; verify takes its own name",
		     l->entry[l->n - 1].name,
		     l->n_others > 1 ? ", and there are others like it" : "") >= 0)
		verify_say(v, &(struct finding){ SEVERITY_WARNING, 2, NULL, l->other, false, 0, 0,
						 buf_str(&text) });
}

int verify_root(struct verify *v)
{
	bool marker = ckpt_needs_marker(v->ckpt);
	auto_step_list l = { 0 };
	auto_children c = { 0 };
	int r = list_children(v, ".", &c);

	for (size_t i = 0; i < c.n && r >= 0; i++)
		if (step_name_is_tmp(span_str(c.child[i].name)))
			r = verify_draft(v, "", c.child[i].name);
	if (r < 0)
		return r;
	r = check_root_metadata(v);
	if (r < 0)
		return r;
	r = step_list(v->ckpt->source, marker, false, &l);
	if (r < 0)
		return r;
	if (v->level >= 2)
		step_say_others(v, &l);
	for (size_t i = 0; i < l.n && r >= 0; i++)
		r = verify_one(v, &l.entry[i]);
	return r;
}
