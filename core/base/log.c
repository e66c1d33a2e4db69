/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.c - one line per message to stderr, syslog or a file; the last ones are retained.
 *
 * A message that is repeated is counted instead: a broken leaf that a program reads in a loop must
 * not fill a disk.
 */
#include "core/base/log.h"

#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/base/thread.h"

/* of the last messages; when they are more, the older half is dropped */
#define RETAINED_BYTES (256 << 10)

static struct {
	pthread_mutex_t lock; /* protects all below */
	bool to_stderr, to_syslog;
	enum log_level stderr_level;
	FILE *file;
	void (*send)(int priority, const char *line, void *arg); /* NULL: syslog(3) */
	void *send_arg;
	char retained[RETAINED_BYTES]; /* whole lines, each with its time */
	size_t n_retained;
	char last[LOG_LINE_MAX];
	unsigned long repeats;  /* of the last message, not counting the first */
	unsigned long reported; /* repeats that were reported */
} sink = { .lock = PTHREAD_MUTEX_INITIALIZER, .to_stderr = true, .stderr_level = LOG_LEVEL_INFO };

static void log_forked(void)
{
	if (lock_was_held(&sink.lock))
		sink.n_retained = 0;
}
AT_FORK_CHILD(log_forked);

unsigned log_trace_mask;

static const struct {
	const char *name;
	unsigned bit;
} categories[] = {
	{ "fs", TRACE_FS },       { "step", TRACE_STEP }, { "leaf", TRACE_LEAF },
	{ "zarr", TRACE_ZARR },   { "kv", TRACE_KV },     { "ocdbt", TRACE_OCDBT },
	{ "codec", TRACE_CODEC }, { "io", TRACE_IO },     { "ahead", TRACE_AHEAD },
	{ "all", ~0u },
};

int log_open(bool to_stderr, bool to_syslog, const char *file)
{
	FILE *f = NULL;

	if (file) {
		f = fopen(file, "ae");
		if (!f)
			return err_sys("cannot open log", file);
		setvbuf(f, NULL, _IOLBF, 0);
	}
	if (to_syslog)
		openlog("pytreefs", LOG_PID, LOG_DAEMON);
	pthread_mutex_lock(&sink.lock);
	sink.to_stderr = to_stderr;
	sink.to_syslog = to_syslog;
	if (sink.file)
		fclose(sink.file);
	sink.file = f;
	pthread_mutex_unlock(&sink.lock);
	return 0;
}

void log_syslog_by(void (*send)(int priority, const char *line, void *arg), void *arg)
{
	pthread_mutex_lock(&sink.lock);
	sink.send = send;
	sink.send_arg = arg;
	pthread_mutex_unlock(&sink.lock);
}

void log_stderr_level(enum log_level level)
{
	pthread_mutex_lock(&sink.lock);
	sink.stderr_level = level;
	pthread_mutex_unlock(&sink.lock);
}

int log_trace_set(const char *names)
{
	unsigned mask = 0;

	while (*names) {
		size_t n = strcspn(names, ",:"), i;

		for (i = 0; i < ARRAY_LEN(categories); i++)
			if (strlen(categories[i].name) == n &&
			    !strncmp(categories[i].name, names, n))
				break;
		if (i == ARRAY_LEN(categories))
			return fail(
				-EINVAL,
				"unknown trace category '%.*s'; known: fs step leaf zarr kv ocdbt "
				"codec io all",
				(int)n, names);
		mask |= categories[i].bit;
		names += n + (names[n] != '\0');
	}
	log_trace_mask = mask;
	return 0;
}

/*
 * Lines are only appended, so that a program that follows them sees each once. Old lines are
 * dropped rarely, and then many at once.
 */
static void keep_line(const char *when, const char *line)
{
	size_t n = strlen(when) + strlen(line) + 2;

	if (n > RETAINED_BYTES / 2)
		return;
	if (sink.n_retained + n > RETAINED_BYTES) {
		const char *half = memchr(sink.retained + sink.n_retained / 2, '\n',
					  sink.n_retained - sink.n_retained / 2);
		size_t from = half ? (size_t)(half + 1 - sink.retained) : sink.n_retained;

		sink.n_retained -= from;
		memmove(sink.retained, sink.retained + from, sink.n_retained);
	}
	sink.n_retained += (size_t)sprintf(sink.retained + sink.n_retained, "%s %s", when, line);
	sink.retained[sink.n_retained++] = '\n';
}

static void put_line(enum log_level level, const char *line)
{
	static const int priority[] = { LOG_ERR, LOG_WARNING, LOG_INFO };
	time_t now = time(NULL);
	char when[32];
	struct tm tm;

	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
	keep_line(when, line);
	if (sink.to_stderr && level <= sink.stderr_level)
		fprintf(stderr, "pytreefs: %s\n", line);
	if (sink.to_syslog && sink.send)
		sink.send(priority[level], line, sink.send_arg);
	else if (sink.to_syslog)
		syslog(priority[level], "%s", line);
	if (sink.file)
		fprintf(sink.file, "%s %s\n", when, line);
}

static void put_repeats(void)
{
	char again[64];

	if (sink.repeats == sink.reported)
		return;
	snprintf(again, sizeof(again), "(the last message came %lu more %s)", sink.repeats,
		 sink.repeats == 1 ? "time" : "times");
	put_line(LOG_LEVEL_INFO, again);
	sink.reported = sink.repeats;
}

int log_reopen(int fd)
{
	FILE *f = fdopen(fd, "a"), *old;

	if (!f) {
		close(fd);
		return fail(-ENOMEM, "cannot open the log again");
	}
	setvbuf(f, NULL, _IOLBF, 0);
	pthread_mutex_lock(&sink.lock);
	/* In the new file, a count of repeats would stand without the message. */
	put_repeats();
	sink.last[0] = '\0';
	sink.repeats = sink.reported = 0;
	old = sink.file ? sink.file : f;
	if (sink.file)
		sink.file = f;
	pthread_mutex_unlock(&sink.lock);
	fclose(old);
	return 0;
}

void log_at(enum log_level level, const char *fmt, ...)
{
	char line[LOG_LINE_MAX];
	unsigned long n;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	/*
	 * Messages quote names from disk, so control characters are replaced before they reach a
	 * terminal or a log.
	 */
	for (char *c = line; *c; c++)
		memset(c, '?', span_control(span_of(c, strnlen(c, 2))));
	pthread_mutex_lock(&sink.lock);
	if (!strcmp(line, sink.last)) {
		/* The first, tenth, hundredth, ... repeat is reported at once, with the count. */
		for (n = ++sink.repeats; n > 1 && n % 10 == 0;)
			n /= 10;
		if (n == 1)
			put_repeats();
	} else {
		put_repeats();
		sink.repeats = sink.reported = 0;
		snprintf(sink.last, sizeof(sink.last), "%s", line);
		put_line(level, line);
	}
	pthread_mutex_unlock(&sink.lock);
}

void log_trace_at(const char *module, const char *fmt, ...)
{
	char line[LOG_LINE_MAX], name[16];
	va_list ap;
	size_t i;

	for (i = 0; module[i] && i < sizeof(name) - 1; i++)
		name[i] = (char)tolower((unsigned char)module[i]);
	name[i] = '\0';
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&sink.lock);
	if (sink.file)
		fprintf(sink.file, "trace %s: %s\n", name, line);
	else
		fprintf(stderr, "trace %s: %s\n", name, line);
	pthread_mutex_unlock(&sink.lock);
}

int log_text(struct buf *ret)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&sink.lock);

	put_repeats();
	return buf_add(ret, sink.retained, sink.n_retained);
}
