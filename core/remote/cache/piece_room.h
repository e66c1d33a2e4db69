/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece_room.h - the limit of the cache on disk, and the eviction of pieces.
 *
 * Names are hashes, so the 256 directories grow evenly, and each group of them has its share of the
 * limit. A process that fills a group scans that group alone: it needs neither a list of all files
 * nor an agreement with other processes.
 */
#ifndef PYTREEFS_CORE_PIECE_PIECE_ROOM_H
#define PYTREEFS_CORE_PIECE_PIECE_ROOM_H

#include "core/io/io.h"

/* The prefix of the names, after "ab/", of files that are being written. */
#define PIECE_ROOM_TEMPORARY "new-"
#define PIECE_ROOM_NAME_MAX 80

struct piece_room;

/* top has the 256 directories; the caller keeps it open. */
int piece_room_new(struct io_dir *top, uint64_t limit, struct piece_room **ret);
/* Accepts NULL. */
void piece_room_free(struct piece_room *room);
/*
 * Count a piece of n bytes that is about to be added to directory number `dir`. If its group is
 * full, remove the longest unused pieces. False: the piece must not be added. True: call
 * piece_room_written() when the file has its name, or could not be written.
 */
bool piece_room_make(struct piece_room *room, uint8_t dir, uint64_t n);
void piece_room_written(struct piece_room *room, uint8_t dir, uint64_t n);
uint64_t piece_room_evicted(const struct piece_room *room);

#endif
