/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aws_metadata.h - credentials from a server: a container's, an instance's, or STS for a web
 * identity.
 */
#ifndef PYTREEFS_CORE_CLOUD_AWS_METADATA_H
#define PYTREEFS_CORE_CLOUD_AWS_METADATA_H

#include "core/remote/credentials/aws_credentials.h"

/* Whether the environment names a server of container credentials. */
bool aws_has_container(void);
/*
 * These functions wait for the server's answer. -EACCES with a note that names the server and the
 * reason. token_file has the token that authorizes the request; NULL: the environment may.
 */
int aws_ask_container(const char *token_file, struct credentials *ret);
/* Only version 2 of the instance's metadata service is used. */
int aws_ask_instance(struct credentials *ret);
struct aws_web_identity {
	const char *role, *session, *token_file, *region;
};
int aws_ask_web_identity(const struct aws_web_identity *who, struct credentials *ret);
/* Parse the JSON answer of a container's or an instance's server. No I/O. */
int aws_keys_parse(struct span text, const char *what, struct credentials *ret);

#endif
