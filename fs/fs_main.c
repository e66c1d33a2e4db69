/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs_main.c - parses options, opens SOURCE, mounts, runs the loop, and shuts down.
 *
 * In the background, a child does all of this, so no thread, ring or lock must survive a fork. The
 * parent waits on a pipe until the first request of the kernel has arrived; until then, the child
 * uses the user's stderr.
 */
#include "fs/fs_main.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/job/agree.h"
#include "fs/broker_main.h"
#include "fs/confine.h"
#include "fs/fs.h"
#include "fs/mount_log.h"
#include "fs/operations.h"
#include "fs/signals.h"
#include "handlers/namespace/places.h"

#define AGREE_TIMEOUT (60 * SECOND_NS)
#define FILES_USUAL 4096 /* number of open files to prepare for; more are possible */
/*
 * read-ahead of the kernel for this mount, so that it sends large requests for sequential readers
 */
#define READ_AHEAD_KIB 8192

/*
 * The kernel caches names of the root for a second; this makes it drop one at once. For a
 * notification about the root's attributes, the kernel takes no lock that could wait for this
 * process, so it is sent from here. One about a name would take such a lock (fs/forget.h).
 */
static void root_changed(void *arg, const char *name)
{
	struct fs *fs = arg;

	/*
	 * As long as `ending` is not set, the session's descriptor is open, and the thread that
	 * forgets names runs.
	 */
	pthread_mutex_lock(&fs->lock);
	if (!fs->ending && name)
		forget_name(&fs->forget, name);
	if (!fs->ending)
		fuse_lowlevel_notify_inval_inode(fs->se, FUSE_ROOT_ID, -1, 0);
	pthread_mutex_unlock(&fs->lock);
}

/* The loop is about to end, and waits for requests in progress: let them finish soon. */
static void interrupt_requests(void *arg)
{
	struct fs *fs = arg;

	/* The namespace has not been stopped as long as `ending` is not set. */
	pthread_mutex_lock(&fs->lock);
	if (!fs->ending)
		ns_interrupt(fs->ns);
	pthread_mutex_unlock(&fs->lock);
}

/*
 * Raise the read-ahead of this mount, for larger requests when a file is read in order. This must
 * happen before the first request, because the kernel takes the smaller of this and the value in
 * the reply to INIT. Only root may do it, so failing is ordinary. The setting belongs to the
 * mount's own device and disappears with it: it is not system-wide.
 */
static void raise_read_ahead(const char *mountpoint)
{
	char path[96], text[32];
	auto_close int fd = -1;
	struct statx st;
	int n;

	/* With these flags, statx() sends no request, which no thread would answer yet. */
	if (statx(AT_FDCWD, mountpoint, AT_STATX_DONT_SYNC, 0, &st) < 0)
		return;
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", st.stx_dev_major,
		 st.stx_dev_minor);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	n = snprintf(text, sizeof(text), "%d", READ_AHEAD_KIB);
	if ((fd < 0 || write(fd, text, (size_t)n) != n) && geteuid() == 0)
		log_info("cannot raise read_ahead_kb of the mount (%s): sequential reads use "
			 "smaller requests",
			 strerror(errno));
}

static ssize_t read_request(int fd, void *buf, size_t n, void *userdata)
{
	struct fs *fs = userdata;
	ssize_t r = requests_read(&fs->requests, fd, buf, n);

	/* The previous request may have succeeded and left a note of a failed attempt. */
	if (r > 0)
		err_clear();
	/*
	 * The mount was removed by force, or its connection aborted, while requests are in
	 * progress. libfuse ends the loop without an error for ENODEV only.
	 */
	if (r < 0 && (errno == ENODEV || errno == ECONNABORTED)) {
		interrupt_requests(fs);
		errno = ENODEV;
	}
	return r;
}

