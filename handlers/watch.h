/*
 * watch.h - hears of steps that other programs commit or delete, and tells the listener.
 */
#ifndef PYTREEFS_WATCH_H
#define PYTREEFS_WATCH_H

struct ns;
struct watch;

/* A thread that watches the root with inotify, or by looking where that does not work. */
int watch_start(struct ns *ns, struct watch **ret);
/* Accepts NULL. */
void watch_stop(struct watch *w);

#endif
