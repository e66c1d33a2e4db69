/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_fault.c - wrapper: errors, short transfers and delays, as rules ask for them.
 *
 *     fault(RULE;RULE...)          RULE is OP:ACTION:WHEN
 *
 *     OP      read write sync open (without O_CREAT) create mkdir rename exchange unlink
 *             rmdir syncdir truncate, change (every change to the disk), any
 *     ACTION  an errno in small letters (eio enospc enomem eacces edquot erofs eintr
 *             eagain einval), short (half of the bytes), torn (half of the bytes, then EIO for
 *             the rest: a bad sector), delay=MS, rate=BYTES (per second, K M G)
 *     WHEN    always, N (the Nth time, from 1), N+ (from the Nth time on), P%
 *
 * P% is pseudo-random and seeded by the rule's text: the same run fails in the same places.
 *
 * fault(NAME:WHAT) opens the engine that was registered under that name. The tests register
 * `crash`, which simulates a power loss (tests/engine/io_crash.c).
 */
#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/io/io_engine.h"

enum fault_op {
	FAULT_READ = 1 << 0,
	FAULT_WRITE = 1 << 1,
	FAULT_SYNC = 1 << 2,
	FAULT_OPEN = 1 << 3,
	FAULT_MKDIR = 1 << 4,
	FAULT_RENAME = 1 << 5,
	FAULT_UNLINK = 1 << 6,
	FAULT_RMDIR = 1 << 7,
	FAULT_SYNCDIR = 1 << 8,
	FAULT_TRUNCATE = 1 << 9,
	FAULT_CREATE = 1 << 10,
	FAULT_EXCHANGE = 1 << 11,
	FAULT_CHANGE = FAULT_WRITE | FAULT_SYNC | FAULT_MKDIR | FAULT_RENAME | FAULT_UNLINK |
		       FAULT_RMDIR | FAULT_SYNCDIR | FAULT_TRUNCATE | FAULT_CREATE,
	FAULT_ANY = FAULT_CHANGE | FAULT_READ | FAULT_OPEN,
};

static const struct {
	const char *name;
	unsigned ops;
} op_names[] = {
	{ "read", FAULT_READ },         { "write", FAULT_WRITE },   { "sync", FAULT_SYNC },
	{ "open", FAULT_OPEN },         { "mkdir", FAULT_MKDIR },   { "rename", FAULT_RENAME },
	{ "unlink", FAULT_UNLINK },     { "rmdir", FAULT_RMDIR },   { "syncdir", FAULT_SYNCDIR },
	{ "truncate", FAULT_TRUNCATE }, { "create", FAULT_CREATE }, { "change", FAULT_CHANGE },
	{ "exchange", FAULT_EXCHANGE }, { "any", FAULT_ANY },
};

static const struct {
	const char *name;
	int code;
} error_names[] = {
	{ "eio", -EIO },       { "enospc", -ENOSPC }, { "enomem", -ENOMEM },
	{ "eacces", -EACCES }, { "edquot", -EDQUOT }, { "erofs", -EROFS },
	{ "eintr", -EINTR },   { "eagain", -EAGAIN }, { "einval", -EINVAL },
};

enum fault_action { ACTION_ERROR, ACTION_SHORT, ACTION_TORN, ACTION_DELAY, ACTION_RATE };

struct rule {
	unsigned ops;
	enum fault_action action;
	int code;          /* ACTION_ERROR */
	uint64_t amount;   /* milliseconds, or bytes a second */
	uint64_t from, to; /* from the from-th to the to-th time; unused when chance > 0 */
	double chance;
	uint64_t count, random;
	double ready; /* ACTION_RATE: when the next byte may pass, in seconds */
};

#define RULES_MAX 16

struct io_fault {
	struct io_engine base;
	pthread_mutex_t lock;       /* protects the counters of rules, and torn and torn_at */
	const struct io_file *torn; /* only compared; NULL when no request is torn */
	uint64_t torn_at;
	struct rule rule[RULES_MAX];
	unsigned n;
};

static bool rule_hits(struct rule *r)
{
	r->count++;
	if (r->chance > 0) {
		r->random = r->random * 6364136223846793005u + 1442695040888963407u;
		return (double)(r->random >> 11) / 9007199254740992.0 < r->chance;
	}
	return r->count >= r->from && r->count <= r->to;
}

/*
 * Apply the rules to one operation, which moves *n bytes at off of file, if any. Returns 0, or the
 * error. May sleep.
 */
