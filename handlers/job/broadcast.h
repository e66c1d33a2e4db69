/* SPDX-License-Identifier: Apache-2.0 */
/* broadcast.h - chunks that one rank of a job reads and decodes for all (load_and_broadcast). */
#ifndef PYTREEFS_BROADCAST_H
#define PYTREEFS_BROADCAST_H

#include "core/step/ckpt.h"
#include "core/step/item.h"
#include "core/job/collective.h"
#include "handlers/options/options.h"

struct broadcast;

/* Open the item at a path below SOURCE; *ret is a reference. Any thread may call this. */
typedef int broadcast_open_fn(void *arg, const char *path, struct item **ret);

struct broadcast_opts {
	struct ckpt *ckpt;             /* borrowed */
	const struct options *options; /* borrowed */
	struct peers *peers;           /* borrowed */
	broadcast_open_fn *open_item;
	void *arg;
};

/*
 * Get the limit of memory for decoded chunks from the options. -EINVAL: the scaling is not valid.
 */
int broadcast_memory(const struct options *o, uint64_t *ret);
/*
 * Begin to share: arrays that are opened from now on are read by one rank for all. -EINVAL: the
 * mesh does not fit the number of ranks.
 */
int broadcast_new(const struct broadcast_opts *opts, struct broadcast **ret);
/* All reads and requests must have ended. Accepts NULL. */
void broadcast_free(struct broadcast *b);
DEFINE_AUTO(broadcast, struct broadcast, broadcast_free);
/* Answer a request of another rank: a peers_serve_fn. */
void broadcast_serve(void *arg, const struct peers_msg *m);

struct broadcast_stats {
	uint64_t received_bytes, received_pieces, served_bytes, fallbacks;
};
void broadcast_stats(struct broadcast *b, struct broadcast_stats *ret);

#endif
