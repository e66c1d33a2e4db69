/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_lib_read.c - read many, over the public header: whole trees and random views of the golden
 * checkpoints, in memory of any layout, equal to the bytes of the files that a mount shows.
 */
#include <dirent.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tools/lib/pytreefs.h"

#define ROOM 64 /* bytes around a result that nobody may touch */
#define FREE 0xa5

static uint64_t seed = 1;

static uint64_t below(uint64_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % n;
}

/* Returns the whole contents of a name in a mount; *n bytes. */
static uint8_t *file_bytes(struct pytreefs *ck, const char *name, size_t *n)
{
	struct pytreefs_stat st;
	uint8_t *p;

	if (pytreefs_stat(ck, name, &st) < 0)
		fail_msg("%s: %s", name, pytreefs_error());
	*n = st.size;
	p = malloc(*n + 1);
	if (pytreefs_read(ck, name, p, *n + 1, 0) != (ssize_t)*n)
		fail_msg("%s: %s", name, pytreefs_error());
	return p;
}

static void stem_of(const char *path, char ret[PATH_MAX])
{
	const char *slash = strrchr(path, '/'), *dot;
	size_t n = strlen(path);

	assert_true(n < PATH_MAX);
	memcpy(ret, path, n + 1);
	dot = strrchr(slash ? slash : path, '.');
	if (dot)
		ret[dot - path] = '\0';
}

/* ---- whole trees ---- */

static int has_bytes(const struct pytreefs_node *n)
{
	return n->kind == PYTREEFS_ARRAY || n->kind == PYTREEFS_SCALAR ||
	       n->kind == PYTREEFS_STRING;
}

static size_t check_whole(struct pytreefs *ck, const struct pytreefs_tree *tree)
{
	size_t count = pytreefs_tree_count(tree), n = 0;
	struct pytreefs_request *q = calloc(count + 1, sizeof(*q));
	char *is_text = calloc(count + 1, 1);

	for (size_t i = 0; i < count; i++) {
		const struct pytreefs_node *leaf = pytreefs_tree_node(tree, i);

		if (leaf->kind == PYTREEFS_UNKNOWN)
			fail_msg("%s: %s", leaf->path, leaf->text);
		if (!has_bytes(leaf))
			continue;
		is_text[n] = leaf->kind == PYTREEFS_STRING;
		q[n].name = leaf->path;
		q[n].size = leaf->bytes;
		q[n++].to = pytreefs_alloc(leaf->bytes);
	}
	if (pytreefs_read_many(ck, q, n, NULL) < 0)
		fail_msg("%s", pytreefs_error());
	for (size_t i = 0; i < n; i++) {
		char name[PATH_MAX];
		uint8_t *want;
		size_t size;

		stem_of(q[i].name, name);
		strcat(name, is_text[i] ? ".txt" : ".bin");
		want = file_bytes(ck, name, &size);
		assert_int_equal(q[i].result, 0);
		assert_null(q[i].error);
		assert_int_equal(size, q[i].size);
		if (memcmp(want, q[i].to, size))
			fail_msg("%s: read_many gives other bytes", q[i].name);
		free(want);
		pytreefs_free(q[i].to, q[i].size);
	}
	pytreefs_requests_release(q, n);
	free(q);
	free(is_text);
	return n;
}

/* ---- views ---- */

struct view {
	char name[PATH_MAX]; /* of the file that has its bytes */
	struct pytreefs_slice box[32];
	uint64_t shape[32];
	unsigned ndim;
	int64_t strides[32];
	uint64_t elements;
	const char *dtype;
};

static void random_view(const struct pytreefs_node *leaf, struct view *v)
{
	static const char *const casts[] = { NULL, NULL, "float32", "bfloat16", "int32" };

	memset(v, 0, sizeof(*v));
	v->dtype = casts[below(5)];
	v->elements = 1;
	stem_of(leaf->path, v->name);
	strcat(v->name, leaf->ndim ? "[" : "");
	for (unsigned i = 0; i < leaf->ndim; i++) {
		struct pytreefs_slice *s = &v->box[i];
		char *end = v->name + strlen(v->name);

		s->step = below(3) ? 1 : 1 + below(3);
		s->start = below(3) ? below(leaf->shape[i]) : 0;
		s->count = (leaf->shape[i] - s->start + s->step - 1) / s->step;
		if (below(2))
			s->count = 1 + below(s->count);
		s->drop = s->count == 1 && !below(3);
		if (s->drop) {
			s->step = 1;
			sprintf(end, "%s%llu", i ? "," : "", (unsigned long long)s->start);
		} else {
			uint64_t stop = s->start + s->step * (s->count - 1) + 1;

			sprintf(end, "%s%llu:%llu:%llu", i ? "," : "", (unsigned long long)s->start,
				(unsigned long long)stop, (unsigned long long)s->step);
			v->shape[v->ndim++] = s->count;
			v->elements *= s->count;
		}
	}
	strcat(v->name, leaf->ndim ? "]" : "");
	if (v->dtype) {
		strcat(v->name, "@");
		strcat(v->name, v->dtype);
	}
	strcat(v->name, ".bin");
}

