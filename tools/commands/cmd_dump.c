/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_dump.c - `pytreefs dump`: prints a record on disk as text, and converts it back.
 *
 * It works on single files, whatever the state of the checkpoint is.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/cache.h"
#include "core/base/err.h"
#include "core/ocdbt/ocdbt.h"
#include "core/zarr/meta/zarr_meta.h"
#include "handlers/leaf/leaf.h"
#include "tools/cli/cmd.h"

struct address {
	char *dir, *file;
	uint64_t off, len; /* len UINT64_MAX: the whole file */
};

static void address_release(struct address *at)
{
	free(at->dir);
	free(at->file);
}

/* Convert a path in a mount to that of the stored file. */
static void go_to_stored(char **path)
{
	auto_free char *stored = source_stored_path(*path);
	struct stat st;

	if (!stored || stat(stored, &st) < 0)
		return;
	free(*path);
	*path = take(stored);
}

/* Parse "DIR/FILE", "DIR/FILE:OFF:LEN", or a directory that contains `fallback`. */
static int parse_address(const char *text, const char *fallback, struct address *ret)
{
	auto_free char *path = strdup(text);
	const char *slash;
	struct stat st;

	*ret = (struct address){ .len = UINT64_MAX };
	if (!path)
		return -ENOMEM;
	go_to_stored(&path);
	if (stat(path, &st) < 0) {
		char *len = strrchr(path, ':'), *off = NULL;

		if (len) {
			*len++ = '\0';
			off = strrchr(path, ':');
		}
		if (!off || option_parse_size(off + 1, &ret->off) < 0 ||
		    option_parse_size(len, &ret->len) < 0)
			return fail(-ENOENT, "'%s' is neither a file nor FILE:OFFSET:LENGTH", text);
		*off = '\0';
		go_to_stored(&path);
	} else if (S_ISDIR(st.st_mode)) {
		ret->dir = take(path);
		ret->file = strdup(fallback);
		return ret->file ? 0 : -ENOMEM;
	}
	slash = strrchr(path, '/');
	ret->dir = slash ? span_dup_str(span_of(path, MAX((size_t)(slash - path), (size_t)1))) :
			   strdup(".");
	ret->file = strdup(slash ? slash + 1 : path);
	return ret->dir && ret->file ? 0 : -ENOMEM;
}

static int text_of_zarr(struct buf *out, struct span bytes)
{
	auto_free struct zarr_meta *m = calloc(1, sizeof(*m));
	int r = m ? zarr_meta_parse(bytes, "array metadata", m) : -ENOMEM;

	if (r < 0)
		return r;
	r = zarr_meta_text(out, m);
	zarr_meta_release(m);
	return r;
}

static int text_of_tree(struct buf *out, struct span bytes)
{
	auto_of(tree) struct tree *t = NULL;
	int r = tree_parse_metadata(bytes, "_METADATA", &t);

	if (r < 0)
		return r;
	r = tree_name(t, NAME_OURS_METADATA, leaf_ext, NULL);
	return r < 0 ? r : tree_text(out, t);
}

static const struct {
	const char *name, *file;
	uint64_t limit; /* the limit for reading it in a checkpoint */
	int (*text)(struct buf *out, struct span bytes);
} kinds[] = {
	{ "manifest", "manifest.ocdbt", LIMIT_MANIFEST_BYTES, ocdbt_record_text },
	{ "btreenode", "", LIMIT_NODE_BYTES, ocdbt_record_text },
	{ "versionnode", "", LIMIT_MANIFEST_BYTES, ocdbt_record_text },
	{ "zarr", ".zarray", LIMIT_ZARR_META_BYTES, text_of_zarr },
	{ "tree", "_METADATA", LIMIT_JSON_BYTES, text_of_tree },
};

static int undump(void)
{
	auto_buf text = { .metered = true }, bytes = { .metered = true };
	ssize_t n = -1;
	int r;

	while (n != 0) {
		r = buf_reserve(&text, 65536);
		if (r < 0)
			return r;
		n = read(STDIN_FILENO, text.p + text.n, 65536);
		if (n < 0 && errno != EINTR)
			return err_sys("cannot read", "standard input");
		text.n += n > 0 ? (size_t)n : 0;
	}
	r = ocdbt_record_undump(buf_span(&text), &bytes);
	if (r < 0)
		return r;
	print_buf(stdout, &bytes);
	return EXIT_OK;
}

static int print_record(const char *address, size_t kind)
{
	__attribute__((cleanup(address_release))) struct address at = { 0 };
	auto_of(io_engine) struct io_engine *io = NULL;
	auto_of(io_dir) struct io_dir *dir = NULL;
	auto_of(io_file) struct io_file *f = NULL;
	auto_buf bytes = { .metered = true }, out = { .metered = true };
	uint64_t n;
	int r = parse_address(address, kinds[kind].file, &at);

	if (r < 0)
		return r;
	r = io_engine_open("sync", &io);
	if (r < 0)
		return r;
	r = io_dir_open(io, at.dir, &dir);
	if (r < 0)
		return r;
	r = io_file_open(dir, at.file, 0, 0, &f);
	if (r < 0)
		return r;
	n = at.len == UINT64_MAX ? f->size : at.len;
	if (n > kinds[kind].limit)
		return fail(-EFBIG, "a record of %llu bytes, the limit is %llu",
			    (unsigned long long)n, (unsigned long long)kinds[kind].limit);
	r = buf_reserve(&bytes, n);
	if (r < 0)
		return r;
	r = io_read_exact(f, bytes.p, n, at.off);
	if (r < 0)
		return r;
	bytes.n = n;
	r = kinds[kind].text(&out, buf_span(&bytes));
	if (r < 0)
		return r;
	print_buf(stdout, &out);
	return EXIT_OK;
}

static int run_dump(struct cmd_args *a)
{
	auto_of(cache) struct cache *cache = NULL;
	int r = cache_new(a->options.cache, &cache);

	if (r < 0)
		return r;
	/* The cache remains empty, and records get its bytes, as in a mount. */
	if (cmd_flag(a, "undump"))
		return undump();
	if (a->n_args != 2)
		return cmd_usage(a->cmd, "the kind of record and an ADDRESS are needed");
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		if (strcmp(kinds[i].name, a->arg[0]))
			continue;
		r = print_record(a->arg[1], i);
		return r < 0 ? err_at(r, "%s", a->arg[1]) : EXIT_OK;
	}
	return cmd_wrong(
		a->cmd,
		"'%s' is not a kind of record: manifest, btreenode, versionnode, zarr, tree",
		a->arg[0]);
}

static const struct cmd_option options[] = {
	{ "undump", 0, NULL,
	  "the reverse: text of an OCDBT record on stdin to its bytes on stdout" },
	{ 0 },
};

const struct cmd cmd_dump = {
	.name = "dump",
	.args = "manifest|btreenode|versionnode|zarr|tree ADDRESS",
	.summary = "print one record on disk as text",
	.help = "ADDRESS is a file, FILE:OFFSET:LENGTH,\n"
		"or (for manifest, zarr, tree) the directory that contains the file.",
	.example = "pytreefs dump manifest ckpts/1500/state",
	.options = options,
	.min_args = 0,
	.max_args = 2,
	.confined = CMD_READS,
	.takes_mount_options = true,
	.ignores = { "restore_dtype", "transforms" },
	.run = run_dump,
};
