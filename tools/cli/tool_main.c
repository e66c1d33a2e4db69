/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_main.c - runs a command: options, dispatch, and the only place that prints an error.
 */
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "core/base/err.h"
#include "core/base/path.h"
#include "core/base/log.h"
#include "core/base/nearest.h"
#include "core/sandbox/sandbox.h"
#include "tools/cli/cmd.h"
#include "tools/cli/help.h"
#include "tools/cli/url_program.h"

#define FILES_MOST 65536

#define ADDRESS(name) &cmd_##name,
const struct cmd *const cmd_table[] = { COMMANDS(ADDRESS) NULL };

static void program_help(FILE *out)
{
	fprintf(out, "usage: pytreefs COMMAND [options] ...\n\n"
		     "Orbax (JAX) checkpoints as files: every PyTree leaf is one.\n\ncommands:\n");
	for (const struct cmd *const *c = cmd_table; *c; c++)
		fprintf(out, "  %-10s %s\n", (*c)->name, (*c)->summary);
	fprintf(out,
		"\n`pytreefs COMMAND --help` describes one, `pytreefs help options` the options of "
		"-o,\n"
		"`pytreefs help patterns` what rule= and --only take. `pytreefs --version` says "
		"which one this is.\n"
		"Pages, by `pytreefs help NAME`: ");
	help_topics_list(out, ", ");
	fprintf(out, ".\n");
}

static int set_option(void *arg, const char *text)
{
	struct cmd_args *a = arg;

	return a->cmd->set_option ? a->cmd->set_option(a, text) :
				    option_set(&a->options, text, false);
}

/* Find the option that arg starts with, by name or letter. Returns its index, or -1. */
static int tool_main_find_option(const struct cmd *c, const char *arg, const char **ret_value)
{
	*ret_value = NULL;
	for (int i = 0; c->options[i].name; i++) {
		const struct cmd_option *o = &c->options[i];
		size_t n = strlen(o->name);

		if (!strncmp(arg, "--", 2) && !strncmp(arg + 2, o->name, n) &&
		    (!arg[2 + n] || arg[2 + n] == '=')) {
			*ret_value = arg[2 + n] ? arg + 3 + n : NULL;
			return i;
		}
		if (o->letter && arg[0] == '-' && arg[1] == o->letter) {
			*ret_value = arg[2] ? arg + 2 : NULL;
			if (arg[2] && !o->arg)
				continue;
			return i;
		}
	}
	return -1;
}

/* Returns false only for lack of memory. */
static bool add_value(struct cmd_args *a, int at, const char *value)
{
	auto_buf both = { 0 };

	if (!a->cmd->options[at].repeats || !a->value[at]) {
		a->value[at] = value;
		return true;
	}
	if (buf_addf(&both, "%s\n%s", a->value[at], value) >= 0)
		a->value[at] = (const char *)arena_dup(&a->arena, buf_span(&both));
	if (!both.n || !a->value[at])
		fprintf(stderr, "pytreefs: not enough memory\n");
	return both.n && a->value[at];
}

static int unknown_option(const struct cmd *c, const char *arg)
{
	auto_free char *name = span_dup_str(span_of(arg, strcspn(arg, "=")));
	struct nearest n;

	if (!name || strncmp(name, "--", 2))
		return cmd_wrong(c, "unknown option '%s'", arg);
	nearest_begin(&n, name + 2);
	nearest_try(&n, "help");
	for (const struct cmd_option *o = c->options; o->name; o++)
		nearest_try(&n, o->name);
	/* The name is that of a mount option, which belongs after -o. */
	for (size_t i = 0; c->takes_mount_options && i < option_count; i++)
		if (!strcmp(option_table[i].name, name + 2))
			return cmd_wrong(c, "unknown option '%s'; did you mean '-o %s'?", arg,
					 arg + 2);
	for (const char *const *word = mount_words; c->set_option && *word; word++)
		if (!strcmp(*word, name + 2))
			return cmd_wrong(c, "unknown option '%s'; did you mean '-o %s'?", arg,
					 *word);
	if (n.best)
		return cmd_wrong(c, "unknown option '%s'; did you mean '--%s'?", arg, n.best);
	return cmd_wrong(c, "unknown option '%s'", arg);
}

