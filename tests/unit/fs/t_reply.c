/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_reply.c - replies that the kernel gets: exactly one for each request, with its error or all its
 * bytes, and the references of nodes and files when the caller is gone.
 *
 * This program takes the place of the kernel: it passes requests to a session of libfuse, which
 * writes into memory. The function that a test chooses answers a GETATTR.
 */
#include "tests/unit/lib/unit.h"

#include "tests/unit/lib/tmp_dir.h"

#include <linux/fuse.h>

#include "core/base/blocks.h"
#include "core/base/log.h"
#include "fs/fs.h"

#define UNIQUE 77
#define PAGE 4096

static char root[TMP_DIR_MAX], data_path[TMP_DIR_MAX + 8];
static struct options options;
static struct fs fs = { .options = &options, .ready_fd = -1 };
static uint8_t data[64 * PAGE]; /* of the file at data_path */

/* The last reply to the kernel. */
static uint8_t got[1 << 20];
static size_t got_n;
static unsigned replies, spliced;
static bool caller_is_gone;

static ssize_t take_reply(int fd, struct iovec *iov, int n, void *userdata)
{
	replies++;
	got_n = 0;
	for (int i = 0; i < n; i++) {
		assert_true(got_n + iov[i].iov_len <= sizeof(got));
		memcpy(got + got_n, iov[i].iov_base, iov[i].iov_len);
		got_n += iov[i].iov_len;
	}
	if (!caller_is_gone)
		return (ssize_t)got_n;
	errno = ENOENT;
	return -1;
}

static ssize_t take_pipe(int from, off_t *from_off, int to, off_t *to_off, size_t n, unsigned flags,
			 void *userdata)
{
	uint8_t *p = malloc(n);
	struct iovec all = { p, 0 };
	ssize_t r;

	while (all.iov_len < n && (r = read(from, p + all.iov_len, n - all.iov_len)) > 0)
		all.iov_len += (size_t)r;
	r = take_reply(to, &all, 1, userdata);
	spliced++;
	free(p);
	return r;
}

static ssize_t no_request(int fd, void *buf, size_t n, void *userdata)
{
	return 0;
}

static void (*answer)(fuse_req_t req);

static void answer_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	answer(req);
}

static void init(void *userdata, struct fuse_conn_info *conn)
{
	conn->want |= conn->capable & (FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
}

static void send_request(uint32_t opcode, const void *body, size_t n)
{
	struct {
		struct fuse_in_header h;
		uint8_t body[128];
	} request = { .h = { .len = (uint32_t)(sizeof(request.h) + n),
			     .opcode = opcode,
			     .unique = UNIQUE,
			     .nodeid = FUSE_ROOT_ID } };
	struct fuse_buf buf = { .size = request.h.len, .mem = &request };

	memcpy(request.body, body, n);
	replies = 0;
	fuse_session_process_buf(fs.se, &buf);
}

static int setup(void **state)
{
	static const struct fuse_lowlevel_ops ops = { .init = init, .getattr = answer_getattr };
	static const struct fuse_custom_io kernel = { .read = no_request,
						      .writev = take_reply,
						      .splice_send = take_pipe };
	struct fuse_init_in in = { .major = FUSE_KERNEL_VERSION,
				   .minor = FUSE_KERNEL_MINOR_VERSION,
				   .max_readahead = 1 << 20 };
	char *argv[] = { (char[]){ "t_reply" }, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	int fd;

	assert_int_equal(tmp_dir_make(root, "t_reply"), 0);
	snprintf(data_path, sizeof(data_path), "%s/data", root);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + i / 251);
	fd = open(data_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, data, sizeof(data)), sizeof(data));
	close(fd);
	assert_int_equal(options_init(&options), 0);
	assert_int_equal(option_set(&options, "io=sync", false), 0);
	assert_int_equal(option_set(&options, "shape=root", false), 0);
	assert_int_equal(ns_open(root, &options, &fs.ns), 0);
	fs.se = fuse_session_new(&args, &ops, sizeof(ops), &fs);
	assert_non_null(fs.se);
	fuse_opt_free_args(&args);
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_int_equal(fuse_session_custom_io(fs.se, &kernel, fd), 0);
	send_request(FUSE_INIT, &in, sizeof(in));
	assert_int_equal(replies, 1);
	return 0;
}

static int teardown(void **state)
{
	fuse_session_destroy(fs.se);
	ns_close(fs.ns);
	options_release(&options);
	return tmp_dir_remove(root);
}

/* Returns the errno of the single reply to a request; the rest of the reply is in `got`. */
static int asked(void (*how)(fuse_req_t req))
{
	static const struct fuse_getattr_in in;
	const struct fuse_out_header *h = (const void *)got;

	answer = how;
	send_request(FUSE_GETATTR, &in, sizeof(in));
	assert_int_equal(replies, 1);
	assert_int_equal(h->len, got_n);
	assert_int_equal(h->unique, UNIQUE);
	/* A note must not explain the failure of the next request. */
	assert_string_equal(unit_last_note(), "without a note");
	return -h->error;
}

