/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_io_hub.c - which links out of a snapshot of the Hugging Face hub are followed.
 */
#include "tests/unit/lib/unit.h"
#include "tests/unit/lib/tmp_dir.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/io/io_engine.h"

#define REV "repo/snapshots/rev"

static char root[TMP_DIR_MAX];

static const char *at(const char *rel)
{
	static char path[2][TMP_DIR_MAX + 128];
	static unsigned i;

	snprintf(path[++i % 2], sizeof(path[0]), "%s/%s", root, rel);
	return path[i % 2];
}

static void put(const char *rel)
{
	int fd = open(at(rel), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	assert_true(fd >= 0 && write(fd, "bytes", 5) == 5);
	close(fd);
}

/* Links in the snapshot, and the result of opening them. */
static const struct {
	const char *rel, *text;
	int code;
} links[] = {
	{ "plain", "../../blobs/hash", 0 },
	{ "a/b/deep", "../../../../blobs/hash", 0 },
	{ "a/snapshots/7/own", "../../../../../blobs/hash", 0 },
	/* Not in the form of the hub's, wherever they lead. */
	{ "dots", "../../blobs/../blobs/hash", -EUCLEAN },
	{ "dot", "../../blobs/./hash", -EUCLEAN },
	{ "above", "../../blobs/..", -EUCLEAN },
	{ "itself", "../../blobs/.", -EUCLEAN },
	{ "slash", "../../blobs//hash", -EUCLEAN },
	{ "below", "../../blobs/dir/hash", -EUCLEAN },
	{ "beside", "../../refs/main", -EUCLEAN },
	{ "other", "../../../other/blobs/hash", -EUCLEAN },
	{ "secret", "../../../secret", -EUCLEAN },
	{ "passwd", "/etc/passwd", -EUCLEAN },
	/* Another directory's `blobs`. */
	{ "short", "../blobs/hash", -EUCLEAN },
	{ "long", "../../../blobs/hash", -EUCLEAN },
	{ "a/inner", "../blobs/hash", 0 }, /* stays in the snapshot */
	/* Not a regular file. */
	{ "directory", "../../blobs/dir", -EUCLEAN },
	{ "fifo", "../../blobs/fifo", -EUCLEAN },
	{ "device", "../../blobs/null", -EUCLEAN },
	{ "out", "../../blobs/out", -EUCLEAN },
	{ "again", "../../blobs/again", -EUCLEAN },
	{ "nothing", "../../blobs/nothing", -ENOENT },
	/* Links to links, and to themselves. */
	{ "twice", "plain", -EUCLEAN },
	{ "loop", "loop", -EUCLEAN },
	{ "up", "../../blobs", -EUCLEAN },
	{ "up/hash", NULL, -EUCLEAN },
	{ "plain/hash", NULL, -EUCLEAN },
};

static int setup(void **state)
{
	static const char *const dirs[] = {
		"other",
		"other/blobs",
		"blobs",
		"repo",
		"repo/refs",
		"repo/blobs",
		"repo/blobs/dir",
		"repo/snapshots",
		"repo/snapshots/blobs",
		REV,
		REV "/blobs",
		REV "/a",
		REV "/a/b",
		REV "/a/snapshots",
		REV "/a/snapshots/7",
	};
	static const char *const files[] = {
		"other/blobs/hash",    "blobs/hash",
		"repo/refs/main",      "repo/blobs/hash",
		"repo/blobs/dir/hash", "repo/snapshots/blobs/hash",
		REV "/blobs/hash",     "secret",
	};

	assert_int_equal(tmp_dir_make_on_disk(root, "t_io_hub"), 0);
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		assert_int_equal(mkdir(at(dirs[i]), 0755), 0);
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		put(files[i]);
	assert_int_equal(mkfifo(at("repo/blobs/fifo"), 0644), 0);
	/* Only root may make a device. */
	if (mknod(at("repo/blobs/null"), S_IFCHR | 0666, makedev(1, 3)) < 0)
		assert_int_equal(symlink("/dev/null", at("repo/blobs/null")), 0);
	assert_int_equal(symlink("../../secret", at("repo/blobs/out")), 0);
	assert_int_equal(symlink("hash", at("repo/blobs/again")), 0);
	for (size_t i = 0; i < ARRAY_LEN(links); i++) {
		auto_free char *rel = str_fmt(REV "/%s", links[i].rel);

		if (links[i].text)
			assert_int_equal(symlink(links[i].text, at(rel)), 0);
	}
	return 0;
}

static int teardown(void **state)
{
	return tmp_dir_remove(root);
}

static struct io_dir *open_at(const char *rel, bool for_others, struct io_engine **io)
{
	struct io_dir *dir;

	assert_int_equal(io_engine_open("auto", io), 0);
	if (for_others)
		io_follow_no_links(*io);
	assert_int_equal(io_dir_open(*io, at(rel), &dir), 0);
	return dir;
}

static void close_all(struct io_dir *dir, struct io_engine *io)
{
	io_dir_close(dir);
	io_engine_close(io);
}

static int open_file(struct io_dir *dir, const char *rel, int flags)
{
	struct io_file *f;
	int r = io_file_open(dir, rel, flags, 0, &f);

	if (r >= 0)
		io_file_unref(f);
	return r;
}

static void only_links_to_blobs_are_followed(void **state)
{
	for (int for_others = 0; for_others < 2; for_others++) {
		struct io_engine *io;
		struct io_dir *dir = open_at(REV, for_others, &io);
		struct stat st;

		for (size_t i = 0; i < ARRAY_LEN(links); i++) {
			int code = links[i].code;

			/* It stays inside, which is followed only for the user himself. */
			if (for_others && !strcmp(links[i].rel, "a/inner"))
				code = -EUCLEAN;
			if (open_file(dir, links[i].rel, O_RDONLY) != code)
				fail_msg("%s -> %s is not %d", links[i].rel, links[i].text, code);
			assert_int_equal(io_stat(dir, links[i].rel, &st), code);
		}
		assert_int_equal(open_file(dir, "plain", O_RDWR), -EUCLEAN);
		assert_int_equal(open_file(dir, "plain", O_RDWR | O_CREAT), -EUCLEAN);
		close_all(dir, io);
	}
}

/* Wherever below `snapshots` the directory is that was opened, and in directories opened below it. */
static void every_directory_of_a_snapshot(void **state)
{
	static const char *const tops[][2] = {
		{ "repo/snapshots", "rev/a/b/deep" },
		{ REV "/a", "b/deep" },
		{ REV "/a/b/", "deep" },
		/* A repository may have directories of these names. */
		{ REV "/a/snapshots/7", "own" },
		{ "alias", "a/b/deep" },
	};
	struct io_engine *io;
	struct io_dir *dir, *sub, *below;

	assert_int_equal(symlink(REV, at("alias")), 0);
	for (size_t i = 0; i < ARRAY_LEN(tops); i++) {
		dir = open_at(tops[i][0], false, &io);
		assert_int_equal(open_file(dir, tops[i][1], O_RDONLY), 0);
		assert_true(io_dir_blobs(dir) >= 0);
		close_all(dir, io);
	}
	dir = open_at(REV, false, &io);
	assert_int_equal(io_dir_sub(dir, "a", &sub), 0);
	assert_int_equal(io_dir_sub(sub, "b", &below), 0);
	assert_int_equal(open_file(below, "deep", O_RDONLY), 0);
	io_dir_close(below);
	io_dir_close(sub);
	close_all(dir, io);
	dir = open_at("other", false, &io);
	assert_int_equal(io_dir_blobs(dir), -1);
	close_all(dir, io);
}

/* A user could otherwise show others a file that they may not read themselves. */
static void others_see_open_blobs_of_the_owner(void **state)
{
	struct io_engine *io;
	struct io_dir *dir = open_at(REV, true, &io);

	assert_int_equal(open_file(dir, "plain", O_RDONLY), 0);
	assert_int_equal(chmod(at("repo/blobs"), 0700), 0);
	assert_int_equal(open_file(dir, "plain", O_RDONLY), -EUCLEAN);
	assert_int_equal(chmod(at("repo/blobs"), 0755), 0);
	if (geteuid() == 0) {
		assert_int_equal(lchown(at(REV "/plain"), 1, 1), 0);
		assert_int_equal(open_file(dir, "plain", O_RDONLY), -EUCLEAN);
		assert_non_null(strstr(err_text(-EUCLEAN), "cp -rL"));
		assert_int_equal(lchown(at(REV "/plain"), 0, 0), 0);
	}
	close_all(dir, io);
}

/* `blobs` itself may be made a link to any directory. */
static void blobs_that_are_a_link(void **state)
{
	struct io_engine *io;
	struct io_dir *dir;

	assert_int_equal(rename(at("repo/blobs"), at("moved")), 0);
	assert_int_equal(symlink("../moved", at("repo/blobs")), 0);
	dir = open_at(REV, false, &io);
	assert_int_equal(open_file(dir, "plain", O_RDONLY), -EUCLEAN);
	close_all(dir, io);
	assert_int_equal(unlink(at("repo/blobs")), 0);
	assert_int_equal(rename(at("moved"), at("repo/blobs")), 0);
	/* Exchanged while the directory is open: the link leads to another directory than before. */
	dir = open_at(REV, false, &io);
	assert_int_equal(rename(at("repo/blobs"), at("moved")), 0);
	assert_int_equal(symlink("../other/blobs", at("repo/blobs")), 0);
	assert_int_equal(open_file(dir, "plain", O_RDONLY), -EUCLEAN);
	close_all(dir, io);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_links_to_blobs_are_followed),
		cmocka_unit_test(every_directory_of_a_snapshot),
		cmocka_unit_test(others_see_open_blobs_of_the_owner),
		cmocka_unit_test(blobs_that_are_a_link),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
