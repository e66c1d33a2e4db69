/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_disk.c - turns the live disk into the disk after a power loss.
 *
 * First, the bytes of every file become those that had reached the disk. Then, every file or
 * directory with a name that was ever changed is staged, and each directory gets back the ones that
 * it has under these names on the disk. Those that are still staged in the end are lost.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "core/base/digest.h"
#include "core/base/err.h"
#include "tests/engine/crash_model.h"
#include "core/io/io_engine.h"

#define STAGED ".power-lost"

struct work {
	struct crash_model *m;
	enum crash_mode mode;
	uint64_t seed, n_choices;
	int staged; /* the staging directory */
};

/* Choose whether something that was not synced has reached the disk. */
static bool chosen(struct work *w)
{
	uint64_t n = w->n_choices++;

	return w->mode == CRASH_TEAR && (hash64(span_of(&n, sizeof(n)), w->seed) & 1);
}

/* ---- bytes ---- */

/*
 * Set the bytes of a file to those on the disk: the durable ones, and by chance sectors that were
 * only written.
 */
static int put_bytes(struct work *w, struct crash_node *n)
{
	uint64_t size = n->durable.n, end = 0;
	struct stat st;

	if (!n->touched)
		return 0;
	if (fstat(n->fd, &st) < 0)
		return err_sys("cannot stat", "a file");
	for (size_t i = 0; i * CRASH_SECTOR < (uint64_t)st.st_size; i++) {
		uint64_t off = i * CRASH_SECTOR;
		size_t len = (size_t)MIN((uint64_t)CRASH_SECTOR, (uint64_t)st.st_size - off), have;
		uint8_t was[CRASH_SECTOR] = { 0 };

		if (i < n->n_dirty && n->dirty[i] && chosen(w)) {
			end = off + len;
			continue;
		}
		have = off < n->durable.n ? MIN(len, n->durable.n - off) : 0;
		if (have)
			memcpy(was, n->durable.p + off, have);
		if (pwrite(n->fd, was, len, (off_t)off) != (ssize_t)len)
			return err_sys("cannot put back", "a file");
	}
	if (n->size_dirty && chosen(w))
		size = (uint64_t)st.st_size;
	size = MAX(size, end);
	if (ftruncate(n->fd, (off_t)size) < 0)
		return err_sys("cannot put back", "a file");
	/*
	 * Beyond the end of the live file: it was truncated, and the truncation is not on the disk.
	 */
	for (uint64_t off = (uint64_t)st.st_size; off < MIN(size, (uint64_t)n->durable.n);) {
		ssize_t r = pwrite(n->fd, n->durable.p + off,
				   MIN(size, (uint64_t)n->durable.n) - off, (off_t)off);

		if (r <= 0)
			return err_sys("cannot put back", "a file");
		off += (uint64_t)r;
	}
	return 0;
}

/* ---- names ---- */

static struct crash_name *name_of(struct crash_node *dir, const char *name)
{
	struct crash_name *at = dir->names;

	while (strcmp(at->name, name))
		at = at->next;
	return at;
}

/* Choose the changes of names that have reached the disk without a sync. */
static void choose_names(struct work *w, struct crash_node *dir)
{
	for (struct crash_change *c = dir->pending; c; c = c->next)
		if (chosen(w))
			for (int i = 0; i < 2 && c->name[i]; i++)
				name_of(dir, c->name[i])->node = c->node[i];
}

