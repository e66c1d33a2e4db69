/* SPDX-License-Identifier: Apache-2.0 */
/* draft.c - begins, finds and ends drafts of a mount, and makes the stores for their arrays. */
#include "handlers/draft/draft.h"

#include <stdio.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/remote/upload/file_sender.h"
#include "core/step/step.h"
#include "core/step/step_name.h"
#include "handlers/draft/commit_driver.h"
#include "handlers/draft/draft_array.h"

struct draft *draft_ref(struct draft *d)
{
	atomic_fetch_add(&d->refs, 1);
	return d;
}

void draft_unref(struct draft *d)
{
	if (!d || atomic_fetch_sub(&d->refs, 1) != 1)
		return;
	draft_nodes_free(d->root);
	draft_dir_free(d->dir);
	file_sender_unref(d->sender);
	for (struct draft_text *t = d->texts, *next; t; t = next) {
		next = t->next;
		free(t);
	}
	pthread_mutex_destroy(&d->lock);
	free(d->name);
	free(d->rules_from);
	free(d);
}

/* ---- beginning ---- */

void draft_env_follow_memory(const struct draft_env *env)
{
	uint64_t read = env->ckpt->opts.read_budget, write = env->ckpt->opts.write_budget;

	options_auto_size(env->options, "read_budget", &read);
	options_auto_size(env->options, "write_budget", &write);
	ckpt_share_memory(env->ckpt, read, write);
}

int draft_name_on_disk(const struct draft *d, const char *final, struct buf *ret)
{
	int r = step_name_on_disk(span_str(final), ret);

	if (r < 0 || !buf_str(ret))
		return fail(r < 0 ? r : -ENOMEM, "cannot begin draft '%s'", d->name);
	return 0;
}

static int draft_new(struct draft_env *env, struct span name, struct span final, bool is_item,
		     bool any_name, struct draft **ret)
{
	auto_of(draft) struct draft *d = calloc(1, sizeof(*d));
	auto_free char *to = span_dup_str(final);
	int r;

	if (!d)
		return fail(-ENOMEM, "cannot begin draft '%.*s'", SPAN_ARG(name));
	draft_env_follow_memory(env);
	pthread_mutex_init(&d->lock, NULL);
	atomic_init(&d->refs, 1);
	d->env = env;
	d->is_item = is_item;
	d->any_name = any_name;
	d->name = span_dup_str(name);
	if (!d->name || !to)
		return fail(-ENOMEM, "cannot begin draft '%.*s'", SPAN_ARG(name));
	r = draft_node_new(d, name, true, &d->root);
	if (r < 0)
		return r;
	r = env->driver->begin(d, to, io_dir_mode(env->options->mode));
	if (r < 0)
		return r;
	log_info("draft '%s' begins", d->name);
	pthread_mutex_lock(&env->lock);
	d->next = env->list;
	env->list = draft_ref(d);
	pthread_mutex_unlock(&env->lock);
	*ret = take(d);
	return 0;
}

/* In a mount of a step a draft is one item, "state.tmp"; in others it is a step, "101.tmp". */
int draft_begin(struct draft_env *env, struct span name, struct draft **ret)
{
	bool is_item = env->ckpt->shape == SHAPE_STEP;
	struct span final;
	int r;

	if (is_item) {
		final = name.n && name.p[0] == '.' ? name : step_name_final(name);
		if (final.n == name.n && span_ends(name, span_str(".tmp")))
			final.n -= strlen(".tmp");
		if (final.n == name.n || final.n == 0)
			return fail(-EINVAL,
				    "'%.*s' is not a name of a draft: it must end in '.tmp'",
				    SPAN_ARG(name));
		r = draft_check_item_name(final);
	} else {
		r = step_name_draft(name, &final);
		if (r < 0 && final.n)
			r = step_check_name(env->ckpt->source, final, ckpt_needs_marker(env->ckpt));
		if (r >= 0 && env->driver->check_new)
			r = env->driver->check_new(env, final);
	}
	return r < 0 ? r : draft_new(env, name, final, is_item, false, ret);
}

int draft_begin_as(struct draft_env *env, struct span final, bool is_item, struct draft **ret)
{
	return draft_new(env, final, final, is_item, true, ret);
}

