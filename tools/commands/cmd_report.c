/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_report.c - `pytreefs report`: the page of D.html, with statistics of the numbers in each
 * array.
 *
 * All arrays are read twice: first for their extremes, then for the histograms between them.
 * leaf_table_html.c makes the page.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "handlers/namespace/node_parts.h"
#include "handlers/subtree/leaf_table.h"
#include "tools/convert/atomic_file.h"
#include "tools/select/selection.h"

/* Statistics of one leaf. */
struct found {
	const struct tree_node *node;
	enum dtype dtype;
	struct numbers sum;
	uint64_t *bins; /* NUMBERS_BINS counts; NULL: not an array, or without finite numbers */
	bool is_lost;   /* could not be read, which was said */
};

struct report {
	struct selection t;
	struct found *found; /* one for each leaf of the walk, in its order */
	size_t n, cursor;
	pthread_mutex_t lock;        /* protects the bins */
	struct leaf_table_sums sums; /* coverage by checksums, for a single tree */
};

static void found_release(struct report *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->found[i].bins);
	free(take(p->found));
	p->n = 0;
}

static void report_release(struct report *p)
{
	found_release(p);
	pthread_mutex_destroy(&p->lock);
}

/* For n leaves, in place of those of the step before. */
static int found_new(struct report *p, size_t n)
{
	found_release(p);
	p->found = calloc(n + 1, sizeof(*p->found));
	if (!p->found)
		return fail(-ENOMEM, "cannot look at %zu leaves", n);
	p->n = n;
	return 0;
}

/* ---- extremes and sums ---- */

static int sums_end(void *arg, struct walk_leaf *leaf)
{
	auto_free struct numbers *part = leaf->state;
	struct report *p = arg;
	struct found *f = &p->found[leaf->number];

	f->node = leaf->node;
	f->is_lost = leaf->failed.code != 0;
	if (leaf->failed.code)
		selection_failed(&p->t, leaf->path, &leaf->failed);
	if (leaf->failed.code || leaf->value.kind != VALUE_ARRAY)
		return 0;
	f->dtype = leaf->value.array->meta.dtype;
	for (uint64_t i = 0; i < leaf->n_tasks; i++)
		numbers_merge(&f->sum, f->dtype, &part[i]);
	if (!f->sum.n)
		return 0;
	f->bins = calloc(NUMBERS_BINS, sizeof(*f->bins));
	return f->bins ? 0 : fail(-ENOMEM, "cannot count '%s'", leaf->path);
}

static const struct walk_ops sums_ops = { .begin = walk_numbers_begin,
					  .task = walk_numbers_task,
					  .end = sums_end };

/* ---- histograms ---- */

static int bins_begin(void *arg, struct walk_leaf *leaf)
{
	struct report *p = arg;

	if (!p->found[leaf->number].bins)
		leaf->n_tasks = 0;
	return 0;
}

struct counting {
	const struct numbers *sum;
	uint64_t bins[NUMBERS_BINS];
};

static int bins_tile(void *arg, struct walk_leaf *leaf, const struct tile *tile, void *bytes,
		     struct walk_worker *worker)
{
	struct counting *c = arg;

	numbers_histogram(leaf->value.array->meta.dtype, bytes, tile->n, c->sum->min, c->sum->max,
			  c->bins);
	return 0;
}

static int bins_task(void *arg, struct walk_leaf *leaf, uint64_t task, struct walk_worker *worker)
{
	struct report *p = arg;
	struct found *f = &p->found[leaf->number];
	struct counting c = { .sum = &f->sum };
	int r = walk_tiles(leaf, task, worker, bins_tile, &c);

	pthread_mutex_lock(&p->lock);
	for (unsigned i = 0; i < NUMBERS_BINS && r >= 0; i++)
		f->bins[i] += c.bins[i];
	pthread_mutex_unlock(&p->lock);
	return r;
}

/* If a leaf fails now, its histogram would be incomplete, so drop it. */
static int bins_end(void *arg, struct walk_leaf *leaf)
{
	struct report *p = arg;
	struct found *f = &p->found[leaf->number];

	if (leaf->failed.code && f->bins) {
		selection_failed(&p->t, leaf->path, &leaf->failed);
		free(take(f->bins));
	}
	return 0;
}

/* ---- the document ---- */

/* Leaves are looked up in the order of the walk. */
static const struct found *found_of(struct report *p, const struct tree_node *node)
{
	for (size_t i = p->cursor; i < p->n; i++) {
		if (p->found[i].node == node) {
			p->cursor = i + 1;
			return &p->found[i];
		}
	}
	return NULL;
}

