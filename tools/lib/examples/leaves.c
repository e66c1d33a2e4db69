/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaves.c - list the leaves of a checkpoint, and read all of its arrays at once.
 *
 *     cc leaves.c $(pkg-config --cflags --libs pytreefs) -o leaves && ./leaves ckpts/latest
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <pytreefs.h>

static int leaves_failed(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, pytreefs_error());
	return 1;
}

static void leaves_print(const struct pytreefs_node *n)
{
	printf("%-40s", n->path);
	if (n->dtype) {
		printf(" %s[", n->dtype);
		for (unsigned i = 0; i < n->ndim; i++)
			printf(i ? ",%" PRIu64 : "%" PRIu64, n->shape[i]);
		printf("]");
	}
	if (n->text)
		printf(" %s", n->text);
	printf("\n");
}

static int is_number(const struct pytreefs_node *n)
{
	return n->kind == PYTREEFS_ARRAY || n->kind == PYTREEFS_SCALAR;
}

static int read_all(struct pytreefs *ck, const struct pytreefs_tree *tree)
{
	size_t count = pytreefs_tree_count(tree), n = 0;
	struct pytreefs_request *q = calloc(count, sizeof(*q));
	uint64_t bytes = 0;
	int r;

	if (!q)
		return leaves_failed("calloc");
	for (size_t i = 0; i < count; i++) {
		const struct pytreefs_node *leaf = pytreefs_tree_node(tree, i);

		if (!is_number(leaf))
			continue;
		q[n].name = leaf->path;
		q[n].size = leaf->bytes;
		q[n].to = pytreefs_alloc(leaf->bytes);
		bytes += leaf->bytes;
		n++;
	}
	r = pytreefs_read_many(ck, q, n, NULL);
	for (size_t i = 0; i < n; i++)
		if (q[i].result < 0)
			fprintf(stderr, "%s: %s\n", q[i].name, q[i].error);
	printf("%zu arrays and numbers, %" PRIu64 " bytes\n", n, bytes);
	for (size_t i = 0; i < n; i++)
		pytreefs_free(q[i].to, q[i].size);
	pytreefs_requests_release(q, n);
	free(q);
	return r < 0;
}

int main(int argc, char **argv)
{
	struct pytreefs_tree *tree = NULL;
	struct pytreefs *ck = NULL;
	int status;

	if (argc != 2) {
		fprintf(stderr, "usage: %s CHECKPOINT\n", argv[0]);
		return 2;
	}
	if (pytreefs_open(argv[1], NULL, &ck) < 0)
		return leaves_failed(argv[1]);
	if (pytreefs_tree(ck, "", PYTREEFS_TREE_VALUES, &tree) < 0) {
		pytreefs_close(ck);
		return leaves_failed(argv[1]);
	}
	for (size_t i = 0; i < pytreefs_tree_count(tree); i++)
		leaves_print(pytreefs_tree_node(tree, i));
	status = read_all(ck, tree);
	pytreefs_tree_free(tree);
	pytreefs_close(ck);
	return status;
}
