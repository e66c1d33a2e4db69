/*
 * cmd_cat.c - `pytreefs cat`: one file of the mount, or a range of it, to stdout, without a mount.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "tools/cmd.h"

#define BLOCK (4 * MiB)

static int write_all(const void *p, size_t n)
{
	const char *at = p;

	while (n > 0) {
		ssize_t w = write(STDOUT_FILENO, at, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return err_sys("cannot write", "output");
		at += w;
		n -= (size_t)w;
	}
	return 0;
}

static int write_gather(const struct gather *g)
{
	for (size_t i = 0; i < g->n; i++) {
		const struct gather_seg *s = &g->seg[i];
		int r = 0;

		if (s->kind == GATHER_MEM) {
			r = write_all(s->p, s->n);
		} else {
			auto_free void *p = malloc(s->n ? s->n : 1);

			r = p ? io_read_exact(s->file, p, s->n, s->off) : -ENOMEM;
			if (r >= 0)
				r = write_all(p, s->n);
		}
		if (r < 0)
			return r;
	}
	return 0;
}

static int copy_range(struct file *f, uint64_t off, uint64_t n)
{
	struct gather g;
	int r = 0;

	gather_init(&g, f->node->ns->ckpt->cache);
	while (n > 0 && r >= 0) {
		r = file_read(f, off, (size_t)MIN(n, (uint64_t)BLOCK), &g);
		if (r < 0 || g.bytes == 0)
			break;
		off += g.bytes;
		n -= g.bytes;
		r = write_gather(&g);
		gather_release(&g);
	}
	gather_release(&g);
	return r;
}

static int cat_one(struct cmd_args *a, const char *path, uint64_t off, uint64_t n)
{
	auto_source s = { 0 };
	auto_of(file) struct file *f = NULL;
	int r = source_open(a, path, &s);

	if (r >= 0)
		r = node_open(s.node, O_RDONLY, &f);
	if (r >= 0)
		r = copy_range(f, off, n);
	file_close(take(f));
	return r;
}

static int run_cat(struct cmd_args *a)
{
	const char *skip = cmd_value(a, "skip"), *count = cmd_value(a, "count");
	uint64_t off = 0, n = UINT64_MAX;
	int r = 0;

	if (skip && option_parse_size(skip, &off) < 0)
		return fail(-EINVAL, "'%s' is no number of bytes", skip);
	if (count && option_parse_size(count, &n) < 0)
		return fail(-EINVAL, "'%s' is no number of bytes", count);
	for (int i = 0; i < a->n_args && r >= 0; i++)
		r = cat_one(a, a->arg[i], off, n);
	return r < 0 ? r : EXIT_OK;
}

static const struct cmd_option options[] = {
	{ "skip", 's', "BYTES", "begin there" },
	{ "count", 'c', "BYTES", "no more than that" },
	{ 0 },
};

const struct cmd cmd_cat = {
	.name = "cat",
	.args = "SOURCE/PATH...",
	.summary = "write a leaf, or any view of it, to stdout, without a mount",
	.help = "",
	.example = "pytreefs cat tests/data/sample/latest/state/step.json",
	.options = options,
	.min_args = 1,
	.max_args = 1000000,
	.takes_mount_options = true,
	.run = run_cat,
};
