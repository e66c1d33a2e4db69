/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers_mpi.c - messages with MPI; the only file that uses MPI.
 *
 * A single thread of ours calls MPI, from initialization to finalization, and none of its calls
 * waits: sends and receives are started, and tested at intervals. Therefore a dead rank, for which
 * OpenMPI never completes anything, blocks no other rank. The thread sleeps between the tests,
 * longer the longer nothing has happened, up to IDLE_NS.
 *
 * Collectives of MPI are not used after initialization, since one with a dead rank never ends. The
 * last is MPI_Finalize, which is abandoned when it takes too long. MPI does not report that a rank
 * is dead, but the kernel does for ranks on the same machine.
 */
#include <mpi.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/job/peers.h"

#define BUSY_NS 20000    /* sleep between tests while a transfer is in progress */
#define IDLE_NS 10000000 /* maximum of the sleep when nothing has happened for a while */
#define SMALL 65536
#define TAG 77
#define MESSAGE_MAX ((size_t)1 << 30)  /* counts in MPI are ints */
#define BACKLOG_MAX ((size_t)16 << 20) /* bytes in flight; senders of more have to wait */
#define BACKLOG_WAIT 10                /* seconds at most, since the receiver may be dead */
/* messages that are not received this long after the end are dropped */
#define FLUSH_NS ((int64_t)2000000000)
#define FINALIZE_LOOK (SECOND_NS / 5)
#define FINALIZE_GONE SECOND_NS /* if the process of a rank has ended */
/* if a rank on another machine may have ended, which is not known */
#define FINALIZE_MAX (30 * SECOND_NS)

struct transfer {
	struct transfer *next;
	MPI_Request request;
	int rank;
	size_t n;
	uint8_t *bytes;
};

/* Identifies a process to others on the same machine. */
struct identity {
	char boot[40]; /* boot id of the machine; "": unknown */
	uint64_t pids; /* the PID namespace */
	int64_t pid;
	uint64_t began; /* clock ticks from the boot of the machine */
};

struct mpi {
	struct peers base;
	struct identity *who; /* by rank; immutable after initialization */
	char *name;
	pthread_t thread;
	struct transfer *sending, *receiving; /* only for the thread */
	MPI_Comm comm;

	pthread_mutex_t lock; /* protects all members below */
	pthread_cond_t wake, started, ended;
	struct transfer *queue, **queue_end;
	int start; /* 1: initialized; 2: the opener is done; negative: an error */
	int rank, size;
	bool stop, clean, has_ended;
	size_t backlog;
	pthread_cond_t drained;
};

static struct mpi *mpi_of(struct peers *p)
{
	return container_of(p, struct mpi, base);
}

static void transfer_free(struct transfer *t)
{
	free(t->bytes);
	free(t);
}

static int mpi_send(struct peers *p, int to, const struct peers_head *head, struct span body)
{
	const struct timespec until = clock_timespec(clock_ns() + BACKLOG_WAIT * SECOND_NS);
	struct mpi *m = mpi_of(p);
	struct transfer *t = calloc(1, sizeof(*t));

	if (body.n > MESSAGE_MAX) {
		free(t);
		return fail(-EFBIG, "a message of %zu bytes, the limit is %zu", body.n,
			    MESSAGE_MAX);
	}
	if (t)
		t->bytes = malloc(PEERS_HEAD_BYTES + body.n);
	if (!t || !t->bytes) {
		free(t);
		return fail(-ENOMEM, "cannot send %zu bytes to rank %d", body.n, to);
	}
	t->rank = to;
	t->n = PEERS_HEAD_BYTES + body.n;
	peers_head_pack(head, t->bytes);
	if (body.n)
		memcpy(t->bytes + PEERS_HEAD_BYTES, body.p, body.n);
	pthread_mutex_lock(&m->lock);
	/*
	 * Small messages never wait, since the thread that would make room sends such messages
	 * itself.
	 */
	while (body.n > SMALL && m->backlog && m->backlog + t->n > BACKLOG_MAX)
		if (pthread_cond_timedwait(&m->drained, &m->lock, &until) == ETIMEDOUT)
			break;
	m->backlog += t->n;
	*m->queue_end = t;
	m->queue_end = &t->next;
	pthread_cond_signal(&m->wake);
	pthread_mutex_unlock(&m->lock);
	return 0;
}

