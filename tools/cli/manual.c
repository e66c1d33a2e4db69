/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manual.c - the manual pages, made from the tables for --help.
 *
 * This file has only text that is not in the tables. The build prints the pages (`pytreefs help
 * --man`), which are installed with the program.
 */
#include "tools/cli/help.h"

#include <string.h>

#include "tools/cli/cmd.h"

/*
 * Print text for troff, so that nothing in it is a request, an escape or a hyphen that may become a
 * dash.
 */
static void put(FILE *out, const char *text)
{
	bool at_start = true;

	for (; *text; text++) {
		if (at_start && (*text == '.' || *text == '\''))
			fputs("\\&", out);
		at_start = *text == '\n';
		if (*text == '\\')
			fputs("\\e", out);
		else if (*text == '-')
			fputs("\\-", out);
		else
			fputc(*text, out);
	}
}

/* before: a line to print before the example, or NULL. */
static void put_example(FILE *out, const char *before, const char *text)
{
	fprintf(out, ".PP\n.EX\n");
	if (before) {
		put(out, before);
		fputc('\n', out);
	}
	put(out, text);
	fprintf(out, "\n.EE\n");
}

/* Print a term and its meaning. */
static void put_term(FILE *out, const char *term, const char *arg, const char *text)
{
	fprintf(out, ".TP\n.B ");
	put(out, term);
	if (arg && *arg) {
		fprintf(out, " \\fI");
		put(out, arg);
		fprintf(out, "\\fP");
	}
	fputc('\n', out);
	put(out, text);
	fputc('\n', out);
}

static void put_cmd_options(FILE *out, const struct cmd *c)
{
	for (const struct cmd_option *o = c->options; o->name; o++) {
		char term[64];

		snprintf(term, sizeof(term), "%s%c%s--%s", o->letter ? "-" : "",
			 o->letter ? o->letter : ' ', o->letter ? ", " : "", o->name);
		put_term(out, term + (o->letter ? 0 : 1), o->arg, o->help);
	}
	if (c->takes_mount_options)
		put_term(out, "-o", "NAME[=VALUE],...", "options of the checkpoint, listed below");
}

static void put_cmd(FILE *out, const struct cmd *c)
{
	fprintf(out, ".SS pytreefs %s \\fR[options] ", c->name);
	put(out, c->args);
	fputc('\n', out);
	put(out, c->summary);
	fprintf(out, ".\n");
	if (c->help[0]) {
		fprintf(out, ".PP\n");
		put(out, c->help);
		fputc('\n', out);
	}
	put_cmd_options(out, c);
	put_example(out, cmd_needs_sample(c) ? cmd_copy_sample : NULL, c->example);
}

/* Print the names in the root of a mount besides the steps. */
static void put_names(FILE *out)
{
	fprintf(out,
		".SH NAMES IN A MOUNT\nThe following can be opened in the root of a mount and are "
		"not listed there.\n");
	put_term(out, "latest", NULL, "a symlink to the committed step with the highest number");
	put_term(out, ".pytreefs/log", NULL,
		 "the last messages: why a commit was refused, why a file is EIO");
	put_term(out, ".pytreefs/stats", NULL, "counters, as JSON");
	put_term(out, ".pytreefs/metrics", NULL,
		 "the same, and durations and errors of operations, for Prometheus");
	put_term(out, ".pytreefs/config", NULL,
		 "the options that are in force, and where each of them came from");
	put_term(out, ".pytreefs/version", NULL, "the build and its libraries");
	put_term(out, ".pytreefs/stored", NULL,
		 "committed steps as they are stored, for a backup of the compressed form");
}

/* Print the options of `mount` for the kernel and FUSE. */
static void put_kernel_options(FILE *out)
{
	fprintf(out,
		".SH OPTIONS OF THE MOUNT\nThese go to the kernel; in \\fB\\-o\\fP they may stand "
		"among the others.\n");
	put_term(out, "ro", NULL, "nothing can be written: no drafts, no deletion");
	put_term(out, "allow_other", NULL,
		 "other users may enter; what SOURCE refuses to them the mount refuses (pytreefs "
		 "help\n"
		 "writing), and symbolic links in SOURCE are not followed, but those to blobs of "
		 "the\n"
		 "Hugging Face hub; an ordinary user needs user_allow_other in /etc/fuse.conf");
	put_term(out, "default_permissions", NULL,
		 "the kernel checks modes and owners; allow_other brings it along");
	put_term(out, "context=LABEL, fscontext=, defcontext=, rootcontext=", NULL,
		 "the label of the files for SELinux, without commas");
	put_term(out, "noauto, user, _netdev, nofail, x-*", NULL,
		 "for fstab(5) only; accepted here");
}

static void put_environment(FILE *out)
{
	fprintf(out, ".SH ENVIRONMENT\n");
	put_term(out, "PYTREEFS_OPTIONS", NULL,
		 "options that every command begins with, NAME=VALUE,...; those of -o win");
}

static void put_checkpoint_options(FILE *out)
{
	fprintf(out,
		".SH OPTIONS OF A CHECKPOINT\n"
		"Given as \\fB\\-o\\fP \\fINAME\\fP=\\fIVALUE\\fP,...; \\fINAME\\fP alone means "
		"on.\n");
	for (size_t i = 0; i < option_count; i++) {
		const struct option *o = &option_table[i];

		put_term(out, o->name, o->accepts, o->help);
		if (o->fallback && *o->fallback) {
			fprintf(out, "(default: ");
			put(out, o->fallback);
			fprintf(out, ")\n");
		}
	}
}

