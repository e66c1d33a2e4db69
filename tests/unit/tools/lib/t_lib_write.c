/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_lib_write.c - checkpoints written over the public header, and read back: kinds of containers,
 * keys that names must escape, arrays of any strides, streams, refusals, and nothing left behind.
 */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/lib/tmp_dir.h"
#include "tools/lib/pytreefs.h"

static char root[TMP_DIR_MAX];

static int make_root(void **state)
{
	return tmp_dir_make(root, "t_lib_write");
}

static int remove_root(void **state)
{
	return tmp_dir_remove(root);
}

static void must(int r)
{
	if (r < 0)
		fail_msg("%s", pytreefs_error());
}

static struct pytreefs_draft *begin(const char *name, const char *options, unsigned flags)
{
	struct pytreefs_draft *d = NULL;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	must(pytreefs_draft_begin(path, options, flags, &d));
	return d;
}

static struct pytreefs *open_it(const char *name, struct pytreefs_tree **ret)
{
	struct pytreefs *ck = NULL;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	must(pytreefs_open(path, NULL, &ck));
	must(pytreefs_tree(ck, "", PYTREEFS_TREE_VALUES, ret));
	return ck;
}

static struct pytreefs_key named(const char *text)
{
	return (struct pytreefs_key){ text, strlen(text), PYTREEFS_KEY_NAME };
}

static struct pytreefs_key indexed(const char *text)
{
	return (struct pytreefs_key){ text, strlen(text), PYTREEFS_KEY_INDEX };
}

/* The node with these keys, or NULL. */
static const struct pytreefs_node *find(const struct pytreefs_tree *tree,
					const struct pytreefs_key *key, size_t n)
{
	for (size_t i = 0; i < pytreefs_tree_count(tree); i++) {
		const struct pytreefs_node *at = pytreefs_tree_node(tree, i);
		size_t left = n;

		while (left && at->parent != SIZE_MAX && at->key_size == key[left - 1].size &&
		       !memcmp(at->key, key[left - 1].key, at->key_size)) {
			at = pytreefs_tree_node(tree, at->parent);
			left--;
		}
		if (!left && at->parent == SIZE_MAX)
			return pytreefs_tree_node(tree, i);
	}
	return NULL;
}

static void check_bytes(struct pytreefs *ck, const struct pytreefs_node *n, const void *want,
			size_t size)
{
	struct pytreefs_request q = { .name = n->path, .to = malloc(size + 1), .size = size };

	must(pytreefs_read_many(ck, &q, 1, NULL));
	assert_memory_equal(q.to, want, size);
	free(q.to);
}

/* ---- kinds and keys ---- */

static void check_kind(const struct pytreefs_tree *tree, const struct pytreefs_key key[3],
		       enum pytreefs_kind want)
{
	const struct pytreefs_node *n = find(tree, key, key[2].key ? 3 : 2);

	if (!n || n->kind != want)
		fail_msg("%s: kind %d", key[1].key, n ? (int)n->kind : -1);
}

