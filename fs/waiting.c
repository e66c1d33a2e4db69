/*
 * waiting.c - storms of small requests, and the thread that serves them.
 *
 * What is small is told by the kind and size of a request, not known: a look-up may
 * have to read a database. So while threads are parked a watcher looks every tick
 * whether requests still have somebody who waits for them, and un-parks one if not.
 *
 * Kept true: a thread is parked only while the watcher is awake or somebody waits, and
 * a request that comes after a pause un-parks a thread when nobody else waits.
 */
#include "fs/waiting.h"

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
#include "core/base/mem.h"
#include "core/base/thread.h"

#define POLL_NS 200000			/* longer than most programs think between two calls */
#define GAP_NS 200000			/* more between an answer and the next request is no storm */
#define SLOW_NS 1000000			/* a request that took longer was no small one */
#define STREAK_STORM 8
#define STREAK_MAX 16
#define SMALL_BYTES 65536		/* of a read or a write */
#define TICK_NS 1000000
#define TICKS_IDLE 20			/* without a request, then the storm is over */
#define LATENCY_US 10			/* keeps processors out of the idle states that cost more to leave */

static bool is_storm(struct waiting *w)
{
	return w->polls && atomic_load_explicit(&w->streak, memory_order_relaxed) >= STREAK_STORM;
}

static void unpark(struct waiting *w)
{
	int n = atomic_load(&w->parked);

	while (n > 0)
		if (atomic_compare_exchange_weak(&w->parked, &n, n - 1)) {
			sem_post(&w->places);
			return;
		}
}

/* Until another thread needs somebody who waits for requests. */
static void park(struct waiting *w)
{
	atomic_fetch_add(&w->parked, 1);
	if (!atomic_exchange(&w->watched, true))
		sem_post(&w->watch);
	while (sem_wait(&w->places) < 0 && errno == EINTR)
		;
}

/* True as soon as there is a request; others that want the processor get it meanwhile. */
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

/* Whether the next request may have to wait for this one to be answered. */
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

/* A request has come, at the time that it returns. */
static int64_t arrived(struct waiting *w, const void *buf, ssize_t n)
{
	int64_t now = clock_ns(), gap = now - atomic_load_explicit(&w->done, memory_order_relaxed);
	bool small = is_small(buf, n);
	int streak = atomic_load_explicit(&w->streak, memory_order_relaxed);
	int left = atomic_fetch_sub(&w->waiters, 1) - 1;

	atomic_fetch_add_explicit(&w->arrivals, 1, memory_order_relaxed);
	/* A large one has more to wait for than a wake-up, and others like it beside. */
	streak = gap > GAP_NS || !small ? 0 : MIN(streak + 1, STREAK_MAX);
	atomic_store_explicit(&w->streak, streak, memory_order_relaxed);
	if (left == 0 && (!small || streak < STREAK_STORM))
		unpark(w);
	return now;
}

ssize_t waiting_read(struct waiting *w, int fd, void *buf, size_t n, bool *ret_polled)
{
	static _Thread_local int64_t began = INT64_MAX;
	int64_t now = clock_ns();
	bool storm;
	ssize_t r;
	int e;

	atomic_store_explicit(&w->done, now, memory_order_relaxed);
	if (now - began > SLOW_NS)
		atomic_store_explicit(&w->streak, 0, memory_order_relaxed);
	if (is_storm(w) && atomic_load(&w->waiters) > 0)
		park(w);
	atomic_fetch_add(&w->waiters, 1);
	storm = is_storm(w);
	*ret_polled = storm && poll_for(fd);
	if (storm && !*ret_polled)
		atomic_store_explicit(&w->streak, 0, memory_order_relaxed);
	r = read(fd, buf, n);
	e = errno;
	began = arrived(w, buf, r);
	errno = e;
	return r;
}

/*
 * Ask for idle processors that wake up at once, until the file is closed: -1 where that is not permitted.
 * A virtual machine's only other idle state is to stop, which 0 alone prevents; hardware has states in
 * between, and a processor that never sleeps takes power from the others.
 */
static int keep_awake(void)
{
	char governor[32] = "";
	int fd = open("/sys/devices/system/cpu/cpuidle/current_governor_ro", O_RDONLY | O_CLOEXEC);
	int32_t us = LATENCY_US;

	if (fd >= 0) {
		if (read(fd, governor, sizeof(governor) - 1) > 0 && !strncmp(governor, "haltpoll", 8))
			us = 0;
		close(fd);
	}
	fd = open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, &us, sizeof(us)) != sizeof(us)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Until no request has come for a while: is there anybody for the next one? */
static void watch_storm(struct waiting *w)
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
	struct waiting *w = arg;

	while (!atomic_load(&w->ending)) {
		int awake;

		if (sem_wait(&w->watch) < 0)
			continue;
		awake = keep_awake();
		watch_storm(w);
		/* First, so that whoever parks from now on wakes this again. */
		atomic_store(&w->watched, false);
		if (awake >= 0)
			close(awake);
	}
	return NULL;
}

int waiting_start(struct waiting *w, bool polls)
{
	int r;

	memset(w, 0, sizeof(*w));
	w->polls = polls && get_nprocs() > 1;
	sem_init(&w->places, 0, 0);
	sem_init(&w->watch, 0, 0);
	r = thread_start(&w->watcher, "waiting", watch, w);
	if (r >= 0)
		return 0;
	sem_destroy(&w->places);
	sem_destroy(&w->watch);
	return fail(r, "cannot start a thread: %s", strerror(-r));
}

void waiting_stop(struct waiting *w)
{
	atomic_store(&w->ending, true);
	sem_post(&w->watch);
	pthread_join(w->watcher, NULL);
	sem_destroy(&w->places);
	sem_destroy(&w->watch);
}
