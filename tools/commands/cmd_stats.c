/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_stats.c - `pytreefs stats`: extremes, mean, standard deviation, NaN and infinities of each
 * leaf.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/wire.h"
#include "tools/job/mpi_program.h"
#include "tools/select/selection.h"

struct stats {
	struct selection t;
	bool json, any;            /* any: a row was printed */
	bool fail_nan, fail_inf;   /* from --fail-on */
	uint64_t nan, inf, leaves; /* leaves: number of leaves with values that --fail-on refuses */
	char *first;               /* the path of one of them */
};

static int stats_put_json(const struct walk_leaf *leaf, const struct numbers *s, struct buf *out)
{
	const struct zarr_meta *m = &leaf->value.array->meta;
	int r;

	buf_add_str(out, "{\"path\": ");
	json_put_str(out, span_str(leaf->path), JSON_PRETTY);
	buf_addf(out, ", \"dtype\": \"%s\", \"shape\": ", dtype_info(m->dtype)->name);
	json_put_uints(out, m->shape, m->rank, JSON_PYTHON);
	buf_addf(out, ", \"count\": %llu, ", (unsigned long long)m->n_elements);
	r = numbers_json(s, m->dtype, out);
	buf_add_byte(out, '}');
	return r < 0 ? r : buf_failed(out);
}

/* Append everything except the path, which comes last. */
static int put_row(const struct walk_leaf *leaf, const struct numbers *s, struct buf *out)
{
	const struct zarr_meta *m = &leaf->value.array->meta;
	auto_buf lo = { 0 }, hi = { 0 }, type = { 0 };
	int r = numbers_print_range(s, m->dtype, &lo, &hi);

	buf_add_str(&type, dtype_info(m->dtype)->name);
	json_put_uints(&type, m->shape, m->rank, JSON_COMPACT);
	if (r < 0 || buf_failed(&type))
		return r < 0 ? r : buf_failed(&type);
	if (!buf_str(&lo) || !buf_str(&hi) || !buf_str(&type))
		return -ENOMEM;
	if (s->n)
		buf_addf(out, "%14s %14s %12.5g %12.5g", buf_str(&lo), buf_str(&hi), s->mean,
			 numbers_std(s));
	else
		buf_addf(out, "%14s %14s %12s %12s", "-", "-", "-", "-");
	buf_addf(out, " %8llu %8llu  %-24s ", (unsigned long long)s->nan,
		 (unsigned long long)s->inf, buf_str(&type));
	return buf_failed(out);
}

/*
 * The report of a leaf: one of these bytes, followed by a row, or by the reason why there is none.
 */
enum { SAY_NOTHING, SAY_ROW, SAY_FAILURE };

/* Frees the leaf's state. */
static int stats_pack(void *arg, struct walk_leaf *leaf, struct buf *out)
{
	auto_free struct numbers *part = leaf->state;
	const struct stats *st = arg;
	struct numbers sum = { 0 };
	int r;

	if (leaf->failed.code) {
		r = buf_add_byte(out, SAY_FAILURE);
		return r < 0 ? r : buf_add_str(out, leaf->failed.text);
	}
	if (leaf->value.kind != VALUE_ARRAY)
		return buf_add_byte(out, SAY_NOTHING);
	for (uint64_t i = 0; i < leaf->n_tasks; i++)
		numbers_merge(&sum, leaf->value.array->meta.dtype, &part[i]);
	if (buf_add_byte(out, SAY_ROW) < 0 || wire_put_u64le(out, sum.nan) < 0 ||
	    wire_put_u64le(out, sum.inf) < 0)
		return -ENOMEM;
	return st->json ? stats_put_json(leaf, &sum, out) : put_row(leaf, &sum, out);
}

static void show_row(struct stats *st, const char *path, struct span row)
{
	progress_clear(&st->t.progress);
	if (st->json) {
		printf(st->any ? ",\n%.*s" : "\n%.*s", SPAN_ARG(row));
	} else {
		if (!st->any)
			printf("%14s %14s %12s %12s %8s %8s  %-24s %s\n", "min", "max", "mean",
			       "std", "NaN", "Inf", "type", "leaf");
		printf("%.*s", SPAN_ARG(row));
		print_name(stdout, path);
		printf("\n");
	}
	st->any = true;
}

static int stats_unpack(void *arg, struct walk_leaf *leaf, int rank, struct span packed)
{
	struct stats *st = arg;
	struct span text = packed.n ? span_from(packed, 1) : packed;
	struct err_note why = { .code = -EIO };
	struct wire w = wire_of(text);

	if (packed.n && packed.p[0] == SAY_ROW) {
		uint64_t nan = wire_u64le(&w), inf = wire_u64le(&w);

		if ((st->fail_nan && nan) || (st->fail_inf && inf)) {
			st->nan += nan;
			st->inf += inf;
			st->leaves++;
			if (!st->first)
				st->first = strdup(leaf->path);
		}
		show_row(st, leaf->path, wire_bytes(&w, wire_left(&w)));
	} else if (packed.n && packed.p[0] == SAY_FAILURE) {
		snprintf(why.text, sizeof(why.text), "%.*s", SPAN_ARG(text));
		selection_failed(&st->t, leaf->path, &why);
	}
	return 0;
}

/* ---- a leaf that several ranks share ---- */

