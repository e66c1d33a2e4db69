/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_ls.c - `pytreefs ls` and `tree`: list names with dtype, shape and size, without a mount.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/path.h"
#include "handlers/namespace/node_tree.h"
#include "tools/cli/cmd.h"
#include "tools/select/selected.h"
#include "tools/select/selection.h"

struct row {
	const char *name;
	struct stat st;
	uint64_t stored;         /* bytes on the disk */
	bool described;          /* st is set */
	struct err_note why;     /* the reason when it cannot be described */
	struct buf dtype, shape; /* JSON, empty when there is none */
	struct buf metrics;      /* of a step of a root; JSON, empty when there are none */
	bool has_totals;         /* a step of a root of which the bytes of all values are known */
	uint64_t total, total_stored;
};

static void row_release(struct row *r)
{
	buf_release(&r->dtype);
	buf_release(&r->shape);
	buf_release(&r->metrics);
}

/* An error about a row is printed: 1. Returns 0 without one, and -ENOMEM. */
static int say_of_step(int r, const struct row *row)
{
	if (r >= 0 || r == -ENOMEM)
		return MIN(r, 0);
	print_failure(err_at(r, "step '%s'", row->name));
	err_clear();
	return 1;
}

/* Read the metrics of a step, which Orbax stores as an item of that name. */
static int read_metrics(struct node *n, struct buf *ret)
{
	auto_json doc = { 0 };
	auto_buf text = { 0 };
	int r = io_read_file(node_step_dir(n), "metrics/metrics", LIMIT_STEP_FILE, &text);

	if (r < 0)
		return err_except(r, -ENOENT, -ENOTDIR);
	r = json_parse(buf_span(&text), "'metrics/metrics'", &doc);
	return r < 0 ? r : json_print(ret, doc.root, JSON_PYTHON);
}

/* Get a number that is an attribute. */
static int read_number(struct node *n, const char *attribute, uint64_t *ret)
{
	auto_buf text = { 0 };
	int r = node_xattr_get(n, attribute, &text);

	if (r < 0)
		return r;
	if (!buf_str(&text))
		return fail(-ENOMEM, "cannot describe '%s'", n->name);
	*ret = strtoull(buf_str(&text), NULL, 10);
	return r;
}

/* Describe one node: 0, or 1 when that is not possible. */
static int ls_describe(struct node *n, struct row *ret)
{
	int r = node_stat(n, &ret->st);

	ret->described = r >= 0;
	if (r < 0) {
		err_save(r, &ret->why);
		return r == -ENOMEM ? r : 1;
	}
	ret->stored = (uint64_t)ret->st.st_blocks * 512;
	/* st_blocks is rounded. */
	r = S_ISREG(ret->st.st_mode) ? read_number(n, "stored_bytes", &ret->stored) : 0;
	if (r != -ENOMEM)
		r = node_xattr_get(n, "dtype", &ret->dtype);
	if (r >= 0)
		r = node_xattr_get(n, "shape", &ret->shape);
	if (r >= 0)
		return 0;
	buf_clear(&ret->dtype);
	buf_clear(&ret->shape);
	return r == -ENOMEM ? r : 0;
}

/* An entry that cannot be described is listed nevertheless. of_steps: with metrics and totals. */
static int ls_row_of(struct node *dir, const char *name, bool of_steps, struct row *ret)
{
	auto_node *n = NULL;
	int r = node_lookup(dir, span_str(name), &n), bad;

	*ret = (struct row){ .name = name };
	if (r < 0) {
		err_save(r, &ret->why);
		return r == -ENOMEM ? r : 1;
	}
	r = ls_describe(n, ret);
	if (r != 0 || !of_steps || n->ops != &node_step_ops || !node_is_root(dir))
		return r;
	bad = say_of_step(read_metrics(n, &ret->metrics), ret);
	/* Totals look at each leaf, which would take many round trips to a server. */
	if (bad < 0 || path_is_url(n->ns->ckpt->source->path))
		return bad;
	r = read_number(n, "logical_bytes", &ret->total);
	if (r >= 0)
		r = read_number(n, "stored_bytes", &ret->total_stored);
	ret->has_totals = r >= 0;
	r = say_of_step(r == -ENODATA ? 0 : r, ret);
	return r < 0 ? r : MAX(bad, r);
}

