/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_files.h - decoded leaves in files that the kernel reads by itself.
 *
 * A leaf that decode-ahead expects (ahead.h) is decoded into a file of a tmpfs that is mounted
 * nowhere, and open() names that file to the kernel (fs/passthrough.h): reads and maps take its
 * pages, without a request. A tmpfs can have pages of 2 MiB, and FUSE's page cache only has those
 * of 4 KiB, which cost five times as much for each byte that is put there or read (rows "whole zstd
 * tree" of tests/bench). It takes root and Linux 6.9; elsewhere leaves are read by requests.
 *
 * Without swap the kernel cannot take the memory of these files back, so they have a quarter of
 * what is available (memory_left()) at most, which is measured for each new file, and several times
 * a second as long as there is any. When it shrinks, the longest unused files go, and a file that
 * nobody has used for MEMORY_IDLE_NS makes room for another one. A leaf that has no room is read
 * by requests, and remains in the page cache: a tree that is larger than that is not decoded
 * again by the next reader because each leaf has displaced another one. A file that is open or
 * mapped keeps its memory, which counts.
 *
 * Any thread may call these functions.
 */
#ifndef PYTREEFS_MEMORY_FILES_H
#define PYTREEFS_MEMORY_FILES_H

#include "handlers/format/format.h"

#define MEMORY_FILE_LEAST MiB
#define MEMORY_FILE_MOST (256 * MiB + MiB) /* one thread decodes it, and open() waits for that */
#define MEMORY_IDLE_NS (60 * SECOND_NS)

struct memory_files;
struct memory_file;
struct zarr_guess;

/* A leaf: its item (item->owner), and its number in the tree. */
struct memory_key {
	uint64_t owner;
	uint32_t leaf;
};

/*
 * Make the tmpfs. -errno without a note: this process may not, or the kernel has no large pages.
 */
int memory_files_new(struct memory_files **ret);
/* No file may be open any more. Accepts NULL. */
void memory_files_free(struct memory_files *m);
/* The descriptor of the tmpfs, for the rules of a sandbox. -1 for NULL. */
int memory_files_dir(const struct memory_files *m);
/* Whether the kernel reads backing files, which a mount learns from INIT. Accepts NULL. */
void memory_files_allow(struct memory_files *m, bool is_allowed);
bool memory_files_allowed(struct memory_files *m);

/* Whether the leaf has a file, or will have one soon. Accepts NULL. */
bool memory_files_have(struct memory_files *m, const struct memory_key *key);
/*
 * Get the file of a leaf, with a reference, once it is complete. If there is none and f is not
 * NULL, this thread decodes the leaf into one. Returns NULL if there is none, no room for it, or
 * the leaf cannot be decoded, of which its reader will be told; with a guess also if that ended, or
 * if another thread is filling the file.
 */
struct memory_file *memory_file_get(struct memory_files *m, const struct memory_key *key,
				    const struct format *f, const struct zarr_guess *guess);
int memory_file_fd(const struct memory_file *f);
/* Give the reference back. Accepts NULL. */
void memory_file_put(struct memory_files *m, struct memory_file *f);
/*
 * Remove the files of an item, also those that are being filled; 0: of all items. Those that begin
 * afterwards are not affected. Accepts NULL.
 */
void memory_files_drop(struct memory_files *m, uint64_t owner);

struct memory_files_stats {
	uint64_t files, bytes, filled, refused;
};
/* Accepts NULL. */
void memory_files_stats(struct memory_files *m, struct memory_files_stats *ret);

#endif
