/* SPDX-License-Identifier: Apache-2.0 */
/*
 * web_headers.c - reads, checks and adds the headers of http_headers=FILE.
 */
#include "core/remote/web/web_headers.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/remote/transport/secret.h"

#define FILE_MAX (64 * 1024)

struct web_headers {
	char *path, *dir;
	pthread_mutex_t lock; /* protects what follows */
	struct buf lines;     /* "Name: value", each with a NUL after it */
	struct stat read;     /* of the file that was read last */
};

/* ---- the text ---- */

/* Headers by which a request asks for its range; the server would give other bytes. */
static const char *reserved(struct span name)
{
	static const char *const names[] = {
		"Accept-Encoding", "Connection", "Content-Length",      "Expect",
		"If-Match",        "If-Range",   "If-Modified-Since",   "If-None-Match",
		"Range",           "TE",         "If-Unmodified-Since", "Transfer-Encoding",
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strlen(names[i]) == name.n &&
		    !strncasecmp(names[i], (const char *)name.p, name.n))
			return names[i];
	return NULL;
}

static bool is_name(struct span s)
{
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] <= ' ' || s.p[i] >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", s.p[i]))
			return false;
	return s.n > 0;
}

static bool is_value(struct span s)
{
	for (size_t i = 0; i < s.n; i++)
		if ((s.p[i] < ' ' && s.p[i] != '\t') || s.p[i] == 0x7f)
			return false;
	return s.n > 0;
}

static struct span web_headers_trim(struct span s)
{
	while (s.n && strchr(" \t\r", s.p[s.n - 1]))
		s.n--;
	while (s.n && strchr(" \t", *s.p))
		s = span_of(s.p + 1, s.n - 1);
	return s;
}

static int add_line(struct buf *ret, struct span line, const char *path, size_t number)
{
	const uint8_t *colon = line.n ? memchr(line.p, ':', line.n) : NULL;
	struct span name = span_of(line.p, colon ? (size_t)(colon - line.p) : 0);
	struct span value = colon ? web_headers_trim(span_of(colon + 1, line.n - name.n - 1)) :
				    name;
	int r;

	if (!line.n || *line.p == '#')
		return 0;
	/* The line itself may be the secret, without its name. */
	if (!is_name(name) || !is_value(value))
		return fail(-EINVAL, "'%s', line %zu, is not 'Name: value'", path, number);
	if (reserved(name))
		return fail(-EINVAL, "'%s', line %zu: pytreefs itself sets the header %s", path,
			    number, reserved(name));
	r = buf_addf(ret, "%.*s: %.*s", SPAN_ARG(name), SPAN_ARG(value));
	return r < 0 ? r : buf_add_byte(ret, '\0');
}

static int web_headers_parse(struct span text, const char *path, struct buf *ret)
{
	int r = 0;

	/* Once: a buffer that grows would leave copies. */
	if (buf_reserve(ret, 2 * text.n + 2) < 0)
		return fail(-ENOMEM, "cannot read '%s'", path);
	for (size_t number = 1; text.n && r >= 0; number++) {
		const uint8_t *end = memchr(text.p, '\n', text.n);
		size_t n = end ? (size_t)(end - text.p) : text.n;

		r = add_line(ret, web_headers_trim(span_of(text.p, n)), path, number);
		n += end != NULL;
		text = span_of(text.p + n, text.n - n);
	}
	if (r < 0)
		return r;
	if (!ret->n)
		return fail(-EINVAL, "'%s' has no header: a line is 'Name: value'", path);
	return r;
}

/* ---- the file ---- */

static int web_headers_read_file(const char *path, int flags, struct buf *ret, struct stat *st)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | flags);
	auto_secret text = { 0 };
	int r;

	/* The caller may have given the headers themselves, which belong in no message. */
	if (fd < 0 && (errno == ENOENT || errno == ENAMETOOLONG) && strpbrk(path, ":{\n"))
		return fail(-ENOENT, "it is the name of a file of headers, not a header");
	if (fd < 0)
		return err_sys("cannot open", path);
	if (fstat(fd, st) < 0)
		return err_sys("cannot look up", path);
	if (st->st_mode & S_IRWXO)
		return fail(
			-EACCES,
			"'%s' is open to all users (mode %04o), and may have secrets: chmod o= of "
			"it",
			path, (unsigned)st->st_mode & 07777u);
	r = secret_read_fd(fd, path, FILE_MAX, &text);
	return r < 0 ? r : web_headers_parse(buf_span(&text), path, ret);
}

void web_headers_refresh(struct web_headers *w)
{
	auto_secret lines = { 0 };
	struct stat now;
	int r = 0;

	pthread_mutex_lock(&w->lock);
	/* A pipe is read once, and one that has come in the place of the file is not waited for. */
	if (S_ISREG(w->read.st_mode) && stat(w->path, &now) == 0 && S_ISREG(now.st_mode) &&
	    !(now.st_dev == w->read.st_dev && now.st_ino == w->read.st_ino &&
	      now.st_size == w->read.st_size && now.st_ctim.tv_sec == w->read.st_ctim.tv_sec &&
	      now.st_ctim.tv_nsec == w->read.st_ctim.tv_nsec)) {
		r = web_headers_read_file(w->path, O_NONBLOCK, &lines, &now);
		w->read = now;
		if (r >= 0) {
			const struct buf before = w->lines;

			w->lines = lines;
			lines = before;
		}
	}
	pthread_mutex_unlock(&w->lock);
	if (r < 0) {
		log_warn("option 'http_headers': %s; the headers stay as they were", err_text(r));
		err_clear();
	}
}

int web_headers_add(struct web_headers *w, struct http_headers *ret)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&w->lock);
	int r = 0;

	for (size_t at = 0; at < w->lines.n && r >= 0;
	     at += strlen((const char *)w->lines.p + at) + 1)
		r = http_header(ret, (const char *)w->lines.p + at);
	return r;
}

const char *web_headers_path(const struct web_headers *w)
{
	return w->path;
}

const char *web_headers_dir(const struct web_headers *w)
{
	return w->dir;
}

void web_headers_free(struct web_headers *w)
{
	if (!w)
		return;
	secret_release(&w->lines);
	pthread_mutex_destroy(&w->lock);
	free(w->path);
	free(w->dir);
	free(w);
}

static int web_headers_load(struct web_headers *w, const char *path)
{
	int r = path_absolute(path, &w->path);

	if (r < 0)
		return r;
	w->dir = span_dup_str(span_of(w->path, (size_t)(strrchr(w->path, '/') - w->path) + 1));
	if (!w->dir)
		return fail(-ENOMEM, "cannot read '%s'", path);
	return web_headers_read_file(w->path, 0, &w->lines, &w->read);
}

int web_headers_open(const char *path, struct web_headers **ret)
{
	struct web_headers *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return fail(-ENOMEM, "cannot read '%s'", path);
	pthread_mutex_init(&w->lock, NULL);
	r = web_headers_load(w, path);
	if (r < 0) {
		web_headers_free(w);
		return err_at(r, "option 'http_headers'");
	}
	*ret = w;
	return 0;
}
