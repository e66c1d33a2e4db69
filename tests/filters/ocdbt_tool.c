/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ocdbt_tool.c - the ocdbt module as a program, for tests/interop/test_tensorstore_ocdbt.py.
 *
 *     ocdbt_tool list DIR        KEY LEN WHERE of each key
 *     ocdbt_tool values DIR      KEY VALUE of each key
 *     ocdbt_tool get DIR         VALUE or "absent" of each key on standard input, in one batch
 *     ocdbt_tool versions DIR    GENERATION TIME HEIGHT KEYS of each version
 *     ocdbt_tool build DIR       a new database from KEY VALUE lines
 *     ocdbt_tool commit DIR      one version more with these keys and no others
 *     ocdbt_tool merge DIR       DIR/ocdbt.process_* into DIR
 *     ocdbt_tool check DIR       findings; status 1 when there is an error
 *
 * Keys and values are in hexadecimal, "-" when empty. Options: --generation G, --time T,
 * --prefix KEY, --low KEY, --high KEY, --union, --inline N, --node N, --arity N, --zstd LEVEL,
 * --plain, --uuid HEX, --name HEX (of the first data file), --target N, --one-writer,
 * --engine STACK, --cache BYTES.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/cache.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/io/io.h"
#include "core/ocdbt/ocdbt.h"

struct tool {
	const char *command, *path;
	struct ocdbt_config config;
	struct ocdbt_when when;
	struct buf prefix, low, high, uuid, name;
	uint64_t target, cache_bytes, time;
	const char *engine;
	bool is_union, one_writer, all;

	struct io_engine *io;
	struct io_dir *dir;
	struct cache *cache;
};

/* ---- hexadecimal ---- */

static int digit(char c)
{
	const char *d = c ? strchr("0123456789abcdef", c) : NULL;

	return d ? (int)(d - "0123456789abcdef") : -1;
}

static int from_hex(struct span text, struct buf *ret)
{
	int r = 0;

	if (text.n == 1 && text.p[0] == '-')
		return 0;
	for (size_t i = 0; i + 1 < text.n && r >= 0; i += 2) {
		int high = digit((char)text.p[i]), low = digit((char)text.p[i + 1]);

		r = high < 0 || low < 0 ? fail(-EINVAL, "not hexadecimal") :
					  buf_add_byte(ret, (uint8_t)(high << 4 | low));
	}
	return r >= 0 && text.n % 2 ? fail(-EINVAL, "odd number of digits") : r;
}

static void put_hex(struct span s)
{
	if (s.n == 0)
		putchar('-');
	for (size_t i = 0; i < s.n; i++)
		printf("%02x", s.p[i]);
}

/* ---- reading ---- */

static int open_kv(struct tool *t, struct kv **ret)
{
	struct ocdbt_open_opts opts = { .when = t->when };
	__attribute__((cleanup(ocdbt_parts_release))) struct ocdbt_parts parts = { 0 };
	struct io_dir *dir;
	int r = io_dir_sub(t->dir, ".", &dir);

	if (r >= 0 && t->is_union)
		r = ocdbt_parts_find(dir, &parts);
	if (r < 0)
		return r;
	r = t->is_union ? ocdbt_open_union(dir, &parts, t->cache, &opts, ret) :
			  ocdbt_open(dir, t->cache, &opts, ret);
	if (r < 0)
		io_dir_close(dir);
	return r;
}

static int open_db(struct tool *t, struct ocdbt **ret)
{
	struct io_dir *dir;
	int r = io_dir_sub(t->dir, ".", &dir);

	if (r < 0)
		return r;
	r = ocdbt_db_open(dir, t->cache, ret);
	if (r < 0)
		io_dir_close(dir);
	return r;
}

struct each {
	struct tool *tool;
	struct kv *kv;
	bool values;
};

static int print_key(void *arg, struct span key, uint64_t len)
{
	struct each *e = arg;
	auto_buf text = { 0 };
	int r;

	put_hex(key);
	if (e->values) {
		r = kv_get_all(e->kv, key, UINT64_MAX, &text);
		putchar(' ');
		if (r > 0)
			put_hex(buf_span(&text));
	} else {
		r = kv_where_text(e->kv, key, &text);
		printf(" %" PRIu64 " %s", len, r < 0 ? "?" : buf_str(&text));
	}
	putchar('\n');
	return r < 0 ? r : 0;
}

