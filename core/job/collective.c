/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective.c - the primary's records of shared drafts.
 *
 * The handlers decide from the contents of votes (handlers/job/draft_collective.c), and draft_dir.c
 * moves the directory.
 *
 * Invariants: an attempt is decided once; a record lives as long as any rank is a member of the
 * draft.
 */
#include "core/job/collective_impl.h"

#include "core/base/clock.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/wire.h"
#include "core/step/access.h"

#define SERVE_THREADS 4
#define ATTEMPT_BITS 24 /* the low bits of an agreement's id, below the epoch */
#define ATTEMPT_MAX ((1u << ATTEMPT_BITS) - 1)

struct collective_record {
	struct collective_record *next;
	uint64_t epoch;
	char *name; /* of the first attempt */
	int64_t init_ns;
	struct draft_dir *dir;  /* holds the lock; NULL: the draft has a place */
	void *place;            /* NULL: the draft is a directory */
	struct buf shown;       /* the text that claim() appended */
	unsigned *member;       /* by rank: how often it has joined */
	bool busy;              /* it is being begun or removed */
	bool aborted, ended;    /* ended: committed, so no rank joins any more */
	unsigned decided;       /* the last attempt that was decided; 0: none */
	unsigned entered;       /* the last attempt that a rank was admitted to */
	unsigned named;         /* the last attempt that a rank knew of */
	struct err_note result; /* of the attempt that was decided */
	bool undecided;         /* it may have made the step nevertheless */
};

/* ---- ranks ---- */

/* Parse one number of `active`; NULL if there is none. */
static const char *take_rank(const char *at, unsigned long *ret)
{
	char *end;

	if (*at < '0' || *at > '9')
		return NULL;
	*ret = strtoul(at, &end, 10);
	return end;
}

int collective_parse_active(const char *text, int size, bool *active, int rank)
{
	bool has = false;

	for (const char *at = text; at;) {
		unsigned long first, last;

		at = take_rank(at, &first);
		last = first;
		if (at && *at == '-')
			at = take_rank(at + 1, &last);
		if (!at || (*at && *at != ':') || last < first)
			return fail(-EINVAL, "active=%s: expected ranks as in '0-3:6'", text);
		if (last >= (unsigned long)size)
			return fail(-EINVAL, "active=%s: the job has ranks 0 to %d", text,
				    size - 1);
		for (unsigned long i = first; active && i <= last; i++)
			active[i] = true;
		has |= rank >= 0 && (unsigned long)rank >= first && (unsigned long)rank <= last;
		at = *at ? at + 1 : NULL;
	}
	return has;
}

/* The id of the agreement of an attempt, the same on all ranks. */
static uint64_t agreement_id(uint64_t epoch, unsigned attempt)
{
	return epoch << ATTEMPT_BITS | (attempt & ATTEMPT_MAX);
}

struct agreement collective_attempt(const struct collective *j, const struct collective_member *m,
				    int64_t deadline)
{
	return (struct agreement){ .peers = j->peers,
				   .root = j->primary,
				   .active = j->active,
				   .id = agreement_id(m->epoch, m->attempt),
				   .deadline = deadline,
				   .within = "commit_timeout" };
}

/* ---- records ---- */

static void record_free(struct collective *j, struct collective_record *rec)
{
	if (!rec)
		return;
	draft_dir_free(rec->dir);
	if (rec->place)
		j->place->release(j->place_arg, rec->place);
	buf_release(&rec->shown);
	free(rec->name);
	free(rec->member);
	free(rec);
}

/* Called with the lock held. */
static struct collective_record *find_record(struct collective *j, uint64_t epoch)
{
	struct collective_record *rec = j->records;

	while (rec && rec->epoch != epoch)
		rec = rec->next;
	return rec;
}

static struct collective_record *find_name(struct collective *j, const char *name)
{
	struct collective_record *rec = j->records;

	while (rec && (rec->ended || strcmp(rec->name, name)))
		rec = rec->next;
	return rec;
}

static struct collective_record *record_new(struct collective *j, const char *name)
{
	struct collective_record *rec = calloc(1, sizeof(*rec));

	if (rec) {
		rec->member = calloc((size_t)j->peers->size, sizeof(*rec->member));
		rec->name = strdup(name);
	}
	if (!rec || !rec->member || !rec->name) {
		record_free(j, rec);
		fail(-ENOMEM, "cannot begin draft '%s'", name);
		return NULL;
	}
	rec->epoch = ++j->last_epoch;
	rec->next = j->records;
	j->records = rec;
	return rec;
}

