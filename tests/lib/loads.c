/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loads.c - reads all leaves of a checkpoint at once by the library, and prints each with a number
 * that depends on its bytes. Its options follow. Status 1, and the reasons, when it cannot.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/lib/pytreefs.h"

static uint64_t number_of(const uint8_t *p, size_t n)
{
	uint64_t h = 14695981039346656037u;

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 1099511628211u;
	return h;
}

static int load(struct pytreefs *ck, const struct pytreefs_tree *tree)
{
	size_t n = pytreefs_tree_count(tree);
	struct pytreefs_request *q = calloc(n, sizeof(*q));
	size_t m = 0, unknown = 0;
	int r;

	if (!q)
		return -1;
	for (size_t i = 0; i < n; i++) {
		const struct pytreefs_node *leaf = pytreefs_tree_node(tree, i);

		if (leaf->kind == PYTREEFS_UNKNOWN && ++unknown)
			fprintf(stderr, "%s: %s\n", leaf->path, leaf->text);
		if (leaf->dtype)
			q[m++] = (struct pytreefs_request){ .name = leaf->path,
							    .size = leaf->bytes,
							    .to = malloc(leaf->bytes + 1) };
	}
	r = pytreefs_read_many(ck, q, m, NULL);
	for (size_t i = 0; i < m; i++) {
		if (q[i].result < 0)
			fprintf(stderr, "%s: %s\n", q[i].name, q[i].error);
		else
			printf("%s %016" PRIx64 "\n", q[i].name, number_of(q[i].to, q[i].size));
		free(q[i].to);
	}
	pytreefs_requests_release(q, m);
	free(q);
	return unknown ? -1 : r;
}

int main(int argc, char **argv)
{
	struct pytreefs_tree *tree = NULL;
	struct pytreefs *ck = NULL;
	int r = argc == 3 ? pytreefs_open(argv[1], argv[2], &ck) : -1;

	if (r >= 0)
		r = pytreefs_tree(ck, "", 0, &tree);
	if (r < 0)
		fprintf(stderr, "%s\n", pytreefs_error());
	else
		r = load(ck, tree);
	pytreefs_tree_free(tree);
	pytreefs_close(ck);
	return r < 0;
}
