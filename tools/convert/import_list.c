/* SPDX-License-Identifier: Apache-2.0 */
/*
 * import_list.c - lists an input, and writes the contents of its entries by several threads.
 */
#include "tools/convert/import_list.h"

#include <fcntl.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/meter.h"
#include "handlers/commit/draft_commit.h"
#include "handlers/draft/draft_file.h"
#include "handlers/plan/copy_hints.h"
#include "tools/cli/interrupt.h"
#include "tools/job/group_work.h"

/* Estimated memory of a leaf in the draft and its commit: nodes, an array, keys, metadata. */
#define LEAF_BYTES (4 * KiB)

void import_list_release(struct import_list *f)
{
	free(f->dir);
	free(f->left);
	free(f->whole);
	free(f->import_entry);
	free(f->mark);
	free(f->hint);
	meter_release(f->charged);
	arena_release(&f->arena);
	*f = (struct import_list){ 0 };
}

static int charge_more(struct import_list *f, uint64_t n)
{
	int r;

	if (f->most && f->charged + n > f->most)
		return fail(-EFBIG,
			    "%zu leaves and what is made of them need %llu bytes of memory, the "
			    "option cache and what is beside it allow %llu",
			    f->n + 1, (unsigned long long)(f->charged + n),
			    (unsigned long long)f->most);
	r = meter_charge(n);
	if (r < 0)
		return r;
	f->charged += n;
	return r;
}

/* Reserve space for one more element. */
static int import_list_grow(struct import_list *f, void *array, size_t n, size_t *cap, size_t size)
{
	size_t bigger = *cap ? 2 * *cap : 64;
	const uint64_t charge = (bigger - *cap) * size;
	void *more;
	int r;

	if (n < *cap)
		return 0;
	r = charge_more(f, charge);
	if (r < 0)
		return r;
	more = reallocarray(*(void **)array, bigger, size);
	if (!more)
		return fail(-ENOMEM, "cannot list %zu leaves", bigger);
	*(void **)array = more;
	*cap = bigger;
	return 0;
}

static const char *full_path(struct import_list *f, const char *path)
{
	const char *at = f->at ? f->at : "";
	size_t n = strlen(at) + strlen(path) + 2;
	char *text = arena_alloc(&f->arena, n);

	if (text)
		snprintf(text, n, "%s%s%s", at, *at && *path ? "/" : "", path);
	return text;
}

static int import_list_add_path(struct import_list *f, const char *path, const char ***list,
				size_t *n, size_t *cap)
{
	int r = import_list_grow(f, list, *n, cap, sizeof(**list));
	const char *full;

	if (r < 0)
		return r;
	full = full_path(f, path);
	if (!full)
		return fail(-ENOMEM, "cannot list '%s'", path);
	(*list)[(*n)++] = full;
	return 0;
}

int import_add_dir(struct import_list *f, const char *path)
{
	return import_list_add_path(f, path, &f->dir, &f->n_dirs, &f->cap_dirs);
}

int import_list_leave_out(struct import_list *f, const char *path)
{
	return import_list_add_path(f, path, &f->left, &f->n_left, &f->cap_left);
}

int import_list_keep(struct import_list *f, const char *path)
{
	return import_list_add_path(f, path, &f->whole, &f->n_whole, &f->cap_whole);
}

int import_list_mark_span(struct import_list *f, const char *path, const char *name,
			  struct span value)
{
	auto_free char *text = span_dup_str(value);

	return text ? import_list_mark(f, path, name, text) :
		      fail(-ENOMEM, "cannot describe '%s'", path);
}

int import_list_mark_shape(struct import_list *f, const char *path, const char *name,
			   const uint64_t *shape, unsigned rank)
{
	auto_buf text = { 0 };
	int r = json_put_uints(&text, shape, rank, JSON_COMPACT);

	return r < 0 ? r : import_list_mark_span(f, path, name, buf_span(&text));
}

int import_list_mark(struct import_list *f, const char *path, const char *name, const char *value)
{
	int r = import_list_grow(f, &f->mark, f->n_marks, &f->cap_marks, sizeof(*f->mark));
	struct import_mark m = { 0 };

	if (r < 0)
		return r;
	m.path = full_path(f, path);
	m.name = arena_str(&f->arena, name);
	m.value = arena_str(&f->arena, value);
	if (!m.path || !m.name || !m.value)
		return fail(-ENOMEM, "cannot describe '%s'", path);
	f->mark[f->n_marks++] = m;
	return 0;
}