static bool has_members(const struct collective *j, const struct collective_record *rec)
{
	for (int i = 0; i < j->peers->size; i++)
		if (rec->member[i])
			return true;
	return false;
}

static void unlink_record(struct collective *j, struct collective_record *rec)
{
	struct collective_record **at = &j->records;

	while (*at != rec)
		at = &(*at)->next;
	*at = rec->next;
}

/* Called with the lock held; releases it meanwhile. */
static int begin_draft(struct collective *j, int rank, const char *name, const char *final,
		       unsigned mode, struct collective_record **ret)
{
	struct collective_record *rec = record_new(j, name);
	struct err_note why;
	int r;

	if (!rec)
		return -ENOMEM;
	rec->busy = true;
	rec->member[rank] = 1;
	pthread_mutex_unlock(&j->lock);
	/* A server may take long. */
	r = j->place ? j->place->claim(j->place_arg, final, &rec->place, &rec->shown) :
		       draft_dir_begin(j->source, rec->name, final, mode, true, &rec->dir);
	rec->init_ns = rec->dir ? rec->dir->init_ns : clock_real_ns();
	pthread_mutex_lock(&j->lock);
	rec->busy = false;
	/* The rank may have given up waiting for it. */
	if (r >= 0 && !has_members(j, rec))
		r = fail(-ECANCELED, "nobody waits for draft '%s' any more", name);
	if (r < 0) {
		unlink_record(j, rec);
		err_save(r, &why);
		pthread_mutex_unlock(&j->lock);
		record_free(j, rec);
		pthread_mutex_lock(&j->lock);
		return err_restore(&why);
	}
	*ret = rec;
	return 0;
}

/* The primary's part of joining. -EAGAIN: the draft is being begun or removed. */
static int admit(struct collective *j, int rank, const char *name, const char *final, unsigned mode,
		 struct buf *ret)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&j->lock);
	struct collective_record *rec = find_name(j, name);
	int r = 0;

	if (!j->active[rank])
		return fail(-EROFS, "rank %d is not active", rank);
	if (rec && rec->busy)
		return fail(-EAGAIN, "draft '%s' is being begun or removed", name);
	if (rec)
		rec->member[rank]++;
	else
		r = begin_draft(j, rank, name, final, mode, &rec);
	if (r < 0)
		return r;
	r = wire_put_u64le(ret, rec->epoch);
	r |= wire_put_u32le(ret, rec->decided);
	r |= wire_put_u64le(ret, (uint64_t)rec->init_ns);
	r |= rec->dir ? buf_add_str(ret, rec->dir->name) : buf_add_span(ret, buf_span(&rec->shown));
	return r;
}

/* name: of the draft when the rank has no epoch, since the answer to its request did not come in
 * time. */
static void dismiss(struct collective *j, int rank, uint64_t epoch, const char *name, bool aborted)
{
	struct collective_record *rec;
	bool ends = false;

	pthread_mutex_lock(&j->lock);
	rec = epoch ? find_record(j, epoch) : find_name(j, name);
	if (rec && rec->member[rank]) {
		/* A request to join may be served before an earlier one to leave. */
		rec->member[rank]--;
		/* The draft is removed only if the last rank to leave aborts it. */
		rec->aborted = aborted;
		ends = !rec->busy && !has_members(j, rec);
		rec->busy |= ends;
	}
	pthread_mutex_unlock(&j->lock);
	if (!ends)
		return;
	agree_forget(j->peers, agreement_id(rec->epoch, 0), agreement_id(rec->epoch, ATTEMPT_MAX));
	if (rec->dir && rec->aborted && !rec->ended &&
	    (draft_dir_find(rec->dir, rec->decided + 1) != 0 || draft_dir_remove(rec->dir) < 0))
		log_warn("the aborted draft '%s' could not be removed: %s", rec->dir->name,
			 err_text(-EIO));
	/* Until its place is free, the record stays, so that nobody begins it anew. */
	if (rec->place)
		j->place->release(j->place_arg, rec->place);
	rec->place = NULL;
	pthread_mutex_lock(&j->lock);
	unlink_record(j, rec);
	pthread_mutex_unlock(&j->lock);
	record_free(j, rec);
}

/* ---- attempts ---- */

/*
 * The attempt that a rank takes part in depends on what all ranks see, and not on the rank's number
 * of calls: it follows the last attempt that was decided or given up. A rank that missed attempts
 * gets their result once; at its next call, or if other ranks already wait, it takes part.
 */
