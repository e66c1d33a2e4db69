/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aws_sign.h - AWS Signature Version 4, by which S3 and servers like it know the sender of a
 * request.
 *
 * Pure: no clock, no environment, no request. The caller passes the request exactly as it is sent:
 * path and query are escaped, and the query's parameters are sorted by their bytes.
 */
#ifndef PYTREEFS_CORE_CLOUD_AWS_SIGN_H
#define PYTREEFS_CORE_CLOUD_AWS_SIGN_H

#include <time.h>

#include "core/base/buf.h"

/* The hash of an empty body. */
#define AWS_EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

#define AWS_TIME_MAX 20 /* "20130524T000000Z" */

struct aws_header {
	const char *name; /* in small letters */
	const char *value;
};

struct aws_request {
	const char *method, *path, *query; /* "GET", "/a%20b", "delimiter=%2F&prefix=" or "" */
	const struct aws_header *header; /* the signed headers, sorted by name; must include host */
	size_t n_headers;
	const char *body_hash; /* as sent in x-amz-content-sha256 */
	const char *time;      /* as sent in x-amz-date */
	const char *region, *service;
	const char *key_id, *secret;
};

#define AWS_HASH_MAX 65
/*
 * The SHA-256 of a body, as x-amz-content-sha256 has it. libcrypto uses the processor's SHA
 * instructions, and is several times as fast as core/base/digest.h. -ENOMEM.
 */
int aws_body_hash(struct span body, char ret[AWS_HASH_MAX]);

void aws_time(time_t t, char ret[AWS_TIME_MAX]);
/* Append the value of the header Authorization. -ENOMEM. */
int aws_authorization(const struct aws_request *q, struct buf *ret);

#endif
