/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aws_credentials.h - who asks, as AWS's own tools find it, renewed before it expires.
 *
 * In this order: AWS_ACCESS_KEY_ID and its companions; a web identity that the environment or the
 * profile names; the profile in the credentials file and in the config file; the container's
 * credentials; the instance's. Nothing here puts a secret into a message or a trace.
 */
#ifndef PYTREEFS_CORE_STORE_AWS_CREDENTIALS_H
#define PYTREEFS_CORE_STORE_AWS_CREDENTIALS_H

#include "core/store/aws_profile.h"

struct aws_keys {
	char *id, *secret, *token; /* token: NULL without one */
	int64_t expires;           /* seconds since 1970; 0: unknown, or never */
};
void aws_keys_release(struct aws_keys *k);

struct aws_credentials;

/* Reads the files, and asks nobody yet. -EINVAL: AWS_PROFILE names a profile that does not exist. */
int aws_credentials_new(struct aws_credentials **ret);
void aws_credentials_free(struct aws_credentials *c);
/* Where requests go, by the environment and the profile; NULL: nothing says. */
const char *aws_region(const struct aws_credentials *c);
const char *aws_endpoint(const struct aws_credentials *c);
/*
 * Find them, or renew those that will expire soon: asks servers, and waits. -EACCES with a note
 * when they are not to be had; ones that have not expired yet go on being used.
 */
int aws_credentials_ensure(struct aws_credentials *c);
/* Copies. Does not wait. -EACCES before the first aws_credentials_ensure(). */
int aws_credentials_get(struct aws_credentials *c, struct aws_keys *ret);
/*
 * A server says that they have expired. True: there are others now, which only files have at once.
 * False: the next aws_credentials_ensure() asks for others. Does not wait.
 */
bool aws_credentials_expired(struct aws_credentials *c);
/* The i-th file that is read again later; NULL after the last. */
const char *aws_credentials_file(const struct aws_credentials *c, size_t i);

#endif
