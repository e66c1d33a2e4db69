/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.h - ranges and small documents from web servers, many at a time.
 *
 * One thread runs all transfers of a client over connections that it keeps. A request is the
 * caller's memory and stays in use from http_submit() until http_wait() has returned, and so do the
 * buffers that its bytes go to. A try that failed for a reason that may pass (a lost connection, an
 * overloaded server) is repeated within the limits of struct http_opts, and a range resumes where
 * its last connection ended.
 *
 * Headers that the caller adds never appear in a message or in the trace.
 */
#ifndef PYTREEFS_CORE_HTTP_HTTP_H
#define PYTREEFS_CORE_HTTP_HTTP_H

#include <stdio.h>

#include "core/base/buf.h"
#include "core/base/err.h"

#define HTTP_TAG_MAX 256
#define HTTP_WHY_MAX 384

struct http;

struct http_opts {
	unsigned connections; /* at most so many are open at once */
	unsigned progress_ms; /* a try fails after so long without a byte */
	/* deadline of a request, with all its tries and pauses (http_outage.h: of all for one
	 * object) */
	unsigned request_ms;
	unsigned tries;          /* at most so many per request */
	unsigned first_pause_ms; /* about; the pause doubles with each try */
	bool no_proxy;           /* ignore a proxy that the environment names */
	const char *ca_file;     /* certificates to trust instead of the system's, or NULL */
	const char *netrc_file;  /* logins of servers (netrc); need not exist; NULL: none */
};
#define HTTP_OPTS_DEFAULT                                                                  \
	{                                                                                  \
		.connections = 32, .progress_ms = 10000, .request_ms = 120000, .tries = 6, \
		.first_pause_ms = 100                                                      \
	}

/* The buffer for one part of a range. */
struct http_piece {
	void *p;
	uint64_t off; /* in the object */
	size_t n;
};

/* The object's attributes, from the headers of the last answer. */
struct http_answer {
	int status; /* 0: no answer came */
	bool has_size;
	uint64_t size;          /* of the whole object */
	char tag[HTTP_TAG_MAX]; /* ETag with its quotes, or tag_header's value; "" without one */
	int64_t mtime;          /* Last-Modified, seconds since 1970; -1 without one */
	int64_t date;           /* Date, the server's clock; 0 without one */
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
/* The value of one of its headers, or NULL; valid as long as the refusal. */
const char *http_refusal_header(const struct http_refusal *refusal, const char *name);
/* The time of the server, seconds since 1970; -1: it did not say. */
int64_t http_refusal_time(const struct http_refusal *refusal);

/* The state of a request in the client. */
struct http_run {
	bool done;
	int64_t submitted, began, not_before; /* began: when its deadline does */
	char *moved;   /* where the last redirect led to; NULL: url is what is requested */
	unsigned hops; /* redirects since the try began at url */
	struct http_request *next;
};

struct http_request {
	const char *url;
	const char *name;    /* in messages; NULL: the URL */
	bool is_head;        /* HEAD: no body, only the object's attributes */
	const char *method;  /* "PUT", "POST", "DELETE"; NULL: HEAD or GET */
	struct span send;    /* with a method: the body of the request; borrowed */
	const char *verb;    /* in messages, "write"; NULL: "read" */
	int accepted_status; /* with a method: one more status that means success; 0: none */
	bool is_single_try; /* one try only: the caller repeats the request itself (is_transient) */
	/* Over a new connection: over one that was closed meanwhile, libcurl repeats a request by
	 * itself, and may_arrive would not know. */
	bool is_fresh;
	const char *header; /* name of the answer's header that goes to value; NULL: none */
	struct buf value;   /* "" without it; the caller releases it, and wipes a secret */
	/* A range of an object, for buffers in ascending order; bytes between them are dropped. */
	const struct http_piece *piece;
	size_t n_pieces;
	uint64_t off, n;
	/* Or, without pieces, the whole document of at most limit bytes. */
	struct buf body;
	size_t limit;
	/* The expected tag of the object: with another one -ESTALE. NULL or "": any. */
	const char *tag;
	/* The header that carries the tag, when the URL itself selects the tag; NULL: ETag, and the
	 * request has If-Match. */
	const char *tag_header;
	uint64_t size; /* with a range: expected size of the whole object */
	/*
	 * With a range: the size of the object is not known yet. The object may end inside the
	 * range: `received` says how much of the range it has. When the server answers with a
	 * whole object that is longer than the range, only `answer` is set and nothing is received.
	 */
	bool is_first;
	/* Redirects, never from https to http. A server at another origin (scheme, host, port) gets
	 * neither the headers of authorize() nor a login. */
	bool follow;
	/* "Name: value", a header that each answer has to have; an answer without it is -EIO, since
	 * another server may have given it. NULL: none. */
	const char *expect;
	/* Called in the client's thread for each try: adds headers. May be NULL. */
	int (*authorize)(void *arg, const struct http_request *req, struct http_headers *ret);
	/*
	 * Called in the client's thread after a refused try: may change result and why. Returns
	 * true to allow another try, within the limits. May be NULL.
	 */
	bool (*explain)(void *arg, const struct http_refusal *refusal, struct http_request *req);
	void *arg;          /* of authorize() and explain() */
	const void *params; /* for authorize() and explain(): the parameters of this request */
	bool has_expired;   /* set by explain(): the credentials of the last try had expired */

	/* The result: 0, -ENOENT, -EACCES, -ESTALE, -EEXIST (with a method: a condition does not
	 * hold), -EUCLEAN (the object ends before the range), -EFBIG (a document above its limit)
	 * or -EIO; and the reason as text. */
	int result;
	bool is_transient; /* after a failure: another try may have another result */
	/*
	 * With a method: a try was sent, and no answer says that it was refused, so the server may
	 * have carried it out, or do so later. Never cleared: a request that is submitted again
	 * keeps what is known of its earlier tries.
	 */
	bool may_arrive;
	char why[HTTP_WHY_MAX];
	struct http_answer answer;
	unsigned tries;
	uint64_t received; /* bytes of the range */

	struct http_run run; /* used by the client alone */
};

/* -EOPNOTSUPP, naming libcurl, in a build without it. Starts no thread. */
int http_new(const struct http_opts *opts, struct http **ret);
/* No request may be in progress. Accepts NULL. */
void http_free(struct http *h);
DEFINE_AUTO(http, struct http, http_free);
unsigned http_connections(const struct http *h);
/* An error is the result of the request as well, which then need not be waited for. */
int http_submit(struct http *h, struct http_request *req) __attribute__((warn_unused_result));
/* Something that the request needs failed with r: that and this thread's note are its result. */
static inline void http_refuse(struct http_request *req, int r)
{
	req->result = r;
	snprintf(req->why, sizeof(req->why), "%s", err_text(r));
}
/* Wait for the result and return it; the note of a failure names the object, range and reason. */
int http_wait(struct http *h, struct http_request *req);
/*
 * Close the connections and end the thread; the next request starts it again. Call it before a
 * process gives up rights, since each thread has rights of its own. No request may be in progress.
 */
void http_quiesce(struct http *h);

struct http_stats {
	uint64_t requests, retries, bytes;
	int64_t date; /* the latest Date of an answer; 0: none had one */
};
void http_stats(struct http *h, struct http_stats *ret);

#endif
