/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_s3.h - one opened bucket, between what it is and who asks (store_s3.c), and what is in it
 * (s3_look.c).
 */
#ifndef PYTREEFS_CORE_STORE_STORE_S3_H
#define PYTREEFS_CORE_STORE_STORE_S3_H

#include <pthread.h>

#include "core/store/aws_credentials.h"
#include "core/store/s3_place.h"
#include "core/store/url_store_impl.h"

struct s3 {
	struct s3_place place;
	struct aws_credentials *credentials;
	pthread_mutex_t lock; /* protects what follows */
	char *last_within;    /* the directory in whose directories names were looked for last */
};

static inline struct s3 *s3_of(const struct store *s)
{
	return s->own;
}

/* Of struct store_kind. */
int s3_fetch(struct store *s, const char *path, struct object_list **ret);
int s3_look(struct store *s, const char *path, struct io_object *ret);
int s3_reach(struct store *s, const char *path, size_t *ret);

#endif
