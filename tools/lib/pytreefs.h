/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pytreefs.h - Orbax checkpoints without a mount: open, list, describe, read, read many, write.
 *
 * A name is what a mount would show ("state/params/w.npy"), relative to what was opened; views too
 * ("w[0:512]@bfloat16.npy", "params.safetensors": `pytreefs help views`).
 *
 * Functions return 0 (or a count) on success and a negative errno on failure; pytreefs_error() has
 * the sentence. Outputs are untouched on failure, unless it says otherwise. Codes with a meaning:
 *
 *     -ENOENT      the name is not there (what is missing on the disk is another code)
 *     -EUCLEAN     stored bytes break their format      -EBADMSG     a checksum does not match
 *     -EINVAL      the call makes no sense, or SOURCE is not a checkpoint
 *     -EOPNOTSUPP  well formed, but not implemented; the text names the feature
 *     -ECANCELED   a progress function or *cancel said so
 *     -ECHILD      the handle was opened before fork(): open it again in the child
 *
 * Handles may be used by any number of threads at once; a handle is closed when nobody uses it.
 * Several handles may be open. Nothing is printed, no signal is handled. Strings are UTF-8.
 *
 * What the library returns (trees, nodes, errors) may grow at its end in later versions; structs
 * that the caller fills must be zeroed first, so that `reserved` is zero.
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

/* Of the library that is linked, such as "1.2.3". */
PYTREEFS_API const char *pytreefs_version(void);

/* ---- errors: of the calling thread's last call that failed ---- */

/* A sentence: what failed, the file, leaf and offset, and the values that disagree. */
PYTREEFS_API const char *pytreefs_error(void);
/* The name or path that the call was about; "" when there is none. */
PYTREEFS_API const char *pytreefs_error_name(void);
/* Its negative errno; and the positive errno that a mount gives for it (EIO for broken bytes). */
PYTREEFS_API int pytreefs_error_code(void);
PYTREEFS_API int pytreefs_error_errno(void);

/* ---- open ---- */

/*
 * Open a checkpoint: a root of steps, a step, an item, or a path into one ("ckpts/latest/state").
 * options: "cache=1G,threads=4", those of a mount (`pytreefs help options`); NULL for defaults; a
 * comma in a value is written "\,". PYTREEFS_OPTIONS of the environment counts, too.
 */
PYTREEFS_API int pytreefs_open(const char *path, const char *options, struct pytreefs **ret);
/* Ends its threads, frees its memory, closes its files. All that was made from it must be freed
 * before. Accepts NULL. In the child of a fork it only forgets the handle. */
PYTREEFS_API void pytreefs_close(struct pytreefs *ck);

enum pytreefs_kind {
	PYTREEFS_UNKNOWN, /* a leaf that could not be described: error and text say why */
	/* Leaves. */
	PYTREEFS_ARRAY,
	PYTREEFS_SCALAR, /* a number; ndim is 0, dtype the exact one */
	PYTREEFS_STRING,
	PYTREEFS_NONE,        /* None, or an empty namedtuple */
	PYTREEFS_PLACEHOLDER, /* saved as `...`: nothing is stored */
	PYTREEFS_PLUGIN,      /* a leaf of a plugin: text is the bytes of its file */
	/* Containers of a tree. */
	PYTREEFS_DICT = 16,
	PYTREEFS_LIST,
	PYTREEFS_TUPLE,
	PYTREEFS_NAMEDTUPLE, /* text: {"module": ..., "clazz": ..., "fields": [...]} */
	PYTREEFS_CUSTOM,     /* another Python type, of which only the keys are known */
	PYTREEFS_CONTAINER,  /* not recorded; most likely a dict */
	/* Around trees. */
	PYTREEFS_ROOT = 32, /* a directory of steps */
	PYTREEFS_STEP,      /* items are its children */
	PYTREEFS_OPAQUE,    /* an item that is not a tree: a directory of files */
	PYTREEFS_FILE,      /* any other file */
};

