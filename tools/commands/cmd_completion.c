/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_completion.c - `pytreefs completion SHELL`: completions for the TAB key, made from the option
 * tables.
 *
 * The scripts complete commands, their options, the options of -o and their values. Everything else
 * is a file name, which the shell completes itself.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "tools/cli/cmd.h"
#include "tools/cli/help.h"

/* Whether it is a choice of plain words, "a|b|c". */
static bool is_choice(const char *accepts)
{
	return accepts && strchr(accepts, '|') &&
	       !accepts[strspn(accepts, "abcdefghijklmnopqrstuvwxyz0123456789_|")];
}

/* Print the words of a choice between two texts; false: it is none. */
static bool put_choices(FILE *out, const char *before, const char *accepts, const char *after)
{
	if (!is_choice(accepts))
		return false;
	fputs(before, out);
	for (; *accepts; accepts++)
		fputc(*accepts == '|' ? ' ' : *accepts, out);
	fputs(after, out);
	return true;
}

/* The same for the words that the first argument of a command may be. */
static bool put_words(FILE *out, const char *before, const struct cmd *c, const char *after)
{
	char words[128];

	snprintf(words, sizeof(words), "%.*s", (int)strcspn(c->args, " "), c->args);
	return put_choices(out, before, words, after);
}

static void put_commands(FILE *out)
{
	for (const struct cmd *const *c = cmd_table; *c; c++)
		fprintf(out, " %s", (*c)->name);
}

static void put_mount_options(FILE *out)
{
	for (size_t i = 0; i < option_count; i++)
		fprintf(out, "%s%s=", i ? " " : "", option_table[i].name);
}

/* Print text inside single quotes of a shell. */
static void completion_put_quoted(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '\'')
			fputs("'\\''", out);
		else
			fputc(*text, out);
	}
}

/* ---- bash ---- */

static void bash_cmd(FILE *out, const struct cmd *c)
{
	fprintf(out, "\t%s)\n\t\toptions='--help -h", c->name);
	for (const struct cmd_option *o = c->options; o->name; o++) {
		fprintf(out, " --%s", o->name);
		if (o->letter)
			fprintf(out, " -%c", o->letter);
	}
	fprintf(out, "%s'\n", c->takes_mount_options ? " -o" : "");
	put_words(out, "\t\t((i == 2)) && words='", c, "'\n");
	for (const struct cmd_option *o = c->options; o->name; o++) {
		if (!is_choice(o->arg))
			continue;
		fprintf(out, "\t\tcase $prev in --%s%s%c) words='", o->name, o->letter ? "|-" : "",
			o->letter ? o->letter : ' ');
		put_choices(out, "", o->arg, "' ;; esac\n");
	}
	fprintf(out, "\t\t;;\n");
}

/* Print the arguments of `pytreefs help` besides commands. */
static void put_topics(FILE *out)
{
	fprintf(out, "options patterns ");
	help_topics_list(out, " ");
}

