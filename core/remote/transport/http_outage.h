/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_outage.h - ranges of objects for which a request was given up a moment ago.
 *
 * Whoever waits for bytes may ask for them more than once: the kernel reads a page again that it
 * could not read ahead, and a reader what could not be fetched for it. All of these requests have
 * one deadline together, from the first of them on, so that nobody waits for longer than that. When
 * nobody has asked for a while, or an answer has come, the next request has a deadline of its own.
 * Not thread-safe.
 */
#ifndef PYTREEFS_CORE_HTTP_HTTP_OUTAGE_H
#define PYTREEFS_CORE_HTTP_HTTP_OUTAGE_H

#include <stdint.h>

#define OUTAGES 64

/* Bytes [from, to) of an object, which is known by a hash of its name. */
struct outage_of {
	uint64_t name, from, to;
};

/* The oldest are forgotten first. */
struct outages {
	struct {
		struct outage_of of;
		int64_t since,
			last; /* when the first of its requests began; when one was given up */
	} one[OUTAGES];
};

/* A request that had begun at `since`, as outage_since() says, was given up. */
void outage_note(struct outages *o, struct outage_of of, int64_t since, int64_t now);
/* An answer came: the outage is that of the bytes before or after it. */
void outage_end(struct outages *o, struct outage_of of);
/* When the deadline of a request begins that begins now: now, or earlier. */
int64_t outage_since(const struct outages *o, struct outage_of of, int64_t now);

#endif
