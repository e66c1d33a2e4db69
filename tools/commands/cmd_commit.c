/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_commit.c - `pytreefs commit` and `pytreefs abort`: end a draft from a shell.
 *
 * A draft exists in the mount that writes it: commit renames it in that mount, and prints the
 * reason of a failure. A draft on disk whose writer has ended has lost its names, and can only be
 * removed, which abort does.
 */
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "core/base/err.h"
#include "core/base/path.h"
#include "core/commit/draft_dir.h"
#include "core/step/step_name.h"
#include "tools/convert/atomic_file.h"
#include "tools/convert/atomic_step.h"
#include "tools/select/selection.h"

#define FUSE_MAGIC 0x65735546
#define REASON_LINES 16

static bool is_in_mount(const char *path)
{
	struct statfs st;

	return statfs(path, &st) == 0 && st.f_type == FUSE_MAGIC;
}

/* Read the log of the mount. Another mount may be there by now, or none. */
static void read_log(const char *dir, struct buf *ret)
{
	auto_free char *path = NULL;
	char piece[4096];
	size_t n;
	FILE *f;

	if (path_join(dir, span_str(".pytreefs/log"), &path) < 0)
		return;
	f = fopen(path, "re");
	while (f && (n = fread(piece, 1, sizeof(piece), f)) > 0)
		if (buf_add(ret, piece, n) < 0)
			break;
	if (f)
		fclose(f);
}

/* Remove the last line from the text and return it. */
static struct span last_line(struct span *text)
{
	struct span line;
	size_t from;

	while (text->n && text->p[text->n - 1] == '\n')
		text->n--;
	for (from = text->n; from > 0 && text->p[from - 1] != '\n';)
		from--;
	line = span_from(*text, from);
	text->n = from;
	return line;
}

/*
 * Find the reason why the draft was refused: the last line of the mount's log that names it. Few
 * lines come between the refusal and now. A repeated message is only counted in the log, without
 * names. If the log has not changed, the kernel has refused the rename without asking the mount.
 */
static void reason(const char *dir, const char *draft, struct span before, struct buf *ret)
{
	auto_buf log = { 0 };
	struct span text;

	read_log(dir, &log);
	text = buf_span(&log);
	if (span_eq(text, before))
		return;
	for (unsigned i = 0; i < REASON_LINES && text.n;) {
		struct span line = last_line(&text);
		const char *time = memchr(line.p, ' ', line.n);

		if (time)
			line = span_from(line, (size_t)(time + 1 - (const char *)line.p));

		if (memmem(line.p, line.n, draft, strlen(draft))) {
			buf_add_span(ret, line);
			return;
		}
		/* Several counts of repeated messages may follow. */
		i += !span_starts(line, span_str("(the last message came "));
	}
}

/* "STEP" of "STEP.tmp". */
static int final_name(const char *name, char **ret)
{
	struct span final = step_name_final(span_str(name));

	if (final.n == strlen(name) && span_ends(final, span_str(".tmp")))
		final.n -= strlen(".tmp");
	if (final.n == strlen(name))
		return fail(-EINVAL, "'%s' is not a name of a draft: it must end in '.tmp'", name);
	*ret = span_dup_str(final);
	return *ret ? 0 : -ENOMEM;
}

/* The path of the step: the second argument, or the draft's without ".tmp". */
static int final_path(const struct cmd_args *a, const char *dir, const char *name, char **ret)
{
	auto_free char *final = a->n_args > 1 ? strdup(a->arg[1]) : NULL;
	int r = a->n_args > 1 ? 0 : final_name(name, &final);

	if (r < 0)
		return r;
	if (!final)
		return -ENOMEM;
	/* A name without a directory is one beside the draft. */
	if (!strchr(final, '/'))
		return path_join(dir, span_str(final), ret);
	*ret = take(final);
	return 0;
}

