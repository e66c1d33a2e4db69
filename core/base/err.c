/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err.c - the error note of each thread.
 *
 * Nothing is printed here; fs/reply.c and tools/cli/tool_main.c print once per failure.
 */
#include "core/base/err.h"

#include <stdio.h>
#include <string.h>

static __thread struct err_note note;

int err_fail(int code, const char *file, int line, const char *fmt, ...)
{
	char text[ERR_TEXT_MAX];
	int saved = errno;
	va_list ap;

	/* The arguments may point to the text of the last note. */
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (code == -ENOMEM && note.is_refusal) {
		code = err_at(note.code, "%s", text);
	} else {
		memcpy(note.text, text, sizeof(text));
		note.code = code;
	}
	note.is_refusal = false;
	snprintf(note.where, sizeof(note.where), "%s:%d", file, line);
	errno = saved;
	return code;
}

/* Contexts come first and the cause last, so a note that is too long loses its middle. */
static void shorten(char *text, size_t most)
{
	static const char gap[] = " ... ";
	size_t n = strlen(text), head = most / 4, tail = most - head - strlen(gap);

	if (n <= most)
		return;
	memcpy(text + head, gap, strlen(gap));
	memmove(text + head + strlen(gap), text + n - tail, tail + 1);
}

int err_at(int code, const char *fmt, ...)
{
	enum { HALF = ERR_TEXT_MAX / 2 - 2 };
	char context[ERR_TEXT_MAX];
	char old[ERR_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(context, sizeof(context), fmt, ap);
	va_end(ap);
	snprintf(old, sizeof(old), "%s", err_text(code));
	shorten(context, HALF);
	shorten(old, HALF);
	snprintf(note.text, sizeof(note.text), "%.*s: %.*s", HALF, context, HALF, old);
	if (note.code != code)
		note.where[0] = '\0';
	note.code = code;
	return code;
}

int err_sys(const char *what, const char *subject)
{
	return err_code(-errno, what, subject);
}

int err_code(int code, const char *what, const char *subject)
{
	return fail(code, "%s '%s': %s", what, subject, strerror(-code));
}

const char *err_text(int code)
{
	if (code != 0 && note.code == code)
		return note.text;
	return strerror(code < 0 ? -code : code);
}

const char *err_where(int code)
{
	return code != 0 && note.code == code ? note.where : "";
}

void err_refused(int code)
{
	note.is_refusal = note.code == code;
}

void err_clear(void)
{
	note.code = 0;
	note.is_refusal = false;
}

int err_except_codes(int r, const int *codes)
{
	for (; *codes; codes++)
		if (r == *codes) {
			err_clear();
			return 0;
		}
	return r;
}

void err_save(int code, struct err_note *ret)
{
	if (code && note.code == code) {
		*ret = note;
		return;
	}
	ret->code = code;
	ret->is_refusal = false;
	ret->where[0] = '\0';
	snprintf(ret->text, sizeof(ret->text), "%s", err_text(code));
}

void err_peek(struct err_note *ret)
{
	*ret = note;
}

int err_restore(const struct err_note *from)
{
	note = *from;
	return from->code;
}

bool err_is_transient(int code)
{
	return code == -ENOMEM || code == -EIO || code == -EMFILE || code == -ENFILE ||
	       code == -EAGAIN || code == -EINTR || code == -ENOSPC || code == -EDQUOT ||
	       code == -ESTALE || code == -ETIMEDOUT;
}

int err_errno(int code)
{
	switch (code) {
	case -EUCLEAN:
	case -EBADMSG:
		return EIO;
	default:
		return code < 0 ? -code : 0;
	}
}
