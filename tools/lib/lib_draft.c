/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_draft.c - writes a checkpoint: begin, commit, abort.
 */
#include "tools/lib/lib_draft.h"

#include <pthread.h>

#include "core/base/blocks.h"
#include "core/base/clock.h"
#include "core/base/thread.h"
#include "handlers/draft/draft_upload.h"

#define REPORT_NS (20 * 1000 * 1000)

static void draft_free(struct pytreefs_draft *d)
{
	if (!d)
		return;
	/*
	 * The child of a fork does not have the parent's threads, so the handle is only forgotten.
	 */
	if (d->pid == getpid()) {
		atomic_step_release(&d->step);
		options_release(&d->args.options);
		block_trim();
	}
	free(d);
}
DEFINE_AUTO(lib_draft, struct pytreefs_draft, draft_free);

/* ---- calls that take long ---- */

struct call {
	int (*fn)(void *arg);
	void *arg;
	pthread_mutex_t lock; /* protects the following members */
	pthread_cond_t changed;
	bool ended;
	int result;
	struct err_note note;
};

static void *call_thread(void *arg)
{
	struct call *c = arg;
	int r = c->fn(c->arg);

	pthread_mutex_lock(&c->lock);
	c->result = r;
	if (r < 0)
		err_save(r, &c->note);
	c->ended = true;
	pthread_cond_signal(&c->changed);
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* Report progress until the call has ended; ret_stopped is the error of the caller's function. */
static void report_until_ended(struct pytreefs_draft *d, const struct lib_progress *progress,
			       struct call *c, struct err_note *ret_stopped)
{
	pthread_mutex_lock(&c->lock);
	while (!c->ended) {
		struct timespec at = clock_timespec(clock_ns() + REPORT_NS);
		int r;

		pthread_cond_timedwait(&c->changed, &c->lock, &at);
		if (c->ended || ret_stopped->code)
			continue;
		pthread_mutex_unlock(&c->lock);
		r = lib_progress((void *)progress, atomic_load(&d->done));
		if (r < 0) {
			err_save(r, ret_stopped);
			atomic_store(&d->stop, true);
		}
		pthread_mutex_lock(&c->lock);
	}
	pthread_mutex_unlock(&c->lock);
}

int lib_draft_call(struct pytreefs_draft *d, const struct lib_progress *progress,
		   int (*fn)(void *arg), void *arg)
{
	struct call c = { .fn = fn, .arg = arg, .lock = PTHREAD_MUTEX_INITIALIZER };
	struct err_note stopped = { 0 };
	pthread_t thread;
	int r = lib_progress((void *)progress, atomic_load(&d->done));

	if (r < 0)
		return r;
	atomic_store(&d->stop, false);
	clock_cond_init(&c.changed);
	if (thread_start(&thread, "draft", call_thread, &c) >= 0) {
		report_until_ended(d, progress, &c, &stopped);
		pthread_join(thread, NULL);
	} else {
		/* Without a thread there is only no progress. */
		err_clear();
		call_thread(&c);
	}
	pthread_cond_destroy(&c.changed);
	if (c.result < 0)
		return err_restore(stopped.code ? &stopped : &c.note);
	return 0;
}

static int check_stop(void *arg)
{
	struct pytreefs_draft *d = arg;

	return atomic_load(&d->stop) ? fail(-ECANCELED, "canceled") : 0;
}

/* ---- a draft ---- */

static int begin(const char *path, const char *options, unsigned flags, struct pytreefs_draft **ret)
{
	static const char *const shown[] = { "transforms", "restore_dtype" };
	auto_of(lib_draft) struct pytreefs_draft *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return fail(-ENOMEM, "cannot write '%s'", path);
	d->pid = getpid();
	d->is_item = flags & PYTREEFS_DRAFT_ITEM;
	r = options_init(&d->args.options);
	if (r >= 0)
		r = lib_options(&d->args.options, options);
	for (size_t i = 0; i < ARRAY_LEN(shown) && r >= 0; i++)
		if (options_given_here(&d->args.options, shown[i]))
			r = fail(-EINVAL, "option '%s' is for checkpoints that are read", shown[i]);
	if (r >= 0)
		r = atomic_step_begin(&d->args, NULL, path,
				      d->is_item ? LAYOUT_DIRECT : LAYOUT_ITEMS,
				      flags & PYTREEFS_DRAFT_REPLACE, &d->step);
	if (r < 0)
		return r;
	d->step.ns->ckpt->write_env.check = check_stop;
	d->step.ns->ckpt->write_env.check_arg = d;
	*ret = take(d);
	return 0;
}

int pytreefs_draft_begin(const char *path, const char *options, unsigned flags,
			 struct pytreefs_draft **ret)
{
	lib_init();
	lib_begin_pid(getpid(), "draft", path);
	return (int)lib_end(begin(path, options, flags, ret));
}

static int set_attribute(struct pytreefs_draft *d, const struct pytreefs_key *key, size_t n_keys,
			 const char *attribute, const char *text)
{
	auto_free char *name = str_fmt("user.pytree.%s", attribute);
	struct span value = span_str(text);
	auto_buf where = { 0 };
	struct draft_node *n = NULL;
	int r = name ? lib_draft_find(d, key, n_keys, &n) :
		       fail(-ENOMEM, "cannot set attribute '%s'", attribute);

	if (r >= 0)
		r = draft_set_xattr(n, name, &value, 0);
	draft_node_unref(n);
	if (r >= 0)
		return 0;
	lib_key_text(key, n_keys, &where);
	return err_at(r, "'%.*s'", SPAN_ARG(buf_span(&where)));
}

int pytreefs_draft_attribute(struct pytreefs_draft *d, const struct pytreefs_key *key,
			     size_t n_keys, const char *attribute, const char *text)
{
	int r = lib_begin_pid(d->pid, "draft", d->step.name);

	return (int)lib_end(r < 0 ? r : set_attribute(d, key, n_keys, attribute, text));
}

static int commit_step(void *arg)
{
	struct pytreefs_draft *d = arg;

	return atomic_step_commit(&d->step);
}

int pytreefs_draft_commit(struct pytreefs_draft *d, const struct pytreefs_progress *progress)
{
	struct lib_progress p = { .p = progress, .total = d->bytes };
	int r = lib_begin_pid(d->pid, "draft", d->step.name);

	atomic_store(&d->done, d->bytes);
	if (r >= 0)
		r = lib_draft_call(d, &p, commit_step, d);
	lib_end(r);
	if (r >= 0)
		draft_free(d);
	return r;
}

const char *pytreefs_draft_remark(const struct pytreefs_draft *d)
{
	return draft_uploads_remark(d->step.ns->drafts.uploads);
}

void pytreefs_draft_abort(struct pytreefs_draft *d)
{
	draft_free(d);
}
