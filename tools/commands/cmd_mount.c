/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_mount.c - `pytreefs mount` and `umount`, also called by mount(8) as mount.pytreefs.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/path.h"
#include "core/job/peers.h"
#include "fs/fs_main.h"
#include "tools/cli/cmd.h"
#include "tools/job/mpi_program.h"

#define BUSY_MS 2000 /* time after which a mount is reported to be in use */
#define BUSY_STEP_MS 20
#define DYING_MS 400  /* time for a process that was killed to end */
#define END_MS 30000  /* time for the daemon to end after the mount has */
#define QUIET_MS 1000 /* the part of it that is waited without a word */
#define HOLDERS_MAX 8 /* mount namespaces that are named */

/* Options of mount(8) that are ignored. Those that are passed on are mount_words. */
static const char *const ignored[] = {
	"defaults", "auto",       "noauto",      "user",          "nouser",   "users",
	"owner",    "noowner",    "group",       "nogroup",       "_netdev",  "nofail",
	"relatime", "norelatime", "strictatime", "nostrictatime", "lazytime", "nolazytime",
	"diratime", "nodiratime", NULL,
};

static bool mount_is_one_of(const char *text, const char *const *words)
{
	for (; *words; words++)
		if (!strcmp(text, *words))
			return true;
	return false;
}

static int mount_set_option(struct cmd_args *a, const char *text)
{
	/* Labels of SELinux, which libfuse hands to the kernel. */
	static const char *const labels[] = { "context=", "fscontext=", "defcontext=",
					      "rootcontext=" };
	struct buf *fuse_options = &a->fuse_options;
	bool passed = mount_is_one_of(text, mount_words);
	int r = option_set(&a->options, text, true);

	if (r != -ENOENT)
		return r;
	if (!strcmp(text, "remount"))
		return fail(
			-EOPNOTSUPP,
			"the options of a mount cannot be changed (remount): end it with `pytreefs "
			"umount MOUNTPOINT`, which also ends its drafts, and mount again");
	if (mount_is_one_of(text, ignored) || !strncmp(text, "x-", 2) ||
	    !strncmp(text, "comment=", 8))
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(labels); i++)
		passed |= !strncmp(text, labels[i], strlen(labels[i]));
	if (!passed)
		return option_set(&a->options, text, false);
	/* Other users get access as the modes of files allow, and no more. */
	return buf_addf(fuse_options, "%s%s%s", fuse_options->n ? "," : "", text,
			strcmp(text, "allow_other") ? "" : ",default_permissions");
}

/* Replace "%r" in the mount point by the rank. */
static int name_mountpoint(const char *text, int rank, struct buf *ret)
{
	int r = 0;

	for (const char *c = text; *c && r >= 0; c++) {
		if (c[0] == '%' && c[1] == 'r') {
			r = buf_addf(ret, "%d", rank);
			c++;
		} else {
			r = buf_add_byte(ret, (uint8_t)*c);
		}
	}
	return r < 0 || buf_str(ret) ? r : -ENOMEM;
}

/* fusermount3 can unmount for users other than root. */
static int unmount_as_user(const char *mountpoint, bool lazy)
{
	pid_t child = fork();
	int status;

	if (child < 0)
		return err_sys("cannot start", "fusermount3");
	if (child == 0) {
		execlp("fusermount3", "fusermount3", lazy ? "-uz" : "-u", "--", mountpoint,
		       (char *)NULL);
		_exit(127);
	}
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return err_sys("cannot wait for", "fusermount3");
	return status == 0 ? EXIT_OK : EXIT_FOUND;
}

/* Remove the mount of a daemon that was killed, on which every access fails, and log it. */
static int take_dead_mount_away(const char *dir)
{
	fprintf(stderr, "pytreefs: '%s' was the mount of a process that is gone: it is unmounted\n",
		dir);
	if (umount2(dir, MNT_DETACH) == 0)
		return 0;
	if (errno == EPERM && unmount_as_user(dir, true) == EXIT_OK)
		return 0;
	return fail(-EBUSY,
		    "cannot unmount the dead mount on '%s': try `pytreefs umount --lazy %s`", dir,
		    dir);
}

