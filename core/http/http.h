/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.h - ranges and small documents from web servers, many at a time.
 *
 * One thread runs all transfers of a client over connections that it keeps. A request is the
 * caller's memory from http_submit() until http_wait() has returned, and so are the places that its
 * bytes go to. What may be tried again is, within the limits of struct http_opts: a range goes on
 * where its last connection ended. A range that is far slower than others is asked for a second
 * time beside the first (http_hedge.h), and the one that is complete first counts.
 *
 * Nothing of a header that the caller adds is ever part of a message or of the trace.
 */
#ifndef PYTREEFS_CORE_HTTP_HTTP_H
#define PYTREEFS_CORE_HTTP_HTTP_H

#include "core/base/buf.h"

#define HTTP_TAG_MAX 256
#define HTTP_WHY_MAX 384

struct http;

struct http_opts {
	unsigned connections;    /* open at once */
	unsigned progress_ms;    /* without a byte, and the try has failed */
	unsigned request_ms;     /* a request, all its tries and pauses */
	unsigned tries;          /* of one request */
	unsigned first_pause_ms; /* about; it doubles with each try */
	bool no_proxy;           /* also where the environment names one */
	const char *ca_file;     /* certificates to trust instead of the system's; or NULL */
};
#define HTTP_OPTS_DEFAULT                                                                  \
	{                                                                                  \
		.connections = 32, .progress_ms = 10000, .request_ms = 120000, .tries = 6, \
		.first_pause_ms = 100                                                      \
	}

/* Where a part of a range goes. */
struct http_piece {
	void *p;
	uint64_t off; /* in the object */
	size_t n;
};

/* What the last answer said of the object. */
struct http_answer {
	int status; /* 0: there was none */
	bool has_size;
	uint64_t size;          /* of the whole object */
	char tag[HTTP_TAG_MAX]; /* ETag with its quotes, or tag_header's value; "" without one */
	int64_t mtime;          /* Last-Modified, seconds since 1970; -1 without one */
	bool is_directory;      /* a redirect led to a URL that ends in '/' */
};

/* Add a header, "Name: value", to the try that is about to begin. */
struct http_headers;
int http_header(struct http_headers *h, const char *line);

/* An answer whose status is a failure, and the first bytes of the document that came with it. */
struct http_refusal {
	int status;
	struct span document;
	void *easy;
};
/* The value of a header of it, until the function that was given it returns; or NULL. */
const char *http_refusal_header(const struct http_refusal *refusal, const char *name);

struct http_request {
	const char *url;
	const char *name;   /* in messages; NULL: the URL */
	bool is_head;       /* only what the answer says of the object */
	const char *method; /* "PUT", "POST", "DELETE"; NULL: HEAD or GET */
	struct span send;   /* with a method: what is sent, the caller's */
	const char *verb;   /* in messages, "write"; NULL: "read" */
	int also;           /* with a method: a status that is an answer, too; 0: none */
	bool once;          /* the caller tries again: see may_pass */
	const char *header; /* one of the answer whose value is wanted; NULL: none */
	struct buf value;   /* "" without it; the caller releases it, and wipes a secret */
	/* A part of an object, in pieces in ascending order; bytes between them are dropped. */
	const struct http_piece *piece;
	size_t n_pieces;
	uint64_t off, n;
	/* Or, without pieces, the whole document, of at most limit bytes. */
	struct buf body;
	size_t limit;
	/* The object that is meant: another one is -ESTALE. */
	const char *tag; /* NULL or "": any */
	/* The header that has the tag, which the URL asks for then; NULL: ETag, asked for by
	 * If-Match. */
	const char *tag_header;
	uint64_t size; /* with a range: of the whole object */
	/*
	 * With a range: the size of the object is not known yet. The object may end inside the
	 * range: `received` says how much of the range it has. When the server answers with a
	 * whole object that is longer than the range, only `answer` is set and nothing is received.
	 */
	bool is_first;
	bool follow; /* redirects */
	/* "Name: value", a header that an answer has to have: another server's is -EIO. NULL: none.
	 */
	const char *expect;
	/* Called in the client's thread for each try: adds what authorizes it. May be NULL. */
	int (*authorize)(void *arg, const struct http_request *req, struct http_headers *ret);
	/*
	 * Called in the client's thread: may set another result and why of a refused try. True: it
	 * may be tried again, within the limits. May be NULL.
	 */
	bool (*explain)(void *arg, const struct http_refusal *refusal, struct http_request *req);
	void *arg;
	const void *more; /* for these two */
	bool has_expired; /* explain()'s: what authorized the last try was too old */

	/* The result: 0, -ENOENT, -EACCES, -ESTALE, -EEXIST (with a method: a condition does not
	 * hold), -EUCLEAN (the object ends before the range), -EFBIG (a document above its limit)
	 * or -EIO; and why. */
	int result;
	bool may_pass; /* of a failure: another try may have another result */
	char why[HTTP_WHY_MAX];
	struct http_answer answer;

	/* The client's. */
	bool done;
	unsigned tries;
	int64_t began, not_before;
	uint64_t received;            /* of the range */
	unsigned n_transfers;         /* that are under way; two while it is hedged */
	const struct transfer *owner; /* of a range without a tag: the one whose bytes it takes */
	bool is_hedged;
	struct http_request *next;
};

/* -EOPNOTSUPP, naming libcurl, in a build without it. Makes no thread. */
int http_new(const struct http_opts *opts, struct http **ret);
/* Nothing may be under way. Accepts NULL. */
void http_free(struct http *h);
unsigned http_connections(const struct http *h);
int http_submit(struct http *h, struct http_request *req);
/* Until it has a result, which is returned with a note that names the object, the range and why. */
int http_wait(struct http *h, struct http_request *req);
/*
 * Close the connections and end the thread, until the next request: before a process gives up
 * rights, which belong to threads. Nothing may be under way.
 */
void http_quiesce(struct http *h);

struct http_stats {
	uint64_t requests, retries, bytes;
	uint64_t hedges, hedges_won; /* second requests beside slow ones; those that came first */
};
void http_stats(struct http *h, struct http_stats *ret);

#endif
