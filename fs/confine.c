/* SPDX-License-Identifier: Apache-2.0 */
/*
 * confine.c - the files that a mount may open while it serves.
 *
 * These are SOURCE, or the credentials for it and its cache on disk; the directory for spill files;
 * the log; .npy files named by rules of transforms=; and a few files with the amount of memory and
 * the number of processors. Everything else was read before: options, rules, plugins.
 */
#include "fs/confine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/mem.h"
#include "core/io/io_store.h"
#include "core/sandbox/sandbox.h"

#define THREADS_OTHER 8 /* threads that may read or write, besides those of FUSE and the pool */

/* Make a list of the n places, and the files of options and of the source. The caller frees it. */
static int add_files(const struct sandbox_place *places, size_t n, const struct fs *fs,
		     struct sandbox_place **ret, size_t *ret_n)
{
	const struct options *o = fs->ns->options;
	struct io_engine *io = fs->ns->ckpt->io;
	size_t of_options = 0, of_source = 0;
	struct sandbox_place *all;

	while (options_file(o, of_options))
		of_options++;
	while (io_store_file(io, of_source))
		of_source++;
	all = calloc(n + of_options + of_source, sizeof(*all));
	if (!all)
		return fail(-ENOMEM, "cannot list what a mount opens");
	memcpy(all, places, n * sizeof(*all));
	for (size_t i = 0; i < of_options + of_source; i++)
		all[n + i] =
			(struct sandbox_place){ .path = i < of_options ?
								options_file(o, i) :
								io_store_file(io, i - of_options),
						.fd = -1,
						.access = SANDBOX_READ };
	*ret = all;
	*ret_n = n + of_options + of_source;
	return 0;
}

int confine(const struct fs_mount *m, struct fs *fs, void (*on_refused)(void))
{
	const struct ckpt *c = fs->ns->ckpt;
	const struct options *o = m->options;
	unsigned source = SANDBOX_READ | (fs->is_read_only ? 0 : SANDBOX_WRITE);
	unsigned awake = o->busy_poll == BUSY_POLL_AWAKE ? SANDBOX_WRITE : 0;
	const struct sandbox_place places[] = {
		/* -1 for a source with a URL. Of a file's directory, only the file is read. */
		{ .fd = c->file ? -1 : c->source->fd, .access = source },
		{ .path = c->file, .fd = -1, .access = SANDBOX_READ },
		{ .fd = io_dir_blobs(c->source), .access = SANDBOX_READ },
		{ .path = ns_spill_dir(o), .fd = -1, .access = SANDBOX_READ | SANDBOX_WRITE },
		{ .path = c->source->fd < 0 ? o->cache_dir : NULL,
		  .fd = -1,
		  .access = SANDBOX_READ | SANDBOX_WRITE },
		{ .fd = memory_files_dir(fs->ns->memory), .access = SANDBOX_READ | SANDBOX_WRITE },
		{ .path = o->log, .fd = -1, .access = SANDBOX_WRITE },
		{ .path = "/dev/null", .access = SANDBOX_READ | SANDBOX_WRITE },
		/* Each thread opens it again to clone the connection. */
		{ .path = "/dev/fuse", .access = SANDBOX_READ | SANDBOX_WRITE | SANDBOX_DEVICE },
		{ .path = "/dev/cpu_dma_latency", .access = awake },
		/* Landlock hides from it what only a debugger of another process may see. */
		{ .path = "/proc", .access = SANDBOX_READ },
		{ .path = "/sys/fs/cgroup", .access = SANDBOX_READ },
		{ .path = "/sys/devices/system/cpu", .access = SANDBOX_READ },
	};
	auto_free struct sandbox_place *all = NULL;
	struct sandbox_rules rules = {
		.mode = o->sandbox,
		.changes_owners = source & SANDBOX_WRITE,
		.uses_network = c->source->fd < 0,
		.is_rank = m->peers,
		.broker = fs->broker.fd,
		.on_refused = on_refused,
	};

	int r = add_files(places, ARRAY_LEN(places), fs, &all, &rules.n_places);

	if (r < 0)
		return r;
	rules.place = all;
	if (o->sandbox != SANDBOX_OFF && !m->peers)
		io_reserve(fs->ns->ckpt->io, FS_THREADS_LOOP + queues_threads(fs->queues) +
						     ckpt_threads(fs->ns->ckpt) + THREADS_OTHER +
						     fs->ns->drafts.driver->threads);
	io_quiesce(fs->ns->ckpt->io);
	r = sandbox_enter(&rules);
	/* For a rank of a job, missing restrictions are intended. */
	if (r >= 0 && !m->peers)
		sandbox_log_missing();
	return r;
}
