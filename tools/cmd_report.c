/*
 * cmd_report.c - `pytreefs report`: the page of D.html, with what the numbers of each array look like.
 *
 * All arrays are gone through twice: first for their extremes, then for the
 * histograms between them. The page itself is survey_html.c's.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "handlers/survey.h"
#include "tools/newfile.h"
#include "tools/numbers.h"
#include "tools/targets.h"

/* What was found in one leaf. */
struct found {
	const struct tree_node *node;
	enum dtype dtype;
	struct numbers sum;
	uint64_t *bins;			/* NUMBERS_BINS; NULL: no array, or one without a finite number */
};

struct report {
	struct targets t;
	struct found *found;		/* of the leaves of the walk, in its order */
	size_t n, cursor;
	pthread_mutex_t lock;		/* protects the bins */
};

static void report_release(struct report *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->found[i].bins);
	free(p->found);
	pthread_mutex_destroy(&p->lock);
}

/* ---- extremes and sums ---- */

static int sums_begin(void *arg, struct walk_leaf *leaf)
{
	if (leaf->value.kind != VALUE_ARRAY)
		return 0;
	leaf->state = calloc(leaf->n_tasks + 1, sizeof(struct numbers));
	return leaf->state ? 0 : fail(-ENOMEM, "cannot sum up an array of %llu tasks", (unsigned long long)leaf->n_tasks);
}

static int sums_tile(void *arg, struct walk_leaf *leaf, const struct tile *tile, void *bytes, struct walk_lane *lane)
{
	numbers_add(arg, leaf->value.array->meta.dtype, bytes, tile->n);
	return 0;
}

static int sums_task(void *arg, struct walk_leaf *leaf, uint64_t task, struct walk_lane *lane)
{
	return walk_tiles(leaf, task, lane, sums_tile, (struct numbers *)leaf->state + task);
}

