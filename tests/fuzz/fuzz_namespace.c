/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_namespace.c - names and calls at a whole namespace: views and escapes of a step that is
 * there, and drafts that are made, written, renamed, committed and removed.
 *
 * Input: lines; the first byte says the call, the rest is a path (and, after a tab, another one or
 * a value). Whatever is asked, the step that was there reads as before.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "handlers/namespace/ns.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/lib/tmp_dir.h"

#define LINES_MAX 64 /* of one input */
#define READ_MAX 4096

static const char npy[] = "\x93NUMPY\x01\x00\x46\x00"
			  "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }          \n"
			  "abcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcd";
static const struct span good_npy = { (const uint8_t *)npy, sizeof(npy) - 1 };

static char dir[TMP_DIR_MAX];
static struct ns *ns;
static uint8_t good[32];

/* The directory of a path, and its last name. */
static int walk_parent(const char *path, struct node **ret, struct span *ret_name)
{
	const char *slash = strrchr(path, '/');
	auto_free char *above = span_dup_str(span_of(path, slash ? (size_t)(slash - path) : 0));

	must(above != NULL);
	*ret_name = span_str(slash ? slash + 1 : path);
	return node_walk(ns->root, above, ret);
}

static void hash_file(struct node *n, uint8_t ret[32])
{
	auto_of(file) struct file *f = NULL;
	auto_free uint8_t *bytes = NULL;
	struct segments g;
	int r = node_open(n, O_RDONLY, &f);

	memset(ret, 0, 32);
	if (r < 0)
		return;
	segments_init(&g, ns->ckpt->cache);
	r = file_read(f, 0, READ_MAX, &g);
	bytes = malloc(g.bytes + 1);
	must(bytes && g.bytes <= READ_MAX);
	if (r >= 0 && segments_copy(&g, bytes) >= 0)
		sha256(span_of(bytes, g.bytes), ret);
	segments_release(&g);
}

static void look(const char *path)
{
	struct node *n = NULL;
	auto_buf names = { 0 }, link = { 0 };
	uint8_t digest[32];
	struct stat st;

	if (node_walk(ns->root, path, &n) < 0)
		return;
	if (node_stat(n, &st) == 0 && S_ISREG(st.st_mode))
		hash_file(n, digest);
	node_readlink(n, &link);
	if (node_xattr_list(n, &names) >= 0)
		for (size_t at = 0; at < names.n; at += strlen((char *)names.p + at) + 1) {
			auto_buf value = { 0 };

			node_xattr_get(n, (char *)names.p + at, &value);
		}
	node_unref(n, 1);
}

static void write_file(const char *path, struct span bytes)
{
	auto_of(file) struct file *f = NULL;
	struct node *at = NULL, *n = NULL;
	struct span name;

	if (walk_parent(path, &at, &name) >= 0 &&
	    node_create(at, name, O_WRONLY | O_CREAT, &n, &f) >= 0) {
		file_write(f, 0, bytes.p, bytes.n);
		file_flush(f);
	}
	node_unref(n, 1);
	node_unref(at, 1);
}

static void make_dir(const char *path)
{
	struct node *at = NULL, *n = NULL;
	struct span name;

	if (walk_parent(path, &at, &name) >= 0)
		node_mkdir(at, name, 0777, &n);
	node_unref(n, 1);
	node_unref(at, 1);
}

static void rename_to(const char *path, const char *to)
{
	struct node *from_dir = NULL, *to_dir = NULL;
	struct span name, to_name;

	if (walk_parent(path, &from_dir, &name) >= 0 && walk_parent(to, &to_dir, &to_name) >= 0)
		node_rename(from_dir, name, to_dir, to_name, 0);
	node_unref(from_dir, 1);
	node_unref(to_dir, 1);
}

static void remove_name(const char *path, bool is_dir)
{
	struct node *at = NULL;
	struct span name;

	if (walk_parent(path, &at, &name) >= 0)
		is_dir ? node_rmdir(at, name) : node_unlink(at, name);
	node_unref(at, 1);
}

static void set_xattr(const char *path, const char *value)
{
	const char *eq = strchr(value, '=');
	struct span v = span_str(eq ? eq + 1 : "");
	auto_free char *name = str_fmt("user.pytree.%.*s",
				       (int)(eq ? (size_t)(eq - value) : strlen(value)), value);
	struct node *n = NULL;

	if (node_walk(ns->root, path, &n) >= 0)
		node_xattr_set(n, name, eq ? &v : NULL, 0);
	node_unref(n, 1);
}

static void do_line(char *line)
{
	char *path = *line ? line + 1 : line, *second = strchr(path, '\t');

	if (second)
		*second++ = '\0';
	else
		second = path + strlen(path);
	switch (*line) {
	case 'l':
		look(path);
		break;
	case 'm':
		make_dir(path);
		break;
	case 'n':
		write_file(path, good_npy);
		break;
	case 'w':
		write_file(path, span_str(second));
		break;
	case 'r':
		rename_to(path, second);
		break;
	case 'u':
		remove_name(path, false);
		break;
	case 'd':
		remove_name(path, true);
		break;
	case 'x':
		set_xattr(path, second);
		break;
	default:
		break;
	}
	err_clear();
}

/* Remove files that an input left beside the step. */
static void remove_rest(void)
{
	DIR *d = opendir(dir);

	must(d != NULL);
	for (struct dirent *e; (e = readdir(d));) {
		auto_free char *path = str_fmt("%s/%s", dir, e->d_name);

		if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strcmp(e->d_name, "1"))
			must(path && tmp_dir_remove(path) == 0);
	}
	closedir(d);
}

static void end(void)
{
	tmp_dir_remove(dir);
}

static void open_ns(void)
{
	static struct options o;
	const char *const set[] = { "io=sync",          "threads=1", "cache=4M",  "read_budget=16M",
				    "write_budget=16M", "spill=off", "shape=root" };

	options_release(&o);
	must(options_init(&o) == 0);
	for (size_t i = 0; i < ARRAY_LEN(set); i++)
		must(option_set(&o, set[i], false) == 0);
	must(ns_open(dir, &o, &ns) == 0);
	must(ns_start(ns, NULL) == 0);
}

static void begin(void)
{
	char lines[][40] = { "m1.tmp",
			     "m1.tmp/default",
			     "m1.tmp/default/p",
			     "n1.tmp/default/p/w.npy",
			     "w1.tmp/default/s.txt\ttext",
			     "w1.tmp/default/n.json\t1.5",
			     "r1.tmp\t1" };

	log_stderr_level(LOG_LEVEL_ERROR);
	must(tmp_dir_make(dir, "fuzz_namespace") == 0);
	atexit(end);
	open_ns();
	for (size_t i = 0; i < ARRAY_LEN(lines); i++)
		do_line(lines[i]);
}

static void check_step(uint8_t ret[32])
{
	struct node *n = NULL;

	must(node_walk(ns->root, "1/default/p/w.npy", &n) == 0);
	hash_file(n, ret);
	node_unref(n, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_free char *text = span_dup_str(span_of(data, size));
	char *rest = text, *line;
	uint8_t now[32];

	must(text != NULL);
	if (!ns) {
		begin();
		check_step(good);
		ns_close(ns);
	} else {
		remove_rest();
	}
	open_ns();
	for (unsigned i = 0; i < LINES_MAX && (line = strsep(&rest, "\n")); i++)
		do_line(line);
	check_step(now);
	must(!memcmp(now, good, sizeof(now)));
	ns_close(ns);
	return 0;
}
