/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_verify.c - `pytreefs verify`: checks that a checkpoint is complete and consistent, and
 * decodes.
 *
 * It works below the file tree of the mount, which does not show damaged parts. Findings are
 * printed at once.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/base/path.h"
#include "core/step/item_safetensors.h"
#include "handlers/namespace/node_tree.h"
#include "tools/job/mpi_program.h"
#include "tools/verify/verify.h"

static void say_size(const char *what, uint64_t bytes)
{
	char size[32];

	print_size(size, sizeof(size), bytes);
	printf("%s %s", size, what);
}

static void say_count(uint64_t n, const char *one, const char *many)
{
	printf("%llu %s", (unsigned long long)n, noun(n, one, many));
}

static void say_not_looked_at(const struct verify *v)
{
	if (v->opaque_items)
		printf("%llu %s with %llu %s %s\n", (unsigned long long)v->opaque_items,
		       noun(v->opaque_items, "item", "items"), (unsigned long long)v->opaque_files,
		       noun(v->opaque_files, "entry", "entries"),
		       noun(v->opaque_items,
			    "is not a tree, and was not looked at: only its handler knows what is "
			    "in it",
			    "are not trees, and were not looked at: only their handlers know what "
			    "is in them"));
	if (v->other_files)
		printf("%llu other %s beside arrays and items %s not looked at\n",
		       (unsigned long long)v->other_files,
		       noun(v->other_files, "file or directory", "files and directories"),
		       noun(v->other_files, "was", "were"));
}

static void say_covered(const struct verify *v)
{
	uint64_t bytes = v->stored_bytes - v->raw_bytes - v->unsummed_bytes;
	uint64_t others = v->unsummed_leaves + v->unopened_leaves;

	say_count(v->leaves - MIN(v->leaves, others), "leaf, ", "leaves, ");
	say_size("are covered by checksums; ", bytes);
	say_count(v->unsummed_leaves, "leaf, ", "leaves, ");
	say_size("cannot be", v->raw_bytes + v->unsummed_bytes);
	if (v->unopened_leaves) {
		printf("; ");
		say_count(v->unopened_leaves, "leaf", "leaves");
		printf(" cannot be opened");
	}
	printf("\n");
}

static void sum_up_text(const struct verify *v)
{
	for (const char *at = NULL; (at = buf_next_text(&v->drafts, at));) {
		printf("abandoned or still being written, not looked at: ");
		print_name(stdout, at);
		printf("\n");
	}
	for (size_t i = 0; i < v->n_repeats; i++) {
		const struct verify_repeat *k = &v->repeat[i];

		if (k->leaves < 2)
			continue;
		printf("%llu leaves are affected by the finding at ",
		       (unsigned long long)k->leaves);
		print_name(stdout, k->file);
		if (k->len)
			printf(":%llu:%llu", (unsigned long long)k->off,
			       (unsigned long long)k->len);
		printf("\n");
	}
	say_count(v->items, "item with ", "items with ");
	say_count(v->leaves, "leaf", "leaves");
	if (v->level >= 3) {
		printf(", ");
		say_count(v->chunks, "chunk, ", "chunks, ");
		say_size("stored, ", v->stored_bytes);
		say_size("decoded", v->decoded_bytes);
	}
	printf(": ");
	say_count(v->errors, "error, ", "errors, ");
	say_count(v->warnings, "warning", "warnings");
	if (v->unchecked)
		printf(", %llu could not be checked", (unsigned long long)v->unchecked);
	/* Many read only the first line. */
	if (v->level < 3)
		printf("; chunks were not read, which is level 3");
	else if (v->unsummed_leaves) {
		printf("; ");
		say_count(v->unsummed_leaves, "leaf has", "leaves have");
		printf(" values without a checksum");
	}
	printf("\n");
	if (v->level >= 3)
		say_covered(v);
	if (v->raw_bytes) {
		say_size("of it are raw chunks without a checksum: a flipped bit in them cannot be "
			 "seen\n",
			 v->raw_bytes);
	}
	if (v->unsummed_bytes) {
		say_size("of it are compressed without a checksum: most damage to them shows, some "
			 "cannot\n",
			 v->unsummed_bytes);
	}
	if (v->digest_leaves)
		printf("%llu of %llu leaves %s compared\n", (unsigned long long)v->digest_leaves,
		       (unsigned long long)v->leaves,
		       noun(v->digest_leaves,
			    "has a SHA-256 in .sha256sums, with which its value was",
			    "have a SHA-256 in .sha256sums, with which their values were"));
	say_not_looked_at(v);
	if (v->missing)
		printf("%llu %s as the fill value\n", (unsigned long long)v->missing,
		       noun(v->missing, "chunk is not stored and reads",
			    "chunks are not stored and read"));
	if (v->unused_files)
		printf("%llu data %s to no database: merging leaves %s behind\n",
		       (unsigned long long)v->unused_files,
		       noun(v->unused_files, "file belongs", "files belong"),
		       noun(v->unused_files, "it", "them"));
}

