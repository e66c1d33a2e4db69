/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command_ring.c - one ring, one command at a time, and an eventfd that ends the wait for it.
 */
#include "core/io/command_ring.h"

#include <liburing.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/base/mem.h"

#define DEPTH 4 /* the command and the poll for the end, twice */

enum which { THE_COMMAND = 1, THE_END };

struct command_ring {
	struct io_uring uring;
	int end; /* an eventfd */
	atomic_bool is_ended;
	bool is_armed; /* the ring polls the eventfd */
};

static int restrict_ring(struct io_uring *u)
{
	struct io_uring_restriction only[2] = {
		{ .opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_URING_CMD },
		{ .opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_POLL_ADD },
	};
	unsigned fd = (unsigned)u->ring_fd;
	int r = io_uring_register(fd, IORING_REGISTER_RESTRICTIONS, only, ARRAY_LEN(only));

	return r < 0 ? r : io_uring_register(fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
}

int command_ring_new(struct command_ring **ret)
{
	struct command_ring *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	/* Completions are handled when the thread waits for them: no interrupt is needed. */
	r = io_uring_queue_init(DEPTH, &c->uring,
				IORING_SETUP_SQE128 | IORING_SETUP_COOP_TASKRUN |
					IORING_SETUP_R_DISABLED);
	if (r < 0) {
		free(c);
		return r;
	}
	c->end = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = c->end < 0 ? -errno : restrict_ring(&c->uring);
	if (r < 0) {
		command_ring_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

/* There is always room: at most the two submissions of command_ring_run() are not yet completed. */
static struct io_uring_sqe *next_sqe(struct command_ring *c)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&c->uring);

	memset(sqe, 0, 2 * sizeof(*sqe));
	return sqe;
}

int command_ring_run(struct command_ring *c, int fd, uint32_t op, const void *command, size_t n,
		     const void *addr, uint32_t len)
{
	struct io_uring_sqe *sqe;

	if (atomic_load(&c->is_ended))
		return -ECANCELED;
	if (!c->is_armed) {
		sqe = next_sqe(c);
		io_uring_prep_poll_add(sqe, c->end, POLLIN);
		sqe->user_data = THE_END;
		c->is_armed = true;
	}
	sqe = next_sqe(c);
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = fd;
	sqe->cmd_op = op;
	sqe->addr = (uint64_t)(uintptr_t)addr;
	sqe->len = len;
	sqe->user_data = THE_COMMAND;
	memcpy(sqe->cmd, command, n);
	for (;;) {
		struct io_uring_cqe *cqe;
		uint64_t which;
		int r = io_uring_submit_and_wait(&c->uring, 1), result;

		if (r == -EINTR)
			continue;
		if (r < 0)
			return r;
		if (io_uring_peek_cqe(&c->uring, &cqe) < 0)
			continue;
		which = cqe->user_data;
		result = cqe->res;
		io_uring_cqe_seen(&c->uring, cqe);
		if (which == THE_END)
			return -ECANCELED;
		return result;
	}
}

void command_ring_end(struct command_ring *c)
{
	const uint64_t one = 1;

	atomic_store(&c->is_ended, true);
	/* Fails only when it has been signalled 2^64 times. */
	if (write(c->end, &one, sizeof(one)) < 0)
		return;
}

void command_ring_free(struct command_ring *c)
{
	if (!c)
		return;
	io_uring_queue_exit(&c->uring);
	if (c->end >= 0)
		close(c->end);
	free(c);
}
