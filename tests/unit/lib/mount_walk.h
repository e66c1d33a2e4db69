/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount_walk.h - everything that a namespace shows, as lines of text: for tests that look at it
 * again while something fails, and afterwards.
 *
 * A line is a path and what was found there: attributes, a hash of the contents, names of a
 * listing, attributes by name. In a walk with failures every line that is not a failure must be one
 * of the first walk's, and every failure one that may be. A struct walk is large: make it static.
 */
#ifndef PYTREEFS_MOUNT_WALK_H
#define PYTREEFS_MOUNT_WALK_H

#include "tests/unit/lib/unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/digest.h"
#include "handlers/namespace/ns.h"

struct walk {
	const struct walk *good; /* the first walk; NULL: this is it */
	int may;                 /* the error of the provoked failure */
	uint64_t line[1 << 15];  /* hashes of lines; sorted after the walk */
	size_t n;
	int codes[16]; /* errors of the first walk, for names that are not views, for example */
	unsigned n_codes, failures;
	const char *wrong; /* the first unexpected result, or NULL */
	char wrong_line[4096];
};

static inline int walk_cmp(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

__attribute__((format(printf, 2, 3))) static inline void walk_put(struct walk *w, const char *fmt,
								  ...)
{
	char text[4096];
	uint64_t hash;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	hash = hash64(span_str(text), 0);
	if (w->good && !bsearch(&hash, w->good->line, w->good->n, sizeof(hash), walk_cmp) &&
	    !w->wrong) {
		w->wrong = "a line that was not there at first";
		snprintf(w->wrong_line, sizeof(w->wrong_line), "%s", text);
	}
	assert_true(w->n < ARRAY_LEN(w->line));
	w->line[w->n++] = hash;
}

static inline void walk_failed(struct walk *w, const char *path, const char *what, int code)
{
	const struct walk *from = w->good ? w->good : w;

	for (unsigned i = 0; i < from->n_codes; i++)
		if (from->codes[i] == code)
			return;
	if (!w->good) {
		assert_true(w->n_codes < 16);
		w->codes[w->n_codes++] = code;
		return;
	}
	w->failures++;
	if (code != w->may && !w->wrong) {
		w->wrong = "a failure that was not provoked";
		snprintf(w->wrong_line, sizeof(w->wrong_line), "%.2000s %.100s: %d: %.1000s", path,
			 what, code, err_text(code));
	}
}

/* The bytes of an answer as a mount sends them: through a pipe where that is possible, else copied.
 */
static inline int walk_answer(const struct segments *g, uint8_t *ret)
{
	static int fd[2] = { -1, -1 }; /* empty between two answers */
	size_t done = 0;
	int r;

	if (fd[0] < 0 && (pipe2(fd, O_NONBLOCK) < 0 || fcntl(fd[1], F_SETPIPE_SZ, 1 << 18) < 0))
		fail_msg("no pipe");
	r = segments_pages(g) <= 64 ? segments_splice(g, fd[1]) : 1;
	while (r == 0 && done < g->bytes) {
		ssize_t n = read(fd[0], ret + done, g->bytes - done);

		assert_true(n > 0);
		done += (size_t)n;
	}
	/* Nothing more than the answer. */
	assert_true(r != 0 || read(fd[0], ret, 1) < 0);
	/* Bytes of an answer that failed are still in it. */
	while (r != 0 && read(fd[0], ret, 1 << 17) > 0)
		;
	return r > 0 ? segments_copy(g, ret) : r;
}

static inline void walk_contents(struct walk *w, struct node *n, const char *path)
{
	static uint8_t bytes[1 << 17];
	auto_of(file) struct file *f = NULL;
	uint64_t off = 0, hash = 0, hole = 0;
	int r = node_open(n, O_RDONLY, &f);

	while (r >= 0) {
		struct segments g;

		segments_init(&g, n->ns->ckpt->cache);
		r = file_read(f, off, sizeof(bytes), &g);
		if (r >= 0)
			r = walk_answer(&g, bytes);
		if (r >= 0) {
			hash = hash64(span_of(bytes, g.bytes), hash);
			off += g.bytes;
		}
		r = r < 0 ? r : (int)g.bytes;
		segments_release(&g);
		if (r == 0)
			break;
	}
	if (r >= 0 && off)
		r = file_seek(f, 0, SEEK_HOLE, &hole);
	if (r < 0)
		walk_failed(w, path, "read", r);
	else
		walk_put(w, "%s: %llu bytes %llx, hole %llu", path, (unsigned long long)off,
			 (unsigned long long)hash, (unsigned long long)hole);
}

static inline void walk_xattrs(struct walk *w, struct node *n, const char *path)
{
	auto_buf names = { 0 };
	int r = node_xattr_list(n, &names);

	if (r < 0) {
		walk_failed(w, path, "list attributes", r);
		return;
	}
	for (size_t at = 0; at < names.n; at += strlen((char *)names.p + at) + 1) {
		const char *name = (char *)names.p + at + strlen("user.pytree.");
		auto_buf value = { 0 };

		r = node_xattr_get(n, name, &value);
		if (r < 0)
			walk_failed(w, path, name, r);
		else
			walk_put(w, "%s: %s = %.*s", path, name, SPAN_ARG(buf_span(&value)));
	}
}

static inline void walk_node(struct walk *w, struct node *n, const char *path);

static inline void walk_name(struct walk *w, struct node *dir, const char *path, struct span name)
{
	char below[4096];
	struct node *child;
	int r = node_lookup(dir, name, &child);

	snprintf(below, sizeof(below), "%.3000s/%.*s", path, SPAN_ARG(name));
	if (r < 0) {
		walk_failed(w, below, "look up", r);
		return;
	}
	walk_node(w, child, below);
	node_unref(child, 1);
}

/* Names that are not listed: other forms of a leaf. */
static inline void walk_views(struct walk *w, struct node *dir, const char *path, struct span name)
{
	static const char *const others[] = { ".bin", ".json", "@float32.npy", "[0:1].npy" };
	char view[512];

	if (!span_ends(name, span_str(".npy")))
		return;
	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		snprintf(view, sizeof(view), "%.*s%s", (int)name.n - 4, (const char *)name.p,
			 others[i]);
		walk_name(w, dir, path, span_str(view));
	}
}