/* What was opened: PYTREEFS_ROOT, PYTREEFS_STEP, or the kind of the tree's node that it is. */
PYTREEFS_API int pytreefs_kind(struct pytreefs *ck);

/* ---- names ---- */

struct pytreefs_entry {
	const char *name; /* as a mount lists it; borrowed for the call */
	int is_directory;
	int is_step;   /* step numbers are the digits at a name's end */
	uint64_t step; /* UINT64_MAX: none, or too large */
	uint64_t reserved[4];
};
/* A non-zero return ends the listing and is its result. */
typedef int pytreefs_list_fn(void *arg, const struct pytreefs_entry *entry);
/* The entries of a directory ("": what was opened), as a mount lists them; "." and ".." not. */
PYTREEFS_API int pytreefs_list(struct pytreefs *ck, const char *name, pytreefs_list_fn *fn,
			       void *arg);
/* The committed steps of a root, by number. -EINVAL when it is not a root. */
PYTREEFS_API int pytreefs_steps(struct pytreefs *ck, pytreefs_list_fn *fn, void *arg);

struct pytreefs_stat {
	uint64_t size, stored; /* bytes of the file; bytes on the disk */
	int64_t mtime_s;       /* of the commit */
	uint32_t mtime_ns;
	uint32_t is_directory;
	uint64_t reserved[4];
};
PYTREEFS_API int pytreefs_stat(struct pytreefs *ck, const char *name, struct pytreefs_stat *ret);

/*
 * A value of user.pytree.ATTRIBUTE as JSON ("custom_metadata", "codecs", "leaf_count", ...), to be
 * freed with pytreefs_free_text(). -ENODATA: the checkpoint does not record it.
 */
PYTREEFS_API int pytreefs_attribute(struct pytreefs *ck, const char *name, const char *attribute,
				    char **ret);
PYTREEFS_API void pytreefs_free_text(char *text);

/* ---- trees ---- */

enum pytreefs_key_kind {
	PYTREEFS_KEY_NONE,  /* the top */
	PYTREEFS_KEY_NAME,  /* a key of a dict, a field, or an item's name */
	PYTREEFS_KEY_INDEX, /* a position in a sequence: digits */
};

/* One node; borrowed from its tree. */
struct pytreefs_node {
	const char *path; /* from what the tree was asked of: "params/w.npy"; "" for the top */
	const char *name; /* the last name of path */
	const char *key;  /* own key, as it is, with a NUL after it; key_size bytes (it may hold
			     NULs) */
	size_t key_size;
	enum pytreefs_key_kind key_kind;
	enum pytreefs_kind kind;
	size_t parent; /* number of its parent; SIZE_MAX for the top */
	size_t n_children;
	/* ARRAY and SCALAR. */
	const char *dtype;   /* "bfloat16"; NULL for others */
	const char *typestr; /* as an .npy header has it: "<f4", "<V2" */
	uint32_t item_size;
	uint32_t ndim;
	const uint64_t *shape, *chunk; /* ndim each; chunk: what is decoded at once */
	uint64_t bytes;                /* of the elements, or of the text */
	uint64_t stored;               /* with PYTREEFS_TREE_STORED; else 0 */
	/* STRING: the string; SCALAR: JSON, with PYTREEFS_TREE_VALUES; NULL: not asked for. A NUL
	 * follows. UNKNOWN: the reason. */
	const char *text;
	size_t text_size;
	int error;            /* UNKNOWN: a negative errno */
	const char *recorded; /* the type as stored: "jax.Array", "int", ...; "" when it is not */
};

enum pytreefs_tree_flags {
	PYTREEFS_TREE_VALUES = 1 << 0, /* texts of strings and scalars */
	PYTREEFS_TREE_STORED = 1 << 1, /* stored bytes: each leaf's chunks are looked up */
};

