/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request_reader.c - bursts of small requests, and the thread that serves them.
 *
 * The kind and size of a request only suggest that it is small: a look-up may have to
 * read a database. So while threads are parked, a watcher checks at every tick whether
 * a thread waits for the next request, and un-parks one if none does.
 *
 * Invariants: a thread is parked only while the watcher runs or another thread waits;
 * a request that arrives after a pause un-parks a thread when no other thread waits.
 */
#include "fs/request_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/thread.h"
#include "fs/serving.h"

#define CPU_LATENCY_FILE "/dev/cpu_dma_latency"
#define POLL_NS 200000  /* longer than most programs think between two calls */
#define GAP_NS 200000   /* a longer pause between a reply and the next request ends a burst */
#define SLOW_NS 1000000 /* a request that took longer was not small */
#define STREAK_BURST 8
#define STREAK_MAX 16
#define SMALL_BYTES 65536 /* of a read or a write */
#define TICK_NS 1000000
#define TICKS_IDLE 20 /* ticks without a request until the burst is over */
#define LATENCY_US 10 /* longest wake-up that busy_poll=awake allows on hardware */

static bool is_burst(struct request_reader *w)
{
	return w->mode != BUSY_POLL_OFF &&
	       atomic_load_explicit(&w->streak, memory_order_relaxed) >= STREAK_BURST;
}

static void unpark(struct request_reader *w)
{
	int n = atomic_load(&w->parked);

	while (n > 0)
		if (atomic_compare_exchange_weak(&w->parked, &n, n - 1)) {
			sem_post(&w->places);
			return;
		}
}

/* Returns true as soon as a request is ready; yields the processor between two polls. */
static bool poll_for(int fd)
{
	int64_t end = clock_ns() + POLL_NS;
	struct pollfd p = { .fd = fd, .events = POLLIN };

	do {
		if (poll(&p, 1, 0) != 0)
			return true;
		sched_yield();
	} while (clock_ns() < end);
	return false;
}

/* Whether the next request can wait until this one is answered. */
static bool is_small(const void *buf, ssize_t n)
{
	const struct fuse_in_header *h = buf;
	const struct fuse_read_in *in = (const void *)(h + 1);

	if (n < (ssize_t)sizeof(*h))
		return false;
	switch (h->opcode) {
	case FUSE_READ:
		return n >= (ssize_t)(sizeof(*h) + sizeof(*in)) && in->size <= SMALL_BYTES;
	case FUSE_WRITE:
		return n <= SMALL_BYTES;
	case FUSE_FSYNC:
	case FUSE_RENAME:
	case FUSE_RENAME2:
	case FUSE_COPY_FILE_RANGE:
		return false;
	default:
		return true;
	}
}

/* Account for a request that has just been read; returns the time of its arrival. */
static int64_t arrived(struct request_reader *w, const void *buf, ssize_t n)
{
	int64_t now = clock_ns(), gap = now - atomic_load_explicit(&w->done, memory_order_relaxed);
	bool small = is_small(buf, n);
	int streak = atomic_load_explicit(&w->streak, memory_order_relaxed);
	int left = atomic_fetch_sub(&w->waiters, 1) - 1;

	atomic_fetch_add_explicit(&w->arrivals, 1, memory_order_relaxed);
	/* A large request costs more than a wake-up, and others may run beside it: it ends the
	 * burst. */
	streak = gap > GAP_NS || !small ? 0 : MIN(streak + 1, STREAK_MAX);
	atomic_store_explicit(&w->streak, streak, memory_order_relaxed);
	if (left == 0 && (!small || streak < STREAK_BURST))
		unpark(w);
	return now;
}