static int mount_check_empty(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	/* The mount itself will report what is wrong. */
	if (!d)
		return 0;
	while ((e = readdir(d)) && (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")))
		;
	if (e)
		fail(-ENOTEMPTY,
		     "cannot mount on '%s': it has '%s', which the mount would hide; -o nonempty "
		     "does it",
		     dir, e->d_name);
	closedir(d);
	return e ? -ENOTEMPTY : 0;
}

/*
 * Whether the process of the mount is gone, or about to end: a service that restarts comes right
 * after the signal. The directory is opened, since the kernel answers stat(2) from its cache.
 */
static bool mount_is_dead(const char *dir)
{
	for (unsigned waited = 0;; waited += BUSY_STEP_MS) {
		auto_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		/* ECONNABORTED: it ended while it had this request. */
		if ((fd < 0 && errno != ECONNABORTED) || waited >= DYING_MS)
			return fd < 0 && errno == ENOTCONN;
		usleep(BUSY_STEP_MS * 1000);
	}
}

/*
 * Check the directory, since a mount hides its contents: another mount of this kind, or files. An
 * empty directory on a disk of its own is allowed: it may be a volume of a container.
 */
static int check_mountpoint(const struct options *o, const char *path)
{
	for (;;) {
		auto_free char *dir = path_real(path), *source = NULL,
			       *type = dir ? mounted_on(dir, &source) : NULL;
		int r;

		if (type && !strcmp(type, "fuse.pytreefs") && mount_is_dead(dir)) {
			r = take_dead_mount_away(dir);
			if (r < 0)
				return r;
			continue;
		}
		if (!dir || o->nonempty)
			return 0;
		if (type && !strncmp(type, "fuse", 4))
			return fail(-EBUSY,
				    "cannot mount on '%s': '%s' (%s) is mounted there; `pytreefs "
				    "umount %s` ends a mount, -o nonempty mounts over it",
				    dir, source, type, dir);
		return mount_check_empty(dir);
	}
}

/* Run one rank of a job, which starts and ends together with the others. */
static int run_rank(struct cmd_args *a, struct fs_mount *m)
{
	auto_buf mountpoint = { 0 };
	struct peers *peers = NULL;
	int r = mpi_program(a);

	if (r < 0)
		return r;
	r = peers_mpi_open(a->options.job, &peers);
	if (r < 0)
		return r;
	r = name_mountpoint(m->mountpoint, peers->rank, &mountpoint);
	if (r >= 0) {
		m->mountpoint = buf_str(&mountpoint);
		m->peers = peers;
		m->foreground = true;
		/* The other ranks wait for this one, so they must be told of the error. */
		m->refused = check_mountpoint(&a->options, m->mountpoint);
		r = fs_main(m);
	}
	if (r < 0)
		fprintf(stderr, "pytreefs: rank %d: %s\n", peers->rank, err_text(r));
	peers_close(peers);
	return r < 0 ? EXIT_FOUND : r;
}

/*
 * Paths in options, and SOURCE: the background process changes its directory, and finds out why
 * SOURCE cannot be opened.
 */
static int make_paths_absolute(struct options *o, char **source)
{
	bool has_spill = strcmp(o->spill, "off") && strcmp(o->spill, "auto");
	char **const paths[] = { path_is_url(*source) ? NULL : source, &o->log,
				 has_spill ? &o->spill : NULL, &o->cache_dir, &o->http_headers };

	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		char *whole;
		int r;

		if (!paths[i] || !*paths[i] || **paths[i] == '/')
			continue;
		r = path_absolute(*paths[i], &whole);
		if (r < 0)
			return r;
		free(*paths[i]);
		*paths[i] = whole;
	}
	return 0;
}

static int run_mount(struct cmd_args *a)
{
	struct options *o = &a->options;
	auto_free char *source = strdup(a->arg[0]);
	int r = source ? source_in_no_mount(a, source) : -ENOMEM;
	struct fs_mount m = {
		.source = a->arg[0],
		.mountpoint = a->arg[1],
		.options = o,
		.foreground = cmd_flag(a, "foreground"),
		.opened = source_warn_of_others,
		.fuse_options = a->fuse_options.n ? buf_str(&a->fuse_options) : "",
	};

	if (r < 0)
		return r;
	r = make_paths_absolute(o, &source);
	if (r < 0)
		return r;
	o->tensors = TENSORS_ELSE;
	if (!m.fuse_options)
		return -ENOMEM;
	o->for_others = fs_option_place(m.fuse_options, "allow_other") > 0;
	if (cmd_flag(a, "mpi"))
		return run_rank(a, &m);
	r = check_mountpoint(o, m.mountpoint);
	if (r < 0)
		return r;
	r = fs_main(&m);
	o->tensors = TENSORS_NO;
	return r < 0 ? source_fail_part(a, source, r) : r;
}

static const struct cmd_option mount_options[] = {
	{ "foreground", 'f', NULL, "stay in the foreground; messages go to stderr" },
	{ "mpi", 0, NULL, "one rank of an MPI job; %r in MOUNTPOINT is its number" },
	{ "sloppy", 's', NULL, "accepted for mount(8)" },
	{ "verbose", 'v', NULL, "accepted for mount(8)" },
	{ "no-mtab", 'n', NULL, "accepted for mount(8)" },
	{ 0 },
};

const struct cmd cmd_mount = {
	.name = "mount",
	.args = "SOURCE MOUNTPOINT",
	.summary = "mount a checkpoint, or a directory of checkpoints",
	.help = "Returns when the mount is ready, or fails with the reason. SOURCE is a directory\n"
		"of steps, a step, or an item, which is detected from its contents; or a\n"
		"safetensors file, or a directory of such, which is only read. -o also takes ro,\n"
		"allow_other and default_permissions, as mount(8). PYTREEFS_OPTIONS has options\n"
		"for every mount and command, in the form of -o.",
	.example = "pytreefs mount ckpts /mnt && ls /mnt/latest/state && pytreefs umount /mnt",
	.options = mount_options,
	.min_args = 2,
	.max_args = 2,
	.takes_mount_options = true,
	.saves = true,
	.set_option = mount_set_option,
	.run_helper = fs_run_helper,
	.run = run_mount,
};

/* Warn about drafts, which are not steps until they are renamed. */
static void report_drafts(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		auto_free char *name = str_fmt("%s/%s", path, e->d_name);
		char state[16] = "";

		if (name && e->d_name[0] != '.' &&
		    getxattr(name, "user.pytree.state", state, sizeof(state) - 1) > 0 &&
		    !strcmp(state, "\"draft\""))
			fprintf(stderr,
				"pytreefs: draft '%s' is not committed, and ends with the mount\n",
				e->d_name);
	}
	if (d)
		closedir(d);
}

