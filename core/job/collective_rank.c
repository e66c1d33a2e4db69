/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective_rank.c - the requests of a rank to the primary.
 *
 * collective.c keeps the primary's records.
 */
#include <stdio.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/wire.h"
#include "core/step/access.h"
#include "core/job/collective_impl.h"

#define JOIN_TIMEOUT (30 * SECOND_NS)
#define JOIN_AGAIN_MS 50
#define GIVE_UP_TIMEOUT SECOND_NS

static int send_leave(struct collective *j, uint64_t epoch, const char *name, bool aborted)
{
	const struct peers_head head = { .kind = PEERS_LEAVE, .code = aborted };
	auto_buf body = { 0 };
	int r = wire_put_u64le(&body, epoch);

	if (r < 0)
		return r;
	r = buf_add(&body, name, strlen(name) + 1);
	return r < 0 ? r : peers_send(j->peers, j->primary, &head, buf_span(&body));
}

static void join_leave(struct collective *j, uint64_t epoch, const char *name, bool aborted)
{
	struct err_note why;
	int r;

	err_peek(&why);
	r = send_leave(j, epoch, name, aborted);
	if (r < 0)
		log_warn("cannot leave a draft: %s", err_text(r));
	err_restore(&why);
}

/* Ask the primary for membership in a draft. rest gets what follows the fixed members. */
int collective_join(struct collective *j, const char *name, const char *final, unsigned mode,
		    struct collective_member *ret, int64_t *ret_init_ns, struct buf *rest)
{
	int64_t deadline = clock_ns() + JOIN_TIMEOUT;
	auto_buf ask = { 0 }, answer = { 0 };
	struct wire w;
	int r = wire_put_u32le(&ask, mode);

	r |= wire_put_u32le(&ask, user_now() ? user_now()->uid : geteuid());
	r |= wire_put_u32le(&ask, user_now() ? user_now()->gid : getegid());
	r |= wire_put_u32le(&ask, user_now() ? user_now()->umask : 0);
	r |= buf_addf(&ask, "%s%c%s%c", name, 0, final, 0);
	while (r >= 0) {
		r = peers_call(j->peers, j->primary, PEERS_JOIN, buf_span(&ask), deadline, &answer);
		if (r != -EAGAIN || clock_ns() > deadline)
			break;
		nanosleep(&(struct timespec){ .tv_nsec = JOIN_AGAIN_MS * 1000000 }, NULL);
		r = 0;
	}
	if (r == -EAGAIN)
		r = fail(-EBUSY, "%s", err_text(r));
	/* The primary may admit this rank later. */
	if (r == -ETIMEDOUT || r == -ECANCELED)
		join_leave(j, 0, name, true);
	if (r < 0)
		return err_at(r, "draft '%s'", name);
	w = wire_of(buf_span(&answer));
	ret->epoch = wire_u64le(&w);
	ret->attempt = wire_u32le(&w);
	ret->notified = ret->undecided = false;
	*ret_init_ns = (int64_t)wire_u64le(&w);
	if (!wire_ok(&w))
		return fail(-EIO, "draft '%s': the primary's answer is truncated", name);
	return buf_add_span(rest, wire_bytes(&w, wire_left(&w)));
}

void collective_leave(struct collective *j, const struct collective_member *m, bool aborted)
{
	join_leave(j, m->epoch, "", aborted);
}

void collective_give_up(struct collective *j, const struct collective_member *m)
{
	auto_buf answer = { 0 };
	uint8_t body[12];

	set_u64le(body, m->epoch);
	set_u32le(body + 8, m->attempt + 1);
	/* Before the answer, the primary's own next call could enter an earlier attempt. */
	peers_call(j->peers, j->primary, PEERS_GIVE_UP, span_of(body, sizeof(body)),
		   clock_ns() + GIVE_UP_TIMEOUT, &answer);
	err_clear();
}

static int ask_for_attempt(struct collective *j, const struct collective_member *m, unsigned named,
			   int64_t deadline, struct collective_entry *ret)
{
	auto_buf ask = { 0 }, answer = { 0 };
	uint32_t decided;
	struct span text;
	struct wire w;
	int r = wire_put_u64le(&ask, m->epoch);

	r |= wire_put_u32le(&ask, m->attempt);
	r |= wire_put_u32le(&ask, named);
	r |= wire_put_u32le(&ask, m->notified);
	if (r < 0)
		return r;
	r = peers_call(j->peers, j->primary, PEERS_ATTEMPT, buf_span(&ask), deadline, &answer);
	if (r < 0)
		return r;
	w = wire_of(buf_span(&answer));
	*ret = (struct collective_entry){ .attempt = wire_u32le(&w) };
	decided = wire_u32le(&w);
	ret->decided = decided > 0;
	ret->undecided = decided > 1;
	ret->result.code = -(int)wire_u32le(&w);
	text = wire_bytes(&w, wire_left(&w));
	if (!wire_ok(&w))
		return fail(-EIO, "the primary's answer is truncated");
	snprintf(ret->result.text, sizeof(ret->result.text), "%.*s", SPAN_ARG(text));
	return 0;
}

int collective_begin(struct collective *j, struct collective_member *m, unsigned named,
		     int64_t deadline)
{
	struct collective_entry e = { 0 };
	int r = 0;

	if (collective_is_primary(j))
		collective_enter(j, j->primary, m, named, &e);
	else
		r = ask_for_attempt(j, m, named, deadline, &e);
	if (r < 0) {
		/*
		 * The number that the attempt would have had, which the other ranks may also have
		 * counted.
		 */
		m->attempt = MAX(m->attempt + 1, named);
		m->notified = m->undecided = false;
		return r;
	}
	m->attempt = e.attempt;
	m->notified = e.decided;
	m->undecided = e.undecided;
	if (!e.decided)
		return 1;
	return e.result.code < 0 ? fail(e.result.code, "%s", e.result.text) : 0;
}
