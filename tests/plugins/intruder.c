/* SPDX-License-Identifier: Apache-2.0 */
/*
 * intruder.c - a plugin that tries, from inside the mount's process, what the sandbox forbids.
 *
 * It stands for a parser that was taken over. The file that is written in the mount names a
 * directory outside of SOURCE and SOURCE, a line each; what is stored of it is a line "NAME ERRNO"
 * for each attempt, 0 when it succeeded.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "handlers/plugin/leaf_plugin.h"

static char text[4096];

static void say(const char *name, int error)
{
	snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s %d\n", name, error);
}

static void say_result(const char *name, long r)
{
	say(name, r < 0 ? errno : 0);
}

static void try_open(const char *name, const char *dir, const char *file, int flags)
{
	char path[1024];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	fd = open(path, flags, 0600);
	say_result(name, fd);
	if (fd >= 0)
		close(fd);
}

static void *no_work(void *arg)
{
	return arg;
}

static void try_processes(void)
{
	pthread_t thread;
	pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);

	if (child == 0)
		_exit(0);
	say_result("fork", child);
	if (child > 0)
		waitpid(child, NULL, 0);
	say_result("execve", execl("/nothing", "nothing", (char *)NULL));
	say_result("ptrace", syscall(SYS_ptrace, PTRACE_PEEKDATA, getppid(), NULL, NULL));
	say_result("process_vm_readv",
		   syscall(SYS_process_vm_readv, getppid(), NULL, 0, NULL, 0, 0));
	say_result("kill", syscall(SYS_kill, getppid(), 0));
	say_result("setuid", syscall(SYS_setuid, getuid()));
	say_result("unshare", syscall(SYS_unshare, 0));
	say_result("bpf", syscall(SYS_bpf, -1, NULL, 0));
	say("thread", pthread_create(&thread, NULL, no_work, NULL));
	pthread_join(thread, NULL);
}

static void try_others(void)
{
	unsigned char ring[256] = { 0 };
	void *code;

	say_result("socket-inet", socket(AF_INET, SOCK_STREAM, 0));
	say_result("socket-unix", socket(AF_UNIX, SOCK_STREAM, 0));
	say_result("io_uring", syscall(SYS_io_uring_setup, 4, ring));
	say_result("mount", mount("none", "/nowhere", "tmpfs", 0, NULL));
	say_result("umount", umount2("/nowhere", 0));
	say_result("chroot", syscall(SYS_chroot, "/nowhere"));
	code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	say("executable", code == MAP_FAILED ? errno : 0);
}

static void try_all(const void *p)
{
	char outside[512] = "", source[512] = "";

	text[0] = '\0';
	sscanf((const char *)p, "%511s %511s", outside, source);
	try_open("read-passwd", "/etc", "passwd", O_RDONLY);
	try_open("read-environ", "/proc/1", "environ", O_RDONLY);
	try_open("list-root", "/", ".", O_RDONLY | O_DIRECTORY);
	try_open("read-outside", outside, "secret", O_RDONLY);
	try_open("write-outside", outside, "secret", O_WRONLY);
	try_open("make-outside", outside, "made", O_WRONLY | O_CREAT);
	say_result("link-outside", link(outside, "/tmp/pytreefs-intruder-link"));
	try_open("read-source", source, "known", O_RDONLY);
	try_open("make-source", source, "made", O_WRONLY | O_CREAT);
	try_processes();
	try_others();
}

static int encode(const struct pytreefs_host *host, const void *p, uint64_t n)
{
	try_all(p);
	return host->add(host, "data", text, strlen(text));
}

static int decode(const struct pytreefs_host *host, const struct pytreefs_plugin_file *stored,
		  uint32_t n)
{
	/* Paths, put there by a test. */
	if (((const char *)stored[0].p)[0] != '/')
		return host->add(host, "", stored[0].p, stored[0].n);
	if (!text[0])
		try_all(stored[0].p);
	return host->add(host, "", text, strlen(text));
}

const struct pytreefs_plugin *pytreefs_plugin(void)
{
	static const struct pytreefs_leaf leaf = {
		.size = sizeof(leaf),
		.name = "intruder",
		.typestr = "Intruder",
		.extension = ".intruder",
		.summary = "tries what is forbidden",
		.decode = decode,
		.encode = encode,
	};
	static const struct pytreefs_plugin plugin = {
		.abi = PYTREEFS_ABI,
		.size = sizeof(plugin),
		.name = "intruder",
		.leaf = &leaf,
	};

	return &plugin;
}
