/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_files.c - a table of files in a tmpfs, the room for them, and a thread that gives memory
 * back.
 *
 * Invariants: `bytes` is the sum of all files in the table and of those that left it with a
 * reference; the pages of a file are allocated before it is mapped, so that no access to the map
 * fails. The lock is not held while a leaf is decoded or memory is freed.
 */
#include "handlers/namespace/memory_files.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#include "core/base/clock.h"
#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/memory.h"
#include "core/base/thread.h"
#include "core/zarr/guess.h"
#include "core/zarr/read_many/read_many.h"

#define BUCKETS 1024
#define DESCRIPTORS_SHARE 8              /* 1/8 of the process's descriptors */
#define SHARE 4                          /* 1/4 of the memory that is available */
#define LOOK_NS (200 * SECOND_NS / 1000) /* interval at which that is measured */
#define PAGE 4096

struct memory_file {
	struct memory_file *next; /* in its bucket, or in a list of files to free */
	struct memory_key key;
	int fd;
	uint64_t bytes;
	bool is_ready;   /* else the thread that made it is filling it */
	bool is_dropped; /* it left the table, and goes with its last reference */
	unsigned refs;
	int64_t used_at; /* when the last reference was given back */
};

struct memory_files {
	int dir;
	uint64_t most_files; /* each has a descriptor */
	atomic_bool is_allowed;
	pthread_mutex_t lock; /* protects all members below, and those of files */
	pthread_cond_t ended; /* a file was filled, or could not be */
	pthread_cond_t wake;  /* there is a first file, or the end */
	struct memory_file *bucket[BUCKETS];
	uint64_t files, bytes, filled, refused;
	bool has_thread, ending;
	pthread_t thread;
};

/* ---- the tmpfs ---- */

#define FSCONFIG_SET_STRING 1
#define FSCONFIG_CMD_CREATE 6
#define FSOPEN_CLOEXEC 1
#define FSMOUNT_CLOEXEC 1

/* Whether the administrator forbids large pages, which nothing else tells. */
static bool large_pages_are_denied(void)
{
	auto_close int fd =
		open("/sys/kernel/mm/transparent_hugepage/shmem_enabled", O_RDONLY | O_CLOEXEC);
	char text[128];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	text[MAX(n, 0)] = '\0';
	return strstr(text, "[deny]");
}

/* Large pages only where a file fills them, so that none has more memory than bytes. */
static int make_tmpfs(void)
{
	auto_close int fs = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
	long dir;

	if (fs < 0 ||
	    syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "huge", "within_size", 0) < 0 ||
	    syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "size", "100%", 0) < 0 ||
	    syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "mode", "0700", 0) < 0 ||
	    syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	dir = syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, 0);
	return dir < 0 ? -errno : (int)dir;
}

int memory_files_new(struct memory_files **ret)
{
	auto_free struct memory_files *m = calloc(1, sizeof(*m));
	struct rlimit limit;

	if (!m)
		return -ENOMEM;
	m->dir = large_pages_are_denied() ? -EOPNOTSUPP : make_tmpfs();
	if (m->dir < 0)
		return m->dir;
	m->most_files = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur / DESCRIPTORS_SHARE :
								0;
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->ended, NULL);
	clock_cond_init(&m->wake);
	*ret = take(m);
	return 0;
}

int memory_files_dir(const struct memory_files *m)
{
	return m ? m->dir : -1;
}

void memory_files_allow(struct memory_files *m, bool is_allowed)
{
	if (!m)
		return;
	atomic_store(&m->is_allowed, is_allowed);
	if (!is_allowed)
		memory_files_drop(m, 0);
}

bool memory_files_allowed(struct memory_files *m)
{
	return m && atomic_load(&m->is_allowed);
}

/* ---- the table; with the lock held ---- */

static struct memory_file **bucket_of(struct memory_files *m, const struct memory_key *key)
{
	return &m->bucket[mix64(key->owner + mix64(key->leaf)) % BUCKETS];
}

static struct memory_file *file_find(struct memory_files *m, const struct memory_key *key)
{
	struct memory_file *f = *bucket_of(m, key);

	while (f && (f->key.owner != key->owner || f->key.leaf != key->leaf))
		f = f->next;
	return f;
}

/* Take a file out of the table. Returns it if nobody uses it, as the first one of a list. */
static struct memory_file *file_drop(struct memory_files *m, struct memory_file *f,
				     struct memory_file *list)
{
	struct memory_file **at = bucket_of(m, &f->key);

	while (*at != f)
		at = &(*at)->next;
	*at = f->next;
	f->is_dropped = true;
	if (f->refs)
		return list;
	f->next = list;
	return f;
}

static struct memory_file *longest_unused(struct memory_files *m)
{
	struct memory_file *found = NULL;

	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct memory_file *f = m->bucket[i]; f; f = f->next)
			if (!f->refs && (!found || f->used_at < found->used_at))
				found = f;
	return found;
}

