/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_upload.c - an object that is sent in parts, as its bytes come.
 *
 * A part is memory of the budget from its first byte until the server has it. An upload waits for
 * the budget only while it holds none of it, so that uploads which share one never wait for each
 * other in a circle. What fits into one request is put by one.
 */
#include "core/base/crc32c.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/store/bucket_write.h"

#define PARTS_MAX 10000   /* of S3 */
#define GROWS_AFTER 1000u /* parts; then they are twice as large */
#define GROWS_AT_MOST 4u

static const struct bucket_write *write_of(const struct store_upload *u)
{
	return u->s->kind->dialect->write;
}

static void part_free(struct store_upload *u, struct upload_part *p)
{
	if (!p)
		return;
	bucket_request_release(&p->request);
	free(p->p);
	budget_give(u->budget, p->cap);
	free(p);
}

/* The oldest one under way has arrived, or will not. */
static int take_oldest(struct store_upload *u)
{
	struct upload_part *p = u->head;
	int r = write_of(u)->wait(u, p);

	u->head = p->next;
	if (!u->head)
		u->tail = &u->head;
	part_free(u, p);
	return r;
}

static int take_all(struct store_upload *u)
{
	int r = 0;

	while (u->head) {
		int e = take_oldest(u);

		r = r < 0 ? r : e;
	}
	return r;
}

static int take_memory(struct store_upload *u, size_t n)
{
	while (u->head) {
		int r;

		if (budget_try(u->budget, n))
			return 0;
		r = take_oldest(u);
		if (r < 0)
			return r;
	}
	return budget_take(u->budget, n);
}

static int part_new(struct store_upload *u, struct upload_part **ret)
{
	size_t cap = (size_t)MIN(PART_BYTES << MIN(u->n_parts / GROWS_AFTER, GROWS_AT_MOST),
				 MAX(budget_total(u->budget) / 2, PART_BYTES));
	struct upload_part *p;
	int r = u->n_parts < PARTS_MAX ?
			take_memory(u, cap) :
			fail(-EFBIG, "'%s' has more than %d parts", u->path, PARTS_MAX);

	if (r < 0)
		return r;
	p = calloc(1, sizeof(*p));
	if (p)
		p->p = malloc(cap);
	if (!p || !p->p) {
		free(p);
		budget_give(u->budget, cap);
		return fail(-ENOMEM, "cannot write '%s'", u->path);
	}
	p->cap = cap;
	p->off = u->size;
	p->number = ++u->n_parts;
	*ret = p;
	return 0;
}

static int send_part(struct store_upload *u, bool is_last)
{
	struct upload_part *p = u->filling;
	int r = 0;

	if (!u->id)
		r = write_of(u)->begin(u);
	if (r >= 0 && write_of(u)->in_order)
		r = take_all(u);
	p->is_last = is_last;
	if (r >= 0)
		r = write_of(u)->submit(u, p);
	if (r < 0)
		return r;
	u->filling = NULL;
	*u->tail = p;
	u->tail = &p->next;
	return 0;
}

int store_upload_begin(struct io_store *store, const char *path, struct budget *budget,
		       struct store_upload **ret)
{
	auto_of(store_upload) struct store_upload *u = NULL;
	int r = store_check_writable(store);

	if (r < 0)
		return r;
	u = calloc(1, sizeof(*u));
	if (!u)
		return fail(-ENOMEM, "cannot write '%s'", path);
	u->s = container_of(store, struct store, base);
	u->budget = budget;
	u->tail = &u->head;
	u->path = strdup(path);
	if (!u->path)
		return fail(-ENOMEM, "cannot write '%s'", path);
	*ret = take(u);
	return 0;
}

static int add(struct store_upload *u, struct span bytes)
{
	int r = 0;

	while (bytes.n && r >= 0) {
		struct upload_part *p = u->filling;
		size_t n;

		/* A full one may be the last, and is sent when it is not. */
		if (p && p->n == p->cap) {
			r = send_part(u, false);
			p = NULL;
		}
		if (r >= 0 && !p)
			r = part_new(u, &u->filling);
		if (r < 0)
			return r;
		p = u->filling;
		n = MIN(bytes.n, p->cap - p->n);
		memcpy(p->p + p->n, bytes.p, n);
		p->n += n;
		u->size += n;
		bytes = span_from(bytes, n);
	}
	return r;
}

int store_upload_add(struct store_upload *u, struct span bytes)
{
	if (u->result >= 0)
		u->result = add(u, bytes);
	if (u->result >= 0)
		u->crc = crc32c_more(u->crc, bytes);
	return u->result;
}

static int end(struct store_upload *u)
{
	struct upload_part *p = u->filling;
	int r;

	if (u->result < 0)
		return fail(u->result, "'%s' was not written", u->path);
	if (!u->id && (!p || p->n <= write_of(u)->put_max))
		return store_put(&u->s->base, u->path, p ? span_of(p->p, p->n) : span_of("", 0),
				 false);
	r = send_part(u, true);
	if (r >= 0)
		r = take_all(u);
	return r < 0 ? r : write_of(u)->end(u);
}

int store_upload_end(struct store_upload *u)
{
	u->result = end(u);
	u->exists = u->result >= 0;
	return u->result;
}

void store_upload_free(struct store_upload *u)
{
	struct err_note why;

	if (!u)
		return;
	err_peek(&why);
	take_all(u);
	part_free(u, u->filling);
	if (u->id && !u->exists)
		write_of(u)->abort(u);
	secret_free(u->id);
	buf_release(&u->done);
	free(u->path);
	free(u);
	err_restore(&why);
}