/* ---- the thread ---- */

static bool begin_sends(struct mpi *m)
{
	struct transfer *list;
	bool any = false;

	pthread_mutex_lock(&m->lock);
	list = take(m->queue);
	m->queue_end = &m->queue;
	pthread_mutex_unlock(&m->lock);
	for (struct transfer *t = list, *next; t; t = next) {
		next = t->next;
		any = true;
		if (MPI_Isend(t->bytes, (int)t->n, MPI_BYTE, t->rank, TAG, m->comm, &t->request) !=
		    MPI_SUCCESS) {
			log_error("cannot send to rank %d", t->rank);
			transfer_free(t);
			continue;
		}
		t->next = m->sending;
		m->sending = t;
	}
	return any;
}

static bool begin_receives(struct mpi *m)
{
	bool any = false;

	for (;;) {
		MPI_Message message;
		MPI_Status status;
		struct transfer *t;
		int found = 0, n = 0;

		if (MPI_Improbe(MPI_ANY_SOURCE, TAG, m->comm, &found, &message, &status) !=
			    MPI_SUCCESS ||
		    !found)
			return any;
		MPI_Get_count(&status, MPI_BYTE, &n);
		t = calloc(1, sizeof(*t));
		if (t)
			t->bytes = malloc((size_t)n + 1);
		if (!t || !t->bytes) {
			/*
			 * The message stays matched and is never received, so the sender's deadline
			 * passes.
			 */
			log_error("a message of %d bytes from rank %d is lost: not enough memory",
				  n, status.MPI_SOURCE);
			free(t);
			continue;
		}
		t->n = (size_t)n;
		t->rank = status.MPI_SOURCE;
		MPI_Imrecv(t->bytes, n, MPI_BYTE, &message, &t->request);
		/* Appended, so that the oldest is tested first. */
		for (struct transfer **at = &m->receiving;; at = &(*at)->next)
			if (!*at) {
				*at = t;
				break;
			}
		any = true;
	}
}

static bool mpi_is_complete(struct transfer *t)
{
	int done = 0;

	return MPI_Test(&t->request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done;
}

static void deliver(struct mpi *m, struct transfer *t)
{
	struct peers_head head;
	struct buf body = { 0 };

	if (t->n < PEERS_HEAD_BYTES) {
		log_error("a message of %zu bytes from rank %d has no header", t->n, t->rank);
		return;
	}
	peers_head_parse(t->bytes, &head);
	/* The body stays in the buffer in which it was received. */
	t->n -= PEERS_HEAD_BYTES;
	memmove(t->bytes, t->bytes + PEERS_HEAD_BYTES, t->n);
	body = (struct buf){ .p = t->bytes, .n = t->n, .cap = t->n + PEERS_HEAD_BYTES };
	t->bytes = NULL;
	peers_deliver(&m->base, t->rank, &head, &body);
}

/* Whether an earlier message of the same rank is incomplete, since they are delivered in order. */
static bool held_back(const struct transfer *list, const struct transfer *t)
{
	for (; list != t; list = list->next)
		if (list->rank == t->rank)
			return true;
	return false;
}

static bool mpi_finish(struct mpi *m)
{
	bool any = false;

	for (struct transfer **at = &m->sending, *t; (t = *at);) {
		if (!mpi_is_complete(t)) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		pthread_mutex_lock(&m->lock);
		m->backlog -= t->n;
		pthread_cond_broadcast(&m->drained);
		pthread_mutex_unlock(&m->lock);
		transfer_free(t);
		any = true;
	}
	for (struct transfer **at = &m->receiving, *t; (t = *at);) {
		if (held_back(m->receiving, t) || !mpi_is_complete(t)) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		deliver(m, t);
		transfer_free(t);
		any = true;
	}
	return any;
}

static void loop(struct mpi *m)
{
	int64_t pause = BUSY_NS, stopped = 0;

	for (;;) {
		bool any = begin_sends(m), stop;
		struct timespec until;

		any |= begin_receives(m);
		any |= mpi_finish(m);
		/* MPI transfers data only while it is called. */
		pause = any || m->receiving ? BUSY_NS : MIN(pause + pause / 4, (int64_t)IDLE_NS);
		until = clock_timespec(clock_ns() + pause);
		pthread_mutex_lock(&m->lock);
		if (!m->queue && !m->stop)
			pthread_cond_timedwait(&m->wake, &m->lock, &until);
		stop = m->stop;
		pthread_mutex_unlock(&m->lock);
		if (!stop)
			continue;
		if (!stopped)
			stopped = clock_ns();
		if ((!m->sending && !m->queue) || clock_ns() - stopped > FLUSH_NS)
			return;
		sched_yield();
	}
}

/* ---- which ranks are alive ---- */

/* Get the state and start time of a process; false when it does not exist. */
static bool mpi_look_at(int64_t pid, char *ret_state, uint64_t *ret_began)
{
	char path[64], line[512];
	unsigned long long began = 0;
	const char *behind_name;
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	ok = fgets(line, sizeof(line), f) != NULL;
	fclose(f);
	behind_name = ok ? strrchr(line, ')') : NULL;
	ok = behind_name &&
	     sscanf(behind_name + 1,
		    " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
		    "%*d %*d %*d %llu",
		    ret_state, &began) == 2;
	*ret_began = began;
	return ok;
}

static void mpi_identify(struct identity *ret)
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	struct stat st;
	char state;

	memset(ret, 0, sizeof(*ret));
	ret->pid = getpid();
	if (f && fscanf(f, "%39s", ret->boot) != 1)
		ret->boot[0] = '\0';
	if (f)
		fclose(f);
	if (stat("/proc/self/ns/pid", &st) < 0 || !mpi_look_at(ret->pid, &state, &ret->began))
		ret->boot[0] = '\0';
	else
		ret->pids = st.st_ino;
}

