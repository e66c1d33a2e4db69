/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.c - watches the root with inotify, and polls its time as a fallback.
 *
 * Network file systems report only changes by this machine, so their root is polled every `poll`
 * milliseconds. Where inotify works, the root is polled as well, ten times less often, since events
 * may be lost.
 */
#include "handlers/namespace/watch.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/vfs.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "handlers/namespace/ns.h"

#define MS ((int64_t)1000000)
#define SWEEP_MS 100
#define SWEEPS 20
#define COMMITTED_NS (10 * SECOND_NS)
#define EVENTS (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_MOVE_SELF | IN_ONLYDIR)

/* A step that was committed through this mount. */
struct committed {
	struct committed *next;
	int64_t due;
	char name[];
};

struct watch {
	struct ns *ns;
	pthread_t thread;
	int inotify;               /* -1: polling only */
	int wake;                  /* eventfd */
	atomic_bool stop, trim;    /* the reasons for which it was woken */
	struct timespec last_mtim; /* the root's time at the last scan */
	bool said_gone;            /* SOURCE was removed, and the log says so */
	pthread_mutex_t lock;      /* protects the following member */
	struct committed *committed;
};

static void notify(struct watch *w, const char *name)
{
	trace(TRACE_STEP, "root changed: %s", name ? name : "(anything)");
	ns_changed(w->ns, name);
}

static void watch_look(struct watch *w)
{
	struct stat st;
	bool changed;

	/* Say it once, also when no program uses the mount. */
	if (!w->said_gone && ns_check_there(w->ns) < 0) {
		w->said_gone = true;
		log_warn("%s", err_text(-ESTALE));
		err_clear();
	}
	if (io_stat(w->ns->ckpt->source, ".", &st) < 0) {
		err_clear();
		return;
	}
	changed = st.st_mtim.tv_sec != w->last_mtim.tv_sec ||
		  st.st_mtim.tv_nsec != w->last_mtim.tv_nsec;
	/*
	 * A network file system may still show a deleted step for a while after the time of the
	 * root has changed. Without events, everything that is open is therefore checked each time.
	 */
	if (changed || w->inotify < 0) {
		ns_drop_changed_items(w->ns);
		ns_drop_changed_views(w->ns);
	}
	if (!changed)
		return;
	w->last_mtim = st.st_mtim;
	notify(w, NULL);
}

/* Unless a program has looked at the step since, the kernel holds the names of its draft. */
static void drop_committed(struct watch *w)
{
	struct committed *done = NULL, *c, **at = &w->committed;

	pthread_mutex_lock(&w->lock);
	while ((c = *at))
		if (c->due <= clock_ns()) {
			*at = c->next;
			c->next = done;
			done = c;
		} else {
			at = &c->next;
		}
	pthread_mutex_unlock(&w->lock);
	while ((c = done)) {
		done = c->next;
		if (node_check_name(w->ns->root, span_str(c->name)) != 1)
			notify(w, c->name);
		free(c);
	}
}

void watch_committed(struct watch *w, struct span name)
{
	struct committed *c = w ? calloc(1, sizeof(*c) + name.n + 1) : NULL;

	/* Without memory, the kernel forgets them in its own time. */
	if (!c)
		return;
	c->due = clock_ns() + COMMITTED_NS;
	memcpy(c->name, name.p, name.n);
	pthread_mutex_lock(&w->lock);
	c->next = w->committed;
	w->committed = c;
	pthread_mutex_unlock(&w->lock);
}

static void read_events(struct watch *w)
{
	_Alignas(struct inotify_event) char buf[4096];
	ssize_t n = read(w->inotify, buf, sizeof(buf));
	bool gone = false;

	for (ssize_t at = 0; at + (ssize_t)sizeof(struct inotify_event) <= n;) {
		const struct inotify_event *e = (const struct inotify_event *)(buf + at);
		bool stale;

		if (e->mask & IN_MOVE_SELF)
			log_warn("'%s' was moved: the mount still shows it, and nothing that has "
				 "its name now; mount again for that",
				 w->ns->ckpt->source->path);
		/* Open files would keep the space of the deleted step. */
		if (e->len && e->mask & (IN_DELETE | IN_MOVED_FROM))
			ns_drop_items(w->ns, e->name);
		else if (!e->len)
			ns_drop_changed_items(w->ns);
		gone |= !e->len || e->mask & (IN_DELETE | IN_MOVED_FROM);
		/*
		 * The kernel does not cache that a name does not exist, and has no name of which
		 * there is no node, such as those of directories in which drafts are made.
		 */
		stale = e->len && node_check_name(w->ns->root, span_str(e->name)) == -ESTALE;
		notify(w, stale ? e->name : NULL);
		at += (ssize_t)(sizeof(*e) + e->len);
	}
	if (gone)
		ns_drop_changed_views(w->ns);
}

