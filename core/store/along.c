/* SPDX-License-Identifier: Apache-2.0 */
/*
 * along.c - documents and listings that are fetched along with the first document of a directory.
 *
 * A document is pinned to the tag and size of its listing, as any file is. What cannot be fetched
 * is left to who asks for it.
 */
#include "core/store/along.h"

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/store/url_store_impl.h"

#define DOCUMENT_MAX (8 * MiB)
#define RETAINED_MAX (DOCUMENT_MAX + MiB) /* of all documents */
#define READ_ONCE (64 * KiB)
#define REQUESTS_MAX 32

struct along_document {
	char *key, *tag;
	uint8_t *p;
	size_t n;
	int64_t expires;
	struct along_document *next;
};

/* Documents, and how large one may be that is fetched unasked. */
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

/* ---- documents that were fetched ---- */

static void document_free(struct along_document *d)
{
	if (!d)
		return;
	free(d->key);
	free(d->tag);
	free(d->p);
	free(d);
}

static struct along_document *document_new(const char *key, const char *tag, size_t n)
{
	struct along_document *d = calloc(1, sizeof(*d));

	if (d) {
		d->key = strdup(key);
		d->tag = strdup(tag);
		d->p = malloc(n + 1);
		d->n = n;
	}
	if (!d || !d->key || !d->tag || !d->p) {
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

void along_clear(struct along *a)
{
	pthread_mutex_lock(&a->lock);
	while (a->newest)
		drop(a, &a->newest);
	pthread_mutex_unlock(&a->lock);
}

void along_release(struct along *a)
{
	along_clear(a);
	pthread_mutex_destroy(&a->lock);
}

/* The document becomes the list's. */
static void put(struct along *a, struct along_document *d)
{
	int64_t now = clock_ns();

	pthread_mutex_lock(&a->lock);
	for (struct along_document **at = &a->newest; *at;) {
		if ((*at)->expires <= now || !strcmp((*at)->key, d->key))
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

static int copy(struct along *a, const struct io_file *file, uint64_t off, size_t n, void *p)
{
	int64_t now = clock_ns();
	int found = 0;

	pthread_mutex_lock(&a->lock);
	for (struct along_document **at = &a->newest; *at && !found; at = &(*at)->next) {
		const struct along_document *d = *at;

		if (strcmp(d->key, file->key) != 0 || strcmp(d->tag, file->tag) != 0 ||
		    d->n != file->size || d->expires <= now)
			continue;
		memcpy(p, d->p + off, n);
		found = 1;
		/* A large one is parsed once. */
		if (d->n > READ_ONCE && off + n == d->n)
			drop(a, at);
		if (!*at)
			break;
	}
	pthread_mutex_unlock(&a->lock);
	return found;
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
	struct along_document *d = document_new(key, o->tag, o->size);
	struct http_request *q = &f->document[f->n_documents].req;
	struct http_piece *piece = &f->document[f->n_documents].piece;
	int r = d ? store_request(f->s, key, d->tag, q) : -ENOMEM;

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

/* What is looked into after a document of a directory: the items of a step, the data files of an
 * item and those of its processes. */
static int begin_entry(struct fetching *f, const char *up, const struct object_list_entry *e,
		       bool is_step, bool is_database)
{
	bool is_part = !strncmp(e->name, "ocdbt.process_", strlen("ocdbt.process_"));
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
	/* Who asks for it meets the error again. */
	err_clear();
}

int along_read(struct store *s, const struct io_file *file, uint64_t off, size_t n, void *p)
{
	const char *slash = strrchr(file->key, '/'), *name = slash ? slash + 1 : file->key;
	auto_free struct fetching *f = NULL;
	auto_free char *up = NULL;
	struct object_list *l;

	/* Without a tag only the size says which object it is. */
	if (!*file->tag || !file->size || file->size > most_of(name) || off > file->size ||
	    n > file->size - off)
		return 0;
	if (copy(&s->along, file, off, n, p))
		return 1;
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
