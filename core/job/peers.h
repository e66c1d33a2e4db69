/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers.h - the processes of one job, and messages between them.
 *
 * Everything that ranks do together consists of messages, which are sent without waiting and
 * received with a deadline, so a rank that is dead or hangs costs at most the time of the deadline.
 * Implementations transport the messages: between threads (tests), or with MPI.
 *
 * A message is an answer, which is stored until it is received, or a request, which a service
 * thread passes to the server. Messages from one rank to another arrive in the order in which they
 * were sent.
 *
 * Any thread may call all functions.
 */
#ifndef PYTREEFS_PEERS_H
#define PYTREEFS_PEERS_H

#include <pthread.h>

#include "core/base/buf.h"
#include "core/base/err.h"

enum peers_kind {
	/* Answers. */
	PEERS_REPLY = 1, /* to peers_call() */
	PEERS_VOTE,      /* agree.h */
	PEERS_ANSWER,
	PEERS_BYE, /* end of the job */
	PEERS_END,
	PEERS_PART, /* a part of the output of a command with several ranks */
	/* from a rank of a command: the error that it is about to vote, or that it has ended */
	PEERS_TROUBLE,
	PEERS_PROGRESS, /* from a rank of a command: the bytes that it has processed */
	/* Answered by peers_deliver(). */
	PEERS_PING,
	PEERS_PONG,
	/* Requests. */
	PEERS_REQUESTS,
	PEERS_JOIN = PEERS_REQUESTS, /* join a draft */
	PEERS_LEAVE,
	PEERS_ATTEMPT, /* ask for the attempt at a commit to take part in */
	PEERS_GIVE_UP, /* tell of an attempt at a commit for which this rank waits no longer */
	PEERS_CHUNK,   /* ask for a decoded chunk */
};

struct peers_head {
	uint32_t kind;
	int32_t code; /* 0 or a negative errno, or as defined by the kind */
	uint64_t id;
};
#define PEERS_HEAD_BYTES 16

struct peers_msg {
	struct peers_msg *next;
	int from;
	struct peers_head head;
	struct buf body;
};
void peers_msg_free(struct peers_msg *m);
DEFINE_AUTO(peers_msg, struct peers_msg, peers_msg_free);

struct peers;
struct peers_ops {
	const char *name;
	/* Whether the rank's process has ended for certain. NULL, or a return of false: unknown. */
	bool (*is_gone)(struct peers *p, int rank);
	/* Accept a message for another rank, without waiting for its arrival. */
	int (*send)(struct peers *p, int to, const struct peers_head *head, struct span body);
	/* Free it; no thread sends any more. clean: all other ranks have ended, too. */
	void (*free)(struct peers *p, bool clean);
};

typedef void peers_serve_fn(void *arg, const struct peers_msg *m);

struct peers {
	const struct peers_ops *ops;
	int rank, size;

	pthread_mutex_t lock;   /* protects all members below */
	pthread_cond_t changed; /* initialized by clock_cond_init() */
	struct peers_msg *box, **box_end;
	struct peers_msg *request, **request_end;
	int64_t *last_message; /* time of the last message, by clock_ns() and rank */
	uint64_t next_id;
	peers_serve_fn *serve; /* NULL: requests are refused with -ENOTCONN */
	void *serve_arg;
	pthread_t *thread;
	unsigned n_threads;
	bool stopping;
	bool interrupted; /* threads no longer wait for answers */
};

/* ---- for implementations ---- */

int peers_init(struct peers *p, const struct peers_ops *ops, int rank, int size);
void peers_release(struct peers *p);
/* Store or serve a message that has arrived, and take its body. Does not wait. */
void peers_deliver(struct peers *p, int from, const struct peers_head *head, struct buf *body);
void peers_head_pack(const struct peers_head *head, uint8_t ret[PEERS_HEAD_BYTES]);
void peers_head_parse(const uint8_t bytes[PEERS_HEAD_BYTES], struct peers_head *ret);

/* ---- implementations ---- */

/*
 * This process of an MPI job. name: that of the communicator. -EOPNOTSUPP: the program was built
 * without MPI.
 */
int peers_mpi_open(const char *name, struct peers **ret);
/* Whether the program was built with MPI. */
bool peers_mpi_is_there(void);
/*
 * Report to the other ranks that this rank is done, wait until all are, and free it. A rank whose
 * process has ended is given up at once, and one that does not answer after some seconds. Accepts
 * NULL.
 */
void peers_close(struct peers *p);

/* ---- messages; deadlines are values of clock_ns() ---- */

int peers_send(struct peers *p, int to, const struct peers_head *head, struct span body);
/*
 * Receive the answer of that kind and id from one rank or, with from -1, from any. -ETIMEDOUT at
 * the deadline; -ECANCELED when it has not arrived and this rank is being ended.
 */
int peers_recv(struct peers *p, enum peers_kind kind, uint64_t id, int from, int64_t deadline,
	       struct peers_msg **ret);
/*
 * Evaluate an answer. Returns its code, and moves its bytes to ret (unless NULL); or its error,
 * with the sender's note.
 */
int peers_answer(struct peers_msg *m, struct buf *ret);
/* Drop answers that will not be received, of that kind and with ids from first to last. */
void peers_drop(struct peers *p, enum peers_kind kind, uint64_t first, uint64_t last);
/*
 * As peers_recv(), but wait as long as the rank shows signs of life. -ETIMEDOUT when none arrived
 * during 20 s of waiting, or when its process has ended.
 */
int peers_wait(struct peers *p, enum peers_kind kind, uint64_t id, int from,
	       struct peers_msg **ret);
/*
 * This rank is being ended: all functions that receive answers stop waiting, now and later, except
 * peers_close().
 */
void peers_interrupt(struct peers *p);
/* Ask a rank for a sign of life; for callers with their own way of waiting. */
void peers_ping(struct peers *p, int rank);
/*
 * Returns how long a rank has been silent; called after each wait of look_ns without a message.
 * Only the time of these waits is added up, since a suspended machine suspends the other ranks on
 * it, too. s is zeroed before the first call.
 */
struct peers_silence {
	int64_t last, ns;
};
int64_t peers_silent_for(struct peers *p, int rank, int64_t look_ns, struct peers_silence *s);
#define PEERS_GIVE_UP_SECONDS 20
/*
 * Send a request and wait for the answer; ret gets its body. An error of the other rank is returned
 * with its note.
 */
int peers_call(struct peers *p, int to, enum peers_kind kind, struct span body, int64_t deadline,
	       struct buf *ret);
/* Answer a request with r and this thread's note, or with a body. */
int peers_reply(struct peers *p, const struct peers_msg *m, int r, struct span body);
/*
 * Start this many threads that serve requests. peers_serve_end() stops them, and waits for requests
 * in progress.
 */
int peers_serve(struct peers *p, unsigned threads, peers_serve_fn *serve, void *arg);
void peers_serve_end(struct peers *p);

#endif