/* Returns true when more items need to be closed. */
static bool sweep(struct watch *w, bool ask)
{
	bool more = ns_trim_items(w->ns, ask);

	return ns_close_gone(w->ns) || more;
}

static void *watch_run(void *arg)
{
	struct watch *w = arg;
	int wait = MAX((int)MIN(w->ns->options->poll, (uint64_t)60000) * (w->inotify >= 0 ? 10 : 1),
		       10);
	struct pollfd fd[2] = { { .fd = w->wake, .events = POLLIN },
				{ .fd = w->inotify, .events = POLLIN } };
	/*
	 * Remaining number of sweeps after the kernel was asked to drop names, which takes a
	 * moment.
	 */
	int sweeps = 0;
	/* Time of the next scan of the root, however many events come before. */
	int64_t due = clock_ns() + wait * MS;

	for (;;) {
		int64_t left = MAX(due - clock_ns(), (int64_t)0);
		int n = poll(fd, 2, sweeps ? SWEEP_MS : (int)((left + MS - 1) / MS));
		bool is_due = clock_ns() >= due;
		eventfd_t count;

		if (fd[0].revents)
			eventfd_read(w->wake, &count);
		if (atomic_load(&w->stop))
			return NULL;
		draft_env_follow_memory(&w->ns->drafts);
		if (is_due) {
			watch_look(w);
			drop_committed(w);
		}
		if (atomic_exchange(&w->trim, false))
			sweeps = sweep(w, true) ? SWEEPS : 0;
		else if (n == 0 && sweeps)
			sweeps = sweep(w, false) ? sweeps - 1 : 0;
		else if (is_due)
			sweep(w, false);
		if (is_due)
			due = clock_ns() + wait * MS;
		if (n > 0 && fd[1].revents)
			read_events(w);
	}
}

void watch_trim(struct watch *w)
{
	/* One wake-up serves any number of calls. */
	if (w && !atomic_exchange(&w->trim, true))
		eventfd_write(w->wake, 1);
}

static void descriptors_ran_out(void *arg)
{
	watch_trim(arg);
}

/* Whether other machines may write to the file system, which inotify does not report. */
static bool is_remote(int fd)
{
	static const unsigned long magic[] = {
		0x6969,     0xff534d42, 0xfe534d42, 0x0bd00bd0,
		0x65735546, 0x00c36400, 0x47504653, 0x517b,
	};
	struct statfs st;

	if (fstatfs(fd, &st) < 0)
		return true;
	for (size_t i = 0; i < ARRAY_LEN(magic); i++)
		if ((unsigned long)st.f_type == magic[i])
			return true;
	return false;
}

static int open_inotify(struct watch *w)
{
	char path[64];
	int fd;

	/* Listings of a bucket are requested again after a while. */
	if (w->ns->ckpt->source->fd < 0)
		return -1;
	fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	/* Use the open descriptor, since the path may have been renamed. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", w->ns->ckpt->source->fd);
	if (fd >= 0 && !is_remote(w->ns->ckpt->source->fd) &&
	    inotify_add_watch(fd, path, EVENTS) >= 0)
		return fd;
	if (fd >= 0)
		close(fd);
	log_info("new steps in '%s' are looked for every %llu ms", w->ns->ckpt->source->path,
		 (unsigned long long)w->ns->options->poll);
	return -1;
}

static void watch_free(struct watch *w)
{
	if (!w)
		return;
	while (w->committed) {
		struct committed *c = w->committed;

		w->committed = c->next;
		free(c);
	}
	pthread_mutex_destroy(&w->lock);
	if (w->wake >= 0)
		close(w->wake);
	if (w->inotify >= 0)
		close(w->inotify);
	free(w);
}
DEFINE_AUTO(watch, struct watch, watch_free);

int watch_start(struct ns *ns, struct watch **ret)
{
	auto_of(watch) struct watch *w = calloc(1, sizeof(*w));
	struct stat st;
	int r;

	if (!w)
		return fail(-ENOMEM, "cannot watch the root");
	w->ns = ns;
	pthread_mutex_init(&w->lock, NULL);
	w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w->inotify = -1;
	if (w->wake < 0)
		return err_sys("cannot watch", ns->ckpt->source->path);
	w->inotify = open_inotify(w);
	if (io_stat(ns->ckpt->source, ".", &st) >= 0)
		w->last_mtim = st.st_mtim;
	r = thread_start(&w->thread, "watch", watch_run, w);
	if (r < 0)
		return fail(r, "cannot start the thread that watches the root");
	io_when_descriptors_run_out(descriptors_ran_out, w);
	*ret = take(w);
	return 0;
}

void watch_stop(struct watch *w)
{
	if (!w)
		return;
	io_when_descriptors_run_out(NULL, NULL);
	atomic_store(&w->stop, true);
	eventfd_write(w->wake, 1);
	pthread_join(w->thread, NULL);
	watch_free(w);
}
