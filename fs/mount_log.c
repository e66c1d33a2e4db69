/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount_log.c - opens the log of a mount again, sends its messages to syslog, and logs its start
 * and end.
 */
#include "fs/mount_log.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/sandbox/broker.h"
#include "core/sandbox/sandbox.h"
#include "fs/fs.h"

/* A broker that is gone has no syslog: `.pytreefs/log` still has the message. */
static void mount_log_send_to_syslog(int priority, const char *line, void *arg)
{
	char text[LOG_LINE_MAX + 2];

	snprintf(text, sizeof(text), "%d%s", priority, line);
	broker_ask(arg, BROKER_SYSLOG, text, NULL, 0);
}

/* The broker has ended, and this process may not open a socket. */
static void drop(int priority, const char *line, void *arg)
{
}

void mount_log_by_broker(struct broker *broker)
{
	log_syslog_by(broker ? mount_log_send_to_syslog : drop, broker);
}

static void reopen(void *arg)
{
	struct fs *fs = arg;
	int fd, r;

	if (!fs->options->log)
		return;
	r = broker_ask_file(&fs->broker, BROKER_LOG_FILE, &fd);
	if (r >= 0)
		r = log_reopen(fd);
	if (r < 0)
		log_error("cannot open log '%s' again: %s", fs->options->log, err_text(r));
	else
		log_info("log '%s' was opened again", fs->options->log);
	err_clear();
}

/*
 * To a process with a controlling terminal, SIGHUP means that this is gone; to any other, as to all
 * daemons, that its log was renamed.
 */
void (*mount_log_on_hangup(void))(void *fs)
{
	auto_close int terminal = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);

	return terminal >= 0 ? NULL : reopen;
}

void mount_log_start(const struct fs *fs)
{
	log_info("pytreefs %s serves '%s' on '%s', %s, sandbox %s", PYTREEFS_VERSION,
		 fs->ns->ckpt->opts.source, fs->mountpoint,
		 fs->is_read_only ? "read-only" : "read-write", sandbox_extent());
}

void mount_log_end(const struct fs *fs, int signal, bool is_unmounted)
{
	const struct ns *ns = fs->ns;
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	log_info("'%s' is %s%s%s after %lld s: %llu %s, %llu %s, "
		 "%llu of %llu %s",
		 fs->mountpoint, is_unmounted ? "unmounted" : "left without a process",
		 signal ? " by SIG" : "", signal ? sigabbrev_np(signal) : "",
		 (long long)(now.tv_sec - ns->started.tv_sec), (unsigned long long)ns->requests,
		 noun(ns->requests, "request", "requests"), (unsigned long long)ns->errors,
		 noun(ns->errors, "error", "errors"), (unsigned long long)ns->commits,
		 (unsigned long long)(ns->commits + ns->failed_commits),
		 noun(ns->commits + ns->failed_commits, "commit", "commits"));
}
