/* SPDX-License-Identifier: Apache-2.0 */
/*
 * confine.c - the files that a mount opens while it serves, and nothing else.
 *
 * SOURCE, where spill files go, the log, and a few that say how much memory and how many processors
 * there are. Everything else was read before: options, rules, plugins.
 */
#include "fs/confine.h"

#include <string.h>

#include "core/io/io.h"
#include "core/sandbox/sandbox.h"

#define THREADS_OTHER 8 /* that may read or write, besides FUSE's and the pool's */

static bool is_read_only(const char *options)
{
	for (const char *at = options; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (!strncmp(at, "ro", 2) && (at[2] == ',' || !at[2]))
			return true;
	}
	return false;
}

int confine(const struct fs_mount *m, struct fs *fs, void (*on_refused)(void))
{
	const struct options *o = m->options;
	unsigned source = SANDBOX_READ | (is_read_only(m->fuse_options) ? 0 : SANDBOX_WRITE);
	unsigned awake = o->busy_poll == BUSY_POLL_AWAKE ? SANDBOX_WRITE : 0;
	const struct sandbox_place places[] = {
		{ .fd = fs->ns->ckpt->source->fd, .access = source },
		{ .path = ns_spill_dir(o), .fd = -1, .access = SANDBOX_READ | SANDBOX_WRITE },
		{ .path = o->log, .fd = -1, .access = SANDBOX_WRITE },
		{ .path = "/dev/null", .access = SANDBOX_READ | SANDBOX_WRITE },
		/* Each thread opens it anew, and clones the connection. */
		{ .path = "/dev/fuse", .access = SANDBOX_READ | SANDBOX_WRITE | SANDBOX_DEVICE },
		{ .path = "/dev/cpu_dma_latency", .access = awake },
		/* Of other processes Landlock shows nothing there that only a debugger may see. */
		{ .path = "/proc", .access = SANDBOX_READ },
		{ .path = "/sys/fs/cgroup", .access = SANDBOX_READ },
		{ .path = "/sys/devices/system/cpu", .access = SANDBOX_READ },
	};
	const struct sandbox_rules rules = {
		.mode = o->sandbox,
		.place = places,
		.n_places = ARRAY_LEN(places),
		.changes_owners = source & SANDBOX_WRITE,
		.is_rank = m->peers,
		.broker = fs->broker.fd,
		.on_refused = on_refused,
	};

	if (o->sandbox != SANDBOX_OFF && !m->peers)
		io_reserve(fs->ns->ckpt->io,
			   FS_THREADS_MAX + ckpt_threads(fs->ns->ckpt) + THREADS_OTHER);
	return sandbox_enter(&rules);
}