void collective_enter(struct collective *j, int rank, const struct collective_member *m,
		      unsigned named, struct collective_entry *ret)
{
	const struct err_note gave_up = { .code = -ETIMEDOUT,
					  .text = "the other ranks gave up waiting for this rank" };
	auto_unlock pthread_mutex_t *held = lock_hold(&j->lock);
	struct collective_record *rec = find_record(j, m->epoch);
	unsigned current;

	*ret = (struct collective_entry){ .attempt = m->attempt + 1, .decided = true };
	if (!rec) {
		ret->result = (struct err_note){ .code = -ESTALE, .text = "the draft is gone" };
		return;
	}
	rec->named = MAX(rec->named, named);
	current = MAX(rec->named, rec->decided + 1);
	if (rec->ended) {
		ret->result = rec->result;
	} else if (current > m->attempt + 1 && !m->notified && rec->entered != current) {
		ret->result = m->attempt < rec->decided ? rec->result : gave_up;
		ret->undecided = m->attempt < rec->decided && rec->undecided;
		ret->attempt = current - 1;
	} else {
		ret->attempt = rec->entered = current;
		ret->decided = false;
	}
}

/*
 * Request: u64 epoch, u32 last attempt, u32 named, u32 notified. Answer: u32 attempt, u32 decided
 * (2: undecided), u32 -code, note.
 */
static void serve_attempt(struct collective *j, const struct peers_msg *msg)
{
	struct wire w = wire_of(buf_span(&msg->body));
	struct collective_member m = { .epoch = wire_u64le(&w), .attempt = wire_u32le(&w) };
	unsigned named = wire_u32le(&w);
	struct collective_entry e;
	auto_buf answer = { 0 };
	int r = -EINVAL;

	m.notified = wire_u32le(&w);
	if (!wire_ok(&w)) {
		fail(r, "a request is truncated");
	} else {
		collective_enter(j, msg->from, &m, named, &e);
		r = wire_put_u32le(&answer, e.attempt);
		r |= wire_put_u32le(&answer, e.decided + e.undecided);
		r |= wire_put_u32le(&answer, (uint32_t)-e.result.code);
		r |= buf_add_str(&answer, e.result.text);
	}
	peers_reply(j->peers, msg, r, buf_span(&answer));
}

/* Request: u64 epoch, u32 the next attempt of the rank. */
static void serve_give_up(struct collective *j, const struct peers_msg *msg)
{
	struct wire w = wire_of(buf_span(&msg->body));
	uint64_t epoch = wire_u64le(&w);
	unsigned named = wire_u32le(&w);
	struct collective_record *rec;

	pthread_mutex_lock(&j->lock);
	rec = wire_ok(&w) ? find_record(j, epoch) : NULL;
	if (rec)
		rec->named = MAX(rec->named, named);
	pthread_mutex_unlock(&j->lock);
	peers_reply(j->peers, msg, 0, span_of(NULL, 0));
}

/* ---- requests ---- */

/*
 * Request: u32 mode, then the user for whom the draft is: u32 uid, u32 gid, u32 umask; name NUL
 * final NUL
 */
static void serve_join(struct collective *j, const struct peers_msg *m)
{
	struct wire w = wire_of(buf_span(&m->body));
	unsigned mode = wire_u32le(&w);
	uid_t uid = wire_u32le(&w);
	gid_t gid = wire_u32le(&w);
	struct user user = { .uid = uid, .gid = gid, .umask = wire_u32le(&w) };
	struct span names = wire_bytes(&w, wire_left(&w));
	const char *name = (const char *)names.p;
	auto_buf answer = { 0 };
	int r = -EINVAL;

	if (names.n > 2 && !names.p[names.n - 1] && strlen(name) + 1 < names.n) {
		user_set(&user);
		r = admit(j, m->from, name, name + strlen(name) + 1, mode, &answer);
		user_set(NULL);
	}
	peers_reply(j->peers, m, r, buf_span(&answer));
}

/* Request: u64 epoch; if it is 0, name NUL. No answer. */
static void serve_leave(struct collective *j, const struct peers_msg *m)
{
	struct wire w = wire_of(buf_span(&m->body));
	uint64_t epoch = wire_u64le(&w);
	struct span name = wire_bytes(&w, wire_left(&w));

	if (wire_ok(&w) && (epoch || (name.n && !name.p[name.n - 1])))
		dismiss(j, m->from, epoch, (const char *)name.p, m->head.code != 0);
}

