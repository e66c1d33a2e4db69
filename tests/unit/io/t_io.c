/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_io.c - both engines read the same bytes; paths stay inside their directory; faults occur as the
 * rules say.
 */
#include "tests/unit/lib/unit.h"
#include "tests/unit/lib/tmp_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/io/segments.h"
#include "core/io/io_engine.h"

static char root[TMP_DIR_MAX];

static int setup(void **state)
{
	return tmp_dir_make_on_disk(root, "t_io");
}

static int teardown(void **state)
{
	return tmp_dir_remove(root);
}

static struct io_dir *open_root(const char *stack, struct io_engine **io)
{
	struct io_dir *dir;

	assert_int_equal(io_engine_open(stack, io), 0);
	assert_int_equal(io_dir_open(*io, root, &dir), 0);
	return dir;
}

static const char *const engines[] = { "sync", "auto", "fault(read:short:1):sync",
				       "fault(read:short:50%):auto" };

static void batches_read_what_was_written(void **state)
{
	for (size_t e = 0; e < ARRAY_LEN(engines); e++) {
		enum { N = 300, SIZE = 1000 };
		static uint8_t data[N * SIZE], back[N * SIZE];
		struct io_req req[N];
		struct io_engine *io;
		struct io_dir *dir = open_root(engines[e], &io);
		struct io_file *f;

		for (size_t i = 0; i < sizeof(data); i++)
			data[i] = (uint8_t)(i * 31 + i / 256);
		assert_int_equal(io_file_open(dir, "data", O_RDWR | O_CREAT | O_TRUNC, 0600, &f),
				 0);
		for (int i = 0; i < N; i++)
			req[i] = (struct io_req){ .op = IO_WRITE,
						  .file = f,
						  .p = data + i * SIZE,
						  .n = SIZE,
						  .off = (uint64_t)i * SIZE };
		assert_int_equal(io_run(io, req, N), 0);
		assert_int_equal(io_file_sync(f), 0);
		io_file_unref(f);
		assert_int_equal(io_file_open(dir, "data", O_RDONLY, 0, &f), 0);
		assert_int_equal(f->size, sizeof(data));
		/*
		 * Two batches are in flight together; each reads backwards, and they are waited for
		 * in reverse order.
		 */
		for (int i = 0; i < N; i++)
			req[i] = (struct io_req){ .op = IO_READ,
						  .file = f,
						  .p = back + (N - 1 - i) * SIZE,
						  .n = SIZE,
						  .off = (uint64_t)(N - 1 - i) * SIZE };
		io_submit(io, req, N / 2);
		io_submit(io, req + N / 2, N / 2);
		assert_int_equal(io_wait(io, req + N / 2, N / 2), 0);
		assert_int_equal(io_wait(io, req, N / 2), 0);
		assert_memory_equal(data, back, sizeof(data));
		/* A range across the end: the result is short, and the exact reader fails. */
		req[0] = (struct io_req){
			.op = IO_READ, .file = f, .p = back, .n = 500, .off = sizeof(data) - 100
		};
		assert_int_equal(io_run(io, req, 1), 0);
		assert_int_equal(req[0].result, 100);
		assert_int_equal(io_read_exact(f, back, 500, sizeof(data) - 100), -EUCLEAN);
		assert_string_equal(
			err_text(-EUCLEAN),
			"'data' ends at byte 300000, 500 bytes at offset 299900 were wanted");
		io_file_unref(f);
		io_dir_close(dir);
		io_engine_close(io);
	}
}

static void paths_stay_inside(void **state)
{
	struct io_engine *io;
	struct io_dir *dir = open_root("auto", &io);
	struct io_file *f;
	char path[128];

	snprintf(path, sizeof(path), "%s/out", root);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	snprintf(path, sizeof(path), "%s/up", root);
	assert_int_equal(symlink("../../etc/passwd", path), 0);
	snprintf(path, sizeof(path), "%s/in", root);
	assert_int_equal(symlink("data", path), 0);
	snprintf(path, sizeof(path), "%s/fifo", root);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(io_file_open(dir, "out", O_RDONLY, 0, &f), -EUCLEAN);
	assert_non_null(strstr(err_text(-EUCLEAN), "leads out of"));
	assert_int_equal(io_file_open(dir, "up", O_RDONLY, 0, &f), -EUCLEAN);
	assert_int_equal(io_file_open(dir, "../etc/passwd", O_RDONLY, 0, &f), -EUCLEAN);
	assert_int_equal(io_file_open(dir, "/etc/passwd", O_RDONLY, 0, &f), -EUCLEAN);
	assert_int_equal(io_file_open(dir, "fifo", O_RDONLY, 0, &f), -EUCLEAN);
	assert_int_equal(io_file_open(dir, "none", O_RDONLY, 0, &f), -ENOENT);
	assert_int_equal(io_file_open(dir, ".", O_RDONLY, 0, &f), -EISDIR);
	assert_int_equal(io_file_open(dir, "in", O_RDONLY, 0, &f), 0);
	io_file_unref(f);
	io_dir_close(dir);
	io_engine_close(io);
}

