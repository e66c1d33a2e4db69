/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record_tool.c - the records of core/ocdbt as a program, for
 * tests/interop/test_tensorstore_ocdbt.py.
 *
 *     record_tool text FILE OFF LEN   a record as text; LEN 0: to the end of the file
 *     record_tool undump              a text on standard input as a record
 *     record_tool exact DIR           parse and pack every record of a database; prints how many
 *                                     are the same bytes again, and how many are not
 */
#include <fcntl.h>
#include <inttypes.h>

#include "core/base/limits.h"
#include "core/io/io.h"
#include "core/ocdbt/ocdbt.h"
#include "tests/filters/tool.h"

static int cmd_text(char **args, struct buf *out)
{
	uint64_t off = strtoull(args[1], NULL, 10), len = strtoull(args[2], NULL, 10);
	auto_buf file = { 0 };
	int r = tool_read_file(args[0], &file);

	if (r < 0)
		return r;
	if (off > file.n || len > file.n - off)
		return fail(-EINVAL, "the file has %zu bytes", file.n);
	return ocdbt_record_text(out, span_of(file.p + off, len ? len : file.n - off));
}

static int cmd_undump(char **args, struct buf *out)
{
	auto_buf text = { 0 };
	int r = tool_read_file("-", &text);

	return r < 0 ? r : ocdbt_record_undump(buf_span(&text), out);
}

/* ---- exact ---- */

struct exact {
	struct io_dir *dir;
	struct buf *out;
	uint64_t same, other;
};

static int read_ref(struct exact *x, const struct ocdbt_ref *ref, struct buf *ret)
{
	auto_of(io_file) struct io_file *file = NULL;
	auto_buf path = { 0 };
	int r = buf_add_span(&path, ref->base);

	if (r >= 0)
		r = buf_add_span(&path, ref->rel);
	if (r >= 0)
		r = io_file_open(x->dir, buf_str(&path), O_RDONLY, 0, &file);
	if (r >= 0)
		r = buf_reserve(ret, ref->len);
	if (r >= 0)
		r = io_read_exact(file, ret->p, ref->len, ref->off);
	if (r >= 0)
		ret->n = ref->len;
	return r;
}

static int compare(struct exact *x, struct span stored, struct span packed, const char *what)
{
	if (span_eq(stored, packed)) {
		x->same++;
		return 0;
	}
	x->other++;
	return buf_addf(x->out, "a %s differs\n", what);
}

/* Without its base in front, a record packs to what it was; with it, children are found. */
static int exact_node(struct exact *x, const struct ocdbt_ref *ref)
{
	auto_of(ocdbt_node) struct ocdbt_node *bare = NULL, *node = NULL;
	auto_buf stored = { 0 }, packed = { 0 };
	int r = read_ref(x, ref, &stored);

	if (r >= 0)
		r = ocdbt_node_parse(buf_span(&stored), span_of(NULL, 0), &bare);
	if (r >= 0)
		r = ocdbt_node_parse(buf_span(&stored), ref->base, &node);
	if (r >= 0)
		r = ocdbt_node_pack(bare, NULL, &packed);
	if (r >= 0)
		r = compare(x, buf_span(&stored), buf_span(&packed), "B+tree node");
	for (uint32_t i = 0; r >= 0 && i < node->n && node->height; i++) {
		struct ocdbt_child c;

		ocdbt_node_child(node, i, &c);
		r = exact_node(x, &c.ref);
	}
	return r;
}

static int exact_version(void *arg, const struct ocdbt_version *v)
{
	return ocdbt_version_is_empty(v) ? 0 : exact_node(arg, &v->root);
}

static int exact_vnode(struct exact *x, const struct ocdbt_ref *ref)
{
	auto_vnode v = { 0 };
	auto_buf stored = { 0 }, packed = { 0 };
	int r = read_ref(x, ref, &stored);

	if (r >= 0)
		r = ocdbt_vnode_parse(buf_span(&stored), span_of(NULL, 0), &v);
	if (r >= 0)
		r = ocdbt_vnode_pack(&v, NULL, &packed);
	if (r >= 0)
		r = compare(x, buf_span(&stored), buf_span(&packed), "version node");
	for (size_t i = 0; i < v.n && v.height && r >= 0; i++)
		r = exact_vnode(x, &v.children[i].node);
	return r;
}

static int exact_all(struct exact *x, struct ocdbt *db)
{
	const struct ocdbt_manifest *m = ocdbt_db_manifest(db);
	auto_buf stored = { 0 }, packed = { 0 };
	int r = io_read_file(x->dir, ocdbt_db_manifest_name(db), LIMIT_MANIFEST_BYTES, &stored);

	if (r >= 0)
		r = ocdbt_manifest_pack(m, NULL, &packed);
	if (r >= 0)
		r = compare(x, buf_span(&stored), buf_span(&packed), "manifest");
	for (size_t i = 0; i < m->n_nodes && r >= 0; i++)
		r = exact_vnode(x, &m->nodes[i].node);
	return r < 0 ? r : ocdbt_each_version(db, exact_version, x);
}

static int cmd_exact(char **args, struct buf *out)
{
	struct exact x = { .out = out };
	auto_of(ocdbt) struct ocdbt *db = NULL;
	struct io_engine *io = NULL;
	struct io_dir *dir = NULL;
	int r = io_engine_open("sync", &io);

	if (r >= 0)
		r = io_dir_open(io, args[0], &dir);
	if (r >= 0)
		r = io_dir_sub(dir, ".", &x.dir);
	if (r >= 0)
		r = ocdbt_db_open(dir, NULL, &db);
	if (r >= 0)
		dir = NULL; /* taken */
	if (r >= 0)
		r = exact_all(&x, db);
	if (r >= 0)
		r = buf_addf(out, "same %" PRIu64 " other %" PRIu64 "\n", x.same, x.other);
	ocdbt_db_close(take(db));
	io_dir_close(x.dir);
	io_dir_close(dir);
	io_engine_close(io);
	return r;
}

int main(int argc, char **argv)
{
	static const struct tool_cmd cmds[] = {
		{ "text", 3, cmd_text },
		{ "undump", 0, cmd_undump },
		{ "exact", 1, cmd_exact },
	};

	return tool_main(cmds, ARRAY_LEN(cmds), argc, argv);
}
