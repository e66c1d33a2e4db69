/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_group.c - reports of ranks to rank 0, and their common exit status.
 *
 * Invariants: the last message of a rank is that of its end, so a rank that waits for another
 * message of it gets an error.
 */
#include "tools/job/rank_group.h"

#include <stdio.h>

#include "core/base/err.h"
#include "core/base/wire.h"
#include "tools/cli/cmd.h"

enum { GROUP_END, GROUP_LEAF }; /* code of a message */

static void group_free(struct rank_group *t)
{
	if (!t)
		return;
	free(t->rank);
	free(t);
}

int group_new(struct peers *peers, struct rank_group **ret)
{
	struct rank_group *t = calloc(1, sizeof(*t));

	if (t)
		t->rank = calloc((size_t)peers->size, sizeof(*t->rank));
	if (!t || !t->rank) {
		int size = peers->size;

		group_free(t);
		peers_close(peers);
		return fail(-ENOMEM, "cannot work with %d ranks", size);
	}
	t->peers = peers;
	t->error_status = EXIT_FOUND;
	*ret = t;
	return 0;
}

bool group_is_lead(const struct rank_group *t)
{
	return !t || t->peers->rank == 0;
}

int group_owner(const struct rank_group *t, uint64_t number)
{
	return (int)(number % (uint64_t)t->peers->size);
}

static int send_to(struct rank_group *t, int rank, int code, struct span body)
{
	return peers_send(t->peers, rank, &(struct peers_head){ .kind = PEERS_PART, .code = code },
			  body);
}

int group_send(struct rank_group *t, const char *leaf, struct span body)
{
	auto_buf out = { 0 };

	if (wire_put_u32le(&out, (uint32_t)strlen(leaf)) < 0 || buf_add_str(&out, leaf) < 0 ||
	    buf_add_span(&out, body) < 0)
		return -ENOMEM;
	return send_to(t, 0, GROUP_LEAF, buf_span(&out));
}

static void end_rank(struct rank_group *t, int rank, int status)
{
	t->rank[rank].ended = true;
	t->rank[rank].status = status;
}

/* Record the end of a rank: its status, or an errno and its message. */
static void note_end(struct rank_group *t, int rank, struct span body)
{
	struct wire w = wire_of(body);
	int32_t status = (int32_t)wire_u32le(&w);
	struct span why = wire_bytes(&w, wire_left(&w));

	end_rank(t, rank, wire_ok(&w) ? status : t->error_status);
	if (status < 0)
		fprintf(stderr, "pytreefs: rank %d: %.*s\n", rank, SPAN_ARG(why));
}

int group_receive(struct rank_group *t, int rank, const char *leaf, struct buf *ret)
{
	auto_of(peers_msg) struct peers_msg *m = NULL;
	struct wire w;
	struct span name, body;
	int r = t->rank[rank].ended ? fail(-EIO, "rank %d has come to its end", rank) :
				      peers_wait(t->peers, PEERS_PART, 0, rank, &m);

	if (r == -ETIMEDOUT)
		end_rank(t, rank, t->error_status);
	if (r < 0)
		return r;
	if (m->head.code == GROUP_END) {
		note_end(t, rank, buf_span(&m->body));
		return fail(-EIO, "rank %d has come to its end before '%s'", rank, leaf);
	}
	w = wire_of(buf_span(&m->body));
	name = wire_bytes(&w, wire_u32le(&w));
	body = wire_bytes(&w, wire_left(&w));
	if (!wire_ok(&w) || !span_eq(name, span_str(leaf)))
		return fail(
			-EIO,
			"rank %d has '%.*s' where rank 0 has '%s': do they see the same source?",
			rank, SPAN_ARG(name), leaf);
	return buf_add_span(ret, body);
}

/* ---- the end ---- */

static int worst(const struct rank_group *t, int a, int b)
{
	a = a < 0 ? t->error_status : a;
	b = b < 0 ? t->error_status : b;
	return MAX(a, b);
}

/* On rank 0: receive the remaining messages of a rank, up to its end. */
static void receive_rest(struct rank_group *t, int rank)
{
	while (!t->rank[rank].ended) {
		auto_of(peers_msg) struct peers_msg *m = NULL;
		int r = peers_wait(t->peers, PEERS_PART, 0, rank, &m);

		if (r < 0) {
			fprintf(stderr, "pytreefs: %s\n", err_text(r));
			end_rank(t, rank, t->error_status);
		} else if (m->head.code != GROUP_LEAF) {
			note_end(t, rank, buf_span(&m->body));
		}
	}
}

static int end_of_lead(struct rank_group *t, int status)
{
	auto_buf out = { 0 };
	struct err_note note;
	int all = worst(t, status, 0);

	err_save(status, &note);
	for (int i = 1; i < t->peers->size; i++) {
		receive_rest(t, i);
		all = worst(t, all, t->rank[i].status);
	}
	if (wire_put_u32le(&out, (uint32_t)all) >= 0)
		for (int i = 1; i < t->peers->size; i++)
			send_to(t, i, GROUP_END, buf_span(&out));
	err_clear();
	return status < 0 ? err_restore(&note) : all;
}

static int end_of_other(struct rank_group *t, int status)
{
	auto_of(peers_msg) struct peers_msg *m = NULL;
	auto_buf out = { 0 };
	struct wire w;
	int r;

	/* Rank 0 reports the error that all ranks share. */
	if (status < 0 && t->agreed)
		status = t->error_status;
	if (wire_put_u32le(&out, (uint32_t)status) < 0 ||
	    (status < 0 && buf_add_str(&out, err_text(status)) < 0))
		return -ENOMEM;
	r = send_to(t, 0, GROUP_END, buf_span(&out));
	if (r < 0)
		return r;
	r = peers_wait(t->peers, PEERS_PART, 0, 0, &m);
	if (r < 0)
		return r;
	w = wire_of(buf_span(&m->body));
	return worst(t, (int)wire_u32le(&w), status);
}

void group_tell_trouble(struct rank_group *t, uint64_t id, int r)
{
	const struct peers_head head = { .kind = PEERS_TROUBLE, .code = r, .id = id };
	struct err_note note;

	err_save(r, &note);
	for (int i = 0; i < t->peers->size; i++)
		if (i != t->peers->rank)
			peers_send(t->peers, i, &head, span_str(note.text));
	err_restore(&note);
}

int group_end(struct rank_group *t, int status)
{
	struct err_note note;
	int r;

	if (!t)
		return status;
	if (status < 0 && !t->agreed)
		group_tell_trouble(t, GROUP_LEFT, status);
	r = group_is_lead(t) ? end_of_lead(t, status) : end_of_other(t, status);
	err_save(r, &note);
	peers_close(t->peers);
	group_free(t);
	return r < 0 ? err_restore(&note) : r;
}