static void sum_up_shared(const struct verify *v, struct buf *out)
{
	const char *comma = "";

	buf_add_str(out, ", \"shared\": [");
	for (size_t i = 0; i < v->n_repeats; i++) {
		const struct verify_repeat *k = &v->repeat[i];

		if (k->leaves < 2)
			continue;
		buf_addf(out, "%s{\"file\": ", comma);
		json_put_str(out, span_str(k->file), JSON_PRETTY);
		if (k->len)
			buf_addf(out, ", \"offset\": %llu, \"length\": %llu",
				 (unsigned long long)k->off, (unsigned long long)k->len);
		buf_addf(out, ", \"leaves\": %llu}", (unsigned long long)k->leaves);
		comma = ", ";
	}
	buf_add_byte(out, ']');
}

/* error: why it ended early; NULL: it did not. */
static void sum_up_json(const struct verify *v, const char *error)
{
	auto_buf out = { 0 };

	buf_add_str(&out, "\n]");
	if (error) {
		buf_add_str(&out, ", \"error\": ");
		json_put_str(&out, span_str(error), JSON_PRETTY);
	}
	sum_up_shared(v, &out);
	buf_add_str(&out, ", \"drafts\": [");
	for (const char *at = NULL; (at = buf_next_text(&v->drafts, at));) {
		buf_add_str(&out, at == (const char *)v->drafts.p ? "" : ", ");
		json_put_str(&out, span_str(at), JSON_PRETTY);
	}
	buf_addf(&out,
		 "], \"level\": %d, \"errors\": %llu, \"warnings\": %llu, \"unchecked\": %llu"
		 ", \"refused\": %llu, \"opaque_items\": %llu, \"other_files\": %llu"
		 ", \"items\": %llu, \"leaves\": %llu",
		 v->level, (unsigned long long)v->errors, (unsigned long long)v->warnings,
		 (unsigned long long)v->unchecked, (unsigned long long)v->refused,
		 (unsigned long long)v->opaque_items, (unsigned long long)v->other_files,
		 (unsigned long long)v->items, (unsigned long long)v->leaves);
	buf_addf(&out,
		 ", \"chunks\": %llu, \"stored_bytes\": %llu, \"decoded_bytes\": %llu, "
		 "\"missing_chunks\": %llu, \"unused_files\": %llu",
		 (unsigned long long)v->chunks, (unsigned long long)v->stored_bytes,
		 (unsigned long long)v->decoded_bytes, (unsigned long long)v->missing,
		 (unsigned long long)v->unused_files);
	buf_addf(&out,
		 ", \"unopened_leaves\": %llu"
		 ", \"without_checksum\": {\"leaves\": %llu, \"raw_bytes\": %llu, "
		 "\"compressed_bytes\": %llu}, \"sha256\": {\"leaves\": %llu, \"bytes\": %llu}}\n",
		 (unsigned long long)v->unopened_leaves, (unsigned long long)v->unsummed_leaves,
		 (unsigned long long)v->raw_bytes, (unsigned long long)v->unsummed_bytes,
		 (unsigned long long)v->digest_leaves, (unsigned long long)v->digest_bytes);
	print_buf(stdout, &out);
}

