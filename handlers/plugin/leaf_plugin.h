/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_plugin.h - the interface of plugins: leaf types, types of whole items, and value functions.
 * A plugin includes this header and needs nothing else of the program.
 *
 * A plugin is a shared object that defines pytreefs_plugin(). That function returns a description,
 * which must stay valid as long as the process lives. A leaf or item is a set of files in memory: a
 * leaf of type "MyState" is stored as some files in the checkpoint, in a directory with the leaf's
 * name, and shown as one file in the mount.
 *
 * Structs only grow at their ends, and their first member `size` gives the length that the plugin
 * was compiled with. So a plugin that was built before a member was added works as before.
 *
 * Several threads may call a function at once, unless the flag PYTREEFS_SERIAL asks for one call at
 * a time. Unless its comment says otherwise, a function returns 0, or -1 after it has called
 * host->message(). The input is borrowed for the call. host->add() and host->write() copy the
 * results, so nothing has to be freed.
 *
 * How to write a plugin: handlers/plugin/README.md; examples: handlers/plugin/examples.
 */
#ifndef PYTREEFS_LEAF_PLUGIN_H
#define PYTREEFS_LEAF_PLUGIN_H

#include <stdint.h>

#define PYTREEFS_ABI 1
#define PYTREEFS_MAX_BYTES (64u << 20) /* limit for all files of one leaf or item together */
#define PYTREEFS_MAX_FILES 4096
#define PYTREEFS_MAX_RANK 32

enum { PYTREEFS_SERIAL = 1 };

struct pytreefs_plugin_file {
	const char *name; /* path below the directory of the leaf or item: "a.bin", "dir/b" */
	const void *p;
	uint64_t n;
};

/* Services of the program for the duration of one call. */
struct pytreefs_host {
	uint32_t size;
	/*
	 * Add a file to the result. The bytes are copied. Returns 0, or -1 when the limits are
	 * exceeded or the name is invalid; the function must then return -1.
	 */
	int (*add)(const struct pytreefs_host *host, const char *name, const void *p, uint64_t n);
	/*
	 * Set the reason for the failure that the function is about to return. The text is copied.
	 */
	void (*message)(const struct pytreefs_host *host, const char *text);
	/*
	 * Only in run() of a value function: copy bytes [off, off + n) of the elements of input i
	 * to p. Returns 0 or -1.
	 */
	int (*read)(const struct pytreefs_host *host, uint32_t i, uint64_t off, void *p,
		    uint64_t n);
	/*
	 * Only in run() of a value function: append the next n bytes of the result's elements.
	 * Returns 0 or -1.
	 */
	int (*write)(const struct pytreefs_host *host, const void *p, uint64_t n);
};

struct pytreefs_leaf {
	uint32_t size; /* sizeof(struct pytreefs_leaf) */
	uint32_t flags;
	const char *name;      /* "npz" */
	const char *typestr;   /* the type string that Orbax records: "MyState" */
	const char *extension; /* of the leaf's file in the mount: ".npz" */
	const char *summary;   /* one line, for `pytreefs info --handlers` */
	/* Whether it also takes leaves of another type string: 1 or 0. May be NULL. */
	int (*probe)(const char *typestr);
	/*
	 * Set *ret to the exact size in bytes of the file in the mount. May be NULL: then decode()
	 * is called to find the size.
	 */
	int (*memory_size)(const struct pytreefs_host *host,
			   const struct pytreefs_plugin_file *stored, uint32_t n, uint64_t *ret);
	/*
	 * Turn the stored files into the file in the mount: call host->add() once; its name is
	 * ignored.
	 */
	int (*decode)(const struct pytreefs_host *host, const struct pytreefs_plugin_file *stored,
		      uint32_t n);
	/*
	 * Turn the file in the mount into the stored files: call host->add() for each. NULL: such
	 * leaves cannot be written.
	 */
	int (*encode)(const struct pytreefs_host *host, const void *p, uint64_t n);
	/*
	 * Make a JSON document about the leaf, which appears as the extended attribute
	 * user.pytree.plugin: call host->add() once. May be NULL.
	 */
	int (*metadata)(const struct pytreefs_host *host, const struct pytreefs_plugin_file *stored,
			uint32_t n);
	/*
	 * Called after all leaves of a commit were encoded; a failure makes the commit fail. May be
	 * NULL.
	 */
	int (*finalize)(const struct pytreefs_host *host);
};

struct pytreefs_item {
	uint32_t size; /* sizeof(struct pytreefs_item) */
	uint32_t flags;
	const char *name;    /* for the mount option handler=ITEM:NAME */
	const char *handler; /* type name that is recorded in _CHECKPOINT_METADATA; NULL: none */
	/*
	 * Whether it takes an item with these files, which are passed without contents: 1 or 0. May
	 * be NULL: then items are chosen only by the option handler=.
	 */
	int (*probe)(const struct pytreefs_plugin_file *stored, uint32_t n);
	int (*decode)(const struct pytreefs_host *host, const struct pytreefs_plugin_file *stored,
		      uint32_t n);
	int (*encode)(const struct pytreefs_host *host, const struct pytreefs_plugin_file *shown,
		      uint32_t n);
};

/*
 * An array that a value function takes or returns. Its elements are in C order and little-endian;
 * an element of less than a byte takes a whole byte. This struct does not grow.
 */
struct pytreefs_array {
	char dtype[32]; /* name in numpy or ml_dtypes: "float32", "bfloat16" */
	uint32_t rank;
	uint64_t shape[PYTREEFS_MAX_RANK];
};

/*
 * A function for "value_fn": "NAME(ARGUMENTS)" in a file of transforms=. Arrays may be larger than
 * memory: run() reads and writes them in pieces of a size that it chooses.
 */
struct pytreefs_value_fn {
	uint32_t size; /* sizeof(struct pytreefs_value_fn) */
	uint32_t flags;
	const char *name;    /* "mean"; the names of built-in functions are refused */
	const char *summary; /* one line, for `pytreefs info --handlers` */
	/*
	 * Set *ret, which is zeroed, to dtype and shape of the result for n inputs, of which no
	 * elements are known yet. -1: the function does not accept such inputs.
	 */
	int (*plan)(const struct pytreefs_host *host, const char *args,
		    const struct pytreefs_array *in, uint32_t n, struct pytreefs_array *ret);
	/*
	 * Compute the elements that plan() announced and pass all of them, in order, to
	 * host->write(). host->read() gives the elements of the inputs.
	 */
	int (*run)(const struct pytreefs_host *host, const char *args,
		   const struct pytreefs_array *in, uint32_t n, const struct pytreefs_array *out);
};

struct pytreefs_plugin {
	uint32_t abi;  /* PYTREEFS_ABI */
	uint32_t size; /* sizeof(struct pytreefs_plugin) */
	const char *name;
	const struct pytreefs_leaf *leaf;              /* may be NULL */
	const struct pytreefs_item *item;              /* may be NULL */
	const struct pytreefs_value_fn *const *values; /* n_values pointers; may be NULL */
	uint32_t n_values;
};

const struct pytreefs_plugin *pytreefs_plugin(void);

#endif
