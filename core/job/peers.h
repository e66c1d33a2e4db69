/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers.h - the processes of one job, and messages between them.
 *
 * Everything that ranks do together is made of messages that are sent without
 * waiting and received with a deadline: a rank that is dead or hangs costs time,
 * and never more than the deadline. How messages travel is an implementation's
 * business: to oneself (peers_alone), between threads (tests), by MPI.
 *
 * A message is an answer, which waits in a box until somebody asks for it, or a
 * request, which one of the service threads hands to the server. Messages of one
 * rank to another arrive in the order in which they were sent.
 *
 * All functions may be called by any thread.
 */
#ifndef PYTREEFS_PEERS_H
#define PYTREEFS_PEERS_H

#include <pthread.h>

#include "core/base/buf.h"
#include "core/base/err.h"

enum peers_kind {
	/* Answers. */
	PEERS_REPLY = 1, /* to peers_call() */
	PEERS_VOTE,      /* of agree.h */
	PEERS_ANSWER,
	PEERS_BYE, /* of the end of the job */
	PEERS_END,
	PEERS_PART,     /* of what a command of several ranks says */
	PEERS_TROUBLE,  /* of a rank of a command: what it is about to vote, or that it has ended */
	PEERS_PROGRESS, /* of a command: bytes that a rank has done */
	/* Answered at once by who delivers them. */
	PEERS_PING,
	PEERS_PONG,
	/* Requests. */
	PEERS_REQUESTS,
	PEERS_JOIN = PEERS_REQUESTS, /* a draft */
	PEERS_LEAVE,
	PEERS_ATTEMPT, /* which attempt at a commit a rank takes part in */
	PEERS_CHUNK,   /* a decoded chunk */
};

struct peers_head {
	uint32_t kind;
	int32_t code; /* 0 or a negative errno, or what the kind says */
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
	/* Whether the rank's process has ended for certain; NULL or false: unknown. */
	bool (*is_gone)(struct peers *p, int rank);
	/* Accept a message for another rank; does not wait for its arrival. */
	int (*send)(struct peers *p, int to, const struct peers_head *head, struct span body);
	/* Nobody sends any more. clean: all ranks have come to their end, too. */
	void (*free)(struct peers *p, bool clean);
};

typedef void peers_serve_fn(void *arg, const struct peers_msg *m);

struct peers {
	const struct peers_ops *ops;
	int rank, size;

	pthread_mutex_t lock;   /* protects all below */
	pthread_cond_t changed; /* of clock_cond_init() */
	struct peers_msg *box, **box_end;
	struct peers_msg *request, **request_end;
	int64_t *last_message; /* monotonic time of the last message, by rank */
	uint64_t next_id;
	peers_serve_fn *serve; /* NULL: requests are refused with -ENOTCONN */
	void *serve_arg;
	pthread_t *thread;
	unsigned n_threads;
	bool stopping, lost;
	bool interrupted; /* nobody waits for answers any more */
	uint64_t n_sent, n_received, bytes_sent, bytes_received;
};

/* ---- for implementations ---- */

int peers_init(struct peers *p, const struct peers_ops *ops, int rank, int size);
void peers_release(struct peers *p);
/* A message has come; its body is taken. Does not wait. */
void peers_deliver(struct peers *p, int from, const struct peers_head *head, struct buf *body);
void peers_head_pack(const struct peers_head *head, uint8_t ret[PEERS_HEAD_BYTES]);
void peers_head_parse(const uint8_t bytes[PEERS_HEAD_BYTES], struct peers_head *ret);

/* ---- implementations ---- */

/* One process. */
int peers_alone(struct peers **ret);
/* This process of an MPI job. name: of the communicator. -EOPNOTSUPP: the program was built without
 * MPI. */
int peers_mpi_open(const char *name, struct peers **ret);
/* Whether this program can do that. */
bool peers_mpi_is_there(void);
/*
 * Tell the others that this rank is done, wait until all are, and release it. A rank whose process
 * has ended is given up at once, one that does not answer after some seconds. Accepts NULL.
 */
void peers_close(struct peers *p);

/* ---- messages: deadlines are of clock_ns() ---- */

int peers_send(struct peers *p, int to, const struct peers_head *head, struct span body);
/*
 * The answer of that kind and id, from one rank or (-1) any. -ETIMEDOUT at the deadline; -ECANCELED
 * when it has not come and this rank is being ended.
 */
int peers_recv(struct peers *p, enum peers_kind kind, uint64_t id, int from, int64_t deadline,
	       struct peers_msg **ret);
/*
 * What an answer says: its code, and ret (NULL: not wanted) gets its bytes, which it loses; or its
 * error, with the sender's note.
 */
int peers_answer(struct peers_msg *m, struct buf *ret);
/* Answers that nobody will ask for: of that kind, with ids from first to last. */
void peers_drop(struct peers *p, enum peers_kind kind, uint64_t first, uint64_t last);
/*
 * As peers_recv(), for as long as that rank gives any sign of life; -ETIMEDOUT when this one has
 * looked for 20 s without seeing one, or when its process has ended.
 */
int peers_wait(struct peers *p, enum peers_kind kind, uint64_t id, int from,
	       struct peers_msg **ret);
/*
 * This rank is being ended: all that receives answers stops waiting, now and later, but for
 * peers_close().
 */
void peers_interrupt(struct peers *p);
/* For who waits otherwise: ask for a sign of life. */
void peers_ping(struct peers *p, int rank);
/*
 * How long a rank has been silent, called after each look of that length that was in vain. Looks
 * are added up, and not the time between them: while the machine stands still, the other one cannot
 * answer either. s: zeros before the first.
 */
struct peers_silence {
	int64_t last, ns;
};
int64_t peers_silent_for(struct peers *p, int rank, int64_t look_ns, struct peers_silence *s);
#define PEERS_GIVE_UP_SECONDS 20
/* Ask and wait: ret gets the answer's body. An error of the other side comes with its note. */
int peers_call(struct peers *p, int to, enum peers_kind kind, struct span body, int64_t deadline,
	       struct buf *ret);
/* Answer a request: r with this thread's note, or a body. */
int peers_reply(struct peers *p, const struct peers_msg *m, int r, struct span body);
/* Begin to serve requests with that many threads; end it, waiting for those under way. */
int peers_serve(struct peers *p, unsigned threads, peers_serve_fn *serve, void *arg);
void peers_serve_end(struct peers *p);

#endif
