/* SPDX-License-Identifier: Apache-2.0 */
/*
 * along.c - documents and listings that are fetched along with the first document of a directory.
 *
 * A document is pinned to the tag and size of its listing, as any file is. Failures are ignored:
 * the reader that needs the document requests it itself.
 */
#include "core/remote/source/along.h"

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/remote/upload/step_upload.h"
#include "core/remote/source/url_store_impl.h"

#define DOCUMENT_MAX (8 * MiB)
#define RETAINED_MAX (DOCUMENT_MAX + MiB) /* bytes of all documents */
#define READ_ONCE (64 * KiB)
#define REQUESTS_MAX 32
#define RANGED_MAX 3 /* objects of a directory that are looked up by a range */

/* A range of an object, or the whole object. */
struct along_document {
	char *key, *tag;
	uint64_t size, off; /* size of the object; offset of the range */
	uint8_t *p;
	size_t n;
	int64_t expires;
	struct along_document *next;
};

/* Documents that are fetched ahead, and the largest size of each. */
static const struct {
	const char *name;
	size_t most;
} documents[] = {
	{ "_CHECKPOINT_METADATA", 64 * KiB },
	{ "_METADATA", DOCUMENT_MAX },
	{ "manifest.ocdbt", 64 * KiB },
	{ "_strings.json", 64 * KiB },
};

static size_t most_of(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(documents); i++)
		if (!strcmp(documents[i].name, name))
			return documents[i].most;
	return 0;
}

/* ---- fetched documents ---- */

static void document_free(struct along_document *d)
{
	if (!d)
		return;
	free(d->key);
	free(d->tag);
	free(d->p);
	free(d);
}

/* Takes p. */
static struct along_document *document_of(const char *key, const struct io_object *o, uint64_t off,
					  size_t n, uint8_t *p)
{
	struct along_document *d = calloc(1, sizeof(*d));

	if (!d) {
		free(p);
		return NULL;
	}
	d->key = strdup(key);
	d->tag = strdup(o->tag);
	d->size = o->size;
	d->off = off;
	d->n = n;
	d->p = p;
	if (!d->key || !d->tag || !d->p) {
		document_free(d);
		return NULL;
	}
	return d;
}

void along_init(struct along *a, unsigned lifetime_ms)
{
	*a = (struct along){ .lifetime_ns = (int64_t)lifetime_ms * 1000000 };
	pthread_mutex_init(&a->lock, NULL);
}

/* Called with the lock held. */
static void drop(struct along *a, struct along_document **at)
{
	struct along_document *d = *at;

	*at = d->next;
	a->bytes -= d->n;
	document_free(d);
}

void along_descend(struct along *a, const char *path)
{
	size_t n = strlen(path);

	pthread_mutex_lock(&a->lock);
	for (struct along_document **at = &a->newest; *at;) {
		char *key = (*at)->key;

		if (n && (strncmp(key, path, n) != 0 || key[n] != '/')) {
			drop(a, at);
			continue;
		}
		if (n)
			memmove(key, key + n + 1, strlen(key + n + 1) + 1);
		at = &(*at)->next;
	}
	pthread_mutex_unlock(&a->lock);
}

void along_release(struct along *a)
{
	pthread_mutex_lock(&a->lock);
	while (a->newest)
		drop(a, &a->newest);
	free(a->ranged);
	pthread_mutex_unlock(&a->lock);
	pthread_mutex_destroy(&a->lock);
}

/* Give a document to the list. */
static void put(struct along *a, struct along_document *d)
{
	int64_t now = clock_ns();

	pthread_mutex_lock(&a->lock);
	for (struct along_document **at = &a->newest; *at;) {
		if ((*at)->expires <= now || (!strcmp((*at)->key, d->key) && (*at)->off == d->off))
			drop(a, at);
		else
			at = &(*at)->next;
	}
	while (a->newest && a->bytes + d->n > RETAINED_MAX) {
		struct along_document **at = &a->newest;

		while ((*at)->next)
			at = &(*at)->next;
		drop(a, at);
	}
	d->expires = now + a->lifetime_ns;
	d->next = a->newest;
	a->newest = d;
	a->bytes += d->n;
	pthread_mutex_unlock(&a->lock);
}

void along_put(struct along *a, const char *path, const struct io_object *object, uint64_t off,
	       size_t n, uint8_t *p)
{
	struct along_document *d = document_of(path, object, off, n, p);

	if (d)
		put(a, d);
}

/* The number of bytes that a document has of a range of an object, from the range's start on. */
static size_t part_of(const struct along_document *d, const char *key, const char *tag,
		      uint64_t size, uint64_t off, size_t n)
{
	if (d->size != size || off < d->off || off - d->off >= d->n || d->expires <= clock_ns() ||
	    strcmp(d->key, key) != 0 || strcmp(d->tag, tag) != 0)
		return 0;
	return MIN(n, d->n - (size_t)(off - d->off));
}

static size_t copy(struct along *a, const struct io_file *file, uint64_t off, size_t n, void *p)
{
	size_t found = 0;

	pthread_mutex_lock(&a->lock);
	for (struct along_document **at = &a->newest; *at; at = &(*at)->next) {
		const struct along_document *d = *at;

		found = part_of(d, file->key, file->tag, file->size, off, n);
		if (!found)
			continue;
		memcpy(p, d->p + (off - d->off), found);
		/* A large document, or a part of one, is read once only. */
		if ((d->n > READ_ONCE || d->n < d->size) && off + found == d->off + d->n)
			drop(a, at);
		break;
	}
	pthread_mutex_unlock(&a->lock);
	return found;
}