static bool mpi_is_gone(struct peers *p, int rank)
{
	const struct identity *mine = &mpi_of(p)->who[p->rank], *its = &mpi_of(p)->who[rank];
	uint64_t began;
	char state;

	if (!*mine->boot || strcmp(mine->boot, its->boot) || mine->pids != its->pids)
		return false;
	if (kill((pid_t)its->pid, 0) < 0 && errno == ESRCH)
		return true;
	return mpi_look_at(its->pid, &state, &began) &&
	       (began != its->began || strchr("ZX", state));
}

static int mpi_begin(struct mpi *m)
{
	struct identity mine;
	int provided = 0, r = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);

	if (r != MPI_SUCCESS)
		return -EIO;
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	if (MPI_Comm_dup(MPI_COMM_WORLD, &m->comm) != MPI_SUCCESS)
		return -EIO;
	MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
	if (m->name)
		MPI_Comm_set_name(m->comm, m->name);
	MPI_Comm_rank(m->comm, &m->rank);
	MPI_Comm_size(m->comm, &m->size);
	mpi_identify(&mine);
	m->who = calloc((size_t)m->size, sizeof(*m->who));
	if (!m->who)
		return -ENOMEM;
	/*
	 * A collective of MPI can be used here, since MPI_Init_thread() would not have ended with a
	 * dead rank either.
	 */
	r = MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, m->who, sizeof(mine), MPI_BYTE, m->comm);
	return r == MPI_SUCCESS ? 1 : -EIO;
}