static ssize_t write_reply(int fd, struct iovec *iov, int n, void *userdata)
{
	struct fs *fs = userdata;
	bool is_init;
	ssize_t r;

	passthrough_complete_reply(iov, n);
	if (queue_reply(iov, n, &r))
		return r;
	is_init = init_complete_reply(&fs->init, iov, n);
	r = writev(requests_device(fd), iov, n);
	if (r < 0)
		return r;
	if (is_init && fs->init.granted & FUSE_PASSTHROUGH)
		memory_files_allow(fs->ns->memory, true);
	/* From now on the kernel waits for all queues: without them there is no mount. */
	if (is_init && fs->init.granted & FUSE_OVER_IO_URING) {
		int started = queues_start(fs->queues);

		if (started < 0) {
			log_error("cannot serve requests over io_uring: %s; -o fuse_uring=off",
				  err_text(started));
			signals_end();
		}
	}
	return r;
}

static ssize_t splice_reply(int from, off_t *from_off, int to, off_t *to_off, size_t n,
			    unsigned flags, void *userdata)
{
	return splice(from, from_off, requests_device(to), to_off, n, flags);
}

static int run_loop(struct fs *fs)
{
	static const struct fuse_custom_io device = {
		.read = read_request,
		.writev = write_reply,
		.splice_send = splice_reply,
	};
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	int r;

	if (!config || fuse_session_custom_io(fs->se, &device, fuse_session_fd(fs->se)) != 0) {
		if (config)
			fuse_loop_cfg_destroy(config);
		return fail(-ENOMEM, "cannot start the FUSE loop");
	}
	fuse_loop_cfg_set_clone_fd(config, 1);
	fuse_loop_cfg_set_max_threads(config, FS_THREADS_LOOP);
	/* None ends before the loop: a request is answered on the device of who has read it. */
	fuse_loop_cfg_set_idle_threads(config, FS_THREADS_LOOP);
	r = fuse_session_loop_mt(fs->se, config);
	fuse_loop_cfg_destroy(config);
	return r < 0 ? fail(r, "the FUSE loop failed: %s", strerror(-r)) : 0;
}

static int serve(struct fs *fs)
{
	int r = request_reader_start(&fs->request_reader, fs->options->busy_poll);

	if (r < 0)
		return r;
	r = requests_start(&fs->requests, fs);
	if (r >= 0) {
		r = run_loop(fs);
		requests_stop(&fs->requests);
	}
	request_reader_stop(&fs->request_reader);
	return r;
}

/* "fsname=...,subtype=pytreefs,..." for the kernel and mount(8). */
static int fuse_args(const struct fs_mount *m, struct fuse_args *ret)
{
	auto_buf text = { 0 };
	int r = buf_add_str(&text, "subtype=pytreefs,fsname=");

	/* A comma in a path would begin another option. */
	for (const char *c = m->source; *c && r >= 0; c++)
		r = *c == ',' || *c == '\\' ? buf_addf(&text, "\\%c", *c) :
					      buf_add_byte(&text, (uint8_t)*c);
	if (r >= 0)
		r = buf_addf(&text, ",max_read=%llu%s%s", (unsigned long long)m->options->max_read,
			     m->fuse_options[0] ? "," : "", m->fuse_options);
	if (r < 0 || !buf_str(&text))
		return -ENOMEM;
	if (fuse_opt_add_arg(ret, "pytreefs") < 0 || fuse_opt_add_arg(ret, "-o") < 0 ||
	    fuse_opt_add_arg(ret, (const char *)text.p) < 0)
		return fail(-ENOMEM, "cannot mount '%s'", m->source);
	return 0;
}

static int check_device(void)
{
	auto_close int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		return 0;
	return fail(-errno,
		    "cannot open /dev/fuse: %s; without it use `pytreefs ls`, `tree`, `info` and "
		    "`cat`, which need no mount",
		    strerror(errno));
}

/* Agree with the other ranks of the job: either all are mounted, or all unmount. */
static int agree_to_mount(const struct fs_mount *m, struct fs *fs, int r)
{
	const struct agreement a = { .peers = m->peers,
				     .id = 1,
				     .deadline = clock_ns() + AGREE_TIMEOUT };

	if (!m->peers || fs->agreed)
		return r;
	fs->agreed = true;
	return agree(&a, r, span_of(NULL, 0), NULL, NULL);
}

