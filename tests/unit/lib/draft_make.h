/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_make.h - a draft written through the namespace as programs do it, and checks of the result.
 *
 * The draft has a tree with arrays of several dtypes and sizes, a list, a scalar, strings, None and
 * empty containers; a second tree; a JSON item. Each content follows from its path.
 */
#ifndef PYTREEFS_DRAFT_MAKE_H
#define PYTREEFS_DRAFT_MAKE_H

#include "tests/unit/lib/unit.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "core/base/digest.h"
#include "handlers/draft/draft.h"
#include "handlers/namespace/ns.h"
#include "handlers/format/npy.h"

struct made {
	const char *path; /* in the draft; ends in '/': a directory */
	enum dtype dtype; /* of an .npy */
	unsigned rank;
	uint64_t shape[2];
	const char *text;    /* of other files; the kind of a directory */
	const char *in_step; /* its path in the step, if different */
};

static const struct made made[] = {
	{ "default/" },
	{ "default/params/" },
	{ "default/params/w.npy", DTYPE_FLOAT32, 2, { 40, 25 } },
	{ "default/params/b.npy", DTYPE_INT8, 1, { 7 } },
	{ "default/params/half.npy", DTYPE_FLOAT16, 2, { 3, 5 } },
	{ "default/a%2Fb.npy", DTYPE_INT16, 1, { 5 } }, /* a directory in a directory */
	{ "default/zero.npy", DTYPE_INT32, 1, { 0 } },
	{ "default/step.json", .text = "100\n" },
	{ "default/run.txt", .text = "a string of no great length" },
	{ "default/empty/" },
	{ "default/ema.null", .text = "" },
	/* The commit joins these; it must keep them until it has succeeded. */
	{ "default/cut[0:5]@12.npy", DTYPE_FLOAT64, 1, { 5 }, .in_step = "default/cut[0:5].npy" },
	{ "default/cut[5:12]@12.npy", DTYPE_FLOAT64, 1, { 7 }, .in_step = "default/cut[5:12].npy" },
	{ "state/" },
	{ "state/count.npy", DTYPE_UINT8, 1, { 3000 } },
	{ "state/name.txt", .text = "the second item" },
	{ "bare/" }, /* a tree that is one array: its files lie beside the item's own */
	{ "bare/%.npy", DTYPE_FLOAT64, 1, { 11 } },
	{ "metrics.json", .text = "{\"loss\": 0.5}", .in_step = "metrics/metrics" },
	{ "notes/",
	  .text = "opaque" }, /* bytes that look like an array until an xattr says otherwise */
	{ "notes/table.npy", DTYPE_INT32, 2, { 30, 20 } },
	/* Two items inside one, as Orbax saves random keys; of a draft that no job shares. */
	{ "keys/" },
	{ "keys/np_random_key/" },
	{ "keys/np_random_key/state.npy", DTYPE_UINT32, 1, { 624 } },
	{ "keys/np_random_key/pos.json", .text = "7\n" },
	{ "keys/np_random_key_metadata/", .text = "opaque" },
	{ "keys/np_random_key_metadata/metadata", .text = "{\"bit_generator\": \"MT19937\"}" },
};

/* The number of entries that are written. */
static size_t n_made = ARRAY_LEN(made);
#define N_MADE_SHARED (ARRAY_LEN(made) - 6)

/* Called before (true) and after operations of the test itself, in which no fault should occur. */
static void (*own_business)(bool begins);

static inline void own(bool begins)
{
	if (own_business)
		own_business(begins);
}

static inline void made_content(const struct made *m, struct buf *ret)
{
	uint64_t x = hash64(span_str(m->path), 7), n;

	own(true);
	if (m->text) {
		assert_int_equal(buf_add_str(ret, m->text), 0);
		own(false);
		return;
	}
	n = dtype_info(m->dtype)->size;
	assert_int_equal(npy_header(&(struct array_type){ m->dtype, m->rank, m->shape }, ret), 0);
	for (unsigned i = 0; i < m->rank; i++)
		n *= m->shape[i];
	for (uint64_t i = 0; i < n; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		/* All values must be finite in every dtype. */
		assert_int_equal(buf_add_byte(ret, (uint8_t)(x >> 60)), 0);
	}
	own(false);
}

/* Like open(2): truncate the existing file, or create one. */
static inline int open_anew(struct node *dir, struct span name, struct node **ret,
			    struct file **ret_file)
{
	struct stat st = { .st_size = 0 };
	int r = node_lookup(dir, name, ret);

	if (r == -ENOENT)
		return node_create(dir, name, O_WRONLY | O_CREAT, ret, ret_file);
	if (r >= 0)
		r = node_open(*ret, O_WRONLY, ret_file);
	return r < 0 ? r : node_setattr(*ret, &st, NODE_SET_SIZE, *ret_file);
}