static void *mpi_run(void *arg)
{
	struct mpi *m = arg;
	bool clean;
	int r;

	r = mpi_begin(m);
	pthread_mutex_lock(&m->lock);
	m->start = r;
	pthread_cond_broadcast(&m->started);
	/* Wait until the opener has called peers_init(). */
	while (r == 1 && m->start == 1)
		pthread_cond_wait(&m->started, &m->lock);
	pthread_mutex_unlock(&m->lock);
	if (r < 0)
		return NULL;
	loop(m);
	pthread_mutex_lock(&m->lock);
	clean = m->clean;
	pthread_mutex_unlock(&m->lock);
	/* If a rank is gone, this would wait forever. */
	if (clean) {
		MPI_Comm_free(&m->comm);
		MPI_Finalize();
	}
	pthread_mutex_lock(&m->lock);
	m->has_ended = true;
	pthread_cond_broadcast(&m->ended);
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

/* ---- opening and closing ---- */

/*
 * Waits for the end of the thread. Returns false when MPI_Finalize was abandoned: it waits for all
 * ranks, but a rank that was killed after reporting that it is done never calls it.
 */
static bool wait_for_thread(struct mpi *m)
{
	int64_t began = clock_ns(), gone_since = 0;
	bool ended;
	int gone;

	for (;;) {
		struct timespec until = clock_timespec(clock_ns() + FINALIZE_LOOK);

		pthread_mutex_lock(&m->lock);
		while (!m->has_ended)
			if (pthread_cond_timedwait(&m->ended, &m->lock, &until) == ETIMEDOUT)
				break;
		ended = m->has_ended;
		pthread_mutex_unlock(&m->lock);
		if (ended)
			return true;
		/* Ranks that completed MPI_Finalize may end a moment before this one. */
		gone = -1;
		for (int i = 0; i < m->size && gone < 0; i++)
			gone = i != m->rank && mpi_is_gone(&m->base, i) ? i : -1;
		if (gone < 0)
			gone_since = 0;
		else if (!gone_since)
			gone_since = clock_ns();
		if (gone >= 0 && clock_ns() - gone_since > FINALIZE_GONE) {
			log_warn("rank %d has ended: this rank ends without MPI_Finalize", gone);
			return false;
		}
		if (clock_ns() - began > FLUSH_NS + FINALIZE_MAX) {
			log_warn("MPI_Finalize takes more than %d s: this rank ends without it",
				 (int)(FINALIZE_MAX / SECOND_NS));
			return false;
		}
	}
}

static void mpi_free(struct peers *p, bool clean)
{
	struct mpi *m = mpi_of(p);
	bool ended;

	pthread_mutex_lock(&m->lock);
	m->stop = true;
	m->clean = clean;
	pthread_cond_signal(&m->wake);
	pthread_mutex_unlock(&m->lock);
	ended = wait_for_thread(m);
	if (ended)
		pthread_join(m->thread, NULL);
	/* Memory that MPI may still use is not freed; the process is about to end. */
	if (!clean || !ended)
		return;
	for (struct transfer *t = m->receiving, *next; t; t = next) {
		next = t->next;
		transfer_free(t);
	}
	peers_release(p);
	pthread_cond_destroy(&m->wake);
	pthread_cond_destroy(&m->started);
	pthread_cond_destroy(&m->ended);
	pthread_cond_destroy(&m->drained);
	pthread_mutex_destroy(&m->lock);
	free(m->name);
	free(m->who);
	free(m);
}

static const struct peers_ops mpi_ops = {
	.name = "mpi", .is_gone = mpi_is_gone, .send = mpi_send, .free = mpi_free
};

bool peers_mpi_is_there(void)
{
	return true;
}

int peers_mpi_open(const char *name, struct peers **ret)
{
	struct mpi *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return fail(-ENOMEM, "cannot start MPI");
	m->queue_end = &m->queue;
	m->name = name ? strdup(name) : NULL;
	pthread_mutex_init(&m->lock, NULL);
	clock_cond_init(&m->wake);
	clock_cond_init(&m->drained);
	clock_cond_init(&m->ended);
	pthread_cond_init(&m->started, NULL);
	/*
	 * The thread blocks all signals, and so do the threads that MPI makes. After MPI was
	 * initialized, the process must end with it, so nothing is freed here.
	 */
	r = thread_start(&m->thread, "mpi", mpi_run, m);
	if (r < 0)
		return fail(r, "cannot make a thread for MPI");
	pthread_mutex_lock(&m->lock);
	while (!m->start)
		pthread_cond_wait(&m->started, &m->lock);
	r = m->start;
	pthread_mutex_unlock(&m->lock);
	if (r < 0) {
		pthread_join(m->thread, NULL);
		return fail(r, "cannot start MPI: is this run by mpirun?");
	}
	r = peers_init(&m->base, &mpi_ops, m->rank, m->size);
	pthread_mutex_lock(&m->lock);
	m->start = 2;
	pthread_cond_broadcast(&m->started);
	pthread_mutex_unlock(&m->lock);
	if (r < 0)
		return r;
	*ret = &m->base;
	return 0;
}
