/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_lib_handle.c - names, errors, damage, canceling, threads, fork, and what is left after close,
 * over the public header.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/lib/tmp_dir.h"
#include "tools/lib/pytreefs.h"

#define STEP DATA "/sample/1000"

static struct pytreefs *open_it(const char *path)
{
	struct pytreefs *ck = NULL;

	if (pytreefs_open(path, NULL, &ck) < 0)
		fail_msg("%s: %s", path, pytreefs_error());
	return ck;
}

/* ---- names ---- */

struct seen {
	char names[4096];
	uint64_t last_step;
	unsigned n;
};

static int see(void *arg, const struct pytreefs_entry *e)
{
	struct seen *s = arg;

	strcat(strcat(s->names, e->name), e->is_directory ? "/ " : " ");
	s->last_step = e->step;
	s->n++;
	return 0;
}

static int stop_at_second(void *arg, const struct pytreefs_entry *e)
{
	return ++*(unsigned *)arg == 2 ? 42 : 0;
}

static void t_names(void **state)
{
	struct pytreefs *ck = open_it(DATA "/sample");
	struct pytreefs_tree *tree = NULL;
	struct pytreefs_stat st;
	struct seen s = { "" };
	unsigned n = 0;
	char *text = NULL;

	assert_int_equal(pytreefs_kind(ck), PYTREEFS_ROOT);
	assert_int_equal(pytreefs_steps(ck, see, &s), 0);
	assert_string_equal(s.names, "1000/ 1500/ ");
	assert_int_equal(s.last_step, 1500);
	s = (struct seen){ "" };
	assert_int_equal(pytreefs_list(ck, "latest/state/history", see, &s), 0);
	assert_string_equal(s.names, "0.json 1.json 2.json ");
	assert_int_equal(pytreefs_list(ck, "1000/state", stop_at_second, &n), 42);
	assert_int_equal(pytreefs_list(ck, "1000/state/step.json", see, &s), -ENOTDIR);
	assert_int_equal(pytreefs_stat(ck, "1000/state/params/embed/table.npy", &st), 0);
	assert_int_equal(st.size, 128 + 128 * 32 * 2);
	assert_false(st.is_directory);
	assert_int_equal(pytreefs_attribute(ck, "1000/state", "kind", &text), 0);
	assert_string_equal(text, "\"dict\"");
	pytreefs_free_text(text);
	assert_int_equal(pytreefs_attribute(ck, "1000/state", "sharding", &text), -ENODATA);
	assert_int_equal(pytreefs_describe(ck, "1000/state/params/embed/table[0:2,3]@float32.npy",
					   &tree),
			 0);
	assert_int_equal(pytreefs_tree_node(tree, 0)->ndim, 1);
	assert_int_equal(pytreefs_tree_node(tree, 0)->shape[0], 2);
	assert_string_equal(pytreefs_tree_node(tree, 0)->dtype, "float32");
	assert_null(pytreefs_tree_node(tree, 1));
	pytreefs_tree_free(tree);
	pytreefs_close(ck);
	ck = open_it(STEP "/state/params");
	assert_int_equal(pytreefs_kind(ck), PYTREEFS_DICT);
	assert_int_equal(pytreefs_steps(ck, see, &s), -EINVAL);
	pytreefs_close(ck);
	ck = open_it(STEP "/state/step.json");
	assert_int_equal(pytreefs_kind(ck), PYTREEFS_SCALAR);
	pytreefs_close(ck);
}

/* A name is looked up where it is, whichever names come before it in the same call. */
static void check_maps(const char *path, const char *first, const char *then, int want)
{
	struct pytreefs *ck = open_it(path);
	struct pytreefs_mapped m[] = { { .name = first }, { .name = then } };

	pytreefs_map(ck, m, 2, 0);
	if (m[1].result != want)
		fail_msg("'%s' after '%s' in '%s': %d", then, first, path, m[1].result);
	pytreefs_mapped_release(m, 2);
	pytreefs_close(ck);
}

static void t_names_of_maps(void **state)
{
	/* The second name is one beside the directory that was opened, or beside the leaf. */
	check_maps(STEP "/state/history", "", "step.json", -ENOENT);
	check_maps(STEP "/state/history", ".", "step.json", -ENOENT);
	check_maps(STEP "/state", "step.json/", "step.json/learning_rate.json", -ENOTDIR);
	check_maps(STEP "/state", "step.json/.", "step.json/learning_rate.json", -ENOTDIR);
}

