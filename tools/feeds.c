/*
 * feeds.c - names first, then contents, by several threads.
 *
 * Names are made before the first byte is read, so that an input that can be no
 * tree is refused at once.
 */
#include "tools/feeds.h"

#include <fcntl.h>
#include <stdio.h>

#include "core/base/err.h"
#include "handlers/draft_file.h"
#include "handlers/npy.h"
#include "tools/interrupt.h"
#include "tools/team_work.h"
#include "tools/walk.h"

void feeds_release(struct feeds *f)
{
	free(f->dir);
	free(f->feed);
	free(f->mark);
	arena_release(&f->arena);
	*f = (struct feeds){ 0 };
}

/* Room for one more of size bytes. */
static int grow(void *array, size_t n, size_t *cap, size_t size)
{
	size_t bigger = *cap ? 2 * *cap : 64;
	void *more;

	if (n < *cap)
		return 0;
	more = reallocarray(*(void **)array, bigger, size);
	if (!more)
		return fail(-ENOMEM, "cannot list %zu leaves", bigger);
	*(void **)array = more;
	*cap = bigger;
	return 0;
}

static const char *full_path(struct feeds *f, const char *path)
{
	const char *at = f->at ? f->at : "";
	size_t n = strlen(at) + strlen(path) + 2;
	char *text = arena_alloc(&f->arena, n);

	if (text)
		snprintf(text, n, "%s%s%s", at, *at && *path ? "/" : "", path);
	return text;
}

int feeds_dir(struct feeds *f, const char *path)
{
	int r = grow(&f->dir, f->n_dirs, &f->cap_dirs, sizeof(*f->dir));
	const char *full = r < 0 ? NULL : full_path(f, path);

	if (!full)
		return fail(-ENOMEM, "cannot list '%s'", path);
	f->dir[f->n_dirs++] = full;
	return 0;
}

int feeds_mark(struct feeds *f, const char *path, const char *name, const char *value)
{
	int r = grow(&f->mark, f->n_marks, &f->cap_marks, sizeof(*f->mark));
	struct feed_mark m = { 0 };

	if (r >= 0) {
		m.path = full_path(f, path);
		m.name = arena_str(&f->arena, name);
		m.value = arena_str(&f->arena, value);
	}
	if (!m.path || !m.name || !m.value)
		return fail(-ENOMEM, "cannot describe '%s'", path);
	f->mark[f->n_marks++] = m;
	return 0;
}

int feeds_file(struct feeds *f, const char *path, const char *from, const struct feed_ops *ops, const void *arg,
	       uint64_t bytes)
{
	int r = grow(&f->feed, f->n, &f->cap, sizeof(*f->feed));
	struct feed one = { .ops = ops, .arg = arg, .bytes = bytes };

	if (r >= 0) {
		one.path = full_path(f, path);
		one.from = arena_str(&f->arena, from);
	}
	if (!one.path || !one.from)
		return fail(-ENOMEM, "cannot list '%s'", path);
	f->feed[f->n++] = one;
	return 0;
}

bool feeds_selects(const char *path, const char *only)
{
	auto_buf bare = { 0 };

	if (!only)
		return true;
	if (buf_add_str(&bare, path) < 0)
		return false;
	bare.n -= strlen(name_ext_text(name_ext_of(buf_span(&bare))));
	while (*only) {
		size_t n = strcspn(only, "\n");
		auto_free char *one = span_dup_str(span_of(only, n));

		if (one && buf_str(&bare) && (walk_glob(one, path) || walk_glob(one, buf_str(&bare))))
			return true;
		only += n + (only[n] == '\n');
	}
	return false;
}

/* ---- texts ---- */

static int text_open(struct feed_reading *rd)
{
	rd->size = ((const struct span *)rd->feed->arg)->n;
	return 0;
}

static int text_read(struct feed_reading *rd, uint64_t off, size_t n, void *p)
{
	memcpy(p, ((const struct span *)rd->feed->arg)->p + off, n);
	return 0;
}

