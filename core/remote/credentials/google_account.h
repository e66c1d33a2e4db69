/* SPDX-License-Identifier: Apache-2.0 */
/*
 * google_account.h - documents with Google's credentials: the files that its tools write, and the
 * answers of token endpoints.
 *
 * No I/O. Messages quote no value except the type of a file.
 */
#ifndef PYTREEFS_CORE_CLOUD_GOOGLE_ACCOUNT_H
#define PYTREEFS_CORE_CLOUD_GOOGLE_ACCOUNT_H

#include "core/remote/credentials/credentials.h"

enum google_kind { GOOGLE_SERVICE_ACCOUNT, GOOGLE_AUTHORIZED_USER };

/* All members that are listed for the kind of the file are set; the others are NULL. */
struct google_account {
	enum google_kind kind;
	char *token_uri;
	char *email, *private_key, *key_id;              /* of a service; key_id may be NULL */
	char *client_id, *client_secret, *refresh_token; /* of a user */
};

/*
 * Parse a file's text. -EINVAL with a note that names `what`: the text is malformed, lacks a member
 * of its kind, or is of an unknown kind. -ENOMEM.
 */
int google_account_parse(struct span text, const char *what, struct google_account *ret);
void google_account_release(struct google_account *a);
#define auto_google_account __attribute__((cleanup(google_account_release))) struct google_account
/* Parse the answer that a token endpoint or the metadata server gave at the time `now`. -EUCLEAN
 * with a note. */
int google_token_parse(struct span text, const char *what, int64_t now, struct credentials *ret);

#endif
