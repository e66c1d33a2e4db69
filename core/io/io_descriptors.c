/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_descriptors.c - how many descriptors of the process are files and directories opened here.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "core/io/io_engine.h"

/*
 * Counts of the process, because the limit of descriptors is per process. Reserved: files that are
 * about to be opened.
 */
static atomic_int open_files, open_dirs;
static atomic_size_t reserved_files;

void io_files_count(int n)
{
	atomic_fetch_add_explicit(&open_files, n, memory_order_relaxed);
}

void io_dirs_count(int n)
{
	atomic_fetch_add_explicit(&open_dirs, n, memory_order_relaxed);
}

/* Half of the process's descriptors. */
static size_t files_most(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? (size_t)limit.rlim_cur / 2 : SIZE_MAX;
}

bool io_files_are_many(void)
{
	return (size_t)atomic_load_explicit(&open_files, memory_order_relaxed) >= files_most();
}

size_t io_files_reserve(size_t n)
{
	size_t reserved = atomic_fetch_add(&reserved_files, n) + n;

	if (reserved + (size_t)atomic_load(&open_files) <= files_most())
		return n;
	atomic_fetch_sub(&reserved_files, n - 1);
	return 1;
}

void io_files_unreserve(size_t n)
{
	atomic_fetch_sub(&reserved_files, n);
}

bool io_descriptors_are_short(void)
{
	return (size_t)(atomic_load(&open_files) + atomic_load(&open_dirs)) >= files_most() / 2 * 3;
}

static pthread_mutex_t ran_out_lock = PTHREAD_MUTEX_INITIALIZER;
static void (*ran_out)(void *arg); /* protected by ran_out_lock, like its argument */
static void *ran_out_arg;

void io_when_descriptors_run_out(void (*fn)(void *arg), void *arg)
{
	pthread_mutex_lock(&ran_out_lock);
	ran_out = fn;
	ran_out_arg = arg;
	pthread_mutex_unlock(&ran_out_lock);
}

void io_descriptors_ran_out(void)
{
	pthread_mutex_lock(&ran_out_lock);
	if (ran_out)
		ran_out(ran_out_arg);
	pthread_mutex_unlock(&ran_out_lock);
}