static void bash_print(FILE *out)
{
	fprintf(out,
		"# bash completion of pytreefs; made by `pytreefs completion bash`\n"
		"_pytreefs() {\n"
		"\tlocal cur=${COMP_WORDS[COMP_CWORD]} i=$COMP_CWORD text prev options= words= "
		"item begin\n"
		"\ttext=$cur\n"
		"\tCOMPREPLY=()\n"
		"\t# Join the words that the shell has split at '=' and ':'.\n"
		"\twhile ((i > 1)) && [[ ${COMP_WORDS[i]} == [=:] || ${COMP_WORDS[i-1]} == [=:] "
		"]]; do\n"
		"\t\t((i--))\n\t\ttext=${COMP_WORDS[i]}$text\n\tdone\n"
		"\tprev=${COMP_WORDS[i-1]}\n"
		"\tbegin=${text%%\"${text##*[=:]}\"}\n"
		"\tif ((i == 1)); then\n\t\tmapfile -t COMPREPLY < <(compgen -W 'help --help "
		"--version");
	put_commands(out);
	fprintf(out, "' -- \"$text\")\n\t\treturn\n\tfi\n"
		     "\tif [[ $text == --*=* ]]; "
		     "then\n\t\tprev=${text%%%%=*}\n\t\ttext=${text#*=}\n\tfi\n"
		     "\tcase ${COMP_WORDS[1]} in\n");
	for (const struct cmd *const *c = cmd_table; *c; c++)
		bash_cmd(out, *c);
	fprintf(out, "\thelp)\n\t\twords='--man ");
	put_topics(out);
	put_commands(out);
	fprintf(out, "'\n\t\t;;\n\tesac\n"
		     "\tif [[ $prev == -o && $options == *' -o' ]]; then\n"
		     "\t\titem=${text##*,}\n"
		     "\t\tcase $item in\n");
	for (size_t i = 0; i < option_count; i++) {
		if (!is_choice(option_table[i].accepts))
			continue;
		fprintf(out, "\t\t%s=*) words='", option_table[i].name);
		for (const char *word = option_table[i].accepts; *word;) {
			size_t n = strcspn(word, "|");

			fprintf(out, " %s=%.*s", option_table[i].name, (int)n, word);
			word += n + (word[n] == '|');
		}
		fprintf(out, "' ;;\n");
	}
	fprintf(out, "\t\t*=*) ;;\n\t\t*)\n\t\t\tcompopt -o nospace 2>/dev/null\n\t\t\twords='");
	put_mount_options(out);
	fprintf(out,
		"'\n\t\t\t;;\n\t\tesac\n"
		"\t\tmapfile -t COMPREPLY < <(compgen -P \"${text%%\"$item\"}\" -W \"$words\" -- "
		"\"$item\")\n"
		"\t\tCOMPREPLY=(\"${COMPREPLY[@]#\"$begin\"}\")\n"
		"\telif [[ -n $words && $text != -* ]]; then\n"
		"\t\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$text\")\n"
		"\telif [[ $text == -* ]]; then\n"
		"\t\tmapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$text\")\n"
		"\telse\n"
		"\t\tcompopt -o filenames 2>/dev/null\n"
		"\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
		"\tfi\n}\ncomplete -F _pytreefs pytreefs\n");
}

/* ---- zsh ---- */

/* Print help inside the brackets of an _arguments specification, in single quotes. */
static void zsh_help(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (strchr("[]\\:", *text))
			fputc('\\', out);
		if (*text == '\'')
			fputs("'\\''", out);
		else
			fputc(*text, out);
	}
}

static void zsh_option(FILE *out, const struct cmd_option *o, const char *name)
{
	fprintf(out, " \\\n\t\t\t'%s%s[", o->repeats ? "*" : "", name);
	zsh_help(out, o->help);
	fputc(']', out);
	if (o->arg)
		fprintf(out, ":%s:", o->name);
	if (o->arg && !put_choices(out, "(", o->arg, ")"))
		fputs("_files", out);
	fputc('\'', out);
}

static void zsh_cmd(FILE *out, const struct cmd *c)
{
	bool has_words;

	fprintf(out, "\t%s)\n\t\t_arguments -s '(-h --help)'{-h,--help}'[describe the command]'",
		c->name);
	for (const struct cmd_option *o = c->options; o->name; o++) {
		char name[64];

		snprintf(name, sizeof(name), "--%s", o->name);
		zsh_option(out, o, name);
		snprintf(name, sizeof(name), "-%c", o->letter);
		if (o->letter)
			zsh_option(out, o, name);
	}
	if (c->takes_mount_options)
		fprintf(out,
			" \\\n\t\t\t'*-o[options of the checkpoint]:option:_values -s , option "
			"$pytreefs_options'");
	has_words = put_words(out, " \\\n\t\t\t':word:(", c, ")'");
	if (c->max_args > has_words)
		fprintf(out, " \\\n\t\t\t'*:file:_files'");
	fprintf(out, "\n\t\t;;\n");
}

