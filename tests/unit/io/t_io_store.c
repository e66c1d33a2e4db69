/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_io_store.c - directories and files of a store in memory: the same calls as for files, beside
 * local files of the same engine, and through the wrappers.
 */
#include <dirent.h>
#include <fcntl.h>

#include "core/io/io.h"
#include "core/io/io_store.h"
#include "tests/unit/lib/unit.h"

static const struct {
	const char *path, *bytes;
} objects[] = {
	{ "top.txt", "top" },
	{ "step/item/data", "0123456789" },
	{ "step/meta", "{}" },
};

struct memory {
	struct io_store base;
	bool is_replaced, is_refused;
	unsigned quiesced;
	struct io_want want; /* from the last look-up */
};
static unsigned freed;

static int memory_lookup(struct io_store *s, const char *path, const struct io_want *want,
			 struct io_object *ret)
{
	struct memory *m = container_of(s, struct memory, base);
	size_t n = strlen(path);

	m->want = want ? *want : (struct io_want){ 0 };
	*ret = (struct io_object){ .tag = "t" };
	for (size_t i = 0; i < ARRAY_LEN(objects); i++) {
		if (!strcmp(objects[i].path, path)) {
			ret->size = strlen(objects[i].bytes);
			ret->mtime.tv_sec = 7;
			return 0;
		}
		if (!n || (!strncmp(objects[i].path, path, n) && objects[i].path[n] == '/')) {
			ret->is_dir = true;
			return 0;
		}
	}
	return fail(-ENOENT, "'%s/%s' does not exist", s->url, path);
}

static int memory_list(struct io_store *s, const char *path, io_store_fn *each, void *arg)
{
	size_t n = strlen(path);
	char last[64] = "";
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(objects) && r == 0; i++) {
		const char *rest = objects[i].path + n + (n > 0);
		struct io_object o = { 0 };
		char name[64] = "";

		if (strncmp(objects[i].path, path, n) != 0 || (n && objects[i].path[n] != '/'))
			continue;
		memcpy(name, rest, strcspn(rest, "/"));
		o.is_dir = strchr(rest, '/');
		if (strcmp(name, last) != 0)
			r = each(arg, name, &o);
		strcpy(last, name);
	}
	return r;
}

static int memory_submit(struct io_store *s, struct io_req *req, size_t n)
{
	struct memory *m = container_of(s, struct memory, base);

	if (m->is_refused)
		return fail(-EACCES, "no credentials");
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < ARRAY_LEN(objects); k++) {
			uint64_t at = req[i].off + req[i].done, size;

			if (strcmp(objects[k].path, req[i].file->key) != 0)
				continue;
			size = strlen(objects[k].bytes);
			req[i].result =
				at < size ? (int64_t)MIN(req[i].n - req[i].done, size - at) : 0;
			memcpy((char *)req[i].p + req[i].done, objects[k].bytes + MIN(at, size),
			       (size_t)req[i].result);
			if (m->is_replaced) {
				req[i].result = -ESTALE;
				req[i].why = strdup("it was replaced");
			}
		}
	return 0;
}

static int memory_wait(struct io_store *s, struct io_req *req, size_t n)
{
	return 0;
}

static void memory_quiesce(struct io_store *s)
{
	container_of(s, struct memory, base)->quiesced++;
}

static const char *memory_file(struct io_store *s, size_t i)
{
	return i ? NULL : "/token";
}

static void memory_free(struct io_store *s)
{
	freed++;
}

static const struct io_store_ops memory_ops = {
	.name = "memory",
	.lookup = memory_lookup,
	.list = memory_list,
	.submit = memory_submit,
	.wait = memory_wait,
	.refresh = memory_quiesce,
	.quiesce = memory_quiesce,
	.file = memory_file,
	.free = memory_free,
};

#define MEMORY                                                                      \
	{                                                                           \
		.base = {.ops = &memory_ops, .url = (char *)(uintptr_t) "mem://b" } \
	}