/*
 * This process may neither unmount nor start a program that may: the broker does it, and libfuse
 * must find that nothing is left to do. It checks the device for an error, so a pipe without a
 * reader takes the place of the device, which has one. This also ends the connection. Returns
 * false, with a message, when the mount is left.
 */
static bool unmount(struct fs *fs)
{
	struct pollfd device = { .fd = fuse_session_fd(fs->se) };
	bool is_mounted = poll(&device, 1, 0) != 1 || !(device.revents & POLLERR);
	int ends[2], r;

	if (pipe2(ends, O_CLOEXEC) == 0) {
		close(ends[0]);
		dup3(ends[1], device.fd, O_CLOEXEC);
		close(ends[1]);
	}
	fuse_session_unmount(fs->se);
	r = is_mounted ? broker_ask(&fs->broker, BROKER_UNMOUNT, "", NULL, 0) : 0;
	if (r >= 0 || r == -EINVAL)
		return true;
	if (r == -EPIPE)
		log_error("cannot unmount '%s': its process '" BROKER_PROGRAM "' was killed; "
			  "`pytreefs umount %s` does it",
			  fs->mountpoint, fs->mountpoint);
	else
		log_error("cannot unmount '%s': %s", fs->mountpoint, strerror(-r));
	return false;
}

/* Returns 1 when the mount is left, of which the log tells. */
static int serve_until_unmounted(const struct fs_mount *m, struct fs *fs, struct signals *signals)
{
	struct ns_listener listener = { .changed = root_changed, .arg = fs };
	int r = forget_start(&fs->forget, m->mountpoint, &fs->broker);
	bool is_unmounted;

	if (r < 0)
		return r;
	r = agree_to_mount(m, fs, ns_start(fs->ns, &listener));
	if (r >= 0)
		r = serve(fs);
	/* In the background, stderr is not the user's any more. */
	if (r < 0 && !m->foreground)
		log_error("the mount on '%s' ends: %s", fs->mountpoint, err_text(r));
	signals_loop_ended(signals);
	if (fs->queues)
		queues_stop(fs->queues);
	pthread_mutex_lock(&fs->lock);
	fs->ending = true;
	pthread_mutex_unlock(&fs->lock);
	/*
	 * Unmount first: programs that wait for a reply get ENOTCONN, and the helper that forgets
	 * names ends.
	 */
	is_unmounted = unmount(fs);
	forget_stop(&fs->forget);
	ns_stop(fs->ns);
	mount_log_end(fs, signals_which(), is_unmounted);
	return r < 0 ? r : !is_unmounted;
}

/* Choose flags of INIT, and make what they need while this process may. */
static void choose_flags(struct fs *fs)
{
	int r;

	/* A lookup that waits for a server must not keep others in its directory waiting. */
	fs->init.wanted |= FUSE_PARALLEL_DIROPS | FUSE_DIRECT_IO_ALLOW_MMAP;
	if (fs->options->passthrough)
		fs->init.wanted |= FUSE_PASSTHROUGH;
	ns_make_memory_files(fs->ns);
	if (!fs->options->fuse_uring)
		return;
	r = queues_new(fs, &fs->queues);
	if (r < 0)
		log_warn("fuse_uring: requests come through /dev/fuse, since %s", err_text(r));
	else
		fs->init.wanted |= FUSE_OVER_IO_URING;
	err_clear();
}

/* Mount, give up all rights that serving does not need, and only then start threads. */
static int mount_confined(const struct fs_mount *m, struct fs *fs)
{
	struct signals signals = { .se = fs->se,
				   .ending = interrupt_requests,
				   .hung_up = mount_log_on_hangup(),
				   .arg = fs };
	sigset_t old;
	int r;

	/* Signals wait until there is a broker that unmounts. */
	signals_hold(&old);
	if (fuse_session_mount(fs->se, m->mountpoint) < 0) {
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		return fail(-EIO, "cannot mount on '%s'", m->mountpoint);
	}
	raise_read_ahead(m->mountpoint);
	choose_flags(fs);
	r = confine(m, fs, signals_refused);
	if (r >= 0)
		r = signals_start(&signals);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r < 0) {
		unmount(fs);
		return r;
	}
	r = serve_until_unmounted(m, fs, &signals);
	signals_stop(&signals);
	return r;
}

