/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.c - the client's thread, which schedules requests and retries.
 *
 * The first request starts the thread; http_quiesce() or http_free() ends it. Only this thread uses
 * libcurl's handles (curl_multi_wakeup() apart); others hand it requests by the submitted list.
 *
 * Each retry costs a token, and successes slowly refill the tokens, so that a server that fails
 * every request gets little more load than one that works.
 */
#include "core/remote/transport/http.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <pthread.h>

#include "core/base/clock.h"
#include "core/base/digest.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/remote/transport/http_impl.h"
#include "core/remote/transport/http_outage.h"

#define MS_NS 1000000
#define PAUSE_MAX_MS 10000
#define IDLE_MS 1000
#define TOKENS 64
#define TOKENS_PER_SUCCESS 0.1

struct http {
	struct http_opts opts;
	pthread_mutex_t lock; /* protects what follows, and `done` of requests */
	pthread_cond_t done;
	struct http_request *submitted, **tail;
	bool running, stop;
	pthread_t thread;
	pid_t process; /* the process that started the thread, which does not survive a fork */
	CURLM *multi;
	struct http_stats stats;
	/* Used by the thread alone. */
	struct http_request *pending; /* sorted by not_before */
	struct transfer *idle, *busy;
	unsigned active; /* length of the busy list */
	double tokens;
	struct outages outages;
	int64_t answered; /* when the last successful answer had come */
	uint64_t random;
};

/* ---- the thread ---- */

/* Sorted by not_before; requests of equal times stay in the order in which they came. */
static void add_pending(struct http *h, struct http_request *q)
{
	struct http_request **at = &h->pending;

	while (*at && (*at)->run.not_before <= q->run.not_before)
		at = &(*at)->run.next;
	q->run.next = *at;
	*at = q;
}

/* A look-up, or a document, has no range: that it is answered says nothing of ranges. */
static struct outage_of outage_of(const struct http_request *q)
{
	return (struct outage_of){ hash64(span_str(q->name ? q->name : q->url), q->method != NULL),
				   q->n_pieces ? q->off : UINT64_MAX - 1,
				   q->n_pieces ? q->off + q->n : UINT64_MAX };
}

static void http_publish(struct http *h, struct http_request *q)
{
	if (q->result >= 0)
		outage_end(&h->outages, outage_of(q));
	/* One with a method is its caller's to repeat. */
	else if (q->is_transient && q->tries && !q->method)
		outage_note(&h->outages, outage_of(q), q->run.began, clock_ns());
	trace(TRACE_IO, "http %s %s %" PRIu64 ":%" PRIu64 ": %s%s (%u tries, %lld us)",
	      q->method  ? q->method :
	      q->is_head ? "HEAD" :
			   "GET",
	      q->name ? q->name : q->url, q->off, q->n, q->result < 0 ? "failed: " : "ok", q->why,
	      q->tries, (long long)(clock_ns() - q->run.submitted) / 1000);
	pthread_mutex_lock(&h->lock);
	h->stats.requests++;
	h->stats.date = MAX(h->stats.date, q->answer.date);
	h->stats.retries += q->tries ? q->tries - 1 : 0;
	h->stats.bytes += q->received + q->body.n + (q->result < 0 ? 0 : q->send.n);
	free(take(q->run.moved));
	q->run.done = true;
	pthread_cond_broadcast(&h->done);
	pthread_mutex_unlock(&h->lock);
}

static void try_again(struct http *h, struct http_request *q, int64_t after_ms)
{
	int64_t now = clock_ns(), left = q->run.began + (int64_t)h->opts.request_ms * MS_NS - now;
	int64_t ms = MIN((int64_t)h->opts.first_pause_ms << MIN(q->tries - 1, 16u), PAUSE_MAX_MS);
	int64_t pause = after_ms * MS_NS;
	size_t n = strlen(q->why);

	if (after_ms < 0) {
		/* Half of it is random, so that clients that failed together do not retry together.
		 */
		h->random = h->random * 6364136223846793005u + 1442695040888963407u;
		pause = (ms / 2 + (int64_t)((h->random >> 33) % (uint64_t)(ms / 2 + 1))) * MS_NS;
	}
	if (q->tries >= h->opts.tries || pause >= left || h->tokens < 1) {
		snprintf(q->why + n, sizeof(q->why) - n, ", after %u %s%s", q->tries,
			 noun(q->tries, "try", "tries"),
			 h->tokens < 1             ? " (too many requests fail for more)" :
			 q->tries >= h->opts.tries ? "" :
						     " (the deadline leaves no time for more)");
		http_publish(h, q);
		return;
	}
	trace(TRACE_IO, "http %s: %s; again in %lld ms", q->name ? q->name : q->url, q->why,
	      (long long)(pause / MS_NS));
	h->tokens -= 1;
	free(take(q->run.moved));
	q->run.hops = 0;
	q->run.not_before = now + pause;
	add_pending(h, q);
}