static int run_commit(struct cmd_args *a)
{
	auto_free char *dir = NULL, *name = NULL, *to = NULL;
	auto_buf before = { 0 }, why = { 0 };
	struct stat st;
	int r = path_split(a->arg[0], &dir, &name);

	if (r < 0)
		return r;
	r = final_path(a, dir, name, &to);
	if (r < 0)
		return r;
	if (stat(a->arg[0], &st) < 0)
		return err_sys("cannot look at", a->arg[0]);
	if (!is_in_mount(a->arg[0]))
		return fail(
			-EINVAL,
			"'%s' is in no mount: only the mount that wrote a draft knows its names",
			a->arg[0]);
	read_log(dir, &before);
	if (renameat2(AT_FDCWD, a->arg[0], AT_FDCWD, to, RENAME_NOREPLACE) == 0)
		return EXIT_OK;
	r = -errno;
	reason(dir, name, buf_span(&before), &why);
	return why.n ? fail(r, "%.*s", SPAN_ARG(buf_span(&why))) :
		       fail(r, "cannot rename '%s' to '%s': %s", a->arg[0], to, strerror(-r));
}

/* ---- abort ---- */

static int remove_abandoned(struct cmd_args *a, const char *dir, const char *name)
{
	auto_of(ns) struct ns *ns = NULL;
	enum draft_state state;
	int r;

	if (!step_name_is_tmp(span_str(name)))
		return fail(-EINVAL,
			    "'%s' is not a draft: on disk those are called '.STEP" STEP_DRAFT "'",
			    name);
	a->options.shape = SHAPE_ROOT;
	r = ns_open(dir, &a->options, &ns);
	if (r < 0)
		return r;
	r = draft_dir_state(ns->ckpt->source, name, &state);
	if (r < 0)
		return r;
	if (state == DRAFT_LIVE)
		return fail(-EBUSY, "'%s' is held by a live mount: abort it there", name);
	if (state == DRAFT_FOREIGN)
		return fail(
			-EPERM,
			"'%s' is a temporary directory of another program: gc --all removes those",
			name);
	return io_remove_tree(ns->ckpt->source, name);
}

static int run_abort(struct cmd_args *a)
{
	auto_free char *dir = NULL, *name = NULL, *final = NULL;
	char *const paths[] = { a->arg[0], NULL };
	struct stat st;
	FTS *fts;
	int r = path_split(a->arg[0], &dir, &name);

	if (r < 0)
		return r;
	if (lstat(a->arg[0], &st) < 0)
		return err_sys("cannot look at", a->arg[0]);
	if (!is_in_mount(a->arg[0])) {
		r = remove_abandoned(a, dir, name);
		return r < 0 ? r : EXIT_OK;
	}
	/* A committed step is refused, even if it could be deleted. */
	r = final_name(name, &final);
	if (r < 0)
		return r;
	/* Like `rm -r`, through the mount, which decides what may be removed. */
	fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	for (FTSENT *e; fts && (e = fts_read(fts));)
		if (e->fts_info != FTS_D)
			remove(e->fts_path);
	if (fts)
		fts_close(fts);
	return lstat(a->arg[0], &st) == 0 ? fail(-EBUSY, "'%s' could not be removed", a->arg[0]) :
					    EXIT_OK;
}

static const struct cmd_option options[] = { { 0 } };

const struct cmd cmd_commit = {
	.name = "commit",
	.args = "MOUNT/STEP.tmp [MOUNT/STEP]",
	.summary = "commit a draft in a mount to a step, or print why that fails",
	.help = "Does the same as `mv MOUNT/STEP.tmp MOUNT/STEP`. At exit status 0, the step is "
		"visible and\n"
		"durable; otherwise, the draft is unchanged, and can be modified and committed "
		"again. A second\n"
		"argument without '/' is a name beside the draft.",
	.example = "pytreefs commit --help   # in a mount: pytreefs commit /mnt/ckpts/101.tmp",
	.options = options,
	.min_args = 1,
	.max_args = 2,
	.run = run_commit,
};

const struct cmd cmd_abort = {
	.name = "abort",
	.args = "MOUNT/STEP.tmp | SOURCE/.STEP.pytreefs-draft",
	.summary = "remove a draft in its mount, or one whose mount has ended",
	.help = "A draft of a live mount can only be removed through that mount. `gc --all` "
		"removes temporary\n"
		"directories of other programs.",
	.example = "pytreefs abort --help    # in a mount: pytreefs abort /mnt/ckpts/101.tmp",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.takes_mount_options = true,
	.run = run_abort,
};
