/*
 * joint.c - the primary's records of shared drafts, and the ranks' calls to it.
 *
 * What is in a ballot and what follows from it is the handlers' business
 * (handlers/draft_joint.c); the directory is draft_dir.c's.
 *
 * Kept true: an attempt is decided once; a record lives while anybody is in the
 * draft.
 */
#include "core/step/joint.h"

#include <stdio.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/wire.h"

#define SERVE_THREADS 4
#define JOIN_TIMEOUT (30 * SECOND_NS)
#define RESULTS_MAX 64			/* decisions that are kept of one draft */

struct ballot {
	struct ballot *next;
	int rank;
	unsigned attempt, round;
	int code;
	struct buf payload;		/* or the note */
};

struct record {
	struct record *next;
	uint64_t epoch;
	struct draft_dir *dir;		/* holds the lock */
	bool *member;			/* by rank */
	bool aborted, ended;		/* ended: committed, nobody joins any more */
	struct ballot *ballots;
	unsigned decided;		/* attempts */
	struct err_note result[RESULTS_MAX];	/* of attempt n: at n % RESULTS_MAX */
};

struct joint {
	struct peers *peers;
	struct io_dir *source;
	int primary;
	bool *active;
	unsigned n_active;
	peers_serve_fn *other;
	void *other_arg;

	pthread_mutex_t lock;		/* protects all below */
	pthread_cond_t changed;
	struct record *records;		/* of the primary */
	uint64_t last_epoch;
};

/* ---- who is who ---- */

int joint_rank(const struct joint *j)
{
	return j->peers->rank;
}

int joint_size(const struct joint *j)
{
	return j->peers->size;
}

int joint_primary(const struct joint *j)
{
	return j->primary;
}

bool joint_is_primary(const struct joint *j)
{
	return j->peers->rank == j->primary;
}

bool joint_is_active(const struct joint *j, int rank)
{
	return j->active[rank];
}

unsigned joint_n_active(const struct joint *j)
{
	return j->n_active;
}

/* "0-3:6" */
static int parse_active(struct joint *j, const char *text)
{
	for (const char *at = text; at;) {
		unsigned first, last;
		int n = 0;

		if (sscanf(at, "%u%n", &first, &n) != 1)
			return fail(-EINVAL, "active=%s: wanted are ranks as in '0-3:6'", text);
		at += n;
		last = first;
		if (*at == '-') {
			if (sscanf(at, "-%u%n", &last, &n) != 1)
				return fail(-EINVAL, "active=%s: wanted are ranks as in '0-3:6'", text);
			at += n;
		}
		if (last < first || last >= (unsigned)j->peers->size || (*at && *at != ':'))
			return fail(-EINVAL, "active=%s: the job has ranks 0 to %d", text, j->peers->size - 1);
		for (unsigned i = first; i <= last; i++)
			j->active[i] = true;
		at = *at ? at + 1 : NULL;
	}
	return 0;
}

static int set_ranks(struct joint *j, const struct joint_opts *opts)
{
	int r = 0;

	if (opts->active)
		r = parse_active(j, opts->active);
	else
		memset(j->active, true, (size_t)j->peers->size * sizeof(*j->active));
	if (r < 0)
		return r;
	j->primary = opts->primary;
	for (int i = j->peers->size - 1; i >= 0; i--) {
		j->n_active += j->active[i];
		if (opts->primary < 0 && j->active[i])
			j->primary = i;
	}
	if (j->primary < 0 || j->primary >= j->peers->size || !j->active[j->primary])
		return fail(-EINVAL, "primary=%d is no active rank", opts->primary);
	return 0;
}

/* ---- records ---- */

static void ballot_free(struct ballot *b)
{
	buf_release(&b->payload);
	free(b);
}

static void record_free(struct record *rec)
{
	if (!rec)
		return;
	for (struct ballot *b = rec->ballots, *next; b; b = next) {
		next = b->next;
		ballot_free(b);
	}
	draft_dir_free(rec->dir);
	free(rec->member);
	free(rec);
}

/* Called with the lock held. */
static struct record *find_record(struct joint *j, uint64_t epoch)
{
	struct record *rec = j->records;

	while (rec && rec->epoch != epoch)
		rec = rec->next;
	return rec;
}

static struct record *find_name(struct joint *j, const char *name)
{
	struct record *rec = j->records;

	while (rec && (rec->ended || strcmp(rec->dir->base_name, name)))
		rec = rec->next;
	return rec;
}