/* Say which leaves were read and cannot be described: their sizes are left out. */
static int say_undescribed(struct report *p, const char *prefix, const struct leaf_table *t)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct leaf_info *leaf = &t->leaf[i];
		const struct found *f = leaf->error ? found_of(p, leaf->leaf) : NULL;
		auto_buf path = { 0 };
		struct err_note why;

		if (!f || f->is_lost)
			continue;
		err_save(fail(leaf->error, "%s", leaf->why), &why);
		if (buf_add_str(&path, prefix) < 0 ||
		    subtree_path(leaf->part, leaf->leaf, &path) < 0 || !buf_str(&path))
			return fail(-ENOMEM, "cannot name a leaf");
		selection_failed(&p->t, buf_str(&path), &why);
	}
	p->cursor = 0;
	return 0;
}

static int report_put_found(void *arg, const struct leaf_info *leaf, struct buf *out)
{
	const struct found *f = leaf->kind == VALUE_ARRAY ? found_of(arg, leaf->leaf) : NULL;
	auto_buf stats = { 0 }, min = { 0 }, max = { 0 };
	int r;

	if (!f || !f->dtype)
		return 0;
	r = numbers_json(&f->sum, f->dtype, &stats);
	if (r < 0)
		return r;
	r = buf_addf(out, ", \"stats\": {%.*s}", SPAN_ARG(buf_span(&stats)));
	if (r < 0 || !f->bins)
		return r;
	if (json_put_double(&min, f->sum.min, JSON_COMPACT) < 0 ||
	    json_put_double(&max, f->sum.max, JSON_COMPACT) < 0)
		return -ENOMEM;
	r = buf_addf(out, ", \"histogram\": {\"from\": %.*s, \"to\": %.*s",
		     SPAN_ARG(buf_span(&min)), SPAN_ARG(buf_span(&max)));
	for (unsigned i = 0; i < NUMBERS_BINS && r >= 0; i++)
		r = buf_addf(out, "%s%llu", i ? ", " : ", \"counts\": [",
			     (unsigned long long)f->bins[i]);
	return r < 0 ? r : buf_add_str(out, "]}");
}

static int write_out(struct cmd_args *a, struct io_engine *io, struct span page)
{
	auto_atomic_file out = { 0 };
	int r;

	if (a->n_args < 2) {
		print_span(stdout, page);
		return 0;
	}
	r = atomic_file_begin(io, a->arg[1], false, cmd_flag(a, "force"), &out);
	if (r >= 0)
		r = io_write_exact(out.file, page.p, page.n, 0);
	if (r >= 0)
		r = atomic_file_commit(&out);
	return r < 0 ? err_at(r, "'%s' is not written", a->arg[1]) : 0;
}

/* The last name of the path, as in D.html. */
static const char *report_title_of(char *path)
{
	size_t n = strlen(path);
	char *slash;

	while (n > 1 && path[n - 1] == '/')
		path[--n] = '\0';
	slash = strrchr(path, '/');
	return slash && slash[1] ? slash + 1 : path;
}

/* ---- a page of steps ---- */

extern const char steps_page[];
extern const size_t steps_page_size;

struct steps {
	struct report *p;
	struct buf *json; /* of their rows */
};

struct step_sums {
	uint64_t leaves, elements, bytes, stored, nan, inf;
	double squares;
	bool has_norm;
};

static void add_found(const struct report *p, struct step_sums *s)
{
	for (size_t i = 0; i < p->n; i++) {
		const struct found *f = &p->found[i];
		enum dtype_kind kind = f->dtype ? dtype_info(f->dtype)->kind : DTYPE_KIND_INT;

		s->nan += f->sum.nan;
		s->inf += f->sum.inf;
		if (!f->sum.n || (kind != DTYPE_KIND_FLOAT && kind != DTYPE_KIND_COMPLEX))
			continue;
		s->squares += f->sum.m2 + (double)f->sum.n * f->sum.mean * f->sum.mean;
		s->has_norm = true;
	}
}

static int add_leaf_table(struct report *p, const struct walk *w, struct step_sums *s)
{
	auto_leaf_table leaf_table = { 0 };
	int r = leaf_table_make(w->st, LEAF_TABLE_STORED, w->place, w->n, &leaf_table);

	for (size_t i = 0; i < leaf_table.n && r >= 0; i++) {
		const struct leaf_info *f = &leaf_table.leaf[i];
		uint64_t n = 1;

		s->leaves++;
		s->bytes += f->bytes;
		s->stored += f->stored;
		for (unsigned k = 0; k < f->array.rank; k++)
			n *= f->array.shape[k];
		s->elements += f->kind == VALUE_ARRAY ? n : 0;
	}
	return r < 0 ? r : say_undescribed(p, w->prefix, &leaf_table);
}

