/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broadcast.c - chooses the rank that decodes a chunk, requests chunks from it, and answers
 * requests.
 *
 * A rank requests a chunk only when it needs it. So no rank waits for one that reads other leaves,
 * and chunks that nobody reads are never sent. A rank that does not answer is left out for a while,
 * and this rank reads its chunks.
 */
#include "handlers/job/broadcast.h"

#include <stdio.h>

#include "core/base/clock.h"
#include "core/base/digest.h"
#include "core/base/log.h"
#include "core/base/wire.h"
#include "core/step/item.h"
#include "handlers/options/job_options.h"

#define ANSWER_TIMEOUT (60 * SECOND_NS)
#define LEFT_OUT (30 * SECOND_NS)
#define PIECE_MAX (4 * MiB) /* largest piece of one request */
#define OPEN_MAX 32         /* arrays that are kept open for other ranks */

struct opened {
	struct span address; /* owned */
	struct item *item;
	struct zarr *zarr;
	uint64_t used;
};

struct broadcast {
	struct zarr_remote remote;
	struct broadcast_opts opts;
	struct peers *peers;
	int *reader; /* the ranks of the primary replica */
	unsigned n_readers;
	atomic_ullong received_bytes, received_pieces, served_bytes, fallbacks;

	pthread_mutex_t lock; /* protects all members below */
	int64_t *out_until;   /* indexed by rank: left out until then */
	struct opened open[OPEN_MAX];
	uint64_t tick;
};

/* ---- the rank that reads ---- */

/* Find the ranks whose position on the replica axis is that of the primary replica. */
static int find_readers(struct broadcast *b, const struct options *o)
{
	unsigned size = (unsigned)b->peers->size;
	unsigned axis[LIMIT_RANK] = { size }, n = 1, behind = 1, product = 1;
	int r = o->mesh ? job_mesh_parse(o->mesh, axis, &n) : 0;

	if (r < 0)
		return r;
	for (unsigned i = 0; i < n; i++)
		product *= axis[i];
	if (product != size)
		return fail(-EINVAL, "mesh=%s has %u %s, and the job %u %s", o->mesh, product,
			    noun(product, "place", "places"), size, noun(size, "rank", "ranks"));
	if (o->replica_axis_index >= n || o->primary_replica_id >= axis[o->replica_axis_index])
		return fail(
			-EINVAL,
			"replica_axis_index=%llu, primary_replica_id=%llu: the mesh has no such "
			"place",
			(unsigned long long)o->replica_axis_index,
			(unsigned long long)o->primary_replica_id);
	for (unsigned i = n; i > o->replica_axis_index + 1; i--)
		behind *= axis[i - 1];
	for (unsigned rank = 0; rank < size; rank++)
		if (rank / behind % axis[o->replica_axis_index] == o->primary_replica_id)
			b->reader[b->n_readers++] = (int)rank;
	return 0;
}

int broadcast_memory(const struct options *o, uint64_t *ret)
{
	double scaling;
	int r = job_scaling_parse(o->broadcast_memory_scaling, &scaling);

	if (r < 0)
		return r;
	*ret = (uint64_t)((double)o->broadcast_memory_limit * scaling);
	return 0;
}

/* ---- requests ---- */

static bool broadcast_is_elsewhere(struct zarr_remote *rm, const struct zarr *z, uint64_t object,
				   int *ret_rank)
{
	struct broadcast *b = container_of(rm, struct broadcast, remote);
	int rank = b->reader[hash64(z->address, object) % b->n_readers];
	int64_t until;

	if (rank == b->peers->rank)
		return false;
	pthread_mutex_lock(&b->lock);
	until = b->out_until[rank];
	pthread_mutex_unlock(&b->lock);
	*ret_rank = rank;
	return !until || until < clock_ns();
}

static int broadcast_fetch(struct zarr_remote *rm, const struct zarr *z, int rank, uint64_t number,
			   uint64_t off, size_t n, void *p)
{
	struct broadcast *b = container_of(rm, struct broadcast, remote);
	auto_buf ask = { 0 }, answer = { 0 };
	bool first = false;
	int r = wire_put_u64le(&ask, number);

	r |= wire_put_u64le(&ask, off);
	r |= wire_put_u32le(&ask, (uint32_t)n);
	r |= buf_add_span(&ask, z->address);
	if (r >= 0)
		r = peers_call(b->peers, rank, PEERS_CHUNK, buf_span(&ask),
			       clock_ns() + ANSWER_TIMEOUT, &answer);
	if (r >= 0 && answer.n == n) {
		memcpy(p, answer.p, n);
		atomic_fetch_add(&b->received_bytes, n);
		atomic_fetch_add(&b->received_pieces, 1);
		return 0;
	}
	/* This rank reads the chunk itself, and may meet the same error. */
	if (r == -ETIMEDOUT || r == -ENOTCONN) {
		pthread_mutex_lock(&b->lock);
		first = b->out_until[rank] < clock_ns();
		b->out_until[rank] = clock_ns() + LEFT_OUT;
		pthread_mutex_unlock(&b->lock);
	}
	if (first)
		log_warn("rank %d gives no chunks (%s): they are read here", rank, err_text(r));
	atomic_fetch_add(&b->fallbacks, 1);
	return r == -ENOMEM ? r : fail(-ENOTCONN, "rank %d gives no chunk", rank);
}

/* ---- answers ---- */

static void close_one(struct opened *o)
{
	zarr_unref(o->zarr);
	item_unref(o->item);
	free((void *)(uintptr_t)o->address.p);
	*o = (struct opened){ 0 };
}

