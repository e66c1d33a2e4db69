/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_pins.c - remembers the objects that a reader has opened.
 */
#include "core/io/io_pins.h"

#include <stdlib.h>

#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/meter.h"
#include "core/io/io_store.h"

#define FIRST_PLACES 64

/* The clock of the directory's server in seconds since 1970, by its last answer; 0: unknown. */
static int64_t server_date(const struct io_dir *dir)
{
	struct io_store_stats s = { 0 };

	return io_dir_in_store(dir) && io_store_stats(dir->io, &s) ? s.date : 0;
}

void io_pins_begin(struct io_pins *p, const struct io_dir *dir)
{
	p->date = server_date(dir);
}

/* The place of a path: its own, or the free one where it belongs. There is a free one. */
static struct io_pin *place_of(const struct io_pins *p, uint64_t path)
{
	size_t i = (size_t)path & (p->cap - 1);

	while (p->pin[i].path && p->pin[i].path != path)
		i = (i + 1) & (p->cap - 1);
	return &p->pin[i];
}

/* Make room for one more. Returns false when memory is short. */
static bool reserve(struct io_pins *p)
{
	struct io_pins more = { .cap = p->cap ? 2 * p->cap : FIRST_PLACES };

	if (p->n < p->cap - p->cap / 4)
		return true;
	if (meter_charge(more.cap * sizeof(*more.pin)) < 0) {
		err_clear();
		return false;
	}
	more.pin = calloc(more.cap, sizeof(*more.pin));
	if (!more.pin) {
		meter_release(more.cap * sizeof(*more.pin));
		return false;
	}
	for (size_t i = 0; i < p->cap; i++)
		if (p->pin[i].path)
			*place_of(&more, p->pin[i].path) = p->pin[i];
	free(p->pin);
	meter_release(p->cap * sizeof(*p->pin));
	p->pin = more.pin;
	p->cap = more.cap;
	return true;
}

static uint64_t hash_of(const char *name)
{
	uint64_t hash = hash64(span_str(name), 0);

	return hash ? hash : 1;
}

int io_pins_check(struct io_pins *p, const struct io_dir *dir, const struct io_file *file)
{
	uint64_t path = hash_of(file->name);
	int64_t written = (int64_t)file->mtime.tv_sec;
	struct io_pin *pin;

	if (!file->key)
		return 0;
	pin = p->cap ? place_of(p, path) : NULL;
	if (pin && pin->path && (pin->ino != file->ino || pin->size != file->size)) {
		p->is_stale = true;
		return fail(-ESTALE,
			    "'%s/%s' was replaced since its item was opened: its tag is %s now, "
			    "with %llu bytes",
			    dir->path, file->name, *file->tag ? file->tag : "unknown",
			    (unsigned long long)file->size);
	}
	/*
	 * It was written after the reader began, by the clock of its server. A server that has no
	 * times may answer with the present one.
	 */
	if (!(pin && pin->path) && p->date && written > p->date && written < server_date(dir)) {
		p->is_stale = true;
		return fail(-ESTALE, "'%s/%s' was replaced since its item was opened", dir->path,
			    file->name);
	}
	if (p->is_stale)
		return fail(-ESTALE, "'%s' was replaced since it was opened", dir->path);
	if (!(pin && pin->path) && reserve(p)) {
		*place_of(p, path) = (struct io_pin){ path, file->ino, file->size };
		p->n++;
	}
	return 0;
}

int io_pins_absent(struct io_pins *p, const struct io_dir *dir, const char *name)
{
	if (!p->cap || !place_of(p, hash_of(name))->path)
		return 0;
	p->is_stale = true;
	return fail(-ESTALE, "'%s/%s' was removed since its item was opened", dir->path, name);
}

void io_pins_release(struct io_pins *p)
{
	free(p->pin);
	meter_release(p->cap * sizeof(*p->pin));
	*p = (struct io_pins){ 0 };
}