static int mount_and_serve(const struct fs_mount *m, struct fs *fs)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	char log[PATH_MAX];
	int r = fuse_args(m, &args);

	if (r < 0)
		return r;
	fs->se = fuse_session_new(&args, &fs_ops, sizeof(fs_ops), fs);
	fuse_opt_free_args(&args);
	if (!fs->se)
		return fail(-EINVAL, "cannot make a FUSE session: are the options '%s' known?",
			    m->fuse_options);
	/* Links to the log are followed once, here: it may be renamed from now on. */
	if (!m->options->log || !realpath(m->options->log, log))
		*log = '\0';
	r = broker_start(&fs->broker,
			 &(struct broker_parameters){ .mountpoint = m->mountpoint,
						      .on_commit = m->options->on_commit,
						      .log = *log ? log : NULL,
						      .quiet = !m->foreground });
	if (r >= 0) {
		fs->ns->drafts.broker = &fs->broker;
		mount_log_by_broker(&fs->broker);
		r = mount_confined(m, fs);
	}
	fuse_session_destroy(fs->se);
	queues_free(fs->queues);
	return r;
}

/*
 * Enlarge the table of descriptors before threads exist: later, the kernel waits for all processors
 * whenever the table grows, which takes tens of milliseconds, and a listing of many steps opens
 * each of them.
 */
static void make_room_for_files(void)
{
	struct rlimit limit;
	int fd = -1;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC,
			   (int)MIN(limit.rlim_cur, (rlim_t)FILES_USUAL) - 1);
	if (fd >= 0)
		close(fd);
}

size_t fs_option_place(const char *options, const char *word)
{
	size_t n = strlen(word), place = 0;

	for (const char *at = options; (at = strstr(at, word)); at++)
		if ((at == options || at[-1] == ',') && strchr(",", at[n]))
			place = (size_t)(at - options) + 1;
	return place;
}

/* *ret_step is the path that the ns borrows in place of SOURCE; NULL: it borrows SOURCE. */
static int fs_main_open_source(const struct fs_mount *m, struct ns **ret, char **ret_step)
{
	int r = ns_open(m->source, m->options, ret);
	struct err_note why;

	if (r != -ENOENT || !path_is_url(m->source))
		return r;
	err_save(r, &why);
	r = ns_find_step(m->source, m->options, ret_step);
	return r < 0 ? err_restore(&why) : ns_open(*ret_step, m->options, ret);
}

static int open_for_mount(const struct fs_mount *m, bool is_read_only, struct ns **ret,
			  char **ret_step)
{
	struct ns *ns;
	int r = check_device();

	if (r < 0)
		return r;
	make_room_for_files();
	r = log_open(true, !m->foreground && !m->options->log, m->options->log);
	if (r < 0)
		return r;
	r = fs_main_open_source(m, ret, ret_step);
	if (r == -ENOENT && path_is_url(m->source) && strncmp(m->source, "http", 4))
		return fail(r, "%s; -o shape=root mounts a place where steps have to be made",
			    err_text(r));
	if (r < 0)
		return r;
	ns = *ret;
	ns->mountpoint = m->mountpoint;
	operations_init(ns);
	ns_warn_if_empty(ns);
	ns_warn_of_links(ns);
	if (m->opened)
		m->opened(ns);
	if (!is_read_only)
		ns_warn_of_bucket(ns);
	return m->peers ? ns_share(ns, m->peers) : 0;
}