static inline void walk_dir(struct walk *w, struct node *n, const char *path)
{
	auto_listing l = { 0 };
	int r = node_list(n, &l);

	if (r < 0) {
		walk_failed(w, path, "list", r);
		return;
	}
	walk_put(w, "%s: %zu names", path, l.n);
	for (size_t i = 2; i < l.n; i++) {
		const char *name = listing_name(&l, i);

		walk_put(w, "%s: name %s", path, name);
		walk_name(w, n, path, span_str(name));
		walk_views(w, n, path, span_str(name));
	}
}

static inline void walk_node(struct walk *w, struct node *n, const char *path)
{
	struct stat st;
	int r = node_stat(n, &st);

	if (r < 0) {
		walk_failed(w, path, "stat", r);
		return;
	}
	walk_put(w, "%s: mode %o size %lld blocks %lld time %lld.%ld ino %llx", path, st.st_mode,
		 (long long)st.st_size, (long long)st.st_blocks, (long long)st.st_mtim.tv_sec,
		 st.st_mtim.tv_nsec, (unsigned long long)st.st_ino);
	walk_xattrs(w, n, path);
	if (S_ISDIR(st.st_mode))
		walk_dir(w, n, path);
	else
		walk_contents(w, n, path);
}

/* All of ns. good: the first walk, or NULL; may: the failure that is provoked, or 0. */
static inline void walk_all(struct walk *w, struct ns *ns, const struct walk *good, int may)
{
	w->n = w->n_codes = w->failures = 0;
	w->wrong = NULL;
	w->good = good;
	w->may = may;
	walk_node(w, ns->root, "");
	qsort(w->line, w->n, sizeof(*w->line), walk_cmp);
	if (good && may == 0 && !w->wrong && (w->failures || w->n != good->n))
		w->wrong = "not all that was there at first";
}

/* Options for a test: a small cache, little of everything. */
static inline void walk_options(struct options *o, const char *io)
{
	char text[256];

	snprintf(text, sizeof(text), "io=%s", io);
	assert_int_equal(options_init(o), 0);
	assert_int_equal(option_set(o, text, false), 0);
	assert_int_equal(option_set(o, "cache=1M", false), 0);
	assert_int_equal(option_set(o, "threads=1", false), 0);
}

#endif
