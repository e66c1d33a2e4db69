/*
 * cmd.c - parsing of options by table, help from the same table, and paths of the user's.
 */
#include "tools/cmd.h"

#include <ctype.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/base/log.h"

const char *cmd_value(const struct cmd_args *a, const char *name)
{
	for (int i = 0; a->cmd->options[i].name; i++)
		if (!strcmp(a->cmd->options[i].name, name))
			return a->value[i];
	abort();			/* our own mistake: the table does not have it */
}

int cmd_usage(const struct cmd *c, const char *what)
{
	if (what)
		fprintf(stderr, "pytreefs %s: %s\n", c->name, what);
	fprintf(stderr, "usage: pytreefs %s [options] %s\ntry `pytreefs %s --help`\n", c->name, c->args, c->name);
	return EXIT_USAGE;
}

static void print_option(FILE *out, const struct cmd_option *o)
{
	char left[64];

	snprintf(left, sizeof(left), "%s%c%s--%s%s%s", o->letter ? "-" : "", o->letter ? o->letter : ' ',
		 o->letter ? ", " : "   ", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
	fprintf(out, "  %-30s %s\n", left, o->help);
}

void cmd_help(FILE *out, const struct cmd *c)
{
	fprintf(out, "usage: pytreefs %s [options]%s%s\n\n%s\n", c->name, c->args[0] ? " " : "", c->args,
		c->summary);
	if (c->help[0])
		fprintf(out, "\n%s\n", c->help);
	fprintf(out, "\noptions:\n");
	for (const struct cmd_option *o = c->options; o->name; o++)
		print_option(out, o);
	if (c->takes_mount_options)
		fprintf(out, "  %-30s %s\n", "-o NAME[=VALUE],...", "options of the checkpoint: see `pytreefs help options`");
	fprintf(out, "  %-30s %s\n", "-h, --help", "this text");
	fprintf(out, "\nexample:\n  %s\n", c->example);
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

void print_name(FILE *out, const char *name)
{
	bool terminal = isatty(fileno(out));

	for (; *name; name++)
		fputc(terminal && iscntrl((unsigned char)*name) ? '?' : *name, out);
}

/* ---- paths ---- */

/* Whether the first n bytes of path are a checkpoint: 1, 0, or an error worth telling. */
static int try_source(struct cmd_args *a, const char *path, size_t n, struct source *ret)
{
	char *dir = span_dup_str(span_of(path, n));
	struct stat st;
	int r;

	if (!dir)
		return fail(-ENOMEM, "cannot open '%s'", path);
	if (stat(dir, &st) < 0 || !S_ISDIR(st.st_mode)) {
		free(dir);
		return 0;
	}
	r = ns_open(dir, &a->options, &ret->ns);
	if (r < 0) {
		free(dir);
		return r;
	}
	ret->source = dir;
	return 1;
}

int source_open(struct cmd_args *a, const char *path, struct source *ret)
{
	size_t n = strlen(path), end;
	struct err_note first = { 0 };
	int r = 0;

	*ret = (struct source){ 0 };
	while (n > 1 && path[n - 1] == '/')
		n--;
	/* From the whole path upwards: the first directory that is a checkpoint. */
	for (end = n; end > 0 && r == 0;) {
		r = try_source(a, path, end, ret);
		if (r == -EINVAL) {
			/* A directory, but no checkpoint: perhaps one above it is. */
			if (!first.code)
				err_save(r, &first);
			r = 0;
		}
		if (r != 0)
			break;
		while (end > 0 && path[end - 1] != '/')
			end--;
		while (end > 1 && path[end - 1] == '/')
			end--;
		if (end == 1 && path[0] == '/')
			break;
	}
	if (r == 0)
		r = first.code ? err_restore(&first) : fail(-ENOENT, "'%s' does not exist", path);
	if (r < 0)
		return r;
	while (path[end] == '/')
		end++;
	ret->inner = span_dup_str(span_of(path + MIN(end, n), n - MIN(end, n)));
	r = ret->inner ? ns_start(ret->ns, NULL) : fail(-ENOMEM, "cannot open '%s'", path);
	if (r >= 0)
		r = node_walk(ret->ns->root, ret->inner, &ret->node);
	if (r == -ENOENT)
		r = *err_where(r) ? err_at(r, "'%s' in '%s'", ret->inner, ret->source) :
				    fail(-ENOENT, "'%s' has no '%s'", ret->source, ret->inner);
	if (r < 0)
		source_close(ret);
	return r;
}

void source_close(struct source *s)
{
	node_unref(s->node, 1);
	ns_close(s->ns);
	free(s->source);
	free(s->inner);
	*s = (struct source){ 0 };
}