/* The process that serves a mount, and the device of the mount. */
struct served {
	int pid;
	dev_t device;
};

/* Get the name of a process, or "". */
static void read_comm(const char *pid, char ret[64])
{
	auto_free char *path = str_fmt("/proc/%s/comm", pid);
	auto_close int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	ssize_t n = fd < 0 ? 0 : read(fd, ret, 63);

	ret[MAX(n, (ssize_t)0)] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
}

/*
 * Find the process that serves a mount, to wait for its end: it keeps SOURCE open a moment longer
 * than the mount exists. A rank of a job waits for others, and is left unknown. Returns a
 * descriptor of the process, or -1.
 */
static int find_daemon(const char *path, struct served *ret)
{
	auto_free char *stats = str_fmt("%s/.pytreefs/stats", path);
	auto_close int fd = stats ? open(stats, O_RDONLY | O_CLOEXEC) : -1;
	char text[128] = "", pid[16], comm[64];
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || read(fd, text, sizeof(text) - 1) <= 0 ||
	    sscanf(text, "{ \"pid\": %d", &ret->pid) != 1 || strstr(text, "\"in_job\""))
		return -1;
	/* In another PID namespace, the number would be that of another process. */
	snprintf(pid, sizeof(pid), "%d", ret->pid);
	read_comm(pid, comm);
	if (strncmp(comm, "pytreefs", strlen("pytreefs")) != 0)
		return -1;
	ret->device = st.st_dev;
	return (int)syscall(SYS_pidfd_open, ret->pid, 0);
}

