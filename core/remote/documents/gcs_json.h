/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gcs_json.h - the documents of Google Cloud Storage: a page of a listing, the metadata of
 * an object, and an error.
 *
 * No I/O: these functions parse hostile bytes of a server. Documents are read value by value, so
 * that none takes more memory than its longest string.
 */
#ifndef PYTREEFS_CORE_CLOUD_GCS_JSON_H
#define PYTREEFS_CORE_CLOUD_GCS_JSON_H

#include "core/remote/documents/bucket_page.h"

#define GCS_REASON_MAX 64

/* Parse the answer of objects.list. -EUCLEAN with a note, -ENOMEM, or what `each` returned. */
int gcs_parse_page(struct span text, bucket_entry_fn *each, void *arg, struct bucket_page *ret);
/* Parse the answer of objects.get; the tag is the generation. */
int gcs_parse_object(struct span text, struct io_object *ret);
/* The same, with the CRC-32C of the object's bytes if the answer has it. */
int gcs_parse_written(struct span text, struct io_object *ret, bool *ret_has_crc,
		      uint32_t *ret_crc);
/*
 * The reason of an error of storage ("forbidden") or of OAuth 2 ("invalid_grant"), or "". The
 * document may be truncated.
 */
void gcs_parse_error(struct span text, char *ret, size_t max);

#endif
