/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - the memory that this process may use, for sizes that are "auto".
 */
#ifndef PYTREEFS_MEMORY_H
#define PYTREEFS_MEMORY_H

#include <stdint.h>

/*
 * Returns the smaller of the memory that is available on the machine (MemAvailable) and the limit
 * of the control group of this process, in bytes.
 *
 * Version 2 of control groups: the smallest memory.max and memory.high of the group and those above
 * it. Version 1: memory.limit_in_bytes of the group, and its hierarchical_memory_limit, which has
 * those above. Memory that the group uses already is not subtracted, since most of it is often the
 * kernel's page cache. root: "" for this machine; else a directory that has proc/ and sys/.
 */
uint64_t memory_available(const char *root);
/*
 * The same, less what each of these groups uses apart from the page cache: what this process may
 * still allocate before something is killed.
 */
uint64_t memory_left(const char *root);

#endif
