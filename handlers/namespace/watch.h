/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - notices steps that other programs commit or delete, and notifies the listener. It also
 * lets the kernel drop steps when too many items are open.
 */
#ifndef PYTREEFS_WATCH_H
#define PYTREEFS_WATCH_H

#include "core/base/buf.h"

struct ns;
struct watch;

/* Start a thread that watches the root with inotify, or by polling where inotify does not work. */
int watch_start(struct ns *ns, struct watch **ret);
/*
 * Let the watcher close items, since many are open (ns_trim_items()). Accepts NULL. Any thread may
 * call this.
 */
void watch_trim(struct watch *w);
/*
 * A draft was committed by this mount as the step of that name. The kernel still has the names of
 * the draft, and with them its nodes, until it is told to forget the name: some seconds later,
 * since that is a look-up in the mount, and a mount cannot be unmounted meanwhile, which many
 * programs do after a commit. Accepts NULL. Any thread may call this.
 */
void watch_committed(struct watch *w, struct span name);
/* Accepts NULL. */
void watch_stop(struct watch *w);

#endif
