/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secret.c - keys and tokens.
 */
#include "core/remote/transport/secret.h"

#include <fcntl.h>
#include <string.h>

#include "core/base/err.h"

bool secret_is_valid(struct span value)
{
	for (size_t i = 0; i < value.n; i++)
		if (value.p[i] <= ' ' || value.p[i] >= 0x7f)
			return false;
	return value.n > 0 && value.n <= SECRET_MAX;
}

void secret_free(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
	free(secret);
}

void secret_release(struct buf *b)
{
	if (b->p)
		explicit_bzero(b->p, b->cap);
	buf_release(b);
}

int secret_pull_members(struct json_pull *p, const struct secret_member *member, size_t n,
			int (*read)(void *arg, struct json_pull *p, const struct secret_member *m),
			void *arg)
{
	struct span name;
	int r = json_pull_enter(p, JSON_OBJECT);

	while (r >= 0 && (r = json_pull_next(p, &name)) > 0) {
		size_t i = 0;

		while (i < n && !span_eq(name, span_str(member[i].name)))
			i++;
		r = i < n ? read(arg, p, &member[i]) : json_pull_skip(p);
	}
	return r < 0 ? r : json_pull_end(p);
}

void secret_pull_release(struct json_pull *p)
{
	secret_release(&p->str);
	json_pull_release(p);
}

int secret_read_fd(int fd, const char *path, size_t max, struct buf *ret)
{
	ssize_t n = 1;

	/* Once: a buffer that grows would leave copies. */
	if (buf_reserve(ret, max + 1) < 0)
		return fail(-ENOMEM, "cannot read '%s'", path);
	while (n > 0 && ret->n <= max) {
		n = read(fd, ret->p + ret->n, max + 1 - ret->n);
		if (n < 0)
			return err_sys("cannot read", path);
		ret->n += (size_t)n;
	}
	return ret->n > max ? fail(-EFBIG, "'%s' has more than %zu bytes", path, max) : 0;
}

int secret_read_file(const char *path, struct buf *ret)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

	return fd < 0 ? err_sys("cannot open", path) :
			secret_read_fd(fd, path, SECRET_FILE_BYTES, ret);
}
