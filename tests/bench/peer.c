/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer.c - programs for comparisons and measurements where an interpreter would disturb.
 *
 *   bench_peer decode FILE           decodes all zstd frames of FILE in one thread, in order
 *   bench_peer encode FILE LEVEL     encodes FILE as one zstd frame in one thread
 *   bench_peer sum FILE              sums FILE through mmap
 *   bench_peer pread FILE BYTES [N]  reads FILE in order by N threads, each its part
 *   bench_peer random FILE COUNT     COUNT reads of 4 KiB at random places; the median is printed
 *   bench_peer touch BYTES           touches so many bytes of memory, and ends
 *   bench_peer measure FD COMMAND... runs it; seconds and peak of memory to FD
 *
 * Commands whose start must not be measured print "seconds S".
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#define WHOLE_MAX \
	(16u << 20) /* frames up to this are decoded in one call, as a reader of chunks would */
#define THREADS_MAX 16

struct input {
	const char *p;
	size_t n;
	int fd;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static struct input input_open(const char *path)
{
	struct input in = { .fd = open(path, O_RDONLY | O_CLOEXEC) };
	struct stat st;

	if (in.fd < 0 || fstat(in.fd, &st) < 0)
		die(path);
	in.n = (size_t)st.st_size;
	in.p = mmap(NULL, in.n, PROT_READ, MAP_SHARED, in.fd, 0);
	if (in.p == MAP_FAILED)
		die("mmap");
	return in;
}

static int decode(const char *path)
{
	struct input in = input_open(path);
	ZSTD_DCtx *ctx = ZSTD_createDCtx();
	char *out = malloc(WHOLE_MAX);
	size_t at = 0;

	while (at < in.n) {
		size_t n = ZSTD_findFrameCompressedSize(in.p + at, in.n - at);
		unsigned long long size = ZSTD_getFrameContentSize(in.p + at, in.n - at);
		ZSTD_inBuffer from = { in.p + at, n, 0 };
		size_t r = 1;

		if (ZSTD_isError(n))
			die("frame");
		if (size <= WHOLE_MAX) {
			r = ZSTD_decompressDCtx(ctx, out, WHOLE_MAX, in.p + at, n);
		} else {
			while (r && !ZSTD_isError(r)) {
				ZSTD_outBuffer to = { out, ZSTD_DStreamOutSize(), 0 };

				r = ZSTD_decompressStream(ctx, &to, &from);
			}
		}
		if (ZSTD_isError(r))
			die("decode");
		at += n;
	}
	ZSTD_freeDCtx(ctx);
	free(out);
	return 0;
}

static int encode(const char *path, int level)
{
	struct input in = input_open(path);
	ZSTD_CCtx *ctx = ZSTD_createCCtx();
	size_t cap = ZSTD_CStreamOutSize(), r;
	ZSTD_inBuffer from = { in.p, in.n, 0 };
	char *out = malloc(cap);

	ZSTD_CCtx_setParameter(ctx, ZSTD_c_compressionLevel, level);
	do {
		ZSTD_outBuffer to = { out, cap, 0 };

		r = ZSTD_compressStream2(ctx, &to, &from, ZSTD_e_end);
		if (ZSTD_isError(r))
			die("encode");
	} while (r);
	ZSTD_freeCCtx(ctx);
	free(out);
	return 0;
}

static int sum(const char *path)
{
	struct input in = input_open(path);
	const uint64_t *p = (const uint64_t *)in.p;
	volatile uint64_t total;
	uint64_t s = 0;

	for (size_t i = 0; i < in.n / sizeof(*p); i++)
		s += p[i];
	total = s;
	return (void)total, 0;
}

struct part {
	pthread_t thread;
	int fd;
	size_t off, n, block;
};

static void *part_read(void *arg)
{
	const struct part *part = arg;
	char *buf = malloc(part->block);

	for (size_t at = 0; at < part->n; at += part->block)
		if (pread(part->fd, buf, part->block, (off_t)(part->off + at)) < 0)
			die("pread");
	free(buf);
	return NULL;
}

static int read_all(const char *path, size_t block, size_t threads)
{
	struct input in = input_open(path);
	struct part part[THREADS_MAX];

	if (threads == 0 || threads > THREADS_MAX || block == 0)
		return 2;
	for (size_t i = 0; i < threads; i++) {
		part[i] = (struct part){
			.fd = in.fd, .off = in.n / threads * i, .n = in.n / threads, .block = block
		};
		if (pthread_create(&part[i].thread, NULL, part_read, &part[i]))
			die("thread");
	}
	for (size_t i = 0; i < threads; i++)
		pthread_join(part[i].thread, NULL);
	return 0;
}

/*
 * In large pages where there are any: a virtual machine whose host takes free memory back loses it
 * in pieces of that size, and who asks for large pages (numpy does, for arrays) then waits ten
 * times as long for each. Memory that was touched in small pages helps none of them.
 */
static int touch(size_t n)
{
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	madvise(p, n, MADV_HUGEPAGE);
	for (size_t i = 0; i < n; i += 4096)
		p[i] = 1;
	return munmap(p, n);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int random_reads(const char *path, size_t count)
{
	struct input in = input_open(path);
	double *took = calloc(count + 1, sizeof(*took));
	uint64_t x = 88172645463325252u;
	char buf[4096];

	for (size_t i = 0; i < count; i++) {
		double begin;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		begin = now();
		if (pread(in.fd, buf, sizeof(buf),
			  (off_t)(x % (in.n / sizeof(buf)) * sizeof(buf))) < 0)
			die("pread");
		took[i] = now() - begin;
	}
	qsort(took, count, sizeof(*took), by_value);
	printf("seconds %.9f\n", took[count / 2]);
	free(took);
	return 0;
}

/*
 * Run a command: its seconds and its greatest resident memory, in KiB, to fd. A process begins with
 * the memory of the one that starts it, and that counts: this one has little.
 */
static int measure(int fd, char **words)
{
	double begin = now();
	pid_t pid = fork();
	struct rusage usage;
	int status;

	if (pid == 0) {
		close(fd);
		execvp(words[0], words);
		die(words[0]);
	}
	if (pid < 0 || wait4(pid, &status, 0, &usage) < 0)
		die("wait4");
	dprintf(fd, "%.9f %ld\n", now() - begin, usage.ru_maxrss);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";

	if (!strcmp(what, "decode"))
		return decode(argv[2]);
	if (!strcmp(what, "sum"))
		return sum(argv[2]);
	if (!strcmp(what, "touch"))
		return touch(strtoul(argv[2], NULL, 10));
	if (!strcmp(what, "encode") && argc > 3)
		return encode(argv[2], atoi(argv[3]));
	if (!strcmp(what, "random") && argc > 3)
		return random_reads(argv[2], strtoul(argv[3], NULL, 10));
	if (!strcmp(what, "pread") && argc > 3)
		return read_all(argv[2], strtoul(argv[3], NULL, 10),
				argc > 4 ? strtoul(argv[4], NULL, 10) : 1);
	if (!strcmp(what, "measure") && argc > 3)
		return measure(atoi(argv[2]), argv + 3);
	fprintf(stderr,
		"usage: bench_peer decode|encode|sum|pread|random FILE ...\n       bench_peer measure FD COMMAND...\n");
	return 2;
}
