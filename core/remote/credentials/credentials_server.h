/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credentials_server.h - one request to a server that issues credentials.
 *
 * Each request has a client of its own, which ends with the answer. So the client of a store never
 * waits for credentials, and no thread is left when the process gives up rights.
 */
#ifndef PYTREEFS_CORE_CLOUD_CREDENTIALS_SERVER_H
#define PYTREEFS_CORE_CLOUD_CREDENTIALS_SERVER_H

#include "core/remote/transport/http.h"
#include "core/remote/credentials/credentials.h"

#define CREDENTIALS_PROGRESS_MS 5000
#define CREDENTIALS_MACHINE_MS 1000 /* for metadata: outside the cloud no answer may come at all */

/* near: the server is one of this machine, which is asked without a proxy. */
int credentials_client(unsigned progress_ms, bool near, struct http **ret);

struct credentials_question {
	const char *name, *url;
	const char *method; /* NULL: GET */
	const char *header; /* "Name: value", a secret; NULL: none */
	const char *expect; /* as in struct http_request */
	struct span send;
	/* Find the error code in the document of a refusal; "": it has none. May be NULL. */
	void (*code)(struct span document, char *ret, size_t max);
};
/* Appends the answer to ret. -EACCES with a note. */
int credentials_ask(struct http *h, struct credentials_question *q, struct buf *ret);
/* Turn any error into -EACCES, with a note that says "no credentials" and the reason. */
int credentials_refused(int r, const char *what);

/* "Name: value", without white space at the end of the value; NULL: the value is not valid, or
 * memory is short. */
char *credentials_header(const char *name, struct span value);
/* Write a form: "NAME=value&NAME=value", with values in escapes. */
struct form_field {
	const char *name;
	struct span value;
};
int credentials_form(const struct form_field *field, size_t n, struct buf *ret);
/* Whether a secret may be sent to a URL: over https, to this machine, or to one of these hosts. */
bool credentials_may_go_to(const char *url, const char *const *host, size_t n_hosts);

#endif
