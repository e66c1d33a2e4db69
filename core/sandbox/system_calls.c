/* SPDX-License-Identifier: Apache-2.0 */
/*
 * system_calls.c - restricts system calls, with libseccomp.
 *
 * Any other call fails with ENOSYS and is logged once: a library that tries a newer call then falls
 * back to an older one, and a mount that jobs rely on does not end because of an unexpected call.
 * For an attacker, this makes no difference. The filter raises SIGSYS, whose handler sets the
 * result, since a filter alone would go unnoticed.
 *
 * No allowed call makes a process, a socket or another program, changes mounts, inspects other
 * processes, or makes memory executable. io_uring would carry out operations that the filter does
 * not see: rings are made before, with reads, writes and syncs only (core/io/io_ring.c), except in
 * commands that make some later.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <ucontext.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/sandbox/sandbox_layers.h"

#ifdef HAVE_SECCOMP
#include <seccomp.h>

#define NUMBERS 1024 /* all numbers of system calls are below */
#ifndef FUSE_DEV_IOC_CLONE
#define FUSE_DEV_IOC_CLONE _IOR(229, 0, uint32_t)
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

static atomic_bool refused[NUMBERS], logged[NUMBERS];
static void (*notify)(void);

/* Not all calls exist on every processor: unknown names are skipped. */
/* clang-format off */
static const char *const allowed[] = {
	/* Memory. */
	"brk", "munmap", "mremap", "madvise",
	/* Contents of files. */
	"read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev",
	"preadv2", "pwritev2", "lseek", "ftruncate", "truncate", "fallocate", "fsync",
	"fdatasync", "syncfs", "sync_file_range", "fadvise64", "readahead", "copy_file_range",
	"sendfile", "splice", "tee", "vmsplice", "io_uring_enter",
	/* Names and attributes of files. */
	"open", "openat", "openat2", "creat", "close", "close_range", "stat", "fstat", "lstat",
	"newfstatat", "statx", "statfs", "fstatfs", "access", "faccessat", "faccessat2",
	"getdents64", "readlink", "readlinkat", "mkdir", "mkdirat", "rmdir", "unlink",
	"unlinkat", "rename", "renameat", "renameat2", "link", "linkat", "chmod", "fchmod",
	"fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "umask", "utimensat",
	"utime", "utimes", "futimesat", "getxattr", "lgetxattr", "fgetxattr", "listxattr",
	"llistxattr", "flistxattr", "setxattr", "lsetxattr", "fsetxattr", "removexattr",
	"lremovexattr", "fremovexattr", "setfsuid", "setfsgid", "getcwd", "flock", "fcntl",
	"inotify_init1", "inotify_add_watch", "inotify_rm_watch",
	/* Descriptors. */
	"dup", "eventfd2", "dup2", "dup3", "pipe", "pipe2", "poll", "ppoll", "select",
	"pselect6",
	/* Threads and time. */
	"futex", "set_robust_list", "get_robust_list", "rseq", "set_tid_address", "membarrier",
	"sched_yield", "sched_getaffinity", "nanosleep", "clock_nanosleep", "clock_gettime",
	"clock_getres", "gettimeofday", "time", "times", "exit", "exit_group",
	"restart_syscall",
	/* Signals; tgkill() is restricted to this process below. */
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigtimedwait",
	"rt_sigsuspend", "sigaltstack",
	/* Identity of this process. */
	"getpid", "gettid", "getppid", "getuid", "geteuid", "getgid", "getegid", "getgroups",
	"getresuid", "getresgid", "getrandom", "uname", "sysinfo", "getrlimit", "getrusage",
	"capget", "arch_prctl",
};
/* clang-format on */
/* Connections to servers, and their addresses; sockets are restricted by kind below. */
static const char *const for_network[] = {
	"connect",    "bind",     "getsockname", "getpeername", "getsockopt",
	"setsockopt", "sendto",   "sendmsg",     "sendmmsg",    "recvfrom",
	"recvmsg",    "recvmmsg", "shutdown",    "socketpair",
};
static const char *const for_rings[] = { "io_uring_setup", "io_uring_register" };

static int allow(scmp_filter_ctx f, const char *name)
{
	int number = seccomp_syscall_resolve_name(name);
	int r = number == __NR_SCMP_ERROR ? 0 : seccomp_rule_add(f, SCMP_ACT_ALLOW, number, 0);

	return r == -EDOM ? 0 : r;
}

/*
 * Allow calls of which one argument has a certain value. The filter cannot check flags of clone3(),
 * so the C library falls back to clone(). The resolver of a network tries a caching daemon first,
 * and works without it.
 */
