/*
 * cmd_ls.c - `pytreefs ls` and `tree`: names, with dtype, shape and size, without a mount.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "tools/cmd.h"

struct row {
	const char *name;
	struct stat st;
	uint64_t stored;		/* bytes on the disk */
	bool described;			/* st is set */
	struct err_note why;		/* it cannot be described */
	struct buf dtype, shape;	/* JSON, empty when there is none */
};

static void row_release(struct row *r)
{
	buf_release(&r->dtype);
	buf_release(&r->shape);
}

/* What is known of one node: 0, or 1 when it cannot be described. */
static int describe(struct node *n, struct row *ret)
{
	auto_buf stored = { 0 };
	int r = node_stat(n, &ret->st);

	ret->described = r >= 0;
	if (r < 0)
		err_save(r, &ret->why);
	else
		ret->stored = (uint64_t)ret->st.st_blocks * 512;
	/* Blocks are rounded. */
	if (r >= 0 && S_ISREG(ret->st.st_mode) && node_xattr_get(n, "stored_bytes", &stored) >= 0 && buf_str(&stored))
		ret->stored = strtoull(buf_str(&stored), NULL, 10);
	if (r >= 0 && (node_xattr_get(n, "dtype", &ret->dtype) < 0 ||
		       node_xattr_get(n, "shape", &ret->shape) < 0)) {
		buf_clear(&ret->dtype);
		buf_clear(&ret->shape);
	}
	return r == -ENOMEM ? r : r < 0 ? 1 : 0;
}

/* An entry that cannot be described is listed all the same. */
static int row_of(struct node *dir, const char *name, struct row *ret)
{
	auto_node *n = NULL;
	int r = node_lookup(dir, span_str(name), &n);

	*ret = (struct row){ .name = name };
	if (r < 0) {
		err_save(r, &ret->why);
		return r == -ENOMEM ? r : 1;
	}
	return describe(n, ret);
}

static void print_json_row(const struct row *row)
{
	auto_buf out = { 0 };

	buf_add_str(&out, "{\"name\": ");
	json_put_str(&out, span_str(row->name), JSON_PRETTY);
	if (row->described) {
		buf_addf(&out, ", \"type\": \"%s\", \"bytes\": %lld, \"stored_bytes\": %lld",
			 S_ISDIR(row->st.st_mode) ? "directory" : S_ISLNK(row->st.st_mode) ? "link" : "file",
			 (long long)row->st.st_size, (long long)row->stored);
		if (row->dtype.n)
			buf_addf(&out, ", \"dtype\": %.*s, \"shape\": %.*s", SPAN_ARG(buf_span(&row->dtype)),
				 SPAN_ARG(buf_span(&row->shape)));
	} else {
		buf_add_str(&out, ", \"error\": ");
		json_put_str(&out, span_str(row->why.text), JSON_PRETTY);
	}
	fwrite(out.p, 1, out.n, stdout);
}

/* "bfloat16[128,64]", without the JSON quotes. */
static void print_type(const struct row *row, char *out, size_t n)
{
	if (row->dtype.n > 2)
		snprintf(out, n, "%.*s%.*s", (int)row->dtype.n - 2, (const char *)row->dtype.p + 1,
			 SPAN_ARG(buf_span(&row->shape)));
	else
		snprintf(out, n, "%s", row->described && S_ISDIR(row->st.st_mode) ? "" : "-");
}

/* Behind a name. */
static void print_why(const struct row *row)
{
	printf("  (");
	print_name(stdout, row->why.text);
	printf(")\n");
}

static void print_long_row(const struct row *row)
{
	char size[32], stored[32], type[160], when[32];
	struct tm tm;

	if (!row->described) {
		printf("%10s %10s  %-28s %-16s ", "?", "?", "cannot be read", "");
		print_name(stdout, row->name);
		print_why(row);
		return;
	}
	print_size(size, sizeof(size), (uint64_t)row->st.st_size);
	print_size(stored, sizeof(stored), row->stored);
	print_type(row, type, sizeof(type));
	strftime(when, sizeof(when), "%Y-%m-%d %H:%M", localtime_r(&row->st.st_mtim.tv_sec, &tm));
	printf("%10s %10s  %-28s %-16s ", S_ISDIR(row->st.st_mode) ? "-" : size,
	       S_ISDIR(row->st.st_mode) ? "-" : stored, type, when);
	print_name(stdout, row->name);
	printf("%s\n", S_ISDIR(row->st.st_mode) ? "/" : "");
}

static int list_dir(struct cmd_args *a, struct node *dir)
{
	bool json = cmd_flag(a, "json"), details = cmd_flag(a, "long") || json, bad = false;
	auto_listing l = { 0 };
	int r = node_list(dir, &l);

	if (r < 0)
		return r;
	if (json)
		printf("[");
	for (size_t i = 2; i < l.n; i++) {
		struct row row = { .name = listing_name(&l, i) };

		r = details ? row_of(dir, row.name, &row) : 0;
		if (r < 0)
			return r;
		bad |= r > 0;
		if (json) {
			printf("%s\n  ", i > 2 ? "," : "");
			print_json_row(&row);
			printf("}");
		} else if (details) {
			print_long_row(&row);
		} else {
			print_name(stdout, row.name);
			printf("%s\n", l.entry[i].type == DT_DIR ? "/" : "");
		}
		row_release(&row);
	}
	if (json)
		printf("%s]\n", l.n > 2 ? "\n" : "");
	return bad ? EXIT_FOUND : EXIT_OK;
}