static void print_json_row(FILE *to, const struct row *row)
{
	auto_buf out = { 0 };

	buf_add_str(&out, "{\"name\": ");
	json_put_str(&out, span_str(row->name), JSON_PRETTY);
	if (row->described) {
		buf_addf(&out, ", \"type\": \"%s\", \"bytes\": %lld, \"stored_bytes\": %lld",
			 S_ISDIR(row->st.st_mode) ? "directory" :
			 S_ISLNK(row->st.st_mode) ? "link" :
						    "file",
			 (long long)row->st.st_size, (long long)row->stored);
		if (row->dtype.n)
			buf_addf(&out, ", \"dtype\": %.*s, \"shape\": %.*s",
				 SPAN_ARG(buf_span(&row->dtype)), SPAN_ARG(buf_span(&row->shape)));
		if (row->has_totals)
			buf_addf(&out, ", \"total_bytes\": %llu, \"total_stored_bytes\": %llu",
				 (unsigned long long)row->total,
				 (unsigned long long)row->total_stored);
		if (row->metrics.n)
			buf_addf(&out, ", \"metrics\": %.*s", SPAN_ARG(buf_span(&row->metrics)));
	} else {
		buf_add_str(&out, ", \"error\": ");
		json_put_str(&out, span_str(row->why.text), JSON_PRETTY);
	}
	print_buf(to, &out);
}

/* Print "bfloat16[128,64]", without the quotes of JSON. */
static void print_type(const struct row *row, char *out, size_t n)
{
	if (row->dtype.n > 2)
		snprintf(out, n, "%.*s%.*s", (int)row->dtype.n - 2, (const char *)row->dtype.p + 1,
			 SPAN_ARG(buf_span(&row->shape)));
	else
		snprintf(out, n, "%s", row->described && S_ISDIR(row->st.st_mode) ? "" : "-");
}

/* A directory has the total of its values, if that is known, and no size of its own. */
static void print_row_size(const struct row *row, uint64_t own, uint64_t total, char ret[32])
{
	if (row->has_totals || !S_ISDIR(row->st.st_mode))
		print_size(ret, 32, row->has_totals ? total : own);
	else
		strcpy(ret, "-");
}

static void print_long_row(const struct row *row)
{
	char size[32], stored[32], type[160], when[32];
	struct tm tm;

	if (!row->described) {
		printf("%10s %10s  %-28s %-16s ", "?", "?", "cannot be read", "");
		print_name(stdout, row->name);
		printf("  (");
		print_name(stdout, row->why.text);
		printf(")\n");
		return;
	}
	print_row_size(row, (uint64_t)row->st.st_size, row->total, size);
	print_row_size(row, row->stored, row->total_stored, stored);
	print_type(row, type, sizeof(type));
	strftime(when, sizeof(when), "%Y-%m-%d %H:%M", localtime_r(&row->st.st_mtim.tv_sec, &tm));
	printf("%10s %10s  %-28s %-16s ", size, stored, type, when);
	print_name(stdout, row->name);
	printf("%s%s%.*s\n", S_ISDIR(row->st.st_mode) ? "/" : "", row->metrics.n ? "  " : "",
	       SPAN_ARG(buf_span(&row->metrics)));
}