/* Returns 0 to continue, or the exit status. */
static int parse_args(struct cmd_args *a, int argc, char **argv)
{
	const struct cmd *c = a->cmd;
	bool only_args = false;

	for (int i = 0; i < argc; i++) {
		const char *value;
		int at;

		if (only_args || argv[i][0] != '-' || !argv[i][1]) {
			a->arg[a->n_args++] = argv[i];
			continue;
		}
		if (!strcmp(argv[i], "--")) {
			only_args = true;
			continue;
		}
		if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) {
			cmd_help(stdout, c);
			return -1;
		}
		if (c->takes_mount_options && !strncmp(argv[i], "-o", 2)) {
			const char *text = argv[i][2] ? argv[i] + 2 : argv[++i];
			int r;

			if (i == argc)
				return cmd_wrong(c, "an argument is missing for '%s'", "-o");
			r = options_each(text, set_option, a);
			if (r < 0) {
				fprintf(stderr, "pytreefs %s: %s\n", c->name, err_text(r));
				return EXIT_USAGE;
			}
			continue;
		}
		at = tool_main_find_option(c, argv[i], &value);
		if (at < 0)
			return unknown_option(c, argv[i]);
		if (c->options[at].arg && !value) {
			if (i + 1 == argc)
				return cmd_wrong(c, "an argument is missing for '%s'", argv[i]);
			value = argv[++i];
		} else if (!c->options[at].arg && value) {
			return cmd_wrong(c, "no argument is taken by '%s'", argv[i]);
		}
		if (!add_value(a, at, value ? value : ""))
			return cmd_error_status(c);
	}
	if (a->n_args < (int)c->min_args || a->n_args > (int)c->max_args) {
		return cmd_usage(c, a->n_args < (int)c->min_args ? "an argument is missing" :
								   "too many arguments");
	}
	return 0;
}

/* http_headers= may be a secret of one server, so it is not sent to two. */
static int check_servers(const struct cmd_args *a)
{
	const char *first = NULL;

	for (int i = 0; a->options.http_headers && i < a->n_args; i++) {
		const char *url = a->arg[i];
		size_t n = strcspn(url, ":");

		if (strncmp(url, "http://", 7) && strncmp(url, "https://", 8))
			continue;
		n += 3 + strcspn(url + n + 3, "/");
		if (first && (strncasecmp(first, url, n) || (first[n] && first[n] != '/')))
			return cmd_wrong(
				a->cmd,
				"-o http_headers= is for one server: %.*s would get it, too",
				(int)n, url);
		first = url;
	}
	return 0;
}

/* Refuse options of -o that would have no effect. Returns 0, or the exit status. */
static int check_effect(const struct cmd_args *a)
{
	const struct cmd *c = a->cmd;
	const struct option *idle = c->saves ? NULL : options_of_saving(&a->options);

	if (idle)
		return cmd_wrong(
			c, "-o %s= is for commands that write a checkpoint%s", idle->name,
			strcmp(idle->name, "dtype") ? "" : "; restore_dtype= casts what is read");
	for (size_t i = 0; i < ARRAY_LEN(c->ignores) && c->ignores[i]; i++)
		if (options_given_here(&a->options, c->ignores[i]))
			return cmd_wrong(c,
					 "-o %s= has no effect: %s reads what is stored as it is",
					 c->ignores[i], c->name);
	return check_servers(a);
}

/* A command that reads files of others gives up rights that it does not need, like a mount. */
static int confine(struct cmd_args *a)
{
	const struct options *o = &a->options;
	const struct sandbox_place places[] = {
		{ .path = ns_spill_dir(o), .fd = -1, .access = SANDBOX_READ | SANDBOX_WRITE },
		{ .path = o->cache_dir, .fd = -1, .access = SANDBOX_READ | SANDBOX_WRITE },
		{ .path = o->log, .fd = -1, .access = SANDBOX_WRITE },
		{ .path = "/dev/null", .access = SANDBOX_READ | SANDBOX_WRITE },
	};
	struct sandbox_rules rules = {
		.mode = o->sandbox,
		.place = places,
		.n_places = ARRAY_LEN(places),
		.reads_everywhere = true,
		.writes_everywhere = a->cmd->confined == CMD_WRITES,
		.changes_owners = a->cmd->confined == CMD_WRITES,
		.makes_rings = true,
		.broker = -1,
	};

	for (int i = 0; i < a->n_args; i++)
		rules.uses_network |= path_is_url(a->arg[i]);
	for (int i = 0; a->cmd->options[i].name; i++)
		rules.uses_network |= a->value[i] && path_is_url(a->value[i]);
	/* Ranks execute another program, and so does on_commit=. */
	if (a->cmd->confined == CMD_FREE || mpi_ranks() > 1 ||
	    (a->cmd->confined == CMD_WRITES && o->on_commit))
		return 0;
	/* Landlock rules need existing files. */
	if (rules.uses_network && o->cache_dir) {
		int r = ns_make_cache_dir(o);

		if (r < 0)
			return r;
	}
	return sandbox_enter(&rules);
}

