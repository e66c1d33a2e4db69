/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_sender.c - decides which part of which file is sent next, and sends it.
 *
 * A file is in the queue while there is a task for it: a part to send, an upload to complete or to
 * abort. A thread takes the first file, does one task and appends the file again if there is more
 * to do, so files take turns. Several threads may send parts of one file at the same time.
 *
 * Invariants: no part of an upload is being sent while it is completed or aborted. No thread waits
 * for the budget while it holds a part of it.
 */
#include "core/remote/upload/file_sender.h"

#include <fcntl.h>
#include <stdatomic.h>

#include "core/base/array.h"
#include "core/base/blocks.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/remote/bucket/bucket_write.h"

#define CUTS_MAX 3 /* a file that is cut more often is sent when it is complete */

struct sent_file {
	char *path;
	struct io_dir
		*from; /* the file is opened below it before the first part; NULL: it is open */
	struct io_file *file;
	uint64_t dev, ino;
	/* Protected by the sender's lock. */
	struct sent_file *next; /* in the queue */
	bool is_queued;
	uint64_t end;      /* the bytes below are written */
	uint64_t handed;   /* the bytes below were sent, or are being sent */
	unsigned parts;    /* the number of parts below handed */
	unsigned busy;     /* threads that work on it */
	bool is_started;   /* the server knows the upload: parts may be sent at the same time */
	bool is_whole;     /* end is the size of the file */
	bool is_wanted;    /* file_sender_add() was called */
	bool is_given_up;  /* the upload is to be aborted */
	unsigned cuts;     /* how often bytes that were sent have been dropped */
	bool begins_again; /* a new upload follows the aborted one at once */
	bool is_there;     /* the object exists */
	struct store_upload *upload;
};

struct file_sender {
	struct io_store *store;
	struct budget *budget;
	atomic_uint refs;
	pthread_mutex_t lock; /* protects what follows, and files; never held across a request */
	pthread_cond_t changed;
	struct sent_file **file; /* all files; the first n_grown were sent while they grew */
	size_t n, cap, n_grown;
	struct sent_file *first, **last; /* the queue */
	pthread_t *thread;
	unsigned threads, threads_max, idle;
	unsigned busy;
	bool stop, ended;
	int (*check)(void *arg);
	void *arg;
	struct err_note why; /* the first error of an added file; code 0: none */
};

int file_sender_new(struct io_store *store, struct budget *budget, struct file_sender **ret)
{
	struct file_sender *fs = calloc(1, sizeof(*fs));

	if (!fs)
		return fail(-ENOMEM, "cannot write '%s'", store->url);
	fs->store = store;
	fs->budget = budget;
	fs->last = &fs->first;
	atomic_init(&fs->refs, 1);
	pthread_mutex_init(&fs->lock, NULL);
	clock_cond_init(&fs->changed);
	*ret = fs;
	return 0;
}

struct file_sender *file_sender_ref(struct file_sender *fs)
{
	atomic_fetch_add(&fs->refs, 1);
	return fs;
}

static void file_free(struct sent_file *f)
{
	io_file_unref(f->file);
	free(f->path);
	free(f);
}

void file_sender_unref(struct file_sender *fs)
{
	if (!fs || atomic_fetch_sub(&fs->refs, 1) != 1)
		return;
	file_sender_end(fs);
	for (size_t i = 0; i < fs->n; i++)
		file_free(fs->file[i]);
	free(fs->file);
	pthread_cond_destroy(&fs->changed);
	pthread_mutex_destroy(&fs->lock);
	free(fs);
}

/* ---- tasks; called with the lock held ---- */

enum task { TASK_NONE, TASK_PART, TASK_END, TASK_GIVE_UP };

static enum task task_of(const struct sent_file *f)
{
	if (f->is_there)
		return TASK_NONE;
	if (f->is_given_up)
		return f->upload && !f->busy ? TASK_GIVE_UP : TASK_NONE;
	if (f->busy && !(f->is_started && !store_upload_is_in_order(f->upload)))
		return TASK_NONE;
	if (f->is_whole)
		return f->handed < f->end || !f->parts ? TASK_PART : f->busy ? TASK_NONE : TASK_END;
	/* With one byte more than the part, it is not the last one. The last must not be empty. */
	return f->end - f->handed > store_upload_part_bytes(f->upload, f->parts + 1) ? TASK_PART :
										       TASK_NONE;
}

