/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err.h - negative errno, and a note for people that says what went wrong.
 *
 * Every function that can fail returns 0 or a count on success and a negative
 * errno on failure. fail() stores a sentence in a buffer of the calling thread
 * and returns the code; err_at() prefixes it with context on the way up; the
 * boundary (a reply, a tool's main) prints err_text().
 *
 * The note records the code that it was made for, so a stale note is never
 * shown for a later failure. A worker hands its note to the waiting thread with
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
#include <stdint.h>

#define ERR_TEXT_MAX 1024

struct err_note {
	int code;        /* negative errno; 0 when empty */
	bool is_refusal; /* err_refused() */
	char text[ERR_TEXT_MAX];
	char where[64]; /* "file.c:line" of the fail(); "" when err_at() made the note */
};

/* Store a note for this thread and return code. errno is unchanged. */
int err_fail(int code, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 4, 5), cold));
#define fail(code, ...) err_fail((code), __FILE__, __LINE__, __VA_ARGS__)

/*
 * Prefix the note of code with "context: ". When code has no note, the new one ends with
 * strerror(), which gives no reason; to change the code of an error that has a note, use fail(code,
 * "...: %s", err_text(r)). Returns code.
 */
int err_at(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));

/* Report a failed system call: a note "what 'subject': strerror" for errno. Returns -errno. */
int err_sys(const char *what, const char *subject) __attribute__((cold));
/* The same for an errno that is already known, as a negative code. */
int err_code(int code, const char *what, const char *subject) __attribute__((cold));

/*
 * The sentence for code: the note, if it was made for this code, else strerror(). Thread-local
 * storage.
 */
const char *err_text(int code);
/* "file.c:line" of the fail() that made the note; "" when code has no note. */
const char *err_where(int code);

/*
 * The meter refused memory with `code`, and the caller can return no more than NULL: the next
 * fail(-ENOMEM) of this thread returns code instead, and adds its note.
 */
void err_refused(int code);

void err_clear(void);
/* Some errors are not failures here: returns 0 without a note if r is one of the codes, else r. */
#define err_except(r, ...) err_except_codes((r), (const int[]){ __VA_ARGS__, 0 })
int err_except_codes(int r, const int *codes);
/*
 * Copy this thread's note, and restore it, possibly in another thread. err_restore() returns
 * note->code.
 */
void err_save(int code, struct err_note *ret);
int err_restore(const struct err_note *note);
/*
 * Copy this thread's note, whatever its code. Cleanup after a failure may make notes of its own;
 * err_restore() then brings this one back.
 */
void err_peek(struct err_note *ret);

/*
 * Whether a retry may succeed: the cause is memory, the disk or the number of descriptors. Such
 * failures are not remembered.
 */
bool err_is_transient(int code);

/* The word for n of them, in a message. */
static inline const char *noun(uint64_t n, const char *one, const char *many)
{
	return n == 1 ? one : many;
}

/* The errno for the kernel, positive: format errors become EIO, others are unchanged. */
int err_errno(int code);

#endif
