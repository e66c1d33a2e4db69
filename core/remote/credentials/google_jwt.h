/* SPDX-License-Identifier: Apache-2.0 */
/*
 * google_jwt.h - JSON Web Tokens of service accounts, signed by RS256.
 *
 * No I/O: no clock, no environment, no request.
 */
#ifndef PYTREEFS_CORE_CLOUD_GOOGLE_JWT_H
#define PYTREEFS_CORE_CLOUD_GOOGLE_JWT_H

#include "core/remote/credentials/google_account.h"

/*
 * Append a JSON Web Signature (RFC 7515) of that header and payload, in its compact form, with a
 * private RSA key in PEM. -EINVAL with a note when the key is not one; -ENOMEM.
 */
int jws_rs256(const char *key, struct span header, struct span payload, struct buf *ret);
/* Append the assertion for which a token endpoint issues a token of this scope at time `now`. */
int google_assertion(const struct google_account *a, const char *scope, int64_t now,
		     struct buf *ret);

#endif