static int report_put_step(struct steps *all, const char *prefix, const struct subtree *st,
			   const struct step_sums *s, size_t unreadable)
{
	auto_buf name = { 0 }, norm = { 0 };
	int r = s->has_norm && isfinite(s->squares) ?
			json_put_double(&norm, sqrt(s->squares), JSON_COMPACT) :
			buf_add_str(&norm, "null");

	if (r < 0)
		return r;
	r = json_put_str(&name, span_of(prefix, strcspn(prefix, "/")), JSON_COMPACT);
	if (r < 0)
		return r;
	return buf_addf(all->json,
			"%s\n{\"name\": %.*s, \"time\": %lld, \"leaves\": %llu, "
			"\"elements\": %llu, \"bytes\": %llu, \"stored_bytes\": %llu, "
			"\"nan\": %llu, \"inf\": %llu, \"unreadable\": %zu, \"norm\": %.*s}",
			all->json->n ? "," : "", SPAN_ARG(buf_span(&name)),
			(long long)st->mtime.tv_sec, (unsigned long long)s->leaves,
			(unsigned long long)s->elements, (unsigned long long)s->bytes,
			(unsigned long long)s->stored, (unsigned long long)s->nan,
			(unsigned long long)s->inf, unreadable, SPAN_ARG(buf_span(&norm)));
}

static int look_at_step(struct selection *t, const struct subtree *st, const char *prefix,
			void *arg)
{
	struct steps *all = arg;
	struct report *p = all->p;
	struct step_sums s = { 0 };
	size_t failed = t->failed;
	auto_walk w = { 0 };
	int r = walk_init(&w, st, prefix, t->only);

	if (r < 0)
		return r;
	for (size_t i = 0; i < st->n; i++)
		failed -= st->part[i].kind == PART_BROKEN;
	r = found_new(p, w.n);
	if (r < 0)
		return r;
	r = walk_run(&w, &sums_ops, p, &p->t.progress);
	if (r < 0)
		return r;
	r = add_leaf_table(p, &w, &s);
	if (r < 0)
		return r;
	add_found(p, &s);
	return report_put_step(all, prefix, st, &s, t->failed - failed);
}

/* The row of a step that cannot be opened. */
static int put_lost(struct selection *t, const char *step, const struct err_note *why, void *arg)
{
	struct buf *out = ((struct steps *)arg)->json;
	auto_buf name = { 0 }, text = { 0 };

	if (json_put_str(&name, span_str(step), JSON_COMPACT) < 0 ||
	    json_put_str(&text, span_str(why->text), JSON_COMPACT) < 0)
		return -ENOMEM;
	return buf_addf(out,
			"%s\n{\"name\": %.*s, \"time\": null, \"leaves\": 0, \"elements\": 0, "
			"\"bytes\": 0, \"stored_bytes\": 0, \"nan\": 0, \"inf\": 0, "
			"\"unreadable\": 1, \"norm\": null, \"error\": %.*s}",
			out->n ? "," : "", SPAN_ARG(buf_span(&name)), SPAN_ARG(buf_span(&text)));
}

static int report_steps(struct report *p, struct source *s, struct buf *ret)
{
	struct cmd_args *a = p->t.a;
	auto_buf doc = { .metered = true }, rows = { 0 }, name = { 0 }, place = { 0 };
	struct steps all = { p, &rows };
	auto_free char *path = realpath(s->source, NULL);
	int r;

	p->t.lost = put_lost;
	r = selection_each(&p->t, s, look_at_step, &all);
	if (r < 0)
		return r;
	r = select_end(p->t.only);
	if (r < 0)
		return r;
	if (json_put_str(&name, span_str(report_title_of(a->arg[0])), JSON_COMPACT) < 0 ||
	    json_put_str(&place, span_str(path ? path : s->source), JSON_COMPACT) < 0)
		return -ENOMEM;
	r = buf_addf(&doc, "{\"name\": %.*s, \"path\": %.*s, \"steps\": [%.*s\n]}\n",
		     SPAN_ARG(buf_span(&name)), SPAN_ARG(buf_span(&place)),
		     SPAN_ARG(buf_span(&rows)));
	if (r < 0)
		return r;
	return cmd_flag(a, "json") ?
		       buf_add_span(ret, buf_span(&doc)) :
		       leaf_table_page(span_of(steps_page, steps_page_size),
				       report_title_of(a->arg[0]), buf_span(&doc), ret);
}

