/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_ring.c - the liburing engine: one ring per thread.
 *
 * A thread waits only for its own batches on its own ring, so there are no callbacks, no lock and
 * no generation counters. Completions of another batch of the same thread may arrive first; each is
 * stored in its own request, whose result then is no longer IO_PENDING.
 *
 * A ring is created when a thread first needs it, or all are created in advance (io_reserve()) and
 * restricted to the operations used here; those pass from thread to thread.
 *
 * A thread whose ring cannot be created (a limit on locked memory, say) or fails uses plain system
 * calls instead; the results are the same.
 */
#include <liburing.h>
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/io/io_engine.h"

#define RING_DEPTH 64
/* descriptors that the process must be allowed, per reserved ring */
#define DESCRIPTORS_PER_RING 16

struct ring {
	struct io_ring *engine;
	struct ring *next; /* in a list of the engine; protected by its lock */
	struct io_uring uring;
	bool usable;
	bool reserved;       /* created by ring_reserve() */
	unsigned generation; /* fork generation of the process that created it */
	unsigned in_flight;  /* prepared or submitted */
	unsigned n_prepared; /* not submitted yet, in the order of the ring */
	struct io_req *prepared[RING_DEPTH];
};

struct io_ring {
	struct io_engine base;
	struct io_ring *next_open;
	pthread_key_t key;    /* the struct ring of each thread */
	pthread_mutex_t lock; /* protects all below */
	struct ring *first;   /* rings of all threads; a thread may outlive the engine */
	struct ring *spare;   /* created by ring_reserve(), and not in use */
	bool reserved;        /* no more rings are created */
};

/*
 * A thread may end while another one closes the engine: at_thread_exit() must find out whether ring
 * and engine still exist.
 */
static struct {
	pthread_mutex_t lock; /* protects first; taken before the lock of an engine */
	struct io_ring *first;
} engines = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void io_ring_forked(void)
{
	if (lock_was_held(&engines.lock))
		engines.first = NULL;
}
AT_FORK_CHILD(io_ring_forked);

static void ring_close(struct ring *r)
{
	if (r->usable && r->generation == io_fork_generation())
		io_uring_queue_exit(&r->uring);
	free(r);
}

/*
 * Take the ring out of the engine's list; false when it is not there. Called with the engine's lock
 * held.
 */
static bool ring_take(struct io_ring *e, const struct ring *r)
{
	for (struct ring **at = &e->first; *at; at = &(*at)->next)
		if (*at == r) {
			*at = r->next;
			return true;
		}
	return false;
}

static void at_thread_exit(void *arg)
{
	struct ring *r = NULL;

	pthread_mutex_lock(&engines.lock);
	for (struct io_ring *e = engines.first; e && !r; e = e->next_open) {
		pthread_mutex_lock(&e->lock);
		if (ring_take(e, arg)) {
			r = arg;
			if (r->reserved) {
				r->next = e->spare;
				e->spare = r;
			}
		}
		pthread_mutex_unlock(&e->lock);
	}
	if (r && !r->reserved)
		ring_close(r);
	pthread_mutex_unlock(&engines.lock);
}

/* A ring that is not initialized yet, in the engine's list. */
static struct ring *ring_new(struct io_ring *e)
{
	struct ring *r;

	pthread_mutex_lock(&e->lock);
	r = e->spare;
	if (r)
		e->spare = r->next;
	else
		r = calloc(1, sizeof(*r));
	if (r) {
		r->engine = e;
		r->next = e->first;
		e->first = r;
	}
	pthread_mutex_unlock(&e->lock);
	if (!r || pthread_setspecific(e->key, r) == 0)
		return r;
	at_thread_exit(r);
	return NULL;
}

/*
 * Restrict the ring to reads, writes and syncs, permanently: an attacker who takes over this
 * process cannot use it to evade the filter of system calls.
 */
static int ring_init_restricted(struct io_uring *ret)
{
	static const unsigned ops[] = { IORING_OP_READ, IORING_OP_WRITE, IORING_OP_FSYNC };
	struct io_uring_restriction only[ARRAY_LEN(ops)] = { 0 };
	int r = io_uring_queue_init(RING_DEPTH, ret, IORING_SETUP_R_DISABLED);

	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
		only[i].opcode = IORING_RESTRICTION_SQE_OP;
		only[i].sqe_op = (uint8_t)ops[i];
	}
	r = io_uring_register((unsigned)ret->ring_fd, IORING_REGISTER_RESTRICTIONS, only,
			      ARRAY_LEN(only));
	if (r >= 0)
		r = io_uring_register((unsigned)ret->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL,
				      0);
	if (r < 0)
		io_uring_queue_exit(ret);
	return MIN(r, 0);
}

