/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credentials.h - what proves who asks, as it is kept, and renewed before it expires.
 *
 * Where it comes from is the source's: aws_credentials.h, google_credentials.h.
 */
#ifndef PYTREEFS_CORE_CLOUD_CREDENTIALS_H
#define PYTREEFS_CORE_CLOUD_CREDENTIALS_H

#include <pthread.h>

#include "core/cloud/secret.h"

/* Keys to sign with, id and secret, or a token alone; NULL: not a part of it. */
struct credentials {
	char *id, *secret, *token;
	int64_t expires; /* seconds since 1970; 0: unknown, or never */
};
/* Copies; "" is as NULL. -ENOMEM. */
int credentials_of(const char *id, const char *secret, const char *token, struct credentials *ret);
void credentials_release(struct credentials *k);

struct credentials_source {
	/* Asks servers, and waits. -EACCES with a note when there are none. */
	int (*find)(void *arg, struct credentials *ret);
	/* Without asking anybody: 1, 0 when there are none, or an error. NULL: there never are. */
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
};

void credentials_cache_init(struct credentials_cache *c, const struct credentials_source *source,
			    void *arg);
void credentials_cache_release(struct credentials_cache *c);
/*
 * Find them, or renew those that will expire soon: asks servers, and waits. -EACCES with a note
 * when they are not to be had; ones that have not expired yet go on being used.
 */
int credentials_ensure(struct credentials_cache *c);
/* Copies. Does not wait. -EACCES before the first credentials_ensure(). */
int credentials_get(struct credentials_cache *c, struct credentials *ret);
/*
 * A server says that they have expired. True: there are others now, which were at hand. False: the
 * next credentials_ensure() asks for others. Does not wait.
 */
bool credentials_expired(struct credentials_cache *c);

#endif
