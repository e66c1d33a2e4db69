/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_walk.c - follows a path of names and links from a node.
 */
#include "core/base/err.h"
#include "handlers/namespace/node.h"

/* Replace a link in dir by its target. Links only lead to names in the same directory. */
static int node_walk_follow(struct node *dir, struct node **at)
{
	struct node *link = *at;
	auto_buf target = { 0 };
	int r;

	if (!link->ops->readlink)
		return 0;
	r = node_readlink(link, &target);
	if (r < 0)
		return r;
	r = node_lookup(dir, buf_span(&target), at);
	if (r < 0)
		return r;
	node_unref(link, 1);
	return r;
}

int node_walk(struct node *dir, const char *path, struct node **ret)
{
	auto_node *at = node_ref(dir);

	while (*path) {
		size_t n = strcspn(path, "/");
		auto_node *next = NULL;
		int r;

		if (n > 0 && !(n == 1 && path[0] == '.')) {
			r = node_lookup(at, span_of(path, n), &next);
			if (r < 0)
				return r;
			r = node_walk_follow(at, &next);
			if (r < 0)
				return r;
			node_unref(at, 1);
			at = take(next);
		}
		path += n + (path[n] == '/');
	}
	*ret = take(at);
	return 0;
}