static int list_dir(struct cmd_args *a, struct node *dir, const struct selected *only)
{
	bool any = false, json = cmd_flag(a, "json"), details = cmd_flag(a, "long") || json,
	     bad = false;
	auto_listing l = { 0 };
	int r = node_list(dir, &l);

	if (r < 0)
		return r;
	if (json)
		printf("[");
	for (size_t i = 2; i < l.n; i++) {
		struct row row = { .name = listing_name(&l, i) };

		if (!selected_has(only, row.name))
			continue;
		if (details && only->is_all)
			listing_hold(&l, dir, i);
		r = details ? ls_row_of(dir, row.name, true, &row) : 0;
		if (r < 0)
			return r;
		bad |= r > 0;
		if (json) {
			printf("%s\n  ", any ? "," : "");
			print_json_row(stdout, &row);
			printf("}");
		} else if (details) {
			print_long_row(&row);
		} else {
			print_name(stdout, row.name);
			printf("%s\n", l.entry[i].type == DT_DIR ? "/" : "");
		}
		row_release(&row);
		any = true;
	}
	if (json)
		printf("%s]\n", any ? "\n" : "");
	return bad ? EXIT_FOUND : EXIT_OK;
}

/* Print the single row of a path that is a file. */
static int show_file(const char *path, struct node *n, bool json)
{
	struct row row = { .name = path };
	int r = ls_describe(n, &row);

	if (r == 0 && json) {
		print_json_row(stdout, &row);
		printf("}\n");
	} else if (r == 0) {
		print_long_row(&row);
	}
	row_release(&row);
	return r > 0 ? node_stat(n, &row.st) : r;
}

static int run_ls(struct cmd_args *a)
{
	auto_source s = { 0 };
	auto_selected only = { 0 };
	struct stat st;
	int r = source_open(a, a->arg[0], &s);

	if (r < 0)
		return r;
	r = selected_make(a, &s, &only);
	if (r < 0)
		return r;
	r = node_stat(s.node, &st);
	if (r < 0)
		return r;
	return S_ISDIR(st.st_mode) ? list_dir(a, s.node, &only) :
				     show_file(a->arg[0], s.node, cmd_flag(a, "json"));
}

static const struct cmd_option ls_options[] = {
	{ "long", 'l', NULL, "also print size, stored size, dtype, shape, time, metrics of steps" },
	OPTION_ONLY,
	{ "json", 0, NULL, "print a JSON array" },
	{ 0 },
};

const struct cmd cmd_ls = {
	.name = "ls",
	.args = "SOURCE[/PATH]",
	.summary = "list steps, items or leaves, without a mount",
	.help = "",
	.example = "pytreefs ls -l ckpts/latest/state/params",
	.options = ls_options,
	.min_args = 1,
	.max_args = 1,
	.takes_mount_options = true,
	.confined = CMD_READS,
	.found = "a part could not be read; the rest was printed.",
	.run = run_ls,
};

/* ---- tree ---- */

/* Sums over everything below a directory. */
struct totals {
	uint64_t dirs, files, elements, bytes, stored;
};

struct listing_walk {
	FILE *out;
	const struct selected *only;
	struct totals sum;               /* of all directories visited so far */
	char path[LIMIT_PATH_BYTES + 1]; /* path of a directory, from the source on */
	bool json, bad;
	long depth_limit; /* entries below it are counted, and not printed */
	char prefix[4 * (LIMIT_TREE_DEPTH + 8) + 1];
};

static int ls_walk_dir(struct listing_walk *w, struct node *dir, long depth, size_t prefix);

/* The number of elements of a shape, "[128,32]"; 0 without a shape. */
static uint64_t count_elements(const struct row *row)
{
	const char *at = (const char *)row->shape.p, *end = at + row->shape.n;
	uint64_t n = row->shape.n > 0;

	while (at < end) {
		uint64_t one = 0;

		at += *at == '[' || *at == ',' || *at == ' ';
		if (at == end || *at < '0' || *at > '9')
			break;
		for (; at < end && *at >= '0' && *at <= '9'; at++)
			one = 10 * one + (uint64_t)(*at - '0');
		n *= one;
	}
	return n;
}

/* "12 files, 20800 elements, 40.7 KiB" */
static void print_totals(FILE *out, const struct totals *t)
{
	char size[32], stored[32];

	print_size(size, sizeof(size), t->bytes);
	print_size(stored, sizeof(stored), t->stored);
	fprintf(out, "%llu %s, %llu %s, %s, %s stored", (unsigned long long)t->files,
		noun(t->files, "file", "files"), (unsigned long long)t->elements,
		noun(t->elements, "element", "elements"), size, stored);
}

