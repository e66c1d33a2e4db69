/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_read.c - turns a batch of reads into requests for ranges.
 *
 * Reads of one object that are at most GAP apart share a request of at most PART bytes; a longer
 * read becomes several requests, all at once.
 */
#include <stdio.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/remote/source/store_ahead.h"

#define GAP MiB
#define PART (8 * MiB)

/* A part of a read. */
struct part {
	struct io_req *req;
	uint64_t off;
	size_t n;
};

struct batch {
	struct part *part; /* sorted by object and offset */
	struct http_piece *piece;
	size_t n, cap;
	struct http_request *request;
	size_t *first; /* the first part of each request, and one more entry at the end */
	size_t n_requests, begun;
	size_t n_reqs; /* requests that have not been waited for */
	bool is_done;
};

static void store_read_batch_free(struct batch *b)
{
	for (size_t i = 0; i < b->n_requests; i++)
		store_request_release(&b->request[i]);
	free(b->part);
	free(b->piece);
	free(b->request);
	free(b->first);
	free(b);
}

/* Add the parts of a read, without its first `have` bytes. */
static int store_read_add_parts(struct batch *b, struct io_req *q, size_t have)
{
	uint64_t at = q->off + q->done + have, end = MIN(q->off + q->n, q->file->size);

	while (at < end) {
		size_t n = (size_t)MIN(PART, end - at);

		if (!array_reserve(b->part, b->cap, b->n + 1))
			return fail(-ENOMEM, "cannot read '%s'", q->file->name);
		b->part[b->n++] = (struct part){ q, at, n };
		at += n;
	}
	return 0;
}

static bool is_same_object(const struct part *a, const struct part *b)
{
	return a->req->file == b->req->file || (!strcmp(a->req->file->key, b->req->file->key) &&
						!strcmp(a->req->file->tag, b->req->file->tag));
}

static int store_read_by_place(const void *a, const void *b)
{
	const struct part *x = a, *y = b;
	int c = strcmp(x->req->file->key, y->req->file->key);

	if (c == 0)
		c = strcmp(x->req->file->tag, y->req->file->tag);
	return c ? c : (x->off > y->off) - (x->off < y->off);
}

/* The number of parts, from `first` on, that share a request; *ret_end is the end of its range. */
static size_t group_of(const struct batch *b, size_t first, uint64_t *ret_end)
{
	uint64_t from = b->part[first].off, end = from + b->part[first].n;
	size_t i = first + 1;

	for (; i < b->n && is_same_object(&b->part[first], &b->part[i]); i++) {
		uint64_t to = MAX(end, b->part[i].off + b->part[i].n);

		if (b->part[i].off > end + GAP || to - from > PART)
			break;
		end = to;
	}
	*ret_end = end;
	return i - first;
}

static int make_requests(struct store *s, struct batch *b)
{
	int r = 0;

	b->piece = calloc(b->n + 1, sizeof(*b->piece));
	b->request = calloc(b->n + 1, sizeof(*b->request));
	b->first = calloc(b->n + 1, sizeof(*b->first));
	if (!b->piece || !b->request || !b->first)
		return fail(-ENOMEM, "cannot read %zu ranges", b->n);
	for (size_t i = 0; i < b->n; i++)
		b->piece[i] = (struct http_piece){ (uint8_t *)b->part[i].req->p +
							   (b->part[i].off - b->part[i].req->off),
						   b->part[i].off, b->part[i].n };
	for (size_t at = 0, n; at < b->n; at += n) {
		struct http_request *q = &b->request[b->n_requests];
		const struct io_file *file = b->part[at].req->file;
		uint64_t end;

		n = group_of(b, at, &end);
		r = store_request(s, file->key, file->tag, q);
		if (r < 0)
			break;
		q->piece = b->piece + at;
		q->n_pieces = n;
		q->off = b->part[at].off;
		q->n = end - q->off;
		q->size = file->size;
		b->first[b->n_requests++] = at;
		b->first[b->n_requests] = at + n;
	}
	return r;
}

/* Read the beginning of a range that is known already, or that a document's reader gets now. */
static size_t read_known(struct store *s, const struct io_req *q)
{
	uint64_t off = q->off + q->done;
	size_t n = q->n - q->done;
	size_t found = dir_cache_read(&s->dirs, q->file, off, n, (uint8_t *)q->p + q->done);

	if (found)
		return found;
	store_ahead_of_document(s, q->file, off, n);
	return dir_cache_read(&s->dirs, q->file, off, n, (uint8_t *)q->p + q->done);
}

static int store_read_begin(struct store *s, struct batch *b, struct io_req *req, size_t n)
{
	int r;

	for (size_t i = 0; i < n; i++) {
		req[i].under_way = b;
		if (req[i].op != IO_READ)
			return fail(-EROFS, "'%s' is only read", req[i].file->name);
		r = store_read_add_parts(b, &req[i], read_known(s, &req[i]));
		if (r < 0)
			return r;
	}
	if (b->n)
		qsort(b->part, b->n, sizeof(*b->part), store_read_by_place);
	r = make_requests(s, b);
	while (r >= 0 && b->begun < b->n_requests) {
		r = store_request_submit(s, &b->request[b->begun]);
		b->begun += r >= 0;
	}
	return r;
}

int store_submit(struct io_store *base, struct io_req *req, size_t n)
{
	struct store *s = store_of(base);
	struct batch *b = calloc(1, sizeof(*b));
	struct err_note why;
	int r;

	if (!b)
		return fail(-ENOMEM, "cannot read %zu ranges", n);
	r = store_read_begin(s, b, req, n);
	if (r < 0) {
		err_save(r, &why);
		for (size_t i = 0; i < b->begun; i++)
			http_wait(s->http, &b->request[i]);
		err_clear();
		store_read_batch_free(b);
		return err_restore(&why);
	}
	b->n_reqs = n;
	return 0;
}

static void set_results(struct store *s, struct batch *b)
{
	for (size_t i = 0; i < b->n_requests; i++) {
		struct http_request *q = &b->request[i];

		store_request_wait(s, q);
		for (size_t k = b->first[i]; k < b->first[i + 1] && q->result < 0; k++) {
			struct io_req *req = b->part[k].req;

			if (req->result < 0)
				continue;
			if (q->result == -ESTALE || q->result == -ENOENT)
				dir_cache_forget(&s->dirs, req->file->key);
			req->result = q->result;
			req->why = str_fmt("'%s': %s", q->name, q->why);
		}
	}
	err_clear();
	b->is_done = true;
}

int store_wait(struct io_store *base, struct io_req *req, size_t n)
{
	struct store *s = store_of(base);

	for (size_t i = 0; i < n; i++) {
		uint64_t at = req[i].off + req[i].done;

		req[i].result = at < req[i].file->size ? (int64_t)MIN(req[i].n - req[i].done,
								      req[i].file->size - at) :
							 0;
	}
	for (size_t i = 0; i < n; i++) {
		struct batch *b = req[i].under_way;

		if (!b->is_done)
			set_results(s, b);
		/* The object existed when it was opened, so it has been removed or replaced. */
		if (req[i].result == -ENOENT)
			req[i].result = -ESTALE;
		req[i].under_way = NULL;
		if (--b->n_reqs == 0)
			store_read_batch_free(b);
	}
	return 0;
}
