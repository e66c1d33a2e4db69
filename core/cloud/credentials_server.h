/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credentials_server.h - one question to a server that gives credentials.
 *
 * Each is asked by a client of its own, which ends with the answer: the client of a store never
 * waits for it, and no thread of it is left when the process gives up rights.
 */
#ifndef PYTREEFS_CORE_CLOUD_CREDENTIALS_SERVER_H
#define PYTREEFS_CORE_CLOUD_CREDENTIALS_SERVER_H

#include "core/http/http.h"
#include "core/cloud/credentials.h"

#define CREDENTIALS_PROGRESS_MS 5000
#define CREDENTIALS_MACHINE_MS 1000 /* of metadata: a machine that has none may not answer at all */

/* near: it is this machine, or one that no proxy may be asked for. */
int credentials_client(unsigned progress_ms, bool near, struct http **ret);

struct credentials_question {
	const char *name, *url;
	const char *method; /* NULL: GET */
	const char *header; /* "Name: value", a secret; NULL: none */
	const char *expect; /* as in struct http_request */
	struct span send;
	/* A word for a refusal, from the document that came with it; "": none. May be NULL. */
	void (*code)(struct span document, char *ret, size_t max);
};
/* -EACCES with a note. ret is appended to. */
int credentials_ask(struct http *h, struct credentials_question *q, struct buf *ret);
/* Whatever it was, there are no credentials; and that is what was wrong. */
int credentials_refused(int r, const char *what);

/* "Name: value", without white space at the end of the value; NULL: that is not one, or -ENOMEM. */
char *credentials_header(const char *name, struct span value);
/* Append "NAME=value" to a form. */
int credentials_form_add(struct buf *b, const char *name, struct span value);
/* A secret goes over https, in the clear to this machine, and to the hosts that are listed. */
bool credentials_may_go_to(const char *url, const char *const *host, size_t n_hosts);

#endif
