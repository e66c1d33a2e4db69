/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.c - one thread, one ring and one buffer for each request that is served at a time.
 *
 * A queue has several threads, since a request may wait for another one of the same processor. The
 * kernel gives each request to any one of them that waits.
 *
 * Invariants: a thread has at most one request, and commits its reply before it gets the next; a
 * buffer is touched by its thread only from the completion of a command until the next command.
 */
#include "fs/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/io/command_ring.h"
#include "fs/fs.h"
#include "fs/operations.h"
#include "fs/serving.h"
#include "fs/signals.h"

#define PARAMETER "/sys/module/fuse/parameters/enable_uring"
#define THREADS_USUAL 16 /* of all queues, where there are few processors */
#define QUEUE_THREADS_MIN 2
#define QUEUES_MAX 32           /* with more processors the buffers would take too much memory */
#define PAYLOAD_BYTES (1 << 20) /* the kernel wants max_write bytes and as many as max_pages */
#define FRONT_BYTES 4096        /* before it: the header, and room for what precedes a payload */

/* ---- the protocol ---- */

enum { CMD_REGISTER = 1, CMD_COMMIT_AND_FETCH = 2 };

struct ring_header {
	union {
		struct fuse_in_header in;
		struct fuse_out_header out;
		uint8_t bytes[128];
	} head;
	uint8_t op_in[128]; /* the first argument, of a size that the operation has */
	struct {
		uint64_t flags;
		uint64_t commit_id;
		uint32_t payload_bytes;
		uint32_t padding;
		uint64_t reserved;
	} entry;
};
_Static_assert(sizeof(struct ring_header) == 288, "struct fuse_uring_req_header");

struct ring_command {
	uint64_t flags;
	uint64_t commit_id;
	uint16_t queue;
	uint8_t padding[6];
};
_Static_assert(sizeof(struct ring_command) == 24, "struct fuse_uring_cmd_req");

/* ---- threads ---- */

struct queue_server {
	struct queues *all;
	unsigned queue;
	struct command_ring *ring;
	struct ring_header *header; /* at the begin of a mapping of FRONT_BYTES + PAYLOAD_BYTES */
	uint8_t *payload;
	uint64_t unique; /* of the request that is being served */
	bool is_answered;
	pthread_t thread;
};

struct queues {
	struct fs *fs;
	unsigned n, started;
	struct queue_server server[];
};

/* The bytes of a request as /dev/fuse has them, the payload where it is. */
static int queue_put_together(struct queue_server *s, struct fuse_buf *ret)
{
	const struct fuse_in_header *in = &s->header->head.in;
	size_t payload = s->header->entry.payload_bytes, op;
	uint8_t *at;

	if (in->len < sizeof(*in) + payload || payload > PAYLOAD_BYTES)
		return -EPROTO;
	op = in->len - sizeof(*in) - payload;
	if (op > sizeof(s->header->op_in))
		return -EPROTO;
	at = s->payload - op - sizeof(*in);
	memcpy(at, in, sizeof(*in));
	memcpy(at + sizeof(*in), s->header->op_in, op);
	*ret = (struct fuse_buf){ .mem = at, .size = in->len };
	return 0;
}

static void queue_answer(struct queue_server *s, int error, size_t payload)
{
	s->header->head.out = (struct fuse_out_header){
		.len = (uint32_t)(sizeof(struct fuse_out_header) + payload),
		.error = error,
		.unique = s->unique,
	};
	s->header->entry.payload_bytes = (uint32_t)payload;
	s->is_answered = true;
}

static void serve_request(struct queue_server *s)
{
	struct fs *fs = s->all->fs;
	struct fuse_buf buf;
	int r;

	s->unique = s->header->head.in.unique;
	s->is_answered = false;
	err_clear();
	atomic_fetch_add_explicit(&fs->ns->requests, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&fs->ns->requests_uring, 1, memory_order_relaxed);
	r = queue_put_together(s, &buf);
	if (r >= 0) {
		int64_t since = clock_ns();

		serving()->queue = s;
		operation_begin(s->header->head.in.opcode);
		fuse_session_process_buf(fs->se, &buf);
		operation_end(fs->ns, since);
		serving()->queue = NULL;
	}
	/* The kernel's protocol has changed, or libfuse has answered elsewhere. */
	if (!s->is_answered) {
		log_error("a request over io_uring had no answer");
		queue_answer(s, -EIO, 0);
	}
}