/* Memory in which axes lie in any order, some backwards, with gaps; the offset of the first. */
static size_t random_layout(struct view *v, size_t item, size_t *ret_bytes)
{
	unsigned order[32];
	int64_t stride = (int64_t)item, first = 0;

	for (unsigned i = 0; i < v->ndim; i++)
		order[i] = v->ndim - 1 - i;
	for (unsigned i = v->ndim; i > 1 && !below(2); i--) {
		unsigned k = (unsigned)below(i), other = order[i - 1];

		order[i - 1] = order[k];
		order[k] = other;
	}
	for (unsigned i = 0; i < v->ndim; i++) {
		int64_t extent = (int64_t)v->shape[order[i]];

		if (!below(4))
			stride += (int64_t)item;
		v->strides[order[i]] = stride;
		if (!below(6)) {
			first += stride * (extent - 1);
			v->strides[order[i]] = -stride;
		}
		stride *= extent;
	}
	*ret_bytes = (size_t)stride + item;
	return (size_t)first;
}

/* Every element where it belongs, and nothing else touched. */
static void check_layout(const struct view *v, const uint8_t *memory, size_t bytes, size_t first,
			 const uint8_t *want, size_t item)
{
	uint8_t *expected = malloc(bytes + 2 * ROOM);

	memset(expected, FREE, bytes + 2 * ROOM);
	for (uint64_t e = 0; e < v->elements; e++) {
		int64_t at = (int64_t)first;
		uint64_t rest = e;

		for (unsigned i = v->ndim; i > 0; i--) {
			at += (int64_t)(rest % v->shape[i - 1]) * v->strides[i - 1];
			rest /= v->shape[i - 1];
		}
		memcpy(expected + ROOM + at, want + e * item, item);
	}
	if (memcmp(expected, memory, bytes + 2 * ROOM))
		fail_msg("%s: other bytes, or bytes outside of the result", v->name);
	free(expected);
}

static void check_view(struct pytreefs *ck, const struct pytreefs_node *leaf)
{
	struct pytreefs_request q = { 0 };
	struct view v;
	size_t size, item, bytes, first;
	uint8_t *want, *memory;

	random_view(leaf, &v);
	want = file_bytes(ck, v.name, &size);
	assert_int_equal(size % v.elements, 0);
	item = size / v.elements;
	first = random_layout(&v, item, &bytes);
	memory = malloc(bytes + 2 * ROOM);
	memset(memory, FREE, bytes + 2 * ROOM);
	q.name = leaf->path;
	q.box = leaf->ndim ? v.box : NULL;
	q.n_box = leaf->ndim;
	q.dtype = v.dtype;
	q.to = memory + ROOM + first;
	q.size = size;
	q.strides = v.strides;
	if (pytreefs_read_many(ck, &q, 1, NULL) < 0)
		fail_msg("%s: %s", v.name, pytreefs_error());
	check_layout(&v, memory, bytes, first, want, item);
	/* The same by its name, in C order. */
	memset(memory, FREE, bytes + 2 * ROOM);
	q = (struct pytreefs_request){ .name = v.name, .to = memory + ROOM, .size = size };
	assert_int_equal(pytreefs_read_many(ck, &q, 1, NULL), 0);
	assert_memory_equal(memory + ROOM, want, size);
	free(want);
	free(memory);
}

static void check_views(struct pytreefs *ck, const struct pytreefs_tree *tree, unsigned views)
{
	for (size_t i = 0; i < pytreefs_tree_count(tree); i++) {
		const struct pytreefs_node *n = pytreefs_tree_node(tree, i);
		uint64_t elements = 1;

		if (n->kind != PYTREEFS_ARRAY && n->kind != PYTREEFS_SCALAR)
			continue;
		for (unsigned k = 0; k < n->ndim; k++)
			elements *= n->shape[k];
		for (unsigned k = 0; k < views && elements; k++)
			check_view(ck, n);
	}
}

/* ---- some leaves ---- */

/*
 * Choose every third node, also ones that are not leaves. Leaves among them are as in the whole
 * tree; the others have only what the tree records.
 */
