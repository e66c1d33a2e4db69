/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_sandbox.c - a process that has given up files or system calls: what still works, and what
 * fails; also the user's command beside it.
 *
 * Each attempt runs in a process of its own, which exits with 0 on success. It may write to its
 * working directory, which gets coverage counters.
 */
#include "tests/unit/lib/unit.h"

#include "tests/unit/lib/tmp_dir.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "core/base/log.h"
#include "core/sandbox/command.h"
#include "core/sandbox/sandbox_layers.h"

#define ABSENT 77 /* the kernel, or the build, does not have the layer */

static char root[TMP_DIR_MAX], inside[TMP_DIR_MAX + 8], outside[TMP_DIR_MAX + 8];

static int setup(void **state)
{
	if (tmp_dir_make_on_disk(root, "t_sandbox") < 0)
		return -1;
	snprintf(inside, sizeof(inside), "%s/in", root);
	snprintf(outside, sizeof(outside), "%s/out", root);
	return mkdir(inside, 0777) < 0 || mkdir(outside, 0777) < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	return tmp_dir_remove(root);
}

/*
 * End the process that tries. At an exit LeakSanitizer looks for leaks from a process that traces
 * this one. The rules refuse that, and it would wait forever.
 */
static _Noreturn void leave(int status)
{
#if defined(__SANITIZE_ADDRESS__)
	_exit(status);
#else
	exit(status);
#endif
}

/* Report a failed expectation by its line, in the process that tries. */
#define EXPECT(holds)                                                                         \
	do {                                                                                  \
		if (!(holds)) {                                                               \
			fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #holds, errno); \
			leave(1);                                                             \
		}                                                                             \
	} while (0)

/* The call fails, with that errno. */
#define EXPECT_FAILS(call, code) EXPECT((errno = 0, (long)(call) == -1) && errno == (code))

