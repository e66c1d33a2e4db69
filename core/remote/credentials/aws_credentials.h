/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aws_credentials.h - AWS credentials, found as AWS's own tools find them.
 *
 * In this order: AWS_ACCESS_KEY_ID and its companions; a web identity that the environment or the
 * profile names; the profile in the credentials file and in the config file; the container's
 * credentials; the instance's. Nothing here puts a secret into a message or a trace.
 */
#ifndef PYTREEFS_CORE_CLOUD_AWS_CREDENTIALS_H
#define PYTREEFS_CORE_CLOUD_AWS_CREDENTIALS_H

#include "core/remote/credentials/aws_profile.h"
#include "core/remote/credentials/credentials.h"

struct aws_credentials;

/* Reads the files, and sends no request yet. -EINVAL: AWS_PROFILE names a profile that does not
 * exist. */
int aws_credentials_new(struct aws_credentials **ret);
void aws_credentials_free(struct aws_credentials *c);
DEFINE_AUTO(aws_credentials, struct aws_credentials, aws_credentials_free);
/* The region and endpoint that the environment or the profile names, or NULL. */
const char *aws_region(const struct aws_credentials *c);
const char *aws_endpoint(const struct aws_credentials *c);
struct credentials_cache *aws_credentials_cache(struct aws_credentials *c);
/* The i-th file that is read again later; NULL after the last. */
const char *aws_credentials_file(const struct aws_credentials *c, size_t i);

#endif
