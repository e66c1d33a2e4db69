/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers.c - queues of messages, requests and their answers, and the end of a job.
 *
 * Implementations, such as peers_mpi.c, transport the messages.
 *
 * Invariant: only service threads, which wait for requests, wait without a deadline.
 */
#include "core/job/peers.h"

#include "core/base/clock.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/base/wire.h"

#define PING_EVERY SECOND_NS
#define LOOK_EVERY (SECOND_NS / 5) /* interval of checks whether a rank's process has ended */
/* time of silence after which a rank is given up */
#define GIVE_UP_AFTER (PEERS_GIVE_UP_SECONDS * SECOND_NS)
#define GIVE_UP_AT_END (15 * SECOND_NS) /* the same while only the end of the job is waited for */

void peers_msg_free(struct peers_msg *m)
{
	if (!m)
		return;
	buf_release(&m->body);
	free(m);
}

void peers_head_pack(const struct peers_head *head, uint8_t ret[PEERS_HEAD_BYTES])
{
	set_u32le(ret, head->kind);
	set_u32le(ret + 4, (uint32_t)head->code);
	set_u64le(ret + 8, head->id);
}

void peers_head_parse(const uint8_t bytes[PEERS_HEAD_BYTES], struct peers_head *ret)
{
	*ret = (struct peers_head){ get_u32le(bytes), (int32_t)get_u32le(bytes + 4),
				    get_u64le(bytes + 8) };
}

int peers_init(struct peers *p, const struct peers_ops *ops, int rank, int size)
{
	p->last_message = calloc((size_t)size, sizeof(*p->last_message));
	if (!p->last_message)
		return fail(-ENOMEM, "cannot join a job of %d", size);
	p->ops = ops;
	p->rank = rank;
	p->size = size;
	p->box_end = &p->box;
	p->request_end = &p->request;
	pthread_mutex_init(&p->lock, NULL);
	clock_cond_init(&p->changed);
	return 0;
}

static void peers_free_all(struct peers_msg *m)
{
	for (struct peers_msg *next; m; m = next) {
		next = m->next;
		peers_msg_free(m);
	}
}

void peers_release(struct peers *p)
{
	peers_free_all(p->box);
	peers_free_all(p->request);
	free(p->last_message);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
}

/* ---- sending and receiving ---- */

int peers_send(struct peers *p, int to, const struct peers_head *head, struct span body)
{
	auto_buf copy = { 0 };

	if (to < 0 || to >= p->size)
		return fail(-EINVAL, "rank %d does not exist in a job of %d", to, p->size);
	if (to != p->rank)
		return p->ops->send(p, to, head, body);
	if (buf_add_span(&copy, body) < 0)
		return -ENOMEM;
	peers_deliver(p, to, head, &copy);
	return 0;
}

static void push(struct peers_msg ***end, struct peers_msg *m)
{
	**end = m;
	*end = &m->next;
}

void peers_deliver(struct peers *p, int from, const struct peers_head *head, struct buf *body)
{
	struct peers_msg *m =
		head->kind == PEERS_PING || head->kind == PEERS_PONG ? NULL : calloc(1, sizeof(*m));
	bool refused = false;

	pthread_mutex_lock(&p->lock);
	p->last_message[from] = clock_ns();
	if (m) {
		*m = (struct peers_msg){ .from = from, .head = *head, .body = *body };
		*body = (struct buf){ 0 };
		/*
		 * When the service threads are being stopped, they serve the requests that arrived
		 * before, and later ones would never be answered.
		 */
		refused = head->kind >= PEERS_REQUESTS && (!p->serve || p->stopping);
		if (!refused && head->kind >= PEERS_REQUESTS)
			push(&p->request_end, m);
		else if (!refused)
			push(&p->box_end, m);
	}
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	if (head->kind == PEERS_PING)
		peers_send(p, from, &(struct peers_head){ .kind = PEERS_PONG }, span_of(NULL, 0));
	else if (!m && head->kind != PEERS_PONG)
		log_error("a message from rank %d is lost: not enough memory", from);
	if (refused) {
		peers_reply(p, m, fail(-ENOTCONN, "rank %d does not serve", p->rank),
			    span_of(NULL, 0));
		peers_msg_free(m);
	}
	buf_release(body);
}

/* Called with the lock held. */
static struct peers_msg *peers_find(struct peers *p, enum peers_kind kind, uint64_t id, int from)
{
	for (struct peers_msg **at = &p->box; *at; at = &(*at)->next) {
		struct peers_msg *m = *at;

		if (m->head.kind != kind || m->head.id != id || (from >= 0 && m->from != from))
			continue;
		*at = m->next;
		if (!m->next)
			p->box_end = at;
		m->next = NULL;
		return m;
	}
	return NULL;
}