static void joined_paths_are_checked(void **state)
{
	static const struct {
		const char *path;
		int want;
	} cases[] = {
		{ "a", 0 },
		{ "a/b.c", 0 },
		{ "", -EUCLEAN },
		{ "/a", -EUCLEAN },
		{ "a/", -EUCLEAN },
		{ "a//b", -EUCLEAN },
		{ "a/../b", -EUCLEAN },
		{ "..", -EUCLEAN },
		{ "./a", -EUCLEAN },
		{ "...", 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_int_equal(io_path_check(span_str(cases[i].path), "x"), cases[i].want);
	assert_int_equal(io_path_check(span_of("a\0b", 3), "x"), -EUCLEAN);
}

static void names_change_through_the_engine(void **state)
{
	struct io_engine *io;
	struct io_dir *dir = open_root("auto", &io);
	auto_buf text = { 0 };
	struct stat st;

	assert_int_equal(io_dirop(dir, IO_MKDIR, "d", NULL, 0700), 0);
	assert_int_equal(io_dirop(dir, IO_MKDIR, "d", NULL, 0700), -EEXIST);
	assert_int_equal(io_write_file(dir, "d/a", span_str("hello")), 0);
	assert_int_equal(io_write_file(dir, "d/b", span_str("world")), 0);
	assert_int_equal(io_dirop(dir, IO_RENAME_NEW, "d/a", "d/b", 0), -EEXIST);
	assert_int_equal(io_dirop(dir, IO_RENAME, "d/a", "d/b", 0), 0);
	assert_int_equal(io_read_file(dir, "d/b", 100, &text), 0);
	assert_string_equal(buf_str(&text), "hello");
	assert_int_equal(io_read_file(dir, "d/b", 4, &text), -EFBIG);
	assert_int_equal(io_dirop(dir, IO_SYNC_DIR, "d", NULL, 0), 0);
	assert_int_equal(io_dirop(dir, IO_RMDIR, "d", NULL, 0), -ENOTEMPTY);
	assert_int_equal(io_dirop(dir, IO_UNLINK, "d/b", NULL, 0), 0);
	assert_int_equal(io_dirop(dir, IO_RMDIR, "d", NULL, 0), 0);
	assert_int_equal(io_stat(dir, "d", &st), -ENOENT);
	io_dir_close(dir);
	io_engine_close(io);
}

static void faults_occur_as_the_rules_say(void **state)
{
	struct io_engine *io;
	struct io_dir *dir =
		open_root("fault(write:enospc:2;sync:eio:1+;mkdir:eacces:always):sync", &io);

	assert_int_equal(io_write_file(dir, "one", span_str("x")), -EIO);
	assert_int_equal(io_write_file(dir, "two", span_str("x")), -ENOSPC);
	assert_non_null(strstr(err_text(-ENOSPC), "cannot write 'two' at offset 0, 1 bytes"));
	assert_int_equal(io_write_file(dir, "three", span_str("x")), -EIO);
	assert_int_equal(io_dirop(dir, IO_MKDIR, "q", NULL, 0700), -EACCES);
	io_dir_close(dir);
	io_engine_close(io);
	assert_int_equal(io_engine_open("fault(write:nonsense:2):sync", &io), -EINVAL);
	assert_int_equal(io_engine_open("turbo", &io), -EINVAL);
	/* No test has registered it in this program, as in the shipped one. */
	assert_int_equal(io_engine_open("fault(crash:drop@1):sync", &io), -EINVAL);
	assert_non_null(strstr(err_text(-EINVAL), "is not built in"));
}

/*
 * Each kind of call is interrupted once and repeated; a file system that interrupts for ever is an
 * error.
 */
static void interrupted_calls_are_repeated(void **state)
{
	static const char *const stacks[] = { "fault(any:eintr:40%;any:eagain:10%):sync",
					      "fault(any:eintr:40%;any:eagain:10%):auto" };
	static const char text[] = "what is written";

	for (size_t e = 0; e < ARRAY_LEN(stacks); e++) {
		struct io_engine *io;
		struct io_dir *dir = open_root(stacks[e], &io), *sub;
		struct io_file *f;
		struct stat st;
		char back[sizeof(text)];

		for (int i = 0; i < 30; i++) {
			assert_int_equal(io_dirop(dir, IO_MKDIR, "i", NULL, 0700), 0);
			assert_int_equal(io_dir_sub(dir, "i", &sub), 0);
			assert_int_equal(io_write_file(sub, "a", span_of(text, sizeof(text))), 0);
			assert_int_equal(io_dirop(sub, IO_RENAME_NEW, "a", "b", 0), 0);
			assert_int_equal(io_dirop(sub, IO_SYNC_DIR, ".", NULL, 0), 0);
			assert_int_equal(io_stat(sub, "b", &st), 0);
			assert_int_equal(io_file_open(sub, "b", O_RDWR, 0, &f), 0);
			assert_int_equal(io_read_exact(f, back, sizeof(back), 0), 0);
			assert_string_equal(back, text);
			assert_int_equal(io_file_truncate(f, 3), 0);
			assert_int_equal(io_file_sync(f), 0);
			io_file_unref(f);
			io_dir_close(sub);
			assert_int_equal(io_remove_tree(dir, "i"), 0);
		}
		io_dir_close(dir);
		io_engine_close(io);
	}
}

/* ---- calls that have done their work and are interrupted ---- */

struct late {
	struct io_engine base;
	unsigned n;
};

static int late(struct io_engine *io, int r)
{
	struct late *e = container_of(io, struct late, base);

	return r >= 0 && e->n++ % 2 == 0 ? -EINTR : r;
}

static int late_open(struct io_engine *io, int dirfd, const char *path, int flags, unsigned mode)
{
	int fd = io->below->ops->open(io->below, dirfd, path, flags, mode);
	int r = flags & O_CREAT ? late(io, fd) : fd;

	if (r < 0 && fd >= 0)
		close(fd);
	return r;
}

static int late_dirop(struct io_engine *io, enum io_dirop op, int dirfd, const char *from,
		      const char *to, unsigned mode)
{
	return late(io, io->below->ops->dirop(io->below, op, dirfd, from, to, mode));
}

static int late_submit(struct io_engine *io, struct io_req *req, size_t n)
{
	return io->below->ops->submit(io->below, req, n);
}

static int late_wait(struct io_engine *io, struct io_req *req, size_t n)
{
	return io->below->ops->wait(io->below, req, n);
}

static void late_free(struct io_engine *io)
{
	io->below->ops->free(io->below);
	free(io);
}

static int late_new(const char *what, struct io_engine *below, struct io_engine **ret)
{
	static struct io_engine_ops ops;
	struct late *e = calloc(1, sizeof(*e));

	assert_non_null(e);
	ops = *below->ops;
	ops.submit = late_submit;
	ops.wait = late_wait;
	ops.open = late_open;
	ops.dirop = late_dirop;
	ops.free = late_free;
	e->base.ops = &ops;
	e->base.below = below;
	*ret = &e->base;
	return 0;
}

static void calls_that_were_done_before_the_interrupt_succeed(void **state)
{
	static struct io_engine_kind kind = { .name = "late", .open = late_new };
	struct io_engine *io;
	struct io_dir *dir;
	struct io_file *f;

	io_register_engine(&kind);
	dir = open_root("fault(late:x):sync", &io);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(io_dirop(dir, IO_MKDIR, "d", NULL, 0700), 0);
		assert_int_equal(io_dirop(dir, IO_MKDIR, "d", NULL, 0700), -EEXIST);
		assert_int_equal(io_file_open(dir, "d/f", O_RDWR | O_CREAT | O_EXCL, 0600, &f), 0);
		assert_int_equal(io_write_exact(f, "x", 1, 0), 0);
		io_file_unref(f);
		assert_int_equal(io_file_open(dir, "d/f", O_RDWR | O_CREAT | O_EXCL, 0600, &f),
				 -EEXIST);
		assert_int_equal(io_dirop(dir, IO_RENAME_NEW, "d/f", "d/g", 0), 0);
		assert_int_equal(io_dirop(dir, IO_UNLINK, "d/g", NULL, 0), 0);
		assert_int_equal(io_dirop(dir, IO_RMDIR, "d", NULL, 0), 0);
	}
	io_dir_close(dir);
	io_engine_close(io);
}

/* ---- a ring that fails ---- */

/* The ring's descriptor is replaced by another file's: every later call fails. */
static bool break_ring(void)
{
	char path[64], to[64];

	for (int fd = 3; fd < 256; fd++) {
		ssize_t n;
		int null;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, to, sizeof(to) - 1);
		if (n < 0 || !memmem(to, (size_t)n, "io_uring", 8))
			continue;
		null = open("/dev/null", O_RDWR | O_CLOEXEC);
		assert_int_equal(dup3(null, fd, O_CLOEXEC), fd);
		close(null);
		return true;
	}
	return false;
}

