/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_model.c - tracks which bytes and names are durable, beside the live files.
 *
 * crash_disk.c makes the disk after a power loss.
 */
#include "tests/engine/crash_model.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "core/base/err.h"

static void node_free(struct crash_node *n)
{
	for (struct crash_name *at = n->names, *next; at; at = next) {
		next = at->next;
		free(at->name);
		free(at);
	}
	for (struct crash_change *at = n->pending, *next; at; at = next) {
		next = at->next;
		free(at->name[0]);
		free(at->name[1]);
		free(at);
	}
	close(n->fd);
	buf_release(&n->durable);
	free(n->dirty);
	free(n);
}

void crash_model_release(struct crash_model *m)
{
	for (struct crash_node *n = m->nodes, *next; n; n = next) {
		next = n->next;
		node_free(n);
	}
	*m = (struct crash_model){ 0 };
}

struct crash_node *crash_find(struct crash_model *m, int fd)
{
	struct crash_node *n;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return NULL;
	for (n = m->nodes; n && (n->dev != st.st_dev || n->ino != st.st_ino); n = n->next)
		;
	return n;
}

/*
 * Get a descriptor that can be read, and written for files, whatever the mode of the caller's is.
 */
static int open_again(int fd, bool is_dir)
{
	char path[64];
	int mine;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	mine = open(path, is_dir ? O_RDONLY | O_DIRECTORY | O_CLOEXEC : O_RDWR | O_CLOEXEC);
	return mine < 0 ? err_sys("cannot follow", path) : mine;
}

int crash_node_of(struct crash_model *m, int fd, bool is_new, struct crash_node **ret)
{
	struct crash_node *n = crash_find(m, fd);
	struct stat st;

	if (!n) {
		n = calloc(1, sizeof(*n));
		if (!n || fstat(fd, &st) < 0) {
			free(n);
			return fail(-ENOMEM, "cannot follow a file");
		}
		n->dev = st.st_dev;
		n->ino = st.st_ino;
		n->is_dir = S_ISDIR(st.st_mode);
		n->was_there = !is_new;
		n->touched = is_new && !n->is_dir;
		n->pending_end = &n->pending;
		n->number = m->n_nodes++;
		n->fd = open_again(fd, n->is_dir);
		if (n->fd < 0) {
			int r = n->fd;

			free(n);
			return r;
		}
		n->next = m->nodes;
		m->nodes = n;
	}
	*ret = n;
	return 0;
}

/* ---- bytes ---- */

/* Read [off, off + n) of the live file, and zeros after its end. */
static int read_live(const struct crash_node *n, uint64_t off, size_t len, uint8_t *ret)
{
	size_t done = 0;

	if (len > 0)
		memset(ret, 0, len);
	while (done < len) {
		ssize_t r = pread(n->fd, ret + done, len - done, (off_t)(off + done));

		if (r < 0)
			return err_sys("cannot read back", "a file");
		if (r == 0)
			return 0;
		done += (size_t)r;
	}
	return 0;
}

static int set_size(struct buf *b, uint64_t size)
{
	int r = size > b->n ? buf_reserve(b, size - b->n) : 0;

	if (r < 0)
		return r;
	if (size > b->n)
		memset(b->p + b->n, 0, size - b->n);
	b->n = size;
	return 0;
}

int crash_touch(struct crash_node *n)
{
	struct stat st;
	int r;

	if (n->touched)
		return 0;
	if (fstat(n->fd, &st) < 0)
		return err_sys("cannot stat", "a file");
	r = set_size(&n->durable, (uint64_t)st.st_size);
	if (r >= 0)
		r = read_live(n, 0, n->durable.n, n->durable.p);
	n->touched = r >= 0;
	return r;
}