int peers_recv(struct peers *p, enum peers_kind kind, uint64_t id, int from, int64_t deadline,
	       struct peers_msg **ret)
{
	const struct timespec until = clock_timespec(deadline);
	struct peers_msg *m;
	bool in_time = true, interrupted;

	pthread_mutex_lock(&p->lock);
	while (!(m = peers_find(p, kind, id, from)) && in_time && !p->interrupted)
		in_time = pthread_cond_timedwait(&p->changed, &p->lock, &until) != ETIMEDOUT;
	interrupted = p->interrupted;
	pthread_mutex_unlock(&p->lock);
	if (!m && interrupted)
		return fail(-ECANCELED, "the mount of rank %d is being ended", p->rank);
	if (!m)
		return from >= 0 ? fail(-ETIMEDOUT, "rank %d does not answer", from) :
				   fail(-ETIMEDOUT, "no rank answers");
	*ret = m;
	return 0;
}

int peers_answer(struct peers_msg *m, struct buf *ret)
{
	if (m->head.code < 0)
		return fail(m->head.code, "%.*s", SPAN_ARG(buf_span(&m->body)));
	if (ret) {
		buf_release(ret);
		*ret = m->body;
		m->body = (struct buf){ 0 };
	}
	return m->head.code;
}

void peers_drop(struct peers *p, enum peers_kind kind, uint64_t first, uint64_t last)
{
	struct peers_msg *dropped = NULL;

	pthread_mutex_lock(&p->lock);
	p->box_end = &p->box;
	for (struct peers_msg **at = &p->box, *m; (m = *at);) {
		if (m->head.kind == kind && m->head.id >= first && m->head.id <= last) {
			*at = m->next;
			m->next = dropped;
			dropped = m;
		} else {
			at = &m->next;
			p->box_end = at;
		}
	}
	pthread_mutex_unlock(&p->lock);
	peers_free_all(dropped);
}

void peers_interrupt(struct peers *p)
{
	pthread_mutex_lock(&p->lock);
	p->interrupted = true;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

int peers_call(struct peers *p, int to, enum peers_kind kind, struct span body, int64_t deadline,
	       struct buf *ret)
{
	auto_of(peers_msg) struct peers_msg *m = NULL;
	struct peers_head head = { .kind = kind };
	int r;

	pthread_mutex_lock(&p->lock);
	head.id = ++p->next_id;
	pthread_mutex_unlock(&p->lock);
	r = peers_send(p, to, &head, body);
	if (r < 0)
		return r;
	/*
	 * An answer that arrives too late stays in the box, which is harmless, since ids are not
	 * reused.
	 */
	r = peers_recv(p, PEERS_REPLY, head.id, to, deadline, &m);
	if (r < 0)
		return r;
	r = peers_answer(m, ret);
	return MIN(r, 0);
}

int peers_reply(struct peers *p, const struct peers_msg *m, int r, struct span body)
{
	const struct peers_head head = { .kind = PEERS_REPLY, .code = MIN(r, 0), .id = m->head.id };

	return peers_send(p, m->from, &head, r < 0 ? span_str(err_text(r)) : body);
}

/* ---- serving ---- */

static void *serve_requests(void *arg)
{
	struct peers *p = arg;

	pthread_mutex_lock(&p->lock);
	for (;;) {
		struct peers_msg *m = p->request;

		if (m) {
			p->request = m->next;
			if (!m->next)
				p->request_end = &p->request;
			m->next = NULL;
			pthread_mutex_unlock(&p->lock);
			p->serve(p->serve_arg, m);
			peers_msg_free(m);
			pthread_mutex_lock(&p->lock);
		} else if (p->stopping) {
			break;
		} else {
			pthread_cond_wait(&p->changed, &p->lock);
		}
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

int peers_serve(struct peers *p, unsigned threads, peers_serve_fn *serve, void *arg)
{
	p->thread = calloc(threads, sizeof(*p->thread));
	if (!p->thread)
		return fail(-ENOMEM, "cannot serve the other ranks");
	pthread_mutex_lock(&p->lock);
	p->stopping = false;
	p->serve = serve;
	p->serve_arg = arg;
	pthread_mutex_unlock(&p->lock);
	for (; p->n_threads < threads; p->n_threads++) {
		int r = thread_start(&p->thread[p->n_threads], "peers", serve_requests, p);

		if (r < 0) {
			peers_serve_end(p);
			return fail(r, "cannot make a thread for the other ranks");
		}
	}
	return 0;
}

void peers_serve_end(struct peers *p)
{
	if (!p->thread)
		return;
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; i < p->n_threads; i++)
		pthread_join(p->thread[i], NULL);
	pthread_mutex_lock(&p->lock);
	p->serve = NULL;
	pthread_mutex_unlock(&p->lock);
	free(take(p->thread));
	p->n_threads = 0;
}

/* ---- the end ---- */

static int64_t last_message(struct peers *p, int rank)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&p->lock);

	return p->last_message[rank];
}