static int stage(struct work *w, struct crash_node *dir)
{
	for (struct crash_name *at = dir->names; at; at = at->next) {
		auto_close int fd = openat(dir->fd, at->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		struct crash_node *n = fd < 0 ? NULL : crash_find(w->m, fd);
		char number[16];

		if (fd < 0)
			continue;
		if (!n)
			return fail(-EIO, "'%s' is nobody's", at->name);
		snprintf(number, sizeof(number), "%u", n->number);
		if (renameat(dir->fd, at->name, w->staged, number) < 0)
			return err_sys("cannot stage", at->name);
		n->staged = true;
	}
	return 0;
}

static int copy_file(const struct crash_node *n, int dirfd, const char *name)
{
	auto_close int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	struct stat st;
	off_t at = 0;

	if (fd < 0 || fstat(n->fd, &st) < 0)
		return err_sys("cannot bring back", name);
	while (at < st.st_size)
		if (sendfile(fd, n->fd, &at, (size_t)(st.st_size - at)) <= 0)
			return err_sys("cannot bring back", name);
	return 0;
}

/* It was not removed, and has no name that changed: another process may have moved it. */
static bool is_elsewhere(const struct crash_node *n)
{
	struct stat st;

	return !n->staged && fstat(n->fd, &st) == 0 && st.st_nlink > 0;
}

static int place_one(struct work *w, struct crash_node *dir, const struct crash_name *name)
{
	struct crash_node *n = name->node;
	char number[16];

	if (!n || (n->is_dir && n->placed))
		return 0;
	if (!n->placed && is_elsewhere(n)) {
		n->placed = n->is_dir;
		return 0;
	}
	n->placed = true;
	snprintf(number, sizeof(number), "%u", n->number);
	if (n->staged) {
		n->staged = false;
		return renameat(w->staged, number, dir->fd, name->name) < 0 ?
			       err_sys("cannot place", name->name) :
			       0;
	}
	if (!n->is_dir)
		return copy_file(n, dir->fd, name->name);
	if (mkdirat(dir->fd, name->name, 0777) < 0)
		return err_sys("cannot bring back", name->name);
	close(n->fd);
	n->fd = openat(dir->fd, name->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return n->fd < 0 ? err_sys("cannot bring back", name->name) : 0;
}

/* Place directories from the top down, so that a node's parent has its place first. */
static int place_all(struct work *w)
{
	bool more = true;
	int r = 0;

	for (struct crash_node *n = w->m->nodes; n; n = n->next)
		n->placed = n->is_dir && n->was_there && is_elsewhere(n);
	for (struct crash_node *n = w->m->nodes; n; n = n->next)
		n->touched = false; /* from here on: its names are done */
	while (more && r >= 0) {
		more = false;
		for (struct crash_node *n = w->m->nodes; n && r >= 0; n = n->next) {
			if (!n->is_dir || !n->placed || n->touched)
				continue;
			n->touched = more = true;
			for (struct crash_name *at = n->names; at && r >= 0; at = at->next)
				r = place_one(w, n, at);
		}
	}
	return r;
}

static int put_names(struct work *w, struct io_engine *below, int root)
{
	struct io_dir dir = {
		.ops = &io_local_dir, .io = below, .fd = root, .path = (char *)(uintptr_t) "."
	};
	int r = 0;

	for (struct crash_node *n = w->m->nodes; n; n = n->next)
		if (n->is_dir)
			choose_names(w, n);
	if (mkdirat(root, STAGED, 0700) < 0)
		return err_sys("cannot make", STAGED);
	w->staged = openat(root, STAGED, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (struct crash_node *n = w->m->nodes; n && r >= 0; n = n->next)
		r = n->is_dir ? stage(w, n) : 0;
	if (r >= 0)
		r = place_all(w);
	close(w->staged);
	return r < 0 ? r : io_remove_tree(&dir, STAGED);
}

static size_t path_length(const struct crash_node *n)
{
	char link[64], path[PATH_MAX];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", n->fd);
	len = readlink(link, path, sizeof(path));
	return len < 0 ? SIZE_MAX : (size_t)len;
}

/*
 * Find a directory that is not staged itself: of those that existed before, the one with the
 * shortest path, since a directory with the changed name of another one is above it. NULL: no
 * directory was changed.
 */
static struct crash_node *topmost(const struct crash_model *m)
{
	struct crash_node *found = NULL;

	for (struct crash_node *n = m->nodes; n; n = n->next)
		if (n->is_dir && n->was_there && (!found || path_length(n) <= path_length(found)))
			found = n;
	return found;
}

int crash_disk(struct crash_model *m, enum crash_mode mode, uint64_t seed, struct io_engine *below)
{
	struct work w = { .m = m, .mode = mode == CRASH_LOSE ? CRASH_DROP : mode, .seed = seed };
	struct crash_node *root = topmost(m);
	int r = 0;

	if (mode == CRASH_KEEP)
		return 0;
	for (struct crash_node *n = m->nodes; n && r >= 0; n = n->next)
		r = n->is_dir ? 0 : put_bytes(&w, n);
	return r < 0 || !root ? r : put_names(&w, below, root->fd);
}