static int add_record(struct joint *j, const char *name, const char *final, unsigned mode, struct record **ret)
{
	struct record *rec = calloc(1, sizeof(*rec));
	int r;

	if (rec)
		rec->member = calloc((size_t)j->peers->size, sizeof(*rec->member));
	if (!rec || !rec->member) {
		record_free(rec);
		return fail(-ENOMEM, "cannot begin draft '%s'", name);
	}
	/* Once in the life of a draft, and nobody else has business with the lock meanwhile. */
	r = draft_dir_begin_shared(j->source, name, final, mode, &rec->dir);
	if (r < 0) {
		record_free(rec);
		return r;
	}
	rec->epoch = ++j->last_epoch;
	rec->next = j->records;
	j->records = rec;
	*ret = rec;
	return 0;
}

/* The primary's side of joining. */
static int admit(struct joint *j, int rank, const char *name, const char *final, unsigned mode, struct buf *ret)
{
	struct record *rec;
	int r = 0;

	pthread_mutex_lock(&j->lock);
	rec = find_name(j, name);
	if (!j->active[rank])
		r = fail(-EROFS, "rank %d is not active", rank);
	else if (!rec)
		r = add_record(j, name, final, mode, &rec);
	if (r >= 0) {
		rec->member[rank] = true;
		r = wire_put_u64le(ret, rec->epoch);
		if (r >= 0)
			r = wire_put_u32le(ret, rec->decided);
		if (r >= 0)
			r = wire_put_u64le(ret, (uint64_t)rec->dir->init_ns);
		if (r >= 0)
			r = buf_add_str(ret, rec->dir->name);
	}
	pthread_mutex_unlock(&j->lock);
	return r;
}

static void dismiss(struct joint *j, int rank, uint64_t epoch, bool aborted)
{
	struct record *rec, **at;
	bool any = false;

	pthread_mutex_lock(&j->lock);
	rec = find_record(j, epoch);
	if (rec) {
		rec->member[rank] = false;
		/* What one left without giving it up stays on the disk. */
		rec->aborted = aborted;
		for (int i = 0; i < j->peers->size; i++)
			any |= rec->member[i];
	}
	if (rec && !any) {
		for (at = &j->records; *at != rec; at = &(*at)->next)
			;
		*at = rec->next;
	}
	pthread_mutex_unlock(&j->lock);
	if (!rec || any)
		return;
	if (rec->aborted && !rec->ended && (draft_dir_find(rec->dir, rec->decided + 1) != 0 ||
					    draft_dir_remove(rec->dir) < 0))
		log_warn("draft '%s' was given up, and could not be removed: %s", rec->dir->name, err_text(-EIO));
	record_free(rec);
}

/* ---- ballots ---- */

static uint64_t go_id(uint64_t epoch, unsigned attempt)
{
	return epoch << 24 | (attempt & 0xffffff);
}

static void tell(struct joint *j, int rank, uint64_t epoch, unsigned attempt, const struct err_note *result)
{
	const struct peers_head head = { .kind = PEERS_GO, .code = result->code, .id = go_id(epoch, attempt) };

	if (peers_send(j->peers, rank, &head, span_str(result->text)) < 0)
		log_warn("rank %d cannot be told of a commit: %s", rank, err_text(-ENOMEM));
}

/* u64 epoch, u32 attempt, u32 round, u32 -code, payload or note */
static void take_ballot(struct joint *j, const struct peers_msg *m)
{
	struct wire w = wire_of(buf_span(&m->body));
	uint64_t epoch = wire_u64le(&w);
	struct ballot *b = calloc(1, sizeof(*b));
	struct err_note late = { .code = 1 };
	struct record *rec;
	struct span rest;

	if (!b)
		return;
	*b = (struct ballot){ .rank = m->from, .attempt = wire_u32le(&w), .round = wire_u32le(&w) };
	b->code = -(int)wire_u32le(&w);
	rest = wire_bytes(&w, wire_left(&w));
	if (!wire_ok(&w) || buf_add_span(&b->payload, rest) < 0) {
		ballot_free(b);
		return;
	}
	pthread_mutex_lock(&j->lock);
	rec = find_record(j, epoch);
	if (!rec) {
		late = (struct err_note){ .code = -ESTALE, .text = "the draft is gone" };
	} else if (b->attempt <= rec->decided) {
		late = b->attempt + RESULTS_MAX > rec->decided ? rec->result[b->attempt % RESULTS_MAX] :
								 (struct err_note){ .code = -ESTALE };
	} else {
		b->next = rec->ballots;
		rec->ballots = b;
		pthread_cond_broadcast(&j->changed);
	}
	pthread_mutex_unlock(&j->lock);
	if (late.code == 1)
		return;
	tell(j, m->from, epoch, b->attempt, &late);
	ballot_free(b);
}

/* ---- requests ---- */

