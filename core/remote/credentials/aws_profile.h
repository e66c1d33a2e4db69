/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aws_profile.h - one profile of the files that AWS's own tools share: ~/.aws/config and
 * ~/.aws/credentials.
 */
#ifndef PYTREEFS_CORE_CLOUD_AWS_PROFILE_H
#define PYTREEFS_CORE_CLOUD_AWS_PROFILE_H

#include "core/base/buf.h"

/* A member is NULL when the files do not set it. */
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
 * Parse one profile of a file's text. Unknown lines are ignored. -EINVAL when no request can have a
 * value: the note has `what` and the number of the line, but not the value. -ENOMEM.
 */
int aws_profile_parse(struct span text, enum aws_file kind, const char *profile, const char *what,
		      struct aws_profile *ret);
void aws_profile_release(struct aws_profile *p);

#endif