/*
 * Resolve a path that is not a directory on disk, such as ROOT/latest, to that directory. A step
 * that is a file is one of its root: *ret_file is its name there.
 */
static int verify_resolve(struct cmd_args *a, char **ret, char **ret_file)
{
	auto_free char *stored = *a->arg[0] ? source_stored_path(a->arg[0]) : NULL;
	auto_source s = { 0 };
	const char *path = stored ? stored : a->arg[0];
	struct stat st;
	int r;

	if (!path_is_url(path) && stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
		*ret = strdup(path);
		return *ret ? 0 : -ENOMEM;
	}
	path = NULL;
	r = source_open(a, a->arg[0], &s);
	if (r < 0)
		return r;
	if (s.node == s.ns->root)
		path = ".";
	else if (s.node->ops == &node_step_ops)
		path = node_step_path(s.node);
	else if (s.node->ops == &node_dir_ops &&
		 container_of(s.node, struct node_dir, node)->is_item)
		path = container_of(s.node, struct node_dir, node)->item->path;
	if (!path)
		return fail_part(&s, a->arg[0], "; --only chooses leaves of it");
	if (stat(a->arg[0], &st) == 0 && S_ISREG(st.st_mode)) {
		*ret = strdup(s.source);
		*ret_file = strdup(path);
		return *ret && *ret_file ? 0 : -ENOMEM;
	}
	*ret = verify_join(s.source, path);
	return *ret ? 0 : -ENOMEM;
}

/* Whether the path is an item that is not a tree, such as JSON, which only its step describes. */
static bool is_item_of_a_step(struct cmd_args *a, const char *path)
{
	auto_free char *real = realpath(path, NULL);
	char *slash = real ? strrchr(real, '/') : NULL;
	auto_of(ckpt) struct ckpt *ckpt = NULL;
	struct err_note why;
	bool found;

	if (!slash || slash == real)
		return false;
	*slash = '\0';
	err_save(-EINVAL, &why);
	a->options.is_above = true;
	found = ns_ckpt(real, &a->options, &ckpt) >= 0 && ckpt->shape == SHAPE_STEP;
	a->options.is_above = false;
	err_restore(&why);
	return found;
}

/*
 * Open a file of flax that is in no step. Of safetensors, explain why nothing is checked. `r` is
 * the error for a path that is neither.
 */
static int open_whole_file(struct cmd_args *a, int r, struct ckpt **ret, char **ret_file)
{
	auto_source s = { 0 };
	struct err_note why;
	int found;

	err_save(r, &why);
	found = source_open_safetensors(a, a->arg[0], &s);
	if (found <= 0)
		return found < 0 ? source_fail_query(a->arg[0], found) : err_restore(&why);
	if (!ckpt_is_file(s.ns->ckpt) || item_is_safetensors(s.ns->ckpt->only_item))
		return fail(-EINVAL,
			    "'%s' is not verified: safetensors has no checksums; its header is "
			    "right, and `pytreefs stats` reads all of it",
			    a->arg[0]);
	if (*s.inner)
		return fail(-EINVAL, "'%s' is in the file '%s': --only chooses leaves", a->arg[0],
			    s.source);
	*ret_file = strdup(s.ns->ckpt->only_item);
	a->options.tensors = TENSORS_ONLY;
	return *ret_file ? ns_ckpt(a->arg[0], &a->options, ret) : -ENOMEM;
}

/* A source without contents is not sound, but most likely not the one that was meant. */
static int fail_if_nothing_was_checked(const struct verify *v)
{
	/* Other ranks do not know the findings of rank 0. */
	if (v->items > v->opaque_items || v->errors || v->unchecked || !group_is_lead(v->t.group))
		return 0;
	if (v->items)
		return fail(-ENOENT,
			    "'%s' has only items that are not trees, whose contents only their "
			    "handlers know: nothing was checked",
			    v->t.a->arg[0]);
	return fail(-ENOENT, "'%s' has no %s: nothing was checked%s", v->t.a->arg[0],
		    v->steps ? "items" : "steps",
		    v->n_drafts ? ", since drafts are not looked at" : "");
}