/* ---- errors ---- */

static void t_errors(void **state)
{
	struct pytreefs_request q = { .name = "state/no such leaf.npy" };
	struct pytreefs *ck = NULL, *other = (struct pytreefs *)1;
	char byte;

	assert_int_equal(pytreefs_open("/none/none", NULL, &other), -ENOENT);
	assert_ptr_equal(other, (struct pytreefs *)1);
	assert_non_null(strstr(pytreefs_error(), "none"));
	assert_string_equal(pytreefs_error_name(), "/none/none");
	assert_int_equal(pytreefs_error_code(), -ENOENT);
	assert_int_equal(pytreefs_open(STEP, "cache=much", &other), -EINVAL);
	assert_non_null(strstr(pytreefs_error(), "cache"));
	assert_int_equal(pytreefs_open(STEP, "cash=1M", &other), -EINVAL);
	assert_non_null(strstr(pytreefs_error(), "cache"));
	assert_int_equal(pytreefs_open(DATA, NULL, &other), -EINVAL);
	ck = open_it(STEP);
	assert_int_equal(pytreefs_read(ck, "state/none.npy", &byte, 1, 0), -ENOENT);
	assert_non_null(strstr(pytreefs_error(), "state/none.npy"));
	assert_int_equal(pytreefs_read(ck, "state", &byte, 1, 0), -EISDIR);
	assert_int_equal(pytreefs_read_many(ck, &q, 1, NULL), -ENOENT);
	assert_int_equal(q.result, -ENOENT);
	assert_non_null(strstr(q.error, "no such leaf"));
	pytreefs_requests_release(&q, 1);
	q = (struct pytreefs_request){ .name = "state/step.json", .to = &byte, .size = 1 };
	assert_int_equal(pytreefs_read_many(ck, &q, 1, NULL), -EINVAL);
	pytreefs_requests_release(&q, 1);
	q = (struct pytreefs_request){ .name = "state/params", .to = &byte, .size = 1 };
	assert_int_equal(pytreefs_read_many(ck, &q, 1, NULL), -EINVAL);
	pytreefs_requests_release(&q, 1);
	assert_int_equal(pytreefs_read_many(ck, NULL, 0, NULL), 0);
	pytreefs_close(ck);
	pytreefs_close(NULL);
}

/* ---- whole trees ---- */

struct load {
	struct pytreefs *ck;
	struct pytreefs_tree *tree;
	struct pytreefs_request *q;
	size_t n;
};

static int load(struct load *l, const struct pytreefs_progress *progress)
{
	l->tree = NULL;
	if (pytreefs_tree(l->ck, "", 0, &l->tree) < 0)
		fail_msg("%s", pytreefs_error());
	l->q = calloc(pytreefs_tree_count(l->tree), sizeof(*l->q));
	l->n = 0;
	for (size_t i = 0; i < pytreefs_tree_count(l->tree); i++) {
		const struct pytreefs_node *n = pytreefs_tree_node(l->tree, i);

		if (n->kind != PYTREEFS_ARRAY && n->kind != PYTREEFS_SCALAR)
			continue;
		l->q[l->n].name = n->path;
		l->q[l->n].size = n->bytes;
		l->q[l->n++].to = calloc(1, n->bytes + 1);
	}
	return pytreefs_read_many(l->ck, l->q, l->n, progress);
}

static void unload(struct load *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->q[i].to);
	pytreefs_requests_release(l->q, l->n);
	free(l->q);
	pytreefs_tree_free(l->tree);
}

static bool is_same(const struct load *a, const struct load *b, size_t i)
{
	return a->q[i].size == b->q[i].size && !memcmp(a->q[i].to, b->q[i].to, a->q[i].size);
}

/* ---- damage ---- */

/* The first byte of a chunk's frame, somewhere in a data file. */
/* A data file that is large enough for what damage() looks for. */
static void find_large(const char *dir, char path[PATH_MAX])
{
	DIR *d = opendir(dir);
	struct stat st = { .st_size = 0 };

	while (!S_ISREG(st.st_mode) || st.st_size <= 40 << 10) {
		struct dirent *e = readdir(d);

		assert_non_null(e);
		snprintf(path, PATH_MAX, "%s/%s", dir, e->d_name);
		assert_int_equal(stat(path, &st), 0);
	}
	closedir(d);
}