static void zsh_print(FILE *out)
{
	fprintf(out, "#compdef pytreefs\n# made by `pytreefs completion zsh`\n"
		     "local -a pytreefs_commands pytreefs_options\npytreefs_options=(\n");
	for (size_t i = 0; i < option_count; i++) {
		fprintf(out, "\t'%s[", option_table[i].name);
		zsh_help(out, option_table[i].help);
		fprintf(out, "]:value:");
		put_choices(out, "(", option_table[i].accepts, ")");
		fprintf(out, "'\n");
	}
	fprintf(out, ")\npytreefs_commands=(\n");
	for (const struct cmd *const *c = cmd_table; *c; c++) {
		fprintf(out, "\t'%s:", (*c)->name);
		completion_put_quoted(out, (*c)->summary);
		fprintf(out, "'\n");
	}
	fprintf(out,
		"\t'help:describe a command'\n)\n"
		"if (( CURRENT == 2 )); then\n\t_describe command pytreefs_commands\n\treturn\nfi\n"
		"shift words\n(( CURRENT-- ))\ncase $words[1] in\n");
	for (const struct cmd *const *c = cmd_table; *c; c++)
		zsh_cmd(out, *c);
	fprintf(out, "\thelp)\n\t\t_describe command pytreefs_commands\n\t\tcompadd ");
	put_topics(out);
	fprintf(out, "\n\t\t;;\nesac\n");
}

/* ---- fish ---- */

static void fish_cmd(FILE *out, const struct cmd *c)
{
	auto_free char *first =
		str_fmt("complete -c pytreefs -f -n '__fish_seen_subcommand_from %s; and "
			"test (count (commandline -opc)) -eq 2' -a '",
			c->name);

	fprintf(out, "complete -c pytreefs -f -n __fish_use_subcommand -a %s -d '", c->name);
	completion_put_quoted(out, c->summary);
	fprintf(out, "'\n");
	for (const struct cmd_option *o = c->options; o->name; o++) {
		fprintf(out, "complete -c pytreefs -n '__fish_seen_subcommand_from %s' -l %s",
			c->name, o->name);
		if (o->letter)
			fprintf(out, " -s %c", o->letter);
		if (!put_choices(out, " -x -a '", o->arg, "'") && o->arg)
			fprintf(out, " -r");
		fprintf(out, " -d '");
		completion_put_quoted(out, o->help);
		fprintf(out, "'\n");
	}
	if (first)
		put_words(out, first, c, "'\n");
	if (!c->takes_mount_options)
		return;
	fprintf(out, "complete -c pytreefs -n '__fish_seen_subcommand_from %s' -s o -x -a '",
		c->name);
	put_mount_options(out);
	fprintf(out, "' -d 'options of the checkpoint'\n");
}

static void fish_print(FILE *out)
{
	fprintf(out, "# made by `pytreefs completion fish`\n");
	for (const struct cmd *const *c = cmd_table; *c; c++)
		fish_cmd(out, *c);
	fprintf(out,
		"complete -c pytreefs -f -n __fish_use_subcommand -a help -d 'describe a command'\n"
		"complete -c pytreefs -f -n '__fish_seen_subcommand_from help' -a '");
	put_topics(out);
	put_commands(out);
	fprintf(out, "'\n");
}

/* ---- the command ---- */

static int run_completion(struct cmd_args *a)
{
	static const struct {
		const char *name;
		void (*print)(FILE *out);
	} shells[] = { { "bash", bash_print }, { "zsh", zsh_print }, { "fish", fish_print } };

	for (size_t i = 0; i < ARRAY_LEN(shells); i++) {
		if (!strcmp(a->arg[0], shells[i].name)) {
			shells[i].print(stdout);
			return EXIT_OK;
		}
	}
	return cmd_wrong(a->cmd, "'%s' is not one of bash, zsh, fish", a->arg[0]);
}

static const struct cmd_option options[] = { { 0 } };

const struct cmd cmd_completion = {
	.name = "completion",
	.args = "bash|zsh|fish",
	.summary = "print the script with which a shell completes commands and options",
	.help = "The scripts are installed with the program; this command is for a copy that is "
		"not installed.",
	.example = "source <(pytreefs completion bash)",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.run = run_completion,
};
