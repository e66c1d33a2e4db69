/* SPDX-License-Identifier: Apache-2.0 */
/*
 * google_account.h - documents of who asks Google: the files that its tools write, and what is
 * answered to whom they name.
 *
 * Pure. No message quotes a value, but for the type of a file.
 */
#ifndef PYTREEFS_CORE_CLOUD_GOOGLE_ACCOUNT_H
#define PYTREEFS_CORE_CLOUD_GOOGLE_ACCOUNT_H

#include "core/cloud/credentials.h"

enum google_kind { GOOGLE_SERVICE_ACCOUNT, GOOGLE_AUTHORIZED_USER };

/* NULL: it does not say. A file of its kind has all that are named there. */
struct google_account {
	enum google_kind kind;
	char *token_uri;
	char *email, *private_key, *key_id;              /* of a service; key_id may be NULL */
	char *client_id, *client_secret, *refresh_token; /* of a user */
};

/*
 * A file's text. -EINVAL with a note that names what: it is not one, has not all of its kind, or is
 * of another kind; -ENOMEM.
 */
int google_account_parse(struct span text, const char *what, struct google_account *ret);
void google_account_release(struct google_account *a);
/* What a token endpoint or the metadata server answers at that time. -EUCLEAN with a note. */
int google_token_parse(struct span text, const char *what, int64_t now, struct credentials *ret);

#endif