static void *sender_work(void *arg);

static void sender_start_thread(struct file_sender *fs)
{
	if (!fs->threads_max)
		fs->threads_max = (unsigned)MIN(MAX(budget_total(fs->budget) / PART_BYTES, 1u),
						(uint64_t)STORE_UPLOAD_THREADS);
	if (!fs->thread)
		fs->thread = calloc(STORE_UPLOAD_THREADS, sizeof(*fs->thread));
	if (fs->idle || fs->threads == fs->threads_max || !fs->thread)
		return;
	/* If no thread can be started, file_sender_wait() sends everything. */
	if (thread_start(&fs->thread[fs->threads], "pytreefs-send", sender_work, fs) == 0)
		fs->threads++;
}

static void queue(struct file_sender *fs, struct sent_file *f)
{
	if (f->is_queued || fs->stop || task_of(f) == TASK_NONE)
		return;
	f->is_queued = true;
	f->next = NULL;
	*fs->last = f;
	fs->last = &f->next;
	sender_start_thread(fs);
	pthread_cond_broadcast(&fs->changed);
}

/* The failure of an added file is that of the step. A growing file is sent again later. */
static void file_failed(struct file_sender *fs, struct sent_file *f, int r)
{
	if (f->is_wanted && !fs->stop) {
		err_save(r, &fs->why);
		fs->stop = true;
	} else if (!f->is_wanted && !f->is_given_up && !fs->ended) {
		log_info("the upload of '%s' failed, and will be repeated at the commit: %s",
			 f->path, err_text(r));
	}
	f->is_given_up = true;
	err_clear();
}

/* ---- carrying out tasks ---- */

struct part {
	uint64_t off;
	size_t n;
	unsigned number;
	bool is_last;
	int (*check)(void *arg);
	void *arg;
};

/* Before the first part: open the file, and begin its upload if it has more parts. */
static int start_upload(struct file_sender *fs, struct sent_file *f, bool is_only_part)
{
	int r = f->file ? 0 : io_file_open(f->from, f->path, O_RDONLY, 0, &f->file);

	if (r < 0)
		return r;
	r = is_only_part ? 0 : store_upload_start(f->upload);
	if (r < 0)
		return r;
	pthread_mutex_lock(&fs->lock);
	f->is_started = true;
	queue(fs, f);
	pthread_mutex_unlock(&fs->lock);
	return 0;
}

/* The engine does not continue short reads beyond the size that the file was opened with. */
static int sender_read_part(struct io_file *file, const struct part *p, uint8_t *ret)
{
	size_t at = 0;
	int r;

	while (at < p->n) {
		struct io_req q = { .op = IO_READ,
				    .file = file,
				    .p = ret + at,
				    .n = p->n - at,
				    .off = p->off + at };

		r = io_run(file->io, &q, 1);
		if (r < 0)
			return r;
		if (q.result == 0)
			return fail(-EUCLEAN, "'%s' ends at byte %llu", file->name,
				    (unsigned long long)q.off);
		at += (size_t)q.result;
	}
	return 0;
}

static int sender_send_part(struct file_sender *fs, struct sent_file *f, const struct part *p)
{
	size_t n = MAX(p->n, 1u);
	uint8_t *bytes;
	int r = p->check ? p->check(p->arg) : 0;

	if (r < 0)
		return r;
	if (p->number == 1)
		r = start_upload(fs, f, p->is_last);
	if (r < 0)
		return r;
	r = budget_take(fs->budget, p->n);
	if (r < 0)
		return r;
	bytes = block_alloc(n);
	r = bytes ? sender_read_part(f->file, p, bytes) :
		    fail(-ENOMEM, "cannot write '%s'", f->path);
	if (r >= 0)
		r = store_upload_part(f->upload, p->number, p->off, span_of(bytes, p->n),
				      p->is_last);
	block_free(bytes, n);
	budget_give(fs->budget, p->n);
	return r;
}

