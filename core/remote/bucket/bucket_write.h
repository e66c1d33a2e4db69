/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket_write.h - how objects are written: the interface between the code that all vendors share
 * (bucket_write.c, object_upload.c) and the vendors' own (s3_write.c, gcs_write.c).
 */
#ifndef PYTREEFS_CORE_STORE_BUCKET_WRITE_H
#define PYTREEFS_CORE_STORE_BUCKET_WRITE_H

#include "core/remote/credentials/aws_sign.h"
#include "core/remote/bucket/bucket.h"
#include "core/remote/bucket/store_write.h"

#define ANSWER_BYTES (64 << 10)
#define PART_BYTES (8 * MiB)

/* A request that changes the bucket. */
struct bucket_request {
	struct http_request q;
	struct buf content;      /* the body, unless the caller owns it */
	struct buf lines;        /* headers, each terminated by a zero byte */
	char hash[AWS_HASH_MAX]; /* SHA-256 of the body if it is signed, else "" */
	bool without_keys;       /* the URL authorizes the request */
};

/* A part of an object while it is being sent. The caller owns the bytes. */
struct upload_part {
	struct bucket_request request;
	struct span bytes;
	uint64_t off;
	unsigned number; /* counted from 1 */
	bool is_last;
};

struct store_upload {
	struct store *s;
	char *path;
	size_t part_max;
	char *id; /* the vendor's id of the upload, or its URL, a secret; NULL: not begun */
	/*
	 * Set by the sender: the object must not exist, -EEXIST. Of an object in parts S3 does not
	 * check that; who removes the objects of a writer aborts its uploads first.
	 */
	bool is_new;
	bool exists; /* the object is complete */
	uint64_t size;
	uint32_t crc; /* CRC-32C of all parts so far, if they are sent in order */
	pthread_mutex_t lock;
	char **tag; /* S3: that of part i + 1, needed to complete the upload; by lock */
	size_t cap_tags;
};

struct bucket_write {
	size_t put_max; /* the largest object that one request may put */
	bool in_order;  /* parts must be sent one after the other */
	/* Complete a request that puts an object; if_tag as for store_put(). */
	int (*put)(struct store *s, const char *path, struct span content, const char *if_tag,
		   struct bucket_request *ret);
	/* Check the answer to it. NULL: its status says all. */
	int (*check_put)(const struct bucket_request *b);
	int (*remove)(struct store *s, const char *path, struct bucket_request *ret);
	int (*remove_uploads)(struct store *s,
			      const char *path); /* NULL: uploads cannot be listed */
	int (*begin)(struct store_upload *u);
	/* Send a part and wait until the server has it. */
	int (*part)(struct store_upload *u, struct upload_part *p);
	int (*end)(struct store_upload *u);
	void (*abort)(struct store_upload *u);
};

extern const struct bucket_write s3_write, gcs_write;

/* Prepare a request to a URL, which it takes, also on failure. */
int bucket_request(struct store *s, const char *path, const char *method, char *url,
		   struct bucket_request *ret);
/* Add a header. If memory is short, the request fails when its headers are added to a try. */
void bucket_request_line(struct bucket_request *b, const char *name, const char *value);
void bucket_request_release(struct bucket_request *b);
#define auto_bucket_request __attribute__((cleanup(bucket_request_release))) struct bucket_request
/* Send a request and wait for the answer. */
int bucket_send(struct store *s, struct bucket_request *b);
/*
 * Send a request for the metadata of one object; the caller waits for it, calls the dialect's
 * take_about(), and releases it. On failure nothing needs a release.
 */
int bucket_about_begin(struct store *s, const char *path, struct http_request *ret);
/* Look up one object by a request for its metadata. */
int bucket_about(struct store *s, const char *path, struct io_object *ret);
/*
 * Whether an object exists, in the same way: 1 or 0. What a listing shows may be older than the
 * last change of the bucket, so before something is removed or written on its word, ask for the
 * marker itself.
 */
int bucket_has(struct store *s, const char *path);
/* Add the header lines of a request. */
int bucket_add_lines(const struct bucket_request *b, struct http_headers *ret);

#endif