/* Free a list of files, without the lock: it takes as long as clearing their memory. */
static void files_free(struct memory_files *m, struct memory_file *list)
{
	uint64_t files = 0, bytes = 0;

	for (struct memory_file *f = list, *next; f; f = next) {
		next = f->next;
		files++;
		bytes += f->bytes;
		if (f->fd >= 0)
			close(f->fd);
		free(f);
	}
	if (!files)
		return;
	pthread_mutex_lock(&m->lock);
	m->files -= files;
	m->bytes -= bytes;
	pthread_mutex_unlock(&m->lock);
}

void memory_files_drop(struct memory_files *m, uint64_t owner)
{
	struct memory_file *list = NULL;

	if (!m)
		return;
	pthread_mutex_lock(&m->lock);
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct memory_file *f = m->bucket[i], *next; f; f = next) {
			next = f->next;
			if (!owner || f->key.owner == owner)
				list = file_drop(m, f, list);
		}
	pthread_mutex_unlock(&m->lock);
	files_free(m, list);
}

/* ---- room ---- */

/* The memory of the files. A program may have mapped one that has left the table. */
static uint64_t memory_used(const struct memory_files *m)
{
	struct statvfs st;
	uint64_t used = fstatvfs(m->dir, &st) == 0 ? (st.f_blocks - st.f_bfree) * st.f_frsize : 0;

	/* Pages of a new file come later than it. */
	return MAX(used, m->bytes);
}

/* The most that all files may have now, of which they have `used`. */
static uint64_t room_for_all(uint64_t used)
{
	return (memory_left("") + used) / SHARE;
}

