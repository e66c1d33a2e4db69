/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.h - the time, in nanoseconds. Any thread may call.
 */
#ifndef PYTREEFS_CORE_BASE_CLOCK_H
#define PYTREEFS_CORE_BASE_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define SECOND_NS ((int64_t)1000000000)

static inline int64_t clock_ns_of(struct timespec t)
{
	return (int64_t)t.tv_sec * SECOND_NS + t.tv_nsec;
}

static inline struct timespec clock_timespec(int64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / SECOND_NS),
				  .tv_nsec = (long)(ns % SECOND_NS) };
}

static inline int64_t clock_read_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return clock_ns_of(t);
}

/* The monotonic clock, for durations and deadlines. */
static inline int64_t clock_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC);
}

/* Nanoseconds since 1970, for times that are stored or compared with stored ones. */
static inline int64_t clock_real_ns(void)
{
	return clock_read_ns(CLOCK_REALTIME);
}

/*
 * Whether such a time is less than that from now, in the past or the future: where the clock was
 * wrong, a time that is far ahead says no more than an old one.
 */
static inline bool clock_is_near(int64_t real_ns, int64_t within_ns)
{
	int64_t age = clock_real_ns() - real_ns;

	return (age < 0 ? -age : age) < within_ns;
}

/* Initialize a condition whose timed waits take deadlines of clock_ns(). */
static inline void clock_cond_init(pthread_cond_t *ret)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(ret, &attr);
	pthread_condattr_destroy(&attr);
}

#endif
