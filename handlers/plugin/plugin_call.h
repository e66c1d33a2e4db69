/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin_call.h - one call of a plugin's function: what it is given, and what comes of it. For
 * plugin_call.c and derived_plugin.c only.
 */
#ifndef PYTREEFS_PLUGIN_CALL_H
#define PYTREEFS_PLUGIN_CALL_H

#include "core/base/err.h"
#include "handlers/plugin/leaf_plugin.h"
#include "handlers/plugin/plugins.h"

/* Zeroed, with what the call may give: files, one file, or elements. */
struct plugin_call {
	struct pytreefs_host host; /* what the plugin sees */
	struct plugin *plugin;
	struct plugin_files *out; /* named files */
	struct buf *bytes;        /* or one file */
	unsigned given;
	int (*read)(struct plugin_call *c, uint32_t i, uint64_t off, void *p, uint64_t n);
	int (*write)(struct plugin_call *c, const void *p, uint64_t n);
	char why[256];
	struct err_note refused; /* what was wrong with what it gave or asked for */
	struct err_note failed;  /* what failed here meanwhile, and is not the plugin's fault */
};

void plugin_call_begin(struct plugin_call *c, struct plugin *p, uint32_t flags);
/* What came of it: code for whatever is the plugin's or the data's fault. */
int plugin_call_end(struct plugin_call *c, uint32_t flags, int result, int code);
/* The first thing that it must not do is remembered: the call fails for it. Returns -1, for the
 * plugin. */
int plugin_call_refuse(struct plugin_call *c, int code);

#endif