static int tool_main_run_args(struct cmd_args *a)
{
	const struct cmd *c = a->cmd;
	int r = a->options.trace ? log_trace_set(a->options.trace) : 0;

	if (r < 0)
		return r;
	/* A mount opens its log when it has seen that the file is not inside of it. */
	if (a->options.log && c != &cmd_mount)
		r = log_open(true, false, a->options.log);
	if (r < 0)
		return r;
	if (c->alone && mpi_ranks() > 1)
		return fail(-EINVAL, "'%s' writes one result: begin it once, not with %d ranks",
			    c->name, mpi_ranks());
	r = confine(a);
	return r < 0 ? r : c->run(a);
}

static int tool_main_run(const struct cmd *c, char **all, int argc, char **argv)
{
	struct cmd_args a = { .cmd = c, .argv = all, .colour = isatty(STDOUT_FILENO) };
	int status, r;

	a.arg = calloc((size_t)argc + 1, sizeof(*a.arg));
	if (!a.arg || options_init(&a.options) < 0) {
		fprintf(stderr, "pytreefs: not enough memory\n");
		return cmd_error_status(c);
	}
	r = c->takes_mount_options ? options_set_environment(&a.options) : 0;
	if (r < 0)
		fprintf(stderr, "pytreefs: %s\n", err_text(r));
	status = r < 0 ? EXIT_USAGE : parse_args(&a, argc, argv);
	if (status == 0)
		status = check_effect(&a);
	if (status == 0) {
		r = tool_main_run_args(&a);
		sandbox_log_refused();
		status = r < 0 ? cmd_error_status(c) : r;
		if (r < 0)
			print_failure(r);
	}
	options_release(&a.options);
	arena_release(&a.arena);
	buf_release(&a.fuse_options);
	free(a.arg);
	return MAX(status, 0);
}

static const struct cmd *find_cmd(const char *name)
{
	for (const struct cmd *const *c = cmd_table; *c; c++)
		if (!strcmp((*c)->name, name))
			return *c;
	return NULL;
}

enum { MOUNT_USAGE = 1, MOUNT_FAILURE = 32 };

/*
 * mount(8) calls `mount.pytreefs SOURCE MOUNTPOINT [-sfnv] [-o options]`. Its -f is not that of
 * `pytreefs mount`: nothing is mounted ("fake"). The statuses are those of mount(8), too.
 */
static int run_as_helper(int argc, char **argv)
{
	int status;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "-o"))
			i++;
		else if (argv[i][0] == '-' && argv[i][1] != '-' && argv[i][1] != 'o' &&
			 strchr(argv[i], 'f'))
			return EXIT_OK;
	}
	status = tool_main_run(&cmd_mount, argv, argc - 1, argv + 1);
	return status == EXIT_OK ? EXIT_OK : status == EXIT_USAGE ? MOUNT_USAGE : MOUNT_FAILURE;
}

static int no_help(const char *what)
{
	struct nearest n;

	nearest_begin(&n, what);
	nearest_try(&n, "options");
	nearest_try(&n, "patterns");
	for (const struct cmd *const *c = cmd_table; *c; c++)
		nearest_try(&n, (*c)->name);
	fprintf(stderr, "pytreefs: there is no help on '%s'; %s%s%s\n", what,
		n.best ? "did you mean `pytreefs help " : "`pytreefs --help` lists the commands",
		n.best ? n.best : "", n.best ? "`?" : "");
	return EXIT_USAGE;
}

/* `pytreefs help [COMMAND|options|patterns|--man[=PAGE]]` */
static int help(const char *what, const char *format)
{
	const struct cmd *c = what ? find_cmd(what) : NULL;

	if (!what || !strcmp(what, "help") || !strcmp(what, "--help") || !strcmp(what, "-h"))
		program_help(stdout);
	else if (help_topic(stdout, what))
		return EXIT_OK;
	else if (!strcmp(what, "patterns"))
		help_patterns(stdout);
	else if (!strcmp(what, "options")) {
		if (help_options(stdout, format) == 0)
			return EXIT_OK;
		fprintf(stderr,
			"pytreefs: `pytreefs help options` takes --text or --markdown, not '%s'\n",
			format);
		return EXIT_USAGE;
	} else if (c)
		cmd_help(stdout, c);
	else if (strncmp(what, "--man", 5) || (what[5] && what[5] != '=') ||
		 manual_print(stdout, what[5] ? what + 6 : "pytreefs") < 0) {
		return no_help(what);
	}
	return EXIT_OK;
}