static void record_serve(void *arg, const struct peers_msg *m)
{
	struct collective *j = arg;

	if (m->head.kind == PEERS_JOIN)
		serve_join(j, m);
	else if (m->head.kind == PEERS_LEAVE)
		serve_leave(j, m);
	else if (m->head.kind == PEERS_ATTEMPT)
		serve_attempt(j, m);
	else if (m->head.kind == PEERS_GIVE_UP)
		serve_give_up(j, m);
	else if (j->other)
		j->other(j->other_arg, m);
	else
		peers_reply(j->peers, m,
			    fail(-EOPNOTSUPP, "rank %d does not serve this kind of request",
				 j->peers->rank),
			    span_of(NULL, 0));
}

int collective_new(const struct collective_opts *opts, peers_serve_fn *other, void *arg,
		   struct collective **ret)
{
	auto_of(collective) struct collective *j = calloc(1, sizeof(*j));
	int r;

	if (!j)
		return fail(-ENOMEM, "cannot join the job");
	j->peers = opts->peers;
	j->source = opts->source;
	j->place = opts->place;
	j->place_arg = opts->place_arg;
	j->other = arg ? other : NULL;
	j->other_arg = arg;
	pthread_mutex_init(&j->lock, NULL);
	j->active = calloc((size_t)j->peers->size, sizeof(*j->active));
	if (!j->active)
		return fail(-ENOMEM, "cannot join the job");
	if (opts->active) {
		r = collective_parse_active(opts->active, j->peers->size, j->active, -1);
		if (r < 0)
			return r;
	} else {
		memset(j->active, true, (size_t)j->peers->size * sizeof(*j->active));
	}
	j->primary = opts->primary;
	for (int i = j->peers->size - 1; i >= 0; i--) {
		j->n_active += j->active[i];
		if (opts->primary < 0 && j->active[i])
			j->primary = i;
	}
	if (j->primary < 0 || j->primary >= j->peers->size || !j->active[j->primary])
		return fail(-EINVAL, "primary=%d is not an active rank", opts->primary);
	r = peers_serve(j->peers, SERVE_THREADS, record_serve, j);
	if (r < 0)
		return r;
	*ret = take(j);
	return 0;
}

void collective_free(struct collective *j)
{
	if (!j)
		return;
	peers_serve_end(j->peers);
	for (struct collective_record *rec = j->records, *next; rec; rec = next) {
		next = rec->next;
		record_free(j, rec);
	}
	pthread_mutex_destroy(&j->lock);
	free(j->active);
	free(j);
}

void *collective_place(struct collective *j, const struct collective_member *m)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&j->lock);
	const struct collective_record *rec = find_record(j, m->epoch);

	return rec ? rec->place : NULL;
}

void collective_interrupt(struct collective *j)
{
	if (j)
		peers_interrupt(j->peers);
}

int collective_undecided(struct span bytes)
{
	struct wire w = wire_of(bytes);
	int code = -(int)wire_u32le(&w);
	struct span text = wire_bytes(&w, wire_left(&w));

	return wire_ok(&w) && code < 0 ? fail(code, "%.*s", SPAN_ARG(text)) :
					 fail(-EIO, "the primary's answer is truncated");
}

void collective_decide(struct collective *j, const struct collective_member *m, int r,
		       bool undecided)
{
	const struct agreement a = collective_attempt(j, m, 0);
	struct err_note result = { 0 };
	auto_buf error = { 0 };
	struct collective_record *rec;

	if (r < 0)
		err_save(r, &result);
	pthread_mutex_lock(&j->lock);
	rec = find_record(j, m->epoch);
	if (rec) {
		rec->decided = m->attempt;
		rec->result = result;
		rec->undecided = undecided;
		rec->ended = r >= 0;
	}
	pthread_mutex_unlock(&j->lock);
	agree_forget(j->peers, agreement_id(m->epoch, 0), a.id);
	/*
	 * The answer that says that an error is not the last word: u32 -code, note. Ranks that get
	 * no answer look for the step themselves.
	 */
	if (!undecided)
		agree_answer(&a, -1, MIN(r, 0), span_of(NULL, 0));
	else if (wire_put_u32le(&error, (uint32_t)-result.code) >= 0 &&
		 buf_add_str(&error, result.text) >= 0)
		agree_answer(&a, -1, COLLECTIVE_UNDECIDED, buf_span(&error));
	if (r < 0)
		err_restore(&result);
}