static void ring_reserve(struct io_engine *io, unsigned threads)
{
	struct io_ring *e = container_of(io, struct io_ring, base);
	struct rlimit files;

	/* Each ring takes a descriptor, and checkpoints need most of them. */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0)
		threads = (unsigned)MIN(threads, files.rlim_cur / DESCRIPTORS_PER_RING);
	pthread_mutex_lock(&e->lock);
	for (; threads > 0; threads--) {
		struct ring *r = calloc(1, sizeof(*r));

		if (!r || ring_init_restricted(&r->uring) < 0) {
			free(r);
			break;
		}
		r->usable = r->reserved = true;
		r->generation = io_fork_generation();
		r->next = e->spare;
		e->spare = r;
	}
	e->reserved = true;
	pthread_mutex_unlock(&e->lock);
}

/* The ring of this thread; NULL when it has none and cannot create one. */
static struct ring *ring_of_thread(struct io_ring *e)
{
	struct ring *r = pthread_getspecific(e->key);

	if (r && r->generation == io_fork_generation())
		return r->usable ? r : NULL;
	if (!r)
		r = ring_new(e);
	if (!r)
		return NULL;
	if (r->usable && r->generation == io_fork_generation())
		return r;
	r->generation = io_fork_generation();
	r->in_flight = r->n_prepared = 0;
	if (e->reserved) {
		r->usable = false;
		return NULL;
	}
	r->usable = io_uring_queue_init(RING_DEPTH, &r->uring, 0) == 0;
	return r->usable ? r : NULL;
}

static void reap_one(struct ring *r, struct io_uring_cqe *cqe)
{
	struct io_req *req = io_uring_cqe_get_data(cqe);

	req->result = cqe->res;
	io_uring_cqe_seen(&r->uring, cqe);
	r->in_flight--;
}

/* The kernel has accepted the first n of the prepared requests; none when n is negative. */
static void submitted(struct ring *r, int n)
{
	if (n <= 0)
		return;
	r->n_prepared -= (unsigned)n;
	memmove(r->prepared, r->prepared + n, r->n_prepared * sizeof(struct io_req *));
}

/*
 * The ring has failed. Requests that the kernel has not accepted are done with plain system calls.
 * Memory of the others belongs to callers, so their completion is awaited.
 */
static void give_up(struct ring *r, int code)
{
	const struct timespec pause = { .tv_nsec = 100000 };
	struct io_uring_cqe *cqe;

	log_warn("io_uring: cannot wait: %s: this thread goes on with plain system calls",
		 strerror(-code));
	for (unsigned i = 0; i < r->n_prepared; i++)
		io_plain_run(r->prepared[i]);
	r->in_flight -= r->n_prepared;
	r->n_prepared = 0;
	while (r->in_flight)
		if (io_uring_peek_cqe(&r->uring, &cqe) == 0)
			reap_one(r, cqe);
		else
			nanosleep(&pause, NULL);
	io_uring_queue_exit(&r->uring);
	r->usable = false;
}

/*
 * Take the completions that have arrived; if there are none, submit the prepared requests and wait
 * for at least one. The ring may be unusable afterwards, and then has nothing in flight.
 */
static void reap(struct ring *r)
{
	struct io_uring_cqe *cqe;
	/*
	 * Reads from the page cache have often completed already; then no other system call is
	 * needed.
	 */
	int e = io_uring_cq_ready(&r->uring) ? 0 : io_uring_submit_and_wait(&r->uring, 1);

	submitted(r, e);
	/* These errors are temporary. */
	if (e < 0 && e != -EINTR && e != -EAGAIN && e != -EBUSY && e != -ENOMEM) {
		give_up(r, e);
		return;
	}
	while (r->in_flight && io_uring_peek_cqe(&r->uring, &cqe) == 0)
		reap_one(r, cqe);
}