/*
 * All nodes below a name and the name itself, depth first, in the tree's order: of a step, an item,
 * a directory of a tree, or a leaf. Leaves that cannot be described are PYTREEFS_UNKNOWN.
 */
PYTREEFS_API int pytreefs_tree(struct pytreefs *ck, const char *name, unsigned flags,
			       struct pytreefs_tree **ret);
/* One node alone; of a view, the shape and dtype of the view. n_children is that of the listing. */
PYTREEFS_API int pytreefs_describe(struct pytreefs *ck, const char *name,
				   struct pytreefs_tree **ret);
PYTREEFS_API size_t pytreefs_tree_count(const struct pytreefs_tree *tree);
/* Node i < count; 0 is the top. */
PYTREEFS_API const struct pytreefs_node *pytreefs_tree_node(const struct pytreefs_tree *tree,
							    size_t i);
PYTREEFS_API void pytreefs_tree_free(struct pytreefs_tree *tree);

/* ---- files: any name, as a mount shows it ---- */

PYTREEFS_API int pytreefs_file_open(struct pytreefs *ck, const char *name,
				    struct pytreefs_file **ret);
PYTREEFS_API uint64_t pytreefs_file_size(const struct pytreefs_file *f);
/* Bytes read: n of them, fewer only at the end of the file. */
PYTREEFS_API ssize_t pytreefs_file_read(struct pytreefs_file *f, void *p, size_t n,
					uint64_t offset);
PYTREEFS_API void pytreefs_file_close(struct pytreefs_file *f);
/* The three in one. */
PYTREEFS_API ssize_t pytreefs_read(struct pytreefs *ck, const char *name, void *p, size_t n,
				   uint64_t offset);

/* ---- read many: elements of arrays, straight into memory ---- */

/* `count` positions of one axis, from start on, step (>= 1) apart. drop: the axis is not in the
 * result (count 1). */
struct pytreefs_slice {
	uint64_t start, step, count;
	int drop;
};

struct pytreefs_request {
	/*
	 * A leaf, or a view of one; the extension does not matter. The elements come in C order,
	 * little-endian, without a header; a scalar is one element, a string its bytes.
	 */
	const char *name;
	const struct pytreefs_slice *box; /* one for each axis; NULL: all. Not with a box in name. */
	size_t n_box;
	const char *dtype; /* cast to; NULL: as stored, or as the name says */
	void *to;
	size_t size; /* bytes of the result; must be exact */
	/* Bytes between neighbours on each axis of the result; may be negative: `to` is the first
	 * element. NULL: C order, without gaps. */
	const int64_t *strides;
	/* Out. */
	int result;  /* 0, or a negative errno; what `to` holds is then undefined */
	char *error; /* why; freed by pytreefs_requests_release() */
	uint64_t reserved[4];
};

struct pytreefs_progress {
	/*
	 * Called by the calling thread, at least every 50 ms while a call works, inside of large
	 * chunks too. Bytes of results. Non-zero: stop; the call returns -ECANCELED, and no
	 * thread touches memory of requests any more.
	 */
	int (*fn)(void *arg, uint64_t done, uint64_t total);
	void *arg;
	/* Any thread may store non-zero there: stop. NULL: nobody will. */
	const int *cancel;
	uint64_t reserved[4];
};

/*
 * Read n requests. Chunks of all are one job of all processors, in the order in which they lie in
 * the data files. progress may be NULL. A request that fails does not stop the others: the result
 * is that of the first one that failed, or 0.
 */
PYTREEFS_API int pytreefs_read_many(struct pytreefs *ck, struct pytreefs_request *request, size_t n,
				    const struct pytreefs_progress *progress);
/* Free the errors. */
PYTREEFS_API void pytreefs_requests_release(struct pytreefs_request *request, size_t n);

/* Memory for results: untouched, page-aligned, large pages advised. n as it was asked for. NULL:
 * there is not enough. */
