/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pytreefs.h - Orbax checkpoints without a mount: open, list, describe, read, read many, write.
 *
 * Names are those in a mount ("state/params/w.npy"), relative to the opened path, including views
 * ("w[0:512]@bfloat16.npy", "params.safetensors": `pytreefs help views`).
 *
 * Functions return 0 (or a count) on success and a negative errno on failure; pytreefs_error()
 * returns the message. On failure, outputs are unchanged, unless stated otherwise. Common codes:
 *
 *     -ENOENT      the name does not exist (a file that is missing on disk has another code)
 *     -EUCLEAN     stored bytes violate their format
 *     -EBADMSG     a checksum does not match
 *     -EINVAL      the arguments are not valid, or SOURCE is not a checkpoint
 *     -EOPNOTSUPP  well formed, but not implemented; the message names the feature
 *     -ECANCELED   a progress function or *cancel stopped the call
 *     -ECHILD      the handle was opened before fork(): open it again in the child
 *     -ESTALE      the checkpoint was replaced or removed since it was opened or described
 *
 * A handle of a root follows it: steps that are committed or deleted later are found or absent. A
 * handle of a step, an item or a part of one (also through `latest`) is of that very one: once it
 * was replaced or removed, calls fail with -ESTALE.
 *
 * Any number of threads may use a handle at once; close it when no thread uses it any more. Several
 * handles may be open. The library prints nothing and handles no signals. Strings are UTF-8.
 *
 * Structs that the library returns (trees, nodes, errors) may grow at the end in later versions.
 * Structs that the caller fills must be zeroed first, so that `reserved` is zero.
 */
#ifndef PYTREEFS_H
#define PYTREEFS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PYTREEFS_API __attribute__((visibility("default")))

struct pytreefs;
struct pytreefs_file;
struct pytreefs_tree;
struct pytreefs_draft;
struct pytreefs_writer;

/* The version of the linked library, such as "1.2.3". */
PYTREEFS_API const char *pytreefs_version(void);

/* ---- errors of the calling thread's last failed call ---- */

/* A sentence: what failed, the file, leaf and offset, and the values that disagree. */
PYTREEFS_API const char *pytreefs_error(void);
/* The name or path that was the subject of the call; "" for none. */
PYTREEFS_API const char *pytreefs_error_name(void);
/*
 * The negative errno, and the positive errno that a mount would return (EIO for malformed bytes).
 */
PYTREEFS_API int pytreefs_error_code(void);
PYTREEFS_API int pytreefs_error_errno(void);

/* ---- open ---- */

/*
 * Open a checkpoint: a root of steps, a step, an item, or a path into one ("ckpts/latest/state").
 * options: "cache=1G,threads=4", as for a mount (`pytreefs help options`); NULL for defaults; a
 * comma in a value is written "\,". The environment variable PYTREEFS_OPTIONS is used, too.
 */
PYTREEFS_API int pytreefs_open(const char *path, const char *options, struct pytreefs **ret);
/*
 * End the threads of a handle, free its memory, and close its files. Everything that was made from
 * it must be freed before. Accepts NULL. In the child of a fork, the handle is only forgotten.
 */
PYTREEFS_API void pytreefs_close(struct pytreefs *ck);

enum pytreefs_kind {
	PYTREEFS_UNKNOWN, /* a leaf that could not be described: see error and text */
	/* Leaves. */
	PYTREEFS_ARRAY,
	PYTREEFS_SCALAR, /* a number; ndim is 0, and dtype is the exact type */
	PYTREEFS_STRING,
	PYTREEFS_NONE,        /* None, or an empty namedtuple */
	PYTREEFS_PLACEHOLDER, /* saved as `...`: nothing is stored */
	PYTREEFS_PLUGIN,      /* a leaf of a plugin: text has the bytes of its file */
	/* Containers of a tree. */
	PYTREEFS_DICT = 16, /* text: NULL, or {"fields": [...]} if its keys are not sorted */
	PYTREEFS_LIST,
	PYTREEFS_TUPLE,
	PYTREEFS_NAMEDTUPLE, /* text: {"module": ..., "clazz": ..., "fields": [...]} */
	PYTREEFS_CUSTOM,     /* another Python type, of which only the keys are recorded */
	PYTREEFS_CONTAINER,  /* not recorded; most likely a dict */
	/* Above trees. */
	PYTREEFS_ROOT = 32, /* a directory of steps */
	PYTREEFS_STEP,      /* its children are items */
	PYTREEFS_OPAQUE,    /* an item that is not a tree: a directory of files */
	PYTREEFS_FILE,      /* any other file */
};

