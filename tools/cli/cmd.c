/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd.c - parses options by table, and prints help from the same table.
 */
#include "tools/cli/cmd.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include "core/base/err.h"

const char *cmd_value(const struct cmd_args *a, const char *name)
{
	for (int i = 0; a->cmd->options[i].name; i++)
		if (!strcmp(a->cmd->options[i].name, name))
			return a->value[i];
	/* A bug in the program. */
	fprintf(stderr, "pytreefs: the table of options of '%s' has no '%s'\n", a->cmd->name, name);
	abort();
}

int cmd_usage(const struct cmd *c, const char *what)
{
	if (what)
		fprintf(stderr, "pytreefs %s: %s\n", c->name, what);
	fprintf(stderr, "usage: pytreefs %s [options] %s\ntry `pytreefs %s --help`\n", c->name,
		c->args, c->name);
	return EXIT_USAGE;
}

int cmd_wrong(const struct cmd *c, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "pytreefs %s: ", c->name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return cmd_usage(c, NULL);
}

const char cmd_copy_sample[] = "cp -r " PYTREEFS_SAMPLE " ckpts";

bool cmd_needs_sample(const struct cmd *c)
{
	return strstr(c->example, " ckpts");
}

void cmd_help(FILE *out, const struct cmd *c)
{
	const char *before = "      ";
	char left[64];
	fprintf(out, "usage: pytreefs %s [options]%s%s\n\n%s\n", c->name, c->args[0] ? " " : "",
		c->args, c->summary);
	if (c->help[0])
		fprintf(out, "\n%s\n", c->help);
	fprintf(out, "\noptions:\n");
	for (const struct cmd_option *o = c->options; o->name; o++) {
		if (o->in_manual)
			continue;
		snprintf(left, sizeof(left), "%s%c%s--%s%s%s", o->letter ? "-" : "",
			 o->letter ? o->letter : ' ', o->letter ? ", " : "   ", o->name,
			 o->arg ? " " : "", o->arg ? o->arg : "");
		fprintf(out, "  %-26s %s\n", left, o->help);
	}
	for (const struct cmd_option *o = c->options; o->name; o++)
		if (o->in_manual) {
			fprintf(out, "%s--%s", before, o->name);
			before = ", ";
		}
	if (*before == ',')
		fprintf(out, ": see `man pytreefs`\n");
	if (c->takes_mount_options)
		fprintf(out, "  %-26s %s\n", "-o NAME[=VALUE],...",
			"checkpoint options: see `pytreefs help options`");
	fprintf(out, "  %-26s %s\n", "-h, --help", "this text");
	fprintf(out, "\nexample:\n");
	if (cmd_needs_sample(c))
		fprintf(out, "  %s\n", cmd_copy_sample);
	for (const char *line = c->example; *line;) {
		size_t n = strcspn(line, "\n");

		fprintf(out, "  %.*s\n", (int)n, line);
		line += n + (line[n] != 0);
	}
}

void print_size(char *out, size_t n, uint64_t bytes)
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double v = (double)bytes;
	int i = 0;

	for (; v >= 1024 && i < 6; i++)
		v /= 1024;
	snprintf(out, n, i ? "%.1f %s" : "%.0f %s", v, unit[i]);
}

void print_span(FILE *out, struct span bytes)
{
	if (bytes.n > 0)
		fwrite(bytes.p, 1, bytes.n, out);
}

static atomic_bool lacks_text;

bool output_lacks_text(void)
{
	return lacks_text;
}

void print_buf(FILE *out, const struct buf *text)
{
	if (buf_failed(text))
		lacks_text = true;
	print_span(out, buf_span(text));
}

void print_name(FILE *out, const char *name)
{
	auto_buf shown = { 0 };

	buf_add_shown(&shown, span_str(name));
	print_buf(out, &shown);
}

void print_failure(int r)
{
	fputs("pytreefs: ", stderr);
	print_name(stderr, err_text(r));
	fputc('\n', stderr);
}

int mpi_ranks(void)
{
	const char *size = getenv("OMPI_COMM_WORLD_SIZE");

	return size ? MAX(atoi(size), 1) : 1;
}
