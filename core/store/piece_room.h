/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece_room.h - how much the cache on disk has, and what goes when it is too much.
 *
 * Names are hashes, so the 256 directories grow evenly, and each group of them has its share of the
 * limit. Only a group is looked through at a time, by whom it has too much: it needs neither a list
 * of all files nor an agreement with other processes.
 */
#ifndef PYTREEFS_CORE_STORE_PIECE_ROOM_H
#define PYTREEFS_CORE_STORE_PIECE_ROOM_H

#include "core/io/io.h"

/* Names of files that are being written begin so, after "ab/". */
#define PIECE_ROOM_TEMPORARY "new-"
#define PIECE_ROOM_NAME_MAX 80

struct piece_room;

/* top: the directory of the 256, which the caller keeps open. */
int piece_room_new(struct io_dir *top, uint64_t limit, struct piece_room **ret);
/* Accepts NULL. */
void piece_room_free(struct piece_room *room);
/*
 * Count a piece of n bytes that is about to be added to the directory of that number, and remove
 * the longest unused ones of its group if it is too many. False: it is not to be added.
 */
bool piece_room_make(struct piece_room *room, uint8_t dir, uint64_t n);
uint64_t piece_room_evicted(const struct piece_room *room);

#endif
