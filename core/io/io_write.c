/*
 * io_write.c - writing what nobody will read soon, past the page cache.
 *
 * The bytes of a checkpoint are written once, and as many as memory holds. Left in
 * the page cache they push out what programs do read; and the pages that they need
 * must come from somewhere, which in a virtual machine whose host lends it memory
 * costs more than encoding them. With RWF_DONTCACHE the kernel gives a page to the
 * disk at once, and uses it again when the disk has it.
 *
 * Nothing else changes: such bytes are as durable as others, after a sync.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/utsname.h>

#include "core/base/limits.h"
#include "core/io/io_engine.h"

#define REQUEST_BYTES ((size_t)8 * MiB)	/* of one write request */
#define REQUESTS 8			/* in one batch */

static bool kernel_is_good;

/*
 * Linux 6.14 has the flag, but up to 6.15 a page that was written again at the wrong moment could be dropped with the
 * new bytes in it.
 */
static void ask_kernel(void)
{
	struct utsname u;
	int major, minor;

	kernel_is_good = uname(&u) == 0 && sscanf(u.release, "%d.%d", &major, &minor) == 2 &&
			 (major > 6 || (major == 6 && minor >= 16));
}

void io_file_uncached(struct io_file *file)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, ask_kernel);
	if (kernel_is_good && !file->io->keeps_written)
		atomic_store_explicit(&file->uncached, true, memory_order_relaxed);
}

void io_keep_written(struct io_engine *io)
{
	io->keeps_written = true;
}

/* Whole pages as far as there are any: one that is given away half full is read back for its other half. */
static size_t request_bytes(size_t n, uint64_t off)
{
	n = MIN(n, REQUEST_BYTES);
	return n >= IO_UNCACHED_BYTES ? n - (size_t)((off + n) % IO_PAGE_BYTES) : n;
}

int io_file_write(struct io_file *file, struct span s, uint64_t off)
{
	while (s.n) {
		struct io_req req[REQUESTS] = { 0 };
		size_t n = 0;
		int r;

		for (; n < REQUESTS && s.n; n++) {
			size_t part = request_bytes(s.n, off);

			/* The engine writes from the memory only. */
			req[n] = (struct io_req){ .op = IO_WRITE, .file = file, .off = off, .n = part,
						  .p = (void *)(uintptr_t)s.p };
			s = span_from(s, part);
			off += part;
		}
		r = io_run(file->io, req, n);
		if (r < 0)
			return r;
	}
	return 0;
}