void peers_ping(struct peers *p, int rank)
{
	peers_send(p, rank, &(struct peers_head){ .kind = PEERS_PING }, span_of(NULL, 0));
}

int64_t peers_silent_for(struct peers *p, int rank, int64_t look_ns, struct peers_silence *s)
{
	int64_t last = last_message(p, rank);

	s->ns = last == s->last ? s->ns + look_ns : 0;
	s->last = last;
	return s->ns;
}

static bool peers_is_gone(struct peers *p, int rank)
{
	return p->ops->is_gone && p->ops->is_gone(p, rank);
}

static int peers_wait_for(struct peers *p, enum peers_kind kind, uint64_t id, int from,
			  int64_t patience, struct peers_msg **ret)
{
	struct peers_silence silence = { 0 };
	int64_t pinged = clock_ns();

	for (;;) {
		/*
		 * Checked first, so all messages that it sent before its end have arrived when it
		 * is given up.
		 */
		bool gone = peers_is_gone(p, from);
		int r = peers_recv(p, kind, id, from, clock_ns() + LOOK_EVERY, ret);

		if (r == -ETIMEDOUT && gone)
			return fail(-ETIMEDOUT, "the process of rank %d has ended", from);
		if (r != -ETIMEDOUT || peers_silent_for(p, from, LOOK_EVERY, &silence) > patience)
			return r;
		err_clear();
		if (clock_ns() - pinged < PING_EVERY)
			continue;
		pinged = clock_ns();
		peers_ping(p, from);
	}
}

int peers_wait(struct peers *p, enum peers_kind kind, uint64_t id, int from, struct peers_msg **ret)
{
	return peers_wait_for(p, kind, id, from, GIVE_UP_AFTER, ret);
}

/*
 * Rank 0 waits for all ranks, except those that have ended or are silent for long; returns false if
 * there was one.
 */
static bool wait_for_all(struct peers *p)
{
	auto_free bool *gone = calloc((size_t)p->size, sizeof(*gone));
	auto_free struct peers_silence *silence = calloc((size_t)p->size, sizeof(*silence));
	int64_t pinged = clock_ns();
	int left = p->size - 1;
	bool clean = gone && silence, ping;

	while (gone && silence && left > 0) {
		auto_of(peers_msg) struct peers_msg *m = NULL;

		if (peers_recv(p, PEERS_BYE, 0, -1, clock_ns() + LOOK_EVERY, &m) >= 0) {
			left -= !gone[m->from];
			gone[m->from] = true;
			continue;
		}
		ping = clock_ns() - pinged >= PING_EVERY;
		if (ping)
			pinged = clock_ns();
		for (int i = 1; i < p->size; i++) {
			bool ended = !gone[i] && peers_is_gone(p, i);

			if (gone[i])
				continue;
			if (ended ||
			    peers_silent_for(p, i, LOOK_EVERY, &silence[i]) > GIVE_UP_AT_END) {
				log_warn("rank %d %s: the job ends without it", i,
					 ended ? "has ended" : "does not answer");
				gone[i] = true;
				clean = false;
				left--;
			} else if (ping) {
				peers_ping(p, i);
			}
		}
	}
	err_clear();
	return clean;
}

void peers_close(struct peers *p)
{
	auto_of(peers_msg) struct peers_msg *m = NULL;
	bool clean = true;
	int r;

	if (!p)
		return;
	peers_serve_end(p);
	/* peers_close() waits for the other ranks even after peers_interrupt(). */
	pthread_mutex_lock(&p->lock);
	p->interrupted = false;
	pthread_mutex_unlock(&p->lock);
	if (p->size > 1 && p->rank == 0) {
		clean = wait_for_all(p);
		for (int i = 1; i < p->size; i++)
			peers_send(p, i,
				   &(struct peers_head){ .kind = PEERS_END,
							 .code = clean ? 0 : -EPIPE },
				   span_of(NULL, 0));
	} else if (p->size > 1) {
		peers_send(p, 0, &(struct peers_head){ .kind = PEERS_BYE }, span_of(NULL, 0));
		r = peers_wait_for(p, PEERS_END, 0, 0, GIVE_UP_AT_END, &m);
		clean = r >= 0 && m->head.code == 0;
		if (r < 0) {
			log_warn("this rank ends without the others: %s", err_text(r));
			err_clear();
		}
	}
	p->ops->free(p, clean);
}
