/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_pins.h - the objects of a store that a reader of many of them has opened, so that what it
 * reads is of one time.
 *
 * A file is pinned as long as it is open. A database or an item opens its files again and again,
 * and what it knows of one (an index, the grid of an array) is true of the objects that were there
 * when it was opened. What has replaced one of these is an error from then on, for all of them. An
 * object that is opened for the first time is refused if it was written since the reader began, by
 * the clock of the server, which counts whole seconds.
 *
 * Files of a file system are not looked at. The owner locks.
 */
#ifndef PYTREEFS_IO_PINS_H
#define PYTREEFS_IO_PINS_H

#include "core/io/io.h"

struct io_pin {
	uint64_t path, ino; /* hashes: of the path, of the path and the tag; path 0: a free place */
	uint64_t size;
};

/* Zeroed it is ready. */
struct io_pins {
	struct io_pin *pin; /* a hash table of `cap` places, a power of two */
	size_t n, cap;
	bool is_stale; /* one of them was replaced */
	int64_t date;  /* of the server, when the reader began; 0: unknown */
};

/* The reader of this directory begins now. */
void io_pins_begin(struct io_pins *p, const struct io_dir *dir);
/*
 * Remember the object of a path below dir, or check that it is still the one of the first time:
 * -ESTALE. Where memory is short, an object is not remembered.
 */
int io_pins_check(struct io_pins *p, const struct io_dir *dir, const struct io_file *file);
/* There is no object of that path below dir: -ESTALE if there was one. */
int io_pins_absent(struct io_pins *p, const struct io_dir *dir, const char *name);
void io_pins_release(struct io_pins *p);

#endif