static void prepare(struct io_uring_sqe *sqe, struct io_req *req)
{
	void *p = io_remaining(req);
	uint64_t off = req->off + req->done;
	/*
	 * The kernel moves at most 2 GiB less a page at once; the rest is continued like a short
	 * transfer.
	 */
	unsigned n = (unsigned)MIN(req->n - req->done, (size_t)0x7ffff000);

	if (req->op == IO_READ)
		io_uring_prep_read(sqe, req->file->fd, p, n, off);
	else if (req->op == IO_WRITE)
		io_uring_prep_write(sqe, req->file->fd, p, n, off);
	else
		io_uring_prep_fsync(sqe, req->file->fd, IORING_FSYNC_DATASYNC);
	io_uring_sqe_set_data(sqe, req);
}

static int ring_submit(struct io_engine *io, struct io_req *req, size_t n)
{
	struct ring *r = ring_of_thread(container_of(io, struct io_ring, base));

	for (size_t i = 0; i < n; i++) {
		struct io_uring_sqe *sqe = NULL;

		req[i].result = IO_PENDING;
		if (!r) {
			io_plain_run(&req[i]);
			continue;
		}
		while (r->usable &&
		       (r->in_flight >= RING_DEPTH || !(sqe = io_uring_get_sqe(&r->uring))))
			reap(r);
		if (!r->usable) {
			r = NULL;
			io_plain_run(&req[i]);
			continue;
		}
		prepare(sqe, &req[i]);
		r->prepared[r->n_prepared++] = &req[i];
		r->in_flight++;
	}
	if (r)
		submitted(r, io_uring_submit(&r->uring));
	return 0;
}

static int ring_wait(struct io_engine *io, struct io_req *req, size_t n)
{
	struct ring *r = ring_of_thread(container_of(io, struct io_ring, base));

	for (size_t i = 0; i < n; i++)
		while (req[i].result == IO_PENDING)
			reap(r);
	return 0;
}

/* A thread that used the engine may outlive it; its ring is freed here. */
static void ring_free(struct io_engine *io)
{
	struct io_ring *e = container_of(io, struct io_ring, base);

	pthread_key_delete(e->key);
	pthread_mutex_lock(&engines.lock);
	for (struct io_ring **at = &engines.first; *at; at = &(*at)->next_open)
		if (*at == e) {
			*at = e->next_open;
			break;
		}
	pthread_mutex_unlock(&engines.lock);
	while (e->first) {
		struct ring *r = e->first;

		e->first = r->next;
		ring_close(r);
	}
	while (e->spare) {
		struct ring *r = e->spare;

		e->spare = r->next;
		ring_close(r);
	}
	pthread_mutex_destroy(&e->lock);
	free(e);
}

static const struct io_engine_ops ring_ops = {
	.name = "uring",
	.submit = ring_submit,
	.wait = ring_wait,
	.open = io_plain_open,
	.dirop = io_plain_dirop,
	.truncate = io_plain_truncate,
	.splice = io_plain_splice,
	.reserve = ring_reserve,
	.free = ring_free,
};

/* io_uring may exist in the kernel and still be refused by a filter, or lack operations. */
static int ring_probe(void)
{
	struct io_uring uring;
	struct io_uring_probe *probe;
	bool enough;
	int r = io_uring_queue_init(4, &uring, 0);

	if (r < 0)
		return r;
	probe = io_uring_get_probe_ring(&uring);
	enough = probe && io_uring_opcode_supported(probe, IORING_OP_READ) &&
		 io_uring_opcode_supported(probe, IORING_OP_WRITE) &&
		 io_uring_opcode_supported(probe, IORING_OP_FSYNC);
	io_uring_free_probe(probe);
	io_uring_queue_exit(&uring);
	return enough ? 0 : -EOPNOTSUPP;
}

int io_ring_new(struct io_engine **ret)
{
	auto_free struct io_ring *e = NULL;
	int r = ring_probe();

	if (r < 0)
		return fail(r, "io_uring is not available: %s%s", strerror(-r),
			    r == -EPERM ?
				    " (see sysctl kernel.io_uring_disabled, or the container's "
				    "filter)" :
				    "");
	e = calloc(1, sizeof(*e));
	if (!e)
		return fail(-ENOMEM, "cannot allocate an I/O engine");
	r = pthread_key_create(&e->key, at_thread_exit);
	if (r)
		return fail(-r, "cannot make a thread key for io_uring");
	pthread_mutex_init(&e->lock, NULL);
	e->base.ops = &ring_ops;
	pthread_mutex_lock(&engines.lock);
	e->next_open = engines.first;
	engines.first = e;
	pthread_mutex_unlock(&engines.lock);
	*ret = &take(e)->base;
	return 0;
}
