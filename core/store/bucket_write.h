/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket_write.h - how objects are written, between what all vendors share (bucket_write.c,
 * object_upload.c) and what differs (s3_write.c, gcs_write.c).
 */
#ifndef PYTREEFS_CORE_STORE_BUCKET_WRITE_H
#define PYTREEFS_CORE_STORE_BUCKET_WRITE_H

#include "core/cloud/aws_sign.h"
#include "core/store/bucket.h"
#include "core/store/store_write.h"

#define ANSWER_BYTES (64 << 10)
#define PART_BYTES (8 * MiB)

/* A request that changes something. */
struct bucket_request {
	struct http_request q;
	struct buf content;      /* what is sent, unless the caller has it */
	struct buf lines;        /* headers, each ended by a zero */
	char hash[AWS_HASH_MAX]; /* of what is sent, where it is signed; "" */
	bool without_keys;       /* its URL proves enough */
};

/* A part of an object while it is being sent. The caller owns the bytes. */
struct upload_part {
	struct bucket_request request;
	struct span bytes;
	uint64_t off;
	unsigned number; /* from 1 on */
	bool is_last;
};

struct store_upload {
	struct store *s;
	char *path;
	size_t part_max;
	char *id; /* the vendor's: of the upload, or its URL, which is a secret; NULL: not begun */
	bool exists; /* the object is there */
	uint64_t size;
	uint32_t crc; /* CRC-32C of all parts so far, where they are sent in order */
	pthread_mutex_t lock;
	char **tag; /* S3: the tag of part i + 1, which the end needs; protected by lock */
	size_t cap_tags;
};

struct bucket_write {
	size_t put_max; /* bytes that one request may put */
	bool in_order;  /* one part after the other */
	/* Complete a request that puts an object. */
	int (*put)(struct store *s, const char *path, struct span content, bool only_new,
		   struct bucket_request *ret);
	int (*remove)(struct store *s, const char *path, struct bucket_request *ret);
	int (*remove_uploads)(struct store *s, const char *path); /* NULL: none can be asked for */
	int (*begin)(struct store_upload *u);
	/* Send a part and wait until the server has it. */
	int (*part)(struct store_upload *u, struct upload_part *p);
	int (*end)(struct store_upload *u);
	void (*abort)(struct store_upload *u);
};

extern const struct bucket_write s3_write, gcs_write;

/* A request to a URL, which becomes the request's, also on failure. */
int bucket_request(struct store *s, const char *path, const char *method, char *url,
		   struct bucket_request *ret);
int bucket_request_line(struct bucket_request *b, const char *name, const char *value);
void bucket_request_release(struct bucket_request *b);
#define auto_bucket_request __attribute__((cleanup(bucket_request_release))) struct bucket_request
int bucket_submit(struct store *s, struct bucket_request *b);
/* Sent again where what authorized it had expired. */
int bucket_wait(struct store *s, struct bucket_request *b);
/* Both. */
int bucket_send(struct store *s, struct bucket_request *b);
/* What an object is, asked of itself. */
int bucket_about(struct store *s, const char *path, struct io_object *ret);
/* Adds the lines of a request. */
int bucket_add_lines(const struct bucket_request *b, struct http_headers *ret);

#endif
