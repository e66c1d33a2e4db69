/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugins.h - the registry of plugins, and calls of their functions.
 *
 * Plugins are loaded while options are read, when there is one thread; afterwards the registry is
 * immutable. There is one registry for the process, and a loaded plugin is never unloaded.
 */
#ifndef PYTREEFS_PLUGINS_H
#define PYTREEFS_PLUGINS_H

#include "handlers/leaf/leaf_type.h"

struct pytreefs_item;
struct pytreefs_leaf;
struct pytreefs_value_fn;

/* A value function of a plugin. */
struct plugin_value {
	struct plugin *plugin;
	const struct pytreefs_value_fn *value;
};

/* A loaded plugin. */
struct plugin {
	struct plugin *next; /* the plugin that was loaded before this one */
	char *path;
	const char *name;
	const struct pytreefs_leaf *leaf; /* NULL: it has no leaf type */
	const struct pytreefs_item *item; /* NULL: it has no item type */
	const char *typestr[2];
	struct leaf_type type; /* leaf as a leaf type */
	struct plugin_value *values;
	uint32_t n_values;
	pthread_mutex_t serial; /* held during calls of functions with PYTREEFS_SERIAL */
};

/* Load the plugin in a shared object. -EINVAL with a note that says what is wrong with it. */
int plugin_load(const char *path);
/*
 * Bind an item to an item type of a plugin, or to a built-in one: text is "ITEM:NAME". -EINVAL: no
 * loaded plugin has that item type.
 */
int plugin_bind(const char *text);
/* The item types that need no plugin. */
struct item_type {
	const char *name, *summary;
	const char *hint; /* how items come to it if they cannot be bound; else NULL */
};
extern const struct item_type item_types[]; /* ends with a NULL name */
enum item_binding { ITEM_UNBOUND, ITEM_OF_PLUGIN, ITEM_AS_TREE, ITEM_AS_FILES };
/* The type that an item is bound to. */
enum item_binding item_bound(const char *item);
/* Append the paths of all plugins, or all bindings, separated by blanks. */
int plugins_print(struct buf *ret);
int plugins_print_bindings(struct buf *ret);
/* The plugin that was loaded last; the others follow by `next`. */
const struct plugin *plugin_first(void);

/* Set p->type from p->leaf. (plugin_leaf.c) */
void plugin_leaf_type(struct plugin *p, enum name_ext ext);
/* The plugin whose leaf type has this extension, or NULL. */
struct plugin *plugin_of_ext(enum name_ext ext);

/*
 * The value function of that name, of the plugin that was loaded last; NULL: none. It lives as long
 * as the process.
 */
const struct plugin_value *plugin_value_by_name(struct span name);

/* The files of a leaf or item, in memory. */
struct plugin_files {
	struct arena arena;
	struct plugin_file {
		const char *name;
		const void *p;
		uint64_t n;
	} * file;
	size_t n, cap;
	uint64_t bytes;
};
void plugin_files_release(struct plugin_files *f);
#define auto_plugin_files __attribute__((cleanup(plugin_files_release))) struct plugin_files
/*
 * Add a file. The bytes are copied. -EFBIG: a limit is exceeded; -EINVAL: the name is invalid or
 * leaves the directory.
 */
int plugin_files_add(struct plugin_files *f, const char *name, const void *p, uint64_t n);
/* Read all regular files below `path` in dir. contents false: only their names. */
int plugin_files_read(struct io_dir *dir, const char *path, bool contents,
		      struct plugin_files *ret);

/*
 * Calls of a plugin's functions. All results are checked. Errors of the plugin are -EUCLEAN while
 * reading and -EINVAL while writing.
 */
int plugin_decode_leaf(struct plugin *p, const struct plugin_files *stored, struct buf *ret);
int plugin_encode_leaf(struct plugin *p, struct span bytes, struct plugin_files *ret);
int plugin_leaf_metadata(struct plugin *p, const struct plugin_files *stored, struct buf *ret);
int plugin_finalize(struct plugin *p);
int plugin_decode_item(struct plugin *p, const struct plugin_files *stored,
		       struct plugin_files *ret);
int plugin_encode_item(struct plugin *p, const struct plugin_files *shown,
		       struct plugin_files *ret);
/*
 * Set ret to the plugin that an item is bound to, else to the first one whose probe() takes it,
 * else to NULL, as for one that is bound to a built-in type. dir NULL: only by binding.
 */
int plugin_of_item(const char *item, struct io_dir *dir, const char *path, struct plugin **ret);

#endif