/* A path that is a file: its one row. */
static int show_file(const char *path, struct node *n, bool json)
{
	struct row row = { .name = path };
	int r = describe(n, &row);

	if (r == 0 && json) {
		print_json_row(&row);
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
	struct stat st;
	int r = source_open(a, a->arg[0], &s);

	if (r >= 0)
		r = node_stat(s.node, &st);
	if (r < 0)
		return r;
	return S_ISDIR(st.st_mode) ? list_dir(a, s.node) : show_file(a->arg[0], s.node, cmd_flag(a, "json"));
}

static const struct cmd_option ls_options[] = {
	{ "long", 'l', NULL, "with size, stored size, dtype, shape and time" },
	{ "json", 0, NULL, "as a JSON array" },
	{ 0 },
};

const struct cmd cmd_ls = {
	.name = "ls",
	.args = "SOURCE[/PATH]",
	.summary = "list steps, items or leaves, without a mount",
	.help = "",
	.example = "pytreefs ls -l tests/data/sample/latest/state/params",
	.options = ls_options,
	.min_args = 1,
	.max_args = 1,
	.takes_mount_options = true,
	.run = run_ls,
};

/* ---- tree ---- */

struct walk {
	struct cmd_args *a;
	uint64_t dirs, files, bytes;
	bool json, bad;
	long depth_limit;
	char prefix[4 * (LIMIT_TREE_DEPTH + 8) + 1];
};

static int walk_dir(struct walk *w, struct node *dir, long depth, size_t prefix);

static int walk_entry(struct walk *w, struct node *dir, const char *name, bool is_dir, bool last, long depth,
		      size_t prefix)
{
	auto_node *n = NULL;
	struct row row;
	char type[160], size[32];
	int r = row_of(dir, name, &row);

	if (r < 0)
		return r;
	w->bad |= r > 0;
	w->dirs += is_dir;
	w->files += !is_dir;
	w->bytes += is_dir || !row.described ? 0 : (uint64_t)row.st.st_size;
	if (w->json) {
		print_json_row(&row);
	} else {
		printf("%s%s", w->prefix, last ? "`-- " : "|-- ");
		print_name(stdout, name);
		print_type(&row, type, sizeof(type));
		print_size(size, sizeof(size), (uint64_t)row.st.st_size);
		printf("%s", is_dir ? "/" : "");
		if (!row.described)
			print_why(&row);
		else if (is_dir)
			printf("\n");
		else
			printf("  %s  %s\n", type, size);
	}
	row_release(&row);
	if (is_dir && r == 0 && depth + 1 < w->depth_limit) {
		r = node_lookup(dir, span_str(name), &n);
		if (r < 0)
			return r;
		memcpy(w->prefix + prefix, last ? "    " : "|   ", 5);
		r = walk_dir(w, n, depth + 1, prefix + 4);
		w->prefix[prefix] = '\0';
	}
	if (w->json)
		printf("}");
	return r < 0 ? r : 0;
}

/* One more member of a directory's object. */
static void print_json_error(const char *why)
{
	auto_buf out = { 0 };

	json_put_str(&out, span_str(why), JSON_PRETTY);
	printf(", \"error\": %.*s", SPAN_ARG(buf_span(&out)));
}

static int walk_dir(struct walk *w, struct node *dir, long depth, size_t prefix)
{
	auto_listing l = { 0 };
	int r = node_list(dir, &l);

	if (r < 0) {
		w->bad = true;
		if (r == -ENOMEM || depth == 0)
			return r;
		if (w->json)
			print_json_error(err_text(r));
		else
			print_error(r);
		return 0;
	}
	if (prefix + 5 > sizeof(w->prefix))
		return fail(-EFBIG, "tree is deeper than %d directories", LIMIT_TREE_DEPTH);
	if (w->json)
		printf("%s", depth ? ", \"entries\": [" : "[");
	for (size_t i = 2; i < l.n && r >= 0; i++) {
		if (w->json && i > 2)
			printf(",");
		r = walk_entry(w, dir, listing_name(&l, i), l.entry[i].type == DT_DIR, i + 1 == l.n, depth, prefix);
	}
	if (w->json)
		printf("]");
	return r;
}

static int run_tree(struct cmd_args *a)
{
	struct walk w = { .a = a, .json = cmd_flag(a, "json"), .depth_limit = LIMIT_TREE_DEPTH };
	const char *depth = cmd_value(a, "depth");
	auto_source s = { 0 };
	char size[32];
	int r;

	if (depth) {
		char *end;

		w.depth_limit = strtol(depth, &end, 10);
		if (*end || w.depth_limit < 1)
			return cmd_wrong(a->cmd, "'%s' is no depth: it takes a number from 1", depth);
	}
	r = source_open(a, a->arg[0], &s);
	if (r < 0)
		return r;
	if (!s.node->ops->list)
		return show_file(a->arg[0], s.node, w.json);
	if (!w.json) {
		print_name(stdout, a->arg[0]);
		printf("\n");
	}
	r = walk_dir(&w, s.node, 0, 0);
	if (r < 0)
		return r;
	print_size(size, sizeof(size), w.bytes);
	if (w.json)
		printf("\n");
	else
		printf("\n%llu directories, %llu files, %s\n", (unsigned long long)w.dirs,
		       (unsigned long long)w.files, size);
	return w.bad ? EXIT_FOUND : EXIT_OK;
}

static const struct cmd_option tree_options[] = {
	{ "depth", 'd', "N", "no deeper than N directories" },
	{ "json", 0, NULL, "as one JSON document" },
	{ 0 },
};

const struct cmd cmd_tree = {
	.name = "tree",
	.args = "SOURCE[/PATH]",
	.summary = "the whole tree with dtypes, shapes and sizes, without a mount",
	.help = "",
	.example = "pytreefs tree tests/data/sample",
	.options = tree_options,
	.min_args = 1,
	.max_args = 1,
	.takes_mount_options = true,
	.run = run_tree,
};
