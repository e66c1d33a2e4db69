/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_tool.c - objects of a bucket from the command line: put, put-new and upload take the bytes
 * of FILE, in pieces of PIECE bytes and within BUDGET; leave begins an upload and does not end it.
 */
#include "core/io/io_store.h"
#include "core/store/store_write.h"
#include "core/store/url_store.h"
#include "tests/filters/tool.h"

static int open_url(const char *url, struct io_store **ret)
{
	const struct url_store_opts opts = { .writes = true, .listing_ms = 1 };

	return store_open(url, &opts, ret);
}

static int put(char **args, bool only_new)
{
	struct io_store *s;
	auto_buf in = { 0 };
	int r = open_url(args[0], &s);

	if (r < 0)
		return r;
	r = tool_read_file(args[2], &in);
	if (r >= 0)
		r = store_put(s, args[1], buf_span(&in), only_new);
	s->ops->free(s);
	return r;
}

static int put_any(char **args, struct buf *out)
{
	return put(args, false);
}

static int put_new(char **args, struct buf *out)
{
	return put(args, true);
}

static int send_pieces(struct store_upload *u, struct span bytes, size_t piece, bool to_the_end)
{
	int r = 0;

	for (size_t at = 0; at < bytes.n && r >= 0; at += piece)
		r = store_upload_add(u, span_of(bytes.p + at, MIN(piece, bytes.n - at)));
	return r < 0 || !to_the_end ? r : store_upload_end(u);
}

static int upload_file(char **args, struct buf *out)
{
	auto_of(store_upload) struct store_upload *u = NULL;
	struct io_store *s;
	struct budget budget;
	auto_buf in = { 0 };
	int r = open_url(args[0], &s);

	if (r < 0)
		return r;
	budget_init(&budget, "write_budget", strtoull(args[4], NULL, 10));
	r = tool_read_file(args[2], &in);
	if (r >= 0)
		r = store_upload_begin(s, args[1], &budget, &u);
	if (r >= 0)
		r = send_pieces(u, buf_span(&in), strtoul(args[3], NULL, 10), !args[5]);
	/* As a program that is killed. */
	if (r >= 0 && args[5])
		_exit(0);
	store_upload_free(take(u));
	if (r >= 0)
		r = buf_addf(out, "%llu\n", (unsigned long long)budget_peak(&budget));
	budget_release(&budget);
	s->ops->free(s);
	return r;
}

static int remove_all(char **args, struct buf *out)
{
	struct io_store *s;
	size_t n = 0;
	int r = open_url(args[0], &s);

	if (r < 0)
		return r;
	while (args[1 + n])
		n++;
	r = store_remove(s, (const char *const *)(args + 1), n);
	s->ops->free(s);
	return r;
}

static int remove_uploads(char **args, struct buf *out)
{
	struct io_store *s;
	int r = open_url(args[0], &s);

	if (r < 0)
		return r;
	r = store_remove_uploads(s, args[1]);
	s->ops->free(s);
	return r;
}

static const struct tool_cmd cmds[] = {
	{ "put", 3, put_any },        { "put-new", 3, put_new },
	{ "upload", 5, upload_file }, /* URL PATH FILE PIECE BUDGET [leave] */
	{ "remove", 1, remove_all },  { "remove-uploads", 2, remove_uploads },
};

int main(int argc, char **argv)
{
	return tool_main(cmds, sizeof(cmds) / sizeof(cmds[0]), argc, argv);
}