/* u32 mode, name NUL final NUL */
static void serve_join(struct joint *j, const struct peers_msg *m)
{
	struct wire w = wire_of(buf_span(&m->body));
	unsigned mode = wire_u32le(&w);
	struct span names = wire_bytes(&w, wire_left(&w));
	const char *name = (const char *)names.p;
	auto_buf answer = { 0 };
	int r = -EINVAL;

	if (names.n > 2 && !names.p[names.n - 1] && strlen(name) + 1 < names.n)
		r = admit(j, m->from, name, name + strlen(name) + 1, mode, &answer);
	peers_reply(j->peers, m, r, buf_span(&answer));
}

static void serve(void *arg, const struct peers_msg *m)
{
	struct joint *j = arg;
	struct wire w = wire_of(buf_span(&m->body));

	if (m->head.kind == PEERS_JOIN)
		serve_join(j, m);
	else if (m->head.kind == PEERS_LEAVE)
		dismiss(j, m->from, wire_u64le(&w), m->head.code != 0);
	else if (m->head.kind == PEERS_BALLOT)
		take_ballot(j, m);
	else if (j->other)
		j->other(j->other_arg, m);
	else
		peers_reply(j->peers, m, fail(-EOPNOTSUPP, "rank %d does not do that", j->peers->rank), span_of(NULL, 0));
}

int joint_new(const struct joint_opts *opts, peers_serve_fn *other, void *arg, struct joint **ret)
{
	auto_of(joint) struct joint *j = calloc(1, sizeof(*j));
	int r;

	if (!j)
		return fail(-ENOMEM, "cannot join the job");
	j->peers = opts->peers;
	j->source = opts->source;
	j->other = arg ? other : NULL;
	j->other_arg = arg;
	pthread_mutex_init(&j->lock, NULL);
	clock_cond_init(&j->changed);
	j->active = calloc((size_t)j->peers->size, sizeof(*j->active));
	if (!j->active)
		return fail(-ENOMEM, "cannot join the job");
	r = set_ranks(j, opts);
	if (r >= 0)
		r = peers_serve(j->peers, SERVE_THREADS, serve, j);
	if (r < 0)
		return r;
	*ret = take(j);
	return 0;
}

void joint_free(struct joint *j)
{
	if (!j)
		return;
	peers_serve_end(j->peers);
	for (struct record *rec = j->records, *next; rec; rec = next) {
		next = rec->next;
		record_free(rec);
	}
	pthread_cond_destroy(&j->changed);
	pthread_mutex_destroy(&j->lock);
	free(j->active);
	free(j);
}

/* ---- the ranks' side ---- */

int joint_join(struct joint *j, const char *name, const char *final, unsigned mode, struct joint_member *ret,
	       struct draft_dir **ret_dir)
{
	auto_of(draft_dir) struct draft_dir *dir = NULL;
	auto_buf ask = { 0 }, answer = { 0 };
	struct joint_member m;
	const char *on_disk;
	struct wire w;
	int64_t init_ns;
	int r = wire_put_u32le(&ask, mode);

	if (r >= 0)
		r = buf_addf(&ask, "%s%c%s%c", name, 0, final, 0);
	if (r >= 0)
		r = peers_call(j->peers, j->primary, PEERS_JOIN, buf_span(&ask), clock_ns() + JOIN_TIMEOUT, &answer);
	if (r < 0)
		return err_at(r, "draft '%s'", name);
	w = wire_of(buf_span(&answer));
	m.epoch = wire_u64le(&w);
	m.attempt = wire_u32le(&w);
	init_ns = (int64_t)wire_u64le(&w);
	if (!wire_ok(&w) || buf_add_byte(&answer, 0) < 0)
		return fail(-EIO, "draft '%s': the primary's answer is cut off", name);
	on_disk = (const char *)answer.p + 20;
	r = draft_dir_join(j->source, on_disk, final, mode, init_ns, &dir);
	if (r < 0) {
		joint_leave(j, &m, false);
		return r;
	}
	/* Its first name, of which the others are made. */
	free(dir->base_name);
	dir->base_name = strdup(name);
	if (!dir->base_name)
		return fail(-ENOMEM, "cannot join draft '%s'", name);
	*ret = m;
	*ret_dir = take(dir);
	return 0;
}

void joint_leave(struct joint *j, const struct joint_member *m, bool aborted)
{
	const struct peers_head head = { .kind = PEERS_LEAVE, .code = aborted };
	uint8_t epoch[8];

	set_u64le(epoch, m->epoch);
	if (peers_send(j->peers, j->primary, &head, span_of(epoch, sizeof(epoch))) < 0)
		log_warn("cannot leave a draft: %s", err_text(-ENOMEM));
}