/* Get the array that another rank names, with a reference to it and to its item. */
static int broadcast_open_array(struct broadcast *b, struct span address, struct item **ret_item,
				struct zarr **ret)
{
	auto_of(item) struct item *item = NULL;
	auto_free char *path = NULL;
	struct item_address a;
	int r;

	if (address.n <= sizeof(a))
		return fail(-EINVAL, "no address of an array");
	memcpy(&a, address.p, sizeof(a));
	path = span_dup_str(span_from(address, sizeof(a)));
	r = path ? io_path_check(span_str(path), "item") : -ENOMEM;
	if (r == -EUCLEAN && !strcmp(path, "."))
		r = 0;
	if (r < 0)
		return r;
	r = b->opts.open_item(b->opts.arg, path, &item);
	if (r < 0)
		return r;
	if ((uint64_t)item->id.ino != a.ino || item->id.ctime.tv_sec != a.ctime_s ||
	    item->id.ctime.tv_nsec != a.ctime_ns || a.leaf >= item->tree->n_nodes ||
	    item->tree->nodes[a.leaf]->kind != TREE_LEAF)
		return fail(-ESTALE, "'%s' is another item on rank %d", path, b->peers->rank);
	r = item_array(item, item->tree->nodes[a.leaf], ret);
	if (r < 0)
		return r;
	*ret_item = take(item);
	return 0;
}

static int broadcast_find_array(struct broadcast *b, struct span address, struct zarr **ret)
{
	struct opened *o = NULL, fresh = { 0 }, old = { 0 };
	uint8_t *copy;
	int r;

	pthread_mutex_lock(&b->lock);
	for (size_t i = 0; i < OPEN_MAX; i++)
		if (b->open[i].zarr && span_eq(b->open[i].address, address)) {
			b->open[i].used = ++b->tick;
			*ret = zarr_ref(b->open[i].zarr);
			pthread_mutex_unlock(&b->lock);
			return 0;
		}
	pthread_mutex_unlock(&b->lock);
	r = broadcast_open_array(b, address, &fresh.item, &fresh.zarr);
	if (r < 0)
		return r;
	copy = malloc(address.n);
	if (!copy) {
		close_one(&fresh);
		return -ENOMEM;
	}
	memcpy(copy, address.p, address.n);
	fresh.address = span_of(copy, address.n);
	*ret = zarr_ref(fresh.zarr);
	pthread_mutex_lock(&b->lock);
	fresh.used = ++b->tick;
	for (size_t i = 0; i < OPEN_MAX; i++)
		if (!o || b->open[i].used < o->used)
			o = &b->open[i];
	old = *o;
	*o = fresh;
	pthread_mutex_unlock(&b->lock);
	close_one(&old);
	return 0;
}

static int give_chunk(struct broadcast *b, struct span request, struct buf *ret)
{
	struct wire w = wire_of(request);
	uint64_t number = wire_u64le(&w), off = wire_u64le(&w);
	uint32_t n = wire_u32le(&w);
	auto_of(zarr) struct zarr *z = NULL;
	int r;

	if (!wire_ok(&w) || n > PIECE_MAX)
		return fail(-EINVAL, "no request for a chunk");
	r = broadcast_find_array(b, wire_bytes(&w, wire_left(&w)), &z);
	if (r < 0)
		return r;
	r = buf_reserve(ret, n);
	if (r < 0)
		return r;
	r = zarr_chunk_bytes(z, number, off, n, ret->p);
	if (r < 0)
		return r;
	ret->n = n;
	atomic_fetch_add(&b->served_bytes, n);
	return r;
}

void broadcast_serve(void *arg, const struct peers_msg *m)
{
	struct broadcast *b = arg;
	auto_buf bytes = { 0 };
	int r = give_chunk(b, buf_span(&m->body), &bytes);

	if (peers_reply(b->peers, m, r, buf_span(&bytes)) < 0)
		log_warn("rank %d cannot be given a chunk: %s", m->from, err_text(-ENOMEM));
}

/* ---- start and end ---- */

int broadcast_new(const struct broadcast_opts *opts, struct broadcast **ret)
{
	struct peers *peers = opts->peers;
	auto_of(broadcast) struct broadcast *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		return fail(-ENOMEM, "cannot share chunks with %d ranks", peers->size);
	b->peers = peers;
	b->opts = *opts;
	b->remote = (struct zarr_remote){ broadcast_is_elsewhere, broadcast_fetch };
	pthread_mutex_init(&b->lock, NULL);
	b->reader = calloc((size_t)peers->size, sizeof(*b->reader));
	b->out_until = calloc((size_t)peers->size, sizeof(*b->out_until));
	if (!b->reader || !b->out_until)
		return fail(-ENOMEM, "cannot share chunks with %d ranks", peers->size);
	r = find_readers(b, opts->options);
	if (r < 0)
		return r;
	opts->ckpt->env.remote = &b->remote;
	*ret = take(b);
	return 0;
}

void broadcast_free(struct broadcast *b)
{
	if (!b)
		return;
	b->opts.ckpt->env.remote = NULL;
	for (size_t i = 0; i < OPEN_MAX; i++)
		close_one(&b->open[i]);
	pthread_mutex_destroy(&b->lock);
	free(b->reader);
	free(b->out_until);
	free(b);
}

void broadcast_stats(struct broadcast *b, struct broadcast_stats *ret)
{
	*ret = (struct broadcast_stats){ 0 };
	if (b)
		*ret = (struct broadcast_stats){ b->received_bytes, b->received_pieces,
						 b->served_bytes, b->fallbacks };
}
