/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gcs_json.h - the documents of Google Cloud Storage: a page of a listing, what an object is, and
 * what comes with a failure.
 *
 * Pure: bytes of a server, which are hostile, to what they say. They are read value by value, so
 * that no document takes more memory than its longest string.
 */
#ifndef PYTREEFS_CORE_CLOUD_GCS_JSON_H
#define PYTREEFS_CORE_CLOUD_GCS_JSON_H

#include "core/cloud/bucket_page.h"

#define GCS_REASON_MAX 64

/* What objects.list answers. -EUCLEAN with a note, -ENOMEM, or what `each` returned. */
int gcs_parse_page(struct span text, bucket_entry_fn *each, void *arg, struct bucket_page *ret);
/* What objects.get answers; the tag is the generation. */
int gcs_parse_object(struct span text, struct io_object *ret);
/* The same, and the CRC-32C of its bytes, when it says that. */
int gcs_parse_written(struct span text, struct io_object *ret, bool *ret_has_crc,
		      uint32_t *ret_crc);
/*
 * The reason of a failure, of storage ("forbidden") or of OAuth 2 ("invalid_grant"); "": it does
 * not say. As much as the document, which may be truncated, says.
 */
void gcs_parse_error(struct span text, char *ret, size_t max);

#endif
