/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_checkpoint.c - a whole checkpoint of a stranger: everything in it is listed and read.
 *
 * Input: the files, in pieces whose checksums are computed (pieces.h). Each read is right or an
 * error, whichever way it takes: a file whole and in parts, a box of it, many leaves at once, with
 * a cache and without one. Nothing comes from outside of SOURCE, memory stays within the budgets,
 * and every descriptor is closed.
 *
 * FUZZ_FILES=DIR in the environment: the files of the last input stay in DIR/source.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>

#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/zarr/read_many/read_many.h"
#include "handlers/namespace/node_parts.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_held.h"
#include "tests/fuzz/pieces.h"
#include "tests/unit/lib/tmp_dir.h"
#include "tools/cli/cmd.h"

#define READ_MAX 32768 /* of one file, at its beginning */
#define PART 777       /* by which it is read again */
#define NODES_MAX 300  /* limit of nodes that are checked */
#define DEPTH_MAX 12
#define VERIFY_MAX (1 * MiB) /* a file with a SHA-256 is read to its end, whatever its size is */
#define MANY_MAX 32          /* leaves that are read at once */
#define CANARY_BYTES 32
/* cache=4M,read_budget=8M,write_budget=8M, and the constant of the process. */
#define MEMORY_MAX (4 * MiB + 8 * MiB + 8 * MiB + 64 * MiB)

/* Bits of the input's first byte. */
enum {
	AS_SHAPE = 3, /* enum shape */
	MISSING_IS_ZERO = 1 << 2,
	PADS = 1 << 3,
	SHOWS_TMP = 1 << 4,
	SPILLS = 1 << 5,
	CASTS = 1 << 6,
	AGAIN = 1 << 7, /* without a cache, with threads */
};

static uint8_t canary[CANARY_BYTES]; /* of a file outside of the source; other ones each time */
static char dir[TMP_DIR_MAX], source[TMP_DIR_MAX + 8];
static unsigned looked;
static uint64_t largest; /* bytes of the largest file that was looked at */
static FILE *nowhere;

/* ---- reading ---- */

struct contents {
	int result; /* of opening and reading: bytes that were read, or an error */
	uint64_t size;
	uint8_t bytes[READ_MAX];
};

/* Without the compiler's help, which would tell the search what is compared. */
NOT_TRACED static bool is_canary(const uint8_t *p, size_t n)
{
	for (size_t i = 0, same = 0; i < n; i++) {
		same = p[i] == canary[same] ? same + 1 : p[i] == canary[0];
		if (same == CANARY_BYTES)
			return true;
	}
	return false;
}

/* An error has a note; it was looked at. */
static int failed(int r)
{
	must(r < 0 && *err_text(r));
	err_clear();
	return r;
}

static int read_range(struct file *f, uint64_t off, size_t n, uint8_t *ret)
{
	struct segments g;
	int r;

	segments_init(&g, f->node->ns->ckpt->cache);
	r = file_read(f, off, n, &g);
	must(r < 0 || g.bytes <= n);
	if (r >= 0)
		r = segments_copy(&g, ret);
	if (r >= 0)
		r = (int)g.bytes;
	segments_release(&g);
	if (r >= 0)
		must(!is_canary(ret, (size_t)r));
	return r < 0 ? failed(r) : r;
}

/* A part that reads, reads as before. */
static void read_parts(struct file *f, const struct contents *c)
{
	uint8_t part[PART];

	for (size_t at = 0; at < (size_t)c->result; at += PART) {
		size_t n = MIN((size_t)PART, (size_t)c->result - at);
		int r = read_range(f, at, n, part);

		if (r >= 0)
			must((size_t)r == n && !memcmp(part, c->bytes + at, n));
	}
	if (c->size > READ_MAX) {
		uint64_t at = c->size - PART / 2;
		int r = read_range(f, at, PART, part);

		must(r < 0 || r == PART / 2);
	}
	must(read_range(f, c->size, PART, part) <= 0);
	must(read_range(f, UINT64_MAX / 2, PART, part) <= 0);
}

/* A hole must read as zeros. */
static void look_at_holes(struct file *f, const struct contents *c)
{
	uint64_t data = c->size, hole = c->size;

	if (file_seek(f, 0, SEEK_DATA, &data) < 0)
		return err_clear();
	for (uint64_t i = 0; i < MIN(data, (uint64_t)c->result); i++)
		must(c->bytes[i] == 0);
	if (file_seek(f, MIN(data, c->size), SEEK_HOLE, &hole) >= 0)
		must(hole >= data && hole <= MAX(c->size, data));
	err_clear();
}