static void check_some(struct pytreefs *ck, const struct pytreefs_tree *tree)
{
	size_t count = pytreefs_tree_count(tree), n = 0;
	size_t *index = calloc(count + 1, sizeof(*index));
	struct pytreefs_tree *some = NULL;

	for (size_t i = below(3); i < count; i += 3)
		index[n++] = i;
	if (pytreefs_tree_leaves(ck, "", PYTREEFS_TREE_VALUES, index, n, &some) < 0)
		fail_msg("%s", pytreefs_error());
	assert_int_equal(pytreefs_tree_count(some), count);
	for (size_t i = 0, at = 0; i < count; i++) {
		const struct pytreefs_node *a = pytreefs_tree_node(tree, i),
					   *b = pytreefs_tree_node(some, i);
		int is_leaf = a->kind < PYTREEFS_DICT && a->kind != PYTREEFS_NONE &&
			      a->kind != PYTREEFS_PLACEHOLDER;
		int is_chosen = at < n && index[at] == i;

		at += is_chosen;
		assert_string_equal(a->path, b->path);
		assert_string_equal(a->key, b->key);
		assert_int_equal(a->parent, b->parent);
		assert_int_equal(a->n_children, b->n_children);
		assert_int_equal(b->kind, is_leaf && !is_chosen ? PYTREEFS_ARRAY : a->kind);
		assert_int_equal(b->bytes, is_leaf && !is_chosen ? 0 : a->bytes);
		assert_int_equal(!b->dtype, !a->dtype || !is_chosen);
		if (!is_chosen || !a->dtype)
			continue;
		assert_string_equal(a->dtype, b->dtype);
		assert_memory_equal(a->shape, b->shape, a->ndim * sizeof(*a->shape));
	}
	pytreefs_tree_free(some);
	free(index);
}

/* ---- checkpoints ---- */

static size_t check_step(const char *path, const char *options, unsigned views)
{
	struct pytreefs_tree *tree = NULL;
	struct pytreefs *ck = NULL;
	size_t n;

	if (pytreefs_open(path, options, &ck) < 0)
		fail_msg("%s: %s", path, pytreefs_error());
	if (pytreefs_tree(ck, "", PYTREEFS_TREE_VALUES, &tree) < 0)
		fail_msg("%s: %s", path, pytreefs_error());
	n = check_whole(ck, tree);
	check_views(ck, tree, views);
	check_some(ck, tree);
	pytreefs_tree_free(tree);
	pytreefs_close(ck);
	return n;
}

struct steps {
	const char *root, *options;
	unsigned views;
	size_t n;
};

static int one_step(void *arg, const struct pytreefs_entry *e)
{
	struct steps *s = arg;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", s->root, e->name);
	s->n += check_step(path, s->options, s->views);
	return 0;
}

static size_t check(const char *path, const char *options, unsigned views)
{
	struct steps s = { path, options, views, 0 };
	struct pytreefs *ck = NULL;

	if (pytreefs_open(path, options, &ck) < 0)
		fail_msg("%s: %s", path, pytreefs_error());
	if (pytreefs_kind(ck) != PYTREEFS_ROOT)
		s.n = check_step(path, options, views);
	else if (pytreefs_steps(ck, one_step, &s) < 0)
		fail_msg("%s: %s", path, pytreefs_error());
	pytreefs_close(ck);
	return s.n;
}

/* Every release and layout of tests/data/old. */
static void t_old_checkpoints(void **state)
{
	DIR *releases = opendir(DATA "/old");
	size_t n = 0;

	for (struct dirent *e; (e = readdir(releases));) {
		char path[PATH_MAX];
		DIR *layouts;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), DATA "/old/%s", e->d_name);
		layouts = opendir(path);
		for (struct dirent *f; (f = readdir(layouts));) {
			char layout[PATH_MAX + 256];

			if (f->d_name[0] == '.' || strstr(f->d_name, ".json"))
				continue;
			snprintf(layout, sizeof(layout), "%s/%s", path, f->d_name);
			n += check(layout, NULL, 2);
		}
		closedir(layouts);
	}
	closedir(releases);
	assert_true(n > 500);
}

/* Little memory, one thread, an engine without io_uring: the same bytes. */
static void t_options(void **state)
{
	static const char *const options[] = { "threads=1", "io=sync,read_budget=64K,cache=64K",
					       "threads=4" };

	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++)
		assert_true(check(DATA "/sample", options[i], 1) > 100);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(t_old_checkpoints),
		cmocka_unit_test(t_options),
	};

	/* For checkpoints of one's own: t_lib_read PATH [OPTIONS [VIEWS]]. */
	if (argc > 1)
		return printf("%zu leaves\n", check(argv[1], argc > 2 ? argv[2] : NULL,
						    argc > 3 ? (unsigned)atoi(argv[3]) : 4)) < 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