static int consult(struct io_engine *io, unsigned op, const struct io_file *file, uint64_t off,
		   size_t *n)
{
	struct io_fault *f = container_of(io, struct io_fault, base);
	struct timespec pause;
	double wait = 0;
	int code = 0;

	pthread_mutex_lock(&f->lock);
	/* The rest of a torn request. */
	if (file && f->torn == file && f->torn_at == off) {
		f->torn = NULL;
		code = -EIO;
	}
	for (unsigned i = 0; i < f->n; i++) {
		struct rule *r = &f->rule[i];

		if (!(r->ops & op) || !rule_hits(r))
			continue;
		if (r->action == ACTION_ERROR && !code)
			code = r->code;
		if (r->action == ACTION_SHORT && n && *n > 1)
			*n /= 2;
		if (r->action == ACTION_TORN && !code && n && *n > 1) {
			*n /= 2;
			f->torn = file;
			f->torn_at = off + *n;
		} else if (r->action == ACTION_TORN && !code) {
			code = -EIO;
		}
		if (r->action == ACTION_DELAY)
			wait += (double)r->amount / 1e3;
		if (r->action == ACTION_RATE && n) {
			double t = (double)clock_ns() / 1e9;

			r->ready = MAX(r->ready, t) + (double)*n / (double)r->amount;
			wait = MAX(wait, r->ready - t);
		}
	}
	pthread_mutex_unlock(&f->lock);
	pause = (struct timespec){ (time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9) };
	if (wait > 0)
		while (nanosleep(&pause, &pause) < 0 && errno == EINTR)
			;
	return code;
}

/*
 * Requests run one by one, so that the rules apply to each. This engine is for tests, not for
 * speed.
 */
static int fault_submit(struct io_engine *io, struct io_req *req, size_t n)
{
	static const unsigned ops[] = { FAULT_READ, FAULT_WRITE, FAULT_SYNC };

	for (size_t i = 0; i < n; i++) {
		size_t want = req[i].n - req[i].done, may = want;
		int r = consult(io, ops[req[i].op], req[i].file, req[i].off + req[i].done,
				req[i].op == IO_SYNC ? NULL : &may);

		if (r < 0) {
			req[i].result = r;
			continue;
		}
		req[i].n -= want - may;
		r = io->below->ops->submit(io->below, &req[i], 1);
		if (r >= 0)
			r = io->below->ops->wait(io->below, &req[i], 1);
		req[i].n += want - may;
		if (r < 0)
			return r;
	}
	return 0;
}

static int fault_wait(struct io_engine *io, struct io_req *req, size_t n)
{
	(void)io, (void)req, (void)n;
	return 0;
}

static int fault_open(struct io_engine *io, int dirfd, const char *path, int flags, unsigned mode)
{
	int r = consult(io,
			flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY)) ? FAULT_CREATE : FAULT_OPEN,
			NULL, 0, NULL);

	return r < 0 ? r : io->below->ops->open(io->below, dirfd, path, flags, mode);
}

static int fault_dirop(struct io_engine *io, enum io_dirop op, int dirfd, const char *from,
		       const char *to, unsigned mode)
{
	static const unsigned ops[] = { FAULT_MKDIR,  FAULT_RENAME,
					FAULT_RENAME, FAULT_RENAME | FAULT_EXCHANGE,
					FAULT_UNLINK, FAULT_RMDIR,
					FAULT_SYNCDIR };
	int r = consult(io, ops[op], NULL, 0, NULL);

	return r < 0 ? r : io->below->ops->dirop(io->below, op, dirfd, from, to, mode);
}

static int fault_truncate(struct io_engine *io, struct io_file *file, uint64_t size)
{
	int r = consult(io, FAULT_TRUNCATE, NULL, 0, NULL);

	return r < 0 ? r : io->below->ops->truncate(io->below, file, size);
}

static int64_t fault_splice(struct io_engine *io, struct io_file *file, uint64_t off, size_t n,
			    int pipe)
{
	int r = consult(io, FAULT_READ, file, off, &n);

	return r < 0 ? r : io->below->ops->splice(io->below, file, off, n, pipe);
}

static int fault_lookup(struct io_engine *io, const char *path, const struct io_want *want,
			struct io_object *ret)
{
	int r = consult(io, FAULT_OPEN, NULL, 0, NULL);

	return r < 0 ? err_code(r, "cannot look up", path) :
		       io->below->ops->lookup(io->below, path, want, ret);
}

static int fault_list(struct io_engine *io, const char *path, io_store_fn *each, void *arg)
{
	int r = consult(io, FAULT_OPEN, NULL, 0, NULL);

	return r < 0 ? err_code(r, "cannot list", path) :
		       io->below->ops->list(io->below, path, each, arg);
}

