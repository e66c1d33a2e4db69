/* SPDX-License-Identifier: Apache-2.0 */
/*
 * liar.c - plugins that break their contract, one per LIE; test_plugins.py compiles them.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "handlers/plugin/leaf_plugin.h"

enum {
	HONEST,
	OLD_ABI,
	SHORT_PLUGIN,
	SHORT_LEAF,
	NO_NAME,
	BAD_EXTENSION,
	OUR_EXTENSION,
	NO_DECODE,
	NOTHING_AT_ALL,
	WRONG_SIZE,
	HUGE_SIZE,
	GIVES_NOTHING,
	GIVES_TWICE,
	FAILS,
	FAILS_SILENTLY,
	ODD_RESULT,
	TOO_MUCH,
	NULL_BYTES,
	/* while writing */
	ESCAPES,
	ABSOLUTE,
	ENCODES_NOTHING,
	REFUSES,
	REFUSES_AT_THE_END,
	TOO_MANY,
	SLEEPS,
	SAME_NAME,
	FILE_AND_DIRECTORY,
	EMPTY_NAME,
	NO_FILE_NAME,
	GIVES_AT_THE_END,
	/* of items */
	SHORT_ITEM,
	ITEM_WITHOUT_DECODE,
	ITEM_ESCAPES,
	ITEM_SAME_NAME,
	ITEM_FILE_AND_DIRECTORY,
	ITEM_FAILS,
	ITEM_TOO_MUCH,
};

static int size(const struct pytreefs_host *host, const struct pytreefs_plugin_file *f, uint32_t n,
		uint64_t *ret)
{
	*ret = (n ? f[0].n : 0) + (LIE == WRONG_SIZE);
	if (LIE == HUGE_SIZE)
		*ret = (uint64_t)1 << 60;
	return 0;
}

static int decode(const struct pytreefs_host *host, const struct pytreefs_plugin_file *f,
		  uint32_t n)
{
	static char many[1 << 20];

	if (LIE == GIVES_NOTHING)
		return 0;
	if (LIE == FAILS)
		host->message(host, "the moon is in the wrong phase");
	if (LIE == FAILS || LIE == FAILS_SILENTLY)
		return -1;
	if (LIE == NULL_BYTES)
		return host->add(host, "", NULL, 10);
	for (int i = 0; LIE == TOO_MUCH && i < 100; i++)
		if (host->add(host, "", many, PYTREEFS_MAX_BYTES + (uint64_t)1) < 0)
			return 0;
	if (host->add(host, "", f[0].p, f[0].n) < 0)
		return -1;
	/* It is refused, and ignores that. */
	if (LIE == GIVES_TWICE)
		host->add(host, "", f[0].p, f[0].n);
	return LIE == ODD_RESULT ? 7 : 0;
}

static int encode(const struct pytreefs_host *host, const void *p, uint64_t n)
{
	char name[32] = "data";

	if (LIE == ENCODES_NOTHING)
		return 0;
	if (LIE == REFUSES)
		host->message(host, "not on a Sunday");
	if (LIE == REFUSES)
		return -1;
	for (int i = 0; LIE == TOO_MANY && i < 5000; i++) {
		name[4] = (char)('a' + i % 26);
		name[5] = (char)('a' + i / 26 % 26);
		name[6] = (char)('a' + i / 676);
		host->add(host, name, p, n);
	}
	host->add(host,
		  LIE == ESCAPES      ? "../../escaped" :
		  LIE == ABSOLUTE     ? "/tmp/escaped" :
		  LIE == EMPTY_NAME   ? "" :
		  LIE == NO_FILE_NAME ? NULL :
					"data",
		  p, n);
	if (LIE == SAME_NAME || LIE == FILE_AND_DIRECTORY)
		host->add(host, LIE == SAME_NAME ? "data" : "data/more", "else", 4);
	return 0;
}

static int finalize(const struct pytreefs_host *host)
{
	if (LIE == SLEEPS)
		usleep(1200000);
	if (LIE == GIVES_AT_THE_END)
		host->add(host, "late", "x", 1);
	if (LIE == REFUSES_AT_THE_END)
		host->message(host, "second thoughts");
	return LIE == REFUSES_AT_THE_END ? -1 : 0;
}

#ifndef TYPESTR
#define TYPESTR "Liar"
#endif

/* An item whose files are stored back to front. */
static int turn(const struct pytreefs_host *host, const struct pytreefs_plugin_file *f, uint32_t n)
{
	static char much[PYTREEFS_MAX_BYTES];

	if (LIE == ITEM_FAILS)
		host->message(host, "the moon is in the wrong phase");
	if (LIE == ITEM_FAILS)
		return -1;
	for (int i = 0; LIE == ITEM_TOO_MUCH && i < 2; i++)
		host->add(host, i ? "a" : "b", much, sizeof(much));
	if (LIE == ITEM_ESCAPES)
		host->add(host, "../escaped", "x", 1);
	if (LIE == ITEM_SAME_NAME || LIE == ITEM_FILE_AND_DIRECTORY)
		host->add(host, LIE == ITEM_SAME_NAME ? "backwards" : "backwards/more", "else", 4);
	for (uint32_t i = 0; i < n; i++) {
		char *out = malloc(f[i].n + 1);
		int r;

		for (uint64_t k = 0; out && k < f[i].n; k++)
			out[k] = ((const char *)f[i].p)[f[i].n - 1 - k];
		r = out ? host->add(host, f[i].name, out, f[i].n) : -1;
		free(out);
		if (r < 0)
			return -1;
	}
	return 0;
}

static int probe_item(const struct pytreefs_plugin_file *f, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (!strcmp(f[i].name, "backwards"))
			return 1;
	return 0;
}

const struct pytreefs_plugin *pytreefs_plugin(void)
{
	static const struct pytreefs_leaf leaf = {
		.size = LIE == SHORT_LEAF ? 16 : sizeof(leaf),
		.flags = PYTREEFS_SERIAL,
		.name = LIE == NO_NAME ? NULL : "liar",
		.typestr = TYPESTR,
		.extension = LIE == BAD_EXTENSION ? "liar/.." :
			     LIE == OUR_EXTENSION ? ".npy" :
						    ".liar",
		.memory_size = size,
		.decode = LIE == NO_DECODE ? NULL : decode,
		.encode = encode,
		.finalize = finalize,
	};
	static const struct pytreefs_item item = {
		.size = LIE == SHORT_ITEM ? 16 : sizeof(item),
		.name = "turned",
		.handler = "example.Turned",
		.probe = probe_item,
		.decode = LIE == ITEM_WITHOUT_DECODE ? NULL : turn,
		.encode = turn,
	};
	static const struct pytreefs_plugin plugin = {
		.abi = LIE == OLD_ABI ? 77 : PYTREEFS_ABI,
		.size = LIE == SHORT_PLUGIN ? 8 : sizeof(plugin),
		.name = "liar",
		.leaf = &leaf,
		.item = &item,
	};

	return LIE == NOTHING_AT_ALL ? NULL : &plugin;
}