static int add_hint(struct import_list *f, const char *path, struct import_hint h)
{
	int r = import_list_grow(f, &f->hint, f->n_hints, &f->cap_hints, sizeof(*f->hint));

	if (r < 0)
		return r;
	h.dir = full_path(f, path);
	if (!h.dir)
		return fail(-ENOMEM, "cannot describe '%s'", path);
	f->hint[f->n_hints++] = h;
	return 0;
}

int import_list_hint(struct import_list *f, const char *path, const char *file)
{
	const char *copy = arena_str(&f->arena, file);

	return copy ? add_hint(f, path, (struct import_hint){ .file = copy }) :
		      fail(-ENOMEM, "cannot describe '%s'", path);
}

int import_list_format(struct import_list *f, const char *path, bool ocdbt, bool zarr3)
{
	return add_hint(f, path, (struct import_hint){ .ocdbt = ocdbt, .zarr3 = zarr3 });
}

int import_add_file(struct import_list *f, const char *path, const char *from,
		    const struct import_ops *ops, const void *arg, uint64_t bytes)
{
	int r = import_list_grow(f, &f->import_entry, f->n, &f->cap, sizeof(*f->import_entry));
	struct import_entry one = { .ops = ops, .arg = arg, .bytes = bytes };
	/* Leaves of one file share its name. */
	const char *last = f->n ? f->import_entry[f->n - 1].from : NULL;

	if (r < 0)
		return r;
	r = charge_more(f, LEAF_BYTES);
	if (r < 0)
		return r;
	one.path = full_path(f, path);
	one.from = last && !strcmp(last, from) ? last : arena_str(&f->arena, from);
	if (!one.path || !one.from)
		return fail(-ENOMEM, "cannot list '%s'", path);
	f->import_entry[f->n++] = one;
	return 0;
}

/* ---- texts ---- */

static int text_open(struct import_reading *rd)
{
	rd->size = ((const struct span *)rd->import_entry->arg)->n;
	return 0;
}

static int text_read(struct import_reading *rd, uint64_t off, size_t n, void *p)
{
	memcpy(p, ((const struct span *)rd->import_entry->arg)->p + off, n);
	return 0;
}

static const struct import_ops text_ops = { .open = text_open, .read = text_read };

int import_add_text(struct import_list *f, const char *path, const char *from, struct span text)
{
	struct span *copy = arena_alloc(&f->arena, sizeof(*copy));

	if (copy)
		*copy = span_of(arena_dup(&f->arena, text), text.n);
	if (!copy || !copy->p)
		return fail(-ENOMEM, "cannot keep '%s'", path);
	return import_add_file(f, path, from, &text_ops, copy, text.n);
}

/* ---- files ---- */

static int file_open(struct import_reading *rd)
{
	rd->fd = io_open_regular(rd->import_entry->from);
	rd->size = rd->import_entry->bytes;
	return MIN(rd->fd, 0);
}

static void import_file_close(struct import_reading *rd)
{
	close(rd->fd);
}

/* Read bytes [at, at + n) of a file, which messages name. -EUCLEAN: it is shorter. */
static int import_read_range(int fd, const char *file, uint64_t at, size_t n, uint8_t *to)
{
	while (n > 0) {
		ssize_t got = pread(fd, to, n, (off_t)at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_sys("cannot read", file);
		if (got == 0)
			return fail(-EUCLEAN, "'%s' ends at byte %llu, more was announced", file,
				    (unsigned long long)at);
		at += (uint64_t)got;
		to += got;
		n -= (size_t)got;
	}
	return 0;
}

int import_read_file(const char *file, size_t max, struct buf *ret)
{
	auto_close int fd = io_open_regular(file);
	struct stat st;
	int r;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || (uint64_t)st.st_size > max)
		return fail(-EFBIG, "'%s': such files may have %llu MiB in all", file,
			    (unsigned long long)(LIMIT_JSON_BYTES / MiB));
	r = buf_reserve(ret, (size_t)st.st_size + 1);
	if (r < 0)
		return r;
	r = import_read_range(fd, file, 0, (size_t)st.st_size, ret->p);
	if (r < 0)
		return r;
	ret->n = (size_t)st.st_size;
	return 0;
}

static int file_read(struct import_reading *rd, uint64_t off, size_t n, void *p)
{
	return import_read_range(rd->fd, rd->import_entry->from, off, n, p);
}

int import_add_stored(struct import_list *f, const char *path, const char *file, uint64_t bytes)
{
	static const struct import_ops ops = { .open = file_open,
					       .read = file_read,
					       .close = import_file_close };

	return import_add_file(f, path, file, &ops, NULL, bytes);
}

int import_list_mark_dtype(struct import_list *f, const char *path, enum dtype t)
{
	bool big;

	return dtype_by_npy(span_str(dtype_info(t)->npy), &big) == t ?
		       0 :
		       import_list_mark(f, path, "dtype", dtype_info(t)->name);
}