/* List the meanings of status 1 of the commands that check something, or of the others. */
static void put_found(FILE *out, bool checks)
{
	for (const struct cmd *const *c = cmd_table; *c; c++)
		if ((*c)->found && (*c)->checks == checks)
			put_term(out, (*c)->name, NULL, (*c)->found);
}

static void put_statuses(FILE *out)
{
	fprintf(out, ".SH EXIT STATUS\n");
	put_term(out, "0", NULL, "It worked, and found nothing wrong.");
	put_term(out, "1", NULL, "It failed, or found something wrong.");
	put_term(out, "2", NULL, "It was called in a way that makes no sense.");
	fprintf(out, ".PP\n");
	put(out,
	    "The commands that check something have the statuses of diff(1) and grep(1): 0 means "
	    "that everything was\n"
	    "checked and nothing was found, and 2 is also an error, and that a part could not be "
	    "checked. 1 means\n");
	put_found(out, true);
	fprintf(out, ".PP\nBesides an error, status 1 of the other commands means\n");
	put_found(out, false);
}

static void print_program(FILE *out)
{
	fprintf(out, ".TH PYTREEFS 1 \"\" \"pytreefs " PYTREEFS_VERSION "\" \"User Commands\"\n"
		     ".SH NAME\npytreefs \\- Orbax (JAX) checkpoints as files\n"
		     ".SH SYNOPSIS\n.B pytreefs\n.I COMMAND\n[options] ...\n"
		     ".SH DESCRIPTION\n");
	put(out,
	    "Mounts a directory of Orbax checkpoints and shows every PyTree leaf as an ordinary "
	    "file, so that any\n"
	    "program reads and writes weights; and does around a checkpoint what needs no "
	    "mount.\n");
	fprintf(out, ".PP\n");
	put(out,
	    "SOURCE is a directory of steps, one step, or one item. A path goes on after it as in "
	    "a mount:\n"
	    "SOURCE/100/state/params/w.npy. Below a mount, a name that is not listed may be a "
	    "view:\n");
	put_term(out, "w[0:512,256:512].npy", NULL,
		 "a box of the array, sliced as numpy does it, but nothing is clipped");
	put_term(out, "w@bfloat16.npy, w@1024x512.npy", NULL,
		 "another type; padded or truncated to another shape");
	put_term(out, "w.bin, w.json", NULL, "other formats of the same leaf");
	put_term(out, "D.safetensors, D.json, D.html", NULL,
		 "a whole directory, item or step as one file");
	fprintf(out, ".PP\n");
	put(out,
	    "`pytreefs help views` has the whole grammar, with examples; `pytreefs help writing` "
	    "describes how steps are\n"
	    "written, `pytreefs help filesystems` where, and `pytreefs help transforms` how "
	    "another tree is shown.\n"
	    "`pytreefs help errors` explains error messages.\n");
	put_names(out);
	fprintf(out,
		".SH COMMANDS\nEach describes itself with \\fB\\-h\\fP or \\fB\\-\\-help\\fP.\n");
	for (const struct cmd *const *c = cmd_table; *c; c++)
		put_cmd(out, *c);
	put_checkpoint_options(out);
	put_kernel_options(out);
	put_environment(out);
	put_statuses(out);
	fprintf(out, ".SH SEE ALSO\n.BR mount.pytreefs (8),\n.BR mount.fuse3 (8)\n");
}

static void print_mount(FILE *out)
{
	fprintf(out,
		".TH MOUNT.PYTREEFS 8 \"\" \"pytreefs " PYTREEFS_VERSION
		"\" \"System Administration\"\n"
		".SH NAME\nmount.pytreefs \\- mount Orbax (JAX) checkpoints by mount(8) and "
		"fstab(5)\n"
		".SH SYNOPSIS\n.B mount \\-t pytreefs\n[\\fB\\-o\\fP \\fIoptions\\fP]\n.I SOURCE "
		"MOUNTPOINT\n"
		".SH DESCRIPTION\n");
	put(out, cmd_mount.summary);
	fprintf(out,
		".\nThe same as\n.BR \"pytreefs mount\" ,\nunder the name that\n.BR mount "
		"(8)\nlooks for, but for\n.BR \\-f ,\nwhich is that of\n.BR mount (8):\nnothing is "
		"mounted.\n");
	put_cmd_options(out, &cmd_mount);
	put_checkpoint_options(out);
	put_kernel_options(out);
	put_environment(out);
	put_names(out);
	fprintf(out, ".SH EXAMPLE\nA line of /etc/fstab:\n");
	put_example(out, NULL, "/data/ckpts  /mnt/ckpts  pytreefs  ro,allow_other,noauto  0 0");
	fprintf(out, ".SH EXIT STATUS\n");
	put_term(out, "0", NULL, "It is mounted.");
	put_term(out, "1", NULL, "It was called in a way that makes no sense.");
	put_term(out, "32", NULL, "The mount failed.");
	fprintf(out, ".SH SEE ALSO\n.BR pytreefs (1),\n.BR mount (8),\n.BR fstab (5)\n");
}

int manual_print(FILE *out, const char *page)
{
	if (!strcmp(page, "pytreefs"))
		print_program(out);
	else if (!strcmp(page, "mount.pytreefs"))
		print_mount(out);
	else
		return -1;
	return 0;
}
