/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers_hub.h - ranks that are threads of one process: messages go from box to box.
 */
#ifndef PYTREEFS_PEERS_HUB_H
#define PYTREEFS_PEERS_HUB_H

#include "core/job/peers.h"

#define HUB_MAX 8

struct hub {
	struct peers rank[HUB_MAX];
	int size;
	bool dead[HUB_MAX]; /* nothing reaches it any more, nothing comes from it */
};

static struct hub hub;

static inline int hub_send(struct peers *p, int to, const struct peers_head *head, struct span body)
{
	auto_buf copy = { 0 };

	if (hub.dead[p->rank] || hub.dead[to])
		return 0;
	if (buf_add_span(&copy, body) < 0)
		return -ENOMEM;
	peers_deliver(&hub.rank[to], p->rank, head, &copy);
	return 0;
}

/* All are freed together, by hub_close(). */
static inline void hub_free(struct peers *p, bool clean)
{
}

static const struct peers_ops hub_ops = { .name = "hub", .send = hub_send, .free = hub_free };

static inline void hub_open(int size)
{
	hub = (struct hub){ .size = size };
	for (int i = 0; i < size; i++)
		assert_int_equal(peers_init(&hub.rank[i], &hub_ops, i, size), 0);
}

static inline void hub_close(void)
{
	for (int i = 0; i < hub.size; i++)
		peers_release(&hub.rank[i]);
}

/* Call run(rank) in a thread each, and wait for all. */
struct hub_call {
	int (*run)(int rank, void *arg);
	void *arg;
	int rank, result;
};

static inline void *hub_thread(void *arg)
{
	struct hub_call *c = arg;

	c->result = c->run(c->rank, c->arg);
	return NULL;
}

static inline void hub_run(int (*run)(int rank, void *arg), void *arg, int *ret_result)
{
	struct hub_call call[HUB_MAX];
	pthread_t thread[HUB_MAX];

	for (int i = 0; i < hub.size; i++) {
		call[i] = (struct hub_call){ run, arg, i, 0 };
		assert_int_equal(pthread_create(&thread[i], NULL, hub_thread, &call[i]), 0);
	}
	for (int i = 0; i < hub.size; i++) {
		pthread_join(thread[i], NULL);
		ret_result[i] = call[i].result;
	}
}

#endif
