/* SPDX-License-Identifier: Apache-2.0 */
/*
 * documents.c - documents and listings that are fetched with the first document of a directory.
 *
 * A document is pinned to the tag and size of its listing, as any file is.
 */
#include "core/remote/source/documents.h"

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/remote/source/object_names.h"

#define DOCUMENT_MAX (8 * MiB)
#define LISTINGS_MAX 32

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

/* Requests that are under way. */
struct documents {
	struct store *s;
	struct {
		char *path;
		struct io_object object;
		struct http_piece piece;
		struct http_request req;
	} document[ARRAY_LEN(documents)];
	struct store_listing *listing[LISTINGS_MAX];
	size_t n_documents, n_listings;
};

/* 0: it is not a document. */
static size_t document_most(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(documents); i++)
		if (!strcmp(documents[i].name, name))
			return documents[i].most;
	return 0;
}

bool document_is_name(const char *name)
{
	return document_most(name) > 0;
}

static int request_document(struct documents *f, const char *path, const struct io_object *o)
{
	struct http_piece *piece = &f->document[f->n_documents].piece;
	struct http_request *q = &f->document[f->n_documents].req;
	char *copy = strdup(path);
	int r;

	*piece = (struct http_piece){ malloc(o->size), 0, (size_t)o->size };
	f->document[f->n_documents].object = *o;
	r = piece->p && copy ?
		    store_request(f->s, path, f->document[f->n_documents].object.tag, q) :
		    -ENOMEM;
	if (r >= 0) {
		q->piece = piece;
		q->n_pieces = 1;
		q->n = q->size = o->size;
		r = http_submit(f->s->http, q);
	}
	if (r < 0) {
		store_request_release(q);
		free(piece->p);
		free(copy);
		return r;
	}
	f->document[f->n_documents++].path = copy;
	return 0;
}

static int request_listing(struct documents *f, const char *path)
{
	struct object_list *known = dir_cache_listing(&f->s->dirs, path);
	int r;

	object_list_free(known);
	if (known || f->n_listings == LISTINGS_MAX)
		return 0;
	r = f->s->kind->list_begin(f->s, path, &f->listing[f->n_listings]);
	f->n_listings += r >= 0;
	return r;
}

/* Request one entry of a directory with a document, if a reader needs it next: another document, an
 * item of a step, the data files of an item or of its processes. */
static int request_entry(struct documents *f, const struct object_list *l,
			 const struct object_list_entry *e, bool is_step, bool is_database)
{
	bool is_part = !strncmp(e->name, RANK_PREFIX, strlen(RANK_PREFIX));
	struct io_object o;
	auto_free char *path = str_fmt("%s%s%s%s", l->path, *l->path ? "/" : "", e->name,
				       is_database && is_part ? "/d" : "");

	if (!path)
		return -ENOMEM;
	if (e->is_dir && (is_step || (is_database && (is_part || !strcmp(e->name, "d")))))
		return f->s->kind->list_begin ? request_listing(f, path) : 0;
	if (e->is_dir || !e->size || e->size > document_most(e->name) ||
	    !object_list_find(l, e->name, &o) || dir_cache_has_bytes(&f->s->dirs, path, &o))
		return 0;
	return request_document(f, path, &o);
}

static void request_entries(struct documents *f, const struct object_list *l)
{
	struct io_object o;
	bool is_step = object_list_find(l, "_CHECKPOINT_METADATA", &o);
	bool is_database = object_list_find(l, "manifest.ocdbt", &o);

	for (size_t i = 0; i < l->n; i++)
		if (request_entry(f, l, &l->entry[i], is_step, is_database) < 0)
			break;
}

static void take_answers(struct documents *f)
{
	for (size_t i = 0; i < f->n_listings; i++)
		f->s->kind->list_end(f->listing[i]);
	for (size_t i = 0; i < f->n_documents; i++) {
		struct http_piece *piece = &f->document[i].piece;

		if (http_wait(f->s->http, &f->document[i].req) >= 0)
			dir_cache_add_bytes(&f->s->dirs, f->document[i].path,
					    &f->document[i].object, 0, piece->n, take(piece->p));
		store_request_release(&f->document[i].req);
		free(piece->p);
		free(f->document[i].path);
	}
	err_clear();
}

void documents_fetch(struct store *s, const struct io_file *file, uint64_t off, size_t n)
{
	const char *slash = strrchr(file->key, '/'), *name = slash ? slash + 1 : file->key;
	auto_free struct documents *f = NULL;
	auto_free char *dir = NULL;
	struct object_list *l;

	/* Without a tag an object is known only by its size, which is not enough. */
	if (!*file->tag || !file->size || file->size > document_most(name) || off > file->size ||
	    n > file->size - off)
		return;
	dir = span_dup_str(span_of(file->key, slash ? (size_t)(slash - file->key) : 0));
	f = calloc(1, sizeof(*f));
	l = dir && f ? dir_cache_listing(&s->dirs, dir) : NULL;
	if (!l)
		return;
	f->s = s;
	if (s->kind->prepare(s) >= 0)
		request_entries(f, l);
	take_answers(f);
	object_list_free(l);
}
