/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_draft_dir.c - two writers of one step, of which one stalls at each of its requests while the
 * other one acts: no step that anybody was told is committed is lost.
 */
#include "tests/unit/lib/tmp_dir.h"
#include "tests/unit/lib/unit.h"

#include <sys/file.h>

#include "core/base/err.h"
#include "core/commit/commit.h"
#include "core/commit/gc.h"
#include "core/io/io_engine.h"

static char root[TMP_DIR_MAX];

/* ---- an engine that stalls ---- */

static struct {
	unsigned at, n; /* before the request of this number, from 1; each is counted twice */
	void (*act)(void);
} stall;

static void count(void)
{
	void (*act)(void) = stall.act;

	if (!act || ++stall.n != stall.at)
		return;
	stall.act = NULL;
	act();
}

static int stall_submit(struct io_engine *io, struct io_req *req, size_t n)
{
	count();
	return io->below->ops->submit(io->below, req, n);
}

static int stall_wait(struct io_engine *io, struct io_req *req, size_t n)
{
	return io->below->ops->wait(io->below, req, n);
}

static int stall_open(struct io_engine *io, int dirfd, const char *path, int flags, unsigned mode)
{
	int r;

	count();
	r = io->below->ops->open(io->below, dirfd, path, flags, mode);
	count();
	return r;
}

static int stall_dirop(struct io_engine *io, enum io_dirop op, int dirfd, const char *from,
		       const char *to, unsigned mode)
{
	int r;

	count();
	r = io->below->ops->dirop(io->below, op, dirfd, from, to, mode);
	count();
	return r;
}

static int stall_truncate(struct io_engine *io, struct io_file *file, uint64_t size)
{
	return io->below->ops->truncate(io->below, file, size);
}

static void stall_free(struct io_engine *io)
{
	io->below->ops->free(io->below);
	free(io);
}

static const struct io_engine_ops stall_ops = {
	.name = "stall",
	.submit = stall_submit,
	.wait = stall_wait,
	.open = stall_open,
	.dirop = stall_dirop,
	.truncate = stall_truncate,
	.free = stall_free,
};

static int stall_new(const char *what, struct io_engine *below, struct io_engine **ret)
{
	struct io_engine *io = calloc(1, sizeof(*io));

	assert_non_null(io);
	io->ops = &stall_ops;
	io->below = below;
	*ret = io;
	return 0;
}

static struct io_engine_kind kind = { .name = "stall", .open = stall_new };

/* ---- a writer ---- */

struct writer {
	struct ckpt ckpt;
	const char *value;
	struct draft_dir *draft;
	int begun, committed; /* the results */
};

static struct writer a = { .value = "a" }, b = { .value = "b" };
static bool in_place;

static void writer_open(struct writer *w, const char *engine)
{
	assert_int_equal(io_engine_open(engine, &w->ckpt.io), 0);
	assert_int_equal(io_dir_open(w->ckpt.io, root, &w->ckpt.source), 0);
	w->draft = NULL;
	w->begun = w->committed = 1;
}

static void writer_close(struct writer *w)
{
	draft_dir_free(take(w->draft));
	io_dir_close(take(w->ckpt.source));
	io_engine_close(take(w->ckpt.io));
}

static void writer_begin(struct writer *w)
{
	w->begun = draft_dir_begin(w->ckpt.source, in_place ? "7" : ".7.pytreefs-draft", "7", 0777,
				   false, &w->draft);
	if (w->begun < 0)
		w->draft = NULL;
}

/* Commit, and give the draft up if that fails. */
static void writer_commit(struct writer *w)
{
	struct commit_file file = { .name = span_str("value"), .text = span_str(w->value) };
	struct commit_item item = { .name = span_str("metrics"), .files = &file, .n_files = 1 };
	struct commit c = { .ckpt = &w->ckpt,
			    .draft = w->draft,
			    .items = &item,
			    .n_items = 1,
			    .publisher = in_place ? &publish_by_marker : &publish_by_rename };

	if (!w->draft)
		return;
	w->committed = commit_run(&c);
	if (w->committed < 0)
		assert_int_equal(draft_dir_remove(w->draft), 0);
}

/* ---- what the other one does ---- */