/* A range through a cursor, else the kv's own listing. */
static int list_range(struct tool *t)
{
	auto_of(ocdbt) struct ocdbt *db = NULL;
	auto_of(ocdbt_cursor) struct ocdbt_cursor *cur = NULL;
	auto_arena a = { 0 };
	struct ocdbt_version v;
	struct ocdbt_entry e;
	int r = open_db(t, &db);

	if (r >= 0)
		r = ocdbt_find_version(db, &t->when, &a, &v);
	if (r > 0)
		r = ocdbt_cursor_open(db, &v, &cur);
	if (r >= 0)
		r = ocdbt_cursor_range(cur, buf_span(&t->low), buf_span(&t->high));
	while (r >= 0 && (r = ocdbt_cursor_next(cur, &e)) > 0) {
		put_hex(e.key);
		printf(" %" PRIu64 " -\n", ocdbt_value_len(&e.value));
	}
	return r;
}

static int cmd_list(struct tool *t)
{
	auto_of(kv) struct kv *kv = NULL;
	struct each e = { .tool = t };
	int r;

	if (t->low.n || t->high.n)
		return list_range(t);
	r = open_kv(t, &kv);
	if (r < 0)
		return r;
	e.kv = kv;
	e.values = !strcmp(t->command, "values");
	return kv_list(kv, buf_span(&t->prefix), print_key, &e);
}

static int cmd_get(struct tool *t)
{
	auto_of(kv) struct kv *kv = NULL;
	struct kv_get *get = calloc(1 << 20, sizeof(*get));
	struct buf *bytes = calloc(2 << 20, sizeof(*bytes));
	char *line = NULL;
	size_t cap = 0, n = 0;
	ssize_t len;
	int r = open_kv(t, &kv);

	while (r >= 0 && n < 1 << 20 && (len = getline(&line, &cap, stdin)) > 0) {
		len -= line[len - 1] == '\n';
		r = from_hex(span_of(line, (size_t)len), &bytes[2 * n]);
		get[n] = (struct kv_get){ .key = buf_span(&bytes[2 * n]),
					  .len = UINT64_MAX,
					  .ret = &bytes[2 * n + 1] };
		n++;
	}
	if (r >= 0)
		r = kv_get(kv, get, n);
	for (size_t i = 0; i < n && r >= 0; i++) {
		if (get[i].found)
			put_hex(buf_span(get[i].ret));
		printf(get[i].found ? "\n" : "absent\n");
	}
	for (size_t i = 0; i < 2 * n; i++)
		buf_release(&bytes[i]);
	free(bytes);
	free(get);
	free(line);
	return r;
}

static int print_version(void *arg, const struct ocdbt_version *v)
{
	printf("%" PRIu64 " %" PRIu64 " %u %" PRIu64 "\n", v->generation, v->commit_time,
	       v->root_height, v->stats.keys);
	return 0;
}

static int cmd_versions(struct tool *t)
{
	auto_of(ocdbt) struct ocdbt *db = NULL;
	int r = open_db(t, &db);

	return r < 0 ? r : ocdbt_each_version(db, print_version, NULL);
}

/* ---- writing ---- */

struct names {
	struct buf *first;
	int at;
};

/* The name that was asked for, then that plus 1, and so on. */
static int next_name(void *arg, uint8_t ret[16])
{
	struct names *n = arg;

	if (n->first->n != 16)
		return fail(-EINVAL, "--name wants 32 digits");
	memcpy(ret, n->first->p, 16);
	ret[15] = (uint8_t)(ret[15] + n->at++);
	return 0;
}

struct input {
	struct arena arena;
	struct ocdbt_entry *entry;
	size_t n, cap;
};

static int add_entry(struct input *in, const struct ocdbt_entry *e)
{
	if (in->n == in->cap) {
		in->cap = in->cap ? 2 * in->cap : 64;
		in->entry = realloc(in->entry, in->cap * sizeof(*in->entry));
		if (!in->entry)
			return -ENOMEM;
	}
	in->entry[in->n++] = *e;
	return 0;
}

/* KEY VALUE lines; values beyond the inline limit go to values at once. */
static int read_input(struct tool *t, struct ocdbt_data *values, struct input *in)
{
	char *line = NULL;
	size_t cap = 0;
	ssize_t len;
	int r = 0;

	while (r >= 0 && (len = getline(&line, &cap, stdin)) > 0) {
		auto_buf key = { 0 }, value = { 0 };
		struct ocdbt_entry e = { 0 };
		char *space = strchr(line, ' ');

		len -= line[len - 1] == '\n';
		r = space ? from_hex(span_of(line, (size_t)(space - line)), &key) : -EINVAL;
		if (r >= 0)
			r = from_hex(span_of(space + 1, (size_t)(line + len - space - 1)), &value);
		if (r < 0)
			break;
		e.key = span_of(arena_dup(&in->arena, buf_span(&key)), key.n);
		if (value.n > t->config.max_inline_value_bytes) {
			e.value.kind = OCDBT_FILE;
			r = ocdbt_data_put(values, buf_span(&value), &e.value.ref);
		} else {
			e.value.bytes = span_of(arena_dup(&in->arena, buf_span(&value)), value.n);
		}
		if (r >= 0)
			r = add_entry(in, &e);
	}
	free(line);
	return r;
}