static void a_ring_that_stops_leaves_nothing_in_flight(void **state)
{
	enum { N = 150, SIZE = 4096 };
	static uint8_t data[N * SIZE], back[N * SIZE];
	struct io_req req[N];
	struct io_engine *io;
	struct io_dir *dir = open_root("auto", &io);
	struct io_file *f;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 17 + i / SIZE);
	assert_int_equal(io_write_file(dir, "broken", span_of(data, sizeof(data))), 0);
	assert_int_equal(io_file_open(dir, "broken", O_RDONLY, 0, &f), 0);
	for (int half = 0; half < 2; half++) {
		for (int i = 0; i < N; i++)
			req[i] = (struct io_req){ .op = IO_READ,
						  .file = f,
						  .p = back + i * SIZE,
						  .n = SIZE,
						  .off = (uint64_t)i * SIZE };
		memset(back, 0, sizeof(back));
		/*
		 * First with a part of the batch in flight, then with a ring that is already
		 * broken.
		 */
		io_submit(io, req, 40);
		if (half == 0 && strcmp(io_engine_name(io), "uring") == 0)
			assert_true(break_ring());
		io_submit(io, req + 40, N - 40);
		assert_int_equal(io_wait(io, req + 40, N - 40), 0);
		assert_int_equal(io_wait(io, req, 40), 0);
		assert_memory_equal(back, data, sizeof(data));
	}
	io_file_unref(f);
	io_dir_close(dir);
	io_engine_close(io);
}