static int allow_parts(scmp_filter_ctx f, const struct sandbox_rules *rules)
{
	const scmp_datum_t low = 0xffffffff, broker = (scmp_datum_t)rules->broker;
	bool network = rules->uses_network, has_broker = !network && rules->broker >= 0;
	const struct {
		bool wanted;
		int number;
		struct scmp_arg_cmp argument;
	} parts[] = {
		{ true, SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_MASKED_EQ, low, FUSE_DEV_IOC_CLONE) },
		{ true, SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_MASKED_EQ, low, FIONREAD) },
		{ true, SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_MASKED_EQ, low, TCGETS) },
		{ true, SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_MASKED_EQ, low, TIOCGWINSZ) },
		{ true, SCMP_SYS(prctl), SCMP_A0(SCMP_CMP_MASKED_EQ, low, PR_SET_NAME) },
		{ true, SCMP_SYS(prctl), SCMP_A0(SCMP_CMP_MASKED_EQ, low, PR_GET_NAME) },
		{ true, SCMP_SYS(prctl), SCMP_A0(SCMP_CMP_MASKED_EQ, low, PR_SET_VMA) },
		{ true, SCMP_SYS(prctl), SCMP_A0(SCMP_CMP_MASKED_EQ, low, PR_CAPBSET_READ) },
		{ true, SCMP_SYS(mmap), SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0) },
		{ true, SCMP_SYS(mprotect), SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0) },
		/* Threads, but not processes. */
		{ true, SCMP_SYS(clone),
		  SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD | CLONE_NEWUSER, CLONE_THREAD) },
		{ true, SCMP_SYS(tgkill), SCMP_A0(SCMP_CMP_EQ, (unsigned)getpid()) },
		/* Check whether the process that left a file still exists; sends no signal. */
		{ rules->writes_everywhere, SCMP_SYS(kill), SCMP_A1(SCMP_CMP_EQ, 0) },
		/* Only the processors of the calling thread, and only its own limits. */
		{ true, SCMP_SYS(sched_setaffinity), SCMP_A0(SCMP_CMP_EQ, 0) },
		{ true, SCMP_SYS(prlimit64), SCMP_A0(SCMP_CMP_EQ, 0) },
		{ network, SCMP_SYS(socket), SCMP_A0(SCMP_CMP_EQ, AF_INET) },
		{ network, SCMP_SYS(socket), SCMP_A0(SCMP_CMP_EQ, AF_INET6) },
		{ network, SCMP_SYS(socket), SCMP_A0(SCMP_CMP_EQ, AF_NETLINK) },
		{ network, SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_MASKED_EQ, low, FIONBIO) },
		/*
		 * On existing sockets: to syslog if it is connected, and files to and from the
		 * broker.
		 */
		{ !network, SCMP_SYS(sendto), SCMP_A4(SCMP_CMP_EQ, 0) },
		{ has_broker, SCMP_SYS(sendmsg), SCMP_A0(SCMP_CMP_EQ, broker) },
		{ has_broker, SCMP_SYS(recvmsg), SCMP_A0(SCMP_CMP_EQ, broker) },
	};
	int r = seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);

	for (size_t i = 0; i < ARRAY_LEN(parts) && r >= 0; i++)
		if (parts[i].wanted)
			r = seccomp_rule_add(f, SCMP_ACT_ALLOW, parts[i].number, 1,
					     parts[i].argument);
	if (r < 0 || !network)
		return r;
	return seccomp_rule_add(f, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
				SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
}

/* Runs between the system call and the next instruction, so it uses only atomics and semaphores. */
static void on_sigsys(int number, siginfo_t *info, void *context)
{
	ucontext_t *c = context;
	int call = info->si_syscall;

	if (call >= 0 && call < NUMBERS && !atomic_exchange(&refused[call], true) && notify)
		notify();
#if defined(__x86_64__)
	c->uc_mcontext.gregs[REG_RAX] = -ENOSYS;
#elif defined(__aarch64__)
	c->uc_mcontext.regs[0] = (unsigned long long)-ENOSYS;
#endif
}

static int enter_filter(scmp_filter_ctx f, const struct sandbox_rules *rules)
{
	struct sigaction handler = { .sa_sigaction = on_sigsys,
				     .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART };
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(allowed) && r >= 0; i++)
		r = allow(f, allowed[i]);
	for (size_t i = 0; i < ARRAY_LEN(for_rings) && r >= 0 && rules->makes_rings; i++)
		r = allow(f, for_rings[i]);
	for (size_t i = 0; i < ARRAY_LEN(for_network) && r >= 0 && rules->uses_network; i++)
		r = allow(f, for_network[i]);
	if (r < 0)
		return r;
	r = allow_parts(f, rules);
	if (r < 0)
		return r;
	/*
	 * For all threads, in case a library has started some; with a search tree; only for calls
	 * of this processor.
	 */
	r = seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1);
	if (r < 0)
		return r;
	/*
	 * Return the kernel's own error numbers; by default, libseccomp returns -ECANCELED for all
	 * of them.
	 */
	seccomp_attr_set(f, SCMP_FLTATR_API_SYSRAWRC, 1);
	seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	notify = rules->on_refused;
	return sigaction(SIGSYS, &handler, NULL) < 0 ? -errno : seccomp_load(f);
}

int system_calls_filter(const struct sandbox_rules *rules)
{
#if defined(__x86_64__) || defined(__aarch64__)
	scmp_filter_ctx f = seccomp_init(SCMP_ACT_TRAP);
	int r;

	if (!f)
		return -ENOMEM;
	r = enter_filter(f, rules);
	seccomp_release(f);
	return r == -EINVAL || r == -ENOSYS ? -EOPNOTSUPP : MIN(r, 0);
#else
	return -EOPNOTSUPP;
#endif
}

void sandbox_log_refused(void)
{
	for (int i = 0; i < NUMBERS; i++) {
		char *name;

		if (!atomic_load(&refused[i]) || atomic_exchange(&logged[i], true))
			continue;
		name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, i);
		log_warn("the sandbox refuses system call %s (%d) with ENOSYS; -o sandbox=off "
			 "allows it",
			 name ? name : "?", i);
		free(name);
	}
}

#else

int system_calls_filter(const struct sandbox_rules *rules)
{
	return -ENOPKG;
}

void sandbox_log_refused(void)
{
}
#endif