static void nothing_to_close(struct feed_reading *rd)
{
}

static const struct feed_ops text_ops = { .open = text_open, .read = text_read, .close = nothing_to_close };

int feeds_text(struct feeds *f, const char *path, const char *from, struct span text)
{
	struct span *copy = arena_alloc(&f->arena, sizeof(*copy));

	if (copy)
		*copy = span_of(arena_dup(&f->arena, text), text.n);
	if (!copy || !copy->p)
		return fail(-ENOMEM, "cannot keep '%s'", path);
	return feeds_file(f, path, from, &text_ops, copy, text.n);
}

/* ---- ranges of files ---- */

struct range {
	int fd;				/* -1: the file that the feed comes from, opened to be read */
	uint64_t at, bytes;
	struct span head;		/* in front of them */
};

static int range_open(struct feed_reading *rd)
{
	const struct range *g = rd->feed->arg;

	rd->fd = g->fd < 0 ? open(rd->feed->from, O_RDONLY | O_CLOEXEC) : g->fd;
	if (rd->fd < 0)
		return err_sys("cannot open", rd->feed->from);
	rd->size = g->head.n + g->bytes;
	return 0;
}

static void range_close(struct feed_reading *rd)
{
	const struct range *g = rd->feed->arg;

	if (g->fd < 0)
		close(rd->fd);
}

static int range_read(struct feed_reading *rd, uint64_t off, size_t n, void *p)
{
	const struct range *g = rd->feed->arg;
	uint8_t *to = p;

	if (off < g->head.n) {
		size_t part = (size_t)MIN((uint64_t)n, g->head.n - off);

		memcpy(to, g->head.p + off, part);
		off += part;
		to += part;
		n -= part;
	}
	while (n > 0) {
		ssize_t got = pread(rd->fd, to, n, (off_t)(g->at + off - g->head.n));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_sys("cannot read", rd->feed->from);
		if (got == 0)
			return fail(-EUCLEAN, "'%s' ends at byte %llu, more was announced", rd->feed->from,
				    (unsigned long long)(g->at + off - g->head.n));
		off += (uint64_t)got;
		to += got;
		n -= (size_t)got;
	}
	return 0;
}

static const struct feed_ops range_ops = { .open = range_open, .read = range_read, .close = range_close };

static int add_range(struct feeds *f, const char *path, const char *from, const struct range *g)
{
	struct range *copy = arena_alloc(&f->arena, sizeof(*copy));

	if (!copy)
		return fail(-ENOMEM, "cannot list '%s'", path);
	*copy = *g;
	return feeds_file(f, path, from, &range_ops, copy, g->bytes);
}

int feeds_stored(struct feeds *f, const char *path, const char *file, uint64_t bytes)
{
	const struct range g = { .fd = -1, .bytes = bytes };

	return add_range(f, path, file, &g);
}

int feeds_mark_dtype(struct feeds *f, const char *path, enum dtype t)
{
	bool big;

	return dtype_by_npy(span_str(dtype_info(t)->npy), &big) == t ? 0 :
									feeds_mark(f, path, "dtype", dtype_info(t)->name);
}

int feeds_array(struct feeds *f, const char *path, const char *from, int fd, uint64_t at, enum dtype t,
		unsigned rank, const uint64_t *shape, uint64_t bytes)
{
	struct range g = { .fd = fd, .at = at, .bytes = bytes };
	auto_buf head = { 0 };
	int r = npy_header(t, rank, shape, &head);

	if (r >= 0)
		r = arena_keep(&f->arena, buf_span(&head), &g.head);
	if (r >= 0)
		r = feeds_mark_dtype(f, path, t);
	return r < 0 ? r : add_range(f, path, from, &g);
}