static void read_node(struct node *n, struct contents *ret)
{
	auto_of(file) struct file *f = NULL;
	struct stat st;
	int r = node_stat(n, &st);

	ret->size = 0;
	ret->result = 0;
	if (r >= 0 && !S_ISREG(st.st_mode))
		return;
	if (r >= 0)
		r = node_open(n, O_RDONLY, &f);
	if (r < 0) {
		ret->result = failed(r);
		return;
	}
	ret->size = (uint64_t)st.st_size;
	must(ret->size <= INT64_MAX);
	largest = MAX(largest, ret->size);
	ret->result = read_range(f, 0, READ_MAX, ret->bytes);
	if (ret->result < 0)
		return;
	must((uint64_t)ret->result == MIN(ret->size, (uint64_t)READ_MAX));
	read_parts(f, ret);
	look_at_holes(f, ret);
}

/* A name that need not be listed; result is an error when there is no such file. */
static void read_name(struct node *at, const char *stem, const char *rest, struct contents *ret)
{
	auto_free char *name = str_fmt("%s%s", stem, rest);
	struct node *n = NULL;
	int r;

	must(name != NULL);
	r = strlen(name) <= LIMIT_NAME_BYTES ? node_lookup(at, span_str(name), &n) : -ENOENT;
	if (r < 0) {
		ret->result = r;
		return err_clear();
	}
	read_node(n, ret);
	node_unref(n, 1);
}

/* ---- what was read before, without a cache ---- */

static struct known {
	uint64_t path, bytes;
} known[NODES_MAX];
static unsigned n_known;
static bool is_again;

static void compare_with_before(const char *path, const struct contents *c)
{
	uint64_t hash = hash64(span_str(path), 0), bytes;

	if (c->result < 0)
		return;
	bytes = hash64(span_of(c->bytes, (size_t)c->result), c->size);
	for (unsigned i = 0; i < n_known; i++)
		if (known[i].path == hash)
			must(known[i].bytes == bytes);
	if (!is_again && n_known < NODES_MAX)
		known[n_known++] = (struct known){ hash, bytes };
}

/* ---- views ---- */

/* The length of the first axis of an array; 0: it has none. */
static uint64_t first_axis(struct node *n)
{
	auto_buf text = { 0 };
	auto_json doc = { 0 };

	if (node_xattr_get(n, "user.pytree.shape", &text) < 0) {
		err_clear();
		return 0;
	}
	must(json_parse(buf_span(&text), "shape", &doc) == 0 && doc.root->kind == JSON_ARRAY);
	return doc.root->n && doc.root->items[0].kind == JSON_INT ? (uint64_t)doc.root->items[0].i :
								    0;
}

/* The array is the end of the file, its first and last row are ends of the array. */
static void look_at_array(struct node *at, struct node *n, const char *stem,
			  const struct contents *npy)
{
	static struct contents bin, other;
	uint64_t rows = first_axis(n), row;

	read_name(at, stem, ".bin", &bin);
	read_name(at, stem, "@float32.npy", &other);
	read_name(at, stem, ".json", &other);
	if (bin.result < 0 || npy->result < 0)
		return;
	must(npy->size > bin.size && npy->size - bin.size < READ_MAX / 2);
	if (npy->size <= READ_MAX)
		must(!memcmp(npy->bytes + (npy->size - bin.size), bin.bytes, bin.size));
	if (!rows)
		return;
	row = bin.size / rows;
	must(bin.size % rows == 0);
	read_name(at, stem, "[0:1].bin", &other);
	if (other.result >= 0)
		must(other.size == row &&
		     !memcmp(other.bytes, bin.bytes, (size_t)MIN(other.result, bin.result)));
	read_name(at, stem, "[-1:].bin", &other);
	if (other.result >= 0)
		must(other.size == row);
	if (other.result >= 0 && bin.size <= READ_MAX)
		must(!memcmp(other.bytes, bin.bytes + (bin.size - row), row));
}

static void look_at_directory_views(struct node *at, const char *name)
{
	static const char *const views[] = { ".safetensors", ".json", ".html",
					     "@bfloat16.safetensors" };
	static struct contents c;

	for (size_t i = 0; i < ARRAY_LEN(views); i++)
		read_name(at, name, views[i], &c);
}

/* ---- all that is there ---- */

static void look_at_attributes(struct node *n)
{
	auto_buf names = { 0 };

	if (node_xattr_list(n, &names) < 0)
		return err_clear();
	for (size_t at = 0; at < names.n; at += strlen((char *)names.p + at) + 1) {
		auto_buf value = { 0 };
		auto_json doc = { 0 };

		if (node_xattr_get(n, (char *)names.p + at, &value) >= 0)
			must(json_parse(buf_span(&value), "value", &doc) == 0);
		err_clear();
	}
}

static void look_below(struct node *n, const char *path, unsigned depth);