static int sums_end(void *arg, struct walk_leaf *leaf)
{
	auto_free struct numbers *part = leaf->state;
	struct report *p = arg;
	struct found *f = &p->found[leaf->number];

	f->node = leaf->node;
	if (leaf->failed.code)
		targets_failed(&p->t, leaf->path, &leaf->failed);
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

static int bins_tile(void *arg, struct walk_leaf *leaf, const struct tile *tile, void *bytes, struct walk_lane *lane)
{
	struct counting *c = arg;

	numbers_histogram(leaf->value.array->meta.dtype, bytes, tile->n, c->sum->min, c->sum->max, c->bins);
	return 0;
}

static int bins_task(void *arg, struct walk_leaf *leaf, uint64_t task, struct walk_lane *lane)
{
	struct report *p = arg;
	struct found *f = &p->found[leaf->number];
	struct counting c = { .sum = &f->sum };
	int r = walk_tiles(leaf, task, lane, bins_tile, &c);

	pthread_mutex_lock(&p->lock);
	for (unsigned i = 0; i < NUMBERS_BINS && r >= 0; i++)
		f->bins[i] += c.bins[i];
	pthread_mutex_unlock(&p->lock);
	return r;
}

/* A leaf that failed only now has a histogram of a part: none is better. */
static int bins_end(void *arg, struct walk_leaf *leaf)
{
	struct report *p = arg;
	struct found *f = &p->found[leaf->number];

	if (leaf->failed.code && f->bins) {
		targets_failed(&p->t, leaf->path, &leaf->failed);
		free(take(f->bins));
	}
	return 0;
}

/* ---- the document ---- */

/* Leaves are asked for in the order of the walk. */
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

static int put_found(void *arg, const struct leaf_facts *leaf, struct buf *out)
{
	const struct found *f = leaf->kind == VALUE_ARRAY ? found_of(arg, leaf->leaf) : NULL;
	int r;

	if (!f || !f->dtype)
		return 0;
	r = buf_add_str(out, ", \"stats\": {");
	if (r >= 0)
		r = numbers_json(&f->sum, f->dtype, out);
	if (r >= 0)
		r = buf_add_byte(out, '}');
	if (r < 0 || !f->bins)
		return r;
	r = buf_add_str(out, ", \"histogram\": {\"from\": ");
	if (r >= 0)
		r = json_put_double(out, f->sum.min, JSON_COMPACT);
	if (r >= 0)
		r = buf_add_str(out, ", \"to\": ");
	if (r >= 0)
		r = json_put_double(out, f->sum.max, JSON_COMPACT);
	for (unsigned i = 0; i < NUMBERS_BINS && r >= 0; i++)
		r = buf_addf(out, "%s%llu", i ? ", " : ", \"counts\": [", (unsigned long long)f->bins[i]);
	return r < 0 ? r : buf_add_str(out, "]}");
}

static int look_at(struct report *p, const struct subtree *st)
{
	static const struct walk_ops sums = { .begin = sums_begin, .task = sums_task, .end = sums_end };
	static const struct walk_ops bins = { .begin = bins_begin, .task = bins_task, .end = bins_end };
	struct walk w;
	int r = walk_init(&w, st, "", cmd_value(p->t.a, "only"));

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

static int write_out(struct cmd_args *a, struct span page)
{
	auto_newfile out = { 0 };
	int r;

	if (a->n_args < 2) {
		fwrite(page.p, 1, page.n, stdout);
		return 0;
	}
	r = newfile_begin(a->arg[1], false, cmd_flag(a, "force"), &out);
	while (r >= 0 && page.n) {
		ssize_t n = write(out.fd, page.p, page.n);

		if (n < 0 && errno != EINTR)
			r = err_sys("cannot write", a->arg[1]);
		page = span_from(page, n > 0 ? (size_t)n : 0);
	}
	return r < 0 ? r : newfile_commit(&out);
}

/* The last name of the path, as in D.html. */
static const char *title_of(char *path)
{
	size_t n = strlen(path);
	char *slash;

	while (n > 1 && path[n - 1] == '/')
		path[--n] = '\0';
	slash = strrchr(path, '/');
	return slash && slash[1] ? slash + 1 : path;
}

static int run_report(struct cmd_args *a)
{
	__attribute__((cleanup(report_release))) struct report p = { .lock = PTHREAD_MUTEX_INITIALIZER };
	auto_source s = { 0 };
	auto_subtree st = { 0 };
	auto_survey survey = { 0 };
	auto_buf page = { 0 };
	int r;

	targets_begin(&p.t, a);
	r = source_open(a, a->arg[0], &s);
	if (r >= 0)
		r = subtree_open(s.node, &st);
	if (r >= 0)
		r = targets_broken(&p.t, &st, "");
	if (r >= 0)
		r = look_at(&p, &st);
	if (r >= 0)
		r = survey_make(&st, SURVEY_STORED, &survey);
	if (r >= 0)
		r = (cmd_flag(a, "json") ? survey_json : survey_html)(&survey, title_of(a->arg[0]), put_found, &p, &page);
	progress_end(&p.t.progress);
	if (r >= 0)
		r = write_out(a, buf_span(&page));
	return r < 0 ? r : targets_end(&p.t);
}

static const struct cmd_option options[] = {
	{ "force", 0, NULL, "replace OUT when it is there" },
	OPTION_ONLY,
	OPTION_JSON,
	OPTION_QUIET,
	{ 0 },
};

const struct cmd cmd_report = {
	.name = "report",
	.args = "STEP|ITEM[/PATH] [OUT.html]",
	.summary = "a page for a browser: tree, search, treemap, histograms, NaN and Inf of each array",
	.help = "The page needs no other file and no network. Without OUT it goes to the standard output.\n"
		"Without the numbers, which cost reading all data, it is the file D.html of a mount.",
	.example = "pytreefs report tests/data/sample/latest /tmp/report.html",
	.options = options,
	.min_args = 1,
	.max_args = 2,
	.takes_mount_options = true,
	.run = run_report,
};
