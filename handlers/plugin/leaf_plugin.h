/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_plugin.h - what a plugin implements: types of leaves, of whole items, and value functions.
 * The only header that it includes; needs nothing but this file.
 *
 * A plugin is a shared object with one function, pytreefs_plugin(), which returns a description
 * that lives as long as the process. Everything is bytes: a leaf of type "MyState" is some files of
 * the checkpoint (in the directory of its name), and one file in the mount. Structs only grow at
 * their ends; `size` says how much of one there is: a plugin made before a member was added works
 * as it did.
 *
 * Functions may be called by several threads at once, unless the flag PYTREEFS_SERIAL asks for one
 * at a time. They return 0, or -1 after host->message(). What they give goes through host->add(),
 * which copies: nothing has to be freed.
 *
 * How to write one: handlers/plugin/README.md; examples: handlers/plugin/examples.
 */
#ifndef PYTREEFS_LEAF_PLUGIN_H
#define PYTREEFS_LEAF_PLUGIN_H

#include <stdint.h>

#define PYTREEFS_ABI 1
#define PYTREEFS_MAX_BYTES (64u << 20) /* of all files of one leaf or item */
#define PYTREEFS_MAX_FILES 4096
#define PYTREEFS_MAX_RANK 32

enum { PYTREEFS_SERIAL = 1 };

struct pytreefs_file {
	const char *name; /* "a.bin", "dir/b": below the leaf's or item's directory */
	const void *p;
	uint64_t n;
};

/* What the program offers during a call. */
struct pytreefs_host {
	uint32_t size;
	/* One file of the result, copied: 0, or -1 (too many, too large, a bad name). */
	int (*add)(const struct pytreefs_host *host, const char *name, const void *p, uint64_t n);
	/* Why the call is about to fail. */
	void (*message)(const struct pytreefs_host *host, const char *text);
	/* For a value function's run(): bytes [off, off + n) of input i's elements, to p: 0, or -1.
	 */
	int (*read)(const struct pytreefs_host *host, uint32_t i, uint64_t off, void *p,
		    uint64_t n);
	/* For a value function's run(): the next n bytes of the result's elements: 0, or -1. */
	int (*write)(const struct pytreefs_host *host, const void *p, uint64_t n);
};

struct pytreefs_leaf {
	uint32_t size; /* sizeof(struct pytreefs_leaf) */
	uint32_t flags;
	const char *name;      /* "npz" */
	const char *typestr;   /* Orbax's type string: "MyState" */
	const char *extension; /* of its file in the mount: ".npz" */
	const char *summary;   /* one line, for `pytreefs info --handlers` */
	/* Whether it takes leaves of another type string, too: 1 or 0. May be NULL. */
	int (*probe)(const char *typestr);
	/* Bytes of the file in the mount, exactly. May be NULL: decode() tells. */
	int (*memory_size)(const struct pytreefs_host *host, const struct pytreefs_file *stored,
			   uint32_t n, uint64_t *ret);
	/* Stored files -> the file in the mount: one add(), whose name counts for nothing. */
	int (*decode)(const struct pytreefs_host *host, const struct pytreefs_file *stored,
		      uint32_t n);
	/* The file in the mount -> stored files: an add() for each. NULL: such leaves cannot be
	 * written. */
	int (*encode)(const struct pytreefs_host *host, const void *p, uint64_t n);
	/* A JSON document about the leaf: user.pytree.plugin. One add(). May be NULL. */
	int (*metadata)(const struct pytreefs_host *host, const struct pytreefs_file *stored,
			uint32_t n);
	/* All leaves of a commit are encoded: the last chance to refuse. May be NULL. */
	int (*finalize)(const struct pytreefs_host *host);
};

struct pytreefs_item {
	uint32_t size; /* sizeof(struct pytreefs_item) */
	uint32_t flags;
	const char *name;    /* for handler=ITEM:NAME */
	const char *handler; /* recorded in _CHECKPOINT_METADATA; NULL: nothing */
	/* Whether it takes an item of these files (without contents): 1 or 0. May be NULL: only by
	 * name. */
	int (*probe)(const struct pytreefs_file *stored, uint32_t n);
	int (*decode)(const struct pytreefs_host *host, const struct pytreefs_file *stored,
		      uint32_t n);
	int (*encode)(const struct pytreefs_host *host, const struct pytreefs_file *shown,
		      uint32_t n);
};

/*
 * An array that a value function takes or makes. Its elements are in C order and little-endian;
 * types of less than a byte have a byte for each element. Does not grow.
 */
struct pytreefs_array {
	char dtype[32]; /* numpy's or ml_dtypes' name: "float32", "bfloat16" */
	uint32_t rank;
	uint64_t shape[PYTREEFS_MAX_RANK];
};

/*
 * A function for "value_fn": "NAME(ARGUMENTS)" in a file of transforms=. Arrays have any size:
 * run() reads and writes them piece by piece, as much at once as it has memory for.
 */
struct pytreefs_value {
	uint32_t size; /* sizeof(struct pytreefs_value) */
	uint32_t flags;
	const char *name;    /* "mean": not one that the program has itself */
	const char *summary; /* one line, for `pytreefs info --handlers` */
	/* What comes out of n such inputs, told without elements; *ret is zeroed. -1: it takes no
	 * such ones. */
	int (*plan)(const struct pytreefs_host *host, const char *args,
		    const struct pytreefs_array *in, uint32_t n, struct pytreefs_array *ret);
	/* All elements of what plan() said, in order, by host->write(); those of the inputs by
	 * host->read(). */
	int (*run)(const struct pytreefs_host *host, const char *args,
		   const struct pytreefs_array *in, uint32_t n, const struct pytreefs_array *out);
};

struct pytreefs_plugin {
	uint32_t abi;  /* PYTREEFS_ABI */
	uint32_t size; /* sizeof(struct pytreefs_plugin) */
	const char *name;
	const struct pytreefs_leaf *leaf;           /* may be NULL */
	const struct pytreefs_item *item;           /* may be NULL */
	const struct pytreefs_value *const *values; /* n_values of them; may be NULL */
	uint32_t n_values;
};

const struct pytreefs_plugin *pytreefs_plugin(void);

#endif
