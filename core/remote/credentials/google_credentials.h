/* SPDX-License-Identifier: Apache-2.0 */
/*
 * google_credentials.h - Google credentials, found as Google's own libraries find them (application
 * default credentials).
 *
 * In this order: the file that GOOGLE_APPLICATION_CREDENTIALS names; the file of `gcloud auth
 * application-default login`; the metadata server of the machine. Nothing here puts a secret into a
 * message or a trace.
 */
#ifndef PYTREEFS_CORE_CLOUD_GOOGLE_CREDENTIALS_H
#define PYTREEFS_CORE_CLOUD_GOOGLE_CREDENTIALS_H

#include "core/remote/credentials/credentials.h"

struct google_credentials;

/* Reads no file and sends no request yet. writes: the token has to allow writing. */
int google_credentials_new(bool writes, struct google_credentials **ret);
/* Accepts NULL. */
void google_credentials_free(struct google_credentials *c);
struct credentials_cache *google_credentials_cache(struct google_credentials *c);
/* The i-th file that is read again later; NULL after the last. */
const char *google_credentials_file(const struct google_credentials *c, size_t i);

#endif
