/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_bench.c - `pytreefs bench`: measures the disk under a checkpoint for each engine and queue
 * depth.
 *
 * The result helps to choose io=, and shows whether the disk or the program is the limit.
 * tests/bench/run compares the speed of reading and writing checkpoints with other programs.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/blocks.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/io/io.h"
#include "tools/cli/cmd.h"

#define BLOCK_BYTES ((size_t)1 * MiB) /* size of one request: a chunk of usual size */
#define DEPTH_MAX 64

static const char *const engines[] = { "uring", "sync" };
static const unsigned depths[] = { 1, 4, 16, DEPTH_MAX };

struct bench {
	const char *directory;
	uint64_t size;  /* a multiple of BLOCK_BYTES */
	uint8_t *buf;   /* DEPTH_MAX blocks */
	bool json, any; /* any: a row has been printed */
};

static double seconds(void)
{
	return (double)clock_ns() / 1e9;
}

/* Transfer the whole file, `depth` requests at a time. */
static int run_batches(const struct bench *b, struct io_file *file, enum io_op op, unsigned depth)
{
	struct io_req req[DEPTH_MAX];
	int r = 0;

	for (uint64_t at = 0; at < b->size && r >= 0;) {
		unsigned n = 0;

		for (; n < depth && at < b->size; n++, at += BLOCK_BYTES)
			req[n] = (struct io_req){ .op = op,
						  .file = file,
						  .p = b->buf + n * BLOCK_BYTES,
						  .n = BLOCK_BYTES,
						  .off = at };
		r = io_run(file->io, req, n);
		for (unsigned i = 0; i < n && r >= 0; i++)
			if (req[i].result != (int64_t)BLOCK_BYTES)
				r = fail(-EIO, "%lld of %zu bytes at offset %llu",
					 (long long)req[i].result, BLOCK_BYTES,
					 (unsigned long long)req[i].off);
	}
	return r;
}

static void bench_put(struct bench *b, const char *engine, unsigned depth, double write,
		      double read)
{
	double mib = (double)b->size / (double)MiB;

	if (!b->any && !b->json)
		printf("%-8s %6s %12s %12s\n", "engine", "depth", "write MiB/s", "read MiB/s");
	if (b->json)
		printf("%s\n{\"engine\": \"%s\", \"depth\": %u, \"write_mib_per_second\": %.1f, "
		       "\"read_mib_per_second\": %.1f}",
		       b->any ? "," : "", engine, depth, mib / write, mib / read);
	else
		printf("%-8s %6u %12.0f %12.0f\n", engine, depth, mib / write, mib / read);
	b->any = true;
	fflush(stdout);
}

/* Write and sync a new file, drop it from the page cache, and read it. */
static int bench_depth(struct bench *b, struct io_engine *io, unsigned depth)
{
	auto_of(io_file) struct io_file *file = NULL;
	double begin, written, dropped;
	int r = io_file_temp(io, NULL, b->directory, &file);

	if (r < 0)
		return r;
	begin = seconds();
	r = run_batches(b, file, IO_WRITE, depth);
	if (r < 0)
		return r;
	r = io_file_sync(file);
	if (r < 0)
		return r;
	written = seconds();
	posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED);
	dropped = seconds();
	r = run_batches(b, file, IO_READ, depth);
	if (r < 0)
		return r;
	bench_put(b, io_engine_name(io), depth, written - begin, seconds() - dropped);
	return 0;
}

/*
 * An engine that the kernel refuses is reported, and the others are measured. Returns 0 if at least
 * one was measured.
 */
static int bench_all(struct bench *b)
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(engines); i++) {
		auto_of(io_engine) struct io_engine *io = NULL;

		r = io_engine_open(engines[i], &io);
		for (size_t k = 0; k < ARRAY_LEN(depths) && r >= 0; k++)
			r = bench_depth(b, io, depths[k]);
		if (r < 0 && (b->any || i + 1 < ARRAY_LEN(engines)))
			fprintf(stderr, "pytreefs bench: %s: %s\n", engines[i], err_text(r));
	}
	return b->any ? 0 : r;
}

static int run_bench(struct cmd_args *a)
{
	struct bench b = { .directory = a->n_args ? a->arg[0] : ".",
			   .size = 256 * MiB,
			   .json = cmd_flag(a, "json") };
	const char *size = cmd_value(a, "size");
	int r = size ? option_parse_size(size, &b.size) : 0;
	struct stat st;

	if (r < 0 || b.size < BLOCK_BYTES || b.size > (uint64_t)1 << 50)
		return cmd_usage(a->cmd, "--size is a number of bytes from 1M on, such as 256M");
	/* Check the directory first, since its errors are the same for every engine. */
	r = stat(b.directory, &st) < 0 ? -errno : S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
	if (r < 0)
		return err_code(r, "cannot make files in", b.directory);
	b.size = b.size / BLOCK_BYTES * BLOCK_BYTES;
	b.buf = block_alloc(DEPTH_MAX * BLOCK_BYTES);
	if (!b.buf)
		return fail(-ENOMEM, "cannot allocate %zu bytes", DEPTH_MAX * BLOCK_BYTES);
	/* Neither zeros nor equal pages, since some disks detect both. */
	for (size_t i = 0; i < DEPTH_MAX * BLOCK_BYTES / 8; i++)
		((uint64_t *)(void *)b.buf)[i] = (i + 1) * 0x9e3779b97f4a7c15;
	if (b.json)
		printf("[");
	r = bench_all(&b);
	if (b.json)
		printf("\n]\n");
	block_free(b.buf, DEPTH_MAX * BLOCK_BYTES);
	return r < 0 ? r : EXIT_OK;
}

static const struct cmd_option options[] = {
	{ "size", 's', "BYTES", "size of the file that is written and read (256M)" },
	{ "json", 0, NULL, "print one JSON document" },
	{ 0 },
};

const struct cmd cmd_bench = {
	.name = "bench",
	.args = "[DIRECTORY]",
	.summary = "measure a disk: read and write rates per engine and queue depth",
	.help = "Writes unlinked files below DIRECTORY (default: here) in requests of 1 MiB, syncs "
		"them, and reads\n"
		"them after they were dropped from the page cache. An engine that the kernel "
		"refuses is reported.",
	.example = "pytreefs bench --size 16M /tmp",
	.options = options,
	.max_args = 1,
	.run = run_bench,
};
