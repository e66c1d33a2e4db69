/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_tool.c - objects of a bucket from the command line: put, put-new and leave take the bytes
 * of FILE; leave begins an upload and does not end it; upload sends the file DIR/PATH within
 * BUDGET, as its WORDs say, and prints how much of the budget it took. replace puts FILE, and then
 * the second one, on the condition that the object is the one that was there before both.
 */
#include <fcntl.h>

#include "core/base/err.h"
#include "core/io/io_store.h"
#include "core/remote/upload/file_sender.h"
#include "core/remote/upload/step_upload.h"
#include "core/remote/source/url_store.h"
#include "tests/filters/tool.h"

static int open_url(const char *url, struct io_store **ret)
{
	const struct url_store_opts opts = { .writes = true, .listing_ms = 1 };

	return store_open(url, &opts, ret);
}

static int put(char **args, const char *if_tag)
{
	struct io_store *s;
	auto_buf in = { 0 };
	int r = open_url(args[0], &s);

	if (r < 0)
		return r;
	r = tool_read_file(args[2], &in);
	if (r >= 0)
		r = store_put(s, args[1], buf_span(&in), if_tag, NULL);
	s->ops->free(s);
	return r;
}

static int put_any(char **args, struct buf *out)
{
	return put(args, NULL);
}

static int put_new(char **args, struct buf *out)
{
	return put(args, STORE_IF_ABSENT);
}

/* As a program that is killed: full parts are sent, and the upload is not ended. */
static int leave(char **args, struct buf *out)
{
	struct store_upload *u;
	struct io_store *s;
	auto_buf in = { 0 };
	size_t at = 0;
	int r = open_url(args[0], &s);

	if (r >= 0)
		r = tool_read_file(args[2], &in);
	if (r >= 0)
		r = store_upload_begin(s, args[1], 0, &u);
	for (unsigned number = 1; r >= 0; number++) {
		size_t n = store_upload_part_bytes(u, number);

		if (at + n > in.n)
			break;
		r = store_upload_part(u, number, at, span_of(in.p + at, n), false);
		at += n;
	}
	if (r >= 0)
		_exit(0);
	return r;
}

/* ---- files ---- */

struct sending {
	struct file_sender *sender;
	struct sent_file *file;
	struct io_file *from;
	struct io_dir *dir;
	const char *path;
};

/* "grew:N", "cut:N", "closed", "wait", "add", "drop" */
static int do_word(struct sending *s, const char *word)
{
	uint64_t n = strchr(word, ':') ? strtoull(strchr(word, ':') + 1, NULL, 10) : 0;
	int r = 0;

	if (!strncmp(word, "grew", 4))
		file_sender_grew(s->sender, &s->file, s->path, s->from, n);
	else if (!strncmp(word, "cut", 3))
		file_sender_cut(s->sender, s->file, n);
	else if (!strcmp(word, "closed"))
		file_sender_closed(s->sender, s->file);
	else if (!strcmp(word, "wait"))
		r = file_sender_wait(s->sender, NULL, NULL);
	else if (!strcmp(word, "add"))
		r = file_sender_add(s->sender, s->dir, s->path, false);
	else if (!strcmp(word, "drop"))
		r = file_sender_drop_others(s->sender);
	else
		r = fail(-EINVAL, "'%s' is not a word", word);
	return r;
}

static int send_file(char **args, struct io_store *store, struct budget *budget)
{
	struct sending s = { .path = args[1] };
	struct io_engine *io = NULL;
	int r = file_sender_new(store, budget, &s.sender);

	if (r >= 0)
		r = io_engine_open("auto", &io);
	if (r >= 0)
		r = io_dir_open(io, args[2], &s.dir);
	if (r >= 0)
		r = io_file_open(s.dir, s.path, O_RDONLY, 0, &s.from);
	for (size_t i = 4; r >= 0 && args[i]; i++)
		r = do_word(&s, args[i]);
	if (s.sender)
		file_sender_end(s.sender);
	file_sender_unref(s.sender);
	io_file_unref(s.from);
	io_dir_close(s.dir);
	io_engine_close(io);
	return r;
}

static int upload_file(char **args, struct buf *out)
{
	struct io_store *s;
	struct budget budget;
	int r = open_url(args[0], &s);

	if (r < 0)
		return r;
	budget_init(&budget, "write_budget", strtoull(args[3], NULL, 10));
	r = send_file(args, s, &budget);
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

/* Hold the claim of URL/STEP, renewed every MS milliseconds, until standard input ends. */
static int hold(char **args, struct buf *out)
{
	const struct url_store_opts opts = { .claim_renew_ms =
						     (unsigned)strtoul(args[2], NULL, 10) };
	auto_free char *url = str_fmt("%s/%s", args[0], args[1]);
	struct step_upload *u;
	struct budget budget;
	int r;

	budget_init(&budget, "write_budget", 1 << 20);
	r = url ? step_upload_begin(url, &opts, &budget, &u) : -ENOMEM;
	if (r >= 0) {
		puts("held");
		fflush(stdout);
		while (getchar() != EOF)
			;
		step_upload_free(u);
	}
	budget_release(&budget);
	return r;
}

static int replace(char **args, struct buf *out)
{
	struct io_store *s;
	char tag[STORE_TAG_MAX];
	auto_buf there = { 0 }, first = { 0 }, second = { 0 };
	int r = open_url(args[0], &s);

	if (r < 0)
		return r;
	r = store_get(s, args[1], 1 << 20, &there, tag);
	if (r >= 0)
		r = tool_read_file(args[2], &first);
	if (r >= 0)
		r = store_put(s, args[1], buf_span(&first), tag, NULL);
	if (r >= 0 && args[3]) {
		r = tool_read_file(args[3], &second);
		if (r >= 0)
			r = store_put(s, args[1], buf_span(&second), tag, NULL);
	}
	s->ops->free(s);
	return r;
}

static const struct tool_cmd cmds[] = {
	{ "hold", 3, hold },
	{ "replace", 3, replace },
	{ "put", 3, put_any },
	{ "put-new", 3, put_new },
	{ "upload", 4, upload_file }, /* URL PATH DIR BUDGET WORD... */
	{ "leave", 3, leave },
	{ "remove", 1, remove_all },
	{ "remove-uploads", 2, remove_uploads },
};

int main(int argc, char **argv)
{
	return tool_main(cmds, sizeof(cmds) / sizeof(cmds[0]), argc, argv);
}