struct draft *draft_find(struct draft_env *env, struct span name)
{
	struct draft *d;
	auto_unlock pthread_mutex_t *held = lock_hold(&env->lock);

	for (d = env->list; d && !span_eq(span_str(d->name), name); d = d->next)
		;
	if (d)
		draft_ref(d);
	return d;
}

unsigned draft_count(struct draft_env *env)
{
	unsigned n = 0;
	auto_unlock pthread_mutex_t *held = lock_hold(&env->lock);

	for (const struct draft *d = env->list; d; d = d->next)
		n++;
	return n;
}

int draft_each(struct draft_env *env, int (*each)(void *arg, struct draft *d), void *arg)
{
	auto_free struct draft **all = NULL;
	size_t n = 0;
	int r = 0;

	pthread_mutex_lock(&env->lock);
	for (const struct draft *d = env->list; d; d = d->next)
		n++;
	all = calloc(n + 1, sizeof(struct draft *));
	n = 0;
	for (struct draft *d = env->list; d && all; d = d->next)
		all[n++] = draft_ref(d);
	pthread_mutex_unlock(&env->lock);
	if (!all)
		return fail(-ENOMEM, "cannot list the drafts");
	for (size_t i = 0; i < n; i++) {
		r = r < 0 ? r : each(arg, all[i]);
		draft_unref(all[i]);
	}
	return r;
}

/* ---- ending ---- */

void draft_end(struct draft *d, bool aborted)
{
	bool was_live, was_listed = false;

	pthread_mutex_lock(&d->lock);
	was_live = d->life != DRAFT_GONE;
	d->life = DRAFT_GONE;
	pthread_mutex_unlock(&d->lock);
	if (was_live && d->env->driver->ended)
		d->env->driver->ended(d, aborted);
	pthread_mutex_lock(&d->env->lock);
	for (struct draft **at = &d->env->list; *at; at = &(*at)->next)
		if (*at == d) {
			*at = d->next;
			d->next = NULL;
			was_listed = true;
			break;
		}
	pthread_mutex_unlock(&d->env->lock);
	if (was_listed)
		draft_unref(d);
}

int draft_access(struct draft *d, struct access *ret)
{
	int64_t now = clock_ns();
	struct access a;
	bool fresh;
	int r;

	pthread_mutex_lock(&d->lock);
	fresh = d->access_at && now - d->access_at <= ACCESS_FRESH_NS;
	a = d->access;
	pthread_mutex_unlock(&d->lock);
	if (!fresh) {
		r = access_of_dir(d->dir->dir, &a);
		if (r < 0)
			return r;
		pthread_mutex_lock(&d->lock);
		d->access = a;
		d->access_at = now;
		pthread_mutex_unlock(&d->lock);
	}
	*ret = a;
	return 0;
}

int draft_check_life(const struct draft_node *n, bool writes)
{
	struct draft *d = n->draft;
	auto_unlock pthread_mutex_t *held = lock_hold(&d->lock);

	if (d->life == DRAFT_GONE)
		return fail(-ESTALE, "'%s' belongs to a draft that has ended", n->name);
	if (writes && d->life == DRAFT_COMMITTING)
		return fail(-EBUSY, "draft '%s' is being committed", d->name);
	return 0;
}

int draft_abort(struct draft *d, bool force)
{
	int r = 0;

	pthread_mutex_lock(&d->lock);
	if (d->life == DRAFT_COMMITTING)
		r = fail(-EBUSY, "draft '%s' is being committed", d->name);
	else if (d->life == DRAFT_GONE)
		r = -ENOENT;
	else if (d->root->n_children && !force)
		r = -ENOTEMPTY;
	else
		d->life = DRAFT_COMMITTING;
	pthread_mutex_unlock(&d->lock);
	if (r < 0)
		return r;
	r = d->env->driver->remove(d);
	if (r < 0) {
		pthread_mutex_lock(&d->lock);
		d->life = DRAFT_OPEN;
		pthread_mutex_unlock(&d->lock);
		return r;
	}
	log_info("draft '%s' is given up", d->name);
	draft_end(d, true);
	return 0;
}