/* Open what the user named, and check it. The caller closes *ret. */
static int verify_source(struct verify *v, struct cmd_args *a, struct ckpt **ret)
{
	auto_free char *path = NULL, *file = NULL;
	/* As it was given, even if it is too damaged for a mount. */
	int r = path_is_url(a->arg[0]) ? ns_ckpt(a->arg[0], &a->options, ret) : -ENOENT;

	if (r == -ENOENT || r == -EINVAL || r == -ENOTDIR) {
		err_clear();
		r = verify_resolve(a, &path, &file);
		if (r >= 0)
			r = ns_ckpt(path, &a->options, ret);
	}
	if (r == -EINVAL && is_item_of_a_step(a, path))
		r = fail(-EINVAL, "'%s' is not a tree; verify the step that it is in", a->arg[0]);
	else if (r == -EINVAL || r == -ENOTDIR || (r == -ENOENT && path_is_url(a->arg[0])))
		r = open_whole_file(a, r, ret, &file);
	if (r >= 0)
		r = ckpt_start(*ret);
	if (r < 0)
		return r;
	v->ckpt = *ret;
	r = file                         ? verify_item(v, file, false) :
	    v->ckpt->shape == SHAPE_ROOT ? verify_root(v) :
	    v->ckpt->shape == SHAPE_STEP ? verify_step(v, ".") :
					   verify_item(v, ".", false);
	return r < 0 ? r : fail_if_nothing_was_checked(v);
}

static int verify_with(struct cmd_args *a, int level, struct rank_group *group)
{
	struct verify v = { .level = level, .json = cmd_flag(a, "json") };
	auto_of(ckpt) struct ckpt *ckpt = NULL;
	struct err_note why;
	int r = selection_begin(&v.t, a);

	selection_share(&v.t, group);
	if (v.json && group_is_lead(group))
		printf("{\"findings\": [");
	if (r >= 0)
		r = verify_source(&v, a, &ckpt);
	progress_clear(&v.t.progress);
	if (r >= 0)
		r = selection_end(&v.t);
	err_save(r, &why);
	if (v.json && group_is_lead(group))
		sum_up_json(&v, r < 0 ? why.text : NULL);
	else if (r >= 0 && group_is_lead(group) && !cmd_flag(a, "quiet"))
		sum_up_text(&v);
	if (r < 0)
		err_restore(&why);
	buf_release(&v.drafts);
	verify_repeats_release(&v);
	if (r != EXIT_OK)
		return r;
	return v.unchecked ? EXIT_TROUBLE : v.errors || v.refused ? EXIT_FOUND : EXIT_OK;
}

static int run_verify(struct cmd_args *a)
{
	const char *level = cmd_value(a, "level");
	struct rank_group *group;
	int r;

	if (level && (strlen(level) != 1 || level[0] < '1' || level[0] > '3'))
		return cmd_usage(a->cmd, "--level takes 1, 2 or 3");
	r = mpi_rank_group(a, &group);
	return r < 0 ? r : group_end(group, verify_with(a, level ? level[0] - '0' : 3, group));
}

static const struct cmd_option options[] = {
	{ "level", 'l', "1|2|3", "level of the checks (default 3)" },
	OPTION_ONLY,
	OPTION_JSON,
	OPTION_QUIET,
	{ "verbose", 'v', NULL, "list the items that are checked" },
	{ 0 },
};

const struct cmd cmd_verify = {
	.name = "verify",
	.args = "SOURCE|STEP|ITEM",
	.summary = "check every record, reference, statistic and chunk of a checkpoint",
	.help = "Level 1 reads every metadata file and database node, level 2 compares them with "
		"each other,\n"
		"and level 3 decodes every chunk. Data without a checksum is counted. Exit status "
		"1: something\n"
		"is damaged, or Orbax refuses it; 2: an error, a part could not be read for "
		"another reason\n"
		"(its mode), or there was nothing to check. Under mpirun, ranks share the leaves.",
	.example = "pytreefs verify ckpts/latest",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.checks = true,
	.takes_mount_options = true,
	.ignores = { "restore_dtype", "transforms" },
	.confined = CMD_READS,
	.found = "something is damaged, or Orbax refuses it.",
	.run = run_verify,
};