static void end_try(struct http *h, struct transfer *t, CURLcode code)
{
	struct http_request *q = t->req;
	int64_t after_ms;
	enum try_end end = transfer_end(t, code, &after_ms);
	struct transfer **at;

	if (q->result >= 0) {
		h->answered = clock_ns();
		h->tokens = MIN(h->tokens + TOKENS_PER_SUCCESS, TOKENS);
	}
	/* Move a transfer that has ended to the idle list. */
	at = &h->busy;
	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	curl_multi_remove_handle(h->multi, t->easy);
	t->req = NULL;
	t->next = h->idle;
	h->idle = t;
	h->active--;
	if (end == TRY_MOVED) {
		q->tries--;
		add_pending(h, q);
		return;
	}
	q->is_transient = end == TRY_AGAIN;
	if (end == TRY_AGAIN && !q->is_single_try)
		try_again(h, q, after_ms);
	else
		http_publish(h, q);
}

static int begin_transfer(struct http *h, struct http_request *q, int64_t now)
{
	int64_t left = q->run.began + (int64_t)h->opts.request_ms * MS_NS - now;
	struct transfer *t = h->idle;
	int r = t ? 0 : transfer_new(&h->opts, &t);

	if (r < 0)
		return r;
	if (t == h->idle)
		h->idle = t->next;
	r = transfer_begin(t, q, left);
	if (r >= 0 && curl_multi_add_handle(h->multi, t->easy) != CURLM_OK)
		r = fail(-ENOMEM, "cannot begin a request");
	if (r < 0) {
		t->req = NULL;
		t->next = h->idle;
		h->idle = t;
		return r;
	}
	t->next = h->busy;
	h->busy = t;
	h->active++;
	return 0;
}

/*
 * The deadline of a request begins when the request does, unless others for its object were given
 * up, or all connections that it has waited for are silent.
 */
static int begin_deadline(struct http *h, struct http_request *q, int64_t now)
{
	int64_t limit = (int64_t)h->opts.request_ms * MS_NS, received = h->answered;

	for (const struct transfer *t = h->busy; t; t = t->next)
		received = MAX(received, t->first_byte ? t->last_byte : 0);
	q->run.began = MIN(outage_since(&h->outages, outage_of(q), now),
			   received >= q->run.submitted ? now : q->run.submitted);
	if (now - q->run.began < limit)
		return 0;
	q->is_transient = true;
	return fail(-EIO, "no answer for %lld s", (long long)((now - q->run.began) / SECOND_NS));
}

static void begin_some(struct http *h)
{
	int64_t now = clock_ns();

	while (h->pending && h->active < h->opts.connections && h->pending->run.not_before <= now) {
		struct http_request *q = h->pending;
		int r;

		h->pending = q->run.next;
		r = q->run.began ? 0 : begin_deadline(h, q, now);
		if (r >= 0) {
			q->tries++;
			r = begin_transfer(h, q, now);
		}
		if (r < 0) {
			http_refuse(q, r);
			http_publish(h, q);
		}
	}
}

/* Returns false when the thread is to end and no request is left. */
static bool take_submitted(struct http *h)
{
	struct http_request *q;
	bool goes_on;

	pthread_mutex_lock(&h->lock);
	q = h->submitted;
	h->submitted = NULL;
	h->tail = &h->submitted;
	goes_on = !h->stop || q || h->pending || h->active;
	pthread_mutex_unlock(&h->lock);
	while (q) {
		struct http_request *next = q->run.next;

		add_pending(h, q);
		q = next;
	}
	return goes_on;
}