static int stats_part(void *arg, struct walk_leaf *leaf, struct buf *out)
{
	const struct stats *st = arg;
	auto_free struct numbers *part = leaf->state;
	uint64_t i, end;
	int r = buf_add_byte(out, leaf->failed.code ? SAY_FAILURE : SAY_ROW);

	if (r < 0)
		return r;
	if (leaf->failed.code)
		return buf_add_str(out, leaf->failed.text);
	walk_share(leaf, st->t.group, st->t.group->peers->rank, &i, &end);
	for (; i < end && r >= 0; i++)
		r = numbers_pack(&part[i], out);
	return r;
}

/* Merge in the same order as in a single process, so that sums are equal to the bit. */
static int stats_join(void *arg, struct walk_leaf *leaf, int rank, struct span packed)
{
	const struct stats *st = arg;
	struct numbers *part = leaf->state;
	struct wire w = wire_of(packed);
	int said = wire_u8(&w);
	uint64_t i, end;

	walk_share(leaf, st->t.group, rank, &i, &end);
	if (said != SAY_ROW) {
		const struct span why = wire_bytes(&w, wire_left(&w));

		if (!leaf->failed.code)
			err_save(fail(-EIO, "%.*s", SPAN_ARG(why)), &leaf->failed);
		return 0;
	}
	for (; i < end && part; i++)
		numbers_unpack(&w, &part[i]);
	return wire_ok(&w) ? 0 : fail(-EIO, "what rank %d has summed up is truncated", rank);
}

static int stats_end(void *arg, struct walk_leaf *leaf)
{
	auto_buf out = { 0 };
	int r = stats_pack(arg, leaf, &out);

	return r < 0 ? r : stats_unpack(arg, leaf, 0, buf_span(&out));
}

static int stats_of(struct selection *t, const struct subtree *st, const char *prefix, void *arg)
{
	static const struct walk_ops ops = { .begin = walk_numbers_begin,
					     .task = walk_numbers_task,
					     .end = stats_end,
					     .pack = stats_pack,
					     .unpack = stats_unpack,
					     .part = stats_part,
					     .join = stats_join };

	return selection_walk(t, st, prefix, &ops, arg);
}

/* Parse the values that lead to exit status 1: "nan,inf". */
static int parse_faults(const struct cmd_args *a, struct stats *st)
{
	const char *at = cmd_value(a, "fail-on");

	while (at && *at) {
		size_t n = strcspn(at, ",");

		if (n == 3 && !strncasecmp(at, "nan", 3))
			st->fail_nan = true;
		else if (n == 3 && !strncasecmp(at, "inf", 3))
			st->fail_inf = true;
		else
			return cmd_wrong(a->cmd,
					 "--fail-on takes nan, inf or both (nan,inf), not '%s'",
					 cmd_value(a, "fail-on"));
		at += n + (at[n] == ',');
	}
	if (at && !st->fail_nan && !st->fail_inf)
		return cmd_usage(a->cmd, "--fail-on takes nan, inf or both (nan,inf)");
	return EXIT_OK;
}

static int stats_all(struct cmd_args *a, struct stats *st, struct rank_group *group)
{
	auto_source s = { 0 };
	int r = selection_begin(&st->t, a);

	selection_share(&st->t, group);
	if (r < 0)
		return r;
	r = source_open(a, a->arg[0], &s);
	if (r < 0)
		return r;
	if (st->json && group_is_lead(group))
		printf("[");
	r = selection_each(&st->t, &s, stats_of, st);
	if (st->json && group_is_lead(group))
		printf("\n]\n");
	r = r < 0 ? r : selection_end(&st->t);
	/* Silence would pass for a tree without faults. */
	if (r == EXIT_OK && !st->t.leaves && group_is_lead(group))
		fprintf(stderr, "pytreefs: '%s' has no leaves\n", a->arg[0]);
	if (st->leaves) {
		fprintf(stderr, "pytreefs: %llu NaN and %llu Inf in %llu %s, the first is '",
			(unsigned long long)st->nan, (unsigned long long)st->inf,
			(unsigned long long)st->leaves, noun(st->leaves, "leaf", "leaves"));
		print_name(stderr, st->first ? st->first : "");
		fputs("'\n", stderr);
		/* Trouble is the worse status: what was not read may have more of them. */
		r = r < 0 ? r : MAX(r, EXIT_FOUND);
	}
	free(st->first);
	return r;
}

static int run_stats(struct cmd_args *a)
{
	struct stats st = { .json = cmd_flag(a, "json") };
	struct rank_group *group;
	int r = parse_faults(a, &st);

	if (r != EXIT_OK)
		return r;
	r = mpi_rank_group(a, &group);
	return r < 0 ? r : group_end(group, stats_all(a, &st, group));
}

static const struct cmd_option options[] = { { "fail-on", 0, "nan,inf",
					       "exit status 1 when an array has one of these" },
					     OPTION_ONLY,
					     OPTION_JSON,
					     OPTION_QUIET,
					     { 0 } };

const struct cmd cmd_stats = {
	.name = "stats",
	.args = "SOURCE[/PATH]",
	.summary = "print min, max, mean, deviation, NaN and infinities of every array",
	.help = "NaN and infinities are counted, and excluded from the other numbers; a complex "
		"number counts\n"
		"as two. Exit status 1: --fail-on has found a value; 2: an error, or a part could "
		"not be\n"
		"read, and the rest was printed. Under mpirun, ranks share the leaves.",
	.example = "pytreefs stats ckpts/latest --only '**/kernel'",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.takes_mount_options = true,
	.ignores = { "restore_dtype" },
	.confined = CMD_READS,
	.checks = true,
	.found = "--fail-on has found a value; everything was printed.",
	.run = run_stats,
};
