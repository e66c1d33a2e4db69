/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.c - votes, the worst result, and answers.
 *
 * Invariants: a rank that votes is answered, or stops waiting at its deadline; an answer is never
 * taken for that of another agreement.
 */
#include "core/job/agree.h"

#include "core/base/clock.h"
#include "core/base/log.h"

#define ROUNDS 4
#define ROUND_SHIFT 62

static uint64_t vote_id(const struct agreement *a)
{
	return a->id | (uint64_t)a->round << ROUND_SHIFT;
}

static bool takes_part(const struct agreement *a, int rank)
{
	return rank != a->root && (!a->active || a->active[rank]);
}

static int agree_receive(const struct agreement *a, enum peers_kind kind, uint64_t id, int from,
			 struct peers_msg **ret)
{
	return a->wait ? a->wait(a->arg, kind, id, from, ret) :
			 peers_recv(a->peers, kind, id, from, a->deadline, ret);
}

/* ---- the other ranks ---- */

int agree_vote(const struct agreement *a, int r, struct span bytes)
{
	const struct peers_head head = { .kind = PEERS_VOTE, .code = MIN(r, 0), .id = vote_id(a) };

	return peers_send(a->peers, a->root, &head, r < 0 ? span_str(err_text(r)) : bytes);
}

int agree_await(const struct agreement *a, struct buf *ret, bool *ret_answered)
{
	auto_of(peers_msg) struct peers_msg *m = NULL;
	int r = agree_receive(a, PEERS_ANSWER, a->id, a->root, &m);

	if (ret_answered)
		*ret_answered = r >= 0;
	return r < 0 ? r : peers_answer(m, ret);
}

/* ---- the root ---- */

/* A rank may have voted, given up, and voted again. */
static int receive_vote(const struct agreement *a, int rank, struct peers_msg **ret)
{
	struct peers_msg *newer;
	int r = agree_receive(a, PEERS_VOTE, vote_id(a), rank, ret);

	if (r < 0)
		return r;
	while (peers_recv(a->peers, PEERS_VOTE, vote_id(a), rank, 0, &newer) >= 0) {
		peers_msg_free(*ret);
		*ret = newer;
	}
	err_clear();
	return 0;
}

static void keep_worst(struct err_note *worst, int r)
{
	if (r < 0 && (worst->code >= 0 || (worst->code == -ECANCELED && r != -ECANCELED)))
		err_save(r, worst);
}

int agree_collect(const struct agreement *a, int mine, struct buf *ret)
{
	struct err_note worst = { 0 };
	auto_buf absent = { 0 };

	keep_worst(&worst, mine);
	for (int i = 0; i < a->peers->size; i++) {
		auto_of(peers_msg) struct peers_msg *m = NULL;
		int r = takes_part(a, i) ? receive_vote(a, i, &m) : 0;

		if (r == -ETIMEDOUT && !a->wait)
			buf_addf(&absent, "%s%d", absent.n ? ", " : "", i);
		if (m && m->head.code < 0)
			r = fail(m->head.code, "rank %d: %.*s", i, SPAN_ARG(buf_span(&m->body)));
		keep_worst(&worst, r);
		if (m && r >= 0 && ret) {
			ret[i] = m->body;
			m->body = (struct buf){ 0 };
		}
	}
	if (absent.n)
		return fail(-ETIMEDOUT, "rank %.*s did not respond %s%s",
			    SPAN_ARG(buf_span(&absent)), a->within ? "within " : "in time",
			    a->within ? a->within : "");
	return worst.code < 0 ? err_restore(&worst) : 0;
}

int agree_answer(const struct agreement *a, int rank, int code, struct span bytes)
{
	const struct peers_head head = { .kind = PEERS_ANSWER, .code = code, .id = a->id };
	struct err_note note;
	int worst = 0;

	err_save(code, &note);
	for (int i = 0; i < a->peers->size; i++) {
		int r = takes_part(a, i) && (rank < 0 || rank == i) ?
				peers_send(a->peers, i, &head,
					   code < 0 ? span_str(note.text) : bytes) :
				0;

		if (r < 0)
			log_warn("cannot send a decision to rank %d: %s", i, err_text(r));
		worst = MIN(worst, r);
	}
	if (code < 0)
		err_restore(&note);
	return worst;
}

void agree_forget(struct peers *p, uint64_t first, uint64_t last)
{
	for (uint64_t i = 0; i < ROUNDS; i++)
		peers_drop(p, PEERS_VOTE, i << ROUND_SHIFT | first, i << ROUND_SHIFT | last);
}

/* ---- all ---- */

int agree(const struct agreement *a, int r, struct span bytes, struct buf *ret, bool *ret_answered)
{
	struct agreement answer = *a;
	int e;

	if (ret_answered)
		*ret_answered = a->peers->rank == a->root;
	if (a->peers->rank != a->root) {
		/* The root may have waited for another rank until the deadline. */
		answer.deadline += SECOND_NS;
		e = agree_vote(a, r, bytes);
		return e < 0 ? e : agree_await(&answer, NULL, ret_answered);
	}
	r = agree_collect(a, r, ret);
	e = agree_answer(a, -1, r, span_of(NULL, 0));
	return r < 0 ? r : e;
}
