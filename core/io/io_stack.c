/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_stack.c - engines by name: "trace:fault(RULES):uring" is a stack of three.
 */
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/io/io.h"
#include "core/io/io_engine.h"

static int open_real(const char *name, struct io_engine **ret)
{
	int r;

	if (!strcmp(name, "sync"))
		return io_sync_new(ret);
	if (!strcmp(name, "uring"))
		return io_ring_new(ret);
	if (strcmp(name, "auto"))
		return fail(-EINVAL,
			    "unknown I/O engine '%s'; known: auto, uring, sync, with trace: and "
			    "fault(...): in front",
			    name);
	r = io_ring_new(ret);
	if (r >= 0 || r == -ENOMEM)
		return r;
	log_info("%s; using pread with threads instead", err_text(r));
	return io_sync_new(ret);
}

/* Open the real engine, and the engine of the store, if any, on top of it. */
static int open_bottom(const char *name, struct io_store *store, struct io_engine **ret)
{
	struct io_engine *real;
	int r = open_real(name, &real);

	if (r < 0)
		return r;
	if (!store) {
		*ret = real;
		return 0;
	}
	r = io_store_new(store, real, ret);
	if (r < 0)
		real->ops->free(real);
	return r;
}

/* *store becomes NULL once an engine owns it. */
static int open_stack(const char *stack, struct io_store **store, struct io_engine **ret)
{
	struct io_engine *below = NULL;
	auto_free char *rules = NULL;
	const char *end;
	int r;

	if (!strncmp(stack, "trace:", 6)) {
		r = open_stack(stack + 6, store, &below);
		if (r < 0)
			return r;
		r = io_trace_new(below, ret);
	} else if (!strncmp(stack, "fault(", 6) && (end = strstr(stack, "):"))) {
		rules = span_dup_str(span_of(stack + 6, (size_t)(end - stack) - 6));
		if (!rules)
			return fail(-ENOMEM, "cannot allocate an I/O engine");
		r = open_stack(end + 2, store, &below);
		if (r < 0)
			return r;
		r = io_fault_new(rules, below, ret);
	} else {
		r = open_bottom(stack, *store, ret);
		if (r >= 0)
			*store = NULL;
		return r;
	}
	if (r < 0)
		below->ops->free(below);
	return r;
}

int io_engine_open_store(const char *stack, struct io_store *store, struct io_engine **ret)
{
	struct io_stats *stats = calloc(1, sizeof(*stats));
	struct io_store *opened = store;
	struct io_engine *io;
	int r;

	/* Each wrapper consumes some characters of the text, so its length bounds the depth. */
	r = !stats              ? fail(-ENOMEM, "cannot allocate an I/O engine") :
	    strlen(stack) > 512 ? fail(-EINVAL, "I/O engine stack is too long") :
				  open_stack(stack, &store, &io);
	if (r < 0) {
		if (store)
			store->ops->free(store);
		free(stats);
		return r;
	}
	for (struct io_engine *e = io; e; e = e->below)
		e->stats = stats;
	r = opened && opened->ops->begin ? opened->ops->begin(opened, io) : 0;
	if (r < 0) {
		io_engine_close(io);
		return r;
	}
	*ret = io;
	return 0;
}

int io_engine_open(const char *stack, struct io_engine **ret)
{
	return io_engine_open_store(stack, NULL, ret);
}

void io_engine_close(struct io_engine *io)
{
	struct io_stats *stats;

	if (!io)
		return;
	stats = io->stats;
	io->ops->free(io);
	free(stats);
}

void io_reserve(struct io_engine *io, unsigned threads)
{
	while (io->below)
		io = io->below;
	if (io->ops->reserve)
		io->ops->reserve(io, threads);
}

void io_quiesce(struct io_engine *io)
{
	for (; io; io = io->below)
		if (io->ops->quiesce)
			io->ops->quiesce(io);
}

const char *io_engine_name(const struct io_engine *io)
{
	while (io->below)
		io = io->below;
	return io->ops->name;
}

bool io_is_wrapped(const struct io_engine *io)
{
	return io->below;
}

const struct io_stats *io_engine_stats(const struct io_engine *io)
{
	return io->stats;
}
