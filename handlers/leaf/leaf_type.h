/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_type.h - the interface of a leaf type, for reading and for writing.
 *
 * A built-in type is a file leaf_NAME.c of this folder and a line in the table of leaf.c. A plugin
 * fills in the same struct and adds it with leaf_type_add(). Types are immutable once options have
 * been read; any thread may call them.
 */
#ifndef PYTREEFS_LEAF_TYPE_H
#define PYTREEFS_LEAF_TYPE_H

#include "handlers/format/value.h"

struct leaf_input;
struct leaf_sink;

/*
 * The description of a leaf that is being written. It goes from the plan of a draft to the commit,
 * and in messages between the ranks of a job. Its spans and its shape belong to the arena of the
 * plan, or to the message.
 */
struct leaf_desc {
	const struct leaf_type *type;
	/* an array's shape is known; false only while its file is being written */
	bool has_shape;
	bool is_jax;                    /* an array is recorded as jax.Array, else as np.ndarray */
	struct array_type array;        /* as it is stored; DTYPE_UNKNOWN: not known yet */
	struct span sharding, key_impl; /* of a jax.Array; p NULL: not set */
	/* a small value in memory: the element of a number, a text; p NULL: none */
	struct span value;
};

/* The entries for a leaf in the documents of its item. */
struct leaf_record {
	struct span typestr;    /* value_type in `_METADATA` */
	enum tree_value stored; /* TREE_VALUE_STORED or TREE_VALUE_NONE */
	struct span text;       /* entry in `_strings.json`; p NULL: none */
	bool is_sharded;        /* it has entries in `_sharding` and array_metadatas */
};

struct leaf_type {
	const char *name;           /* "array" */
	const char *noun;           /* with its article, for messages: "an array" */
	const char *const *typestr; /* the type strings that it takes; NULL at the end */
	const char *summary;        /* one line, for `info --handlers` */
	enum name_ext ext;          /* of its default format */
	bool in_store;              /* the value is an array of the item's store */
	/*
	 * in_store, and encoded while the draft is written; several ranks or files may each have
	 * boxes of it
	 */
	bool in_boxes;

	/* ---- reading: from an item ---- */

	/*
	 * Whether the place where a leaf's value is stored makes it this type, whatever its type
	 * string is. NULL: never.
	 */
	bool (*recorded)(const struct tree_node *leaf);
	/* Whether it takes a type string that is not in `typestr`. NULL: no. */
	bool (*takes)(const struct leaf_type *t, struct span typestr);
	/* Open the value of a leaf. ret is zeroed; the caller releases it, also after a failure. */
	int (*open)(const struct leaf_type *t, struct item *item, const struct tree_node *leaf,
		    struct value *ret);

	/* ---- writing: from a file of a draft ---- */

	/*
	 * Whether a file is of this type: returns 1 and describes the leaf in ret, which is zeroed,
	 * or returns 0. -EINVAL: its name makes it this type, but its contents are not valid.
	 */
	int (*classify)(const struct leaf_type *t, struct leaf_input *f, struct leaf_desc *ret);
	/*
	 * Set the entries in documents that differ from the default, which is a stored leaf with
	 * the first type string. NULL: none.
	 */
	void (*describe)(const struct leaf_desc *d, struct leaf_record *ret);
	/* Store the value. NULL: the documents hold all of it. */
	int (*encode)(const struct leaf_desc *d, struct leaf_input *f, struct leaf_sink *to);
	/*
	 * Called after all leaves of the commit were encoded; may still refuse it. NULL: does not.
	 */
	int (*finalize)(const struct leaf_type *t);
	/*
	 * Make the value for the legacy msgpack file. It may take f->memory_left bytes and
	 * subtracts those that it takes. ret points into f->arena. NULL: leaves of this type cannot
	 * be in that file.
	 */
	int (*aggregate)(const struct leaf_desc *d, struct leaf_input *f, struct aggregate *ret);
};

/* The `open` of a type whose values are arrays. */
int leaf_open_array(const struct leaf_type *t, struct item *item, const struct tree_node *leaf,
		    struct value *ret);

/* ---- the place where a type stores a value ---- */

struct leaf_sink_ops {
	/* Store an array in the item's store, given its elements in C order. */
	int (*array)(struct leaf_sink *to, const struct array_type *t, const void *elements);
	/* Store the array that was encoded while the file was written. */
	int (*encoded)(struct leaf_sink *to);
	/* Store a file in a directory of the leaf's own. The bytes are copied. */
	int (*file)(struct leaf_sink *to, const char *name, struct span bytes);
};

struct leaf_sink {
	const struct leaf_sink_ops *ops;
};

/* ---- a file of a draft ---- */

struct leaf_input_ops {
	/* Append all bytes. -EINVAL: more than the limit for a leaf that is read into memory. */
	int (*contents)(struct leaf_input *f, struct buf *ret);
	/*
	 * Describe the array in an .npy file: set all members of ret but `type`. -EINVAL when the
	 * file is strict and has no array.
	 */
	int (*array)(struct leaf_input *f, struct leaf_desc *ret);
	/*
	 * Choose the dtype of a number whose text suggests `natural`. ret_named: the dtype that an
	 * xattr asks for, else natural; DTYPE_UNKNOWN when the xattr does not name a dtype.
	 * ret_copied: the dtype of the leaf that this file is a copy of, or DTYPE_UNKNOWN.
	 */
	int (*dtype)(struct leaf_input *f, enum dtype natural, enum dtype *ret_named,
		     enum dtype *ret_copied);
	/* The dtype as which the options in force store such a number. Call after dtype(). */
	enum dtype (*stored_dtype)(struct leaf_input *f, enum dtype from);
	/* Set ret to a reference to the encoded array. Only in a commit. */
	int (*encoded)(struct leaf_input *f, struct zarr **ret);
};

struct leaf_input {
	const struct leaf_input_ops *ops;
	const char *name;
	enum name_ext ext;
	bool strict;          /* in a commit; otherwise the file may be unfinished */
	struct arena *arena;  /* for data that the description points to */
	uint64_t memory_left; /* bytes that aggregate() may still take */
	/* Private to leaf_input.c. */
	bool has_text, has_json;
	struct buf text;
	struct json_doc json;
};

/* The contents, read at the first call. ret is borrowed from f. */
int leaf_input_text(struct leaf_input *f, struct span *ret);
/* The contents parsed as JSON; ret is borrowed from f. -EINVAL: they are not JSON. */
int leaf_input_json(struct leaf_input *f, const struct json **ret);
void leaf_input_release(struct leaf_input *f);

#endif