static int add_name(void *arg, const char *name, unsigned char type)
{
	strcat(strcat(arg, name), type == DT_DIR ? "/ " : " ");
	return 0;
}

static void test_directories(void **state)
{
	struct memory m = MEMORY;
	auto_of(io_dir) struct io_dir *root = NULL, *step = NULL, *none = NULL;
	struct io_engine *io;
	char names[64] = "";
	unsigned group, other;
	struct stat st;

	assert_int_equal(io_engine_open_store("sync", &m.base, &io), 0);
	assert_int_equal(io_store_root(io, &root), 0);
	assert_string_equal(root->path, "mem://b");
	assert_int_equal(io_list(root, ".", add_name, names), 0);
	assert_string_equal(names, "top.txt step/ ");
	assert_int_equal(io_dir_sub(root, "step", &step), 0);
	assert_string_equal(step->path, "mem://b/step");
	assert_true(io_dir_in_store(step));
	assert_int_equal(io_stat(step, "meta", &st), 0);
	assert_true(S_ISREG(st.st_mode) && st.st_size == 2 && st.st_mtim.tv_sec == 7);
	assert_int_equal(io_stat_acl(step, ".", &st, &group, &other), 0);
	assert_true(S_ISDIR(st.st_mode) && group == 5 && other == 5);
	assert_int_equal(io_dir_sub(step, "meta", &none), -ENOTDIR);
	assert_int_equal(io_dir_sub(step, "none", &none), -ENOENT);
	assert_int_equal(io_stat(step, "../top.txt", &st), -EUCLEAN);
	io_quiesce(io);
	assert_int_equal(m.quiesced, 1);
	io_dir_close(take(step));
	io_dir_close(take(root));
	io_engine_close(io);
}

static void test_reads(void **state)
{
	struct memory m = MEMORY;
	auto_of(io_dir) struct io_dir *root = NULL;
	auto_of(io_file) struct io_file *file = NULL, *local = NULL;
	char a[4] = "", b[3] = "", c[5] = "";
	struct io_engine *io;
	uint64_t from, to;
	auto_buf whole = { 0 };

	assert_int_equal(io_engine_open_store("sync", &m.base, &io), 0);
	assert_int_equal(io_store_root(io, &root), 0);
	assert_int_equal(io_file_open(root, "step/item/data", O_RDONLY, 0, &file), 0);
	assert_int_equal(io_file_temp(io, NULL, "/tmp", &local), 0);
	assert_int_equal(io_write_exact(local, "local", 5, 0), 0);

	/* One batch for both kinds of files. */
	struct io_req req[] = {
		{ .op = IO_READ, .file = file, .p = a, .n = 3, .off = 0 },
		{ .op = IO_READ, .file = local, .p = c, .n = 4, .off = 0 },
		{ .op = IO_READ, .file = file, .p = b, .n = 2, .off = 8 },
	};
	assert_int_equal(io_run_exact(io, req, 3), 0);
	assert_string_equal(a, "012");
	assert_string_equal(b, "89");
	assert_string_equal(c, "loca");
	assert_int_equal(io_read_file(root, "step/meta", 10, &whole), 0);
	assert_int_equal(whole.n, 2);
	assert_int_equal(io_read_exact(file, a, 3, 9), -EUCLEAN);

	/* The store refuses its part: nothing is in flight, and all of the batch has that result. */
	m.is_refused = true;
	io_submit(io, req + 1, 2);
	assert_int_equal(req[1].result, -EACCES);
	assert_int_equal(io_wait(io, req + 1, 2), -EACCES);
	assert_string_equal(err_text(-EACCES),
			    "cannot read 'temporary file' at offset 0, 4 bytes: no credentials");
	assert_int_equal(req[2].result, -EACCES);
	m.is_refused = false;
	assert_int_equal(io_run_exact(io, req, 3), 0);

	/* Calls that need a descriptor. */
	assert_int_equal(io_splice_exact(file, 0, 3, -1), 1);
	assert_true(io_file_data(file, 4, &from, &to) && from == 4 && to == 10);
	assert_int_equal(io_file_check_size(file), 0);
	io_file_drop_cache(file, 0, 10);
	io_file_unref(take(file));
	io_file_unref(take(local));
	io_dir_close(take(root));
	io_engine_close(io);
}