int feeds_scalar(struct feeds *f, const char *path, const char *from, enum dtype t, const void *element)
{
	auto_buf text = { 0 };
	int r = dtype_value_print(t, element, &text);

	if (r >= 0)
		r = feeds_text(f, path, from, buf_span(&text));
	return r < 0 ? r : feeds_mark(f, path, "dtype", dtype_info(t)->name);
}

/* ---- names in the draft ---- */

/* The node at a path, made where it is not there; the last name too, as a directory or a file. */
static int make_path(struct draft *d, const char *path, bool is_dir, struct draft_node **ret)
{
	struct draft_node *at = draft_node_ref(d->root), *next;
	int r = 0;

	while (*path && r >= 0) {
		size_t n = strcspn(path, "/");
		struct span name = span_of(path, n);
		bool last = !path[n];

		r = draft_lookup(at, name, &next);
		if (r == -ENOENT) {
			err_clear();
			r = last && !is_dir ? draft_create(at, name, &next) : draft_mkdir(at, name, &next);
		} else if (r >= 0 && (next->is_dir != (!last || is_dir) || (last && !is_dir))) {
			draft_node_unref(next);
			r = fail(-EINVAL, "'%.*s' is there twice", SPAN_ARG(name));
		}
		if (r >= 0) {
			draft_node_unref(at);
			at = next;
		}
		path += n + (path[n] == '/');
	}
	if (r < 0) {
		draft_node_unref(at);
		return r;
	}
	*ret = at;
	return 0;
}

static int make_dirs(const struct feeds *f, struct draft *d)
{
	int r = 0;

	for (size_t i = 0; i < f->n_dirs && r >= 0; i++) {
		struct draft_node *n;

		r = make_path(d, f->dir[i], true, &n);
		if (r < 0)
			return err_at(r, "'%s'", f->dir[i]);
		draft_node_unref(n);
	}
	return r;
}

static int find_path(struct draft *d, const char *path, struct draft_node **ret)
{
	struct draft_node *at = draft_node_ref(d->root), *next;

	while (*path) {
		size_t n = strcspn(path, "/");
		int r = draft_lookup(at, span_of(path, n), &next);

		draft_node_unref(at);
		if (r < 0)
			return fail(r, "nothing is called so");
		at = next;
		path += n + (path[n] == '/');
	}
	*ret = at;
	return 0;
}

static int set_mark(const struct feed_mark *m, struct draft *d)
{
	struct span value = span_str(m->value);
	char name[128];
	struct draft_node *n;
	int r = find_path(d, m->path, &n);

	if (r < 0)
		return err_at(r, "'%s'", m->path);
	snprintf(name, sizeof(name), "user.pytree.%s", m->name);
	r = draft_set_xattr(n, name, &value, 0);
	draft_node_unref(n);
	return r < 0 ? err_at(r, "'%s'", m->path) : 0;
}

static int set_marks(struct feeds *f, struct draft *d, bool all)
{
	int r = 0;

	for (size_t i = 0; i < f->n_marks && r >= 0; i++) {
		struct draft_node *n;

		if (!all && find_path(d, f->mark[i].path, &n) < 0) {
			err_clear();
			continue;
		}
		if (!all)
			draft_node_unref(n);
		r = set_mark(&f->mark[i], d);
	}
	return r;
}

/* The directories that a file of this rank's is in. */
static int make_way(const struct feed *feed, struct draft *d)
{
	const char *slash = strrchr(feed->path, '/');
	auto_free char *parent = slash ? span_dup_str(span_of(feed->path, (size_t)(slash - feed->path))) : NULL;
	struct draft_node *n;
	int r = slash ? parent ? make_path(d, parent, true, &n) : -ENOMEM : 0;

	if (r >= 0 && slash)
		draft_node_unref(n);
	return r < 0 ? err_at(r, "'%s'", feed->path) : 0;
}