static int report_tree(struct report *p, struct source *s, struct buf *ret)
{
	auto_subtree st = { 0 };
	static const struct walk_ops bins = { .begin = bins_begin,
					      .task = bins_task,
					      .end = bins_end };
	auto_leaf_table leaf_table = { 0 };
	auto_walk w = { 0 };
	int r = node_open_subtree(s->node, &st);

	if (r < 0)
		return r;
	r = selection_broken(&p->t, &st, "");
	if (r < 0)
		return r;
	r = walk_init(&w, &st, "", p->t.only);
	if (r < 0)
		return r;
	w.passes = 2;
	p->t.leaves = w.n;
	r = found_new(p, w.n);
	if (r < 0)
		return r;
	r = walk_run(&w, &sums_ops, p, &p->t.progress);
	if (r < 0)
		return r;
	r = walk_run(&w, &bins, p, &p->t.progress);
	if (r < 0)
		return r;
	r = select_end(p->t.only);
	if (r < 0)
		return r;
	r = leaf_table_make(&st, LEAF_TABLE_STORED | LEAF_TABLE_SUMS, NULL, LEAF_TABLE_ALL,
			    &leaf_table);
	if (r < 0)
		return r;
	r = say_undescribed(p, "", &leaf_table);
	if (r < 0)
		return r;
	leaf_table_sums(&leaf_table, &p->sums);
	return (cmd_flag(p->t.a, "json") ? leaf_table_json : leaf_table_html)(
		&leaf_table, report_title_of(p->t.a->arg[0]), report_put_found, p, ret);
}

/*
 * Print coverage by checksums when the page goes to a file. It is not determined for a page of
 * steps.
 */
static void say_sums(const struct leaf_table_sums *n)
{
	if (n->leaves + n->bare_leaves + n->unopened_leaves == 0)
		return;
	printf("%llu %s, %llu stored bytes are covered by checksums; %llu %s, %llu bytes cannot be",
	       (unsigned long long)n->leaves, noun(n->leaves, "leaf", "leaves"),
	       (unsigned long long)n->bytes, (unsigned long long)n->bare_leaves,
	       noun(n->bare_leaves, "leaf", "leaves"), (unsigned long long)n->bare_bytes);
	if (n->unopened_leaves)
		printf("; %llu %s cannot be opened", (unsigned long long)n->unopened_leaves,
		       noun(n->unopened_leaves, "leaf", "leaves"));
	printf("\n");
}

static int make_page(struct report *p, struct cmd_args *a, struct source *s, struct buf *ret)
{
	int r = selection_begin(&p->t, a);

	if (r < 0)
		return r;
	r = source_open(a, a->arg[0], s);
	if (r < 0)
		return r;
	return (node_is_root(s->node) ? report_steps : report_tree)(p, s, ret);
}

static int run_report(struct cmd_args *a)
{
	__attribute__((
		cleanup(report_release))) struct report p = { .lock = PTHREAD_MUTEX_INITIALIZER };
	auto_source s = { 0 };
	auto_buf page = { .metered = true };
	int r = make_page(&p, a, &s, &page);

	progress_end(&p.t.progress);
	if (r < 0)
		return r;
	r = write_out(a, s.ns->ckpt->io, buf_span(&page));
	if (r < 0)
		return r;
	if (a->n_args > 1)
		say_sums(&p.sums);
	return selection_end(&p.t);
}

static const struct cmd_option options[] = {
	{ "force", 0, NULL, "replace an existing OUT" },
	OPTION_ONLY,
	OPTION_JSON,
	OPTION_QUIET,
	{ 0 },
};

const struct cmd cmd_report = {
	.name = "report",
	.args = "SOURCE[/PATH] [OUT.html]",
	.summary =
		"make an HTML page: tree, search, treemap, histograms, NaN and Inf of each array",
	.help = "The page needs no other file and no network. Without OUT it is written to stdout. "
		"For a\n"
		"directory of steps, it has a row for each step: sizes, norms, NaN and Inf. The "
		"file D.html of\n"
		"a mount is the same page without these numbers, for which all data must be read.",
	.example = "pytreefs report ckpts/latest /tmp/report.html",
	.options = options,
	.min_args = 1,
	.max_args = 2,
	.takes_mount_options = true,
	.ignores = { "restore_dtype" },
	.confined = CMD_WRITES,
	.found = "a part could not be read; the page has the rest.",
	.run = run_report,
};