static const uint8_t *body(void)
{
	return got + sizeof(struct fuse_out_header);
}

static size_t body_n(void)
{
	return got_n - sizeof(struct fuse_out_header);
}

/* ---- failures ---- */

static const struct failure {
	int code;
	const char *op;
	bool noted;
	int wanted;
	bool logged;
} failures[] = {
	{ 0, "close", false, 0, false },
	{ -EIO, "read", true, EIO, true },
	{ -EIO, "read", false, EIO, true },
	{ -EUCLEAN, "read", true, EIO, true }, /* broken bytes */
	{ -EBADMSG, "open", true, EIO, true }, /* a checksum */
	{ -EFBIG, "read", true, EIO, true },   /* a limit that a sound checkpoint does not exceed */
	{ -EFBIG, "stat", true, EIO, true },
	{ -EFBIG, "write", true, EFBIG, true }, /* the program's own fault */
	{ -EFBIG, "make a directory in", true, EFBIG, true },
	{ -ENOENT, "look up", false, ENOENT, false }, /* part of ordinary life */
	{ -ENOENT, "look up", true, ENOENT, true },   /* there is a reason to tell */
	{ -EROFS, "write", false, EROFS, false },
	{ -EROFS, "write", true, EROFS, true },
	{ -ENODATA, "read an attribute of", true, ENODATA, false },
	{ -ERANGE, "read an attribute of", false, ERANGE, false },
	{ -EINTR, "read", true, EINTR, false },
};
static const struct failure *failing;

static void fail_so(fuse_req_t req)
{
	int r = failing->code;

	if (failing->noted)
		fail(r, "the reason");
	reply_code(req, r, failing->op, fs.ns->root);
}

static void a_failure_is_one_errno_and_one_line(void **state)
{
	char path[TMP_DIR_MAX + 8], text[512];

	snprintf(path, sizeof(path), "%s/log", root);
	for (size_t i = 0; i < ARRAY_LEN(failures); i++) {
		size_t n;
		FILE *log;

		failing = &failures[i];
		assert_int_equal(log_open(false, false, path), 0);
		assert_int_equal(asked(fail_so), failing->wanted);
		assert_int_equal(log_open(true, false, NULL), 0);
		log = fopen(path, "re");
		n = log ? fread(text, 1, sizeof(text) - 1, log) : 0;
		text[n] = '\0';
		if (log)
			fclose(log);
		unlink(path);
		if ((n > 0) != failing->logged ||
		    (failing->logged && failing->noted && !strstr(text, "the reason")) ||
		    (failing->logged && !strstr(text, failing->op)))
			fail_msg("case %zu logs '%s'", i, text);
	}
}

/* ---- bytes ---- */

static struct span attribute = { .p = (const uint8_t *)"value", .n = 5 };
static size_t room;

static void give_attribute(fuse_req_t req)
{
	fail(-ENOENT, "an attempt before that failed");
	reply_xattr(req, attribute, room);
}

static void an_attribute_is_its_size_its_bytes_or_an_error(void **state)
{
	room = 0;
	assert_int_equal(asked(give_attribute), 0);
	assert_int_equal(((const struct fuse_getxattr_out *)body())->size, 5);
	room = 4;
	assert_int_equal(asked(give_attribute), ERANGE);
	room = 5;
	assert_int_equal(asked(give_attribute), 0);
	assert_int_equal(body_n(), 5);
	assert_memory_equal(body(), "value", 5);
}

/* Segments: from, bytes; of memory, zeros or the file. */
struct part {
	enum { MEM, ZERO, FROM_FILE } what;
	size_t at, n;
};
static const struct part *parts;
static unsigned n_parts, repeat;

static void give_parts(fuse_req_t req)
{
	struct io_dir *dir;
	struct io_file *file;
	struct segments g;

	assert_int_equal(io_dir_open(fs.ns->ckpt->io, root, &dir), 0);
	assert_int_equal(io_file_open(dir, "data", O_RDONLY, 0, &file), 0);
	segments_init(&g, fs.ns->ckpt->cache);
	for (unsigned i = 0; i < n_parts * repeat; i++) {
		const struct part *p = &parts[i % n_parts];

		segments_fence(&g);
		if (p->what == MEM)
			assert_int_equal(segments_add_copy(&g, data + p->at, p->n), 0);
		else if (p->what == ZERO)
			assert_int_equal(segments_add_zero(&g, p->n), 0);
		else
			assert_int_equal(segments_add_file(&g, io_file_ref(file), p->at, p->n), 0);
	}
	reply_segments(req, &g, fs.ns->root);
	segments_release(&g);
	io_file_unref(file);
	io_dir_close(dir);
}

static void assert_parts(void)
{
	size_t at = 0;

	assert_int_equal(asked(give_parts), 0);
	for (unsigned i = 0; i < n_parts * repeat; i++) {
		const struct part *p = &parts[i % n_parts];

		assert_true(at + p->n <= body_n());
		for (size_t j = 0; j < p->n; j++)
			assert_int_equal(body()[at + j], p->what == ZERO ? 0 : data[p->at + j]);
		at += p->n;
	}
	assert_int_equal(body_n(), at);
}

