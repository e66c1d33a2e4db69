/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mean.c - a value function as a plugin: "value_fn": "mean()".
 *
 * The mean of several float32 arrays of one shape, as numpy.mean(numpy.stack(inputs), 0) computes
 * it. It can average the weights of several checkpoints, or of several layers.
 */
#include <string.h>

#include "handlers/plugin/leaf_plugin.h"

#define PIECE 16384 /* elements in memory at once */

static int mean_plan(const struct pytreefs_host *host, const char *args,
		     const struct pytreefs_array *in, uint32_t n, struct pytreefs_array *ret)
{
	if (*args) {
		host->message(host, "it takes no arguments");
		return -1;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (strcmp(in[i].dtype, "float32")) {
			host->message(host, "it takes float32 only");
			return -1;
		}
		if (in[i].rank != in[0].rank ||
		    memcmp(in[i].shape, in[0].shape, in[0].rank * sizeof(in[0].shape[0]))) {
			host->message(host, "its inputs differ in shape");
			return -1;
		}
	}
	*ret = in[0];
	return 0;
}

static int mean_run(const struct pytreefs_host *host, const char *args,
		    const struct pytreefs_array *in, uint32_t n, const struct pytreefs_array *out)
{
	float sum[PIECE], next[PIECE];
	uint64_t total = 1;

	for (uint32_t i = 0; i < out->rank; i++)
		total *= out->shape[i];
	for (uint64_t at = 0, count; at < total; at += count) {
		count = total - at < PIECE ? total - at : PIECE;
		if (host->read(host, 0, at * sizeof(float), sum, count * sizeof(float)) < 0)
			return -1;
		for (uint32_t i = 1; i < n; i++) {
			if (host->read(host, i, at * sizeof(float), next, count * sizeof(float)) <
			    0)
				return -1;
			for (uint64_t k = 0; k < count; k++)
				sum[k] += next[k];
		}
		for (uint64_t k = 0; k < count; k++)
			sum[k] /= (float)n;
		if (host->write(host, sum, count * sizeof(float)) < 0)
			return -1;
	}
	return 0;
}

const struct pytreefs_plugin *pytreefs_plugin(void)
{
	static const struct pytreefs_value_fn mean = {
		.size = sizeof(mean),
		.name = "mean",
		.plan = mean_plan,
		.run = mean_run,
		.summary = "of several float32 arrays of one shape, element by element",
	};
	static const struct pytreefs_value_fn *const values[] = { &mean };
	static const struct pytreefs_plugin plugin = {
		.abi = PYTREEFS_ABI,
		.size = sizeof(plugin),
		.name = "mean",
		.values = values,
		.n_values = 1,
	};

	return &plugin;
}
