/* SPDX-License-Identifier: Apache-2.0 */
/*
 * web_headers.h - the headers of http_headers=FILE, which every request to the web server of SOURCE
 * has. They may be secrets: no message has a part of them, and their memory is wiped.
 *
 * A line of the file is "Name: value", empty, or begins with '#'.
 */
#ifndef PYTREEFS_CORE_STORE_WEB_HEADERS_H
#define PYTREEFS_CORE_STORE_WEB_HEADERS_H

#include "core/remote/transport/http.h"

struct web_headers;

/* Read the file. -EACCES if others may read or change it; -EINVAL names the line. */
int web_headers_open(const char *path, struct web_headers **ret);
/* Accepts NULL. */
void web_headers_free(struct web_headers *w);
/*
 * Read the file again if it has changed, since tokens expire. What cannot be read is logged, and
 * the headers stay as they were.
 */
void web_headers_refresh(struct web_headers *w);
int web_headers_add(struct web_headers *w, struct http_headers *ret);
/* The file, and the directory in which another one may replace it. */
const char *web_headers_path(const struct web_headers *w);
const char *web_headers_dir(const struct web_headers *w);

#endif
