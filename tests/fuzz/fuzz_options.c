/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_options.c - options and rules of a mount: what is taken prints, and what it prints is taken
 * and prints alike; what rules give to a path is within bounds.
 *
 * Input: lines as after -o. What opens files by name (plugin=, transforms=) is left out.
 */
#include <string.h>

#include "core/base/err.h"
#include "handlers/options/options.h"
#include "tests/fuzz/fuzz.h"

static bool opens_files(const char *line)
{
	return !strncmp(line, "plugin", 6) || !strncmp(line, "transforms", 10);
}

/* The value in force as it is printed, and after that was set. */
static void check_again(struct options *o, size_t i)
{
	const struct option *opt = &option_table[i];
	auto_buf first = { 0 }, second = { 0 }, text = { 0 };

	switch (opt->kind) {
	case OPTION_BOOL:
	case OPTION_SIZE:
	case OPTION_UINT:
	case OPTION_ENUM:
	case OPTION_COMPRESSION:
		break;
	default:
		return;
	}
	/* A size that follows free memory is different each time. */
	if (o->follows[i])
		return;
	must(option_print(o, opt, &first) == 0);
	must(buf_addf(&text, "%s=%.*s", opt->name, SPAN_ARG(buf_span(&first))) >= 0);
	must(option_set(o, buf_str(&text), false) == 0);
	must(option_print(o, opt, &second) == 0);
	must(span_eq(buf_span(&first), buf_span(&second)));
}

static void check_paths(const struct options *o, const char *last)
{
	const char *const paths[] = { "default/params/w", "state", "", "a/b/c/d", last };

	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		for (unsigned skip = 0; skip < 2; skip++) {
			struct save_opts s = { 0 };

			save_opts_for(o, span_str(paths[i]), skip, &s);
			must(compression_is_sound(&s.compression));
			must(s.shard_axes.n <= LIMIT_RANK);
			must(s.zarr == SAVE_ZARR2 || s.zarr == SAVE_ZARR3);
		}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_free char *text = span_dup_str(span_of(data, size));
	struct options o = { 0 };
	const char *last = "";
	char *rest = text, *line;

	must(text && options_init(&o) == 0);
	while ((line = strsep(&rest, "\n"))) {
		if (opens_files(line))
			continue;
		/* A failure has its note. */
		if (option_set(&o, line, false) < 0)
			must(err_text(-EINVAL) != NULL);
		last = line;
	}
	for (size_t i = 0; i < option_count; i++)
		check_again(&o, i);
	check_paths(&o, last);
	options_release(&o);
	err_clear();
	return 0;
}
