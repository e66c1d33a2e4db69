/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_drivers.h - the drivers of commits by one process, and operations that those of a job share
 * with them (handlers/draft/commit_driver.h).
 */
#ifndef PYTREEFS_DRAFT_DRIVERS_H
#define PYTREEFS_DRAFT_DRIVERS_H

#include "handlers/commit/draft_items.h"
#include "handlers/draft/commit_driver.h"

extern const struct commit_driver directory_driver, in_place_driver, bucket_driver, mounted_driver;

int draft_check_new(const struct draft_env *env, struct span final);
/* Let the draft become any step, or only the one that it was begun as. */
int draft_set_final(struct draft *d, const char *name);
int draft_keep_final(struct draft *d, const char *name);
bool draft_moves_all(const struct plan *p);
/* The plans of `item` have all of the step. (commit_whole.c) */
int commit_whole(struct draft *d, struct sealing_item *item, size_t n, struct span custom, int r,
		 int64_t deadline);
int draft_open_finished(struct draft *d, const char *path, struct item **ret);
void draft_leave_directory(struct draft *d);
/* For SOURCEs that are URLs. */
void draft_space_of_bucket(struct statvfs *ret);
int draft_refuse_replace(const char *path);

#endif