static void fault_free(struct io_engine *io)
{
	struct io_fault *f = container_of(io, struct io_fault, base);

	io->below->ops->free(io->below);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static const struct io_engine_ops fault_ops = {
	.name = "fault",
	.submit = fault_submit,
	.wait = fault_wait,
	.open = fault_open,
	.dirop = fault_dirop,
	.truncate = fault_truncate,
	.splice = fault_splice,
	.lookup = fault_lookup,
	.list = fault_list,
	.free = fault_free,
};

/* ---- the text of the rules ---- */

static bool word_is(struct span s, const char *word)
{
	return span_eq(s, span_str(word));
}

/* Remove the text up to sep from s, and return it. */
static struct span cut(struct span *s, char sep)
{
	const uint8_t *at = memchr(s->p, sep, s->n);
	struct span head = span_of(s->p, at ? (size_t)(at - s->p) : s->n);

	*s = span_from(*s, head.n + (at != NULL));
	return head;
}

static bool number_of(struct span s, uint64_t *ret)
{
	uint64_t v = 0, unit = 1;
	size_t i;

	for (i = 0; i < s.n && isdigit(s.p[i]); i++)
		v = v * 10 + (s.p[i] - 0u - '0');
	if (i == 0 || i > 15)
		return false;
	if (i + 1 == s.n)
		unit = s.p[i] == 'K' ? 1u << 10 :
		       s.p[i] == 'M' ? 1u << 20 :
		       s.p[i] == 'G' ? 1u << 30 :
				       0;
	if (i + 1 < s.n || !unit)
		return false;
	*ret = v * unit;
	return true;
}

static bool parse_action(struct span s, struct rule *r)
{
	struct span name = cut(&s, '=');

	r->action = ACTION_ERROR;
	for (size_t i = 0; i < ARRAY_LEN(error_names); i++)
		if (word_is(name, error_names[i].name)) {
			r->code = error_names[i].code;
			return true;
		}
	if (word_is(name, "short") || word_is(name, "torn")) {
		r->action = word_is(name, "short") ? ACTION_SHORT : ACTION_TORN;
		return true;
	}
	r->action = word_is(name, "delay") ? ACTION_DELAY : ACTION_RATE;
	return (word_is(name, "delay") || word_is(name, "rate")) && number_of(s, &r->amount) &&
	       r->amount;
}

static bool parse_when(struct span s, struct rule *r)
{
	r->from = 1;
	r->to = UINT64_MAX;
	if (word_is(s, "always"))
		return true;
	if (s.n && s.p[s.n - 1] == '%') {
		auto_free char *text = span_dup_str(span_of(s.p, s.n - 1));

		r->chance = text ? atof(text) / 100 : 0;
		return r->chance > 0 && r->chance <= 1;
	}
	if (s.n && s.p[s.n - 1] == '+')
		return number_of(span_of(s.p, s.n - 1), &r->from);
	if (!number_of(s, &r->from))
		return false;
	r->to = r->from;
	return true;
}

static bool parse_rule(struct span text, struct rule *r)
{
	struct span rest = text, op = cut(&rest, ':'), action = cut(&rest, ':');

	*r = (struct rule){ .random = hash64(text, 0) };
	for (size_t i = 0; i < ARRAY_LEN(op_names); i++)
		if (word_is(op, op_names[i].name))
			r->ops = op_names[i].ops;
	return r->ops && parse_action(action, r) && parse_when(rest, r);
}

static struct io_engine_kind *registered;

void io_register_engine(struct io_engine_kind *kind)
{
	kind->next = registered;
	registered = kind;
}

int io_fault_new(const char *rules, struct io_engine *below, struct io_engine **ret)
{
	auto_free struct io_fault *f = calloc(1, sizeof(*f));
	struct span rest = span_str(rules), name = cut(&rest, ':');

	for (const struct io_engine_kind *k = registered; k; k = k->next)
		if (span_eq(name, span_str(k->name)))
			return k->open((const char *)rest.p, below, ret);
	if (word_is(name, "crash"))
		return fail(-EINVAL,
			    "'fault(%s)': the simulator of power losses is not built in; only the "
			    "tests of pytreefs have it",
			    rules);
	if (!f)
		return fail(-ENOMEM, "cannot allocate an I/O engine");
	rest = span_str(rules);
	while (rest.n) {
		struct span one = cut(&rest, ';');

		if (f->n == RULES_MAX)
			return fail(-EINVAL, "more than %d rules in 'fault(%s)'", RULES_MAX, rules);
		if (!parse_rule(one, &f->rule[f->n++]))
			return fail(-EINVAL,
				    "'%.*s' is not a fault rule; it is OP:ACTION:WHEN, as in "
				    "read:eio:1%%",
				    SPAN_ARG(one));
	}
	f->base.ops = &fault_ops;
	f->base.below = below;
	pthread_mutex_init(&f->lock, NULL);
	*ret = &take(f)->base;
	return 0;
}