int joint_cast(struct joint *j, const struct joint_member *m, unsigned round, int r, struct span payload)
{
	const struct peers_head head = { .kind = PEERS_BALLOT };
	struct span rest = r < 0 ? span_str(err_text(r)) : payload;
	auto_buf body = { 0 };
	int e = wire_put_u64le(&body, m->epoch);

	if (e >= 0)
		e = wire_put_u32le(&body, m->attempt);
	if (e >= 0)
		e = wire_put_u32le(&body, round);
	if (e >= 0)
		e = wire_put_u32le(&body, (uint32_t)-MIN(r, 0));
	if (e >= 0)
		e = buf_add_span(&body, rest);
	return e < 0 ? e : peers_send(j->peers, j->primary, &head, buf_span(&body));
}

int joint_await(struct joint *j, const struct joint_member *m, int64_t deadline, struct buf *ret, bool *ret_told)
{
	auto_of(peers_msg) struct peers_msg *msg = NULL;
	int r = peers_recv(j->peers, PEERS_GO, go_id(m->epoch, m->attempt), j->primary, deadline, &msg);

	*ret_told = r >= 0;
	if (r < 0)
		return r;
	if (msg->head.code < 0)
		return fail(msg->head.code, "%.*s", SPAN_ARG(buf_span(&msg->body)));
	if (ret && msg->head.code == 1) {
		buf_release(ret);
		*ret = msg->body;
		msg->body = (struct buf){ 0 };
	}
	return msg->head.code;
}

/* ---- the primary's side ---- */

/* Called with the lock held: the ballot of a rank, out of the record. */
static struct ballot *find_ballot(struct record *rec, int rank, unsigned attempt, unsigned round)
{
	for (struct ballot **at = &rec->ballots; *at; at = &(*at)->next) {
		struct ballot *b = *at;

		if (b->rank == rank && b->attempt == attempt && b->round == round) {
			*at = b->next;
			return b;
		}
	}
	return NULL;
}

/* Called with the lock held: wait for one ballot. NULL at the deadline. */
static struct ballot *wait_ballot(struct joint *j, struct record *rec, int rank, unsigned attempt, unsigned round,
				  int64_t deadline)
{
	const struct timespec t = clock_timespec(deadline);
	struct ballot *b;
	bool in_time = true;

	while (!(b = find_ballot(rec, rank, attempt, round)) && in_time)
		in_time = pthread_cond_timedwait(&j->changed, &j->lock, &t) != ETIMEDOUT;
	return b;
}

int joint_collect(struct joint *j, const struct joint_member *m, unsigned round, int64_t deadline,
		  struct buf *ret)
{
	auto_buf absent = { 0 };
	struct err_note worst = { 0 };
	struct record *rec;

	pthread_mutex_lock(&j->lock);
	/* This rank is in the draft, so the record stays. */
	rec = find_record(j, m->epoch);
	for (int i = 0; rec && i < j->peers->size; i++) {
		struct ballot *b;

		if (!j->active[i] || i == j->primary)
			continue;
		b = wait_ballot(j, rec, i, m->attempt, round, deadline);
		if (!b) {
			buf_addf(&absent, "%s%d", absent.n ? ", " : "", i);
			continue;
		}
		if (b->code < 0 && worst.code >= 0)
			err_save(fail(b->code, "rank %d: %.*s", i, SPAN_ARG(buf_span(&b->payload))), &worst);
		if (b->code >= 0) {
			ret[i] = b->payload;
			b->payload = (struct buf){ 0 };
		}
		ballot_free(b);
	}
	pthread_mutex_unlock(&j->lock);
	if (!rec)
		return fail(-ESTALE, "the draft is gone");
	if (absent.n)
		return fail(-ETIMEDOUT, "rank %.*s did not come within commit_timeout", SPAN_ARG(buf_span(&absent)));
	return worst.code < 0 ? err_restore(&worst) : 0;
}

int joint_go(struct joint *j, const struct joint_member *m, int rank, struct span payload)
{
	const struct peers_head head = { .kind = PEERS_GO, .code = 1, .id = go_id(m->epoch, m->attempt) };

	return peers_send(j->peers, rank, &head, payload);
}

void joint_decide(struct joint *j, const struct joint_member *m, int r)
{
	struct err_note result = { 0 };
	struct record *rec;

	if (r < 0)
		err_save(r, &result);
	pthread_mutex_lock(&j->lock);
	rec = find_record(j, m->epoch);
	if (rec) {
		rec->decided = m->attempt;
		rec->result[m->attempt % RESULTS_MAX] = result;
		rec->ended = r >= 0;
		/* Ballots of this attempt's second round may still be on their way; they are told by then. */
		for (unsigned round = 1; round <= 2; round++)
			for (int i = 0; i < j->peers->size; i++) {
				struct ballot *b = find_ballot(rec, i, m->attempt, round);

				if (b)
					ballot_free(b);
			}
	}
	pthread_mutex_unlock(&j->lock);
	for (int i = 0; i < j->peers->size; i++)
		if (j->active[i] && i != j->primary)
			tell(j, i, m->epoch, m->attempt, &result);
}