/*
 * Returns the kind of what was opened: PYTREEFS_ROOT, PYTREEFS_STEP, or the kind of a node of a
 * tree.
 */
PYTREEFS_API int pytreefs_kind(struct pytreefs *ck);

/* ---- names ---- */

struct pytreefs_entry {
	const char *name; /* as a mount lists it; borrowed for the call */
	int is_directory;
	int is_step;   /* the step number is the digits at the end of the name, or a fraction */
	uint64_t step; /* UINT64_MAX: none, too large, or with a fraction ("checkpoint_0.85") */
	uint64_t reserved[4];
};
/* A non-zero result ends the listing, which returns it. */
typedef int pytreefs_list_fn(void *arg, const struct pytreefs_entry *entry);
/* List the entries of a directory ("": what was opened), as in a mount, without "." and "..". */
PYTREEFS_API int pytreefs_list(struct pytreefs *ck, const char *name, pytreefs_list_fn *fn,
			       void *arg);
/* List the committed steps of a root, sorted by number. -EINVAL: it is not a root. */
PYTREEFS_API int pytreefs_steps(struct pytreefs *ck, pytreefs_list_fn *fn, void *arg);

struct pytreefs_stat {
	uint64_t size, stored; /* size of the file; size on disk */
	int64_t mtime_s;       /* commit time */
	uint32_t mtime_ns;
	uint32_t is_directory;
	uint64_t reserved[4];
};
PYTREEFS_API int pytreefs_stat(struct pytreefs *ck, const char *name, struct pytreefs_stat *ret);

/*
 * Get the value of user.pytree.ATTRIBUTE as JSON ("custom_metadata", "codecs", "leaf_count", ...).
 * Free it with pytreefs_free_text(). -ENODATA: the checkpoint does not record it.
 */
PYTREEFS_API int pytreefs_attribute(struct pytreefs *ck, const char *name, const char *attribute,
				    char **ret);
PYTREEFS_API void pytreefs_free_text(char *text);

/* ---- trees ---- */

enum pytreefs_key_kind {
	PYTREEFS_KEY_NONE,  /* the top */
	PYTREEFS_KEY_NAME,  /* a key of a dict, a field, or the name of an item */
	PYTREEFS_KEY_INDEX, /* a position in a sequence, as digits */
};

/* A node; borrowed from its tree. */
struct pytreefs_node {
	const char *path; /* relative to the name that was passed: "params/w.npy"; "" for the top */
	const char *name; /* the last name of path */
	/* key_size bytes of the unescaped key (which may contain NULs), followed by a NUL */
	const char *key;
	size_t key_size;
	enum pytreefs_key_kind key_kind;
	enum pytreefs_kind kind;
	size_t parent; /* index of its parent; SIZE_MAX for the top */
	size_t n_children;
	/* For ARRAY and SCALAR. */
	const char *dtype;   /* "bfloat16"; NULL for others */
	const char *typestr; /* as in an .npy header: "<f4", "<V2" */
	uint32_t item_size;
	uint32_t ndim;
	const uint64_t *shape, *chunk; /* ndim elements each; chunk: the unit that is decoded */
	uint64_t bytes;                /* of the elements, or of the text */
	uint64_t stored;               /* with PYTREEFS_TREE_STORED; else 0 */
	/*
	 * STRING: the string; SCALAR: JSON, with PYTREEFS_TREE_VALUES; NULL: not requested.
	 * UNKNOWN: the reason. A NUL follows.
	 */
	const char *text;
	size_t text_size;
	int error;            /* UNKNOWN: a negative errno */
	const char *recorded; /* the recorded type: "jax.Array", "int", ...; "" for none */
	/* of the item (or step) that it was described from: another one has another number */
	uint64_t version;
};

enum pytreefs_tree_flags {
	PYTREEFS_TREE_VALUES = 1 << 0, /* texts of strings and scalars */
	/* stored bytes, for which each leaf's chunks are looked up */
	PYTREEFS_TREE_STORED = 1 << 1,
};

/*
 * Get a node and all nodes below it, depth first, in the order of the tree. name: a step, an item,
 * a directory of a tree, or a leaf. Leaves that cannot be described are PYTREEFS_UNKNOWN.
 */
