/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secret.h - keys and tokens: reading them, checking that they can be sent, and wiping them from
 * memory.
 */
#ifndef PYTREEFS_CORE_CLOUD_SECRET_H
#define PYTREEFS_CORE_CLOUD_SECRET_H

#include "core/base/json_pull.h"
#include "core/base/path.h"

#define SECRET_FILE_BYTES (1 << 20)
#define SECRET_MAX 16384 /* bytes of a key, a token or an endpoint */

/* Whether a value is printable, without spaces, and at most SECRET_MAX long, as a header needs. */
bool secret_is_valid(struct span value);
/* Wipe and free a string. Accepts NULL. */
void secret_free(char *secret);
/* Wipe and release a buffer. */
void secret_release(struct buf *b);
#define auto_secret __attribute__((cleanup(secret_release))) struct buf
DEFINE_AUTO(secret, char, secret_free);
/* A member of a JSON object, and where its value goes. */
struct secret_member {
	const char *name;
	char **to;
};
/*
 * Read an object to its end. read() is called for each of the n members with the parser before the
 * value, which it has to take; other members are skipped.
 */
int secret_pull_members(struct json_pull *p, const struct secret_member *member, size_t n,
			int (*read)(void *arg, struct json_pull *p, const struct secret_member *m),
			void *arg);
/* json_pull_release() that also wipes the last string, which the parser holds. */
void secret_pull_release(struct json_pull *p);
#define auto_secret_pull __attribute__((cleanup(secret_pull_release))) struct json_pull
/* Read an open file, which has at most max bytes (-EFBIG), into an empty buffer. */
int secret_read_fd(int fd, const char *path, size_t max, struct buf *ret);
/* The same with the path of a file: -errno with a note; -EFBIG above SECRET_FILE_BYTES. */
int secret_read_file(const char *path, struct buf *ret);

#endif
