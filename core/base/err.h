/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err.h - negative errno plus a note that says what went wrong.
 *
 * Every function that can fail returns 0 or a count on success and a negative
 * errno on failure. fail() stores a sentence in a buffer of the calling thread
 * and yields the code; err_at() puts context in front of it on the way up; the
 * boundary (a reply, a tool's main) prints err_text().
 *
 * The note remembers the code that it was made for, so a stale note is never
 * blamed on a later failure. A worker hands its note to the waiting thread with
 * err_save() and err_restore().
 *
 * Messages: lower case, no full stop, what failed first, the subject in single
 * quotes, both values when two disagree.
 *
 * Codes with a meaning of their own:
 *   -EUCLEAN     bytes on disk break the format           (EIO at the mount)
 *   -EBADMSG     a checksum does not match                (EIO at the mount)
 *   -EOPNOTSUPP  well formed, but not implemented; names the feature
 *   -EFBIG       exceeds a limit of limits.h; names it
 *   -EINVAL      the caller asked for nonsense
 *   -ENOENT      no such step, leaf or key
 *   -EROFS       cannot be written
 */
#ifndef PYTREEFS_ERR_H
#define PYTREEFS_ERR_H

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>

#define ERR_TEXT_MAX 1024

struct err_note {
	int code; /* negative errno; 0 when empty */
	char text[ERR_TEXT_MAX];
	char where[64]; /* "file.c:line"; "" when nobody has said why */
};

/* Store a note for this thread and return code. errno is left as it was. */
int err_fail(int code, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 4, 5), cold));
#define fail(code, ...) err_fail((code), __FILE__, __LINE__, __VA_ARGS__)

/* Put "context: " in front of the note of code; makes one when code has no note, which then says
 * nothing of why: another code for an error that has a note is fail(code, "...: %s", err_text(r)).
 * Returns code. */
int err_at(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));

/* -errno with a note "what 'subject': strerror"; for a failed system call. Returns -errno. */
int err_sys(const char *what, const char *subject) __attribute__((cold));
/* The same for an errno that is already in hand, as a negative code. */
int err_code(int code, const char *what, const char *subject) __attribute__((cold));

/* The sentence for code: the note when it was made for it, else strerror. Thread-local storage. */
const char *err_text(int code);
/* "file.c:line" of the fail() that made the note; "" when code has no note. */
const char *err_where(int code);

/*
 * The meter refused memory with code, and its caller can only say that none is left: the next
 * fail(-ENOMEM) of the thread yields code, and says what its note says.
 */
void err_refused(int code);

void err_clear(void);
/* Copy this thread's note; restore it in another thread, which returns note->code. */
void err_save(int code, struct err_note *ret);
int err_restore(const struct err_note *note);
/* This thread's note, if any, whatever its code: for what cleans up after a failure and may leave a
 * note of its own, before err_restore(). */
void err_peek(struct err_note *ret);

/*
 * Whether the next try may succeed: memory, the disk, descriptors. Such a failure is not
 * remembered.
 */
bool err_passes(int code);

/*
 * The errno for the kernel: format errors become EIO, others stay as they are. Returns a positive
 * errno.
 */
int err_errno(int code);

#endif
