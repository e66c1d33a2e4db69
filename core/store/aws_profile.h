/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aws_profile.h - one profile of the files that AWS's own tools share: ~/.aws/config and
 * ~/.aws/credentials.
 */
#ifndef PYTREEFS_CORE_STORE_AWS_PROFILE_H
#define PYTREEFS_CORE_STORE_AWS_PROFILE_H

#include "core/base/buf.h"

#define AWS_FILE_BYTES (1 << 20)
#define AWS_VALUE_MAX 16384 /* of a key, a token, an endpoint */

/* NULL: it does not say. */
struct aws_profile {
	bool found;
	char *key_id, *secret, *token;
	char *region, *endpoint;
	char *role, *session, *token_file; /* of a web identity */
	char *other; /* another way to credentials, which is not followed: "sso_session",
			"credential_process" */
};

/* In the config file a section is "[profile NAME]" or "[default]", in the other "[NAME]". */
enum aws_file { AWS_CREDENTIALS_FILE, AWS_CONFIG_FILE };

/*
 * What the file's text says of a profile. Lines that are not understood are passed over. -EINVAL
 * with a note that names what and the line of a value that no request can have, and not the value;
 * -ENOMEM.
 */
int aws_profile_parse(struct span text, enum aws_file kind, const char *profile, const char *what,
		      struct aws_profile *ret);
void aws_profile_release(struct aws_profile *p);
/* Printable, without spaces, and not longer than AWS_VALUE_MAX: it may be sent in a header. */
bool aws_value_is_valid(struct span value);
/* Leaves no trace of it in memory. Accepts NULL. */
void aws_secret_free(char *secret);
/* The same of a buffer, as buf_release(). */
void aws_secret_release(struct buf *b);
#define auto_secret __attribute__((cleanup(aws_secret_release))) struct buf
/* Of the environment; NULL when it is not set, or empty. */
const char *aws_variable(const char *name);
/* The text of a small file. -errno with a note; -EFBIG above AWS_FILE_BYTES. */
int aws_read_file(const char *path, struct buf *ret);

#endif
