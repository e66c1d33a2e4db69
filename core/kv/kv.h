/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv.h - key -> bytes: the storage of array metadata and chunks.
 *
 * zarr does not know where its keys are stored, and OCDBT does not know what
 * its values mean; they meet here. Keys are byte strings ("params.w/0.0").
 *
 * Several threads may call the reading functions at once. Each store that can
 * be written says which calls it allows in parallel.
 */
#ifndef PYTREEFS_KV_H
#define PYTREEFS_KV_H

#include "core/base/buf.h"
#include "core/io/io.h"

struct kv;
struct kv_stream;

enum kv_where {
	KV_ABSENT, /* no such key; a chunk then consists of the fill value */
	KV_INLINE, /* the bytes are in memory */
	KV_FILE,   /* a range of a file */
};

/* Where a value is. Zeroed it is absent. Release with kv_loc_release(). */
struct kv_loc {
	enum kv_where where;
	uint64_t len;         /* size of the value in bytes */
	struct buf bytes;     /* KV_INLINE; owned */
	struct io_file *file; /* KV_FILE; a reference; has at least off + len bytes */
	uint64_t off;
	/* KV_FILE: number of bytes after the value, which may be a checksum (kv_sum.h) */
	uint32_t tail;
	bool has_sum; /* KV_FILE: a table has its checksum (kv_table.h), which is `sum` */
	uint32_t sum;
};

/* KV_INLINE: n bytes of the value from `at` on, which it must have. */
static inline struct span kv_loc_inline(const struct kv_loc *loc, uint64_t at, uint64_t n)
{
	return span_of(span_from(buf_span(&loc->bytes), (size_t)at).p, (size_t)n);
}

/* Read n bytes of a value that exists to p, from `at` on; it must have them. */
int kv_loc_read(const struct kv_loc *loc, uint64_t at, size_t n, void *p);

struct kv_get {
	struct span key;   /* borrowed */
	uint64_t off, len; /* part of the value; len UINT64_MAX: up to its end */
	struct buf *ret;   /* appended to; borrowed */
	bool found;        /* out */
};

/* len is the size of the value in bytes. A non-zero result ends the listing and is returned. */
typedef int kv_each_fn(void *arg, struct span key, uint64_t len);

struct kv_ops {
	const char *name;
	/* Set ret[i] for each key; an absent key is not an error. */
	int (*locate)(struct kv *kv, const struct span *key, struct kv_loc *ret, size_t n);
	int (*list)(struct kv *kv, struct span prefix, kv_each_fn *each, void *arg);
	int (*put)(struct kv *kv, struct span key, struct span value); /* NULL: read-only */
	/* Store a value piece by piece; NULL: collect the pieces and put. */
	int (*put_open)(struct kv *kv, struct span key, struct kv_stream **ret);
	/* Append the place of the value as text for people: "inline:12" or "value:FILE:OFF:LEN". */
	int (*where_text)(struct kv *kv, struct span key, struct buf *ret);
	void (*close_files)(struct kv *kv); /* NULL: keeps no file open */
	void (*free)(struct kv *kv);
};

/* A value that is stored piece by piece. Used by one thread at a time. */
struct kv_stream_ops {
	int (*add)(struct kv_stream *s, struct span piece);
	/* Frees s on success. */
	int (*close)(struct kv_stream *s);
	void (*abort)(struct kv_stream *s);
};
struct kv_stream {
	const struct kv_stream_ops *ops;
	/* Set by the opener when nobody has checked the bytes: the store adds no checksum. */
	bool unchecked;
};

struct kv {
	const struct kv_ops *ops;
	struct io_engine *io;  /* borrowed */
	char *name;            /* for messages and the trace; owned */
	atomic_uint more_refs; /* references beyond the first */
	bool no_list;          /* kv_list() does not know all keys: a server that cannot list */
	uint64_t raw_bytes;    /* set by kv_will_be_raw() */
	struct kv *below;      /* the store that it puts values into, if it is another's front */
};

/*
 * Values put from now on are elements as they are in memory, n bytes or a little more each: a store
 * may place them so that they can be mapped. 0: they are encoded. Nobody may put meanwhile.
 */
