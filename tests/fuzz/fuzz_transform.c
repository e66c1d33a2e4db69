/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_transform.c - files of rules: what is read makes a tree of a small one, or says why not; a
 * key that a rule gives backwards matches it forwards.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/err.h"
#include "handlers/transform/transform_impl.h"
#include "tests/fuzz/fuzz.h"

static struct tree *small(void)
{
	const struct span names[] = { span_str("a"), span_str("b.c"), span_str("b.d"),
				      span_str("layer_1.w") };
	struct tree *t = NULL;

	must(tree_from_names(names, NULL, ARRAY_LEN(names), &t) == 0);
	return t;
}

static void turn_around(const struct rule *rule, struct span old)
{
	struct regex_match m;
	auto_buf key = { 0 }, back = { 0 };

	if (rule_new_key(rule, old, &key) != 1) {
		must(key.n == 0);
		return;
	}
	must(regex_match(rule->key, buf_span(&key), &m) == 1);
	must(regex_expand(rule->key, &m, rule->original[0], &back) == 0);
	must(span_eq(buf_span(&back), old));
}

static void check_tree(const struct transform *t)
{
	struct tree *in = small();
	auto_of(tree) struct tree *out = in;
	struct transform_unused *unused = NULL;
	auto_buf idle = { 0 };
	size_t n = 0;

	if (transform_tree(t, &out) < 0) {
		must(out == in);
		return;
	}
	must(transform_idle(t, out, &idle) == 0);
	must(transform_unused(t, out, &unused, &n) == 0);
	free(unused);
	for (uint32_t i = 0; i < out->n_nodes; i++) {
		auto_buf text = { 0 };

		if (out->nodes[i]->kind == TREE_LEAF)
			must(transform_text(t, out->nodes[i], &text) == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const olds[] = { "a", "b/c", "layer_1/w", "", "aa", "((" };
	struct transform *t = NULL;
	int fd = memfd_create("rules", MFD_CLOEXEC);
	char path[40];

	must(fd >= 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (transform_open(path, &t) < 0) {
		must(!t);
	} else {
		for (size_t i = 0; i < MIN(t->n_rules, (size_t)16); i++) {
			for (size_t k = 0; k < ARRAY_LEN(olds); k++)
				turn_around(&t->rule[i], span_str(olds[k]));
			if (t->rule[i].n_originals)
				turn_around(&t->rule[i], t->rule[i].original[0]);
		}
		check_tree(t);
		transform_free(t);
	}
	close(fd);
	return 0;
}
