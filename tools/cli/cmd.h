/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd.h - the interface of a subcommand, and functions for all of them: options, help, output.
 *
 * One table per command is used for parsing, --help, the manual page and completions.
 */
#ifndef PYTREEFS_CMD_H
#define PYTREEFS_CMD_H

#include <stdio.h>

#include "handlers/namespace/ns.h"

/*
 * Exit statuses; the manual page lists them (manual.c). For a command that checks something
 * (struct cmd), they are those of diff(1), cmp(1) and grep(1): EXIT_FOUND is its finding, and
 * EXIT_TROUBLE means that it could not look, or not at everything.
 */
enum { EXIT_OK = 0, EXIT_FOUND = 1, EXIT_USAGE = 2, EXIT_TROUBLE = 2 };

struct cmd_args;

struct cmd_option {
	const char *name; /* "json": --json; */
	char letter;      /* 'j': -j; 0: none */
	const char *arg;  /* placeholder of its argument; NULL: a flag */
	const char *help; /* one line */
	bool repeats;     /* may be repeated, and each value is a further line */
	bool in_manual;   /* --help, which fits a screen, has its name only */
};

struct cmd {
	const char *name;
	const char *args;    /* "SOURCE[/PATH]": the arguments after the options */
	const char *summary; /* one line, for the list of commands */
	const char *help;    /* a few lines about its function; "" when the summary is enough */
	const char *example; /* lines that work when pasted; "ckpts" is a copy of the sample */
	const struct cmd_option *options; /* ends with a zeroed element */
	unsigned min_args, max_args;      /* number of positional arguments */
	enum cmd_confined {
		CMD_FREE,  /* runs other programs, or reads no data from others */
		CMD_READS, /* writes only to its output: -o sandbox= applies */
		CMD_WRITES /* also writes files, at places that the user names */
	} confined;
	/*
	 * Meaning of status 1 for the manual: besides an error, or alone if `checks` is set; NULL:
	 * none.
	 */
	const char *found;
	bool alone;  /* writes one result: refused when mpirun has started several processes */
	bool checks; /* status 1 is a finding, as in diff(1), so an error is EXIT_TROUBLE */
	/* accepts -o OPTION[=VALUE],... from the table in handlers/options/option_table.c */
	bool takes_mount_options;
	bool saves; /* checks options of -o for saving by itself; else, they are refused */
	/* it shows values and names as they are stored, so this option of -o is refused, or both */
	const char *ignores[2];
	/* sets one option of -o; NULL: option_set() does */
	int (*set_option)(struct cmd_args *a, const char *text);
	/*
	 * Runs a helper that the command starts from this program under that name: 1, with its exit
	 * status; 0: not a helper. NULL: it starts none.
	 */
	int (*run_helper)(const char *name, int *ret_status);
	/* returns an exit status, or a negative errno with a note */
	int (*run)(struct cmd_args *a);
};

#define CMD_VALUES_MAX 24

struct cmd_args {
	const struct cmd *cmd;
	char **argv; /* of the whole process */
	char **arg;  /* positional arguments, n_args of them */
	int n_args;
	/* indexed like cmd->options; "" for a flag that is set */
	const char *value[CMD_VALUES_MAX];
	struct arena arena;      /* memory for values that were put together */
	struct options options;  /* from -o */
	struct buf fuse_options; /* options of mount that are for the kernel */
	bool colour;             /* stdout is a terminal */
};

/* Returns the exit status for an error of a command; NULL: of the program. */
static inline int cmd_error_status(const struct cmd *c)
{
	return c && c->checks ? EXIT_TROUBLE : EXIT_FOUND;
}
/*
 * Returns the value of an option, "" for a flag; NULL when it was not given. The name must be in
 * the table.
 */
const char *cmd_value(const struct cmd_args *a, const char *name);
static inline bool cmd_flag(const struct cmd_args *a, const char *name)
{
	return cmd_value(a, name) != NULL;
}

/*
 * Print an error (NULL: it was printed already) and the usage line to stderr. Returns EXIT_USAGE.
 */
