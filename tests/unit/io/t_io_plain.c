/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_io_plain.c - paths stay inside their directory also where the kernel does not have openat2.
 */
#include "tests/unit/lib/unit.h"

#include "tests/unit/lib/tmp_dir.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "core/io/io_engine.h"

static char root[TMP_DIR_MAX];

/*
 * Each path is opened by both ways, or refused by both. In root/snapshots: in/file, in/link ->
 * file, in/up -> ".."
 */
static const struct {
	const char *path;
	int code; /* result of openat2; 0: the path is opened */
	int by_walk;
} paths[] = {
	{ "file", 0, 0 },
	{ "./file", 0, 0 },
	{ "below/file", 0, 0 },
	{ "below//file", 0, 0 },
	{ "nothing", -ENOENT, -ENOENT },
	{ "below/nothing", -ENOENT, -ENOENT },
	{ "file/file", -ENOTDIR, -ENOTDIR },
	{ "", -ENOENT, -ENOENT },
	{ "..", -EXDEV, -EXDEV },
	{ "../secret", -EXDEV, -EXDEV },
	{ "below/../../secret", -EXDEV, -EXDEV },
	{ "/etc/passwd", -EXDEV, -EXDEV },
	{ "up/secret", -EXDEV, -ENOTDIR },
	{ "out", -EXDEV, -EXDEV },
	{ "blob", -EXDEV, -EXDEV },
	/*
	 * openat2 follows a link that stays inside; the walk cannot know where it leads, and
	 * refuses it.
	 */
	{ "link", 0, -EXDEV },
};

static int setup(void **state)
{
	char path[TMP_DIR_MAX + 32];
	static const char *const files[] = { "snapshots/secret", "snapshots/in/file",
					     "snapshots/in/below/file", "blobs/hash" };
	static const char *const links[][2] = { { "file", "snapshots/in/link" },
						{ "..", "snapshots/in/up" },
						{ "../secret", "snapshots/in/out" },
						{ "../../blobs/hash", "snapshots/in/blob" } };
	static const char *const dirs[] = { "blobs", "snapshots", "snapshots/in",
					    "snapshots/in/below" };

	assert_int_equal(tmp_dir_make_on_disk(root, "t_io_plain"), 0);
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		snprintf(path, sizeof(path), "%s/%s", root, dirs[i]);
		assert_int_equal(mkdir(path, 0700), 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		snprintf(path, sizeof(path), "%s/%s", root, files[i]);
		close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	}
	for (size_t i = 0; i < ARRAY_LEN(links); i++) {
		snprintf(path, sizeof(path), "%s/%s", root, links[i][1]);
		assert_int_equal(symlink(links[i][0], path), 0);
	}
	return 0;
}

static int teardown(void **state)
{
	return tmp_dir_remove(root);
}

/* Make openat2 fail as in a kernel or container without it. */
static bool lose_openat2(int code)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)code),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = ARRAY_LEN(filter), .filter = filter };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Also for a look at what is there, which takes the same path. */
static int opened(struct io_dir *dir, const char *path)
{
	int fd = io_plain_open(dir->io, dir->fd, path, O_RDONLY, 0);
	int at = io_plain_open(dir->io, dir->fd, path, O_PATH, 0);

	if (fd >= 0)
		close(fd);
	if (at >= 0)
		close(at);
	return MIN(at, 0) == MIN(fd, 0) ? MIN(fd, 0) : 1;
}

/* A link to the blob of a hub is followed in its own way (io_hub.c). */
static int open_blob(struct io_dir *dir)
{
	struct io_file *f;
	int r = io_file_open(dir, "blob", O_RDONLY, 0, &f);

	if (r >= 0)
		io_file_unref(f);
	return r;
}

static int walk(struct io_dir *dir)
{
	char name[300], path[400];
	int fd;

	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		if (opened(dir, paths[i].path) != paths[i].by_walk) {
			fprintf(stderr, "'%s': %d\n", paths[i].path, opened(dir, paths[i].path));
			return 1;
		}
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	snprintf(path, sizeof(path), "below/%s", name);
	if (opened(dir, path) != -ENAMETOOLONG || open_blob(dir) != 0)
		return 1;
	/* A new file gets its mode. */
	fd = io_plain_open(dir->io, dir->fd, "below/new", O_WRONLY | O_CREAT | O_EXCL, 0640);
	if (fd < 0)
		return 1;
	close(fd);
	fd = io_plain_open(dir->io, dir->fd, "below/new", O_WRONLY | O_CREAT | O_EXCL, 0640);
	return fd != -EEXIST;
}

static void a_walk_opens_no_more_than_openat2(void **state)
{
	static const int codes[] = { ENOSYS, EPERM };
	char path[TMP_DIR_MAX + 32];
	struct io_engine *io;
	struct io_dir *dir;

	snprintf(path, sizeof(path), "%s/snapshots/in", root);
	assert_int_equal(io_engine_open("sync", &io), 0);
	assert_int_equal(io_dir_open(io, path, &dir), 0);
	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		if (opened(dir, paths[i].path) != paths[i].code)
			fail_msg("'%s': %d", paths[i].path, opened(dir, paths[i].path));
	for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
		pid_t pid = fork();
		int status;

		if (pid == 0)
			exit(lose_openat2(codes[i]) ? walk(dir) : 1);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		snprintf(path, sizeof(path), "%s/snapshots/in/below/new", root);
		assert_int_equal(unlink(path), 0);
	}
	io_dir_close(dir);
	io_engine_close(io);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_walk_opens_no_more_than_openat2),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
