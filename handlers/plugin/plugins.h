/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugins.h - the registry of plugins, and calling them.
 *
 * Filled while options are read, when there is one thread, and immutable after. It is the
 * process's, as loaded code is: a plugin that is loaded stays.
 */
#ifndef PYTREEFS_PLUGINS_H
#define PYTREEFS_PLUGINS_H

#include "handlers/leaf/leaf_type.h"

struct pytreefs_item;
struct pytreefs_leaf;
struct pytreefs_value;

/* A value function of one. */
struct plugin_value {
	struct plugin *plugin;
	const struct pytreefs_value *value;
};

/* One that is loaded. */
struct plugin {
	struct plugin *next; /* the one loaded before it */
	char *path;
	const char *name;
	const struct pytreefs_leaf *leaf; /* or NULL */
	const struct pytreefs_item *item; /* or NULL */
	const char *typestr[2];
	struct leaf_type type; /* of leaf */
	struct plugin_value *values;
	uint32_t n_values;
	pthread_mutex_t serial; /* held during calls of one that wants one thread */
};

/* Load it. -EINVAL says what is wrong with it. */
int plugin_load(const char *path);
/* "ITEM:NAME" */
int plugin_bind(const char *text);
/* Paths, and bindings, as text with blanks between. */
int plugins_print(struct buf *ret);
int plugins_print_bindings(struct buf *ret);
/* The one loaded last, then along next. */
const struct plugin *plugin_first(void);

/* Sets p->type by p->leaf. (plugin_leaf.c) */
void plugin_leaf_type(struct plugin *p, enum name_ext ext);
/* The leaf plugin whose files have this extension; NULL: none. */
struct plugin *plugin_of_ext(enum name_ext ext);

/* The value function of that name, of the plugin that was loaded last; NULL: none. Lives as long as
 * the process. */
const struct plugin_value *plugin_value_by_name(struct span name);

/* Files of a leaf or item in memory. */
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
/* One more; bytes are copied. -EFBIG, -EINVAL for a name that leaves the directory. */
int plugin_files_add(struct plugin_files *f, const char *name, const void *p, uint64_t n);
/* All regular files below a directory of the source. contents false: names only. */
int plugin_files_read(struct io_dir *dir, const char *path, bool contents,
		      struct plugin_files *ret);

/* The calls, with all that a plugin may do wrong looked for. -EUCLEAN on reading, -EINVAL on
 * writing. */
int plugin_decode_leaf(struct plugin *p, const struct plugin_files *stored, struct buf *ret);
int plugin_encode_leaf(struct plugin *p, struct span bytes, struct plugin_files *ret);
int plugin_leaf_metadata(struct plugin *p, const struct plugin_files *stored, struct buf *ret);
int plugin_finalize(struct plugin *p);
int plugin_decode_item(struct plugin *p, const struct plugin_files *stored,
		       struct plugin_files *ret);
int plugin_encode_item(struct plugin *p, const struct plugin_files *shown,
		       struct plugin_files *ret);
/* The plugin of an item: by its bound name, else by probing. NULL: none. dir may be NULL: by name
 * only. */
int plugin_of_item(const char *item, struct io_dir *dir, const char *path, struct plugin **ret);

#endif
