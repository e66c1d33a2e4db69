/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_gc.c - `pytreefs gc`: removes what interrupted writers have left.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/path.h"
#include "core/commit/gc.h"
#include "core/remote/upload/step_upload.h"
#include "core/step/detect.h"
#include "handlers/namespace/ns.h"
#include "tools/cli/cmd.h"

struct gc {
	bool json, dry_run, quiet;
	unsigned shown, removed, failed;
	uint64_t bytes;
};

/* A time in UTC: "2038-01-19T03:14:07Z". */
static void show_time(char *ret, size_t max, int64_t ns)
{
	time_t t = (time_t)(ns / SECOND_NS);
	struct tm tm;

	if (!gmtime_r(&t, &tm) || !strftime(ret, max, "%Y-%m-%dT%H:%M:%SZ", &tm))
		snprintf(ret, max, "%lld", (long long)t);
}

static void say_json(struct gc *g, const struct gc_found *f)
{
	auto_buf out = { 0 };
	char changed[32];

	buf_addf(&out, "%s\n{\"path\": ", g->shown ? "," : "");
	json_put_str(&out, span_str(f->path), JSON_PRETTY);
	buf_addf(&out, ", \"kind\": \"%s\", \"bytes\": %llu, \"removed\": %s",
		 gc_kind_text(f->kind), (unsigned long long)f->bytes,
		 f->removed && !g->dry_run ? "true" : "false");
	if (g->dry_run)
		buf_addf(&out, ", \"would_remove\": %s", f->removed ? "true" : "false");
	if (f->future_ns) {
		show_time(changed, sizeof(changed), f->future_ns);
		buf_addf(&out, ", \"changed_in_the_future\": \"%s\"", changed);
	}
	if (f->failed) {
		buf_add_str(&out, ", \"error\": ");
		json_put_str(&out, span_str(err_text(f->failed)), JSON_PRETTY);
	}
	buf_add_byte(&out, '}');
	print_buf(stdout, &out);
}

static void gc_say(void *arg, const struct gc_found *f)
{
	struct gc *g = arg;
	char size[32], changed[32];

	g->removed += f->removed;
	g->bytes += f->removed ? f->bytes : 0;
	g->failed += f->failed != 0;
	if (g->json) {
		say_json(g, f);
	} else if (f->failed) {
		print_failure(err_at(f->failed, "'%s'", f->path));
	} else if (!g->quiet) {
		print_size(size, sizeof(size), f->bytes);
		printf("%-12s ", f->removed ? g->dry_run ? "would remove" : "removed" : "kept");
		print_name(stdout, f->path);
		printf(" (%s, %s", gc_kind_text(f->kind), size);
		if (f->future_ns) {
			show_time(changed, sizeof(changed), f->future_ns);
			printf(", last changed in the future: %s", changed);
		}
		printf(")\n");
	}
	g->shown++;
}

/* "90s", "10m", "1h", "7d". */
static bool parse_age(const char *text, int64_t *ret_ns)
{
	static const struct {
		char unit;
		int64_t seconds;
	} units[] = { { 's', 1 }, { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 } };
	size_t digits = strspn(text, "0123456789");
	int64_t n = 0;

	if (digits == 0 || digits > 6 || !text[digits] || text[digits + 1])
		return false;
	for (size_t i = 0; i < digits; i++)
		n = n * 10 + text[i] - '0';
	for (size_t i = 0; i < ARRAY_LEN(units); i++)
		if (units[i].unit == text[digits]) {
			*ret_ns = n * units[i].seconds * 1000000000;
			return true;
		}
	return false;
}

/* Report an upload to a bucket, like an abandoned directory. */
static void say_upload(void *arg, const struct found_upload *u)
{
	struct gc_found f = { .path = *u->path ? u->path : ".",
			      .kind = u->is_unclaimed ? GC_UNCLAIMED :
				      u->may_commit   ? GC_COMMITTING :
				      u->is_live      ? GC_LIVE :
				      u->is_step      ? GC_LOCK :
							GC_DRAFT,
			      .bytes = u->bytes,
			      .future_ns = u->future_ns,
			      .removed = u->removed,
			      .failed = u->failed };

	gc_say(arg, &f);
}

