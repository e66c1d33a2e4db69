/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aws_metadata.h - credentials that a server gives: of a container, of an instance, for a web
 * identity.
 */
#ifndef PYTREEFS_CORE_CLOUD_AWS_METADATA_H
#define PYTREEFS_CORE_CLOUD_AWS_METADATA_H

#include "core/cloud/aws_credentials.h"

/* Whether the environment names one. */
bool aws_has_container(void);
/*
 * -EACCES with a note that says who was asked and why there are none. All wait. token_file: what
 * authorizes the question, or NULL.
 */
int aws_ask_container(const char *token_file, struct credentials *ret);
/* Version 2 of the instance's metadata alone. */
int aws_ask_instance(struct credentials *ret);
struct aws_web_identity {
	const char *role, *session, *token_file, *region;
};
int aws_ask_web_identity(const struct aws_web_identity *who, struct credentials *ret);
/* What a container or an instance answers: JSON. Pure. */
int aws_keys_parse(struct span text, const char *what, struct credentials *ret);

#endif