static void *serve_queue(void *arg)
{
	struct queue_server *s = arg;
	struct ring_command c = { .queue = (uint16_t)s->queue };
	const struct iovec buffers[] = { { s->header, sizeof(*s->header) },
					 { s->payload, PAYLOAD_BYTES } };
	int fd = fuse_session_fd(s->all->fs->se), r;
	cpu_set_t one;

	/* Run where its callers are; anywhere else serves them, too. */
	CPU_ZERO(&one);
	CPU_SET(s->queue, &one);
	sched_setaffinity(0, sizeof(one), &one);
	r = command_ring_run(s->ring, fd, CMD_REGISTER, &c, sizeof(c), buffers, 2);
	while (r == 0) {
		serve_request(s);
		c.commit_id = s->header->entry.commit_id;
		r = command_ring_run(s->ring, fd, CMD_COMMIT_AND_FETCH, &c, sizeof(c), NULL, 0);
	}
	/* Stopped, or unmounted. Otherwise the kernel would wait for this thread for ever. */
	if (r != -ECANCELED && r != -ENOTCONN && r != -ECONNABORTED) {
		log_error("requests over io_uring cannot be served: %s; -o fuse_uring=off",
			  strerror(-r));
		signals_end();
	}
	return NULL;
}

int queues_start(struct queues *q)
{
	for (; q->started < q->n; q->started++) {
		struct queue_server *s = &q->server[q->started];
		int r = thread_start(&s->thread, "fuse_queue", serve_queue, s);

		if (r < 0)
			return fail(r, "cannot start a thread: %s", strerror(-r));
	}
	return 0;
}

void queues_stop(struct queues *q)
{
	for (unsigned i = 0; i < q->started; i++)
		command_ring_end(q->server[i].ring);
	for (unsigned i = 0; i < q->started; i++)
		pthread_join(q->server[i].thread, NULL);
	q->started = 0;
	/* A ring refers to the device, and the connection ends when nothing does. */
	for (unsigned i = 0; i < q->n; i++)
		command_ring_free(take(q->server[i].ring));
}

unsigned queues_threads(const struct queues *q)
{
	return q ? q->n : 0;
}

void queues_free(struct queues *q)
{
	if (!q)
		return;
	for (unsigned i = 0; i < q->n; i++) {
		command_ring_free(q->server[i].ring);
		if (q->server[i].header)
			munmap(q->server[i].header, FRONT_BYTES + PAYLOAD_BYTES);
	}
	free(q);
}

/* ---- setting up ---- */

static int check_enabled(void)
{
	auto_close int fd = open(PARAMETER, O_RDONLY | O_CLOEXEC);
	char c = 'N';

	if (fd < 0)
		return fail(-EOPNOTSUPP,
			    "this kernel has no FUSE over io_uring, as Linux 6.14 does");
	if (read(fd, &c, 1) != 1 || c != 'Y')
		return fail(-EOPNOTSUPP, "'" PARAMETER "' is not Y, which the administrator sets");
	return 0;
}

static int server_init(struct queue_server *s, struct queues *q, unsigned queue)
{
	void *p = mmap(NULL, FRONT_BYTES + PAYLOAD_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r;

	s->all = q;
	s->queue = queue;
	if (p == MAP_FAILED)
		return fail(-ENOMEM, "cannot map buffers for requests over io_uring");
	s->header = p;
	s->payload = (uint8_t *)p + FRONT_BYTES;
	r = command_ring_new(&s->ring);
	return r < 0 ? fail(-EOPNOTSUPP, "cannot make a ring for commands: %s", strerror(-r)) : 0;
}

int queues_new(struct fs *fs, struct queues **ret)
{
	unsigned processors = (unsigned)get_nprocs_conf();
	unsigned each = MAX(THREADS_USUAL / processors, (unsigned)QUEUE_THREADS_MIN);
	struct queues *q;
	int r = check_enabled();

	if (r < 0)
		return r;
	if (processors > QUEUES_MAX)
		return fail(-EOPNOTSUPP,
			    "there are %u processors, and no more than %d are supported",
			    processors, QUEUES_MAX);
	q = calloc(1, sizeof(*q) + processors * each * sizeof(q->server[0]));
	if (!q)
		return fail(-ENOMEM, "cannot serve requests over io_uring");
	q->fs = fs;
	for (; q->n < processors * each && r >= 0; q->n++)
		r = server_init(&q->server[q->n], q, q->n % processors);
	if (r < 0) {
		queues_free(q);
		return r;
	}
	*ret = q;
	return 0;
}

/* ---- replies ---- */

void *queue_buffer(size_t n)
{
	const struct queue_server *s = serving()->queue;

	return s && n <= PAYLOAD_BYTES ? s->payload : NULL;
}

bool queue_reply(const struct iovec *iov, int n, ssize_t *ret)
{
	const struct fuse_out_header *h = iov[0].iov_base;
	struct queue_server *s = serving()->queue;
	size_t at = 0;

	/* A notice has no number. */
	if (!s || s->is_answered || h->unique != s->unique)
		return false;
	*ret = (ssize_t)iov[0].iov_len;
	for (int i = 1; i < n; i++) {
		if (iov[i].iov_len > PAYLOAD_BYTES - at) {
			errno = EINVAL;
			*ret = -1;
			return true;
		}
		if (iov[i].iov_base != s->payload + at)
			memmove(s->payload + at, iov[i].iov_base, iov[i].iov_len);
		at += iov[i].iov_len;
	}
	*ret += (ssize_t)at;
	queue_answer(s, h->error, at);
	return true;
}