static void t_kinds(void **state)
{
	static const char long_key[] =
		"a key that is much longer than a name of a file may be: "
		"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
		"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
		"0123456789";
	const int64_t seven = 7;
	const double half = 0.5;
	const float w[6] = { 1, 2, 3, 4, 5, 6 };
	const uint16_t brain[2] = { 0x3f80, 0x4000 };
	const uint64_t shape[] = { 2, 3 }, two[] = { 2 };
	const struct pytreefs_key item = named("state");
	const struct pytreefs_key key[][3] = {
		{ item, named("a/b%[@].npy") },
		{ item, named("list"), indexed("0") },
		{ item, named("list"), indexed("1") },
		{ item, named("tuple"), indexed("0") },
		{ item, named("empty") },
		{ item, named("") },
		{ item, named(long_key) },
		{ item, named("_METADATA") },
		{ item, named("none") },
		{ item, named("tuple") },
		{ item, named("no list") },
	};
	const struct pytreefs_value value[] = {
		{ key[9], 2, PYTREEFS_TUPLE },
		{ key[0], 2, PYTREEFS_ARRAY, "float32", 2, shape, NULL, w },
		{ key[1], 3, PYTREEFS_SCALAR, "int64", 0, NULL, NULL, &seven },
		{ key[2], 3, PYTREEFS_SCALAR, "float64", 0, NULL, NULL, &half },
		{ key[3], 3, PYTREEFS_STRING, .data = "x\ny", .size = 3 },
		{ key[4], 2, PYTREEFS_DICT },
		{ key[5], 2, PYTREEFS_ARRAY, "bfloat16", 1, two, NULL, brain },
		{ key[6], 2, PYTREEFS_ARRAY, "float32", 2, shape, NULL, w },
		{ key[7], 2, PYTREEFS_STRING, .data = "m", .size = 1 },
		{ key[8], 2, PYTREEFS_NONE },
		{ key[10], 2, PYTREEFS_LIST },
	};
	const enum pytreefs_kind want[] = { PYTREEFS_ARRAY,  PYTREEFS_SCALAR, PYTREEFS_SCALAR,
					    PYTREEFS_STRING, PYTREEFS_DICT,   PYTREEFS_ARRAY,
					    PYTREEFS_ARRAY,  PYTREEFS_STRING, PYTREEFS_NONE,
					    PYTREEFS_TUPLE,  PYTREEFS_LIST };
	/* Rich types alone say that a sequence with members is a tuple. */
	struct pytreefs_draft *d = begin("1", "rich_types", 0);
	struct pytreefs_tree *tree = NULL;
	struct pytreefs *ck;

	must(pytreefs_draft_put(d, value, sizeof(value) / sizeof(*value), NULL));
	must(pytreefs_draft_attribute(d, NULL, 0, "custom_metadata", "{\"run\": 5}"));
	must(pytreefs_draft_commit(d, NULL));
	ck = open_it("1", &tree);
	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++)
		check_kind(tree, key[i], want[i]);
	check_bytes(ck, find(tree, key[0], 2), w, sizeof(w));
	check_bytes(ck, find(tree, key[5], 2), brain, sizeof(brain));
	check_bytes(ck, find(tree, key[6], 2), w, sizeof(w));
	assert_string_equal(find(tree, key[1], 3)->text, "7");
	assert_string_equal(find(tree, key[1], 3)->dtype, "int64");
	assert_string_equal(find(tree, key[2], 3)->text, "0.5");
	assert_string_equal(find(tree, key[3], 3)->text, "x\ny");
	assert_string_equal(find(tree, key[5], 2)->dtype, "bfloat16");
	assert_int_equal(find(tree, key[1], 2)->kind, PYTREEFS_LIST);
	pytreefs_tree_free(tree);
	pytreefs_close(ck);
	assert_int_equal(tmp_dir_matching(root, "*", false), 1);
}

/* ---- arrays ---- */

