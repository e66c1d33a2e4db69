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
#include "tools/select/walk_numbers.h"

/* Statistics of one leaf. */
struct found {
	const struct tree_node *node;
	enum dtype dtype;
	struct numbers sum;
	uint64_t *bins; /* NUMBERS_BINS counts; NULL: not an array, or without finite numbers */
};

struct report {
	struct selection t;
	struct found *found; /* one for each leaf of the walk, in its order */
	size_t n, cursor;
	pthread_mutex_t lock;        /* protects the bins */
	struct leaf_table_sums sums; /* coverage by checksums, for a single tree */
};

static void report_release(struct report *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->found[i].bins);
	free(p->found);
	pthread_mutex_destroy(&p->lock);
}

/* ---- extremes and sums ---- */

static int sums_end(void *arg, struct walk_leaf *leaf)
{
	auto_free struct numbers *part = leaf->state;
	struct report *p = arg;
	struct found *f = &p->found[leaf->number];

	f->node = leaf->node;
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

static int report_put_found(void *arg, const struct leaf_info *leaf, struct buf *out)
{
	const struct found *f = leaf->kind == VALUE_ARRAY ? found_of(arg, leaf->leaf) : NULL;
	int r;

	if (!f || !f->dtype)
		return 0;
	r = buf_add_str(out, ", \"stats\": {");
	if (r < 0)
		return r;
	r = numbers_json(&f->sum, f->dtype, out);
	if (r < 0)
		return r;
	r = buf_add_byte(out, '}');
	if (r < 0 || !f->bins)
		return r;
	r = buf_add_str(out, ", \"histogram\": {\"from\": ");
	if (r < 0)
		return r;
	r = json_put_double(out, f->sum.min, JSON_COMPACT);
	if (r < 0)
		return r;
	r = buf_add_str(out, ", \"to\": ");
	if (r < 0)
		return r;
	r = json_put_double(out, f->sum.max, JSON_COMPACT);
	for (unsigned i = 0; i < NUMBERS_BINS && r >= 0; i++)
		r = buf_addf(out, "%s%llu", i ? ", " : ", \"counts\": [",
			     (unsigned long long)f->bins[i]);
	return r < 0 ? r : buf_add_str(out, "]}");
}

static int report_look_at(struct report *p, const struct subtree *st)
{
	static const struct walk_ops sums = { .begin = walk_numbers_begin,
					      .task = walk_numbers_task,
					      .end = sums_end };
	static const struct walk_ops bins = { .begin = bins_begin,
					      .task = bins_task,
					      .end = bins_end };
	struct walk w;
	int r = walk_init(&w, st, "", p->t.only);

	w.passes = 2;
	p->t.leaves = w.n;
	if (r >= 0) {
		p->found = calloc(w.n + 1, sizeof(*p->found));
		r = p->found ? 0 : fail(-ENOMEM, "cannot look at %zu leaves", w.n);
		p->n = p->found ? w.n : 0;
	}
	if (r >= 0)
		r = walk_run(&w, &sums, p, &p->t.progress);
	if (r >= 0)
		r = walk_run(&w, &bins, p, &p->t.progress);
	walk_release(&w);
	return r;
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
	struct buf json; /* of their rows */
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

struct found_cursor {
	const struct report *p;
	size_t at;
};

/* The leaves of the walk are a subset of those of the subtree, in the same order. */
static bool is_found(void *arg, const struct subtree_part *part, const struct tree_node *leaf)
{
	struct found_cursor *c = arg;

	(void)part;
	if (c->at == c->p->n || c->p->found[c->at].node != leaf)
		return false;
	c->at++;
	return true;
}

static int add_leaf_table(const struct subtree *st, const struct report *p, struct step_sums *s)
{
	struct found_cursor cursor = { p, 0 };
	auto_leaf_table leaf_table = { 0 };
	int r = leaf_table_make(st, LEAF_TABLE_STORED, is_found, &cursor, &leaf_table);

	for (size_t i = 0; i < leaf_table.n && r >= 0; i++) {
		const struct leaf_info *f = &leaf_table.leaf[i];
		uint64_t n = 1;

		s->leaves++;
		s->bytes += f->bytes;
		s->stored += f->stored;
		for (unsigned k = 0; k < f->rank; k++)
			n *= f->shape[k];
		s->elements += f->kind == VALUE_ARRAY ? n : 0;
	}
	return r;
}

static int report_put_step(struct steps *all, const char *prefix, const struct subtree *st,
			   const struct step_sums *s, size_t unreadable)
{
	struct buf *out = &all->json;
	int r = buf_add_str(out, out->n ? ",\n{\"name\": " : "\n{\"name\": ");

	if (r < 0)
		return r;
	r = json_put_str(out, span_of(prefix, strcspn(prefix, "/")), JSON_COMPACT);
	if (r < 0)
		return r;
	r = buf_addf(out,
		     ", \"time\": %lld, \"leaves\": %llu, \"elements\": %llu, \"bytes\": %llu, "
		     "\"stored_bytes\": %llu",
		     (long long)st->mtime.tv_sec, (unsigned long long)s->leaves,
		     (unsigned long long)s->elements, (unsigned long long)s->bytes,
		     (unsigned long long)s->stored);
	if (r < 0)
		return r;
	r = buf_addf(out, ", \"nan\": %llu, \"inf\": %llu, \"unreadable\": %zu, \"norm\": ",
		     (unsigned long long)s->nan, (unsigned long long)s->inf, unreadable);
	if (r < 0)
		return r;
	r = s->has_norm && isfinite(s->squares) ?
		    json_put_double(out, sqrt(s->squares), JSON_COMPACT) :
		    buf_add_str(out, "null");
	return r < 0 ? r : buf_add_byte(out, '}');
}

static int look_at_step(struct selection *t, const struct subtree *st, const char *prefix,
			void *arg)
{
	static const struct walk_ops ops = { .begin = walk_numbers_begin,
					     .task = walk_numbers_task,
					     .end = sums_end };
	struct steps *all = arg;
	struct report *p = all->p;
	struct step_sums s = { 0 };
	size_t failed = t->failed;
	struct walk w;
	int r = walk_init(&w, st, prefix, t->only);

	for (size_t i = 0; i < st->n; i++)
		failed -= st->part[i].kind == PART_BROKEN;
	p->found = r >= 0 ? calloc(w.n + 1, sizeof(*p->found)) : NULL;
	p->n = p->found ? w.n : 0;
	if (r >= 0 && !p->found)
		r = fail(-ENOMEM, "cannot look at %zu leaves", w.n);
	if (r >= 0)
		r = walk_run(&w, &ops, p, &p->t.progress);
	if (r >= 0)
		r = add_leaf_table(st, p, &s);
	if (r >= 0) {
		add_found(p, &s);
		r = report_put_step(all, prefix, st, &s, t->failed - failed);
	}
	walk_release(&w);
	for (size_t i = 0; i < p->n; i++)
		free(p->found[i].bins);
	free(take(p->found));
	p->n = 0;
	return r;
}

/* The row of a step that cannot be opened. */
static int put_lost(struct selection *t, const char *step, const struct err_note *why, void *arg)
{
	struct buf *out = &((struct steps *)arg)->json;
	int r = buf_add_str(out, out->n ? ",\n{\"name\": " : "\n{\"name\": ");

	if (r < 0)
		return r;
	r = json_put_str(out, span_str(step), JSON_COMPACT);
	if (r < 0)
		return r;
	r = buf_add_str(out, ", \"time\": null, \"leaves\": 0, \"elements\": 0, \"bytes\": 0, "
			     "\"stored_bytes\": 0, \"nan\": 0, \"inf\": 0, "
			     "\"unreadable\": 1, \"norm\": null, \"error\": ");
	if (r < 0)
		return r;
	r = json_put_str(out, span_str(why->text), JSON_COMPACT);
	return r < 0 ? r : buf_add_byte(out, '}');
}

static int report_steps(struct report *p, struct source *s, struct buf *ret)
{
	struct cmd_args *a = p->t.a;
	struct steps all = { .p = p };
	auto_buf doc = { .metered = true };
	auto_free char *path = realpath(s->source, NULL);
	int r;

	p->t.lost = put_lost;
	r = selection_each(&p->t, s, look_at_step, &all);
	if (r >= 0)
		r = select_end(p->t.only);
	if (r >= 0)
		r = buf_add_str(&doc, "{\"name\": ");
	if (r >= 0)
		r = json_put_str(&doc, span_str(report_title_of(a->arg[0])), JSON_COMPACT);
	if (r >= 0)
		r = buf_add_str(&doc, ", \"path\": ");
	if (r >= 0)
		r = json_put_str(&doc, span_str(path ? path : s->source), JSON_COMPACT);
	if (r >= 0)
		r = buf_addf(&doc, ", \"steps\": [%.*s\n]}\n", SPAN_ARG(buf_span(&all.json)));
	buf_release(&all.json);
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
	auto_leaf_table leaf_table = { 0 };
	int r = node_open_subtree(s->node, &st);

	if (r < 0)
		return r;
	r = selection_broken(&p->t, &st, "");
	if (r < 0)
		return r;
	r = report_look_at(p, &st);
	if (r < 0)
		return r;
	r = select_end(p->t.only);
	if (r < 0)
		return r;
	r = leaf_table_make(&st, LEAF_TABLE_STORED | LEAF_TABLE_SUMS, NULL, NULL, &leaf_table);
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

static int run_report(struct cmd_args *a)
{
	__attribute__((
		cleanup(report_release))) struct report p = { .lock = PTHREAD_MUTEX_INITIALIZER };
	auto_source s = { 0 };
	auto_buf page = { .metered = true };
	int r = selection_begin(&p.t, a);

	if (r >= 0)
		r = source_open(a, a->arg[0], &s);
	if (r >= 0)
		r = (s.node == s.ns->root && s.ns->ckpt->shape == SHAPE_ROOT ?
			     report_steps :
			     report_tree)(&p, &s, &page);
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