static void calls_that_are_always_interrupted_fail(void **state)
{
	struct io_engine *io;
	struct io_dir *dir = open_root("fault(write:eintr:always):auto", &io);

	assert_int_equal(io_write_file(dir, "never", span_str("x")), -EIO);
	assert_string_equal(err_text(-EIO),
			    "cannot write 'never' at offset 0, 1 bytes: Interrupted system call");
	io_dir_close(dir);
	io_engine_close(io);
}

static void a_torn_transfer_is_an_error(void **state)
{
	static const char *const real[] = { "sync", "auto" };
	static uint8_t data[100000], back[100000];

	for (size_t e = 0; e < ARRAY_LEN(real); e++) {
		struct io_engine *io;
		struct io_dir *dir;
		struct io_file *f;
		char stack[64];

		snprintf(stack, sizeof(stack), "fault(write:torn:2;read:torn:2):%s", real[e]);
		dir = open_root(stack, &io);
		assert_int_equal(io_write_file(dir, "t", span_of(data, sizeof(data))), 0);
		assert_int_equal(io_write_file(dir, "u", span_of(data, sizeof(data))), -EIO);
		assert_string_equal(
			err_text(-EIO),
			"cannot write 'u' at offset 50000, 50000 bytes: Input/output error");
		assert_int_equal(io_file_open(dir, "t", O_RDONLY, 0, &f), 0);
		assert_int_equal(io_read_exact(f, back, sizeof(back), 0), 0);
		assert_int_equal(io_read_exact(f, back, 1000, 500), -EIO);
		assert_string_equal(
			err_text(-EIO),
			"cannot read 't' at offset 1000, 500 bytes: Input/output error");
		assert_int_equal(io_read_exact(f, back, 1000, 500), 0);
		io_file_unref(f);
		io_dir_close(dir);
		io_engine_close(io);
	}
}

