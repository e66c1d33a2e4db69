/* SPDX-License-Identifier: Apache-2.0 */
/*
 * url_store.h - sources with a URL: what core/io reads of them (io_store.h), over core/http.
 *
 *     http://HOST[:PORT]/PATH  https://...     any server with ranges; nothing can be listed there,
 * so a directory has those of the known names that exist
 */
#ifndef PYTREEFS_CORE_STORE_URL_STORE_H
#define PYTREEFS_CORE_STORE_URL_STORE_H

#include "core/io/io_store.h"

/* How to find what is in a directory of a server that cannot list. */
struct store_names {
	/* NULL ends it; "DIRECTORY/NAME" is looked for in both places. */
	const char *const *name;
	/* A document among them that names directories: add(arg, name) for each. */
	const char *document;
	int (*directories)(struct span text, int (*add)(void *arg, const char *name), void *arg);
};

struct store_opts {
	unsigned connections; /* 0: the default */
	struct store_names names;
};

/* Asks the server nothing yet. -EINVAL: not a URL of ours; -EOPNOTSUPP: not in this build. */
int store_open(const char *url, const struct store_opts *opts, struct io_store **ret);

#endif
