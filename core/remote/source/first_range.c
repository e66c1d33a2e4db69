/* SPDX-License-Identifier: Apache-2.0 */
/*
 * first_range.c - a look-up of an object by a range of it.
 *
 * The request has no condition, since the object's size and tag are not known: the answer has them,
 * and the bytes are kept for that object only.
 */
#include "core/remote/source/first_range.h"

#include "core/base/err.h"

static int first_range_send(struct store *s, const char *path, char *url,
			    const struct io_want *want, bool once, struct first_range *ret)
{
	size_t n = want->n > FIRST_RANGE_MAX ? IO_FIRST_BYTES : want->n;
	int r;

	*ret = (struct first_range){ .piece = { malloc(n), want->off, n } };
	r = url ? store_request_url(s, path, url, &ret->req) :
		  store_request(s, path, NULL, &ret->req);

	if (r >= 0 && !ret->piece.p)
		r = fail(-ENOMEM, "cannot read '%s'", path);
	if (r < 0) {
		first_range_release(ret);
		return r;
	}
	ret->req.piece = &ret->piece;
	ret->req.n_pieces = 1;
	ret->req.off = want->off;
	ret->req.n = n;
	ret->req.is_first = true;
	ret->req.is_single_try = once;
	r = http_submit(s->http, &ret->req);
	if (r < 0)
		first_range_release(ret);
	return r;
}

int first_range_begin(struct store *s, const char *path, char *url, const struct io_want *want,
		      struct first_range *ret)
{
	return first_range_send(s, path, url, want, false, ret);
}

int first_range_guess(struct store *s, const char *path, struct first_range *ret)
{
	const struct io_want beginning = { 0, IO_FIRST_BYTES };

	return first_range_send(s, path, NULL, &beginning, true, ret);
}

int first_range_end(struct store *s, struct first_range *first, struct io_object *ret)
{
	int r = store_request_wait(s, &first->req);

	return r < 0 ? r : store_object_of(&first->req, ret);
}

void first_range_keep(struct store *s, const char *path, const struct io_object *object,
		      struct first_range *first)
{
	if (first->req.received)
		dir_cache_add_bytes(&s->dirs, path, object, first->piece.off,
				    (size_t)first->req.received, take(first->piece.p));
}

void first_range_release(struct first_range *first)
{
	store_request_release(&first->req);
	free(first->piece.p);
	*first = (struct first_range){ 0 };
}