static void all_bytes_come_whichever_way_they_are_sent(void **state)
{
	static const struct {
		unsigned n, repeat;
		struct part part[4];
	} cases[] = {
		{ 0, 0, { { MEM, 0, 0 } } }, /* the end of the file */
		{ 1, 1, { { MEM, 100, 1000 } } },
		{ 3, 1, { { MEM, 0, 5 }, { ZERO, 0, 70 }, { MEM, 9, 1 } } },
		{ 2, 128, { { MEM, 3, 5 }, { ZERO, 0, 2 } } }, /* 256 pieces */
		{ 2, 129, { { MEM, 3, 5 }, { ZERO, 0, 2 } } }, /* more: copied into one */
		{ 1, 1, { { FROM_FILE, 0, 100 } } },           /* too small for a pipe */
		{ 1, 1, { { FROM_FILE, 0, 40 * PAGE } } },
		{ 1, 1, { { FROM_FILE, 123, 40 * PAGE } } },
		{ 3, 1, { { MEM, 7, 300 }, { FROM_FILE, PAGE, 9 * PAGE }, { ZERO, 0, 50 } } },
		{ 2, 90, { { MEM, 7, 3 }, { FROM_FILE, 4000, 200 } } }, /* too many for a pipe */
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		parts = cases[i].part;
		n_parts = cases[i].n;
		repeat = cases[i].repeat;
		/* Once more: the pipe of the thread is as it was. */
		assert_parts();
		assert_parts();
	}
	/* Large ranges of files, each twice: without a copy. */
	assert_int_equal(spliced, 6);
}

/* A short reply would look like the end of the file. */
static void a_file_that_was_truncated_meanwhile_is_an_error(void **state)
{
	static const struct part part = { FROM_FILE, 32 * PAGE, 32 * PAGE };
	static const struct part sound = { FROM_FILE, 0, 32 * PAGE };

	parts = &part;
	n_parts = repeat = 1;
	assert_int_equal(truncate(data_path, 40 * PAGE), 0);
	assert_int_equal(asked(give_parts), EIO);
	assert_int_equal(body_n(), 0);
	parts = &sound;
	assert_parts();
}

/* ---- replies that the caller does not take ---- */

static struct node *draft;
static bool taken;

static void give_entry(fuse_req_t req)
{
	reply_entry(req, node_ref(draft), "look up");
}

static void give_created(fuse_req_t req)
{
	static const struct fuse_file_info fi;

	taken = reply_create(req, node_ref(draft), &fi);
}

static void give_open(fuse_req_t req)
{
	static const struct fuse_file_info fi;

	taken = reply_open(req, &fi);
}

static void a_reply_that_nobody_takes_counts_for_nothing(void **state)
{
	const struct fuse_entry_out *entry = (const void *)body();
	uint64_t refs;

	assert_int_equal(node_mkdir(fs.ns->root, span_str("7.tmp"), 0777, &draft), 0);
	refs = draft->refs;
	assert_int_equal(asked(give_entry), 0);
	assert_int_equal(entry->nodeid, (uintptr_t)draft);
	assert_int_equal(draft->refs, refs + 1);
	node_unref(draft, 1);
	asked(give_open);
	assert_true(taken);
	caller_is_gone = true;
	asked(give_entry);
	assert_int_equal(draft->refs, refs);
	asked(give_created);
	assert_false(taken);
	assert_int_equal(draft->refs, refs);
	asked(give_open);
	assert_false(taken);
	caller_is_gone = false;
	asked(give_created);
	assert_true(taken);
	assert_int_equal(draft->refs, refs + 1);
	node_unref(draft, 2);
}

/* A step that was deleted, but is still held by the kernel. */
static void give_attributes(fuse_req_t req)
{
	reply_attr(req, draft, "stat");
}

static void a_node_that_cannot_be_described_is_released(void **state)
{
	uint64_t refs;

	assert_int_equal(node_mkdir(fs.ns->root, span_str("8.tmp"), 0777, &draft), 0);
	assert_int_equal(node_rmdir(fs.ns->root, span_str("8.tmp")), 0);
	refs = draft->refs;
	assert_int_equal(asked(give_attributes), ESTALE);
	assert_int_equal(asked(give_entry), ESTALE);
	assert_int_equal(asked(give_created), ESTALE);
	assert_false(taken);
	assert_int_equal(draft->refs, refs);
	node_unref(draft, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_failure_is_one_errno_and_one_line),
		cmocka_unit_test(an_attribute_is_its_size_its_bytes_or_an_error),
		cmocka_unit_test(all_bytes_come_whichever_way_they_are_sent),
		cmocka_unit_test(a_file_that_was_truncated_meanwhile_is_an_error),
		cmocka_unit_test(a_reply_that_nobody_takes_counts_for_nothing),
		cmocka_unit_test(a_node_that_cannot_be_described_is_released),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
