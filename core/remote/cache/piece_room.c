/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece_room.c - the limit of the cache on disk.
 *
 * A group is scanned at the first addition, when its share is full, and after an eighth of the
 * share has been added, since other processes add to it, too. Eviction leaves a quarter of the
 * share free, so most additions scan nothing.
 *
 * Within one process the limit is strict: `used` is never less than the bytes of the files that
 * exist and of those that are being written. Processes that add at once learn of each other's
 * bytes at their next scan, so together they can exceed the limit by what each adds until then: an
 * eighth, and the pieces that it is writing.
 *
 * The time of use is the file's time of change (piece_dir.c sets it).
 */
#include "core/remote/cache/piece_room.h"

#include <pthread.h>
#include <stdio.h>

#include "core/base/array.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/remote/cache/piece.h"

#define DIRS 256
#define GROUP_BYTES (64 * MiB) /* the smallest share, unless there is only one group */
#define FOUND_MAX 65536        /* files of a group, 7 MiB; more are counted, but not evicted */
#define ABANDONED_NS (3600 * SECOND_NS) /* age at which a file that was never renamed is removed */
#define DISK_BLOCK 4096                 /* files take multiples of it on disk */

struct group {
	pthread_mutex_t lock; /* held across a scan of the group; protects what follows */
	bool is_known;
	uint64_t used, added; /* bytes now, at most; bytes added since the last scan */
	uint64_t pending;     /* bytes of pieces that are being written */
};

struct piece_room {
	struct io_dir *top;
	uint64_t share;
	unsigned dirs; /* per group */
	struct group group[DIRS];
	atomic_ullong evicted;
};

struct found {
	int64_t used_at;
	uint64_t bytes;
	uint8_t dir;
	char name[PIECE_NAME_MAX];
};

struct look {
	struct piece_room *room;
	uint8_t dir;
	struct found *found;
	size_t n, cap;
	uint64_t bytes;
};

int piece_room_new(struct io_dir *top, uint64_t limit, struct piece_room **ret)
{
	struct piece_room *room = calloc(1, sizeof(*room));
	unsigned groups = 1;

	if (!room)
		return fail(-ENOMEM, "cannot open a cache on disk");
	while (groups < DIRS && limit / (2 * groups) >= GROUP_BYTES)
		groups *= 2;
	room->top = top;
	room->share = limit / groups;
	room->dirs = DIRS / groups;
	for (unsigned i = 0; i < DIRS; i++)
		pthread_mutex_init(&room->group[i].lock, NULL);
	*ret = room;
	return 0;
}

void piece_room_free(struct piece_room *room)
{
	if (!room)
		return;
	for (unsigned i = 0; i < DIRS; i++)
		pthread_mutex_destroy(&room->group[i].lock);
	free(room);
}

uint64_t piece_room_evicted(const struct piece_room *room)
{
	return atomic_load(&room->evicted);
}

/* ---- scanning a group ---- */

static void room_path_of(char ret[PIECE_ROOM_NAME_MAX], uint8_t dir, const char *name)
{
	snprintf(ret, PIECE_ROOM_NAME_MAX, "%02x/%s", dir, name);
}

static int room_look_at(void *arg, const char *name, unsigned char type)
{
	struct look *l = arg;
	bool is_piece = piece_is_name(name);
	char path[PIECE_ROOM_NAME_MAX];
	struct stat st;

	/* Other files are not ours: they are neither counted nor removed. */
	if (!is_piece && strncmp(name, PIECE_ROOM_TEMPORARY, strlen(PIECE_ROOM_TEMPORARY)) != 0)
		return 0;
	if (strlen(name) >= PIECE_NAME_MAX)
		return 0;
	room_path_of(path, l->dir, name);
	if (io_stat(l->room->top, path, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	if (!is_piece) {
		if (!clock_is_near(clock_ns_of(st.st_mtim), ABANDONED_NS))
			io_dirop(l->room->top, IO_UNLINK, path, NULL, 0);
		return 0;
	}
	l->bytes += round_up((uint64_t)st.st_size, DISK_BLOCK);
	if (l->n == FOUND_MAX || !array_reserve(l->found, l->cap, l->n + 1))
		return 0;
	l->found[l->n] = (struct found){ .used_at = clock_ns_of(st.st_mtim),
					 .bytes = round_up((uint64_t)st.st_size, DISK_BLOCK),
					 .dir = l->dir };
	strcpy(l->found[l->n++].name, name);
	return 0;
}

static int by_use(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	return (x->used_at > y->used_at) - (x->used_at < y->used_at);
}

/* Scan a group and make room for n bytes; returns the bytes that remain. */
static uint64_t look_through(struct piece_room *room, unsigned first_dir, uint64_t n)
{
	struct look l = { .room = room };
	char path[PIECE_ROOM_NAME_MAX];
	int r = 0;

	for (unsigned i = 0; i < room->dirs && (r >= 0 || r == -ENOENT); i++) {
		char dir[3];

		l.dir = (uint8_t)(first_dir + i);
		snprintf(dir, sizeof(dir), "%02x", l.dir);
		r = io_list(room->top, dir, room_look_at, &l);
	}
	/* A directory that cannot be listed may be full. */
	if (r < 0 && r != -ENOENT)
		l.bytes = room->share;
	else if (l.bytes + n > room->share) {
		qsort(l.found, l.n, sizeof(*l.found), by_use);
		for (size_t i = 0; i < l.n && l.bytes + n > room->share - room->share / 4; i++) {
			room_path_of(path, l.found[i].dir, l.found[i].name);
			r = io_dirop(room->top, IO_UNLINK, path, NULL, 0);
			if (r >= 0)
				atomic_fetch_add(&room->evicted, 1);
			/* Another process may have removed it. */
			if (r >= 0 || r == -ENOENT)
				l.bytes -= l.found[i].bytes;
		}
	}
	free(l.found);
	err_clear();
	return l.bytes;
}

static uint64_t bytes_on_disk(uint64_t n)
{
	return round_up(n + PIECE_TAIL_MAX, DISK_BLOCK);
}

bool piece_room_make(struct piece_room *room, uint8_t dir, uint64_t n)
{
	unsigned at = dir / room->dirs;
	struct group *g = &room->group[at];
	bool fits;

	n = bytes_on_disk(n);
	if (n > room->share - room->share / 4)
		return false;
	pthread_mutex_lock(&g->lock);
	if (g->pending + n > room->share - room->share / 4) {
		pthread_mutex_unlock(&g->lock);
		return false;
	}
	if (!g->is_known || g->used + n > room->share || g->added + n > room->share / 8) {
		/* A pending piece may be renamed during the scan, and is counted twice then. */
		g->used = g->pending + look_through(room, at * room->dirs, g->pending + n);
		g->added = 0;
		g->is_known = true;
	}
	/* Pending pieces cannot be removed, and may leave too little. */
	fits = g->used + n <= room->share;
	if (fits) {
		g->used += n;
		g->added += n;
		g->pending += n;
	}
	pthread_mutex_unlock(&g->lock);
	return fits;
}

void piece_room_written(struct piece_room *room, uint8_t dir, uint64_t n)
{
	struct group *g = &room->group[dir / room->dirs];

	pthread_mutex_lock(&g->lock);
	g->pending -= bytes_on_disk(n);
	pthread_mutex_unlock(&g->lock);
}