int cmd_usage(const struct cmd *c, const char *what);
/* The same for a formatted message that names its subject. */
int cmd_wrong(const struct cmd *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Print the help of a command. */
void cmd_help(FILE *out, const struct cmd *c);
/*
 * Whether the example of a command begins with the line that copies the installed sample to ckpts.
 */
bool cmd_needs_sample(const struct cmd *c);
extern const char cmd_copy_sample[];

extern const struct cmd *const cmd_table[]; /* of COMMANDS; NULL at the end */

/* Returns the number of processes that mpirun has started; 1 without it. */
int mpi_ranks(void);

/* A path of the user: the checkpoint in it, and the rest. */
struct source {
	struct ns *ns;
	struct node *node; /* the node of the whole path; a reference */
	char *source;      /* the part that is the checkpoint */
	char *inner;       /* the rest, "" for the checkpoint itself */
	size_t above; /* after -ENOENT: length of the path of a checkpoint that lacks the rest */
};

/* Whether a node is a directory of steps. */
static inline bool node_is_root(const struct node *n)
{
	return n == n->ns->root && n->ns->ckpt->shape == SHAPE_ROOT;
}

/*
 * Convert a path in a mount, where arrays are files, to the path of the stored checkpoint, which
 * the mount shows, too. The caller frees it. NULL: the path is not in a pytreefs mount, or is that
 * of stored files already.
 */
char *source_stored_path(const char *path);
/*
 * Returns type and source of the mount on a directory, whose path has no links; the caller frees
 * both. NULL: none.
 */
char *mounted_on(const char *dir, char **ret_source);
/*
 * For commands that change stored files, which a mount does not show: 0, or -EINVAL for a path in a
 * mount.
 */
int source_in_no_mount(const struct cmd_args *a, const char *path);
/*
 * The same, and get the path by which it is stored: of a step that is called `latest`, or by its
 * number, that by its name. Allocated.
 */
int source_in_place(const struct cmd_args *a, const char *path, char **ret);
/*
 * Open "SOURCE/inner/path", where SOURCE is the longest prefix that is a checkpoint. A path in a
 * mount opens the stored checkpoint. Starts threads. Fails with -ENOENT or -EINVAL.
 */
int source_open(struct cmd_args *a, const char *path, struct source *ret);
/*
 * Like source_open(), but a safetensors file that is stored in a checkpoint is a file, not a tree.
 */
int source_open_file(struct cmd_args *a, const char *path, struct source *ret);
/*
 * Like source_open(), only for a path in a mount: 1; 0: it is not, or it is in a draft, which is
 * not stored by name.
 */
int source_open_stored(struct cmd_args *a, const char *path, struct source *ret);
/*
 * Open a safetensors file, or a directory of shards, as an item: 1; 0: the path is not in one.
 * source_open() calls this when it finds no checkpoint. ret->above: of a URL, that directory and
 * those above it are not looked at.
 */
int source_open_safetensors(struct cmd_args *a, const char *path, struct source *ret);
/*
 * Of a directory that is read as the safetensors files in it: warn of other files of arrays in it,
 * which are read by their names, by the commands that read them.
 */
void source_warn_of_others(const struct ns *ns);
/*
 * Returns the length of the part of a URL that is a safetensors file by its name; 0: it has none,
 * or is a path.
 */
size_t source_safetensors_url(const char *path);
/* Whether a directory has safetensors files. */
bool source_has_shards(const char *dir);
/* Whether the directory has the index file of a model in several safetensors files. */
bool source_has_safetensors_index(const char *dir);
void source_close(struct source *s);
/*
 * Like node_walk() from the root of a namespace, for a path that a user typed, which becomes the
 * path that was found: where no name is equal, a number is the one step that has it, and a name
 * that of the one leaf whose file has an extension besides.
 */
int source_walk(struct node *root, char **path, struct node **ret);
/*
 * Whether a path that has no node leads into an item, so that it may be a part of its stored form.
 */
bool source_stores(struct node *root, const char *path);
/*
 * Returns -ENOENT for a path that is not in dir, which the user knows as `source`. The message
 * suggests the nearest existing name; deep: or where the path is in an item or a directory of dir,
 * which may open all of them.
 */
int fail_absent_name(struct node *dir, const char *source, const char *path, bool deep);
/* Whether the path leads into a directory that lies in the source without being part of it. */
bool source_leads_elsewhere(const struct source *s);
/*
 * Whether the first n bytes of a path are a directory on the disk. What lies above one that is not
 * a checkpoint may be a stranger's.
 */
bool source_is_directory(const char *path, size_t n);
/*
 * Of a source that was opened for a path where a whole one, a step or an item is wanted: -EINVAL if
 * it is a part of one; the message says which part, and ends in hint. 0: it is none.
 */
int fail_part(const struct source *s, const char *path, const char *hint);
/*
 * Returns r, the error of a path that was to be opened as a whole source, or a better one: the path
 * is a part of a source, or near a name that is there.
 */
int source_fail_part(struct cmd_args *a, const char *path, int r);
/*
 * A path that was not found has the error r: if it is a URL with a query, as a hub's page copies
 * one ("?download=true"), say which URL is meant. Returns the error.
 */
int source_fail_query(const char *path, int r);
/*
 * Whether the source is an item only because of directories of arrays in it, or a step only because
 * a directory in it is an item, as in old releases. The thread's note stays.
 */
bool source_is_unmarked_item(const struct source *s);
bool source_is_unmarked_step(const struct source *s);
#define auto_source __attribute__((cleanup(source_close))) struct source

/* Print a size as "1.5 MiB". */
void print_size(char *out, size_t n, uint64_t bytes);
/* Write bytes as they are; there may be none. */
void print_span(FILE *out, struct span bytes);
/* The same for a text that was made without a check: if an add failed, the command fails at its
 * end. */
void print_buf(FILE *out, const struct buf *text);
bool output_lacks_text(void);
/*
 * Print a name or text from disk with '?' for control characters, which might control the terminal.
 */
void print_name(FILE *out, const char *name);
/* Print "pytreefs: reason" to stderr. */
void print_failure(int r);

/* In the order of the help. cmd_NAME is in cmd_NAME.c of tools/commands, or in a related file. */
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