static int gc_collect(struct cmd_args *a, const struct gc_opts *o)
{
	auto_of(io_engine) struct io_engine *io = NULL;
	auto_of(io_dir) struct io_dir *source = NULL;
	auto_free char *path = NULL;
	enum shape shape;
	int r;

	if (path_is_url(a->arg[0])) {
		const struct url_store_opts opts = ns_store_opts(&a->options);
		const struct upload_gc gc = { .dry_run = o->dry_run,
					      .older_than_ns =
						      o->foreign ? MAX(1, o->older_than_ns) : 0,
					      .each = say_upload,
					      .arg = o->arg };

		return step_uploads_remove(a->arg[0], &opts, &gc);
	}
	r = source_in_place(a, a->arg[0], &path);
	if (r < 0)
		return r;
	r = io_engine_open(a->options.io, &io);
	if (r < 0)
		return r;
	r = io_dir_open(io, path, &source);
	if (r < 0)
		return source_fail_part(a, a->arg[0], r);
	r = gc_run(source, o);
	if (r < 0 || ((const struct gc *)o->arg)->shown)
		return r;
	/* Is it a checkpoint? If not, its steps may be in a directory of it. */
	r = detect_shape(source, ".", a->options.todelete, &shape);
	if (r == -EINVAL)
		return r;
	err_clear();
	return 0;
}

static int run_gc(struct cmd_args *a)
{
	struct gc g = { .json = cmd_flag(a, "json"),
			.dry_run = cmd_flag(a, "dry-run"),
			.quiet = cmd_flag(a, "quiet") };
	struct gc_opts o = {
		.dry_run = g.dry_run, .foreign = cmd_flag(a, "all"), .each = gc_say, .arg = &g
	};
	const char *age = cmd_value(a, "older-than");
	char size[32];
	int r;

	if (o.foreign != (age != NULL))
		return cmd_usage(
			a->cmd,
			"--all needs --older-than=AGE, and the other way round: younger files may "
			"belong to a program that is still writing");
	if (age && !parse_age(age, &o.older_than_ns))
		return cmd_usage(a->cmd, "an age is a number and a unit: 90s, 10m, 1h, 7d");
	if (g.json)
		printf("{\"found\": [");
	r = gc_collect(a, &o);
	if (g.json) {
		printf("%s], \"removed\": %u, \"bytes\": %llu, \"dry_run\": %s}\n",
		       g.shown ? "\n" : "", g.dry_run ? 0 : g.removed, (unsigned long long)g.bytes,
		       g.dry_run ? "true" : "false");
	} else if (r >= 0 && !g.quiet) {
		print_size(size, sizeof(size), g.bytes);
		printf("%u %s, %s\n", g.removed, g.dry_run ? "would be removed" : "removed", size);
	}
	return r < 0 ? r : g.failed ? EXIT_FOUND : EXIT_OK;
}

static const struct cmd_option options[] = {
	{ "dry-run", 'n', NULL, "only print what would be removed" },
	{ "all", 0, NULL, "also those of other programs and machines (with --older-than)" },
	{ "older-than", 0, "AGE",
	  "with --all: only those that have not changed for 90s, 10m, 1h, 7d" },
	{ "json", 'j', NULL, "print JSON" },
	{ "quiet", 'q', NULL, "print nothing but errors" },
	{ 0 },
};

const struct cmd cmd_gc = {
	.name = "gc",
	.args = "SOURCE",
	.summary = "remove what interrupted writers have left",
	.help = "Removes abandoned drafts, the rest of steps whose deletion was interrupted, and "
		"lock\n"
		"files of interrupted commits, in a directory of steps (also s3://, gs://) and in\n"
		"the steps. Drafts of living writers are never removed. Exit status 1: something\n"
		"could not be looked at, or not be removed.",
	.example = "pytreefs gc --dry-run ckpts",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.alone = true,
	.takes_mount_options = true,
	.ignores = { "restore_dtype", "transforms" },
	.confined = CMD_WRITES,
	.found = "something could not be looked at, or not be removed; the rest was.",
	.run = run_gc,
};
