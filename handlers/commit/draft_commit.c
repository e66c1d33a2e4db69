/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_commit.c - makes a struct commit of the names and contents of a draft, and does the work
 * before and after it.
 *
 * Invariants: until the rename of the commit, nothing is removed that the draft needs to be
 * committed again.
 */
#include "handlers/commit/draft_commit.h"

#include <dirent.h>
#include <stdio.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/step/step_meta.h"
#include "core/step/step.h"
#include "core/step/step_name.h"
#include "handlers/commit/draft_digests.h"
#include "handlers/commit/draft_items.h"
#include "handlers/commit/draft_verify.h"
#include "handlers/commit/on_commit.h"
#include "handlers/draft/draft_upload.h"
#include "handlers/plan/copy_hints.h"

/* time to wait for the release of a closed file, which may come after the rename */
#define CLOSE_PATIENCE_MS 10000

struct sealing {
	struct draft *d;
	struct sealing_item *item;
	struct commit_item *commit_item;
	size_t n;
	struct buf custom;
	struct commit *commit; /* the commit in progress */
};

static void sealing_release(struct sealing *s)
{
	for (size_t i = 0; i < s->n; i++)
		sealing_item_release(&s->item[i]);
	buf_release(&s->custom);
	free(s->item);
	free(s->commit_item);
}

/* ---- the whole draft ---- */

/* Plan an item, or the two items that it consists of. */
static int plan_item(struct sealing *s, struct draft_node *node)
{
	struct draft_node *part[2] = { draft_node_ref(node), NULL }, *inner[2];
	int r = draft_nested(node, inner);

	if (r > 0) {
		draft_node_unref(node);
		memcpy(part, inner, sizeof(part));
		if (s->d->env->collective)
			r = fail(-EOPNOTSUPP,
				 "the ranks of a job do not write items inside an item");
	}
	for (size_t i = 0; i < ARRAY_LEN(part) && part[i] && r >= 0; i++) {
		r = plan_new(part[i], true, &s->item[s->n].plan);
		s->n += r >= 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(part); i++)
		if (part[i])
			draft_node_unref(part[i]);
	return r < 0 ? err_at(r, "item '%s'", node->name) : 0;
}

/* Plan what lies beside the items, whose names it must not have. */
static int plan_beside(struct sealing *s)
{
	struct sealing_item *it = &s->item[s->n];
	int r = plan_new(s->d->root, true, &it->plan);

	if (r < 0)
		return r;
	s->n++;
	for (size_t i = 0; i < it->plan->n_others; i++)
		for (size_t k = 0; k + 1 < s->n; k++)
			if (!strcmp(it->plan->other[i]->name, s->item[k].plan->name))
				return fail(-EINVAL, "'%s' has the name of an item, which is '%s'",
					    it->plan->other[i]->name, s->item[k].plan->item->name);
	return 0;
}

static int plan_items(struct sealing *s)
{
	struct draft *d = s->d;
	struct draft_node **child = NULL;
	size_t n = 1, beside = 0;
	int r = d->is_item ? 0 : draft_children(d->root, &child, &n);

	if (r < 0)
		return r;
	s->item = calloc(2 * n + 1, sizeof(*s->item));
	s->commit_item = calloc(2 * n + 1, sizeof(*s->commit_item));
	if (!s->item || !s->commit_item)
		r = fail(-ENOMEM, "cannot commit %zu items", n);
	for (size_t i = 0; i < n; i++) {
		struct draft_node *node = child ? child[i] : d->root;

		/*
		 * The item is the draft itself, shared by ranks, and this rank has no file of it.
		 */
		if (!child && d->env->collective && !collective_is_primary(d->env->collective) &&
		    !node->n_children)
			continue;
		if (r >= 0 && child)
			r = plan_is_beside_items(node);
		if (r > 0)
			beside++;
		else if (r >= 0 && strcmp(node->name, "_CHECKPOINT_METADATA"))
			r = plan_item(s, node);
		if (child)
			draft_node_unref(node);
	}
	free(child);
	for (size_t i = 1; i < s->n && r >= 0; i++)
		for (size_t k = 0; k < i; k++)
			if (!strcmp(s->item[i].plan->name, s->item[k].plan->name))
				r = fail(-EINVAL, "'%s' and '%s' are the same item",
					 s->item[k].plan->item->name, s->item[i].plan->item->name);
	if (r >= 0 && beside)
		r = plan_beside(s);
	if (r >= 0 && s->n == 0 && !d->env->collective)
		r = fail(-EINVAL, "draft '%s' is empty", d->name);
	return r;
}

