/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_type.h - what a leaf type implements, for reading and for writing.
 *
 * A built-in type is a file leaf_NAME.c of this folder and a line in the table of leaf.c. A plugin
 * fills in the same struct and adds it (leaf_type_add()). Types are immutable once options have
 * been read; any thread may call them.
 */
#ifndef PYTREEFS_LEAF_TYPE_H
#define PYTREEFS_LEAF_TYPE_H

#include "handlers/format/value.h"

struct leaf_input;
struct leaf_sink;

/*
 * All that is known of a leaf that is written, from the plan of a draft to the commit and to the
 * messages between the ranks of a job. Spans live in the arena of the plan, or in the message.
 */
struct leaf_desc {
	const struct leaf_type *type;
	bool has_shape;   /* of an array: false only while its file is being written */
	bool is_jax;      /* of an array: jax.Array, and not np.ndarray */
	enum dtype dtype; /* of what the store has as an array; DTYPE_UNKNOWN: not known yet */
	unsigned rank;
	uint64_t shape[LIMIT_RANK];
	struct span sharding, key_impl; /* of a jax.Array; p NULL: none was set */
	struct span value; /* of small ones: a number's element, a text; p NULL: none */
};

/* What the documents of its item say of a leaf. */
struct leaf_record {
	struct span typestr;    /* `_METADATA`: value_type */
	enum tree_value stored; /* TREE_VALUE_STORED or TREE_VALUE_NONE */
	struct span text;       /* `_strings.json`; p NULL: it is not in there */
	bool is_sharded;        /* it is in `_sharding` and in array_metadatas */
};

struct leaf_type {
	const char *name;           /* "array" */
	const char *noun;           /* "an array": for messages */
	const char *const *typestr; /* type strings that it takes, NULL at the end */
	const char *summary;        /* one line, for `info --handlers` */
	enum name_ext ext;          /* of its default format */
	bool in_store;              /* its value is an array of the item's store */
	bool in_boxes; /* in_store, encoded while the draft is written; ranks may have boxes of it */

	/* ---- reading: from an item ---- */

	/* Whether a leaf is of this type by where its value is, whatever its type string says.
	 * NULL: never. */
	bool (*recorded)(const struct tree_node *leaf);
	/* Whether it takes a type string that is not in typestr. NULL: no. */
	bool (*takes)(const struct leaf_type *t, struct span typestr);
	/* The value of a leaf; ret is {}, and released by the caller also after a failure. */
	int (*open)(const struct leaf_type *t, struct item *item, const struct tree_node *leaf,
		    struct value *ret);

	/* ---- writing: from a file of a draft ---- */

	/*
	 * Whether a file is of this type: 1, and ret, which is {}, describes the leaf; 0 not.
	 * -EINVAL: by its name it is, and its contents are not valid.
	 */
	int (*classify)(const struct leaf_type *t, struct leaf_input *f, struct leaf_desc *ret);
	/* What documents say of it, where that is more than its first type string. */
	void (*describe)(const struct leaf_desc *d, struct leaf_record *ret);
	/* Store its value. NULL: nothing is stored but what describe() says. */
	int (*encode)(const struct leaf_desc *d, struct leaf_input *f, struct leaf_sink *to);
	/* All leaves of the commit are encoded: the last chance to refuse. NULL: it does not. */
	int (*finalize)(const struct leaf_type *t);
	/*
	 * Its value for the legacy msgpack file, which may take f->memory_left bytes, and takes
	 * them off; what ret points to lives in f->arena. NULL: that file has no such leaves.
	 */
	int (*aggregate)(const struct leaf_desc *d, struct leaf_input *f, struct aggregate *ret);
};

/* ---- where a type stores a value ---- */

struct leaf_sink_ops {
	/* An array of the item's store, from its elements in C order. */
	int (*array)(struct leaf_sink *to, enum dtype t, unsigned rank, const uint64_t *shape,
		     const void *elements);
	/* The array that was encoded while the file was written. */
	int (*encoded)(struct leaf_sink *to);
	/* A file in a directory of the leaf's own; bytes are copied. */
	int (*file)(struct leaf_sink *to, const char *name, struct span bytes);
};

struct leaf_sink {
	const struct leaf_sink_ops *ops;
};

/* ---- a file of a draft, as a type sees it ---- */

struct leaf_input_ops {
	/* All bytes, appended. -EINVAL: more than a leaf that is in memory may have. */
	int (*contents)(struct leaf_input *f, struct buf *ret);
	/* The array that an .npy file has: everything but type is set. -EINVAL when a strict one
	 * has none. */
	int (*array)(struct leaf_input *f, struct leaf_desc *ret);
	/*
	 * The dtype of a number that is `natural` by its text: what an xattr names, DTYPE_UNKNOWN
	 * when that is not a dtype; and what the number had that this is a copy of, or
	 * DTYPE_UNKNOWN.
	 */
	int (*dtype)(struct leaf_input *f, enum dtype natural, enum dtype *ret_named,
		     enum dtype *ret_copied);
	/* What the options in force store such a number as. After dtype(). */
	enum dtype (*stored_dtype)(struct leaf_input *f, enum dtype from);
	/* Of a commit: the array that was encoded, a reference. */
	int (*encoded)(struct leaf_input *f, struct zarr **ret);
};

struct leaf_input {
	const struct leaf_input_ops *ops;
	const char *name;
	enum name_ext ext;
	bool strict;          /* of a commit; else it may be anything that is not finished */
	struct arena *arena;  /* for what the description points to */
	uint64_t memory_left; /* for aggregate() */
	/* Private to leaf_input.c. */
	bool has_text, has_json;
	struct buf text;
	struct json_doc json;
};

/* The contents, read when first asked for; borrowed from the file. */
int leaf_input_text(struct leaf_input *f, struct span *ret);
/* The same parsed. -EINVAL: it is not JSON. */
int leaf_input_json(struct leaf_input *f, const struct json **ret);
void leaf_input_release(struct leaf_input *f);

#endif