static void b_begins(void)
{
	writer_begin(&b);
}

static void b_commits(void)
{
	writer_begin(&b);
	writer_commit(&b);
}

static void b_gives_up(void)
{
	writer_begin(&b);
	if (b.draft)
		assert_int_equal(draft_dir_remove(b.draft), 0);
}

static void ignore(void *arg, const struct gc_found *f)
{
	assert_int_equal(f->failed, 0);
}

static void gc_runs(void)
{
	const struct gc_opts o = { .each = ignore };

	assert_int_equal(gc_run(b.ckpt.source, &o), 0);
}

/* ---- the check ---- */

static bool unlocked; /* the lock of a does not reach the machine of b */

static bool is_refusal(int r)
{
	return r == -EBUSY || r == -EEXIST || (unlocked && r == -EIO);
}

/* Whether step 7 is there, with its marker and the value of that writer. */
static bool has_value(const struct writer *w)
{
	char path[200], text[8] = "";
	FILE *f;

	snprintf(path, sizeof(path), "%s/7/commit_success.txt", root);
	if (access(path, F_OK) < 0)
		return false;
	snprintf(path, sizeof(path), "%s/7/metrics/value", root);
	f = fopen(path, "re");
	if (!f)
		return false;
	assert_non_null(fgets(text, sizeof(text), f));
	fclose(f);
	return !strcmp(text, w->value);
}

static void check(bool b_writes, bool b_stays)
{
	bool a_has = a.committed == 0, b_has = b.committed == 0;

	if (a.begun < 0 ? !is_refusal(a.begun) : a.committed < 0 && !is_refusal(a.committed))
		fail_msg("a got %d at mkdir, %d at mv (stall %u): %s", a.begun, a.committed,
			 stall.at, err_text(a.committed));
	if (b_writes &&
	    (b.begun < 0 ? !is_refusal(b.begun) : b.committed < 0 && !is_refusal(b.committed)))
		fail_msg("b got %d at mkdir, %d at mv", b.begun, b.committed);
	if (a_has && b_has)
		fail_msg("both were told that the step is committed");
	if (!a_has && !b_has && b_stays)
		fail_msg("nobody made the step: a got %d and %d, b %d and %d", a.begun, a.committed,
			 b.begun, b.committed);
	if ((a_has && !has_value(&a)) || (b_has && !has_value(&b)))
		fail_msg("the step of '%s' is lost", a_has ? "a" : "b");
	if (tmp_dir_matching(root, ".[!.]*", false) != 0)
		fail_msg("a temporary directory was left");
}

/* Let a stall at each of its requests. */
static void at_each_request(void (*act)(void), bool b_writes, bool b_stays)
{
	unsigned at = 0;

	do {
		assert_int_equal(tmp_dir_make(root, "t_draft_dir"), 0);
		writer_open(&a, "fault(stall:):sync");
		writer_open(&b, "sync");
		stall.at = ++at;
		stall.n = 0;
		stall.act = act;
		writer_begin(&a);
		if (a.draft && unlocked)
			assert_int_equal(flock(a.draft->lock->fd, LOCK_UN), 0);
		writer_commit(&a);
		if (b.begun == 0 && b.committed == 1 && act == b_begins)
			writer_commit(&b);
		check(b_writes, b_stays);
		writer_close(&a);
		writer_close(&b);
		assert_int_equal(tmp_dir_remove(root), 0);
	} while (!stall.act);
	assert_true(at > 20);
}

static void test_one(void (*act)(void), bool b_writes, bool b_stays)
{
	unlocked = false;
	at_each_request(act, b_writes, b_stays);
	unlocked = true;
	at_each_request(act, b_writes, b_stays && b_writes);
}

static void one_stalls(void **state)
{
	in_place = *(bool *)*state;
	test_one(b_begins, true, true);
	test_one(b_commits, true, true);
	test_one(b_gives_up, false, false);
	test_one(gc_runs, false, true);
}

static bool yes = true, no = false;

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ "one stalls, with renames", one_stalls, NULL, NULL, &no },
		{ "one stalls, in place", one_stalls, NULL, NULL, &yes },
	};

	io_register_engine(&kind);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
