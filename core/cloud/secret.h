/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secret.h - keys and tokens: where they come from, whether they can be sent, and how they leave no
 * trace in memory.
 */
#ifndef PYTREEFS_CORE_CLOUD_SECRET_H
#define PYTREEFS_CORE_CLOUD_SECRET_H

#include "core/base/json_pull.h"

#define SECRET_FILE_BYTES (1 << 20)
#define SECRET_MAX 16384 /* of a key, a token, an endpoint */

/* Printable, without spaces, and not longer than SECRET_MAX: it may be sent in a header. */
bool secret_is_valid(struct span value);
/* Leaves no trace of it in memory. Accepts NULL. */
void secret_free(char *secret);
/* The same of a buffer, as buf_release(). */
void secret_release(struct buf *b);
#define auto_secret __attribute__((cleanup(secret_release))) struct buf
/* A member of a JSON object, and where its value goes. */
struct secret_member {
	const char *name;
	char **to;
};
/*
 * Read an object to its end: read() takes the value of each member that is among those n, with the
 * parser before it; others are skipped.
 */
int secret_pull_members(struct json_pull *p, const struct secret_member *member, size_t n,
			int (*read)(void *arg, struct json_pull *p, const struct secret_member *m),
			void *arg);
/* json_pull_release(), and the last string, which is in the parser, leaves no trace. */
void secret_pull_release(struct json_pull *p);
/* Of the environment; NULL when it is not set, or empty. */
const char *env_value(const char *name);
/* The text of a small file. -errno with a note; -EFBIG above SECRET_FILE_BYTES. */
int secret_read_file(const char *path, struct buf *ret);
/* A copy of its path from the root on: a mount leaves this directory. -ENOMEM. */
int secret_file_path(const char *path, char **ret);

#endif