/* Memory in which axes lie in any order, or backwards, or nowhere (stride 0). */
static void t_strides(void **state)
{
	enum { A = 300, B = 70, C = 5 };
	static int32_t memory[A * B * C], want[A * B * C];
	static const int64_t strides[][3] = {
		{ B * C * 4, C * 4, 4 },   { 4, A * 4, A * B * 4 }, { C * 4, A * C * 4, 4 },
		{ -B * C * 4, C * 4, -4 }, { 0, C * 4, 4 },         { B * C * 4, 0, 0 },
	};
	const uint64_t shape[] = { A, B, C };
	const struct pytreefs_key key = named("w");

	for (size_t i = 0; i < A * B * C; i++)
		memory[i] = (int32_t)(i * 2654435761u);
	for (size_t s = 0; s < sizeof(strides) / sizeof(*strides); s++) {
		const int64_t *st = strides[s];
		const char *first = (const char *)memory;
		struct pytreefs_tree *tree = NULL;
		struct pytreefs_draft *d;
		struct pytreefs *ck;

		for (int i = 0; i < 3; i++)
			first += st[i] < 0 ? -st[i] * (int64_t)(shape[i] - 1) : 0;
		for (int64_t a = 0; a < A; a++)
			for (int64_t b = 0; b < B; b++)
				for (int64_t c = 0; c < C; c++)
					memcpy(&want[(a * B + b) * C + c],
					       first + a * st[0] + b * st[1] + c * st[2], 4);
		d = begin("strided", "chunk_byte_size=64K",
			  PYTREEFS_DRAFT_ITEM | PYTREEFS_DRAFT_REPLACE);
		must(pytreefs_draft_put(d,
					&(struct pytreefs_value){ &key, 1, PYTREEFS_ARRAY, "int32",
								  3, shape, st, first },
					1, NULL));
		must(pytreefs_draft_commit(d, NULL));
		ck = open_it("strided", &tree);
		check_bytes(ck, find(tree, &key, 1), want, sizeof(want));
		pytreefs_tree_free(tree);
		pytreefs_close(ck);
	}
}

static void t_stream(void **state)
{
	enum { N = 1000000 };
	static uint16_t data[N];
	const uint64_t shape[] = { N };
	const struct pytreefs_key key = named("w"), short_key = named("short");
	struct pytreefs_value v = { &key, 1, PYTREEFS_ARRAY, "uint16", 1, shape };
	struct pytreefs_draft *d = begin("stream", "zarr=3", PYTREEFS_DRAFT_ITEM);
	struct pytreefs_writer *w = NULL;
	struct pytreefs_tree *tree = NULL;
	struct pytreefs *ck;

	for (size_t i = 0; i < N; i++)
		data[i] = (uint16_t)(i * i);
	must(pytreefs_draft_stream(d, &v, &w));
	for (size_t at = 0; at < sizeof(data); at += 30001)
		must(pytreefs_writer_write(w, (char *)data + at,
					   sizeof(data) - at < 30001 ? sizeof(data) - at : 30001));
	assert_int_equal(pytreefs_writer_write(w, data, 1), -EINVAL);
	pytreefs_writer_close(w);
	/* It was written as a whole before the byte too many; one that is too short is refused. */
	v.key = &short_key;
	must(pytreefs_draft_stream(d, &v, &w));
	must(pytreefs_writer_write(w, data, 10));
	assert_int_equal(pytreefs_writer_close(w), -EINVAL);
	assert_non_null(strstr(pytreefs_error(), "short"));
	assert_true(pytreefs_draft_commit(d, NULL) < 0);
	assert_non_null(strstr(pytreefs_error(), "short"));
	pytreefs_draft_abort(d);

	d = begin("stream", "zarr=3", PYTREEFS_DRAFT_ITEM);
	v.key = &key;
	must(pytreefs_draft_stream(d, &v, &w));
	must(pytreefs_writer_write(w, data, sizeof(data)));
	must(pytreefs_writer_close(w));
	must(pytreefs_draft_commit(d, NULL));
	ck = open_it("stream", &tree);
	check_bytes(ck, find(tree, &key, 1), data, sizeof(data));
	pytreefs_tree_free(tree);
	pytreefs_close(ck);
}

static int stop_on_the_way(void *arg, uint64_t done, uint64_t total)
{
	uint64_t *seen = arg;

	*seen = done;
	return done > 0 && done < total;
}

/* A single chunk of half a GiB, stored in next to nothing or not at all: what a progress function
 * says counts inside of it. */
/* Bytes of files that are open and have no name. */
static uint64_t unlinked_bytes(void)
{
	uint64_t n = 0;
	struct stat st;

	for (int fd = 0; fd < 1024; fd++)
		if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0)
			n += (uint64_t)st.st_size;
	return n;
}

static int stop_after_a_while(void *arg, uint64_t done, uint64_t total)
{
	*(uint64_t *)arg = done;
	return done >= (uint64_t)32 << 20;
}