PYTREEFS_API int pytreefs_tree(struct pytreefs *ck, const char *name, unsigned flags,
			       struct pytreefs_tree **ret);
/*
 * As pytreefs_tree(), with the same nodes, but only those leaves are opened and described whose
 * index i, as of pytreefs_tree_node(), is one of these n. The indices increase; one that does not,
 * or that is not of a leaf, has no effect. index may be NULL when n is 0. Other leaves have their
 * path, key and recorded type, and are PYTREEFS_NONE or PYTREEFS_PLACEHOLDER as the tree records
 * it, else PYTREEFS_ARRAY with dtype NULL, even if they are strings or cannot be read. n = 0 gets
 * the names of a large tree, among which to choose.
 */
PYTREEFS_API int pytreefs_tree_leaves(struct pytreefs *ck, const char *name, unsigned flags,
				      const size_t *index, size_t n, struct pytreefs_tree **ret);
/*
 * Get a single node; for a view, its shape and dtype are those of the view. n_children is that of
 * the listing.
 */
PYTREEFS_API int pytreefs_describe(struct pytreefs *ck, const char *name,
				   struct pytreefs_tree **ret);
PYTREEFS_API size_t pytreefs_tree_count(const struct pytreefs_tree *tree);
/* Returns node i < count; 0 is the top. */
PYTREEFS_API const struct pytreefs_node *pytreefs_tree_node(const struct pytreefs_tree *tree,
							    size_t i);
PYTREEFS_API void pytreefs_tree_free(struct pytreefs_tree *tree);

/* ---- files: any name, as in a mount ---- */

PYTREEFS_API int pytreefs_file_open(struct pytreefs *ck, const char *name,
				    struct pytreefs_file **ret);
PYTREEFS_API uint64_t pytreefs_file_size(const struct pytreefs_file *f);
/* Returns the number of bytes: n, or fewer at the end of the file. */
PYTREEFS_API ssize_t pytreefs_file_read(struct pytreefs_file *f, void *p, size_t n,
					uint64_t offset);
PYTREEFS_API void pytreefs_file_close(struct pytreefs_file *f);
/* Open, read and close in one call. */
PYTREEFS_API ssize_t pytreefs_read(struct pytreefs *ck, const char *name, void *p, size_t n,
				   uint64_t offset);

/* ---- read many: elements of arrays, directly into memory ---- */

/*
 * `count` positions along an axis from `start` on, with a distance of step (>= 1). drop: remove the
 * axis from the result (count 1).
 */
struct pytreefs_slice {
	uint64_t start, step, count;
	int drop;
};

struct pytreefs_request {
	/*
	 * A leaf, or a view of one, with any extension. The elements are in C order, little-endian,
	 * without a header; a scalar is one element, and a string is its bytes.
	 */
	const char *name;
	/* one for each axis; NULL: all. Must be NULL if name has a box. */
	const struct pytreefs_slice *box;
	size_t n_box;
	const char *dtype; /* dtype of the result; NULL: as stored, or as in name */
	void *to;
	size_t size; /* exact size of the result in bytes */
	/*
	 * Bytes between adjacent elements along each axis of the result. They may be negative: `to`
	 * is the first element. NULL: C order, without gaps.
	 */
	const int64_t *strides;
	/* Results. */
	int result;  /* 0, or a negative errno, after which the contents of `to` are undefined */
	char *error; /* the reason; freed by pytreefs_requests_release() */
	/*
	 * The version of the node of which dtype and shape are known: when the item is another one
	 * by now, the request fails with -ESTALE. 0: whichever is there is read.
	 */
	uint64_t version;
	uint64_t reserved[3];
};

struct pytreefs_progress {
	/*
	 * Called in the calling thread, at least every 50 ms during a call, even inside large
	 * chunks, with the number of bytes of results, and with done == total at the end of a call
	 * that succeeds. total is 0 where there are no bytes. A non-zero result stops: the call
	 * returns -ECANCELED, and no thread accesses memory of requests any more.
	 */
	int (*fn)(void *arg, uint64_t done, uint64_t total);
	void *arg;
	/* Any thread may store a non-zero value there to stop. NULL: not used. */
	const int *cancel;
	uint64_t reserved[4];
};

/*
 * Read n requests. All processors share the chunks of all requests, in the order in which these are
 * in the data files; a chunk of several requests is decoded once. progress may be NULL. A failed
 * request does not stop the others; the result is that of the first failed one, or 0.
 */
