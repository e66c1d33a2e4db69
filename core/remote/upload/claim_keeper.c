/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claim_keeper.c - puts a claim again and again, each time in place of the one before.
 */
#include "core/remote/upload/claim_keeper.h"

#include <pthread.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/remote/upload/claim.h"

struct claim_keeper {
	struct io_store *store;
	struct span claim;
	int64_t period_ns;
	pthread_t thread;
	pthread_mutex_t lock; /* held across the requests of a renewal; protects what follows */
	pthread_cond_t changed;
	unsigned number;
	const char *lines;
	bool ends; /* set by the owner, which then joins the thread */
};

static int taken_away(struct io_store *store, const char *path)
{
	return fail(-EEXIST,
		    "'%s' was taken away from its writer: '%s' is not the one that was put",
		    store->url, path);
}

/* Fail if what is there is not the claim with any number. */
static int claim_keeper_find(struct io_store *store, const char *path, struct span claim,
			     char ret_tag[STORE_TAG_MAX])
{
	auto_buf there = { 0 };
	int r = store_get(store, path, CLAIM_BYTES, &there, ret_tag);

	if (r < 0 && r != -ENOENT && r != -EFBIG)
		return r;
	return r >= 0 && span_starts(buf_span(&there), claim) ? 0 : taken_away(store, path);
}

int claim_check(struct io_store *store, struct span claim)
{
	char tag[STORE_TAG_MAX];

	return claim_keeper_find(store, CLAIM_FILE, claim, tag);
}

/* Replace an object that has the tag. A weak tag is never equal to another one. */
static int replace(struct io_store *store, const char *path, struct span text, const char *tag)
{
	return *tag && strncmp(tag, "W/", 2) != 0 ?
		       store_put(store, path, text, tag, NULL) :
		       fail(-EOPNOTSUPP,
			    "'%s/%s' cannot be replaced: the server gives it no strong ETag",
			    store->url, path);
}

int claim_renew(struct io_store *store, const char *path, struct span claim, unsigned number,
		const char *lines)
{
	char tag[STORE_TAG_MAX];
	auto_buf text = { 0 };
	int r = claim_keeper_find(store, path, claim, tag);

	/* S3's tags are hashes of the bytes: without the number the tag would stay the same. */
	if (r >= 0)
		r = buf_addf(&text, "%.*srenewed=%u\n%s", SPAN_ARG(claim), number, lines);
	if (r >= 0)
		r = replace(store, path, buf_span(&text), tag);
	if (r == -EEXIST || r == -ENOENT)
		return taken_away(store, path);
	if (r < 0)
		trace(TRACE_IO, "a claim was not renewed: %s", err_text(r));
	return r;
}

static int renew(struct claim_keeper *k)
{
	return claim_renew(k->store, CLAIM_FILE, k->claim, ++k->number, k->lines);
}

int claim_keeper_renew(struct claim_keeper *k, const char *lines)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&k->lock);

	k->lines = lines;
	return renew(k);
}

static void *keep(void *arg)
{
	struct claim_keeper *k = arg;
	auto_unlock pthread_mutex_t *held = lock_hold(&k->lock);
	int r = 0;

	while (r != -EEXIST) {
		const struct timespec due = clock_timespec(clock_ns() + k->period_ns);

		for (r = 0; !k->ends && r == 0;)
			r = pthread_cond_timedwait(&k->changed, &k->lock, &due);
		if (k->ends)
			break;
		r = renew(k);
		if (r == -EEXIST)
			log_warn("%s; it cannot be committed", err_text(r));
		err_clear();
	}
	return NULL;
}

int claim_keeper_new(struct io_store *store, struct span claim, unsigned renew_ms,
		     struct claim_keeper **ret)
{
	struct claim_keeper *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return fail(-ENOMEM, "cannot write '%s'", store->url);
	k->store = store;
	k->claim = claim;
	k->lines = "";
	k->period_ns = (int64_t)(renew_ms ? renew_ms : CLAIM_RENEW_MS) * 1000000;
	pthread_mutex_init(&k->lock, NULL);
	clock_cond_init(&k->changed);
	r = thread_start(&k->thread, "claim", keep, k);
	if (r < 0) {
		pthread_cond_destroy(&k->changed);
		pthread_mutex_destroy(&k->lock);
		free(k);
		return fail(r, "cannot start a thread: %s", strerror(-r));
	}
	*ret = k;
	return 0;
}

void claim_keeper_stop(struct claim_keeper *k)
{
	if (!k || k->ends)
		return;
	pthread_mutex_lock(&k->lock);
	k->ends = true;
	pthread_cond_signal(&k->changed);
	pthread_mutex_unlock(&k->lock);
	pthread_join(k->thread, NULL);
}

void claim_keeper_free(struct claim_keeper *k)
{
	if (!k)
		return;
	claim_keeper_stop(k);
	pthread_cond_destroy(&k->changed);
	pthread_mutex_destroy(&k->lock);
	free(k);
}

int claim_take_over(struct io_store *store, const char *path, const char *tag, struct buf *ret)
{
	int r = claim_make(ret);

	return r < 0 ? r : replace(store, path, buf_span(ret), tag);
}