static inline void kv_will_be_raw(struct kv *kv, uint64_t n)
{
	for (; kv; kv = kv->below)
		kv->raw_bytes = n;
}

/* On failure nothing in ret needs a release. */
int kv_locate(struct kv *kv, const struct span *key, struct kv_loc *ret, size_t n);
void kv_loc_release(struct kv_loc *loc);
/*
 * Locate all keys, then read all values in one batch. A range beyond the value's end is -EUCLEAN. A
 * whole value that has a checksum is compared with it: -EBADMSG.
 */
int kv_get(struct kv *kv, struct kv_get *get, size_t n);
/* Read one whole value. Returns 1 when found, 0 when absent; -EFBIG above limit. */
int kv_get_all(struct kv *kv, struct span key, uint64_t limit, struct buf *ret);
/*
 * List the keys that begin with prefix: in ascending order from OCDBT, in no particular order from
 * a directory.
 */
int kv_list(struct kv *kv, struct span prefix, kv_each_fn *each, void *arg);
/* -EROFS when the store cannot be written. */
int kv_put(struct kv *kv, struct span key, struct span value);
/* Copies a stored value, or a part of it, into a store. */
struct kv_copying {
	const struct kv_loc *from; /* borrowed */
	uint64_t off, len;         /* the part */
	struct span tail;          /* stored after the part */
	/*
	 * The bytes are known to be right. Otherwise the store adds a checksum only if that of the
	 * source was compared, as it is for a part that lacks at most KV_SUM_REST bytes of the
	 * value: a new checksum would vouch for bytes that may be damaged.
	 */
	bool checked;
};
/* -EBADMSG: the value differs from its checksum; -EUCLEAN: its file is shorter. Nothing is put. */
int kv_copy(struct kv *kv, struct span key, const struct kv_copying *copying);
/*
 * Begin a value that is added piece by piece. For a store that takes only whole values, the pieces
 * are collected in memory.
 */
int kv_put_open(struct kv *kv, struct span key, struct kv_stream **ret);
int kv_stream_add(struct kv_stream *s, struct span piece);
/*
 * Store the value. Frees *s and sets it to NULL on success; on failure it is unchanged and must be
 * aborted.
 */
int kv_stream_close(struct kv_stream **s);
/* Accepts NULL. */
void kv_stream_abort(struct kv_stream *s);
int kv_where_text(struct kv *kv, struct span key, struct buf *ret);
/* Close files that are kept open for later reads, which open them again by name. */
void kv_close_files(struct kv *kv);
/*
 * Take a reference: an open array and its decoders keep the store beyond the item that opened it.
 */
struct kv *kv_ref(struct kv *kv);
/* Drop a reference; the last one closes the store. Accepts NULL. */
void kv_free(struct kv *kv);

/*
 * One file per key below a directory. Keys that are not safe relative paths are absent. Takes dir.
 */
int kv_dir_open(struct io_dir *dir, struct kv **ret);
/* The same of the directory rel in dir, which is not taken; -ENOENT: there is none. */
int kv_dir_open_in(struct io_dir *dir, const char *rel, struct kv **ret);
/*
 * Compare values with the checksums of a table in the directory (kv_table.h), which is read when it
 * is first needed.
 */
void kv_dir_use_table(struct kv *kv);
/*
 * A store in memory, for tests and for leaves inside a legacy aggregate file. Any thread may call,
 * but nobody may put during a listing. io may be NULL when no value is in a file.
 */
int kv_mem_new(struct io_engine *io, struct kv **ret);
/*
 * Charge everything that is put from now on to the meter. Called before the first put of metadata.
 */
void kv_mem_meter(struct kv *kv);
/* Put a value that is a range of a file; takes a reference to the file. */
int kv_mem_put_file(struct kv *kv, struct span key, struct io_file *file, uint64_t off,
		    uint64_t len);
/* The same with the CRC-32C of the value, which readers compare. */
int kv_mem_put_summed(struct kv *kv, struct span key, struct io_file *file, uint64_t off,
		      uint64_t len, uint32_t sum);

DEFINE_AUTO(kv, struct kv, kv_free);
DEFINE_AUTO(kv_stream, struct kv_stream, kv_stream_abort);
#define auto_kv_loc __attribute__((cleanup(kv_loc_release))) struct kv_loc

#endif
