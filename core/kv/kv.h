/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv.h - key -> bytes: where arrays keep their metadata and chunks.
 *
 * zarr does not know where its keys live, and OCDBT does not know what its
 * values mean; they meet here. Keys are byte strings ("params.w/0.0").
 *
 * Reading functions may be called by several threads at once; a writing store
 * says what it allows.
 */
#ifndef PYTREEFS_KV_H
#define PYTREEFS_KV_H

#include "core/base/buf.h"
#include "core/io/io.h"

struct kv;
struct kv_stream;

enum kv_where {
	KV_ABSENT, /* no such key: for a chunk, the fill value */
	KV_INLINE, /* the bytes are in hand */
	KV_FILE,   /* a range of a file */
};

/* Where a value is. Zeroed it is absent; release with kv_loc_release(). */
struct kv_loc {
	enum kv_where where;
	uint64_t len;         /* bytes of the value */
	struct buf bytes;     /* KV_INLINE; owned */
	struct io_file *file; /* KV_FILE; counted, holds at least off + len bytes */
	uint64_t off;
	uint32_t tail; /* KV_FILE: bytes that follow in the file and may be a checksum (kv_sum.h) */
	bool has_sum;  /* KV_FILE: a table beside has its checksum (kv_table.h) */
	uint32_t sum;
};

struct kv_get {
	struct span key;   /* borrowed */
	uint64_t off, len; /* part of the value; len UINT64_MAX: to its end */
	struct buf *ret;   /* appended to; borrowed */
	bool found;        /* out */
};

/* key and len (bytes of the value); a non-zero return ends the listing and is its result. */
typedef int kv_each_fn(void *arg, struct span key, uint64_t len);

struct kv_ops {
	const char *name;
	/* Set ret[i] for each key; an absent key is not an error. */
	int (*locate)(struct kv *kv, const struct span *key, struct kv_loc *ret, size_t n);
	int (*list)(struct kv *kv, struct span prefix, kv_each_fn *each, void *arg);
	int (*put)(struct kv *kv, struct span key, struct span value); /* NULL: read-only */
	/* A value that is a range of a file, copied without coming through memory; NULL: read and
	 * put. */
	int (*put_file)(struct kv *kv, struct span key, struct io_file *from, uint64_t off,
			uint64_t len);
	/* A value that comes in pieces; NULL: gathered and put. */
	int (*put_open)(struct kv *kv, struct span key, struct kv_stream **ret);
	/* Where the value lies, as text for people: "inline:12" or "value:FILE:OFF:LEN". */
	int (*where_text)(struct kv *kv, struct span key, struct buf *ret);
	void (*close_files)(struct kv *kv); /* NULL: keeps none open */
	void (*free)(struct kv *kv);
};

/* A value on its way into a store, piece by piece. Of one thread. */
struct kv_stream_ops {
	int (*add)(struct kv_stream *s, struct span piece);
	/* Frees s on success. */
	int (*close)(struct kv_stream *s);
	void (*abort)(struct kv_stream *s);
};
struct kv_stream {
	const struct kv_stream_ops *ops;
};

struct kv {
	const struct kv_ops *ops;
	struct io_engine *io;  /* borrowed */
	char *name;            /* for messages and the trace; owned */
	atomic_uint more_refs; /* references beyond the first */
};

/* On failure nothing in ret needs a release. */
int kv_locate(struct kv *kv, const struct span *key, struct kv_loc *ret, size_t n);
void kv_loc_release(struct kv_loc *loc);
/*
 * Locate all, then read all in one batch. A range beyond the value's end is -EUCLEAN. A whole value
 * whose checksum follows it is compared with that: -EBADMSG.
 */
int kv_get(struct kv *kv, struct kv_get *get, size_t n);
/* One whole value: 1 found, 0 absent. -EFBIG above limit. */
int kv_get_all(struct kv *kv, struct span key, uint64_t limit, struct buf *ret);
/* Keys that begin with prefix. In ascending order from OCDBT; in no order from a directory. */
int kv_list(struct kv *kv, struct span prefix, kv_each_fn *each, void *arg);
/* -EROFS when the store cannot be written. */
int kv_put(struct kv *kv, struct span key, struct span value);
/* Copy a range of a file into the store. -EUCLEAN when the file is shorter. */
int kv_put_file(struct kv *kv, struct span key, struct io_file *from, uint64_t off, uint64_t len);
/* A value in pieces; a store that takes only whole ones gets it gathered. */
int kv_put_open(struct kv *kv, struct span key, struct kv_stream **ret);
int kv_stream_add(struct kv_stream *s, struct span piece);
/* On success the value is there and s is gone; on failure it is as before. */
int kv_stream_close(struct kv_stream *s);
/* Accepts NULL. */
void kv_stream_abort(struct kv_stream *s);
int kv_where_text(struct kv *kv, struct span key, struct buf *ret);
/* Close what is kept open for the next reader, who opens it again by name. */
void kv_close_files(struct kv *kv);
/* A store is counted: an open array and its decoders keep it beyond the item that opened it. */
struct kv *kv_ref(struct kv *kv);
/* Give one reference back; the last closes the store. Accepts NULL. */
void kv_free(struct kv *kv);

/* One file per key below a directory; keys that are not a safe path are absent. dir is taken. */
int kv_dir_open(struct io_dir *dir, struct kv **ret);
/* Values have the checksums that a table in the directory gives them (kv_table.h), which is read
 * when it is needed. */
void kv_dir_use_table(struct kv *kv);
/* In memory, for any number of threads but listing while somebody puts: for tests, and for leaves
 * inside a legacy aggregate file. io may be NULL without files. */
int kv_mem_new(struct io_engine *io, struct kv **ret);
/* What is put into it from now on is charged to the meter: before the first, for metadata. */
void kv_mem_meter(struct kv *kv);
/* A value that is a range of a file, which is counted. */
int kv_mem_put_file(struct kv *kv, struct span key, struct io_file *file, uint64_t off,
		    uint64_t len);

DEFINE_AUTO(kv, struct kv, kv_free);
DEFINE_AUTO(kv_stream, struct kv_stream, kv_stream_abort);
#define auto_kv_loc __attribute__((cleanup(kv_loc_release))) struct kv_loc

#endif