static void damage(const char *step)
{
	static const uint8_t magic[] = { 0x28, 0xb5, 0x2f, 0xfd };
	static uint8_t bytes[1 << 20];
	char dir[128], path[PATH_MAX];
	const uint8_t *at;
	ssize_t n;
	int fd;

	snprintf(dir, sizeof(dir), "%s/state/ocdbt.process_0/d", step);
	find_large(dir, path);
	fd = open(path, O_RDWR);
	n = read(fd, bytes, sizeof(bytes));
	at = memmem(bytes + 10000, (size_t)n - 10000, magic, sizeof(magic));
	assert_non_null(at);
	assert_int_equal(pwrite(fd, "x", 1, at - bytes), 1);
	close(fd);
}

static void t_damage(void **state)
{
	char dir[TMP_DIR_MAX], step[TMP_DIR_MAX + 8];
	struct load whole = { .ck = open_it(STEP) }, broken = { NULL };
	unsigned failed = 0;
	int r;

	assert_int_equal(tmp_dir_make(dir, "t_lib_handle"), 0);
	snprintf(step, sizeof(step), "%s/1000", dir);
	assert_int_equal(tmp_dir_copy(STEP, step), 0);
	damage(step);
	broken.ck = open_it(step);
	assert_int_equal(load(&whole, NULL), 0);
	r = load(&broken, NULL);
	assert_true(r == -EUCLEAN || r == -EBADMSG);
	assert_int_equal(pytreefs_error_errno(), EIO);
	assert_int_equal(broken.n, whole.n);
	for (size_t i = 0; i < whole.n; i++) {
		if (broken.q[i].result >= 0) {
			assert_true(is_same(&whole, &broken, i));
			continue;
		}
		failed++;
		/* The leaf, the file, and the place in it. */
		assert_non_null(strstr(broken.q[i].error, broken.q[i].name));
		assert_non_null(strstr(broken.q[i].error, "ocdbt.process_0/d/"));
	}
	assert_int_equal(failed, 1);
	unload(&whole);
	unload(&broken);
	pytreefs_close(whole.ck);
	pytreefs_close(broken.ck);
	assert_int_equal(tmp_dir_remove(dir), 0);
}

/* ---- progress and canceling ---- */

struct reported {
	pthread_t by;
	uint64_t done, total;
	unsigned n;
	int stop;
};

static int tell(void *arg, uint64_t done, uint64_t total)
{
	struct reported *t = arg;

	assert_true(pthread_equal(t->by, pthread_self()));
	assert_true(done >= t->done && done <= total);
	t->done = done;
	t->total = total;
	t->n++;
	return t->stop;
}

static void t_cancel(void **state)
{
	struct reported reported = { .by = pthread_self() };
	const int canceled = 1;
	struct pytreefs_progress p = { .fn = tell, .arg = &reported };
	struct load l = { .ck = open_it(STEP) };
	uint64_t bytes = 0;

	assert_int_equal(load(&l, &p), 0);
	for (size_t i = 0; i < l.n; i++)
		bytes += l.q[i].size;
	assert_true(reported.n > 0);
	assert_int_equal(reported.total, bytes);
	unload(&l);
	reported = (struct reported){ .by = pthread_self(), .stop = 1 };
	assert_int_equal(load(&l, &p), -ECANCELED);
	assert_int_equal(reported.n, 1);
	unload(&l);
	p = (struct pytreefs_progress){ .cancel = &canceled };
	assert_int_equal(load(&l, &p), -ECANCELED);
	unload(&l);
	pytreefs_close(l.ck);
}

/* ---- threads ---- */

static struct load expected;

static void *load_often(void *arg)
{
	struct load l = { .ck = arg };
	bool own = !arg;

	for (int round = 0; round < 5; round++) {
		if (own && pytreefs_open(STEP, "threads=2,cache=64K", &l.ck) < 0)
			return "cannot open";
		if (load(&l, NULL) < 0 || l.n != expected.n)
			return "cannot load";
		for (size_t i = 0; i < l.n; i++)
			if (!is_same(&l, &expected, i))
				return "other bytes";
		unload(&l);
		/* The error of a thread is its own. */
		if (pytreefs_stat(l.ck, "none", &(struct pytreefs_stat){ 0 }) != -ENOENT)
			return "it exists";
		if (own)
			pytreefs_close(l.ck);
	}
	return NULL;
}