static void in_a_process(void (*attempt)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		attempt();
		leave(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == ABSENT)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

static int create(const char *dir, const char *name)
{
	char path[2 * TMP_DIR_MAX];
	int fd, r;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	r = fd < 0 ? -1 : (int)write(fd, "x", 1) - 1;
	if (fd >= 0)
		close(fd);
	return r;
}

static int run_true(void)
{
	char *argv[] = { (char[]){ "true" }, NULL };

	return execv("/bin/true", argv);
}

static void leave_files(bool reads, bool writes)
{
	const struct sandbox_place places[] = {
		{ .path = inside, .access = SANDBOX_READ | SANDBOX_WRITE },
		{ .path = ".", .access = SANDBOX_READ | SANDBOX_WRITE },
		{ .path = "/does/not/exist", .access = SANDBOX_READ },
		{ .fd = 0, .access = SANDBOX_DEVICE },
	};
	const struct sandbox_rules rules = { .place = places,
					     .n_places = 4,
					     .reads_everywhere = reads,
					     .writes_everywhere = writes,
					     .broker = -1 };
	int r;

	EXPECT(create(outside, "old") == 0);
	EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	r = landlock_enter(&rules);
	if (r == -ENOSYS || r == -EOPNOTSUPP)
		leave(ABSENT);
	EXPECT(r >= 2);
}

static void write_outside(void)
{
	char old[2 * TMP_DIR_MAX], new[2 * TMP_DIR_MAX];

	leave_files(true, false);
	snprintf(old, sizeof(old), "%s/old", outside);
	snprintf(new, sizeof(new), "%s/old", inside);
	EXPECT(create(inside, "new") == 0);
	EXPECT(access(old, R_OK) == 0 && open(old, O_RDONLY | O_CLOEXEC) >= 0);
	EXPECT_FAILS(open(old, O_WRONLY | O_CLOEXEC), EACCES);
	EXPECT_FAILS(create(outside, "new"), EACCES);
	EXPECT_FAILS(mkdir(strcat(old, "er"), 0777), EACCES);
	old[strlen(old) - 2] = '\0';
	EXPECT_FAILS(unlink(old), EACCES);
	EXPECT(rename(old, new) < 0);
	EXPECT_FAILS(run_true(), EACCES);
}

static void read_outside(void)
{
	char old[2 * TMP_DIR_MAX];

	leave_files(false, false);
	snprintf(old, sizeof(old), "%s/old", outside);
	EXPECT(create(inside, "new") == 0);
	EXPECT_FAILS(open(old, O_RDONLY | O_CLOEXEC), EACCES);
	EXPECT_FAILS(open(outside, O_RDONLY | O_DIRECTORY | O_CLOEXEC), EACCES);
}

static void run_a_program(void)
{
	leave_files(true, true);
	EXPECT(create(outside, "new") == 0);
	EXPECT_FAILS(run_true(), EACCES);
}

static void files_outside_of_its_places_are_closed_to_it(void **state)
{
	in_a_process(write_outside);
	in_a_process(read_outside);
}

static void no_program_is_run_by_who_writes_everywhere(void **state)
{
	in_a_process(run_a_program);
}

/* ---- system calls ---- */

static atomic_int notices;

static void notice(void)
{
	atomic_fetch_add(&notices, 1);
}

static void *add_one(void *arg)
{
	atomic_fetch_add((atomic_int *)arg, 1);
	return NULL;
}

static bool logged(const char *path, const char *name)
{
	char text[4096] = "";
	FILE *f = fopen(path, "re");

	if (f && fread(text, 1, sizeof(text) - 1, f) == 0)
		text[0] = '\0';
	if (f)
		fclose(f);
	return strstr(text, name) != NULL;
}

static void make_allowed_and_refused_calls(void)
{
	struct sandbox_rules rules = { .on_refused = notice };
	struct msghdr none = { .msg_iov = NULL };
	char log[2 * TMP_DIR_MAX];
	pthread_t thread;
	int ends[2], others[2], r;

	snprintf(log, sizeof(log), "%s/log", inside);
	EXPECT(log_open(false, false, log) == 0);
	EXPECT(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) == 0);
	EXPECT(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, others) == 0);
	rules.broker = ends[0];
	EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	r = system_calls_filter(&rules);
	if (r == -EOPNOTSUPP || r == -ENOPKG)
		leave(ABSENT);
	EXPECT(r == 0);
	/* Files, memory, threads, the broker. */
	EXPECT(create(outside, "by-filter") == 0);
	EXPECT(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
	       MAP_FAILED);
	EXPECT(pthread_create(&thread, NULL, add_one, &notices) == 0);
	pthread_join(thread, NULL);
	EXPECT(sendmsg(ends[0], &none, 0) == 0);
	EXPECT(atomic_load(&notices) == 1);
	/* Each refusal is noticed once. */
	for (int i = 0; i < 2; i++) {
		EXPECT_FAILS(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), ENOSYS);
		EXPECT_FAILS(sendmsg(others[0], &none, 0), ENOSYS);
		EXPECT_FAILS(run_true(), ENOSYS);
		EXPECT_FAILS(fork(), ENOSYS);
		EXPECT_FAILS(kill(getppid(), 0), ENOSYS);
		EXPECT_FAILS(ptrace(PTRACE_ATTACH, getppid(), NULL, NULL), ENOSYS);
		EXPECT_FAILS(mount("none", outside, "tmpfs", 0, NULL), ENOSYS);
		EXPECT_FAILS(syscall(SYS_io_uring_setup, 4, NULL), ENOSYS);
		EXPECT_FAILS(mprotect(NULL, 0, PROT_READ | PROT_EXEC), ENOSYS);
		EXPECT(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0) == MAP_FAILED);
	}
	EXPECT(atomic_load(&notices) >= 9 && atomic_load(&notices) <= 11);
	sandbox_log_refused();
	EXPECT(logged(log, "socket") && logged(log, "ptrace") && logged(log, "io_uring_setup"));
	EXPECT(!logged(log, "pthread") && !logged(log, "openat"));
}

static void a_system_call_that_is_not_needed_does_not_exist(void **state)
{
	in_a_process(make_allowed_and_refused_calls);
}

/* ---- the command of a user's ---- */

/* A shell gets the path unchanged, and is not a rank of the job that this process belongs to. */
static void a_command_gets_the_path_and_no_rank(void **state)
{
	static const char path[] = "/a path/with 'quotes' and $HOME";
	char command[256], text[256] = "", file[2 * TMP_DIR_MAX];
	sigset_t term, before;
	pid_t pid = 0;
	FILE *f;
	int status;

	snprintf(file, sizeof(file), "%s/said", inside);
	snprintf(command, sizeof(command),
		 "exec >%s; kill -TERM $$ & wait; printf '%%s' not-ended; : ", file);
	setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
	/* A signal that this process blocks still ends the command. */
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &term, &before);
	assert_int_equal(command_spawn(command, path, &pid), 0);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	snprintf(command, sizeof(command), "printf '%%s|%%s' \"$OMPI_COMM_WORLD_SIZE\" >%s", file);
	assert_int_equal(command_spawn(command, path, &pid), 0);
	unsetenv("OMPI_COMM_WORLD_SIZE");
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	f = fopen(file, "re");
	assert_non_null(f);
	assert_true(fread(text, 1, sizeof(text) - 1, f) > 0);
	fclose(f);
	assert_string_equal(text, "|/a path/with 'quotes' and $HOME");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_outside_of_its_places_are_closed_to_it),
		cmocka_unit_test(no_program_is_run_by_who_writes_everywhere),
		cmocka_unit_test(a_system_call_that_is_not_needed_does_not_exist),
		cmocka_unit_test(a_command_gets_the_path_and_no_rank),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
