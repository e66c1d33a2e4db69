/* SPDX-License-Identifier: Apache-2.0 */
/*
 * first_range.c - a look-up of an object by a range of it.
 *
 * If the object's size and tag are not known, the request has no condition: the answer has them,
 * and the bytes are kept for that object only.
 */
#include "core/remote/source/first_range.h"

#include "core/base/err.h"

static int first_range_submit(struct store *s, const char *path, char *url,
			      const struct io_want *want, bool once, struct first_range *f)
{
	bool is_known = *f->object.tag;
	int r = url ? store_request_url(s, path, url, &f->req) :
		      store_request(s, path, is_known ? f->object.tag : NULL, &f->req);

	if (r < 0)
		return r;
	f->path = strdup(path);
	f->req.is_head = !want;
	if (want) {
		f->piece = (struct http_piece){ malloc(want->n), want->off, want->n };
		f->req.piece = &f->piece;
		f->req.n_pieces = 1;
		f->req.off = want->off;
		f->req.n = want->n;
		f->req.size = f->object.size;
		f->req.is_first = !is_known;
		f->req.is_single_try = once;
	}
	if (!f->path || (want && !f->piece.p))
		return fail(-ENOMEM, "cannot read '%s'", path);
	return store_request_submit(s, &f->req);
}

static int first_range_send(struct store *s, const char *path, char *url,
			    const struct io_want *want, bool once, struct first_range *f)
{
	int r = first_range_submit(s, path, url, want, once, f);

	if (r < 0)
		first_range_release(f);
	return r;
}

int first_range_begin(struct store *s, const char *path, char *url, const struct io_want *want,
		      struct first_range *ret)
{
	struct io_want some = want ? *want : (struct io_want){ 0 };

	if (some.n > FIRST_RANGE_MAX)
		some.n = IO_FIRST_BYTES;
	*ret = (struct first_range){ 0 };
	return first_range_send(s, path, url, want ? &some : NULL, false, ret);
}

int first_range_guess(struct store *s, const char *path, struct first_range *ret)
{
	const struct io_want beginning = { 0, IO_FIRST_BYTES };

	*ret = (struct first_range){ 0 };
	return first_range_send(s, path, NULL, &beginning, true, ret);
}

int first_range_whole(struct store *s, const char *path, const struct io_object *object,
		      struct first_range *ret)
{
	const struct io_want whole = { 0, (size_t)object->size };

	*ret = (struct first_range){ .object = *object };
	return first_range_send(s, path, NULL, &whole, false, ret);
}

int first_range_end(struct store *s, struct first_range *first)
{
	int r = store_request_wait(s, &first->req);

	return r < 0 || *first->object.tag ? r : store_object_of(&first->req, &first->object);
}

void first_range_keep(struct store *s, struct first_range *first)
{
	if (first->req.received)
		dir_cache_add_bytes(&s->dirs, first->path, &first->object, first->piece.off,
				    (size_t)first->req.received, take(first->piece.p));
}

void first_range_release(struct first_range *first)
{
	store_request_release(&first->req);
	free(first->piece.p);
	free(first->path);
	*first = (struct first_range){ 0 };
}
