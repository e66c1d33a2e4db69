/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd.h - what a subcommand is, and what all of them share: options, help, output.
 *
 * One table per command gives parsing, --help, the man page and completions.
 */
#ifndef PYTREEFS_CMD_H
#define PYTREEFS_CMD_H

#include <stdio.h>

#include "handlers/namespace/ns.h"

/* Exit statuses; the manual page tells users of them (manual.c). */
enum { EXIT_OK = 0, EXIT_FOUND = 1, EXIT_USAGE = 2, EXIT_TROUBLE = 2 };

struct cmd_args;

struct cmd_option {
	const char *name; /* "json": --json; */
	char letter;      /* 'j': -j; 0: none */
	const char *arg;  /* placeholder of its argument; NULL: a flag */
	const char *help; /* one line */
	bool repeats;     /* given again it adds a line to the value, not another value */
};

struct cmd {
	const char *name;
	const char *args;    /* "SOURCE[/PATH]": what follows the options */
	const char *summary; /* one line, for the list of commands */
	const char *help;    /* what it does, a few lines; "" when the summary says it */
	const char *example; /* lines that work when pasted; "ckpts" is a copy of the sample */
	const struct cmd_option *options; /* ends with a zeroed one */
	unsigned min_args, max_args;      /* positional */
	enum cmd_confined {
		CMD_FREE,  /* runs other programs, or reads nothing that others made */
		CMD_READS, /* writes to its output only: -o sandbox= holds for it */
		CMD_WRITES /* files, too, wherever the user says */
	} confined;
	const char *found; /* what status 1 means beside an error, for the manual; NULL: nothing */
	bool alone;        /* writes one result: refused when mpirun has begun several */
	bool compares;     /* status 1 is an answer, as diff(1)'s, so an error is EXIT_TROUBLE */
	bool takes_mount_options;       /* -o OPTION[=VALUE],... of the table in
					   handlers/options/option_table.c */
	int (*run)(struct cmd_args *a); /* exit status, or a negative errno with a note */
};

#define CMD_VALUES_MAX 24

struct cmd_args {
	const struct cmd *cmd;
	const char *program;
	char **argv; /* of the whole program */
	char **arg;  /* positional; n_args of them */
	int n_args;
	const char *value[CMD_VALUES_MAX]; /* of cmd->options, by index; "" for a flag that is set */
	struct arena arena;                /* of values that were put together */
	struct options options;            /* -o */
	struct buf fuse_options;           /* -o of mount that are the kernel's */
	bool colour;                       /* stdout is a terminal */
};

/* The exit status of an error of a command; NULL: of the program. */
static inline int cmd_error_status(const struct cmd *c)
{
	return c && c->compares ? EXIT_TROUBLE : EXIT_FOUND;
}
/* The value of an option, "" for a flag; NULL when it was not given. Name must be in the table. */
const char *cmd_value(const struct cmd_args *a, const char *name);
static inline bool cmd_flag(const struct cmd_args *a, const char *name)
{
	return cmd_value(a, name) != NULL;
}

/* What is wrong (or NULL, when that was said already) and the usage line, on stderr: EXIT_USAGE. */
int cmd_usage(const struct cmd *c, const char *what);
/* The same for a sentence that names what it is about. */
int cmd_wrong(const struct cmd *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Help of one command. */
void cmd_help(FILE *out, const struct cmd *c);
/* Whether the example of a command begins with the line that copies the installed sample to ckpts. */
bool cmd_needs_sample(const struct cmd *c);
extern const char cmd_copy_sample[];

extern const struct cmd *const cmd_table[]; /* of COMMANDS; NULL at the end */

/*
 * Become the program that has MPI, which stands beside this one: returns 0 in it, and the reason
 * why there is none otherwise.
 */
int mpi_program(const struct cmd_args *a);

/* How many of this program mpirun has begun; 1 without it. */
int mpi_ranks(void);
/*
 * The other ranks, when mpirun has begun several of this program: *ret is NULL when it has not.
 * What the command returns is given to group_end().
 */
struct rank_group;
int mpi_rank_group(const struct cmd_args *a, struct rank_group **ret);

/* One option of -o of a mount: ours, or passed on to the kernel. */
int mount_option(struct options *o, const char *text, struct buf *fuse_options);

/* This process is one that a mount started for itself: 1, with its exit status. */
int mount_helper(const char *name, int *ret_status);

/* A path of the user's: the checkpoint in it, and what follows. */
struct source {
	struct ns *ns;
	struct node *node; /* what the whole path names; a reference */
	char *source;      /* the part that is SOURCE */
	char *inner;       /* the rest, "" for SOURCE itself */
};

/*
 * What a mount shows of a checkpoint has files for arrays, and is not a checkpoint; the mount also
 * has it as it is stored, and this is the path of that, the caller's. NULL: the path is in no mount
 * of ours, or goes there already.
 */
char *source_stored_path(const char *path);
/* What is mounted on a directory, given without links: its type and its source, the caller's. NULL:
 * nothing. */
char *mounted_on(const char *dir, char **ret_source);
/* For commands that change what is stored, and find nothing of it in a mount: 0, or -EINVAL for a
 * path in one. */
int source_in_no_mount(const struct cmd_args *a, const char *path);
/*
 * Open "SOURCE/inner/path", through a mount what is stored there: SOURCE is the longest leading
 * part that is a checkpoint. Threads are started. -ENOENT, -EINVAL as the parts say.
 */
int source_open(struct cmd_args *a, const char *path, struct source *ret);
/* The same, where a safetensors file that is stored in a checkpoint is a file, and not a tree. */
int source_open_file(struct cmd_args *a, const char *path, struct source *ret);
/* The same of a path through a mount only: 1; 0: it is not, or it is of a draft, which is not
 * stored under its name. */
int source_open_stored(struct cmd_args *a, const char *path, struct source *ret);
/* Such a file, or a directory of shards, as an item: 1; 0: path does not go to one. source_open()
 * asks when it finds no checkpoint. */
int source_open_safetensors(struct cmd_args *a, const char *path, struct source *ret);
/* Whether the directory has the index file of a model in several safetensors files. */
bool source_has_safetensors_index(const char *dir);
void source_close(struct source *s);
/* -ENOENT: path is not in dir, which the user knows as `source`. The nearest name that is there is
 * suggested. */
int fail_absent_name(struct node *dir, const char *source, const char *path);
#define auto_source __attribute__((cleanup(source_close))) struct source

/* "1.5 MiB" */
void print_size(char *out, size_t n, uint64_t bytes);
/* A name or text from disk, with '?' for control characters: it may be made to do something to a
 * terminal. */
void print_name(FILE *out, const char *name);
/* "pytreefs: reason" on stderr. */
void print_failure(int r);

/* In the order of the help: cmd_NAME is in cmd_NAME.c of tools/commands, or beside a relative. */
/* clang-format off */
#define COMMANDS(command) \
	command(mount) \
	command(umount) \
	command(ls) \
	command(tree) \
	command(info) \
	command(cat) \
	command(verify) \
	command(diff) \
	command(stats) \
	command(report) \
	command(save) \
	command(export) \
	command(convert) \
	command(transform) \
	command(gc) \
	command(merge) \
	command(commit) \
	command(abort) \
	command(explain) \
	command(dump) \
	command(bench) \
	command(completion)
/* clang-format on */

#define CMD_DECLARE(name) extern const struct cmd cmd_##name;
COMMANDS(CMD_DECLARE)
#undef CMD_DECLARE

#endif