void drafts_release(struct draft_env *env)
{
	for (struct draft *d; (d = env->list);) {
		env->driver->leave(d);
		draft_end(d, false);
	}
}

/* ---- stores ---- */

/*
 * Make the store of an item. It has a directory of its own with a temporary name, since the item
 * may be renamed until the commit, or is at the top of the draft. Called with the lock held.
 */
static int make_store(struct draft_node *item, const struct save_opts *o, struct draft_store *ret)
{
	struct draft *d = item->draft;
	const struct commit_driver *driver = d->env->driver;
	struct io_dir *top = d->dir->dir;
	struct item_store_opts opts = { .dir_mode = io_dir_mode(d->env->options->mode),
					.ocdbt = o->ocdbt,
					.target_size = o->target_data_file_size,
					.first_leaf = ret->first_leaf };
	auto_of(io_dir) struct io_dir *dir = NULL;
	auto_free char *name = NULL;
	int r = driver->store_name(d, &name);

	if (r < 0)
		return r;
	r = name ? io_dirop(top, IO_MKDIR, name, NULL, opts.dir_mode) : 0;
	if (r < 0)
		return r;
	r = io_dir_sub(top, name ? name : ".", &dir);
	if (r < 0)
		return r;
	r = driver->watch ? driver->watch(item, ret == &item->replicas, &opts) : 0;
	if (r < 0)
		return r;
	r = item_store_new(dir, &opts, &ret->store);
	if (r < 0 && opts.unwatch)
		opts.unwatch(opts.watcher.arg);
	if (r < 0)
		return r;
	/* The store owns both from here on. */
	take(dir);
	ret->dir = take(name);
	return 0;
}

int draft_leaf_kv(struct draft_node *n, bool replicas, struct kv **ret,
		  const struct item_store **ret_store)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&n->draft->lock);
	struct draft_node *item = draft_item_of(n);
	struct save_opts o = { 0 };
	struct draft_store *to;
	int r;

	if (!item || (!n->parent && n != n->draft->root))
		return fail(-EINVAL, "'%s' is in no item", n->name);
	r = draft_save_opts(item, span_of(NULL, 0), &o);
	to = replicas && o.ocdbt ? &item->replicas : &item->item;
	/* A file at the top of the draft is an item, and has its own arrays. */
	if (r >= 0 && !to->store)
		r = make_store(item, &o, to);
	if (r < 0)
		return r;
	r = item_store_leaf(to->store, ret);
	if (r >= 0)
		*ret_store = to->store;
	return r;
}

bool draft_has_store(struct draft_node *n, const struct item_store *store)
{
	const struct draft_node *item;
	auto_unlock pthread_mutex_t *held = lock_hold(&n->draft->lock);

	item = draft_item_of(n);
	return item && store && (item->item.store == store || item->replicas.store == store);
}

bool draft_is_replicas(struct draft_node *n, const struct item_store *store)
{
	const struct draft_node *item;
	auto_unlock pthread_mutex_t *held = lock_hold(&n->draft->lock);

	item = draft_item_of(n);
	return item && store && item->replicas.store == store;
}

void draft_drop_store(struct draft_node *item)
{
	struct draft_store s;

	pthread_mutex_lock(&item->draft->lock);
	s = item->item;
	item->item = (struct draft_store){ .first_leaf = s.store ? item_store_next_leaf(s.store) :
								   s.first_leaf };
	pthread_mutex_unlock(&item->draft->lock);
	item_store_free(s.store);
	free(s.dir);
}

int draft_move_store(struct draft *d, struct draft_store *store, const char *to)
{
	auto_free char *copy = strdup(to);
	int r;

	if (!copy)
		return fail(-ENOMEM, "cannot move the arrays in '%s'", store->dir);
	/* The item may be inside another one. */
	r = io_make_parents(d->dir->dir, to, io_dir_mode(d->env->options->mode));
	if (r < 0)
		return r;
	r = strcmp(store->dir, to) ? io_dirop(d->dir->dir, IO_RENAME_NEW, store->dir, to, 0) : 0;
	if (r < 0)
		return r;
	free(store->dir);
	store->dir = take(copy);
	return 0;
}
