/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - hears of steps that other programs commit or delete, and tells the listener; and has
 * the kernel forget steps when too many items are open.
 */
#ifndef PYTREEFS_WATCH_H
#define PYTREEFS_WATCH_H

struct ns;
struct watch;

/* A thread that watches the root with inotify, or by looking where that does not work. */
int watch_start(struct ns *ns, struct watch **ret);
/* There are many open items: let the watcher see to it (ns_trim_items()). Accepts NULL. Any thread.
 */
void watch_trim(struct watch *w);
/* Accepts NULL. */
void watch_stop(struct watch *w);

#endif
