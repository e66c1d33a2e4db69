/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta_tool.c - the other files of an item from the command line, for the interop tests.
 */
#include <inttypes.h>

#include "core/tree/array_metadata.h"
#include "core/tree/sharding.h"
#include "core/tree/strings.h"
#include "tests/filters/tool.h"

/* FILE PARAM: the text. */
static int string(char **args, struct buf *out)
{
	auto_of(strings) struct strings *s = NULL;
	const struct strings_entry *e;
	auto_buf in = { 0 };
	int r = tool_read_file(args[0], &in);

	if (r >= 0)
		r = strings_parse(buf_span(&in), args[0], &s);
	if (r < 0)
		return r;
	e = strings_find(s, span_str(args[1]));
	if (!e)
		return fail(-ENOENT, "no string '%s'", args[1]);
	return strings_text(span_of(in.p + e->off, e->len), args[0], out);
}

/* FILE of name NUL text NUL ...: the document. */
static int strings_document(char **args, struct buf *out)
{
	struct strings_pair pairs[256];
	auto_buf in = { 0 };
	size_t n = 0;
	int r = tool_read_file(args[0], &in);

	for (size_t at = 0; r >= 0 && at < in.n && n < ARRAY_LEN(pairs); n++)
		for (int i = 0; i < 2; i++) {
			struct span s = span_of(in.p + at, strnlen((char *)in.p + at, in.n - at));

			*(i ? &pairs[n].text : &pairs[n].name) = s;
			at += s.n + 1;
		}
	return r < 0 ? r : strings_print(pairs, n, out);
}

static int read_shardings(const char *path, struct shardings **ret)
{
	auto_buf in = { 0 };
	int r = tool_read_file(path, &in);

	return r < 0 ? r : shardings_parse(buf_span(&in), path, ret);
}

/* FILE: every sharding taken apart and printed again, and the file around them. */
static int sharding_again(char **args, struct buf *out)
{
	auto_of(shardings) struct shardings *all = NULL;
	auto_free struct sharding_entry *again = NULL;
	auto_free struct buf *texts = NULL;
	int r = read_shardings(args[0], &all);

	if (r < 0)
		return r;
	again = calloc(all->n + 1, sizeof(*again));
	texts = calloc(all->n + 1, sizeof(*texts));
	for (size_t i = 0; i < all->n && r >= 0; i++) {
		auto_of(sharding) struct sharding *s = NULL;

		r = sharding_parse(all->entries[i].text, "sharding", &s);
		if (r >= 0)
			r = sharding_print(s, &texts[i]);
		again[i] = (struct sharding_entry){ all->entries[i].param, buf_span(&texts[i]) };
	}
	if (r >= 0)
		r = shardings_print(again, all->n, out);
	for (size_t i = 0; i < all->n; i++)
		buf_release(&texts[i]);
	return r;
}

/* FILE PARAM SHAPE ("8x4", "-" for rank 0): one line per device, "id replica start:stop ...". */
static int boxes(char **args, struct buf *out)
{
	auto_of(shardings) struct shardings *all = NULL;
	auto_of(sharding) struct sharding *s = NULL;
	uint64_t shape[LIMIT_RANK];
	struct sharding_box box;
	struct span text;
	unsigned rank = 0;
	int r = read_shardings(args[0], &all);

	for (char *p = args[2]; *p && *p != '-'; p += *p == 'x')
		shape[rank++] = strtoull(p, &p, 10);
	if (r >= 0 && !shardings_find(all, span_str(args[1]), &text))
		r = fail(-ENOENT, "no sharding '%s'", args[1]);
	if (r >= 0)
		r = sharding_parse(text, args[1], &s);
	if (r >= 0)
		r = sharding_check(s, shape, rank);
	for (uint64_t i = 0; r >= 0 && i < s->n_devices; i++) {
		sharding_box(s, shape, rank, i, &box);
		r = buf_addf(out, "%" PRId64 " %" PRIu64, box.device, box.replica);
		for (unsigned d = 0; d < rank && r >= 0; d++)
			r = buf_addf(out, " %" PRIu64 ":%" PRIu64, box.start[d], box.stop[d]);
		if (r >= 0)
			r = buf_add_byte(out, '\n');
	}
	return r;
}

/* FILE: printed again. */
static int arrays(char **args, struct buf *out)
{
	auto_of(array_metadatas) struct array_metadatas *a = NULL;
	auto_buf in = { 0 };
	int r = tool_read_file(args[0], &in);

	if (r >= 0)
		r = array_metadatas_parse(buf_span(&in), args[0], &a);
	return r < 0 ? r : array_metadatas_print(a->entries, a->n, out);
}

/* FILE PARAM: the key implementation, and the ext_metadata that we would write for it. */
static int key(char **args, struct buf *out)
{
	auto_of(array_metadatas) struct array_metadatas *a = NULL;
	const struct array_metadata *e;
	auto_buf in = { 0 };
	int r = tool_read_file(args[0], &in);

	if (r >= 0)
		r = array_metadatas_parse(buf_span(&in), args[0], &a);
	if (r < 0)
		return r;
	e = array_metadatas_find(a, span_str(args[1]));
	if (!e || !e->key_impl.p)
		return fail(-ENOENT, "'%s' is not a PRNG key", args[1]);
	r = buf_addf(out, "%.*s ", SPAN_ARG(e->key_impl));
	return r < 0 ? r : array_metadata_key_ext(e->key_impl, out);
}

int main(int argc, char **argv)
{
	static const struct tool_cmd cmds[] = {
		{ "string", 2, string },           { "strings", 1, strings_document },
		{ "sharding", 1, sharding_again }, { "boxes", 3, boxes },
		{ "arrays", 1, arrays },           { "key", 2, key },
	};

	return tool_main(cmds, ARRAY_LEN(cmds), argc, argv);
}
