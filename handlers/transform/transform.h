/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transform.h - shows another tree in place of the stored one, with leaves renamed, computed or
 * given.
 *
 * A file of rules is {"default_to_original": true, "rules": [...], "target": [KEY, ...]}, where a
 * key is a path of names joined by '/'. A rule is {"key": REGEX} and one of
 *
 * 	"original_key": EXPANSION	the leaf of that key of the stored tree
 * 	"original_key": [EXPANSION, ...]	several, from which value_fn makes one
 * 	"use_fallback": VALUE or FILE	a number, a text, null, or an .npy file
 *
 * and "value_fn": "NAME(ARGS)", or a list of these, each of which takes the result of the one
 * before it. With "for": {"i": COUNT} one rule stands for COUNT rules, in which {i} is 0 to COUNT -
 * 1.
 *
 * A rule matches whole keys. Rules are sorted by key, and the last one that matches counts, as in
 * Orbax's apply_transformations(). With "target", the new tree has exactly those keys. Without it,
 * the keys are found by inverting the rules: a stored leaf appears under the key that a rule gives
 * it, and no longer under its own.
 */
#ifndef PYTREEFS_TRANSFORM_H
#define PYTREEFS_TRANSFORM_H

#include "core/step/item.h"
#include "handlers/plugin/value_fn.h"

struct plugin_value;
struct transform;

/*
 * A leaf that is computed; tree_node.source points to its first member. It lives in the arena of
 * the new tree, or of the transform.
 */
struct derived {
	struct tree_source source;
	enum value_fn fn;
	const struct plugin_value *plugin; /* for VALUE_FN_PLUGIN */
	struct span args;                  /* the text between the parentheses: "0, 1" */
	/* absolute path of the .npy file that is the value; NULL: it has inputs */
	const char *file;
	const struct tree_node **input; /* leaves of the stored tree */
	unsigned n_inputs;
	/* the function that computes its only input; NULL: it has inputs */
	const struct derived *inner;
};

/*
 * Read and check rules: those of a file, or, if it begins with '{', the text itself. -EINVAL: the
 * message names the file, the rule and the error.
 */
int transform_open(const char *given, struct transform **ret);
/* The trees that it made must have been freed before. Accepts NULL. */
void transform_free(struct transform *t);
DEFINE_AUTO(transform, struct transform, transform_free);
/* The absolute path of the i-th .npy file that the rules name; NULL after the last. Borrowed. */
const char *transform_file(const struct transform *t, size_t i);

/*
 * Replace *tree, the stored tree, by the new tree, which owns the stored one from then on. No two
 * nodes of both have the same id. -EINVAL: the message names the key and the rule, and *tree is
 * unchanged.
 */
int transform_tree(const struct transform *t, struct tree **tree);
/* Whether the rules are for the item at this path ("state"). */
bool transform_is_for(const struct transform *t, const char *item_path);
/* Append the key of a node, as rules spell it: "params/layers/0/w". */
int transform_key(const struct tree_node *n, struct buf *ret);
/* For `transform --check`: append where the value of a leaf of the new tree comes from. */
int transform_text(const struct transform *t, const struct tree_node *leaf, struct buf *ret);
/*
 * Append a line for each rule that makes nothing in the new tree, because its expression matches no
 * key.
 */
int transform_idle(const struct transform *t, const struct tree *made, struct buf *ret);

/* A leaf of the stored tree that the new one does not show or use. */
struct transform_unused {
	const struct tree_node *leaf;
	uint64_t parts, of; /* unstack() takes only so many parts of it; 0: none */
};
/* Get them in the order of the stored tree; the caller frees the array. */
int transform_unused(const struct transform *t, const struct tree *made,
		     struct transform_unused **ret, size_t *ret_n);
/* Append a text for one: "'params/norm'". */
int transform_unused_text(const struct transform_unused *u, struct buf *ret);

/* A sum over one tree or several: what is left out; zeros to begin with. */
struct transform_left_out {
	size_t trees;
	size_t unused, idle; /* stored leaves, and rules that make nothing in any of the trees */
	struct buf first, lines; /* private */
};
/* Add a tree that the rules have made. */
int transform_left_out(const struct transform *t, const struct tree *made,
		       struct transform_left_out *sum);
/* Append the counts and the first leaf as a text; nothing if nothing is left out. */
int transform_left_out_text(const struct transform_left_out *sum, struct buf *ret);
void transform_left_out_release(struct transform_left_out *sum);
#define auto_left_out __attribute__((cleanup(transform_left_out_release))) struct transform_left_out

/*
 * The `open` of a derived's source: open a store of the computed array. The elements are computed
 * when they are first read.
 */
int derived_open(const struct tree_source *s, struct item *item, struct kv **ret);
/* The `input` of that source. A .npy file is the mount's own. */
const struct tree_node *derived_input(const struct tree_source *s, unsigned i);
/* Check the arguments of a function. -EINVAL: the message says what the function takes. */
int value_fn_check(enum value_fn fn, struct span args, unsigned n_inputs);
/* The name of the function, built-in or of a plugin. */
const char *derived_name(const struct derived *d);

#endif
