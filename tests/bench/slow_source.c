/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slow_source.c - LD_PRELOAD: reads of data files share one token bucket, as hosts share a file
 * system.
 *
 * SLOW_BUCKET is a file of 8 bytes that all processes map: the time (monotonic, ns) at which the
 * bytes that were asked for so far have arrived. SLOW_RATE is bytes a second. Only pread() is
 * slowed: mount with io=sync.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static atomic_llong *bucket;
static double ns_per_byte;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("SLOW_BUCKET"), *rate = getenv("SLOW_RATE");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	if (fd < 0 || !rate)
		return;
	bucket = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (bucket == MAP_FAILED)
		bucket = NULL;
	ns_per_byte = 1e9 / atof(rate);
	close(fd);
}

static void wait_for(size_t n)
{
	struct timespec t;
	long long now, from, until;

	clock_gettime(CLOCK_MONOTONIC, &t);
	now = t.tv_sec * 1000000000LL + t.tv_nsec;
	from = atomic_load(bucket);
	do {
		until = (from > now ? from : now) + (long long)((double)n * ns_per_byte);
	} while (!atomic_compare_exchange_weak(bucket, &from, until));
	t = (struct timespec){ until / 1000000000, until % 1000000000 };
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* The name of pread() in programs with 64-bit file offsets. */
ssize_t pread64(int fd, void *p, size_t n, off64_t off)
{
	static ssize_t (*real)(int, void *, size_t, off64_t);
	ssize_t got;

	if (!real)
		real = (ssize_t(*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
	got = real(fd, p, n, off);
	if (bucket && got > 4096)
		wait_for((size_t)got);
	return got;
}
