/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broadcast.h - chunks that one rank of a job reads and decodes for all (load_and_broadcast).
 */
#ifndef PYTREEFS_BROADCAST_H
#define PYTREEFS_BROADCAST_H

#include "core/step/ckpt.h"
#include "core/step/item.h"
#include "core/job/collective.h"
#include "handlers/options/options.h"

struct broadcast;

/* The opened item at path below SOURCE: a reference. Any thread. */
typedef int broadcast_open_fn(void *arg, const char *path, struct item **ret);

struct broadcast_opts {
	struct ckpt *ckpt;             /* borrowed */
	const struct options *options; /* borrowed */
	struct peers *peers;           /* borrowed */
	broadcast_open_fn *open_item;
	void *arg;
};

/* Of which the options say how much memory decoded chunks may take. -EINVAL: scaling is not such a
 * number. */
int broadcast_memory(const struct options *o, uint64_t *ret);
/* Arrays that are opened from now on are shared. -EINVAL: the mesh is not one of the job's ranks. */
int broadcast_new(const struct broadcast_opts *opts, struct broadcast **ret);
/* Nobody reads any more, and nothing is served. Accepts NULL. */
void broadcast_free(struct broadcast *b);
/* Requests of other ranks: a peers_serve_fn. */
void broadcast_serve(void *arg, const struct peers_msg *m);

struct broadcast_stats {
	uint64_t received_bytes, received_pieces, served_bytes, fallbacks;
};
void broadcast_stats(struct broadcast *b, struct broadcast_stats *ret);

#endif