static void *memory_watch(void *arg)
{
	struct memory_files *m = arg;

	pthread_mutex_lock(&m->lock);
	while (!m->ending) {
		struct timespec at = clock_timespec(clock_ns() + LOOK_NS);
		struct memory_file *list = NULL, *f;
		uint64_t used = memory_used(m), room;

		if (!used) {
			pthread_cond_wait(&m->wake, &m->lock);
			continue;
		}
		pthread_mutex_unlock(&m->lock);
		room = room_for_all(used);
		pthread_mutex_lock(&m->lock);
		while (used > room && (f = longest_unused(m))) {
			used -= MIN(used, f->bytes);
			list = file_drop(m, f, list);
		}
		pthread_mutex_unlock(&m->lock);
		files_free(m, list);
		pthread_mutex_lock(&m->lock);
		if (!m->ending)
			pthread_cond_timedwait(&m->wake, &m->lock, &at);
	}
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

/*
 * Make room for a file, for which others leave the table that were not used for long. Called with
 * the lock held.
 */
static bool make_room(struct memory_files *m, uint64_t bytes, uint64_t room,
		      struct memory_file **list)
{
	uint64_t used = memory_used(m), files = m->files;
	struct memory_file *f;

	while (used + bytes > room || files >= m->most_files) {
		f = longest_unused(m);
		if (!f || clock_ns() - f->used_at < MEMORY_IDLE_NS)
			return false;
		used -= MIN(used, f->bytes);
		files--;
		*list = file_drop(m, f, *list);
	}
	/* Nothing would give memory back without the thread. */
	if (!m->has_thread)
		m->has_thread = thread_start(&m->thread, "memory", memory_watch, m) == 0;
	return m->has_thread;
}

/* ---- filling ---- */

struct filling {
	const struct format *format;
	const struct zarr_guess *guess;
	uint8_t *to;
	int result;
};

static int filling_open(void *arg, size_t i, struct read_target *ret)
{
	struct filling *w = arg;

	ret->z = zarr_ref(w->format->value.array);
	ret->view = w->format->view;
	ret->to = w->to + w->format->head.n;
	read_target_set_order(ret);
	return 1;
}

static void filling_done(void *arg, size_t i, int result)
{
	((struct filling *)arg)->result = result;
}

static int filling_progress(void *arg, uint64_t done)
{
	return zarr_guess_is_over(((struct filling *)arg)->guess) ? -ECANCELED : 0;
}

/* Decode a leaf into its file, by this thread alone, which may be one of the pool. */
static int file_fill(const struct memory_files *m, struct memory_file *f,
		     const struct format *format, const struct zarr_guess *guess)
{
	static const struct read_many_ops ops = { .open = filling_open,
						  .done = filling_done,
						  .progress = filling_progress,
						  .is_alone = true };
	struct filling w = { .format = format, .guess = guess };
	size_t n = format->size;
	void *map;
	int r;

	f->fd = openat(m->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (f->fd < 0 || ftruncate(f->fd, (off_t)n) < 0 || fallocate(f->fd, 0, 0, (off_t)n) < 0)
		return -errno;
	map = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	w.to = map;
	memcpy(map, format->head.p, format->head.n);
	r = zarr_read_many(format->value.array->env, 1, &ops, &w);
	munmap(map, n);
	return r < 0 ? r : w.result;
}

bool memory_files_have(struct memory_files *m, const struct memory_key *key)
{
	bool has;

	if (!m)
		return false;
	pthread_mutex_lock(&m->lock);
	has = file_find(m, key);
	pthread_mutex_unlock(&m->lock);
	return has;
}

/*
 * Find the file of a leaf. An open waits until it is filled; a guess, which the pool runs, does
 * not. Called with the lock held.
 */
static struct memory_file *file_wait(struct memory_files *m, const struct memory_key *key,
				     const struct zarr_guess *guess)
{
	struct memory_file *f = file_find(m, key);

	while (f && !f->is_ready && !guess) {
		pthread_cond_wait(&m->ended, &m->lock);
		f = file_find(m, key);
	}
	if (!f || !f->is_ready)
		return NULL;
	f->refs++;
	return f;
}

/* Put an empty file into the table, with a reference. Called with the lock held. */
static struct memory_file *file_begin(struct memory_files *m, const struct memory_key *key,
				      uint64_t size, uint64_t room, struct memory_file **list)
{
	uint64_t bytes = round_up(size, PAGE);
	struct memory_file *f, **at = bucket_of(m, key);

	if (!make_room(m, bytes, room, list))
		return NULL;
	f = malloc(sizeof(*f));
	if (!f)
		return NULL;
	*f = (struct memory_file){ .next = *at, .key = *key, .fd = -1, .bytes = bytes, .refs = 1 };
	*at = f;
	m->bytes += bytes;
	if (m->files++ == 0)
		pthread_cond_signal(&m->wake);
	return f;
}

/* Fill a file that this thread has begun, and return it; or NULL. */
static struct memory_file *file_finish(struct memory_files *m, struct memory_file *f,
				       const struct format *format, const struct zarr_guess *guess)
{
	int r = file_fill(m, f, format, guess);

	trace(TRACE_AHEAD, "in memory: leaf %u, %llu bytes: %d", f->key.leaf,
	      (unsigned long long)format->size, r);
	pthread_mutex_lock(&m->lock);
	f->is_ready = r >= 0;
	m->filled += r >= 0;
	if (r < 0 && !f->is_dropped)
		file_drop(m, f, NULL);
	pthread_cond_broadcast(&m->ended);
	pthread_mutex_unlock(&m->lock);
	err_clear();
	if (r >= 0)
		return f;
	memory_file_put(m, f);
	return NULL;
}

struct memory_file *memory_file_get(struct memory_files *m, const struct memory_key *key,
				    const struct format *format, const struct zarr_guess *guess)
{
	struct memory_file *f, *list = NULL;
	bool is_new, begins = false;
	uint64_t room;

	if (!memory_files_allowed(m))
		return NULL;
	pthread_mutex_lock(&m->lock);
	is_new = !file_find(m, key);
	f = file_wait(m, key, guess);
	room = memory_used(m);
	pthread_mutex_unlock(&m->lock);
	/* If another thread could not fill it, neither can this one. */
	if (f || !format || !is_new)
		return f;
	room = room_for_all(room);
	pthread_mutex_lock(&m->lock);
	is_new = !file_find(m, key);
	f = file_wait(m, key, guess);
	/* memory_files_drop() comes after the end of guesses. */
	if (is_new && memory_files_allowed(m) && !zarr_guess_is_over(guess)) {
		f = file_begin(m, key, format->size, room, &list);
		begins = f;
		m->refused += !f;
	}
	pthread_mutex_unlock(&m->lock);
	files_free(m, list);
	return begins ? file_finish(m, f, format, guess) : f;
}

int memory_file_fd(const struct memory_file *f)
{
	return f->fd;
}

void memory_file_put(struct memory_files *m, struct memory_file *f)
{
	bool is_last;

	if (!f)
		return;
	pthread_mutex_lock(&m->lock);
	f->used_at = clock_ns();
	is_last = --f->refs == 0 && f->is_dropped;
	pthread_mutex_unlock(&m->lock);
	if (!is_last)
		return;
	f->next = NULL;
	files_free(m, f);
}

void memory_files_stats(struct memory_files *m, struct memory_files_stats *ret)
{
	*ret = (struct memory_files_stats){ 0 };
	if (!m)
		return;
	pthread_mutex_lock(&m->lock);
	*ret = (struct memory_files_stats){ m->files, memory_used(m), m->filled, m->refused };
	pthread_mutex_unlock(&m->lock);
}

void memory_files_free(struct memory_files *m)
{
	if (!m)
		return;
	pthread_mutex_lock(&m->lock);
	m->ending = true;
	pthread_cond_signal(&m->wake);
	pthread_mutex_unlock(&m->lock);
	if (m->has_thread)
		pthread_join(m->thread, NULL);
	for (unsigned i = 0; i < BUCKETS; i++)
		while (m->bucket[i])
			files_free(m, file_drop(m, m->bucket[i], NULL));
	close(m->dir);
	pthread_cond_destroy(&m->ended);
	pthread_cond_destroy(&m->wake);
	pthread_mutex_destroy(&m->lock);
	free(m);
}