static void *http_run(void *arg)
{
	struct http *h = arg;

	while (take_submitted(h)) {
		int64_t now, due;
		CURLMsg *m;
		int n;

		begin_some(h);
		curl_multi_perform(h->multi, &n);
		while ((m = curl_multi_info_read(h->multi, &n))) {
			struct transfer *t = NULL;
			CURLcode code = m->data.result;

			if (m->msg != CURLMSG_DONE)
				continue;
			curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t);
			end_try(h, t, code);
		}
		now = clock_ns();
		due = now + (int64_t)IDLE_MS * MS_NS;
		if (h->pending && h->active < h->opts.connections)
			due = MIN(due, h->pending->run.not_before);
		curl_multi_poll(h->multi, NULL, 0, (int)MAX((due - now) / MS_NS + 1, 0), NULL);
	}
	return NULL;
}

/* ---- the callers ---- */

static void global_init(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

int http_new(const struct http_opts *opts, struct http **ret)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct http *h = calloc(1, sizeof(*h));

	if (!h)
		return fail(-ENOMEM, "cannot make a client for http");
	pthread_once(&once, global_init);
	h->opts = *opts;
	h->tail = &h->submitted;
	h->tokens = TOKENS;
	h->random = (uint64_t)clock_real_ns() ^ (uint64_t)(uintptr_t)h;
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->done, NULL);
	*ret = h;
	return 0;
}

/* Called with the lock held. After a fork the thread and handles are left to the parent. */
static int http_start(struct http *h)
{
	int r;

	if (h->running && h->process == getpid())
		return 0;
	h->multi = curl_multi_init();
	h->idle = h->busy = NULL;
	h->pending = NULL;
	h->active = 0;
	h->stop = false;
	if (!h->multi)
		return fail(-ENOMEM, "cannot make a client for http");
	curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, (long)h->opts.connections);
	curl_multi_setopt(h->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)h->opts.connections);
	r = thread_start(&h->thread, "http", http_run, h);
	if (r < 0) {
		curl_multi_cleanup(h->multi);
		return fail(r, "cannot start the thread of requests over http");
	}
	h->process = getpid();
	h->running = true;
	return 0;
}

unsigned http_connections(const struct http *h)
{
	return h->opts.connections;
}

int http_submit(struct http *h, struct http_request *q)
{
	auto_unlock pthread_mutex_t *held = NULL;
	int r;

	q->result = 0;
	q->why[0] = '\0';
	q->answer = (struct http_answer){ .mtime = -1 };
	q->is_transient = q->has_expired = false;
	q->tries = 0;
	q->run = (struct http_run){ .submitted = clock_ns() };
	q->received = 0;
	held = lock_hold(&h->lock);
	r = http_start(h);
	if (r < 0) {
		http_refuse(q, r);
		q->run.done = true;
		return r;
	}
	*h->tail = q;
	h->tail = &q->run.next;
	curl_multi_wakeup(h->multi);
	return r;
}

int http_wait(struct http *h, struct http_request *q)
{
	const char *name = q->name ? q->name : q->url;

	pthread_mutex_lock(&h->lock);
	while (!q->run.done)
		pthread_cond_wait(&h->done, &h->lock);
	pthread_mutex_unlock(&h->lock);
	if (q->result >= 0)
		return 0;
	if (q->n_pieces)
		return fail(q->result,
			    "cannot read '%s' at offset %" PRIu64 ", %" PRIu64 " bytes: %s", name,
			    q->off, q->n, q->why);
	return fail(q->result, "cannot %s '%s': %s", q->verb ? q->verb : "read", name, q->why);
}

void http_quiesce(struct http *h)
{
	pthread_mutex_lock(&h->lock);
	if (!h->running || h->process != getpid()) {
		pthread_mutex_unlock(&h->lock);
		return;
	}
	h->stop = true;
	curl_multi_wakeup(h->multi);
	pthread_mutex_unlock(&h->lock);
	pthread_join(h->thread, NULL);
	h->running = false;
	while (h->idle) {
		struct transfer *t = h->idle;

		h->idle = t->next;
		transfer_free(t);
	}
	curl_multi_cleanup(h->multi);
}

void http_free(struct http *h)
{
	if (!h)
		return;
	http_quiesce(h);
	pthread_cond_destroy(&h->done);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

void http_stats(struct http *h, struct http_stats *ret)
{
	pthread_mutex_lock(&h->lock);
	*ret = h->stats;
	pthread_mutex_unlock(&h->lock);
}