PYTREEFS_API int pytreefs_read_many(struct pytreefs *ck, struct pytreefs_request *request, size_t n,
				    const struct pytreefs_progress *progress);
/* Free the errors of requests. */
PYTREEFS_API void pytreefs_requests_release(struct pytreefs_request *request, size_t n);

/* ---- maps: elements where they are stored, without a copy ---- */

/* A file in memory, private to the process, with a reference for each leaf that is in it. */
struct pytreefs_map;

struct pytreefs_mapped {
	const char *name; /* a leaf, or a view of one, with any extension */
	uint64_t version; /* as in struct pytreefs_request */
	/* Results. */
	/*
	 * 0: it is mapped. 1: there is nothing to map, since it has no elements, or so few that
	 * they are in the index of the database: read them. -EOPNOTSUPP: it cannot be mapped, and
	 * `error` says why: it is compressed, in several chunks, of another type or order of bytes,
	 * not stored, not aligned or not in a local file. Or another negative errno.
	 */
	int result;
	char *error;              /* freed by pytreefs_mapped_release() */
	struct pytreefs_map *map; /* a reference, until pytreefs_unmap() */
	void *at;                 /* the first element; little-endian, aligned up to 8 bytes */
	size_t size;              /* bytes to the end of the last element */
	int64_t strides[32];      /* in bytes, by axis of the result */
	uint64_t reserved[4];
};

enum pytreefs_map_flags {
	/*
	 * The memory may be written, which changes neither the file nor what others see (copy on
	 * write); without it, it is read-only.
	 */
	PYTREEFS_MAP_WRITE = 1 << 0,
};

/*
 * Map n leaves, each file once. A failed leaf does not stop the others; the result is that of the
 * first failed one, or 0. Maps remain valid after pytreefs_close(). Checksums are not compared. A
 * file that is truncated under a map raises SIGBUS where it is missing, as with every map; steps
 * are never changed by this program or by Orbax, only removed, which maps survive.
 */
PYTREEFS_API int pytreefs_map(struct pytreefs *ck, struct pytreefs_mapped *m, size_t n,
			      unsigned flags);
/* Drop a reference; the last one unmaps the file. Accepts NULL. */
PYTREEFS_API void pytreefs_unmap(struct pytreefs_map *map);
/* Free the errors, and drop the references, of n leaves. */
PYTREEFS_API void pytreefs_mapped_release(struct pytreefs_mapped *m, size_t n);

/*
 * Allocate memory for results: untouched, page-aligned, with large pages if possible. Pass the same
 * n to pytreefs_free(). NULL: not enough memory.
 */
PYTREEFS_API void *pytreefs_alloc(size_t n);
PYTREEFS_API void pytreefs_free(void *p, size_t n);

/* ---- write ---- */

#define PYTREEFS_DEPTH 200 /* the most parts that the key path of a leaf may have in an item */

/* One part of a key path. */
struct pytreefs_key {
	const char *key; /* unescaped */
	size_t size;
	enum pytreefs_key_kind kind;
};

/* One node to write. */
struct pytreefs_value {
	/*
	 * The path from the top of the draft, where that of a step begins with an item. n_keys 0
	 * (or 1 in a step): the item itself, which may be a bare leaf, or a container with a kind.
	 * Missing containers are created (dicts; lists for keys of kind PYTREEFS_KEY_INDEX).
	 */
	const struct pytreefs_key *key;
	size_t n_keys;
	/*
	 * ARRAY, SCALAR, STRING, NONE; DICT, LIST, TUPLE, NAMEDTUPLE: an empty container, or the
	 * kind of one with members; FILE: a file of a step, stored unchanged: with one key the only
	 * file of an item ("metrics.json"), with more one of an item whose attribute "kind" was set
	 * to opaque, of which each key is a name.
	 */
	enum pytreefs_kind kind;
	/* For ARRAY and SCALAR (ndim 0). */
	const char *dtype;
	size_t ndim;
	const uint64_t *shape;
	const int64_t *strides; /* in bytes; may be 0 or negative; NULL: C order */
	/*
	 * ARRAY, SCALAR: elements, little-endian; STRING: UTF-8; NAMEDTUPLE, DICT: the JSON of
	 * struct pytreefs_node, or NULL; FILE: its bytes.
	 */
	const void *data;
	size_t size; /* for STRING, NAMEDTUPLE, DICT and FILE */
	uint64_t reserved[4];
};