/*
 * The encoded part of an abandoned value is dropped, not decoded and copied to where a program
 * could read it. A draft with such a value cannot be committed.
 */
static void t_cancel_a_put(void **state)
{
	const uint64_t shape[] = { (uint64_t)16 << 30 };
	const struct pytreefs_key key = named("w");
	void *memory =
		mmap(NULL, shape[0], PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct pytreefs_draft *d = begin("given_up", NULL, PYTREEFS_DRAFT_ITEM);
	struct pytreefs_value v = { &key, 1, PYTREEFS_ARRAY, "int8", 1, shape };
	uint64_t seen = 0;
	const struct pytreefs_progress p = { .fn = stop_after_a_while, .arg = &seen };

	assert_true(memory != MAP_FAILED);
	v.data = memory;
	assert_int_equal(pytreefs_draft_put(d, &v, 1, &p), -ECANCELED);
	assert_true(seen >= (uint64_t)32 << 20);
	assert_int_equal(unlinked_bytes(), 0);
	assert_true(pytreefs_draft_commit(d, NULL) < 0);
	pytreefs_draft_abort(d);
	munmap(memory, shape[0]);
}

static void t_cancel_inside_a_chunk(void **state)
{
	static const char *const options[] = { "chunk_byte_size=1G",
					       "chunk_byte_size=1G,store_fill_value=off",
					       "chunk_byte_size=1G,compression=none" };
	const uint64_t shape[] = { (uint64_t)512 << 20 };
	const struct pytreefs_key key = named("w");
	char *memory = pytreefs_alloc(shape[0]);

	assert_non_null(memory);
	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
		uint64_t seen = 0;
		const struct pytreefs_progress p = { .fn = stop_on_the_way, .arg = &seen };
		struct pytreefs_value v = { &key, 1, PYTREEFS_ARRAY, "int8", 1, shape };
		struct pytreefs_draft *d =
			begin("large", options[i], PYTREEFS_DRAFT_ITEM | PYTREEFS_DRAFT_REPLACE);
		struct pytreefs_request q = { .name = "w.npy", .to = memory, .size = shape[0] };
		struct pytreefs_tree *tree = NULL;
		struct pytreefs *ck;

		memset(memory, i != 1, shape[0]);
		v.data = memory;
		must(pytreefs_draft_put(d, &v, 1, NULL));
		must(pytreefs_draft_commit(d, NULL));
		ck = open_it("large", &tree);
		assert_int_equal(pytreefs_tree_node(tree, 1)->chunk[0], shape[0]);
		assert_int_equal(pytreefs_read_many(ck, &q, 1, &p), -ECANCELED);
		assert_true(seen > 0 && seen < shape[0]);
		pytreefs_requests_release(&q, 1);
		pytreefs_tree_free(tree);
		pytreefs_close(ck);
	}
	pytreefs_free(memory, shape[0]);
}

/* A tree that is one array alone. */
static void t_bare_leaf(void **state)
{
	const float w[2] = { 1, 2 };
	const uint64_t shape[] = { 2 };
	struct pytreefs_draft *d = begin("bare", NULL, PYTREEFS_DRAFT_ITEM);
	struct pytreefs_tree *tree = NULL;
	struct pytreefs *ck;

	must(pytreefs_draft_put(d,
				&(struct pytreefs_value){ NULL, 0, PYTREEFS_ARRAY, "float32", 1,
							  shape, NULL, w },
				1, NULL));
	must(pytreefs_draft_commit(d, NULL));
	ck = open_it("bare", &tree);
	assert_int_equal(pytreefs_tree_count(tree), 1);
	check_bytes(ck, pytreefs_tree_node(tree, 0), w, sizeof(w));
	pytreefs_tree_free(tree);
	pytreefs_close(ck);
}

/* ---- refusals ---- */

static int stop_at_once(void *arg, uint64_t done, uint64_t total)
{
	return 1;
}

