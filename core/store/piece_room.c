/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece_room.c - the limit of the cache on disk.
 *
 * A group is looked through when it is first added to, when it has its share, and when an eighth of
 * the share has been added, since other processes add to it, too. What goes leaves a quarter of the
 * share free, so that most additions look through nothing; two processes that add at once stay
 * within the limit.
 *
 * A time of use is the file's time of change (piece_dir.c sets it).
 */
#include "core/store/piece_room.h"

#include <pthread.h>
#include <stdio.h>

#include "core/base/array.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/store/piece.h"

#define DIRS 256
#define GROUP_BYTES (64 * MiB)          /* a share is at least this, if there is more than one */
#define FOUND_MAX 65536                 /* of a group; 7 MiB. What is more is counted, and stays */
#define ABANDONED_NS (3600 * SECOND_NS) /* a file that was not renamed for so long never is */
#define DISK_BLOCK 4096                 /* what a file takes is a multiple of it */

struct group {
	uint64_t used, added; /* now, and since it was looked through */
	bool is_known, is_looked_through;
};

struct piece_room {
	struct io_dir *top;
	uint64_t share;
	unsigned dirs; /* of a group */
	pthread_mutex_t lock;
	struct group group[DIRS]; /* protected by lock */
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
	pthread_mutex_init(&room->lock, NULL);
	*ret = room;
	return 0;
}

void piece_room_free(struct piece_room *room)
{
	if (!room)
		return;
	pthread_mutex_destroy(&room->lock);
	free(room);
}

uint64_t piece_room_evicted(const struct piece_room *room)
{
	return atomic_load(&room->evicted);
}

/* ---- looking through a group ---- */

static void path_of(char ret[PIECE_ROOM_NAME_MAX], uint8_t dir, const char *name)
{
	snprintf(ret, PIECE_ROOM_NAME_MAX, "%02x/%s", dir, name);
}

static int64_t used_at(const struct stat *st)
{
	return clock_ns_of(st->st_mtim);
}

static int look_at(void *arg, const char *name, unsigned char type)
{
	struct look *l = arg;
	bool is_piece = piece_is_name(name);
	char path[PIECE_ROOM_NAME_MAX];
	struct stat st;

	/* What else is there is not ours. */
	if (!is_piece && strncmp(name, PIECE_ROOM_TEMPORARY, strlen(PIECE_ROOM_TEMPORARY)) != 0)
		return 0;
	if (strlen(name) >= PIECE_NAME_MAX)
		return 0;
	path_of(path, l->dir, name);
	if (io_stat(l->room->top, path, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	if (!is_piece) {
		if (clock_real_ns() - used_at(&st) > ABANDONED_NS)
			io_dirop(l->room->top, IO_UNLINK, path, NULL, 0);
		return 0;
	}
	l->bytes += round_up((uint64_t)st.st_size, DISK_BLOCK);
	if (l->n == FOUND_MAX || !array_reserve(l->found, l->cap, l->n + 1))
		return 0;
	l->found[l->n] = (struct found){ .used_at = used_at(&st),
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

/* The bytes that the group has then. */
static uint64_t look_through(struct piece_room *room, unsigned first_dir, uint64_t n)
{
	struct look l = { .room = room };
	char path[PIECE_ROOM_NAME_MAX];

	for (unsigned i = 0; i < room->dirs; i++) {
		char dir[3];

		l.dir = (uint8_t)(first_dir + i);
		snprintf(dir, sizeof(dir), "%02x", l.dir);
		io_list(room->top, dir, look_at, &l);
	}
	if (l.bytes + n > room->share) {
		qsort(l.found, l.n, sizeof(*l.found), by_use);
		for (size_t i = 0; i < l.n && l.bytes + n > room->share - room->share / 4; i++) {
			path_of(path, l.found[i].dir, l.found[i].name);
			/* Another process may have done it. */
			if (io_dirop(room->top, IO_UNLINK, path, NULL, 0) >= 0)
				atomic_fetch_add(&room->evicted, 1);
			l.bytes -= l.found[i].bytes;
		}
	}
	free(l.found);
	err_clear();
	return l.bytes;
}

bool piece_room_make(struct piece_room *room, uint8_t dir, uint64_t n)
{
	unsigned at = dir / room->dirs;
	struct group *g = &room->group[at];
	bool looks;

	n = round_up(n + PIECE_TAIL_MAX, DISK_BLOCK);
	if (n > room->share - room->share / 4)
		return false;
	pthread_mutex_lock(&room->lock);
	looks = !g->is_looked_through &&
		(!g->is_known || g->used + n > room->share || g->added + n > room->share / 8);
	g->is_looked_through |= looks;
	if (looks)
		g->added = 0;
	g->added += n;
	g->used += n;
	pthread_mutex_unlock(&room->lock);
	if (!looks)
		return true;
	/* Others may add to the group meanwhile; what they add is counted by them. */
	uint64_t used = look_through(room, at * room->dirs, n);

	pthread_mutex_lock(&room->lock);
	g->used = used + g->added;
	g->is_known = true;
	g->is_looked_through = false;
	pthread_mutex_unlock(&room->lock);
	return true;
}