/*
 * The range that is read next reaches the store through the wrappers; a local file is opened as
 * usual.
 */
static void test_a_range_that_is_read_next(void **state)
{
	struct memory m = MEMORY;
	auto_of(io_dir) struct io_dir *root = NULL, *here = NULL;
	auto_of(io_file) struct io_file *file = NULL;
	struct io_engine *io;

	assert_int_equal(io_engine_open_store("trace:fault(open:eio:1000):sync", &m.base, &io), 0);
	assert_int_equal(io_store_root(io, &root), 0);
	assert_int_equal(io_file_open_range(root, "step/item/data", 3, 4, &file), 0);
	assert_true(m.want.off == 3 && m.want.n == 4);
	io_file_unref(take(file));
	assert_int_equal(io_file_open_range(root, "step/item/data", 3, 0, &file), 0);
	assert_true(m.want.n == 0);
	io_file_unref(take(file));
	assert_int_equal(io_dir_open(io, "/proc/self", &here), 0);
	assert_int_equal(io_file_open_range(here, "status", 3, 4, &file), 0);
	io_file_unref(take(file));
	io_dir_close(take(here));
	io_dir_close(take(root));
	io_engine_close(io);
}

static void test_is_read_only(void **state)
{
	struct memory m = MEMORY;
	auto_of(io_dir) struct io_dir *root = NULL;
	struct io_engine *io;
	struct io_file *file;

	assert_int_equal(io_engine_open_store("sync", &m.base, &io), 0);
	assert_int_equal(io_store_root(io, &root), 0);
	assert_int_equal(io_file_open(root, "new", O_RDWR | O_CREAT, 0666, &file), -EROFS);
	assert_int_equal(io_mkdir(root, "new", 0777), -EROFS);
	assert_int_equal(io_dirop(root, IO_RENAME, "top.txt", "new", 0), -EROFS);
	assert_int_equal(io_file_temp(io, root, NULL, &file), -EROFS);
	assert_int_equal(io_write_file(root, "top.txt", span_str("x")), -EROFS);
	io_dir_close(take(root));
	io_engine_close(io);
}

static void test_failures(void **state)
{
	struct memory m = MEMORY;
	auto_of(io_dir) struct io_dir *root = NULL;
	auto_of(io_file) struct io_file *file = NULL;
	struct io_engine *io;
	char a[4];

	freed = 0;
	assert_int_equal(io_engine_open_store("none", &m.base, &io), -EINVAL);
	assert_int_equal(freed, 1);
	assert_int_equal(io_engine_open_store("trace:fault(open:eio:3;read:eacces:2):sync", &m.base,
					      &io),
			 0);
	assert_int_equal(io_store_root(io, &root), 0);
	assert_int_equal(io_file_open(root, "step/item/data", O_RDONLY, 0, &file), 0);
	assert_int_equal(io_list(root, ".", add_name, a), -EIO);
	m.is_replaced = true;
	assert_int_equal(io_read_exact(file, a, 3, 2), -ESTALE);
	assert_string_equal(err_text(-ESTALE),
			    "cannot read 'step/item/data' at offset 2, 3 bytes: it was replaced");
	assert_true(io_file_is_doubtful(file));
	assert_int_equal(io_read_exact(file, a, 3, 2), -EACCES);
	io_file_unref(take(file));
	io_dir_close(take(root));
	io_engine_close(io);
	assert_int_equal(freed, 2);
	assert_int_equal(io_engine_open("sync", &io), 0);
	assert_int_equal(io_store_root(io, &root), -EINVAL);
	io_engine_close(io);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_directories),
		cmocka_unit_test(test_reads),
		cmocka_unit_test(test_a_range_that_is_read_next),
		cmocka_unit_test(test_is_read_only),
		cmocka_unit_test(test_failures),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
