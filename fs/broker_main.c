/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_main.c - the process that keeps the rights that a mount gives up, and its eight tasks.
 *
 * It uses the mount only to unmount it, and has /dev/fuse only while it passes a file on to the
 * kernel. An attacker who has taken over a mount can make it run the user's command with another
 * argument, forget names, unmount its own mount point, report which processes create files, show
 * files that the mount itself has opened in that mount, and write to its log and to syslog.
 */
#include "fs/broker_main.h"

#include <errno.h>
#include <fcntl.h>
#include <paths.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "core/sandbox/broker.h"
#include "core/sandbox/command.h"
#include "core/base/mem.h"
#include "fs/forget.h"

#define MISC_MAJOR 10
#define FUSE_MINOR 229

/* Of protocol 7.40: FUSE_DEV_IOC_BACKING_OPEN and _CLOSE, struct fuse_backing_map. */
struct fuse_backing {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
#define FUSE_IOC_BACKING_OPEN _IOW(229, 1, struct fuse_backing)
#define FUSE_IOC_BACKING_CLOSE _IOW(229, 2, uint32_t)

extern char **environ;

struct request {
	char text[BROKER_TEXT_MAX + 1]; /* NUL-terminated */
	size_t n;
	int file[BROKER_FILES_MAX]; /* -1: not sent */
};

struct parameters {
	char text[BROKER_TEXT_MAX + 1];
	const char *mountpoint, *on_commit;
	const char *log; /* its name in log_dir; "": none */
	int log_dir;
	char tag[32]; /* of messages to syslog: the mount's name and process number */
};

/* Returns false when the mount's process is gone. */
static bool receive(int fd, struct request *q)
{
	ssize_t n = broker_packet_receive(fd, q->text, BROKER_TEXT_MAX, q->file);

	if (n <= 0)
		return false;
	q->n = (size_t)n;
	q->text[n] = '\0';
	return true;
}

static void reply(int fd, int result)
{
	int32_t value = result;

	broker_packet_send(fd, &value, sizeof(value), NULL, 0);
}

static int wait_for(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return status;
}

/*
 * A separate process waits for the command. It replies when the command runs, or cannot be started.
 */
static void run_on_commit(int fd, const char *command, const struct request *q)
{
	struct broker_ended ended = { 0 };
	pid_t waiting = fork(), pid;

	if (waiting != 0) {
		if (waiting < 0)
			reply(fd, -errno);
		return;
	}
	ended.error = *command ? command_spawn(command, q->text + 1, &pid) : -EPERM;
	reply(fd, 0);
	close(fd);
	if (!ended.error)
		ended.status = wait_for(pid);
	/* The reader may be gone. */
	signal(SIGPIPE, SIG_IGN);
	_exit(write(q->file[0], &ended, sizeof(ended)) == sizeof(ended) ? 0 : 1);
}

static int run_forget(const struct request *q)
{
	char *argv[] = { FORGET_HELPER, NULL };
	posix_spawn_file_actions_t files;
	pid_t pid;
	int e;

	if (q->file[0] < 0 || q->file[1] < 0)
		return -EINVAL;
	posix_spawn_file_actions_init(&files);
	e = posix_spawn_file_actions_adddup2(&files, q->file[0], STDIN_FILENO);
	if (!e)
		e = posix_spawn_file_actions_adddup2(&files, q->file[1], STDOUT_FILENO);
	if (!e)
		e = posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY,
						     0);
	if (!e)
		e = posix_spawn(&pid, "/proc/self/exe", &files, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	return e ? -e : (int)pid;
}

/* Does what libfuse would do, which its process may neither do itself nor start a program for. */
static int broker_main_unmount(const char *mountpoint)
{
	char *path = (char *)mountpoint;
	char *argv[] = { "fusermount3", "-u", "-q", "-z", "--", path, NULL };
	pid_t pid;
	int e;

	if (umount2(mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
		return 0;
	if (errno != EPERM)
		return -errno;
	e = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);
	if (e)
		return -e;
	return wait_for(pid) == 0 ? 0 : -EPERM;
}

/* Whether /proc shows that the process is creating a file; 0 if /proc does not tell. */
static int is_creating(const char *number)
{
	const unsigned long long both = O_CREAT | O_EXCL;
	unsigned long long arg[3] = { 0 };
	char path[64];
	long call = -1;
	int creates = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%ld/syscall", strtol(number, NULL, 10));
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%ld %llx %llx %llx", &call, &arg[0], &arg[1], &arg[2]) == 4) {
		creates = call == SYS_openat && (arg[2] & both) == both;
#ifdef SYS_open
		creates |= call == SYS_open && (arg[1] & both) == both;
#endif
	}
	fclose(f);
	return creates;
}

/* Whether it is /dev/fuse: the numbers of ioctl() mean other things to other devices. */
static bool is_fuse(int fd)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) &&
	       st.st_rdev == makedev(MISC_MAJOR, FUSE_MINOR);
}

static int backing_open(const struct request *q)
{
	struct fuse_backing file = { .fd = q->file[1] };
	int r;

	if (!is_fuse(q->file[0]) || q->file[1] < 0)
		return -EINVAL;
	r = ioctl(q->file[0], FUSE_IOC_BACKING_OPEN, &file);
	return r < 0 ? -errno : r;
}

static int backing_close(const struct request *q)
{
	uint32_t id = (uint32_t)strtoul(q->text + 1, NULL, 10);

	if (!is_fuse(q->file[0]))
		return -EINVAL;
	return ioctl(q->file[0], FUSE_IOC_BACKING_CLOSE, &id) < 0 ? -errno : 0;
}

