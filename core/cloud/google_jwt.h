/* SPDX-License-Identifier: Apache-2.0 */
/*
 * google_jwt.h - what a service account proves itself with: a JSON Web Token, signed by RS256.
 *
 * Pure: no clock, no environment, no request.
 */
#ifndef PYTREEFS_CORE_CLOUD_GOOGLE_JWT_H
#define PYTREEFS_CORE_CLOUD_GOOGLE_JWT_H

#include "core/cloud/google_account.h"

/*
 * Append a JSON Web Signature (RFC 7515) of that header and payload, in its compact form, with a
 * private RSA key in PEM. -EINVAL with a note: that is not one; -ENOMEM.
 */
int jws_rs256(const char *key, struct span header, struct span payload, struct buf *ret);
/* Append what a service account asks its token endpoint with at that time, for that scope. */
int google_assertion(const struct google_account *a, const char *scope, int64_t now,
		     struct buf *ret);

#endif