PYTREEFS_API void *pytreefs_alloc(size_t n);
PYTREEFS_API void pytreefs_free(void *p, size_t n);

/* ---- write ---- */

/* One part of a key path. */
struct pytreefs_key {
	const char *key; /* as it is: nothing is escaped */
	size_t size;
	enum pytreefs_key_kind kind;
};

/* One node to be written. */
struct pytreefs_value {
	/*
	 * From the top of the draft: of a step the item's name comes first. n_keys 0 (or 1 in a
	 * step): the item itself, which may be a bare leaf or say its container's kind. Containers
	 * on the way are made (dicts; lists where keys are PYTREEFS_KEY_INDEX).
	 */
	const struct pytreefs_key *key;
	size_t n_keys;
	/*
	 * ARRAY, SCALAR, STRING, NONE; DICT, LIST, TUPLE, NAMEDTUPLE: an empty container, or the
	 * kind of one that has members; FILE: of a step, with one key: a file as it is
	 * ("metrics.json").
	 */
	enum pytreefs_kind kind;
	/* ARRAY, SCALAR (ndim 0). */
	const char *dtype;
	size_t ndim;
	const uint64_t *shape;
	const int64_t *strides; /* bytes; may be 0 or negative; NULL: C order */
	/* ARRAY, SCALAR: elements, little-endian; STRING: UTF-8; NAMEDTUPLE: JSON, or NULL; FILE. */
	const void *data;
	size_t size; /* of STRING, NAMEDTUPLE and FILE */
	uint64_t reserved[4];
};

enum pytreefs_draft_flags {
	PYTREEFS_DRAFT_ITEM = 1 << 0,    /* the path is one tree; else a step of items */
	PYTREEFS_DRAFT_REPLACE = 1 << 1, /* a checkpoint that is there is replaced by the commit */
};

/*
 * Begin to write a checkpoint that will be at path; its directory must be there. options as in
 * pytreefs_open() ("compression=zstd:3,zarr=3,..."). Nothing is visible before the commit.
 */
PYTREEFS_API int pytreefs_draft_begin(const char *path, const char *options, unsigned flags,
				      struct pytreefs_draft **ret);
/*
 * Write n values, encoded by all processors; what they point to is borrowed until it returns. After
 * a failure some may be there: abort the draft.
 */
PYTREEFS_API int pytreefs_draft_put(struct pytreefs_draft *d, const struct pytreefs_value *value,
				    size_t n, const struct pytreefs_progress *progress);
/* Attribute user.pytree.ATTRIBUTE of a node that was put (n_keys 0: the step or item): "kind",
 * "custom_metadata", "save.compression", ... text is JSON, or a word. */
PYTREEFS_API int pytreefs_draft_attribute(struct pytreefs_draft *d, const struct pytreefs_key *key,
					  size_t n_keys, const char *attribute, const char *text);
/* An array piece by piece, in C order; value->data, strides and size are ignored. */
PYTREEFS_API int pytreefs_draft_stream(struct pytreefs_draft *d, const struct pytreefs_value *value,
				       struct pytreefs_writer **ret);
PYTREEFS_API int pytreefs_writer_write(struct pytreefs_writer *w, const void *p, size_t n);
/* The array is whole, or an error. Frees w. */
PYTREEFS_API int pytreefs_writer_close(struct pytreefs_writer *w);
/*
 * Make it durable and visible, atomically, and free d. On failure nothing is visible, the error
 * says why, and the draft is as it was: more can be put, or it is aborted. What progress says
 * counts before the commit begins only.
 */
PYTREEFS_API int pytreefs_draft_commit(struct pytreefs_draft *d,
				       const struct pytreefs_progress *progress);
/* Remove it. Accepts NULL. Writers must be closed. */
PYTREEFS_API void pytreefs_draft_abort(struct pytreefs_draft *d);

#ifdef __cplusplus
}
#endif

#endif
