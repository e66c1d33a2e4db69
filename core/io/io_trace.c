/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_trace.c - wrapper: one line of trace per request and per change of a name.
 */
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/io/io_engine.h"

static int trace_submit(struct io_engine *io, struct io_req *req, size_t n)
{
	static const char *const names[] = { "read", "write", "sync" };

	for (size_t i = 0; i < n; i++)
		trace(TRACE_IO, "%s %s:%llu:%zu (%zu of %zu)", names[req[i].op], req[i].file->name,
		      (unsigned long long)(req[i].off + req[i].done), req[i].n - req[i].done, i + 1,
		      n);
	return io->below->ops->submit(io->below, req, n);
}

static int trace_wait(struct io_engine *io, struct io_req *req, size_t n)
{
	return io->below->ops->wait(io->below, req, n);
}

static int trace_open(struct io_engine *io, int dirfd, const char *path, int flags, unsigned mode)
{
	int r = io->below->ops->open(io->below, dirfd, path, flags, mode);

	trace(TRACE_IO, "open %s: %s", path, r < 0 ? strerror(-r) : "ok");
	return r;
}

static int trace_dirop(struct io_engine *io, enum io_dirop op, int dirfd, const char *from,
		       const char *to, unsigned mode)
{
	static const char *const names[] = { "mkdir",  "rename", "rename-new", "exchange",
					     "unlink", "rmdir",  "sync-dir" };
	int r = io->below->ops->dirop(io->below, op, dirfd, from, to, mode);

	trace(TRACE_IO, "%s %s%s%s: %s", names[op], from, to ? " -> " : "", to ? to : "",
	      r < 0 ? strerror(-r) : "ok");
	return r;
}

static int trace_truncate(struct io_engine *io, struct io_file *file, uint64_t size)
{
	trace(TRACE_IO, "truncate %s:%llu", file->name, (unsigned long long)size);
	return io->below->ops->truncate(io->below, file, size);
}

static int64_t trace_splice(struct io_engine *io, struct io_file *file, uint64_t off, size_t n,
			    int pipe)
{
	trace(TRACE_IO, "splice %s:%llu:%zu", file->name, (unsigned long long)off, n);
	return io->below->ops->splice(io->below, file, off, n, pipe);
}

static int trace_lookup(struct io_engine *io, const char *path, const struct io_want *want,
			struct io_object *ret)
{
	int r = io->below->ops->lookup(io->below, path, want, ret);

	trace(TRACE_IO, "lookup %s: %s", path, r < 0 ? strerror(-r) : "ok");
	return r;
}

static int trace_list(struct io_engine *io, const char *path, io_store_fn *each, void *arg)
{
	trace(TRACE_IO, "list %s", path);
	return io->below->ops->list(io->below, path, each, arg);
}

static void trace_free(struct io_engine *io)
{
	io->below->ops->free(io->below);
	free(io);
}

static const struct io_engine_ops trace_ops = {
	.name = "trace",
	.submit = trace_submit,
	.wait = trace_wait,
	.open = trace_open,
	.dirop = trace_dirop,
	.truncate = trace_truncate,
	.splice = trace_splice,
	.lookup = trace_lookup,
	.list = trace_list,
	.free = trace_free,
};

int io_trace_new(struct io_engine *below, struct io_engine **ret)
{
	struct io_engine *io = calloc(1, sizeof(*io));

	if (!io)
		return fail(-ENOMEM, "cannot allocate an I/O engine");
	io->ops = &trace_ops;
	io->below = below;
	log_trace_mask |= TRACE_IO;
	*ret = io;
	return 0;
}
