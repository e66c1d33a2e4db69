/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin_call.h - the state of one call of a plugin's function. For plugin_call.c and
 * handlers/transform/derived_plugin.c only.
 */
#ifndef PYTREEFS_PLUGIN_CALL_H
#define PYTREEFS_PLUGIN_CALL_H

#include "core/base/err.h"
#include "handlers/plugin/leaf_plugin.h"
#include "handlers/plugin/plugins.h"

/*
 * Zeroed by the caller, who then sets the members for the results that the call may give: files
 * (out), one file (bytes), or elements (read, write).
 */
struct plugin_call {
	struct pytreefs_host host; /* the interface that the plugin sees */
	struct plugin *plugin;
	struct plugin_files *out; /* receives named files */
	struct buf *bytes;        /* receives one file */
	unsigned given;
	int (*read)(struct plugin_call *c, uint32_t i, uint64_t off, void *p, uint64_t n);
	int (*write)(struct plugin_call *c, const void *p, uint64_t n);
	char why[256];
	struct err_note refused; /* the plugin's first mistake */
	/* an error of the program itself, which is not the plugin's fault */
	struct err_note failed;
};

void plugin_call_begin(struct plugin_call *c, struct plugin *p, uint32_t flags);
/*
 * End the call and check its result. Returns 0, or `code` when the plugin or its data are at fault,
 * or the error of the program itself.
 */
int plugin_call_end(struct plugin_call *c, uint32_t flags, int result, int code);
/*
 * Record that the plugin broke a rule, with the note of this thread; only the first one counts, and
 * it makes the call fail. Returns -1, which the callback gives to the plugin.
 */
int plugin_call_refuse(struct plugin_call *c, int code);

#endif