/* Write a file in a few pieces. Returns the first error. */
static inline int make_file(struct node *dir, struct span name, const struct made *m)
{
	auto_of(file) struct file *f = NULL;
	auto_node *n = NULL;
	auto_buf content = { 0 };
	int r = open_anew(dir, name, &n, &f);

	made_content(m, &content);
	for (size_t at = 0; at < content.n && r >= 0;) {
		ssize_t done = file_write(f, at, content.p + at, MIN(content.n - at, (size_t)900));

		r = done < 0 ? (int)done : 0;
		at += done < 0 ? 0 : (size_t)done;
	}
	return r < 0 ? r : file_flush(f);
}

static inline int make_one(struct node *top, const struct made *m)
{
	auto_node *dir = NULL;
	const char *last;
	char parent[200];
	size_t n = strlen(m->path);
	bool is_dir = m->path[n - 1] == '/';
	struct span path = span_of(m->path, n - is_dir), name;
	int r;

	last = memrchr(path.p, '/', path.n);
	name = last ? span_from(path, (size_t)(last + 1 - m->path)) : path;
	snprintf(parent, sizeof(parent), "%.*s", last ? (int)(last - m->path) : 0, m->path);
	r = node_walk(top, parent, &dir);
	if (r >= 0 && is_dir) {
		auto_node *made_dir = NULL;

		r = node_mkdir(dir, name, 0777, &made_dir);
		if (r == -EEXIST)
			r = m->text ? node_lookup(dir, name, &made_dir) : 0;
		if (r >= 0 && m->text) {
			struct span kind = span_str(m->text);

			r = node_xattr_set(made_dir, "user.pytree.kind", &kind, 0);
		}
		return r;
	}
	return r < 0 ? r : make_file(dir, name, m);
}

static inline int make_draft(struct ns *ns, const char *name)
{
	auto_node *top = NULL;
	int r = node_mkdir(ns->root, span_str(name), 0777, &top);

	for (size_t i = 0; i < n_made && r >= 0; i++)
		r = make_one(top, &made[i]);
	return r;
}

static inline int commit_draft(struct ns *ns, const char *name, const char *final)
{
	return node_rename(ns->root, span_str(name), ns->root, span_str(final), RENAME_NOREPLACE);
}

/* Get the contents of a file, or its error. */
static inline int read_file(struct node *n, struct buf *ret)
{
	auto_of(file) struct file *f = NULL;
	int r = node_open(n, O_RDONLY, &f);

	while (r >= 0) {
		struct segments g;

		segments_init(&g, n->ns->ckpt->cache);
		r = file_read(f, ret->n, 1 << 17, &g);
		if (r >= 0)
			r = buf_reserve(ret, g.bytes);
		if (r >= 0)
			r = segments_copy(&g, ret->p + ret->n);
		if (r >= 0)
			ret->n += g.bytes;
		r = r < 0 ? r : (int)g.bytes;
		segments_release(&g);
		if (r == 0)
			break;
	}
	return r;
}

/*
 * Returns the first difference from the saved values below a directory (a step or a draft); NULL:
 * none.
 */
static inline const char *check_saved(struct ns *ns, const char *name, bool is_step)
{
	static char what[512];
	auto_node *top = NULL;
	int r = node_walk(ns->root, name, &top);

	if (r < 0)
		return "it cannot be looked up";
	for (size_t i = 0; i < n_made; i++) {
		auto_free char *path =
			strdup(is_step && made[i].in_step ? made[i].in_step : made[i].path);
		auto_buf want = { 0 }, got = { 0 };
		auto_node *n = NULL;
		bool is_dir = path[strlen(path) - 1] == '/';

		if (is_dir)
			path[strlen(path) - 1] = '\0';
		else
			made_content(&made[i], &want);
		r = node_walk(top, path, &n);
		if (r >= 0 && !is_dir)
			r = read_file(n, &got);
		if (r < 0) {
			snprintf(what, sizeof(what), "%s: %.300s", path, err_text(r));
			return what;
		}
		if (!span_eq(buf_span(&want), buf_span(&got))) {
			snprintf(what, sizeof(what), "%s: %zu bytes, not the %zu that were saved",
				 path, got.n, want.n);
			return what;
		}
	}
	return NULL;
}

/* Returns the names of the root, "100 101 ", in the order of the listing and without dot files. */
static inline const char *root_names(struct ns *ns)
{
	static char names[1024];
	auto_listing l = { 0 };
	size_t n = 0;

	names[0] = '\0';
	if (node_list(ns->root, &l) < 0)
		return "(cannot be listed)";
	for (size_t i = 2; i < l.n; i++)
		n += (size_t)snprintf(names + n, sizeof(names) - n, "%s ", listing_name(&l, i));
	return names;
}

static inline void made_options(struct options *o, const char *const *set)
{
	static const char *const small[] = { "cache=1M", "write_budget=16M", "read_budget=4M",
					     "threads=1", NULL };

	assert_int_equal(options_init(o), 0);
	for (size_t i = 0; small[i]; i++)
		assert_int_equal(option_set(o, small[i], false), 0);
	for (size_t i = 0; set[i]; i++)
		assert_int_equal(option_set(o, set[i], false), 0);
}

#endif