static void look(struct node *at, struct node *n, const char *path, unsigned depth)
{
	static struct contents c;
	const char *name = strrchr(path, '/') + 1;
	struct stat st;
	int r = node_stat(n, &st);

	if (r < 0) {
		failed(r);
		return;
	}
	look_at_attributes(n);
	if (S_ISDIR(st.st_mode)) {
		if (depth <= 3)
			look_at_directory_views(at, name);
		look_below(n, path, depth);
	} else if (S_ISREG(st.st_mode)) {
		auto_free char *stem = NULL;

		read_node(n, &c);
		compare_with_before(path, &c);
		if (!span_ends(span_str(name), span_str(".npy")))
			return;
		stem = span_dup_str(span_of(name, strlen(name) - strlen(".npy")));
		must(stem != NULL);
		look_at_array(at, n, stem, &c);
	}
}

static void look_below(struct node *n, const char *path, unsigned depth)
{
	auto_listing l = { 0 };
	int r = node_list(n, &l);

	if (r < 0)
		failed(r);
	for (size_t i = 2; r >= 0 && i < l.n && looked < NODES_MAX && depth < DEPTH_MAX; i++) {
		auto_free char *below = str_fmt("%s/%s", path, listing_name(&l, i));
		struct node *child = NULL;

		must(below != NULL);
		looked++;
		r = node_lookup(n, span_str(listing_name(&l, i)), &child);
		if (r >= 0)
			look(n, child, below, depth + 1);
		else
			failed(r);
		r = 0;
		node_unref(child, 1);
	}
}

/* ---- many leaves at once ---- */

static struct many {
	unsigned n;
	struct one {
		struct item *item;
		const struct tree_node *leaf;
		struct zarr *z;
		struct zarr_view view;
		int result;
		uint8_t bytes[READ_MAX];
	} one[MANY_MAX];
} many;

static int many_open(void *arg, size_t i, struct read_target *ret)
{
	struct one *o = &many.one[i];

	ret->z = zarr_ref(o->z);
	ret->view = o->view;
	ret->to = o->bytes;
	read_target_set_order(ret);
	return 1;
}

static void many_done(void *arg, size_t i, int result)
{
	many.one[i].result = result < 0 ? failed(result) : result;
}

static int many_progress(void *arg, uint64_t done)
{
	return 0;
}

static void many_add(struct item *item, const struct tree_node *leaf)
{
	struct one *o = &many.one[many.n];

	if (item_array(item, leaf, &o->z) < 0)
		return err_clear();
	zarr_view_whole(&o->z->meta, &o->view);
	if (zarr_view_finish(&o->view) < 0 || o->view.bytes > READ_MAX) {
		zarr_unref(o->z);
		return err_clear();
	}
	o->result = -EIO;
	many.n++;
}

static void compare_many(void)
{
	static uint8_t bytes[READ_MAX];

	for (unsigned i = 0; i < many.n; i++) {
		struct one *o = &many.one[i];
		int r = zarr_read_into(o->z, &o->view, 0, (size_t)o->view.bytes, bytes);

		if (r >= 0 && o->result >= 0)
			must(!memcmp(bytes, o->bytes, (size_t)o->view.bytes));
		err_clear();
		zarr_unref(o->z);
	}
	many.n = 0;
}

static void read_many_of(struct ns *ns, struct node *n)
{
	static const struct read_many_ops ops = { many_open, many_done, many_progress };
	auto_subtree st = { 0 };

	if (node_open_subtree(n, &st) < 0)
		return err_clear();
	for (size_t p = 0; p < st.n; p++) {
		struct item *item = st.part[p].item;

		if (st.part[p].kind != PART_TREE)
			continue;
		for (uint32_t i = 0; i < item->tree->n_nodes && many.n < MANY_MAX; i++) {
			auto_buf text = { 0 };
			struct span says;

			if (!subtree_is_leaf(item->tree->nodes[i]))
				continue;
			item_sharding(item, item->tree->nodes[i], &says);
			item_prng_impl(item, item->tree->nodes[i], &says);
			item_string(item, item->tree->nodes[i], &text);
			many_add(item, item->tree->nodes[i]);
		}
		if (zarr_read_many(&ns->ckpt->env, many.n, &ops, NULL) < 0)
			err_clear();
		compare_many();
	}
}

static void read_many_below(struct ns *ns)
{
	auto_listing l = { 0 };

	read_many_of(ns, ns->root);
	if (node_list(ns->root, &l) < 0)
		return err_clear();
	for (size_t i = 2; i < l.n && i < 8; i++) {
		struct node *n = NULL;

		if (node_lookup(ns->root, span_str(listing_name(&l, i)), &n) >= 0)
			read_many_of(ns, n);
		err_clear();
		node_unref(n, 1);
	}
}