/*
 * Visit the entries below a directory first, and keep their lines in memory, since the line of the
 * directory has their totals.
 */
static int walk_below(struct listing_walk *w, struct node *dir, const char *name, bool last,
		      long depth, size_t prefix)
{
	auto_node *n = NULL;
	auto_free char *text = NULL;
	struct totals before = w->sum, own;
	bool cut = depth + 1 >= w->depth_limit, bad;
	FILE *out = w->out;
	size_t bytes = 0;
	int r = node_lookup(dir, span_str(name), &n);

	if (r < 0)
		return r;
	memcpy(w->prefix + prefix, last ? "    " : "|   ", 5);
	if (w->json && !cut) {
		r = ls_walk_dir(w, n, depth + 1, prefix + 4);
	} else {
		w->out = open_memstream(&text, &bytes);
		r = w->out ? ls_walk_dir(w, n, depth + 1, prefix + 4) :
			     fail(-ENOMEM, "cannot list '%s'", name);
		/* Without memory, the stream loses what was to be written. */
		bad = w->out && ferror(w->out);
		if (w->out && (fclose(w->out) != 0 || bad) && r >= 0)
			r = fail(-ENOMEM, "cannot list '%s'", name);
		w->out = out;
	}
	w->prefix[prefix] = '\0';
	own = (struct totals){ w->sum.dirs - before.dirs, w->sum.files - before.files,
			       w->sum.elements - before.elements, w->sum.bytes - before.bytes,
			       w->sum.stored - before.stored };
	if (w->json) {
		fprintf(out,
			", \"files\": %llu, \"elements\": %llu, \"total_bytes\": %llu, "
			"\"total_stored_bytes\": %llu",
			(unsigned long long)own.files, (unsigned long long)own.elements,
			(unsigned long long)own.bytes, (unsigned long long)own.stored);
		return r;
	}
	fputs("  ", out);
	print_totals(out, &own);
	fputc('\n', out);
	if (text && !cut)
		fwrite(text, 1, bytes, out);
	return r;
}

static void print_entry(struct listing_walk *w, const struct row *row, const char *name,
			bool is_dir, bool last)
{
	char type[160], size[32];

	fprintf(w->out, "%s%s", w->prefix, last ? "`-- " : "|-- ");
	print_name(w->out, name);
	fprintf(w->out, "%s", is_dir ? "/" : "");
	if (!row->described) {
		fprintf(w->out, "  (");
		print_name(w->out, row->why.text);
		fprintf(w->out, ")\n");
	} else if (!is_dir) {
		print_type(row, type, sizeof(type));
		print_size(size, sizeof(size), (uint64_t)row->st.st_size);
		fprintf(w->out, "  %s  %s\n", type, size);
	}
}

static int ls_walk_entry(struct listing_walk *w, struct node *dir, const char *name, bool is_dir,
			 bool last, long depth, size_t prefix)
{
	size_t was = strlen(w->path);
	struct row row;
	int r = ls_row_of(dir, name, false, &row);
	bool described = row.described;

	if (r < 0)
		return r;
	w->bad |= r > 0;
	if (r > 0 && depth >= w->depth_limit)
		print_failure(err_restore(&row.why));
	w->sum.dirs += is_dir;
	w->sum.files += !is_dir;
	if (!is_dir && row.described) {
		w->sum.elements += count_elements(&row);
		w->sum.bytes += (uint64_t)row.st.st_size;
		w->sum.stored += row.stored;
	}
	if (w->json)
		print_json_row(w->out, &row);
	else
		print_entry(w, &row, name, is_dir, last);
	row_release(&row);
	if (is_dir && r == 0) {
		snprintf(w->path + was, sizeof(w->path) - was, "%s%s", was ? "/" : "", name);
		r = walk_below(w, dir, name, last, depth, prefix);
		w->path[was] = '\0';
	} else if (is_dir && described && !w->json) {
		fputc('\n', w->out);
	}
	if (w->json)
		fputs("}", w->out);
	return r < 0 ? r : 0;
}