static bool has(struct along *a, const char *key, const struct io_object *o)
{
	bool found = false;

	pthread_mutex_lock(&a->lock);
	for (const struct along_document *d = a->newest; d && !found; d = d->next)
		found = part_of(d, key, o->tag, o->size, 0, (size_t)o->size) == o->size;
	pthread_mutex_unlock(&a->lock);
	return found;
}

bool along_by_range(struct along *a, const char *path, bool can_list)
{
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0;
	bool is_one;

	pthread_mutex_lock(&a->lock);
	if (!a->ranged || strlen(a->ranged) != n || strncmp(a->ranged, path, n) != 0) {
		free(a->ranged);
		a->ranged = span_dup_str(span_of(path, n));
		a->n_ranged = 0;
	}
	is_one = !can_list || a->n_ranged++ < RANGED_MAX;
	pthread_mutex_unlock(&a->lock);
	return is_one;
}

/* ---- fetching ---- */

struct fetching {
	struct store *s;
	struct {
		struct along_document *document; /* or a listing */
		struct http_piece piece;
		struct http_request req;
	} document[ARRAY_LEN(documents)];
	struct store_listing *listing[REQUESTS_MAX];
	size_t n_documents, n_listings;
};

static int begin_document(struct fetching *f, const char *key, const struct io_object *o)
{
	struct along_document *d;
	struct http_request *q = &f->document[f->n_documents].req;
	struct http_piece *piece = &f->document[f->n_documents].piece;
	int r;

	if (has(&f->s->along, key, o))
		return 0;
	d = document_of(key, o, 0, o->size, malloc(o->size + 1));
	r = d ? store_request(f->s, key, d->tag, q) : -ENOMEM;
	if (r >= 0) {
		*piece = (struct http_piece){ d->p, 0, d->n };
		q->piece = piece;
		q->n_pieces = 1;
		q->n = q->size = d->n;
		r = http_submit(f->s->http, q);
	}
	if (r < 0) {
		store_request_release(q);
		document_free(d);
		return r;
	}
	f->document[f->n_documents++].document = d;
	return 0;
}

static int begin_listing(struct fetching *f, const char *path)
{
	struct object_list *known = object_lists_get(&f->s->listings, path);
	int r;

	if (known) {
		object_lists_unref(&f->s->listings, known);
		return 0;
	}
	if (f->n_listings == REQUESTS_MAX)
		return 0;
	r = f->s->kind->list_begin(f->s, path, &f->listing[f->n_listings]);
	f->n_listings += r >= 0;
	return r;
}

/* Request one entry of a directory with a document, if a reader needs it next: another document, an
 * item of a step, the data files of an item or of its processes. */
static int begin_entry(struct fetching *f, const char *up, const struct object_list_entry *e,
		       bool is_step, bool is_database)
{
	bool is_part = !strncmp(e->name, RANK_PREFIX, strlen(RANK_PREFIX));
	struct io_object o = { .size = e->size };
	auto_free char *path = str_fmt("%s%s%s%s", up, *up ? "/" : "", e->name,
				       is_database && is_part ? "/d" : "");

	if (!path)
		return -ENOMEM;
	if (e->is_dir)
		return f->s->kind->list_begin && (is_step || (is_database &&
							      (is_part || !strcmp(e->name, "d")))) ?
			       begin_listing(f, path) :
			       0;
	if (!e->size || e->size > most_of(e->name) || strlen(e->tag) >= sizeof(o.tag))
		return 0;
	strcpy(o.tag, e->tag);
	return begin_document(f, path, &o);
}

static void begin(struct fetching *f, const char *up, const struct object_list *l)
{
	struct io_object o;
	bool is_step = object_list_find(l, "_CHECKPOINT_METADATA", &o);
	bool is_database = object_list_find(l, "manifest.ocdbt", &o);

	for (size_t i = 0; i < l->n; i++)
		if (begin_entry(f, up, &l->entry[i], is_step, is_database) < 0)
			break;
}

static void end(struct fetching *f)
{
	for (size_t i = 0; i < f->n_listings; i++)
		f->s->kind->list_end(f->s, f->listing[i]);
	for (size_t i = 0; i < f->n_documents; i++) {
		struct along_document *d = f->document[i].document;

		if (http_wait(f->s->http, &f->document[i].req) >= 0)
			put(&f->s->along, d);
		else
			document_free(d);
		store_request_release(&f->document[i].req);
	}
	/* The reader that needs the document meets the error again. */
	err_clear();
}

bool along_is_document(const char *name)
{
	return most_of(name) > 0;
}

size_t along_read(struct store *s, const struct io_file *file, uint64_t off, size_t n, void *p)
{
	const char *slash = strrchr(file->key, '/'), *name = slash ? slash + 1 : file->key;
	auto_free struct fetching *f = NULL;
	auto_free char *up = NULL;
	struct object_list *l;
	size_t found = copy(&s->along, file, off, n, p);

	/* Without a tag an object is known only by its size, which is not enough. */
	if (found || !*file->tag || !file->size || file->size > most_of(name) || off > file->size ||
	    n > file->size - off)
		return found;
	up = slash ? span_dup_str(span_of(file->key, (size_t)(slash - file->key))) : strdup("");
	f = calloc(1, sizeof(*f));
	l = up && f ? object_lists_get(&s->listings, up) : NULL;
	if (!l)
		return 0;
	f->s = s;
	if (store_prepare(s) >= 0)
		begin(f, up, l);
	object_lists_unref(&s->listings, l);
	end(f);
	return copy(&s->along, file, off, n, p);
}