/* Values, then nodes, then the manifest: each durable before the next. */
static int write_version(struct tool *t, struct ocdbt *db, struct ocdbt_data *values,
			 struct ocdbt_data *nodes)
{
	struct input in = { 0 };
	struct ocdbt_array_source src;
	struct ocdbt_version root;
	auto_manifest m = { 0 };
	int r = read_input(t, values, &in);

	if (r >= 0)
		r = ocdbt_data_sync(values);
	ocdbt_array_source_init(&src, in.entry, in.n);
	if (r >= 0)
		r = ocdbt_build(&src.base, &t->config, nodes, &root);
	if (r >= 0)
		r = db ? ocdbt_manifest_next(db, &root, t->time, nodes, &m) :
			 ocdbt_manifest_first(&t->config, &root, t->time, &m);
	if (r >= 0)
		r = ocdbt_data_sync(nodes);
	if (r >= 0)
		r = ocdbt_manifest_write(t->dir, &m, "manifest.tmp");
	if (r >= 0)
		r = io_dirop(t->dir, IO_RENAME, "manifest.tmp", "manifest.ocdbt", 0);
	if (r >= 0)
		r = io_dirop(t->dir, IO_SYNC_DIR, ".", NULL, 0);
	arena_release(&in.arena);
	free(in.entry);
	return r;
}

static int cmd_build(struct tool *t)
{
	auto_of(ocdbt_data) struct ocdbt_data *values = NULL, *other = NULL;
	auto_of(ocdbt) struct ocdbt *db = NULL;
	struct names names = { .first = &t->name };
	struct ocdbt_data_opts opts = { .target_size = t->target,
					.name = t->name.n ? next_name : NULL,
					.name_arg = &names };
	int r = !strcmp(t->command, "commit") ? open_db(t, &db) : 0;

	if (r >= 0)
		r = ocdbt_data_new(t->dir, &opts, &values);
	if (r >= 0 && !t->one_writer)
		r = ocdbt_data_new(t->dir, &opts, &other);
	if (db)
		t->config = ocdbt_db_manifest(db)->config;
	return r < 0 ? r : write_version(t, db, values, other ? other : values);
}

static int cmd_merge(struct tool *t)
{
	__attribute__((cleanup(ocdbt_parts_release))) struct ocdbt_parts parts = { 0 };
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct names names = { .first = &t->name };
	struct ocdbt_data_opts opts = { .name = t->name.n ? next_name : NULL, .name_arg = &names };
	struct ocdbt_merge_stats stats;
	struct ocdbt_data_stats wrote;
	struct ocdbt_version root;
	auto_manifest m = { 0 };
	int r = ocdbt_parts_find(t->dir, &parts);

	if (r >= 0)
		r = ocdbt_data_new(t->dir, &opts, &data);
	if (r >= 0)
		r = ocdbt_merge_dirs(t->dir, &parts, t->cache, &t->config, data, &root, &stats);
	if (r >= 0)
		r = ocdbt_data_sync(data);
	if (r >= 0)
		r = ocdbt_manifest_first(&t->config, &root, t->time, &m);
	if (r >= 0)
		r = ocdbt_manifest_write(t->dir, &m, NULL);
	if (r < 0)
		return r;
	ocdbt_data_stats(data, &wrote);
	printf("%zu parts, %zu bare, %" PRIu64 " keys, %" PRIu64 " repeated, %" PRIu64
	       " bytes written\n",
	       parts.n, parts.n_bare, stats.keys, stats.repeated, wrote.bytes);
	return 0;
}

/* ---- looking ---- */

static int print_finding(void *arg, const struct ocdbt_finding *f)
{
	static const char *const names[] = { "info", "warning", "error" };

	printf("%s %s: %s\n", names[f->severity], f->where, f->text);
	return 0;
}

