/*
 * cmd_stats.c - `pytreefs stats`: extremes, mean, spread, NaN and infinities of each leaf.
 */
#include <math.h>
#include <stdio.h>

#include "core/base/err.h"
#include "tools/numbers.h"
#include "tools/targets.h"

struct stats {
	struct targets t;
	bool json, any;			/* any: a row was printed */
};

static int stats_begin(void *arg, struct walk_leaf *leaf)
{
	/* Strings have no numbers. */
	if (leaf->value.kind != VALUE_ARRAY)
		return 0;
	leaf->state = calloc(leaf->n_tasks + 1, sizeof(struct numbers));
	return leaf->state ? 0 : fail(-ENOMEM, "cannot sum up an array of %llu tasks", (unsigned long long)leaf->n_tasks);
}

static int add_tile(void *arg, struct walk_leaf *leaf, const struct tile *tile, void *bytes, struct walk_lane *lane)
{
	numbers_add(arg, leaf->value.array->meta.dtype, bytes, tile->n);
	return 0;
}

static int stats_task(void *arg, struct walk_leaf *leaf, uint64_t task, struct walk_lane *lane)
{
	return walk_tiles(leaf, task, lane, add_tile, (struct numbers *)leaf->state + task);
}

static void put_json(const struct walk_leaf *leaf, const struct numbers *s, bool first)
{
	const struct zarr_meta *m = &leaf->value.array->meta;
	auto_buf out = { 0 };

	buf_add_str(&out, first ? "\n{\"path\": " : ",\n{\"path\": ");
	json_put_str(&out, span_str(leaf->path), JSON_PRETTY);
	buf_addf(&out, ", \"dtype\": \"%s\", \"shape\": [", dtype_info(m->dtype)->name);
	for (unsigned i = 0; i < m->rank; i++)
		buf_addf(&out, i ? ", %llu" : "%llu", (unsigned long long)m->shape[i]);
	buf_addf(&out, "], \"count\": %llu, ", (unsigned long long)m->n_elements);
	numbers_json(s, m->dtype, &out);
	buf_add_byte(&out, '}');
	fwrite(out.p, 1, out.n, stdout);
}

static void put_row(const struct walk_leaf *leaf, const struct numbers *s, bool first)
{
	const struct zarr_meta *m = &leaf->value.array->meta;
	auto_buf lo = { 0 }, hi = { 0 }, type = { 0 };

	if (first)
		printf("%14s %14s %12s %12s %8s %8s  %-24s %s\n", "min", "max", "mean", "std", "NaN", "Inf", "type",
		       "leaf");
	numbers_print_min(s, m->dtype, &lo);
	numbers_print_max(s, m->dtype, &hi);
	buf_addf(&type, "%s[", dtype_info(m->dtype)->name);
	for (unsigned i = 0; i < m->rank; i++)
		buf_addf(&type, i ? ",%llu" : "%llu", (unsigned long long)m->shape[i]);
	buf_add_byte(&type, ']');
	if (s->n)
		printf("%14s %14s %12.5g %12.5g", buf_str(&lo), buf_str(&hi), s->mean, numbers_std(s));
	else
		printf("%14s %14s %12s %12s", "-", "-", "-", "-");
	printf(" %8llu %8llu  %-24s ", (unsigned long long)s->nan, (unsigned long long)s->inf, buf_str(&type));
	print_name(stdout, leaf->path);
	printf("\n");
}

static int stats_end(void *arg, struct walk_leaf *leaf)
{
	auto_free struct numbers *part = leaf->state;
	struct stats *st = arg;
	struct numbers sum = { 0 };

	if (leaf->failed.code) {
		targets_failed(&st->t, leaf->path, &leaf->failed);
		return 0;
	}
	if (leaf->value.kind != VALUE_ARRAY)
		return 0;
	for (uint64_t i = 0; i < leaf->n_tasks; i++)
		numbers_merge(&sum, leaf->value.array->meta.dtype, &part[i]);
	progress_clear(&st->t.progress);
	if (st->json)
		put_json(leaf, &sum, !st->any);
	else
		put_row(leaf, &sum, !st->any);
	st->any = true;
	return 0;
}

static int stats_of(struct targets *t, const struct subtree *st, const char *prefix, void *arg)
{
	static const struct walk_ops ops = { .begin = stats_begin, .task = stats_task, .end = stats_end };

	return targets_walk(t, st, prefix, &ops, arg);
}

static int run_stats(struct cmd_args *a)
{
	struct stats st = { .json = cmd_flag(a, "json") };
	auto_source s = { 0 };
	int r;

	targets_begin(&st.t, a);
	r = source_open(a, a->arg[0], &s);
	if (r < 0)
		return r;
	if (st.json)
		printf("[");
	r = targets_each(&st.t, &s, stats_of, &st);
	if (st.json)
		printf("\n]\n");
	return r < 0 ? r : targets_end(&st.t);
}

static const struct cmd_option options[] = { OPTION_ONLY, OPTION_JSON, OPTION_QUIET, { 0 } };

const struct cmd cmd_stats = {
	.name = "stats",
	.args = "SOURCE[/PATH]",
	.summary = "min, max, mean, deviation, NaN and infinities of every array",
	.help = "NaN and infinities are counted and left out of the rest; complex numbers count as two.",
	.example = "pytreefs stats tests/data/sample/latest --only '**/kernel'",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.takes_mount_options = true,
	.run = run_stats,
};
