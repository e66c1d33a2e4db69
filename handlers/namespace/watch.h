/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - notices steps that other programs commit or delete, and notifies the listener. It also
 * lets the kernel drop steps when too many items are open.
 */
#ifndef PYTREEFS_WATCH_H
#define PYTREEFS_WATCH_H

struct ns;
struct watch;

/* Start a thread that watches the root with inotify, or by polling where inotify does not work. */
int watch_start(struct ns *ns, struct watch **ret);
/*
 * Let the watcher close items, since many are open (ns_trim_items()). Accepts NULL. Any thread may
 * call this.
 */
void watch_trim(struct watch *w);
/* Accepts NULL. */
void watch_stop(struct watch *w);

#endif
