/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_walk.c - follows a path of names and links from a node.
 */
#include "core/base/err.h"
#include "handlers/namespace/node.h"

int node_follow(struct node *dir, struct node **n, struct buf *target)
{
	int r;

	if (!(*n)->ops->readlink)
		return 0;
	r = node_readlink(*n, target);
	node_unref(take(*n), 1);
	return r < 0 ? r : node_lookup(dir, buf_span(target), n);
}

int node_walk(struct node *dir, const char *path, struct node **ret)
{
	auto_node *at = node_ref(dir);

	while (*path) {
		size_t n = strcspn(path, "/");
		auto_node *next = NULL;
		auto_buf target = { 0 };
		int r;

		if (n > 0 && !(n == 1 && path[0] == '.')) {
			r = node_lookup(at, span_of(path, n), &next);
			if (r < 0)
				return r;
			r = node_follow(at, &next, &target);
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
