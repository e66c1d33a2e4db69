/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credentials.h - a cache of credentials, which renews them before they expire.
 *
 * A source finds them: aws_credentials.h, google_credentials.h.
 */
#ifndef PYTREEFS_CORE_CLOUD_CREDENTIALS_H
#define PYTREEFS_CORE_CLOUD_CREDENTIALS_H

#include <pthread.h>

#include "core/remote/transport/secret.h"

/* Either id and secret, to sign with, and maybe a token; or a token only. Others are NULL. */
struct credentials {
	char *id, *secret, *token;
	int64_t expires; /* seconds since 1970; 0: unknown, or they do not expire */
};
/* Copies the texts; "" counts as NULL. -ENOMEM. */
int credentials_of(const char *id, const char *secret, const char *token, struct credentials *ret);
void credentials_release(struct credentials *k);
#define auto_credentials __attribute__((cleanup(credentials_release))) struct credentials

struct credentials_source {
	/* Asks servers, and waits. -EACCES with a note when no credentials are found. */
	int (*find)(void *arg, struct credentials *ret);
	/* Looks without a request. 1: found; 0: not found; or an error. May be NULL. */
	int (*find_at_hand)(void *arg, struct credentials *ret);
};

struct credentials_cache {
	const struct credentials_source *source;
	void *arg;
	pthread_mutex_t finding;
	pthread_mutex_t lock; /* protects what follows */
	struct credentials keys;
	int64_t renew_at, replaced_at; /* seconds since 1970; 0: never */
	bool is_found, is_expired;
	bool is_suspected; /* credentials_suspect() was called for these keys */
};

void credentials_cache_init(struct credentials_cache *c, const struct credentials_source *source,
			    void *arg);
void credentials_cache_release(struct credentials_cache *c);
/*
 * Find credentials, or renew those that will expire soon: asks servers, and waits. -EACCES with a
 * note on failure; 0 if the old ones have not expired: then they stay in use.
 */
int credentials_ensure(struct credentials_cache *c);
/* Copy the current credentials. Does not wait. -EACCES before the first credentials_ensure(). */
int credentials_get(struct credentials_cache *c, struct credentials *ret);
/*
 * Report that a server called the credentials expired. True: others have been found without a
 * request. False: the next credentials_ensure() asks for others. Does not wait.
 */
bool credentials_expired(struct credentials_cache *c);
/*
 * Report that a server refused a request without a reason, which may be that the credentials have
 * expired. True: that is possible, and they are renewed if their source answers: temporary ones,
 * and once until they are replaced. *ret_others is what credentials_expired() returns.
 */
bool credentials_suspect(struct credentials_cache *c, bool *ret_others);

#endif
