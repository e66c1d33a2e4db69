/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help_options.c - prints the option table: `pytreefs help options` and docs/options.md.
 */
#include "tools/cli/help.h"

#include <stdio.h>
#include <string.h>

#include "handlers/options/options.h"

static void print_text(FILE *out)
{
	fprintf(out, "Options of a checkpoint, given as -o NAME=VALUE,NAME=VALUE:\n\n");
	for (size_t i = 0; i < option_count; i++) {
		const struct option *o = &option_table[i];

		fprintf(out, "  %s=%s%s%s%s\n      %s\n", o->name, o->accepts,
			o->fallback && *o->fallback ? " (" : "", o->fallback ? o->fallback : "",
			o->fallback && *o->fallback ? ")" : "", o->help);
	}
}

/*
 * Print the text of a table cell: escape bars, which would end it, and stars, which would be
 * emphasis.
 */
static void print_cell(FILE *out, const char *text)
{
	for (; *text; text++)
		fprintf(out, *text == '|' || *text == '*' ? "\\%c" : "%c", *text);
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
		fprintf(out, " | %s%s%s | ", o->fallback && *o->fallback ? "`" : "",
			o->fallback ? o->fallback : "", o->fallback && *o->fallback ? "`" : "");
		print_cell(out, o->help);
		fprintf(out, " |\n");
	}
}

static const struct {
	const char *pattern, *chooses;
} pattern_rows[] = {
	{ "kernel",
	  "every leaf called kernel, at any depth: a pattern without a slash is matched against "
	  "the last name" },
	{ "w*", "every leaf whose name begins with w" },
	{ "params/dense/kernel", "this leaf: a pattern with a slash is matched from the item on" },
	{ "state/params/dense/kernel", "the same, in item state: its name may stand in front" },
	{ "params/dense",
	  "all that is below this directory: a plain name at the end may be a directory's" },
	{ "params/", "all below params; a slash at the end asks for a directory" },
	{ "params/**", "the same: ** is any number of names" },
	{ "params/*", "the leaves right in params, not those further down: * stays within a name" },
	{ "**/bias",
	  "every leaf called bias, as bias alone says, and all below directories called so" },
	{ "/step", "the leaf step at the top of the item" },
	{ "layers/[0-3]/*",
	  "the leaves of layers 0 to 3: one character of a set; [!0-3] is one that is not in it" },
	{ "layers/1?/*", "of layers 10 to 19: ? is one character" },
	{ "a\\*b", "the leaf called a*b: \\ takes a character as it is" },
};

static const char pattern_text[] =
	"Patterns choose leaves for -o rule=, aggregate= and priority=, and for --only of the "
	"commands, which knows a\n"
	"leaf with its extension, too. A pattern that chooses nothing is reported: in the log when "
	"a draft is committed, on stderr\n"
	"by convert and save; --only is an error then.\n";

void help_patterns(FILE *out)
{
	fputs(pattern_text, out);
	fputc('\n', out);
	for (size_t i = 0; i < ARRAY_LEN(pattern_rows); i++)
		fprintf(out, "  %-26s %s\n", pattern_rows[i].pattern, pattern_rows[i].chooses);
}

static void print_markdown(FILE *out)
{
	fprintf(out,
		"# Options\n\n"
		"Made from the program's own table by `pytreefs help options --markdown`.\n\n"
		"Options are given as `-o NAME=VALUE,NAME=VALUE` to `mount` and to every command "
		"that opens a checkpoint; lists inside\n"
		"a value use `:`. The environment variable `PYTREEFS_OPTIONS` sets defaults in the "
		"same form. Sizes are written `64M`,\n"
		"`1G`. `.pytreefs/config` in a mount shows each value and its source.\n\n"
		"## How leaves and items are saved\n\n"
		"These options can also be set by [pattern](#patterns), `-o rule=GLOB:NAME=VALUE`, "
		"and in a draft by an xattr,\n"
		"`user.pytree.save.NAME` on a leaf or directory. The xattr of a leaf overrides "
		"that of a directory, which overrides a\n"
		"rule, which overrides the mount. An option that applies to a whole item is taken "
		"from patterns that match the item\n"
		"(`rule=state:zarr=3`, `rule=**:zarr=3`), and from the xattr of the item or of the "
		"draft.\n\n");
	print_rows(out, true);
	fprintf(out, "\n## The mount\n\n");
	print_rows(out, false);
	fprintf(out, "\n## Patterns\n\n%s\n", pattern_text);
	for (size_t i = 0; i < ARRAY_LEN(pattern_rows); i++) {
		fprintf(out, "* `%s`: ", pattern_rows[i].pattern);
		print_cell(out, pattern_rows[i].chooses);
		fputc('\n', out);
	}
}

int help_options(FILE *out, const char *format)
{
	if (!format || !strcmp(format, "--text"))
		print_text(out);
	else if (!strcmp(format, "--markdown"))
		print_markdown(out);
	else
		return -1;
	return 0;
}
