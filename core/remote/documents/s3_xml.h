/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3_xml.h - the documents of S3 and STS: a page of a listing, an error, uploads, and keys.
 *
 * No I/O: these functions parse hostile bytes of a server. A document with a document type, with
 * elements nested too deeply, or with a malformed value is refused.
 */
#ifndef PYTREEFS_CORE_CLOUD_S3_XML_H
#define PYTREEFS_CORE_CLOUD_S3_XML_H

#include "core/remote/documents/bucket_page.h"

#define S3_CODE_MAX 64
#define S3_REGION_MAX 64

/* A ListBucketResult of version 2. -EUCLEAN with a note, -ENOMEM, or what `each` returned. */
int s3_parse_page(struct span text, bucket_entry_fn *each, void *arg, struct bucket_page *ret);

/* The parts of an error document; "" for those that it does not have. */
struct s3_error {
	char code[S3_CODE_MAX];
	char region[S3_REGION_MAX];
	char time[S3_REGION_MAX]; /* of the server */
};
/* Parse an error document, which may be truncated. A value with unexpected characters is left out.
 */
void s3_parse_error(struct span text, struct s3_error *ret);

/* The id of an upload in parts that has begun. -EUCLEAN with a note, -ENOMEM. */
int s3_parse_upload(struct span text, struct buf *ret_id);
/* One page of the uploads that were begun and neither completed nor aborted. */
typedef int s3_upload_fn(void *arg, struct span key, struct span id);
int s3_parse_uploads(struct span text, s3_upload_fn *each, void *arg, bool *ret_is_truncated);

/* The keys in the answer of STS to AssumeRoleWithWebIdentity. Release with sts_keys_release(). */
struct sts_keys {
	struct buf id, secret, token;
	int64_t expires; /* seconds since 1970 */
};
/* -EUCLEAN with a note that quotes nothing, or -ENOMEM. */
int sts_parse_keys(struct span text, struct sts_keys *ret);
void sts_keys_release(struct sts_keys *k);
#define auto_sts_keys __attribute__((cleanup(sts_keys_release))) struct sts_keys

#endif
