/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h - messages for people, and the trace.
 *
 * Library code (core, handlers) does not log failures: it returns them, and the boundary logs once.
 * It may log an event that no caller would learn of: a fallback, a leaf that is skipped, a
 * background job that failed.
 *
 * The last messages are retained in memory for `.pytreefs/log`. Any thread may call.
 */
#ifndef PYTREEFS_LOG_H
#define PYTREEFS_LOG_H

#include "core/base/buf.h"

#define LOG_LINE_MAX 1200 /* bytes of a message, with its NUL; the rest is cut off */

enum log_level {
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARN,
	LOG_LEVEL_INFO,
};

/* Trace categories, one per module; from the top of the ladder down. */
enum log_trace {
	TRACE_FS = 1 << 0,
	TRACE_STEP = 1 << 1,
	TRACE_LEAF = 1 << 2,
	TRACE_ZARR = 1 << 3,
	TRACE_KV = 1 << 4,
	TRACE_OCDBT = 1 << 5,
	TRACE_CODEC = 1 << 6,
	TRACE_IO = 1 << 7,
	TRACE_AHEAD = 1 << 8, /* decode-ahead and prefetch */
};

/* Where messages go besides memory. Call before any thread starts. file may be NULL. */
int log_open(bool to_stderr, bool to_syslog, const char *file);
/*
 * Write to this file instead of the one of log_open(), which was renamed: it is closed. Takes
 * ownership of fd, also on failure. Without a file in log_open(), fd is only closed.
 */
int log_reopen(int fd);
/*
 * Call this from now on instead of syslog(3), which a sandbox may refuse. It must not log.
 */
void log_syslog_by(void (*send)(int priority, const char *line, void *arg), void *arg);
/* Write only messages up to this level to stderr; initially all are written. */
void log_stderr_level(enum log_level level);
/*
 * Enable categories, separated by ',' or ':' ("fs,zarr", "all"); -EINVAL lists the accepted names.
 */
int log_trace_set(const char *names);

extern unsigned log_trace_mask;

void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void log_trace_at(const char *module, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_at(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_LEVEL_INFO, __VA_ARGS__)

/* trace(TRACE_ZARR, "read %s", ...) formats nothing unless the category is enabled. */
#define trace(category, ...)                                                         \
	do {                                                                         \
		if (__builtin_expect(log_trace_mask & (category), 0))                \
			log_trace_at(&#category[sizeof("TRACE_") - 1], __VA_ARGS__); \
	} while (0)

/*
 * Append the retained messages, oldest first, one per line and each with its time. Messages are
 * only ever added at the end. Unreported repeats of the last message are reported first.
 */
int log_text(struct buf *ret);

#endif