/* Rank 0 makes all directories; of others there are those that their own files are in. */
static int make_names(struct feeds *f, struct draft *d, const struct team *team)
{
	int rank = team ? team->peers->rank : 0, r = 0;

	/* A directory's kind decides what its names may be: directories and their marks come first. */
	if (team_is_lead(team))
		r = make_dirs(f, d);
	for (size_t i = 0; i < f->n && r >= 0 && !team_is_lead(team); i++)
		if (f->feed[i].owner == rank)
			r = make_way(&f->feed[i], d);
	if (r >= 0)
		r = set_marks(f, d, false);
	for (size_t i = 0; i < f->n && r >= 0; i++) {
		if (f->feed[i].owner != rank)
			continue;
		r = make_path(d, f->feed[i].path, false, &f->feed[i].node);
		if (r < 0)
			err_at(r, "'%s' (from '%s')", f->feed[i].path, f->feed[i].from);
	}
	return r < 0 ? r : set_marks(f, d, !team);
}

/* ---- contents ---- */

struct writing {
	struct feeds *f;
	struct progress *progress;
};

static int write_piece(struct draft_file *to, uint64_t off, const uint8_t *p, size_t n)
{
	while (n > 0) {
		ssize_t got = draft_file_write(to, off, p, n);

		if (got < 0)
			return (int)got;
		off += (uint64_t)got;
		p += got;
		n -= (size_t)got;
	}
	return 0;
}

static int copy_bytes(struct writing *w, struct feed_reading *rd, struct draft_file *to, struct lane *lane)
{
	int r = 0;

	for (uint64_t off = 0; off < rd->size && r >= 0;) {
		size_t n = (size_t)MIN((uint64_t)LANE_BYTES, rd->size - off);

		r = interrupt_check();
		if (r >= 0)
			r = rd->feed->ops->read(rd, off, n, lane->buf);
		if (r >= 0)
			r = write_piece(to, off, lane->buf, n);
		off += n;
		progress_add(w->progress, n);
	}
	return r;
}

static int write_one(void *arg, size_t i, struct lane *lane)
{
	struct writing *w = arg;
	struct feed *feed = &w->f->feed[i];
	struct feed_reading rd = { .feed = feed };
	struct draft_file *to = feed->node->file;
	struct err_note why = { 0 };
	int r = feed->ops->open(&rd), copied = 0;

	if (r < 0)
		return err_at(r, "'%s' (from '%s')", feed->path, feed->from);
	draft_file_opened(to);
	if (rd.array) {
		copied = r = draft_file_copy_leaf(to, rd.array);
		progress_add(w->progress, copied > 0 ? rd.size : 0);
	}
	if (r >= 0 && copied == 0)
		r = copy_bytes(w, &rd, to, lane);
	/* Closing a file that is not whole says things of its own. */
	if (r < 0)
		err_save(r, &why);
	feed->ops->close(&rd);
	draft_file_closed(to, false);
	r = r < 0 ? err_restore(&why) : draft_file_failed(to);
	return r < 0 ? err_at(r, "'%s' (from '%s')", feed->path, feed->from) : 0;
}

static int write_own(struct feeds *f, struct draft *d, unsigned threads, struct progress *progress,
		     const struct team *team)
{
	struct writing w = { f, progress };
	auto_free int *owner = malloc((f->n + 1) * sizeof(*owner));
	int r = owner ? make_names(f, d, team) : fail(-ENOMEM, "cannot write %zu leaves", f->n);

	for (size_t i = 0; i < f->n && owner; i++)
		owner[i] = f->feed[i].owner;
	if (r >= 0)
		r = team_lanes(team, threads, f->n, owner, write_one, &w);
	/* The draft may end before the feeds do. */
	for (size_t i = 0; i < f->n; i++)
		draft_node_unref(take(f->feed[i].node));
	return r;
}

int feeds_write(struct feeds *f, struct draft *d, unsigned threads, struct progress *progress, struct team *team)
{
	int r = feeds_share(f, team);

	for (size_t i = 0; i < f->n; i++)
		progress_expect(progress, f->feed[i].bytes);
	return r < 0 ? r : team_meet(team, write_own(f, d, threads, progress, team));
}