int import_add_scalar(struct import_list *f, const char *path, const char *from, enum dtype t,
		      const void *element)
{
	auto_buf text = { 0 };
	int r = dtype_value_print(t, element, &text);

	if (r < 0)
		return r;
	r = import_add_text(f, path, from, buf_span(&text));
	return r < 0 ? r : import_list_mark(f, path, "dtype", dtype_info(t)->name);
}

/* ---- contents ---- */

struct writing {
	struct import_list *f;
	struct progress *progress;
	const size_t *order; /* the order in which entries are written */
};

static int copy_bytes(struct writing *w, struct import_reading *rd, struct draft_file *to,
		      struct worker *worker)
{
	for (uint64_t off = 0; off < rd->size;) {
		size_t n = (size_t)MIN((uint64_t)WORKER_BYTES, rd->size - off);
		int r = interrupt_check();

		if (r < 0)
			return r;
		r = rd->import_entry->ops->read(rd, off, n, worker->buf);
		if (r < 0)
			return r;
		for (size_t done = 0; done < n;) {
			ssize_t got =
				draft_file_write(to, off + done, worker->buf + done, n - done);

			if (got < 0)
				return (int)got;
			done += (size_t)got;
		}
		off += n;
		progress_add(w->progress, n);
	}
	return 0;
}

static int write_one(void *arg, size_t i, struct worker *worker)
{
	struct writing *w = arg;
	struct import_entry *import_entry = &w->f->import_entry[w->order[i]];
	struct import_reading rd = { .import_entry = import_entry };
	struct draft_file *to = import_entry->node->file;
	const bool flushed = false;
	struct err_note why = { 0 };
	int r = import_entry->ops->open(&rd), copied = 0;

	if (r < 0)
		return err_at(r, "'%s' (from '%s')", import_entry->path, import_entry->from);
	trace(TRACE_LEAF, "write '%s'", import_entry->path);
	draft_file_opened(to);
	if (rd.array) {
		copy_hint_sha256(import_entry->node, rd.has_sha256 ? rd.sha256 : NULL);
		copied = r = draft_file_copy_leaf(to, rd.array);
		progress_add(w->progress, copied > 0 ? rd.size : 0);
	}
	if (copied == 0)
		r = copy_bytes(w, &rd, to, worker);
	/* Save the note, since closing an incomplete file may replace it. */
	if (r < 0)
		err_save(r, &why);
	if (import_entry->ops->close)
		import_entry->ops->close(&rd);
	draft_file_closed(to, &flushed);
	r = r < 0 ? err_restore(&why) : draft_file_take_error(to);
	return r < 0 ? err_at(r, "'%s' (from '%s')", import_entry->path, import_entry->from) : 0;
}

static int write_own(struct import_list *f, struct draft *d, unsigned threads,
		     struct progress *progress, const struct rank_group *group)
{
	auto_free int *owner = malloc((f->n + 1) * sizeof(*owner));
	auto_free size_t *order = malloc((f->n + 1) * sizeof(*order));
	auto_free bool *first = calloc(f->n + 1, sizeof(*first));
	struct writing w = { f, progress, order };
	size_t n = 0;
	int r = owner && order && first ? import_list_make_names(f, d, group) :
					  fail(-ENOMEM, "cannot write %zu leaves", f->n);

	if (r < 0)
		return r;
	for (size_t i = 0; i < f->n; i++) {
		r = f->import_entry[i].node ? draft_is_priority(f->import_entry[i].node) : 0;
		if (r < 0)
			return r;
		first[i] = r > 0;
	}
	/* This rank's leaves that priority= selects, then all others, in their original order. */
	for (int pass = 1; pass >= 0; pass--)
		for (size_t i = 0; i < f->n; i++)
			if (first[i] == pass)
				order[n++] = i;
	for (size_t i = 0; i < f->n; i++)
		owner[i] = f->import_entry[order[i]].owner;
	return group_parallel_for(group, threads, f->n, owner, write_one, &w);
}

int import_list_write(struct import_list *f, struct draft *d, unsigned threads,
		      struct progress *progress, struct rank_group *group)
{
	int r = import_list_share(f, group);

	for (size_t i = 0; i < f->n; i++)
		progress_expect(progress, f->import_entry[i].bytes);
	if (r < 0)
		return r;
	r = write_own(f, d, threads, progress, group);
	/* The draft may end before the list is freed. */
	for (size_t i = 0; i < f->n; i++)
		draft_node_unref(take(f->import_entry[i].node));
	return group_reduce(group, r);
}
