/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_commit_races.c - truncate(2) by path while a commit begins: one of the two is refused, and
 * afterwards the contents are right.
 */
#include "tests/unit/lib/draft_make.h"
#include "tests/unit/lib/tmp_dir.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "handlers/draft/draft_file.h"

#define ROUNDS 60

static char root[TMP_DIR_MAX];
static struct options options;
static struct ns *ns;

static const struct made tree = { "default/" };
static const struct made leaf = { "default/w.npy", DTYPE_FLOAT32, 2, { 40, 25 } };

static int setup(void **state)
{
	static const char *const set[] = { "io=sync", NULL };

	assert_int_equal(tmp_dir_make(root, "t_commit_races"), 0);
	made_options(&options, set);
	assert_int_equal(ns_open(root, &options, &ns), 0);
	return 0;
}

static int teardown(void **state)
{
	ns_close(take(ns));
	options_release(&options);
	return tmp_dir_remove(root);
}

struct round {
	struct node *leaf;
	char name[32], final[32];
	int truncated, committed;
};

static void *truncate_it(void *arg)
{
	const struct stat st = { .st_size = 0 };
	const struct sched_param none = { 0 };
	struct round *x = arg;

	/* With one processor, this thread runs only while the commit waits. */
	sched_setscheduler(0, SCHED_IDLE, &none);
	x->truncated = node_setattr(x->leaf, &st, NODE_SET_SIZE, NULL);
	return NULL;
}

static void *commit_it(void *arg)
{
	struct round *x = arg;

	x->committed = commit_draft(ns, x->name, x->final);
	return NULL;
}

static void pause_us(unsigned us)
{
	const struct timespec t = { .tv_nsec = (long)us * 1000 };

	nanosleep(&t, NULL);
}

static void check_bytes(const char *dir, bool empty)
{
	auto_buf want = { 0 }, got = { 0 };
	auto_node *n = NULL;
	char path[64];

	snprintf(path, sizeof(path), "%s/%s", dir, leaf.path);
	if (!empty)
		made_content(&leaf, &want);
	assert_int_equal(node_walk(ns->root, path, &n), 0);
	assert_int_equal(read_file(n, &got), 0);
	assert_true(span_eq(buf_span(&want), buf_span(&got)));
}

/*
 * With held, the truncation waits for the lock of its file when the commit begins, and goes on some
 * time later. In other rounds both begin at about the same time.
 */
static void race(struct round *x, struct draft_file *held, unsigned i)
{
	pthread_t t, c;

	if (held)
		pthread_mutex_lock(&held->lock);
	assert_int_equal(pthread_create(&t, NULL, truncate_it, x), 0);
	pause_us(held ? 1000 : 20 * (i % 10));
	assert_int_equal(pthread_create(&c, NULL, commit_it, x), 0);
	if (held)
		pthread_mutex_unlock(&held->lock);
	pthread_join(t, NULL);
	pthread_join(c, NULL);
}

static void a_truncation_and_a_commit_exclude_each_other(void **state)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		auto_of(draft) struct draft *d = NULL;
		struct draft_node *item, *file;
		struct round x = { 0 };
		auto_node *top = NULL;

		snprintf(x.name, sizeof(x.name), "%u.tmp", 1000 + i);
		snprintf(x.final, sizeof(x.final), "%u", 1000 + i);
		assert_int_equal(node_mkdir(ns->root, span_str(x.name), 0777, &top), 0);
		assert_int_equal(make_one(top, &tree), 0);
		assert_int_equal(make_one(top, &leaf), 0);
		assert_int_equal(node_walk(top, leaf.path, &x.leaf), 0);
		d = draft_find(&ns->drafts, span_str(x.name));
		assert_int_equal(draft_lookup(d->root, span_str("default"), &item), 0);
		assert_int_equal(draft_lookup(item, span_str("w.npy"), &file), 0);
		race(&x, i % 2 ? file->file : NULL, i);
		if (x.committed >= 0) {
			if (x.truncated >= 0)
				fail_msg("round %u: both were done", i);
			assert_true(x.truncated == -EBUSY || x.truncated == -ESTALE);
			check_bytes(x.final, false);
		} else {
			assert_true(x.committed == -EBUSY || x.committed == -ECANCELED);
			check_bytes(x.name, x.truncated >= 0);
			assert_int_equal(draft_abort(d, true), 0);
		}
		draft_node_unref(file);
		draft_node_unref(item);
		node_unref(x.leaf, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_truncation_and_a_commit_exclude_each_other),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