int crash_wrote(struct crash_node *n, uint64_t off, uint64_t len)
{
	size_t end = (size_t)div_up(off + len, CRASH_SECTOR);

	if (end > n->n_dirty) {
		uint8_t *more = realloc(n->dirty, end);

		if (!more)
			return fail(-ENOMEM, "cannot follow a file");
		memset(more + n->n_dirty, 0, end - n->n_dirty);
		n->dirty = more;
		n->n_dirty = end;
	}
	memset(n->dirty + off / CRASH_SECTOR, 1, end - (size_t)(off / CRASH_SECTOR));
	n->size_dirty = true;
	return 0;
}

void crash_truncated(struct crash_node *n)
{
	n->size_dirty = true;
}

static int sync_file(struct crash_node *n)
{
	struct stat st;
	int r = 0;

	if (fstat(n->fd, &st) < 0)
		return err_sys("cannot stat", "a file");
	if (n->size_dirty)
		r = set_size(&n->durable, (uint64_t)st.st_size);
	for (size_t i = 0; i < n->n_dirty && r >= 0; i++)
		if (n->dirty[i] && i * CRASH_SECTOR < n->durable.n)
			r = read_live(n, i * CRASH_SECTOR,
				      MIN(CRASH_SECTOR, n->durable.n - i * CRASH_SECTOR),
				      n->durable.p + i * CRASH_SECTOR);
	return r;
}

static void forget_dirty(struct crash_node *n)
{
	if (n->n_dirty)
		memset(n->dirty, 0, n->n_dirty);
	n->size_dirty = false;
}

/* ---- names ---- */

static struct crash_name *find_name(struct crash_node *dir, const char *name)
{
	struct crash_name *at = dir->names;

	while (at && strcmp(at->name, name))
		at = at->next;
	return at;
}

/* Record the object that the disk has under a name, before its first change. */
static int remember(struct crash_node *dir, const char *name, struct crash_node *was)
{
	struct crash_name *n;

	if (find_name(dir, name))
		return 0;
	n = calloc(1, sizeof(*n));
	if (n)
		n->name = strdup(name);
	if (!n || !n->name) {
		free(n);
		return fail(-ENOMEM, "cannot follow a name");
	}
	n->node = was;
	n->next = dir->names;
	dir->names = n;
	return 0;
}

int crash_renamed(struct crash_node *dir, const char *name, struct crash_node *was,
		  struct crash_node *node, const char *other, struct crash_node *other_was,
		  struct crash_node *other_node)
{
	struct crash_change *c = calloc(1, sizeof(*c));
	int r = c ? remember(dir, name, was) : -ENOMEM;

	if (r >= 0 && other)
		r = remember(dir, other, other_was);
	if (r >= 0) {
		c->name[0] = strdup(name);
		c->name[1] = other ? strdup(other) : NULL;
		if (!c->name[0] || (other && !c->name[1]))
			r = -ENOMEM;
	}
	if (r < 0) {
		free(c);
		return fail(r, "cannot follow a name");
	}
	c->node[0] = node;
	c->node[1] = other_node;
	*dir->pending_end = c;
	dir->pending_end = &c->next;
	return 0;
}

static void forget_pending(struct crash_node *dir, bool durable)
{
	while (dir->pending) {
		struct crash_change *c = dir->pending;

		for (int i = 0; i < 2 && c->name[i]; i++) {
			if (durable)
				find_name(dir, c->name[i])->node = c->node[i];
			free(c->name[i]);
		}
		dir->pending = c->next;
		free(c);
	}
	dir->pending_end = &dir->pending;
}

/* ---- syncs ---- */

int crash_synced(struct crash_node *n)
{
	int r;

	if (!n)
		return 0;
	if (n->is_dir) {
		forget_pending(n, true);
		return 0;
	}
	r = sync_file(n);
	if (r >= 0)
		forget_dirty(n);
	return r;
}

void crash_sync_lost(struct crash_node *n)
{
	if (n && n->is_dir)
		forget_pending(n, false);
	else if (n)
		forget_dirty(n);
}
