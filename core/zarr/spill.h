/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spill.h - an unlinked file for the decoded pieces of one large chunk. It is never synced.
 *
 * One thread writes; any thread may read what was written before. Errors have a note; a read beyond
 * the written bytes is -EIO.
 */
#ifndef PYTREEFS_SPILL_H
#define PYTREEFS_SPILL_H

#include <stddef.h>
#include <stdint.h>

struct spill;

/* Create it in directory dir. -ENOSPC and other errors of the file system. */
int spill_open(const char *dir, struct spill **ret);
int spill_write(struct spill *s, const void *p, size_t n, uint64_t off);
int spill_read(struct spill *s, void *p, size_t n, uint64_t off);
/* Accepts NULL. */
void spill_close(struct spill *s);

#endif