ssize_t request_reader_read(struct request_reader *w, int fd, void *buf, size_t n, bool *ret_polled)
{
	struct serving *self = serving();
	int64_t now = clock_ns();
	bool burst;
	ssize_t r;
	int e;

	atomic_store_explicit(&w->done, now, memory_order_relaxed);
	if (now - self->read_at > SLOW_NS)
		atomic_store_explicit(&w->streak, 0, memory_order_relaxed);
	if (is_burst(w) && atomic_load(&w->waiters) > 0) {
		/* Sleep until another thread un-parks this one. */
		atomic_fetch_add(&w->parked, 1);
		if (!atomic_exchange(&w->watched, true))
			sem_post(&w->watch);
		while (sem_wait(&w->places) < 0 && errno == EINTR)
			;
	}
	atomic_fetch_add(&w->waiters, 1);
	burst = is_burst(w);
	*ret_polled = burst && poll_for(fd);
	if (burst && !*ret_polled)
		atomic_store_explicit(&w->streak, 0, memory_order_relaxed);
	r = read(fd, buf, n);
	e = errno;
	self->read_at = arrived(w, buf, r);
	errno = e;
	return r;
}

/*
 * Ask the kernel for idle processors that wake up at once, until the returned file is closed; -1 if
 * this is not permitted. This affects the whole machine, so only busy_poll=awake does it. A virtual
 * machine has no idle state between running and halted, and only 0 prevents halting; hardware has
 * such states, and a processor that never sleeps takes power from the others.
 */
static int hold_cpu_latency(void)
{
	char governor[32] = "";
	int fd = open("/sys/devices/system/cpu/cpuidle/current_governor_ro", O_RDONLY | O_CLOEXEC);
	int32_t us = LATENCY_US;

	if (fd >= 0) {
		if (read(fd, governor, sizeof(governor) - 1) > 0 &&
		    !strncmp(governor, "haltpoll", 8))
			us = 0;
		close(fd);
	}
	fd = open(CPU_LATENCY_FILE, O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, &us, sizeof(us)) != sizeof(us)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Until no request has arrived for a while, make sure that a thread waits for the next one. */
static void watch_burst(struct request_reader *w)
{
	const struct timespec tick = { .tv_nsec = TICK_NS };
	uint64_t seen = atomic_load(&w->arrivals);
	unsigned idle = 0;

	while (idle < TICKS_IDLE && !atomic_load(&w->ending)) {
		uint64_t last = seen;
		bool served;

		nanosleep(&tick, NULL);
		seen = atomic_load(&w->arrivals);
		served = atomic_load(&w->waiters) > 0;
		idle = seen == last && served ? idle + 1 : 0;
		if (seen == last && !served)
			unpark(w);
	}
}

static void *watch(void *arg)
{
	struct request_reader *w = arg;

	while (!atomic_load(&w->ending)) {
		int held;

		if (sem_wait(&w->watch) < 0)
			continue;
		held = w->mode == BUSY_POLL_AWAKE ? hold_cpu_latency() : -1;
		watch_burst(w);
		/*
		 * Clear this first, so that a thread that parks from now on wakes the watcher
		 * again.
		 */
		atomic_store(&w->watched, false);
		if (held >= 0)
			close(held);
	}
	return NULL;
}

int request_reader_start(struct request_reader *w, enum busy_poll mode)
{
	int r;

	memset(w, 0, sizeof(*w));
	/* On a single processor, polling would keep the program that makes the requests from
	 * running. */
	w->mode = get_nprocs() > 1 ? mode : BUSY_POLL_OFF;
	if (w->mode == BUSY_POLL_AWAKE && access(CPU_LATENCY_FILE, W_OK) < 0)
		log_warn("busy_poll=awake: cannot write %s (%s): polling without it",
			 CPU_LATENCY_FILE, strerror(errno));
	sem_init(&w->places, 0, 0);
	sem_init(&w->watch, 0, 0);
	r = thread_start(&w->watcher, "request_watch", watch, w);
	if (r >= 0)
		return 0;
	sem_destroy(&w->places);
	sem_destroy(&w->watch);
	return fail(r, "cannot start a thread: %s", strerror(-r));
}

void request_reader_stop(struct request_reader *w)
{
	atomic_store(&w->ending, true);
	sem_post(&w->watch);
	pthread_join(w->watcher, NULL);
	sem_destroy(&w->places);
	sem_destroy(&w->watch);
}