/* Called with the lock held; releases it meanwhile. */
static void do_part(struct file_sender *fs, struct sent_file *f)
{
	struct part p = {
		.off = f->handed, .number = ++f->parts, .check = fs->check, .arg = fs->arg
	};
	int r;

	p.n = (size_t)MIN(f->end - f->handed,
			  (uint64_t)store_upload_part_bytes(f->upload, p.number));
	f->handed += p.n;
	p.is_last = f->is_whole && f->handed == f->end;
	queue(fs, f);
	pthread_mutex_unlock(&fs->lock);
	r = sender_send_part(fs, f, &p);
	pthread_mutex_lock(&fs->lock);
	if (r < 0)
		file_failed(fs, f, r);
}

static void do_end(struct file_sender *fs, struct sent_file *f)
{
	int r;

	pthread_mutex_unlock(&fs->lock);
	r = store_upload_end(f->upload, f->end);
	pthread_mutex_lock(&fs->lock);
	if (r < 0) {
		file_failed(fs, f, r);
		return;
	}
	f->is_there = true;
	store_upload_free(take(f->upload));
	io_file_unref(take(f->file));
}

static int begin_upload(struct file_sender *fs, struct sent_file *f)
{
	return store_upload_begin(fs->store, f->path, budget_total(fs->budget) / 2, &f->upload);
}

static void do_give_up(struct file_sender *fs, struct sent_file *f)
{
	struct store_upload *u = take(f->upload);

	pthread_mutex_unlock(&fs->lock);
	store_upload_free(u);
	pthread_mutex_lock(&fs->lock);
	if (f->begins_again && !fs->stop && begin_upload(fs, f) >= 0) {
		f->is_given_up = f->begins_again = f->is_started = false;
		f->handed = f->parts = 0;
	} else {
		io_file_unref(take(f->file));
	}
	err_clear();
}

/* Called with the lock held; releases it meanwhile. False: the queue is empty. */
static bool do_next(struct file_sender *fs)
{
	struct sent_file *f = fs->stop ? NULL : fs->first;
	enum task t;

	if (!f)
		return false;
	fs->first = f->next;
	if (!fs->first)
		fs->last = &fs->first;
	f->is_queued = false;
	t = task_of(f);
	f->busy++;
	fs->busy++;
	if (t == TASK_PART)
		do_part(fs, f);
	else if (t == TASK_END)
		do_end(fs, f);
	else if (t == TASK_GIVE_UP)
		do_give_up(fs, f);
	f->busy--;
	fs->busy--;
	queue(fs, f);
	pthread_cond_broadcast(&fs->changed);
	return true;
}

static void *sender_work(void *arg)
{
	struct file_sender *fs = arg;
	auto_unlock pthread_mutex_t *held = lock_hold(&fs->lock);

	while (!fs->ended) {
		if (do_next(fs))
			continue;
		fs->idle++;
		pthread_cond_wait(&fs->changed, &fs->lock);
		fs->idle--;
	}
	return NULL;
}

/* ---- files ---- */

static int sender_add(struct file_sender *fs, const char *path, struct sent_file **ret)
{
	struct sent_file *f = calloc(1, sizeof(*f));
	int r = f && (f->path = strdup(path)) && array_reserve(fs->file, fs->cap, fs->n + 1) ?
			begin_upload(fs, f) :
			fail(-ENOMEM, "cannot write '%s'", path);

	if (r < 0) {
		if (f)
			file_free(f);
		return r;
	}
	fs->file[fs->n++] = f;
	*ret = f;
	return 0;
}

void file_sender_grew(struct file_sender *fs, struct sent_file **file, const char *path,
		      struct io_file *from, uint64_t end)
{
	struct sent_file *f = *file;

	pthread_mutex_lock(&fs->lock);
	if (!f && !fs->stop && sender_add(fs, path, &f) >= 0) {
		fs->n_grown = fs->n;
		f->file = io_file_ref(from);
		f->dev = from->dev;
		f->ino = from->ino;
		*file = f;
	}
	if (f) {
		f->end = MAX(f->end, end);
		queue(fs, f);
	}
	pthread_mutex_unlock(&fs->lock);
	err_clear();
}

