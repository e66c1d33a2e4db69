/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_spill.c - the limit of all temporary files of readers: spill files of streams, and files
 * of values that others compute or assemble.
 *
 * Invariants: the bytes that are counted never exceed the limit; they are counted from before a
 * file is created until it is closed.
 *
 * Files are closed without the table's lock, because closing a large one takes time, and calls back
 * here.
 */
#include "core/zarr/stream_impl.h"

#define USERS_MAX 256 /* each uses a descriptor, of about a thousand that a process usually has */

static void user_remove(struct streams *t, struct streams_user *u)
{
	if (!u->at)
		return;
	*u->at = u->next;
	if (u->next)
		u->next->at = u->at;
	else
		t->users_end = u->at;
	u->at = NULL;
	t->n_users--;
}

/*
 * The oldest file that nobody reads; first among those that nobody has open. Called with the
 * table's lock held.
 */
static struct io_file *idle_file(struct streams *t)
{
	for (int open = 0; open < 2; open++)
		for (struct streams_user *u = t->users; u; u = u->next) {
			struct io_file *f = u->give_up(u, open);

			if (f) {
				user_remove(t, u);
				return f;
			}
		}
	return NULL;
}

bool stream_spill_reclaim(void *arg)
{
	struct stream *out = NULL, **idle = NULL;
	struct io_file *file = NULL;
	struct streams *t = arg;
	bool freed;

	pthread_mutex_lock(&t->lock);
	/*
	 * The least recently used stream that keeps a temporary file. A file of another user that
	 * is counted is not idle while a stream has it.
	 */
	for (struct stream **at = &t->first; *at; at = &(*at)->next)
		if ((*at)->holds == 0 &&
		    ((*at)->spill || ((*at)->src.loc.file && (*at)->src.loc.file->closed_arg == t)))
			idle = at;
	/* Streams can be decoded again; computing a value again may cost more. */
	if (idle)
		stream_table_remove(t, idle, &out);
	else
		file = idle_file(t);
	pthread_mutex_unlock(&t->lock);
	freed = out || file;
	stream_free_all(out);
	io_file_unref(file);
	return freed;
}

/* ---- files of other users ---- */

static void file_closed(struct io_file *file)
{
	struct streams *t = file->closed_arg;

	budget_give(&t->spill, file->size);
}

int streams_file(struct streams *t, struct io_engine *io, uint64_t size, struct io_file **ret)
{
	uint64_t limit = budget_total(&t->spill);
	int r;

	if (!budget_try(&t->spill, size))
		return fail(-ENOSPC,
			    "a temporary file of %llu bytes: spill_limit is %llu, "
			    "of which %llu are free",
			    (unsigned long long)size, (unsigned long long)limit,
			    (unsigned long long)(limit - budget_used(&t->spill)));
	r = io_file_temp(io, NULL, t->spill_dir ? t->spill_dir : "/var/tmp", ret);
	if (r < 0) {
		budget_give(&t->spill, size);
		return r;
	}
	(*ret)->size = size;
	(*ret)->closed = file_closed;
	(*ret)->closed_arg = t;
	return 0;
}

void streams_user_add(struct streams *t, struct streams_user *u)
{
	struct io_file *file = NULL;

	pthread_mutex_lock(&t->lock);
	if (t->n_users >= USERS_MAX)
		file = idle_file(t);
	u->next = NULL;
	u->at = t->users_end;
	*t->users_end = u;
	t->users_end = &u->next;
	t->n_users++;
	pthread_mutex_unlock(&t->lock);
	io_file_unref(file);
}

void streams_user_remove(struct streams *t, struct streams_user *u)
{
	pthread_mutex_lock(&t->lock);
	user_remove(t, u);
	pthread_mutex_unlock(&t->lock);
}