static void t_refused(void **state)
{
	const float w[2] = { 1, 2 };
	const uint64_t shape[] = { 2 };
	const struct pytreefs_key key[2] = { named("default"), named("w") };
	struct pytreefs_value v = { key, 2, PYTREEFS_ARRAY, "float32", 1, shape, NULL, w };
	const struct pytreefs_progress stop = { .fn = stop_at_once };
	unsigned before = tmp_dir_matching(root, "*", false);
	struct pytreefs_draft *d = begin("9", NULL, 0), *other = NULL;
	char path[PATH_MAX];

	must(pytreefs_draft_put(d, &v, 1, NULL));
	assert_int_equal(pytreefs_draft_put(d, &v, 1, NULL), -EEXIST);
	assert_non_null(strstr(pytreefs_error(), "default/w"));
	v.dtype = "float33";
	assert_int_equal(pytreefs_draft_put(d, &v, 1, NULL), -EINVAL);
	assert_non_null(strstr(pytreefs_error(), "float33"));
	v.n_keys = 0;
	v.dtype = "float32";
	assert_int_equal(pytreefs_draft_put(d, &v, 1, NULL), -EINVAL);
	/* A draft of this process holds the name. */
	snprintf(path, sizeof(path), "%s/9", root);
	assert_true(pytreefs_draft_begin(path, NULL, 0, &other) < 0);
	assert_int_equal(pytreefs_draft_commit(d, &stop), -ECANCELED);
	pytreefs_draft_abort(d);
	assert_int_equal(tmp_dir_matching(root, "*", false), before);
	/* An existing checkpoint is only replaced when the flag is set. */
	snprintf(path, sizeof(path), "%s/1", root);
	assert_int_equal(pytreefs_draft_begin(path, NULL, 0, &d), -EEXIST);
	assert_int_equal(pytreefs_draft_begin(path, "no_such_option=1", 0, &d), -EINVAL);
	assert_int_equal(tmp_dir_matching(root, "*", false), before);
}

/* Directories above a step are made, and stay if it is committed. */
static void t_directories_above(void **state)
{
	const float w[2] = { 1, 2 };
	const uint64_t shape[] = { 2 };
	const struct pytreefs_key key[2] = { named("default"), named("w") };
	struct pytreefs_value v = { key, 2, PYTREEFS_ARRAY, "float32", 1, shape, NULL, w };
	unsigned before = tmp_dir_matching(root, "*", false);
	struct pytreefs_draft *d = begin("run/a/1", NULL, 0), *other = NULL;
	char path[PATH_MAX];

	assert_int_equal(tmp_dir_matching(root, "run", false), 1);
	pytreefs_draft_abort(d);
	assert_int_equal(tmp_dir_matching(root, "*", false), before);
	snprintf(path, sizeof(path), "%s/run/latest/1", root);
	assert_int_equal(pytreefs_draft_begin(path, NULL, 0, &other), -EINVAL);
	assert_int_equal(tmp_dir_matching(root, "*", false), before);
	d = begin("run/a/1", NULL, 0);
	other = begin("run/b/2", NULL, 0);
	pytreefs_draft_abort(d);
	assert_int_equal(tmp_dir_matching(root, "run", false), 1);
	must(pytreefs_draft_put(other, &v, 1, NULL));
	must(pytreefs_draft_commit(other, NULL));
	snprintf(path, sizeof(path), "%s/run/b/2", root);
	assert_int_equal(access(path, F_OK), 0);
	snprintf(path, sizeof(path), "%s/run/a", root);
	assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(t_kinds),        cmocka_unit_test(t_strides),
		cmocka_unit_test(t_stream),       cmocka_unit_test(t_bare_leaf),
		cmocka_unit_test(t_refused),      cmocka_unit_test(t_directories_above),
		cmocka_unit_test(t_cancel_a_put), cmocka_unit_test(t_cancel_inside_a_chunk),
	};

	return cmocka_run_group_tests(tests, make_root, remove_root);
}