/* ---- one input ---- */

static void set(struct options *o, const char *option)
{
	must(option_set(o, option, false) == 0);
}

static void set_options(struct options *o, uint8_t flags, bool has_rules)
{
	static const char *const shapes[] = { "shape=auto", "shape=root", "shape=step",
					      "shape=item" };
	auto_free char *rules = str_fmt("transforms=%s/rules", dir);

	must(options_init(o) == 0);
	/* A ring for each thread of each input takes longer than the input. */
	set(o, is_again ? "io=auto" : "io=sync");
	set(o, "threads=1");
	set(o, is_again ? "cache=0" : "cache=4M");
	set(o, "read_budget=8M");
	set(o, "write_budget=8M");
	set(o, shapes[flags & AS_SHAPE]);
	set(o, flags & MISSING_IS_ZERO ? "missing=zero" : "missing=auto");
	set(o, flags & PADS ? "pad_truncate=on" : "pad_truncate=off");
	set(o, flags & SHOWS_TMP ? "show_tmp=on" : "show_tmp=off");
	set(o, flags & SPILLS ? "spill=/dev/shm" : "spill=off");
	set(o, "spill_limit=4M");
	if (flags & CASTS)
		set(o, "restore_dtype=float16");
	if (has_rules && option_set(o, rules, false) < 0)
		failed(-EINVAL);
}

static void look_at_all(uint8_t flags, bool has_rules)
{
	struct options o;
	struct ns *ns = NULL;
	int r;

	looked = 0;
	set_options(&o, flags, has_rules);
	r = ns_open(source, &o, &ns);
	if (r >= 0 && is_again)
		r = ns_start(ns, NULL);
	if (r >= 0) {
		look_below(ns->root, "", 0);
		read_many_below(ns);
	} else {
		failed(r);
	}
	ns_close(ns);
	options_release(&o);
}

/* Run the engine of `pytreefs verify`. */
static void verify(uint8_t flags)
{
	FILE *out = stdout;
	char *argv[] = { "pytreefs", "verify", source, NULL };
	struct cmd_args a = { .cmd = &cmd_verify, .argv = argv, .arg = argv + 2, .n_args = 1 };
	int r;

	set_options(&a.options, flags, false);
	for (size_t i = 0; cmd_verify.options[i].name; i++)
		if (!strcmp(cmd_verify.options[i].name, "quiet"))
			a.value[i] = "";
	stdout = nowhere;
	r = cmd_verify.run(&a);
	stdout = out;
	if (r < 0)
		failed(r);
	arena_release(&a.arena);
	options_release(&a.options);
	err_clear();
}

static void write_file(const char *name, struct span bytes)
{
	auto_free char *path = str_fmt("%s/%s", dir, name);
	auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

	must(fd >= 0 && write(fd, bytes.p, bytes.n) == (ssize_t)bytes.n);
}

static void end(void)
{
	tmp_dir_remove(dir);
}

static void begin(void)
{
	const char *retained = getenv("FUZZ_FILES");

	log_stderr_level(LOG_LEVEL_ERROR);
	/* The kernel would clear two megabytes for each buffer. */
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	if (retained) {
		must(strlen(retained) < sizeof(dir) &&
		     (mkdir(retained, 0777) == 0 || errno == EEXIST));
		strcpy(dir, retained);
	} else {
		must(tmp_dir_make(dir, "fuzz_checkpoint") == 0);
		atexit(end);
	}
	snprintf(source, sizeof(source), "%s/source", dir);
	must(getrandom(canary, sizeof(canary), 0) == sizeof(canary));
	write_file("outside", span_of(canary, sizeof(canary)));
	nowhere = fopen("/dev/null", "we");
	must(nowhere != NULL);
	memory_watch();
}

/* The lowest number that is free. */
static int next_descriptor(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	must(fd >= 0);
	close(fd);
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct pieces p;
	auto_buf rules = { 0 };
	int fd;

	if (!*dir)
		begin();
	pieces_parse(span_of(data, size), &p);
	must(tmp_dir_remove(source) == 0 && mkdir(source, 0777) == 0);
	pieces_write(&p, source, &rules);
	write_file("rules", buf_span(&rules));
	memory_begin();
	fd = next_descriptor();
	n_known = 0;
	largest = 0;
	for (int again = 0; again < (p.flags & AGAIN ? 2 : 1); again++) {
		is_again = again;
		look_at_all(p.flags, rules.n > 0);
	}
	is_again = false;
	if (largest <= VERIFY_MAX)
		verify(p.flags);
	must(next_descriptor() == fd);
	must(memory_most() <= MEMORY_MAX);
	return 0;
}