static void an_engine_survives_a_fork(void **state)
{
	for (size_t e = 0; e < 2; e++) {
		struct io_engine *io;
		struct io_dir *dir = open_root(engines[e], &io);
		auto_buf text = { 0 };
		int status;
		pid_t pid;

		assert_int_equal(io_write_file(dir, "f", span_str("before")), 0);
		pid = fork();
		if (pid == 0) {
			int r = io_read_file(dir, "f", 100, &text);

			_exit(r < 0 || strcmp(buf_str(&text), "before"));
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		assert_int_equal(io_read_file(dir, "f", 100, &text), 0);
		io_dir_close(dir);
		io_engine_close(io);
	}
}

static unsigned open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

struct visitor {
	struct io_dir *dir;
	pthread_barrier_t read, closed;
	int r;
};

static void *visit(void *arg)
{
	struct visitor *v = arg;
	auto_buf text = { 0 };

	v->r = io_read_file(v->dir, "f", 100, &text);
	pthread_barrier_wait(&v->read);
	pthread_barrier_wait(&v->closed);
	return NULL;
}

/* The threads of a pool do so when it reads the arrays of another checkpoint. */
static void an_engine_may_end_before_a_thread_that_used_it(void **state)
{
	for (size_t e = 0; e < 2; e++) {
		unsigned before = open_files();
		struct visitor v = { 0 };
		struct io_engine *io;
		pthread_t thread;

		v.dir = open_root(engines[e], &io);
		assert_int_equal(io_write_file(v.dir, "f", span_str("text")), 0);
		pthread_barrier_init(&v.read, NULL, 2);
		pthread_barrier_init(&v.closed, NULL, 2);
		assert_int_equal(pthread_create(&thread, NULL, visit, &v), 0);
		pthread_barrier_wait(&v.read);
		io_dir_close(v.dir);
		io_engine_close(io);
		/* The thread's ring is gone, too. */
		assert_int_equal(open_files(), before);
		pthread_barrier_wait(&v.closed);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(v.r, 0);
		pthread_barrier_destroy(&v.read);
		pthread_barrier_destroy(&v.closed);
	}
}

static void segments_collect_from_everywhere(void **state)
{
	struct io_engine *io;
	struct io_dir *dir = open_root("auto", &io);
	struct segments g;
	struct io_file *f;
	char back[64] = { 0 };

	assert_int_equal(io_write_file(dir, "g", span_str("0123456789")), 0);
	assert_int_equal(io_file_open(dir, "g", O_RDONLY, 0, &f), 0);
	segments_init(&g, NULL);
	for (int i = 0; i < 10; i++)
		assert_int_equal(segments_add_copy(&g, "ab", 2), 0);
	assert_int_equal(segments_add_file(&g, io_file_ref(f), 2, 3), 0);
	assert_int_equal(segments_add_file(&g, io_file_ref(f), 5, 2), 0);
	assert_int_equal(g.n, 11);
	assert_int_equal(segments_add_zero(&g, 2), 0);
	assert_int_equal(segments_add_copy(&g, "c", 1), 0);
	assert_int_equal(g.bytes, 28);
	assert_int_equal(segments_copy(&g, back), 0);
	assert_memory_equal(back, "abababababababababab23456\0\0c", 28);
	segments_release(&g);
	/* Across the end of the file. */
	assert_int_equal(segments_add_file(&g, io_file_ref(f), 8, 5), 0);
	assert_int_equal(segments_copy(&g, back), -EUCLEAN);
	segments_release(&g);
	io_file_unref(f);
	io_dir_close(dir);
	io_engine_close(io);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(batches_read_what_was_written),
		cmocka_unit_test(paths_stay_inside),
		cmocka_unit_test(joined_paths_are_checked),
		cmocka_unit_test(names_change_through_the_engine),
		cmocka_unit_test(faults_occur_as_the_rules_say),
		cmocka_unit_test(interrupted_calls_are_repeated),
		cmocka_unit_test(calls_that_were_done_before_the_interrupt_succeed),
		cmocka_unit_test(a_ring_that_stops_leaves_nothing_in_flight),
		cmocka_unit_test(calls_that_are_always_interrupted_fail),
		cmocka_unit_test(a_torn_transfer_is_an_error),
		cmocka_unit_test(an_engine_survives_a_fork),
		cmocka_unit_test(an_engine_may_end_before_a_thread_that_used_it),
		cmocka_unit_test(segments_collect_from_everywhere),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