static void run_threads(struct pytreefs *shared, unsigned n, void (*meanwhile)(struct pytreefs *ck))
{
	pthread_t thread[16];
	void *wrong;

	for (unsigned i = 0; i < n; i++)
		assert_int_equal(
			pthread_create(&thread[i], NULL, load_often, i % 2 ? shared : NULL), 0);
	if (meanwhile)
		meanwhile(shared);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(pthread_join(thread[i], &wrong), 0);
		if (wrong)
			fail_msg("thread %u: %s", i, (char *)wrong);
	}
}

/* Eight at once, half of them on one handle. */
static void t_threads(void **state)
{
	expected.ck = open_it(STEP);
	assert_int_equal(load(&expected, NULL), 0);
	run_threads(expected.ck, 8, NULL);
	unload(&expected);
	pytreefs_close(expected.ck);
}

/* ---- fork ---- */

static int in_child(struct pytreefs *ck)
{
	struct pytreefs_tree *tree = NULL;
	struct load l = { NULL };
	char byte;

	alarm(30);
	if (pytreefs_tree(ck, "", 0, &tree) != -ECHILD ||
	    pytreefs_read(ck, "state/step.json", &byte, 1, 0) != -ECHILD ||
	    pytreefs_read_many(ck, NULL, 0, NULL) != -ECHILD || !strstr(pytreefs_error(), "fork"))
		return 1;
	pytreefs_close(ck);
	if (pytreefs_open(STEP, NULL, &l.ck) < 0)
		return 2;
	if (load(&l, NULL) < 0 || l.n != expected.n)
		return 3;
	for (size_t i = 0; i < l.n; i++)
		if (!is_same(&l, &expected, i))
			return 4;
	unload(&l);
	pytreefs_close(l.ck);
	return 0;
}

/* Another program ends the process: valgrind would call leaked what threads of the parent hold. */
static void end_child(int status)
{
	if (status == 0)
		execl("/bin/true", "true", (char *)NULL);
	_exit(status ? status : 127);
}

static void fork_often(struct pytreefs *ck)
{
	for (int i = 0; i < 10; i++) {
		pid_t child = fork();
		int status = -1;

		assert_true(child >= 0);
		if (child == 0)
			end_child(in_child(ck));
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
	}
}

/* While other threads work, who may hold locks of the process. */
static void t_fork(void **state)
{
	expected.ck = open_it(STEP);
	assert_int_equal(load(&expected, NULL), 0);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	/* The locks of gcc 12's sanitizers do not survive a fork beside other threads. */
	fork_often(expected.ck);
#else
	run_threads(expected.ck, 4, fork_often);
#endif
	unload(&expected);
	pytreefs_close(expected.ck);
}

/* ---- what is left ---- */

static unsigned entries(const char *dir)
{
	DIR *d = opendir(dir);
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static unsigned threads_at_start;

/* A thread that was joined may be listed for a moment. */
static void assert_no_thread_left(void)
{
	for (int i = 0; i < 1000 && entries("/proc/self/task") != threads_at_start; i++)
		usleep(1000);
	assert_int_equal(entries("/proc/self/task"), threads_at_start);
}

static long resident_kib(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	long kib = 0;

	while (fgets(line, sizeof(line), f))
		sscanf(line, "RssAnon: %ld", &kib);
	fclose(f);
	return kib;
}

static void open_and_close(unsigned times)
{
	for (unsigned i = 0; i < times; i++) {
		struct pytreefs *ck = open_it(STEP);
		char text[16];

		assert_int_equal(pytreefs_read(ck, "state/step.json", text, sizeof(text), 0), 5);
		pytreefs_close(ck);
	}
}

static void t_nothing_left(void **state)
{
	unsigned files;
	long before, after;

	open_and_close(50);
	files = entries("/proc/self/fd");
	assert_no_thread_left();
	before = resident_kib();
	open_and_close(1000);
	after = resident_kib();
	assert_int_equal(entries("/proc/self/fd"), files);
	assert_no_thread_left();
	/* A sanitizer holds back what was freed. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	if (after > before + 2048)
		fail_msg("%ld KiB after 50 opens, %ld after 1050", before, after);
#else
	(void)before;
	(void)after;
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(t_names),         cmocka_unit_test(t_errors),
		cmocka_unit_test(t_damage),        cmocka_unit_test(t_cancel),
		cmocka_unit_test(t_threads),       cmocka_unit_test(t_fork),
		cmocka_unit_test(t_names_of_maps), cmocka_unit_test(t_nothing_left),
	};

	threads_at_start = entries("/proc/self/task");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