static int custom_metadata(struct sealing *s)
{
	auto_buf text = { 0 };
	auto_json doc = { 0 };
	int r = draft_get_xattr(s->d->root, "custom_metadata", &text);

	if (r == -ENODATA || s->d->is_item) {
		err_clear();
		return s->d->is_item && !s->d->is_tree ? 0 :
							 copy_hint_custom(s->d->root, &s->custom);
	}
	if (r >= 0)
		r = json_parse(buf_span(&text), "custom metadata", &doc);
	return r < 0 ? r : json_print(&s->custom, doc.root, JSON_PYTHON);
}

/* ---- the draft's directory ---- */

static bool is_store_dir(const struct sealing *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct draft_node *n = plan_owner(s->item[i].plan);

		if (n->item.dir && !strcmp(n->item.dir, name))
			return true;
	}
	return false;
}

struct leftovers {
	const struct sealing *s;
	struct buf names; /* NUL-terminated, one after another */
};

static int add_leftover(void *arg, const char *name, unsigned char type)
{
	struct leftovers *l = arg;

	if (!strcmp(name, DRAFT_LOCK_FILE) || is_store_dir(l->s, name))
		return 0;
	return buf_add(&l->names, name, strlen(name) + 1);
}

static int stage_store(struct sealing *s, struct draft_node *n)
{
	char temp[64];

	snprintf(temp, sizeof(temp), ".pytreefs-item-%u", s->d->n_stores++);
	return draft_move_store(s->d, &n->item, temp);
}

/* Remove what a failed commit or a removed item has left. */
static int clean(struct sealing *s)
{
	struct io_dir *dir = s->d->dir->dir;
	struct leftovers l = { .s = s };
	/*
	 * If the draft is itself an item with its arrays in the directory, sealing the item cleans
	 * it.
	 */
	bool is_store = s->d->is_item && s->d->root->item.store;
	int r = 0;

	/* Remove everything besides the arrays of a nested item. */
	for (size_t i = 0; i < s->n && r >= 0; i++) {
		struct draft_node *n = plan_owner(s->item[i].plan);

		if (n->item.dir && strchr(n->item.dir, '/'))
			r = stage_store(s, n);
	}
	if (r >= 0 && !is_store)
		r = io_list(dir, ".", add_leftover, &l);
	for (size_t at = 0; at < l.names.n && r >= 0; at += strlen((char *)l.names.p + at) + 1)
		r = io_remove_tree(dir, (char *)l.names.p + at);
	buf_release(&l.names);
	return r;
}

/*
 * Rename stores after their items. A store whose name another one needs is first renamed out of its
 * way.
 */
static int name_stores(struct sealing *s)
{
	int r = 0;

	for (size_t i = 0; i < s->n && r >= 0; i++) {
		struct draft_node *n = plan_owner(s->item[i].plan);

		if (n->item.dir && strcmp(n->item.dir, s->item[i].plan->name) &&
		    n->item.dir[0] != '.')
			r = stage_store(s, n);
	}
	for (size_t i = 0; i < s->n && r >= 0; i++) {
		struct draft_node *n = plan_owner(s->item[i].plan);

		if (n->item.dir && strcmp(n->item.dir, s->item[i].plan->name))
			r = draft_move_store(s->d, &n->item, s->item[i].plan->name);
	}
	return r;
}

/* ---- the commit ---- */

static int finish(void *arg)
{
	struct sealing *s = arg;
	int r = s->d->env->options->verify_commit ? draft_verify(s->d, s->item, s->n) : 0;

	return r < 0 ? r : draft_digests(s->d, s->item, s->n, s->commit);
}

static int check_step_name(const struct draft *d, struct span final)
{
	bool need_marker = ckpt_needs_marker(d->env->ckpt);
	int r = step_check_name(d->env->ckpt->source, final, need_marker);

	return r < 0 || d->is_item || d->replaces || d->env->ckpt->shape != SHAPE_ROOT ?
		       r :
		       step_check_new(d->env->ckpt->source, final, need_marker);
}

