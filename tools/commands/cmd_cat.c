/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_cat.c - `pytreefs cat`: writes a file of the mount, or a range of it, to stdout, without a
 * mount.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/write_all.h"
#include "tools/cli/cmd.h"

#define BLOCK (4 * MiB)
#define BINARY_WITHIN 512

struct cat {
	uint64_t skip, count;
	int lost; /* error of the output, which cannot be written any more; 0: none */
	bool to_terminal;
	const char *path;
};

static int write_gather(struct cat *c, const struct segments *g)
{
	for (size_t i = 0; i < g->n; i++) {
		const struct segment *s = &g->seg[i];
		auto_free void *copy = NULL;
		struct span bytes;
		int r = 0;

		if (s->kind == SEGMENT_FILE) {
			copy = malloc(s->n ? s->n : 1);
			r = copy ? io_read_exact(s->file, copy, s->n, s->off) : -ENOMEM;
		}
		if (r < 0)
			return r;
		bytes = span_of(copy ? copy : s->p, s->n);
		/* Of an array, the header has it already. */
		if (c->to_terminal && memchr(bytes.p, 0, MIN(s->n, (size_t)BINARY_WITHIN)))
			return fail(-EINVAL,
				    "'%s' is binary, which may disturb the terminal: a name with "
				    ".json prints the values, and > FILE or | cat takes the bytes",
				    c->path);
		r = write_all(STDOUT_FILENO, bytes);
		if (r < 0)
			return c->lost = err_code(r, "cannot write", "output");
	}
	return 0;
}

static int cat_one(struct cmd_args *a, struct cat *c, const char *path)
{
	uint64_t off = c->skip, n = c->count;
	auto_source s = { 0 };
	auto_of(file) struct file *f = NULL;
	auto_segments g = { 0 };
	int r = source_open_file(a, path, &s);

	if (r < 0)
		return r;
	r = node_open(s.node, O_RDONLY, &f);
	if (r < 0)
		return r;
	f->is_single = true;
	segments_init(&g, s.ns->ckpt->cache);
	while (n > 0) {
		r = file_read(f, off, (size_t)MIN(n, (uint64_t)BLOCK), &g);
		if (r < 0 || g.bytes == 0)
			return r;
		off += g.bytes;
		n -= g.bytes;
		r = write_gather(c, &g);
		segments_release(&g);
		if (r < 0)
			return r;
	}
	return 0;
}

static int run_cat(struct cmd_args *a)
{
	const char *skip = cmd_value(a, "skip"), *count = cmd_value(a, "count");
	struct cat c = { .count = UINT64_MAX, .to_terminal = a->colour };
	bool bad = false;

	if (skip && option_parse_size(skip, &c.skip) < 0)
		return cmd_wrong(a->cmd, "'%s' is not a number of bytes", skip);
	if (count && option_parse_size(count, &c.count) < 0)
		return cmd_wrong(a->cmd, "'%s' is not a number of bytes", count);
	/* Like cat(1), continue with the other files after an error. */
	for (int i = 0; i < a->n_args && !c.lost; i++) {
		int r;

		c.path = a->arg[i];
		r = cat_one(a, &c, a->arg[i]);
		bad |= r < 0;
		/* A reader that has ended early, such as head(1), is not an error. */
		if (r < 0 && c.lost != -EPIPE)
			print_failure(r);
	}
	return bad ? EXIT_FOUND : EXIT_OK;
}

static const struct cmd_option options[] = {
	{ "skip", 's', "BYTES", "skip the first BYTES bytes" },
	{ "count", 'c', "BYTES", "print at most BYTES bytes" },
	{ 0 },
};

const struct cmd cmd_cat = {
	.name = "cat",
	.args = "SOURCE/PATH...",
	.summary = "write a leaf, or any view of it, to stdout, without a mount",
	.help = "",
	.example = "pytreefs cat ckpts/latest/state/step.json",
	.options = options,
	.min_args = 1,
	.max_args = 1000000,
	.takes_mount_options = true,
	.confined = CMD_READS,
	.found = "a part could not be read; the rest was printed.",
	.run = run_cat,
};