static int unknown_command(const char *name)
{
	struct nearest n;

	nearest_begin(&n, name);
	nearest_try(&n, "help");
	nearest_try(&n, "--help");
	nearest_try(&n, "--version");
	for (const struct cmd *const *c = cmd_table; *c; c++)
		nearest_try(&n, (*c)->name);
	if (n.best)
		fprintf(stderr, "pytreefs: '%s' is not a command; did you mean '%s'?\n", name,
			n.best);
	else
		fprintf(stderr, "pytreefs: '%s' is not a command; `pytreefs --help` lists them\n",
			name);
	return EXIT_USAGE;
}

/*
 * The parent process may have blocked signals for reasons of its own; this program needs them. The
 * helpers of a mount, whose signals the mount has blocked, do not.
 */
static void take_signals(void)
{
	static const int ours[] = { SIGHUP, SIGINT, SIGTERM };
	sigset_t set;

	sigemptyset(&set);
	for (unsigned i = 0; i < ARRAY_LEN(ours); i++)
		sigaddset(&set, ours[i]);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/*
 * The default limit of descriptors is for programs that use select(2). This program opens each data
 * file.
 */
static void take_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < FILES_MOST) {
		limit.rlim_cur = MIN(limit.rlim_max, (rlim_t)FILES_MOST);
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/*
 * The parent process may have closed some of the descriptors 0 to 2, so that a message would be
 * written to the file that is opened in their place. Open a placeholder for each that fails like a
 * closed one.
 */
static bool take_places(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			return false;
	return true;
}

static int dispatch(int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
	const struct cmd *c;
	int status;

	for (const struct cmd *const *h = cmd_table; *h; h++)
		if ((*h)->run_helper && (*h)->run_helper(name, &status))
			return status;
	take_signals();
	if (!strncmp(name, "mount.", 6))
		return run_as_helper(argc, argv);
	if (argc < 2) {
		program_help(stderr);
		return EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V") ||
	    !strcmp(argv[1], "version")) {
		printf("pytreefs %s\n", PYTREEFS_VERSION);
		return EXIT_OK;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return help(argc > 2 ? argv[2] : NULL, argc > 3 ? argv[3] : NULL);
	c = find_cmd(argv[1]);
	if (!c)
		return unknown_command(argv[1]);
	return tool_main_run(c, argv, argc - 2, argv + 2);
}

/* Flush the output, which reveals a full disk or a closed pipe. Returns the exit status. */
static int end_output(int status, int status_of_error)
{
	int r = fflush(stdout) ? errno : output_lacks_text() ? ENOMEM : 0;
	struct pollfd p = { .fd = STDOUT_FILENO };

	if (!r && !ferror(stdout))
		return status;
	/*
	 * A reader that has ended early, such as head(1), is not an error. The stream remembers
	 * that an earlier write failed, but not why.
	 */
	if (r != EPIPE && !(poll(&p, 1, 0) > 0 && (p.revents & POLLERR)))
		fprintf(stderr, "pytreefs: cannot write the output%s%s\n", r ? ": " : "",
			r ? strerror(r) : "");
	return MAX(status, status_of_error);
}

int main(int argc, char **argv)
{
	int status_of_error = cmd_error_status(argc > 1 ? find_cmd(argv[1]) : NULL);

	url_program(argc, argv);
	/* Few arenas: the memory of one per thread would exceed the promised bound. */
	mallopt(M_ARENA_MAX, 2);
	/*
	 * Return large allocations to the system when they are freed. By default, the threshold
	 * would grow up to 32 MiB with freed allocations, and the heap would keep them. The memory
	 * of each libblosc call, two blocks of 512 KiB, is below the threshold: mapping it each
	 * time would cost as much as decoding.
	 */
	mallopt(M_MMAP_THRESHOLD, 1280 << 10);
	mallopt(M_TRIM_THRESHOLD, 2560 << 10);
	if (!take_places())
		return status_of_error;
	signal(SIGPIPE, SIG_IGN);
	/*
	 * A write beyond the limit of file sizes then fails with EFBIG, in whichever thread it is.
	 */
	signal(SIGXFSZ, SIG_IGN);
	take_descriptors();
	return end_output(dispatch(argc, argv), status_of_error);
}