static int check_final(struct draft *d, struct span final)
{
	struct draft_env *env = d->env;
	auto_free char *name = span_dup_str(final);
	struct stat st;
	int r;

	if (!name)
		return fail(-ENOMEM, "cannot commit '%s'", d->name);
	if (d->any_name)
		r = 0;
	else if (!d->is_item || d->is_tree)
		r = check_step_name(d, final);
	else
		r = step_name_is_tmp(final) || span_ends(final, span_str(".tmp")) ||
				    name[0] == '.' ?
			    fail(-EINVAL, "'%s' is not a name of an item", name) :
			    draft_check_item_name(final);
	if (r < 0)
		return r == -EINVAL ? fail(-EPERM, "%s", err_text(r)) : r;
	if (env->options->atomicity == ATOMICITY_COMMIT_FILE || env->uploads)
		return strcmp(name, d->dir->final) ?
			       fail(-EPERM,
				    "draft '%s' is written in place and can only become '%s'",
				    d->name, d->dir->final) :
			       0;
	/* For a shared draft, the rank that renames it checks the name. */
	r = env->collective || d->replaces ? -ENOENT : io_stat(env->ckpt->source, name, &st);
	if (r >= 0)
		return fail(-EEXIST, "there is a '%s' already", name);
	if (r != -ENOENT)
		return r;
	err_clear();
	pthread_mutex_lock(&d->lock);
	free(d->dir->final);
	d->dir->final = take(name);
	pthread_mutex_unlock(&d->lock);
	return 0;
}

static int publish(void *arg, int64_t deadline)
{
	return draft_upload_run(arg, deadline);
}

/* Messages name the item; files beside the items are in none. */
static int of_item(const struct sealing_item *it, int r)
{
	return r < 0 && *it->plan->name ? err_at(r, "item '%s'", it->plan->name) : r;
}

static int run_commit(struct sealing *s, int64_t deadline)
{
	struct draft *d = s->d;
	const struct options *o = d->env->options;
	struct commit c = {
		.ckpt = d->env->ckpt,
		.draft = d->dir,
		.items = s->commit_item,
		.n_items = s->n,
		.direct = d->is_item,
		.custom = s->custom.n ? buf_str(&s->custom) : NULL,
		.dir_mode = (unsigned)o->mode,
		.atomicity = o->atomicity,
		.replaces = d->replaces,
		.deadline_ns = deadline,
		.finish = finish,
		.finish_arg = s,
	};
	int r = 0;

	if (d->env->uploads) {
		c.publish = publish;
		c.publish_arg = d;
		c.published_to = draft_uploads_url(d->env->uploads);
	}
	for (size_t i = 0; i < s->n && r >= 0; i++)
		r = of_item(&s->item[i], sealing_item_fill(&s->item[i]));
	for (size_t i = 0; i < s->n && r >= 0; i++)
		r = of_item(&s->item[i], sealing_item_finalize(&s->item[i]));
	if (r >= 0)
		r = clean(s);
	if (r >= 0 && !d->is_item)
		r = name_stores(s);
	for (size_t i = 0; i < s->n && r >= 0; i++) {
		const struct sealing_item *it = &s->item[i];

		s->commit_item[i] = (struct commit_item){
			.name = span_str(it->plan->name),
			.handler = plan_handler(it->plan),
			.store = plan_owner(it->plan)->item.store,
			.leaves = it->leaf,
			.n_leaves = it->n_leaves,
			.retained = it->retained,
			.n_retained = it->n_retained,
			.files = it->file,
			.n_files = it->n_files,
		};
	}
	s->commit = &c;
	return r < 0 ? r : commit_run(&c);
}

static int64_t deadline_of(const struct draft_env *env)
{
	uint64_t seconds = MIN(env->options->commit_timeout, (uint64_t)1 << 32);

	return seconds ? clock_ns() + (int64_t)seconds * SECOND_NS : 0;
}

/* ---- files that are still open ---- */

static int check_closed(struct draft_node *dir, unsigned *patience);

static int check_file_closed(struct draft_node *n, unsigned *patience)
{
	enum draft_open open;

	while ((open = draft_file_is_open(n->file)) == DRAFT_OPEN_CLOSING && *patience > 0) {
		const struct timespec tick = { .tv_nsec = 2000000 };

		nanosleep(&tick, NULL);
		*patience -= MIN(*patience, 2u);
	}
	return open == DRAFT_OPEN_CLOSED ? draft_file_check_lost(n->file) :
					   fail(-EBUSY, "'%s' is open for writing", n->name);
}

static int check_closed(struct draft_node *dir, unsigned *patience)
{
	struct draft_node **child;
	size_t n;
	int r = draft_children(dir, &child, &n);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		if (r >= 0) {
			r = child[i]->is_dir ? check_closed(child[i], patience) :
					       check_file_closed(child[i], patience);
			if (r < 0 && child[i]->is_dir)
				err_at(r, "'%s'", child[i]->name);
		}
		draft_node_unref(child[i]);
	}
	free(child);
	return r;
}

