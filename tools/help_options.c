/*
 * help_options.c - the option table for people: `pytreefs help options` and docs/options.md.
 */
#include "tools/help_options.h"

#include <stdio.h>
#include <string.h>

#include "handlers/options.h"

static void print_text(FILE *out)
{
	fprintf(out, "Options of a checkpoint, given as -o NAME=VALUE,NAME=VALUE:\n\n");
	for (size_t i = 0; i < option_count; i++) {
		const struct option *o = &option_table[i];

		fprintf(out, "  %s=%s%s%s%s\n      %s\n", o->name, o->accepts, o->fallback && *o->fallback ? " (" : "",
			o->fallback ? o->fallback : "", o->fallback && *o->fallback ? ")" : "", o->help);
	}
}

/* Text of a table's cell: bars would end it. */
static void print_cell(FILE *out, const char *text)
{
	for (; *text; text++)
		fprintf(out, *text == '|' ? "\\%c" : "%c", *text);
}

static void print_rows(FILE *out, bool scoped)
{
	fprintf(out, "| Option | Takes | Default | What it does |\n|---|---|---|---|\n");
	for (size_t i = 0; i < option_count; i++) {
		const struct option *o = &option_table[i];

		if (o->scoped != scoped)
			continue;
		fprintf(out, "| `%s` | ", o->name);
		print_cell(out, o->accepts);
		fprintf(out, " | %s%s%s | ", o->fallback && *o->fallback ? "`" : "", o->fallback ? o->fallback : "",
			o->fallback && *o->fallback ? "`" : "");
		print_cell(out, o->help);
		fprintf(out, " |\n");
	}
}

static void print_markdown(FILE *out)
{
	fprintf(out, "# Options\n\n"
		     "Made from the program's own table by `pytreefs help options --markdown`.\n\n"
		     "Given as `-o NAME=VALUE,NAME=VALUE` to `mount` and to every command that opens a checkpoint; lists inside\n"
		     "a value use `:`. The environment variable `PYTREEFS_OPTIONS` holds defaults of your own in the same form.\n"
		     "Sizes are written `64M`, `1G`. `.pytreefs/config` in a mount shows each value and where it came from.\n\n"
		     "## How leaves and items are saved\n\n"
		     "Also by pattern, `-o rule=GLOB:NAME=VALUE`, and in a draft by an xattr, `user.pytree.save.NAME` on a leaf or\n"
		     "directory. The xattr of a leaf wins over that of a directory, over a rule, over the mount. What is of a whole item\n"
		     "is taken from patterns that match the item (`rule=state:zarr=3`, `rule=**:zarr=3`) and from its xattr, or that of\n"
		     "the draft.\n\n");
	print_rows(out, true);
	fprintf(out, "\n## The mount\n\n");
	print_rows(out, false);
}

int help_options(FILE *out, const char *form)
{
	if (!form || !strcmp(form, "--text"))
		print_text(out);
	else if (!strcmp(form, "--markdown"))
		print_markdown(out);
	else
		return -1;
	return 0;
}
