/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount_log.h - the log of a mount that has given up the rights to open files and sockets: the
 * broker opens it again, and sends messages to syslog. Also the lines about its start and end.
 */
#ifndef PYTREEFS_FS_MOUNT_LOG_H
#define PYTREEFS_FS_MOUNT_LOG_H

#include <stdbool.h>

struct broker;
struct fs;

/*
 * Send messages for syslog by this broker, which stays until this is called with NULL: later
 * messages do not reach syslog.
 */
void mount_log_by_broker(struct broker *broker);
/*
 * Returns a function for signals.h that opens the log of a struct fs again, or NULL if SIGHUP must
 * end the mount. Call before the process confines itself.
 */
void (*mount_log_on_hangup(void))(void *fs);
/* Log that the mount serves requests from now on. */
void mount_log_start(const struct fs *fs);
/*
 * Log that it is unmounted, or left, the signal that ended it (0: none), and its most important
 * counters.
 */
void mount_log_end(const struct fs *fs, int signal, bool is_unmounted);

#endif
