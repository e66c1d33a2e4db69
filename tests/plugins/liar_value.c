/* SPDX-License-Identifier: Apache-2.0 */
/*
 * liar_value.c - value functions that break their contract, one per LIE; test_value_plugins.py
 * compiles them. The honest one, repeat(N), has its input N times along a new first axis.
 */
#include <stdlib.h>
#include <string.h>

#include "handlers/plugin/leaf_plugin.h"

enum {
	HONEST,
	SHORT_VALUE,
	NO_NAME,
	OUR_NAME,
	BAD_NAME,
	NO_PLAN,
	NO_RUN,
	TOO_MANY_VALUES,
	NULL_VALUE,
	/* while planning */
	REFUSES,
	REFUSES_SILENTLY,
	ODD_PLAN,
	UNKNOWN_DTYPE,
	ENDLESS_DTYPE,
	MANY_AXES,
	HUGE,
	HUGE_AXES,
	READS_TOO_EARLY,
	WRITES_TOO_EARLY,
	GIVES_A_FILE,
	/* while running */
	WRITES_LESS,
	WRITES_NOTHING,
	WRITES_MORE,
	WRITES_MUCH_MORE,
	WRITES_FROM_NOWHERE,
	READS_BEHIND,
	READS_FAR_BEHIND,
	READS_ANOTHER,
	READS_TO_NOWHERE,
	FAILS,
	FAILS_SILENTLY,
	ODD_RESULT,
	DOES_NOT_MIND,
};

static int times(const char *args)
{
	return LIE == HONEST || LIE == DOES_NOT_MIND ? atoi(args) : 1;
}

static int plan(const struct pytreefs_host *host, const char *args, const struct pytreefs_array *in,
		uint32_t n, struct pytreefs_array *ret)
{
	char byte = 0;

	if (LIE == REFUSES || times(args) < 1)
		host->message(host, "not such an array");
	if (LIE == REFUSES || LIE == REFUSES_SILENTLY || times(args) < 1)
		return -1;
	if (LIE == READS_TOO_EARLY)
		host->read(host, 0, 0, &byte, 1);
	if (LIE == WRITES_TOO_EARLY)
		host->write(host, &byte, 1);
	if (LIE == GIVES_A_FILE)
		host->add(host, "file", &byte, 1);
	memcpy(ret->dtype, in[0].dtype, sizeof(ret->dtype));
	ret->rank = in[0].rank + 1;
	ret->shape[0] = (uint64_t)times(args);
	memcpy(ret->shape + 1, in[0].shape, in[0].rank * sizeof(ret->shape[0]));
	if (LIE == UNKNOWN_DTYPE)
		strcpy(ret->dtype, "float99");
	if (LIE == ENDLESS_DTYPE)
		memset(ret->dtype, 'f', sizeof(ret->dtype));
	if (LIE == MANY_AXES)
		ret->rank = 0xffffffff;
	if (LIE == HUGE)
		ret->shape[0] = (uint64_t)1 << 25;
	for (int i = 0; LIE == HUGE_AXES && i < 3; i++)
		ret->shape[i] = (uint64_t)1 << 40;
	if (LIE == HUGE_AXES)
		ret->rank = 3;
	return LIE == ODD_PLAN ? 7 : 0;
}

static uint64_t bytes_of(const struct pytreefs_array *a)
{
	uint64_t n = strcmp(a->dtype, "float32") ? 1 : 4;

	for (uint32_t i = 0; i < a->rank; i++)
		n *= a->shape[i];
	return n;
}

static int run(const struct pytreefs_host *host, const char *args, const struct pytreefs_array *in,
	       uint32_t n, const struct pytreefs_array *out)
{
	static char some[1 << 20];
	uint64_t size = bytes_of(&in[0]);

	if (LIE == FAILS)
		host->message(host, "the moon is in the wrong phase");
	if (LIE == FAILS || LIE == FAILS_SILENTLY)
		return -1;
	if (LIE == WRITES_NOTHING)
		return 0;
	/* It is refused, and ignores that. */
	if (LIE == READS_BEHIND)
		host->read(host, 0, size - 3, some, 4);
	if (LIE == READS_FAR_BEHIND)
		host->read(host, 0, UINT64_MAX - 1, some, 4);
	if (LIE == READS_ANOTHER)
		host->read(host, n, 0, some, 4);
	if (LIE == READS_TO_NOWHERE)
		host->read(host, 0, 0, NULL, 4);
	if (LIE == WRITES_FROM_NOWHERE)
		host->write(host, NULL, 4);
	for (int t = 0; t < times(args); t++)
		for (uint64_t at = 0, now; at < size; at += now) {
			now = size - at < 1000 ? size - at : 1000;
			if (host->read(host, 0, at, some, now) < 0 && LIE != DOES_NOT_MIND)
				return -1;
			if (host->write(host, some,
					now - (LIE == WRITES_LESS && at + now == size)) < 0 &&
			    LIE != DOES_NOT_MIND)
				return -1;
		}
	if (LIE == WRITES_MORE)
		host->write(host, some, 1);
	for (int i = 0; LIE == WRITES_MUCH_MORE && i < 1000; i++)
		host->write(host, some, UINT64_MAX - 1);
	return LIE == ODD_RESULT ? 7 : 0;
}

const struct pytreefs_plugin *pytreefs_plugin(void)
{
	static const struct pytreefs_value_fn value = {
		.size = LIE == SHORT_VALUE ? 16 : sizeof(value),
		.flags = PYTREEFS_SERIAL,
		.name = LIE == NO_NAME  ? NULL :
			LIE == OUR_NAME ? "concat" :
			LIE == BAD_NAME ? "a(b" :
					  "repeat",
		.summary = "said \"again\"\nand\tagain \\",
		.plan = LIE == NO_PLAN ? NULL : plan,
		.run = LIE == NO_RUN ? NULL : run,
	};
	static const struct pytreefs_value_fn *const values[] = { LIE == NULL_VALUE ? NULL :
										      &value };
	static const struct pytreefs_plugin plugin = {
		.abi = PYTREEFS_ABI,
		.size = sizeof(plugin),
		.name = "liar",
		.values = values,
		.n_values = LIE == TOO_MANY_VALUES ? 1u << 31 : 1,
	};

	return &plugin;
}