/* Remove entries that --only does not select. */
static int narrow(const struct listing_walk *w, struct listing *l)
{
	size_t n = MIN(l->n, (size_t)2);

	for (size_t i = 2; i < l->n; i++) {
		auto_free char *path =
			str_fmt("%s%s%s", w->path, *w->path ? "/" : "", listing_name(l, i));

		if (!path)
			return fail(-ENOMEM, "cannot list '%s'", w->path);
		if (selected_has(w->only, path))
			l->entry[n++] = l->entry[i];
	}
	l->n = n;
	return 0;
}

static int ls_walk_dir(struct listing_walk *w, struct node *dir, long depth, size_t prefix)
{
	auto_listing l = { 0 };
	auto_buf text = { 0 };
	int r = node_list(dir, &l);

	if (r < 0) {
		w->bad = true;
		if (r == -ENOMEM || depth == 0)
			return r;
		if (!w->json || depth >= w->depth_limit) {
			print_failure(r);
			return 0;
		}
		/* One more member of the directory's object. */
		json_put_str(&text, span_str(err_text(r)), JSON_PRETTY);
		fprintf(w->out, ", \"error\": %.*s", SPAN_ARG(buf_span(&text)));
		return 0;
	}
	if (prefix + 5 > sizeof(w->prefix))
		return fail(-EFBIG, "tree is deeper than %d directories", LIMIT_TREE_DEPTH);
	r = narrow(w, &l);
	if (r < 0)
		return r;
	if (w->json)
		fputs(depth ? ", \"entries\": [" : "[", w->out);
	for (size_t i = 2; i < l.n && r >= 0; i++) {
		if (w->json && i > 2)
			fputs(",", w->out);
		r = ls_walk_entry(w, dir, listing_name(&l, i), l.entry[i].type == DT_DIR,
				  i + 1 == l.n, depth, prefix);
	}
	if (w->json)
		fputs("]", w->out);
	return r;
}

static int run_tree(struct cmd_args *a)
{
	struct listing_walk w = { .out = stdout,
				  .json = cmd_flag(a, "json"),
				  .depth_limit = LIMIT_TREE_DEPTH };
	const char *depth = cmd_value(a, "depth");
	auto_source s = { 0 };
	auto_selected only = { 0 };
	int r;

	if (depth) {
		char *end;

		w.depth_limit = strtol(depth, &end, 10);
		if (*end || w.depth_limit < 1)
			return cmd_wrong(a->cmd, "'%s' is not a depth: it takes a number from 1",
					 depth);
	}
	r = source_open(a, a->arg[0], &s);
	if (r < 0)
		return r;
	r = selected_make(a, &s, &only);
	if (r < 0)
		return r;
	w.only = &only;
	if (!s.node->ops->list)
		return show_file(a->arg[0], s.node, w.json);
	if (!w.json) {
		print_name(stdout, a->arg[0]);
		printf("\n");
	}
	r = ls_walk_dir(&w, s.node, 0, 0);
	if (r < 0)
		return r;
	if (!w.json) {
		printf("\n%llu %s, ", (unsigned long long)w.sum.dirs,
		       noun(w.sum.dirs, "directory", "directories"));
		print_totals(stdout, &w.sum);
	}
	printf("\n");
	return w.bad ? EXIT_FOUND : EXIT_OK;
}

static const struct cmd_option tree_options[] = {
	{ "depth", 'd', "N", "print at most N levels of names; totals count what is below, too" },
	OPTION_ONLY,
	{ "json", 0, NULL, "print one JSON document" },
	{ 0 },
};

const struct cmd cmd_tree = {
	.name = "tree",
	.args = "SOURCE[/PATH]",
	.summary = "print the whole tree with dtypes, shapes, sizes and totals, without a mount",
	.help = "",
	.example = "pytreefs tree ckpts --only '**/kernel'",
	.options = tree_options,
	.min_args = 1,
	.max_args = 1,
	.takes_mount_options = true,
	.confined = CMD_READS,
	.found = "a part could not be read; the rest was printed.",
	.run = run_tree,
};