/*
 * Opening a pipe would wait for a reader, and no request would be served meanwhile, not even one to
 * unmount. The name is looked up in the directory that the log was in at the start, and not
 * followed: the mount's process may be able to rename what leads there.
 */
static int open_log(const struct parameters *p)
{
	const int how = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK |
			O_NOFOLLOW;
	int file = *p->log ? openat(p->log_dir, p->log, how, 0666) : -1;
	struct stat st;

	if (file < 0)
		return *p->log ? -errno : -EINVAL;
	if (fstat(file, &st) == 0 && S_ISREG(st.st_mode))
		return file;
	close(file);
	return -EINVAL;
}

static void send_log(int fd, const struct parameters *p)
{
	auto_close int file = open_log(p);
	int32_t value = MIN(file, 0);

	broker_packet_send(fd, &value, sizeof(value), &file, file >= 0);
}

static int connect_to_syslog(void)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX, .sun_path = _PATH_LOG };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/*
 * Send as syslog(3) does, which waits while the daemon does not read: here a message is lost then,
 * since the next request may be to unmount. A daemon that was restarted has a new socket.
 */
static int send_to_syslog(const struct parameters *p, int priority, const char *message)
{
	static int to = -1;
	char text[BROKER_TEXT_MAX + 128], when[32];
	time_t now = time(NULL);
	struct tm tm;
	int n;

	if (priority < LOG_ERR || priority > LOG_INFO)
		return -EINVAL;
	strftime(when, sizeof(when), "%b %e %T", localtime_r(&now, &tm));
	n = snprintf(text, sizeof(text), "<%d>%s %s: %s", priority | LOG_DAEMON, when, p->tag,
		     message);
	n = MIN(n, (int)sizeof(text) - 1);
	for (int attempt = 0; attempt < 2; attempt++) {
		if (to < 0)
			to = connect_to_syslog();
		if (to < 0 || send(to, text, (size_t)n, MSG_NOSIGNAL) == n)
			return to < 0 ? -errno : 0;
		if (errno == EAGAIN)
			return -EAGAIN;
		close(to);
		to = -1;
	}
	return -EPIPE;
}

static void broker_main_serve(int fd, const struct parameters *p, struct request *q)
{
	switch (q->text[0]) {
	case BROKER_ON_COMMIT:
		run_on_commit(fd, p->on_commit, q);
		break;
	case BROKER_FORGET:
		reply(fd, run_forget(q));
		break;
	case BROKER_UNMOUNT:
		reply(fd, broker_main_unmount(p->mountpoint));
		break;
	case BROKER_IS_CREATING:
		reply(fd, is_creating(q->text + 1));
		break;
	case BROKER_BACKING_OPEN:
		reply(fd, backing_open(q));
		break;
	case BROKER_BACKING_CLOSE:
		reply(fd, backing_close(q));
		break;
	case BROKER_LOG_FILE:
		send_log(fd, p);
		break;
	case BROKER_SYSLOG:
		reply(fd, send_to_syslog(p, q->text[1] - '0', q->text + 2));
		break;
	default:
		reply(fd, -EINVAL);
	}
	for (unsigned i = 0; i < BROKER_FILES_MAX; i++)
		if (q->file[i] >= 0)
			close(q->file[i]);
	/* Reap child processes that have ended. */
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

/* Take the parts of the first packet, each of which ends with a NUL. */
static void take_parameters(const struct request *q, struct parameters *p)
{
	const char **const parts[] = { &p->mountpoint, &p->on_commit, &p->log };
	static char path[BROKER_TEXT_MAX + 1];
	size_t at = 0;
	char *name;

	memcpy(p->text, q->text, sizeof(p->text));
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		*parts[i] = p->text + at;
		at = MIN(at + strlen(p->text + at) + 1, q->n);
	}
	snprintf(p->tag, sizeof(p->tag), "pytreefs[%d]", (int)getppid());
	p->log_dir = -1;
	if (!*p->log)
		return;
	/* Only its directory is opened: the log itself may have been renamed by now. */
	snprintf(path, sizeof(path), "%s", p->log);
	name = strrchr(path, '/') + 1;
	p->log = name;
	name[-1] = '\0';
	p->log_dir = open(*path ? path : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* Whether the mount, whose process is gone, is still there, and no other one over it. */
static bool is_dead(const char *mountpoint)
{
	auto_close int fd = -1;

	/* ECONNABORTED: the kernel had not closed the process's descriptors yet. */
	do {
		fd = open(mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	} while (fd < 0 && errno == ECONNABORTED);
	return fd < 0 && errno == ENOTCONN;
}

/* To where the messages of the mount go. */
static void say_killed(const struct parameters *p)
{
	auto_close int log = open_log(p);
	char text[BROKER_TEXT_MAX + 128], when[32];
	time_t now = time(NULL);
	struct tm tm;

	snprintf(text, sizeof(text),
		 "the process that served '%s' was killed: `pytreefs umount %s` takes the dead "
		 "mount away, and so does mounting there again",
		 p->mountpoint, p->mountpoint);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
	if (log >= 0)
		dprintf(log, "%s %s\n", when, text);
	else
		send_to_syslog(p, LOG_ERR, text);
	fprintf(stderr, "pytreefs: %s\n", text);
}

int broker_main(void)
{
	int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	static struct parameters p;
	static struct request q;

	if (fd < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0 || !receive(fd, &q))
		return 1;
	close(null);
	take_parameters(&q, &p);
	while (receive(fd, &q)) {
		if (q.text[0] == BROKER_END)
			return 0;
		broker_main_serve(fd, &p, &q);
	}
	if (is_dead(p.mountpoint))
		say_killed(&p);
	return 0;
}