static int begin(struct draft *d)
{
	int r = 0;

	pthread_mutex_lock(&d->lock);
	if (d->life == DRAFT_COMMITTING)
		r = fail(-EBUSY, "draft '%s' is being committed already", d->name);
	else if (d->life == DRAFT_GONE)
		r = -ENOENT;
	else
		d->life = DRAFT_COMMITTING;
	pthread_mutex_unlock(&d->lock);
	return r;
}

/*
 * Errors in the contents of the draft are reported as ECANCELED. mv(1) would print EINVAL as
 * "cannot move to a subdirectory of itself", which is wrong here; it prints ECANCELED as "Operation
 * canceled".
 */
static int not_committed(struct draft *d, int r)
{
	pthread_mutex_lock(&d->lock);
	d->life = DRAFT_OPEN;
	pthread_mutex_unlock(&d->lock);
	if (r == -EINVAL)
		r = fail(-ECANCELED, "%s", err_text(r));
	return err_at(r, "draft '%s' is not committed", d->name);
}

/*
 * Call `act` for files whose chunks the commit moves; readers of other files go on reading the
 * chunks in the step. The chunks of parts are renumbered or encoded again for the whole array,
 * arrays in the legacy file have no chunks, ranks collect theirs in directories, and uploaded files
 * are removed from this machine.
 */
static void each_that_moves(const struct sealing *s, void (*act)(struct draft_file *f))
{
	for (size_t i = 0; i < s->n; i++) {
		const struct plan *p = s->item[i].plan;

		for (size_t k = 0; p && k < p->n_leaves; k++) {
			struct plan_leaf *l = &p->leaf[k];

			for (size_t part = 0; part < l->n_parts; part++)
				act(l->part[part]->file);
			if (!l->n_parts && l->desc.type->in_boxes &&
			    (s->d->env->uploads || (p->collective && !p->opts.ocdbt) ||
			     plan_leaf_aggregates(l) > 0))
				act(l->source->file);
		}
	}
	err_clear();
}

/*
 * A copy of a step that is one tree is one, too. Chunks that were stored for its first level, as if
 * these were items, are moved when the tree is sealed. A draft that was one stays one.
 */
static int find_tree(struct draft *d)
{
	int r = d->is_item || d->any_name ? 0 : plan_is_step_tree(d->root);

	if (r <= 0)
		return r;
	if (d->env->collective)
		return fail(-EINVAL,
			    "it is a copy of a step that is one tree, which the ranks of a job do "
			    "not write: put the tree into a directory of the draft");
	pthread_mutex_lock(&d->lock);
	d->is_item = d->is_tree = true;
	pthread_mutex_unlock(&d->lock);
	return 0;
}

int draft_commit(struct draft *d, struct span final)
{
	struct sealing s = { .d = d };
	int64_t deadline = deadline_of(d->env);
	unsigned patience = CLOSE_PATIENCE_MS;
	struct err_note why;
	int r = begin(d);

	if (r < 0)
		return r;
	trace(TRACE_STEP, "draft '%s' is to become '%.*s'", d->name, SPAN_ARG(final));
	r = d->dir->shared ? 0 : draft_dir_check(d->dir);
	if (r >= 0)
		r = check_closed(d->root, &patience);
	if (r >= 0)
		r = find_tree(d);
	if (r >= 0)
		r = check_final(d, final);
	if (r >= 0)
		r = draft_seal_priority(d->root, d->env->options->priority);
	if (r >= 0)
		r = plan_items(&s);
	if (r >= 0) {
		draft_report_rules(d, s.item, s.n);
		each_that_moves(&s, draft_file_keep);
	}
	if (r >= 0)
		r = custom_metadata(&s);
	if (d->env->collective)
		r = d->env->commit(d, s.item, s.n, d->dir->final,
				   s.custom.n ? buf_span(&s.custom) : span_of(NULL, 0), r,
				   deadline);
	else if (r >= 0)
		r = run_commit(&s, deadline);
	if (r < 0)
		err_save(r, &why);
	each_that_moves(&s, r < 0 ? draft_file_stays : draft_file_moved);
	sealing_release(&s);
	if (r < 0) {
		err_restore(&why);
		return not_committed(d, r);
	}
	log_info("draft '%s' became '%s'", d->name, d->dir->final);
	if (d->env->uploads)
		draft_upload_end(d);
	draft_end(d);
	/* In a job, the primary runs it. */
	if (!d->env->collective || collective_is_primary(d->env->collective))
		on_commit_run(d->env, d->dir->final);
	return 0;
}