enum pytreefs_draft_flags {
	PYTREEFS_DRAFT_ITEM = 1 << 0,    /* the path is one tree; else a step with items */
	PYTREEFS_DRAFT_REPLACE = 1 << 1, /* the commit replaces an existing checkpoint */
};

/*
 * Begin to write a checkpoint at a path. options as in pytreefs_open()
 * ("compression=zstd:3,zarr=3,..."). Directories above it that are not there are made, and removed
 * without a commit; the checkpoint is not visible before that.
 */
PYTREEFS_API int pytreefs_draft_begin(const char *path, const char *options, unsigned flags,
				      struct pytreefs_draft **ret);
/*
 * One sentence: what the file system of the path does not promise of a commit (a mount of a
 * bucket). NULL: nothing. It is valid as long as d.
 */
PYTREEFS_API const char *pytreefs_draft_remark(const struct pytreefs_draft *d);
/*
 * Write n values, which all processors encode. Their memory is borrowed until the call returns.
 * After a failure, some values may have been written: abort the draft.
 */
PYTREEFS_API int pytreefs_draft_put(struct pytreefs_draft *d, const struct pytreefs_value *value,
				    size_t n, const struct pytreefs_progress *progress);
/*
 * Set the attribute user.pytree.ATTRIBUTE of a node that was written (n_keys 0: the step or item):
 * "kind", "custom_metadata", "save.compression", ... text is JSON, or a word.
 */
PYTREEFS_API int pytreefs_draft_attribute(struct pytreefs_draft *d, const struct pytreefs_key *key,
					  size_t n_keys, const char *attribute, const char *text);
/* Write an array piece by piece, in C order; value->data, strides and size are ignored. */
PYTREEFS_API int pytreefs_draft_stream(struct pytreefs_draft *d, const struct pytreefs_value *value,
				       struct pytreefs_writer **ret);
PYTREEFS_API int pytreefs_writer_write(struct pytreefs_writer *w, const void *p, size_t n);
/* End an array, or fail if it is incomplete. Frees w. */
PYTREEFS_API int pytreefs_writer_close(struct pytreefs_writer *w);
/*
 * Make the draft durable and visible, atomically, and free d. On failure nothing is visible, and
 * the draft is unchanged: write more, or abort it. progress is called with all bytes that were put.
 * A non-zero result ends the commit while values are still being encoded; later it has no effect.
 */
PYTREEFS_API int pytreefs_draft_commit(struct pytreefs_draft *d,
				       const struct pytreefs_progress *progress);
/* Remove the draft. Accepts NULL. Writers must be closed. */
PYTREEFS_API void pytreefs_draft_abort(struct pytreefs_draft *d);

/* ---- write a database of arrays, for a program that makes the checkpoint by itself ---- */

/* Elements of an array that are in memory. All is borrowed. */
struct pytreefs_part {
	const uint64_t *start, *shape; /* where they are in the array; whole chunks */
	const int64_t *strides;        /* in bytes, not negative; NULL: C order */
	const void *data;
	uint64_t reserved[2];
};

enum pytreefs_array_flags {
	/* other processes write other parts: compression=auto chooses by the dtype alone */
	PYTREEFS_ARRAY_SHARED = 1 << 0,
	PYTREEFS_ARRAY_NO_METADATA = 1 << 1, /* another one writes the metadata document */
};

struct pytreefs_stored_array {
	const char *name;         /* before the keys of its chunks: "params.w" */
	const char *dtype;        /* as it is stored */
	const char *memory_dtype; /* of the elements in memory; NULL: the same */
	size_t ndim;
	const uint64_t *shape, *chunk; /* of the whole array */
	const struct pytreefs_part *part;
	size_t n_parts;
	unsigned flags; /* enum pytreefs_array_flags */
	uint64_t reserved[2];
};

/*
 * Write an OCDBT database with n arrays: the directory `path`, which must not exist, as
 * STEP/ITEM/ocdbt.process_0 of a checkpoint that another program completes and merges. It is
 * durable when this returns; after a failure it does not exist. Of the options, those of memory and
 * threads are used, and compression=, zarr=, crc32c= and target_data_file_size=. With
 * the path "" and no arrays only the options are checked.
 */
PYTREEFS_API int pytreefs_database_write(const char *path, const char *options,
					 const struct pytreefs_stored_array *array, size_t n,
					 const struct pytreefs_progress *progress);

#ifdef __cplusplus
}
#endif

#endif
