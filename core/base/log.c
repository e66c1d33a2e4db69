/*
 * log.c - one line per message to stderr, syslog or a file, and a ring of the last ones.
 *
 * A message that repeats at once is counted instead of repeated: a broken leaf that a program
 * reads in a loop must not fill a disk.
 */
#include "core/base/log.h"

#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>

#include "core/base/buf.h"
#include "core/base/err.h"

#define RING_LINES 256
#define LINE_MAX_BYTES 1200

static struct {
	pthread_mutex_t lock;		/* protects all below */
	bool to_stderr, to_syslog;
	enum log_level stderr_level;
	FILE *file;
	char ring[RING_LINES][LINE_MAX_BYTES];
	unsigned long n;		/* messages ever */
	char last[LINE_MAX_BYTES];
	unsigned long repeats;		/* of the last message, beyond the first */
} sink = { .lock = PTHREAD_MUTEX_INITIALIZER, .to_stderr = true,
	   .stderr_level = LOG_LEVEL_INFO };

unsigned log_trace_mask;

static const struct {
	const char *name;
	unsigned bit;
} categories[] = {
	{ "fs", TRACE_FS },	  { "step", TRACE_STEP },   { "leaf", TRACE_LEAF }, { "zarr", TRACE_ZARR },
	{ "kv", TRACE_KV },	  { "ocdbt", TRACE_OCDBT }, { "codec", TRACE_CODEC }, { "io", TRACE_IO },
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
			if (strlen(categories[i].name) == n && !strncmp(categories[i].name, names, n))
				break;
		if (i == ARRAY_LEN(categories))
			return fail(-EINVAL,
				    "unknown trace category '%.*s'; known: fs step leaf zarr kv ocdbt codec io all",
				    (int)n, names);
		mask |= categories[i].bit;
		names += n + (names[n] != '\0');
	}
	log_trace_mask = mask;
	return 0;
}

static void put_line(enum log_level level, const char *line)
{
	static const int priority[] = { LOG_ERR, LOG_WARNING, LOG_INFO };

	snprintf(sink.ring[sink.n++ % RING_LINES], LINE_MAX_BYTES, "%s", line);
	if (sink.to_stderr && level <= sink.stderr_level)
		fprintf(stderr, "pytreefs: %s\n", line);
	if (sink.to_syslog)
		syslog(priority[level], "%s", line);
	if (sink.file) {
		char when[32];
		struct tm tm;
		time_t now = time(NULL);

		strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
		fprintf(sink.file, "%s %s\n", when, line);
	}
}

void log_at(enum log_level level, const char *fmt, ...)
{
	char line[LINE_MAX_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	/* Messages quote names from disk: no control characters reach a terminal or a log. */
	for (char *c = line; *c; c++)
		memset(c, '?', span_control(span_of(c, strnlen(c, 2))));
	pthread_mutex_lock(&sink.lock);
	if (!strcmp(line, sink.last)) {
		sink.repeats++;
	} else {
		char again[64];

		if (sink.repeats) {
			snprintf(again, sizeof(again), "(the last message came %lu more times)",
				 sink.repeats);
			put_line(LOG_LEVEL_INFO, again);
		}
		sink.repeats = 0;
		snprintf(sink.last, sizeof(sink.last), "%s", line);
		put_line(level, line);
	}
	pthread_mutex_unlock(&sink.lock);
}

void log_trace_at(const char *module, const char *fmt, ...)
{
	char line[LINE_MAX_BYTES], name[16];
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
	int r = 0;

	pthread_mutex_lock(&sink.lock);
	for (unsigned long i = sink.n > RING_LINES ? sink.n - RING_LINES : 0; i < sink.n && r >= 0; i++)
		r = buf_addf(ret, "%s\n", sink.ring[i % RING_LINES]);
	if (r >= 0 && sink.repeats)
		r = buf_addf(ret, "(the last message came %lu more times)\n", sink.repeats);
	pthread_mutex_unlock(&sink.lock);
	return r;
}