static int run(const struct fs_mount *m, int ready_fd)
{
	struct fs fs = { .options = m->options,
			 .ready_fd = ready_fd,
			 .mountpoint = m->mountpoint,
			 .is_read_only = fs_option_place(m->fuse_options, "ro") >
					 fs_option_place(m->fuse_options, "rw") };
	auto_free char *step = NULL;
	auto_of(ns) struct ns *ns = NULL;
	int r = open_for_mount(m, fs.is_read_only, &ns, &step);

	if (r < 0)
		return agree_to_mount(m, &fs, r);
	if (m->peers && m->options->job)
		log_info("rank %d of %d of job '%s'", m->peers->rank, m->peers->size,
			 m->options->job);
	fs.ns = ns;
	pthread_mutex_init(&fs.lock, NULL);
	passthrough_init(&fs.passthrough);
	r = agree_to_mount(m, &fs, mount_and_serve(m, &fs));
	mount_log_by_broker(NULL);
	if (ns->drafts.broker)
		broker_stop(&fs.broker);
	dirs_free(&fs);
	passthrough_release(&fs.passthrough);
	pthread_mutex_destroy(&fs.lock);
	return r;
}

int fs_run_helper(const char *name, int *ret_status)
{
	if (!strcmp(name, FORGET_HELPER))
		*ret_status = forget_help();
	else if (!strcmp(name, BROKER_PROGRAM))
		*ret_status = broker_main();
	else
		return 0;
	return 1;
}

/* From here on, stderr is not the user's any more. */
void fs_detach(struct fs *fs)
{
	auto_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null >= 0)
		for (int fd = 0; fd < 3; fd++)
			dup2(null, fd);
	log_open(false, !fs->options->log, fs->options->log);
}

static int wait_ready(int fd, pid_t child)
{
	char ok;
	ssize_t n;
	int status;

	do {
		n = read(fd, &ok, 1);
	} while (n < 0 && errno == EINTR);
	if (n == 1)
		return 0;
	/* The child has written the reason to stderr. */
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return 1;
}

/* Without links; but a file has the name that it was given, which says what it is. */
static char *real_source(const char *path)
{
	char *real = realpath(path, NULL);
	struct stat st;

	if (!real || stat(real, &st) < 0 || !S_ISREG(st.st_mode))
		return real;
	free(real);
	return path_real_dir(path);
}

/* The background process changes its directory, so paths become absolute. */
static int resolve(const struct fs_mount *m, char **ret_source, char **ret_mountpoint)
{
	auto_free char *step = NULL;
	struct stat st;
	int r;

	*ret_source = path_is_url(m->source) ? strdup(m->source) : real_source(m->source);
	r = *ret_source ? 0 : -errno;
	if (r == -ENOENT && ns_find_step(m->source, m->options, &step) >= 0)
		*ret_source = realpath(step, NULL);
	if (!*ret_source)
		return err_code(r, "cannot open", m->source);
	*ret_mountpoint = realpath(m->mountpoint, NULL);
	if (!*ret_mountpoint || stat(*ret_mountpoint, &st) < 0)
		return err_sys("cannot mount on", m->mountpoint);
	/* The kernel would also mount on a file, but then every access to it would fail. */
	if (!S_ISDIR(st.st_mode))
		return fail(-ENOTDIR, "cannot mount on '%s': it is not a directory", m->mountpoint);
	return places_check(*ret_source, *ret_mountpoint, m->options);
}

int fs_main(const struct fs_mount *m)
{
	auto_free char *source = NULL, *mountpoint = NULL;
	struct fs_mount resolved = *m;
	struct fs early = { 0 };
	int pipe_fd[2];
	pid_t child;
	int r = m->refused < 0 ? m->refused : resolve(m, &source, &mountpoint);

	if (r < 0)
		return agree_to_mount(m, &early, r);
	resolved.source = source;
	resolved.mountpoint = mountpoint;
	if (m->foreground)
		return run(&resolved, -1);
	if (pipe2(pipe_fd, O_CLOEXEC) < 0)
		return err_sys("cannot make", "pipe");
	/* Flush first, or buffered output would be written twice. */
	fflush(NULL);
	child = fork();
	if (child < 0)
		return err_sys("cannot start", "background process");
	if (child > 0) {
		close(pipe_fd[1]);
		r = wait_ready(pipe_fd[0], child);
		close(pipe_fd[0]);
		return r;
	}
	close(pipe_fd[0]);
	setsid();
	if (chdir("/") < 0)
		log_warn("cannot leave the working directory");
	return run(&resolved, pipe_fd[1]);
}