void file_sender_cut(struct file_sender *fs, struct sent_file *f, uint64_t end)
{
	if (!f)
		return;
	pthread_mutex_lock(&fs->lock);
	f->end = MIN(f->end, end);
	if (end < f->handed && !f->is_given_up) {
		trace(TRACE_IO, "the upload of '%s' is repeated: its end is byte %llu again",
		      f->path, (unsigned long long)end);
		f->is_given_up = true;
		f->begins_again = ++f->cuts <= CUTS_MAX;
		queue(fs, f);
	}
	pthread_mutex_unlock(&fs->lock);
}

void file_sender_closed(struct file_sender *fs, struct sent_file *f)
{
	if (!f)
		return;
	pthread_mutex_lock(&fs->lock);
	f->is_whole = true;
	queue(fs, f);
	pthread_mutex_unlock(&fs->lock);
}

/* ---- the end ---- */

/* Whether the parts sent so far are the beginning of this file. */
static bool can_go_on(const struct sent_file *f, const struct stat *st)
{
	uint64_t size = (uint64_t)st->st_size;

	if (f->is_given_up || f->ino != st->st_ino || f->dev != st->st_dev ||
	    (f->is_whole ? f->end != size : f->end > size))
		return false;
	/* Where parts are sent in order, the last one has to be marked as such, and was not. */
	return f->is_whole || !f->parts || f->handed < size || !store_upload_is_in_order(f->upload);
}

int file_sender_add(struct file_sender *fs, struct io_dir *from, const char *path, bool is_new)
{
	auto_unlock pthread_mutex_t *held = NULL;
	struct sent_file *f = NULL;
	struct stat st;
	int r = io_stat(from, path, &st);

	if (r < 0)
		return r;
	held = lock_hold(&fs->lock);
	/* Data files have random names, so there is one of that path at most. */
	for (size_t i = 0; i < fs->n_grown && !f; i++)
		if (!strcmp(fs->file[i]->path, path))
			f = fs->file[i];
	if (f && !can_go_on(f, &st)) {
		/* Its object, if there is one, is replaced. */
		f->is_given_up = true;
		f->is_there = f->begins_again = is_new = false;
		f = NULL;
	}
	if (!f) {
		r = sender_add(fs, path, &f);
		if (r < 0)
			return r;
		f->from = from;
		f->upload->is_new = is_new;
	}
	f->end = (uint64_t)st.st_size;
	f->is_whole = f->is_wanted = true;
	queue(fs, f);
	return 0;
}

int file_sender_wait(struct file_sender *fs, int (*check)(void *arg), void *arg)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&fs->lock);

	fs->check = check;
	fs->arg = arg;
	while ((fs->first && !fs->stop) || fs->busy)
		if (!do_next(fs))
			pthread_cond_wait(&fs->changed, &fs->lock);
	fs->check = NULL;
	return fs->why.code ? err_restore(&fs->why) : 0;
}

int file_sender_drop_others(struct file_sender *fs)
{
	int r = 0;

	for (size_t i = 0; i < fs->n_grown && r >= 0; i++) {
		struct sent_file *f = fs->file[i];
		const char *path = f->path;

		if (f->is_wanted)
			continue;
		store_upload_free(take(f->upload));
		if (f->is_there)
			r = store_remove(fs->store, &path, 1);
	}
	return r;
}

int file_sender_remove(struct file_sender *fs)
{
	auto_free const char **path = calloc(fs->n + 1, sizeof(*path));
	size_t n = 0;

	if (!path)
		return fail(-ENOMEM, "cannot remove objects of '%s'", fs->store->url);
	for (size_t i = 0; i < fs->n; i++)
		if (fs->file[i]->is_there)
			path[n++] = fs->file[i]->path;
	return n ? store_remove(fs->store, path, n) : 0;
}

void file_sender_end(struct file_sender *fs)
{
	unsigned threads;

	pthread_mutex_lock(&fs->lock);
	fs->stop = fs->ended = true;
	threads = fs->threads;
	fs->threads = 0;
	pthread_cond_broadcast(&fs->changed);
	pthread_mutex_unlock(&fs->lock);
	for (unsigned i = 0; i < threads; i++)
		pthread_join(fs->thread[i], NULL);
	free(take(fs->thread));
	for (size_t i = 0; i < fs->n; i++) {
		store_upload_free(take(fs->file[i]->upload));
		io_file_unref(take(fs->file[i]->file));
	}
}