/* Where a process has the device mounted; NULL: nowhere, or nobody may know. */
static char *mount_place_of(const char *pid, dev_t device)
{
	auto_free char *name = str_fmt("/proc/%s/mountinfo", pid), *line = NULL;
	FILE *f = name ? fopen(name, "re") : NULL;
	char *place = NULL;
	unsigned major, minor;
	size_t cap = 0;

	while (f && !place && getline(&line, &cap, f) > 0)
		if (sscanf(line, "%*u %*u %u:%u %*s %ms", &major, &minor, &place) == 3 &&
		    makedev(major, minor) != device)
			free(take(place));
	if (f)
		fclose(f);
	return place;
}

/* Whether the mount namespace of a process is another one than those before. */
static bool is_other_namespace(const char *pid, ino_t *seen, size_t *n)
{
	auto_free char *name = str_fmt("/proc/%s/ns/mnt", pid);
	struct stat st;

	if (!name || stat(name, &st) < 0)
		return false;
	for (size_t i = 0; i < *n; i++)
		if (seen[i] == st.st_ino)
			return false;
	seen[(*n)++] = st.st_ino;
	return true;
}

/* A process is named for each mount namespace that has the device mounted still. */
static void report_holders(const char *path, const struct served *served)
{
	DIR *proc = opendir("/proc");
	ino_t seen[HOLDERS_MAX];
	struct dirent *e;
	size_t n = 0;

	while (proc && n < HOLDERS_MAX && (e = readdir(proc))) {
		auto_free char *place = NULL;
		char comm[64];

		if (e->d_name[0] < '0' || e->d_name[0] > '9')
			continue;
		place = mount_place_of(e->d_name, served->device);
		if (!place || !is_other_namespace(e->d_name, seen, &n))
			continue;
		read_comm(e->d_name, comm);
		fprintf(stderr,
			"pytreefs: '%s' is unmounted, and still mounted on '%s' for process %s "
			"(%s)\n",
			path, place, e->d_name, comm);
	}
	if (proc)
		closedir(proc);
	fprintf(stderr,
		"pytreefs: '%s' is unmounted; waiting up to %d s for process %d, which serves "
		"it%s\n",
		path, END_MS / 1000, served->pid,
		n ? "" : ": another mount namespace may have it mounted");
}

static void wait_for_end(const char *path, int daemon, const struct served *served)
{
	struct pollfd p = { .fd = daemon, .events = POLLIN };

	if (daemon < 0 || poll(&p, 1, QUIET_MS) != 0)
		return;
	report_holders(path, served);
	if (poll(&p, 1, END_MS - QUIET_MS) == 0)
		fprintf(stderr, "pytreefs: process %d goes on\n", served->pid);
}

static int run_umount(struct cmd_args *a)
{
	const char *path = a->arg[0];
	auto_free char *dir = path_real(path), *source = NULL;
	auto_free char *type = dir ? mounted_on(dir, &source) : NULL;
	bool lazy = cmd_flag(a, "lazy");
	int left = BUSY_MS / BUSY_STEP_MS, r;
	auto_close int daemon = -1;
	struct served served;

	if (type && strcmp(type, "fuse.pytreefs"))
		return fail(-EINVAL, "'%s' is a mount of %s, and not of pytreefs", path, type);
	report_drafts(path);
	if (!lazy)
		daemon = find_daemon(path, &served);
	/* The close of files reaches the daemon a moment later. */
	while ((r = umount2(path, lazy ? MNT_DETACH : 0)) < 0 && errno == EBUSY && left-- > 0)
		usleep(BUSY_STEP_MS * 1000);
	if (r < 0 && errno == EBUSY)
		return fail(-EBUSY, "'%s' is in use: close what is open there, or use --lazy",
			    path);
	if (r < 0 && errno == EINVAL)
		return fail(-EINVAL, "'%s' is not a mount", path);
	if (r < 0 && errno != EPERM)
		return err_sys("cannot unmount", path);
	r = r < 0 ? unmount_as_user(path, lazy) : EXIT_OK;
	if (r == EXIT_OK)
		wait_for_end(path, daemon, &served);
	return r;
}

static const struct cmd_option umount_options[] = {
	{ "lazy", 'l', NULL, "detach the mount now, and end it when it is no longer in use" },
	{ 0 },
};

const struct cmd cmd_umount = {
	.name = "umount",
	.args = "MOUNTPOINT",
	.summary = "unmount",
	.help = "",
	.example = "pytreefs umount /mnt",
	.options = umount_options,
	.min_args = 1,
	.max_args = 1,
	.run = run_umount,
};
