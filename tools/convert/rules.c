/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.c - reports what rules leave out.
 */
#include "tools/convert/rules.h"

#include "core/base/err.h"
#include "handlers/namespace/node_parts.h"

int rules_check(const struct cmd_args *a, const struct subtree *st, bool say)
{
	const struct transform *t = a->options.transform;
	auto_left_out found = { 0 };
	auto_buf text = { 0 };
	int r = t ? node_parts_left_out(t, st, &found) : 0;

	if (r < 0 || (!found.unused && !found.idle))
		return r;
	r = transform_left_out_text(&found, &text);
	if (r < 0)
		return -ENOMEM;
	r = buf_addf(&text, " (`pytreefs transform --check %s` lists them)", a->options.transforms);
	if (r < 0 || !buf_str(&text))
		return -ENOMEM;
	if (cmd_flag(a, "strict"))
		return fail(-EINVAL, "--strict: %s", buf_str(&text));
	if (say && !cmd_flag(a, "quiet")) {
		fputs("pytreefs: transforms: ", stderr);
		print_name(stderr, buf_str(&text));
		fputc('\n', stderr);
	}
	return 0;
}