static int cmd_check(struct tool *t)
{
	struct ocdbt_check_opts opts = { .all_versions = t->all,
					 .unused_files = t->all,
					 .found = print_finding };
	struct ocdbt_check_stats s;
	auto_of(ocdbt) struct ocdbt *db = NULL;
	int r = open_db(t, &db);

	if (r >= 0)
		r = ocdbt_check(db, &opts, &s);
	if (r < 0)
		return r;
	printf("versions %" PRIu64 " version_nodes %" PRIu64 " nodes %" PRIu64 " keys %" PRIu64
	       " value_bytes %" PRIu64 " files %" PRIu64 " errors %" PRIu64 " warnings %" PRIu64
	       "\n",
	       s.versions, s.version_nodes, s.nodes, s.keys, s.value_bytes, s.files, s.errors,
	       s.warnings);
	return s.errors ? 1 : 0;
}

/* ---- command line ---- */

static const struct {
	const char *name;
	int (*run)(struct tool *t);
} commands[] = {
	{ "list", cmd_list },         { "values", cmd_list }, { "get", cmd_get },
	{ "versions", cmd_versions }, { "build", cmd_build }, { "commit", cmd_build },
	{ "merge", cmd_merge },       { "check", cmd_check },
};

static int set_option(struct tool *t, const char *name, const char *value)
{
	uint64_t number = strtoull(value, NULL, 10);
	const struct {
		const char *name;
		uint64_t *u64;
		uint32_t *u32;
		struct buf *hex;
	} options[] = {
		{ "--generation", &t->when.generation },
		{ "--time", &t->time },
		{ "--before", &t->when.time },
		{ "--target", &t->target },
		{ "--cache", &t->cache_bytes },
		{ "--inline", NULL, &t->config.max_inline_value_bytes },
		{ "--node", NULL, &t->config.max_decoded_node_bytes },
		{ "--arity", NULL, &t->config.arity_log2 },
		{ "--prefix", NULL, NULL, &t->prefix },
		{ "--low", NULL, NULL, &t->low },
		{ "--high", NULL, NULL, &t->high },
		{ "--uuid", NULL, NULL, &t->uuid },
		{ "--name", NULL, NULL, &t->name },
	};

	if (!strcmp(name, "--engine")) {
		t->engine = value;
		return 0;
	}
	if (!strcmp(name, "--zstd")) {
		t->config.zstd_level = atoi(value);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(options); i++) {
		if (strcmp(name, options[i].name))
			continue;
		if (options[i].u64)
			*options[i].u64 = number;
		if (options[i].u32)
			*options[i].u32 = (uint32_t)number;
		return options[i].hex ? from_hex(span_str(value), options[i].hex) : 0;
	}
	return fail(-EINVAL, "unknown option '%s'", name);
}

static int parse_args(struct tool *t, int argc, char **argv)
{
	int r = ocdbt_config_init(&t->config);

	for (int i = 1; i < argc && r >= 0; i++) {
		if (!strcmp(argv[i], "--union"))
			t->is_union = true;
		else if (!strcmp(argv[i], "--plain"))
			t->config.compression = OCDBT_PLAIN;
		else if (!strcmp(argv[i], "--one-writer"))
			t->one_writer = true;
		else if (!strcmp(argv[i], "--all"))
			t->all = true;
		else if (argv[i][0] == '-' && i + 1 < argc)
			r = set_option(t, argv[i], argv[i + 1]), i++;
		else if (!t->command)
			t->command = argv[i];
		else
			t->path = argv[i];
	}
	if (r >= 0 && t->uuid.n == sizeof(t->config.uuid))
		memcpy(t->config.uuid, t->uuid.p, t->uuid.n);
	return r;
}

int main(int argc, char **argv)
{
	struct tool t = { .engine = "auto", .cache_bytes = 64 * MiB };
	int r = parse_args(&t, argc, argv);

	if (r >= 0)
		r = io_engine_open(t.engine, &t.io);
	if (r >= 0)
		r = io_dir_open(t.io, t.path ? t.path : ".", &t.dir);
	if (r >= 0 && t.cache_bytes)
		r = cache_new(t.cache_bytes, &t.cache);
	if (r >= 0) {
		size_t i = 0;

		while (i < ARRAY_LEN(commands) &&
		       (!t.command || strcmp(commands[i].name, t.command)))
			i++;
		r = i < ARRAY_LEN(commands) ? commands[i].run(&t) :
					      fail(-EINVAL, "unknown command");
	}
	if (r < 0)
		fprintf(stderr, "ocdbt_tool: %s\n", err_text(r));
	cache_free(t.cache);
	io_dir_close(t.dir);
	if (t.io)
		io_engine_close(t.io);
	buf_release(&t.prefix);
	buf_release(&t.low);
	buf_release(&t.high);
	buf_release(&t.uuid);
	buf_release(&t.name);
	return r < 0 ? 2 : r;
}
