/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transform.h - another tree in place of the stored one: renamed, computed and given leaves.
 *
 * A file of rules, {"default_to_original": true, "rules": [...], "target": [KEY, ...]}, with keys
 * joined by '/'. A rule is {"key": REGEX} and one of
 *
 *	"original_key": EXPANSION	the leaf of that key of the stored tree
 *	"original_key": [EXPANSION, ...]	several, which value_fn makes one of
 *	"use_fallback": VALUE or FILE	a number, a text, null, or an .npy file
 *
 * and "value_fn": "NAME(ARGS)", or a list of these, each of which takes what the one before gives.
 * With "for": {"i": COUNT} it is COUNT rules, in which {i} is 0 to COUNT - 1. Matching is on whole
 * keys; rules are sorted by key, and the last that matches counts, as in Orbax's
 * apply_transformations(). With "target" those keys are the new tree. Without, they follow from the
 * rules backwards: what a leaf is renamed to, and not what it was called before.
 */
#ifndef PYTREEFS_TRANSFORM_H
#define PYTREEFS_TRANSFORM_H

#include "core/step/item.h"
#include "handlers/plugin/value_fn.h"

struct plugin_value;
struct transform;

/* What the value of a leaf is made of; its source is tree_node.source. Lives in the new tree's
 * arena, or the transform's. */
struct derived {
	struct tree_source source;
	enum value_fn fn;
	const struct plugin_value *plugin; /* of VALUE_FN_PLUGIN */
	struct span args;                  /* "0, 1": what stands between the parentheses */
	const char *file;                  /* an .npy file, absolute; NULL: inputs */
	const struct tree_node **input;    /* leaves of the stored tree */
	unsigned n_inputs;
	const struct derived *inner; /* what its one input is computed by; NULL: inputs */
};

/* Read and check a file of rules. -EINVAL names the file, the rule, and what is wrong with it. */
int transform_open(const char *path, struct transform **ret);
/* Trees made by it must be gone. Accepts NULL. */
void transform_free(struct transform *t);
DEFINE_AUTO(transform, struct transform, transform_free);
/* The i-th of the .npy files that rules name, absolute; NULL after the last. Borrowed. */
const char *transform_file(const struct transform *t, size_t i);

/*
 * The new tree, in the place of the stored one, which it is made of and keeps; their nodes' ids
 * differ. -EINVAL names the key and the rule, and leaves the stored one.
 */
int transform_tree(const struct transform *t, struct tree **tree);
/* "state": whether it is for this item. */
bool transform_is_for(const struct transform *t, const char *item_path);
/* For `transform --check`: where the value of a leaf of the new tree comes from. */
int transform_text(const struct transform *t, const struct tree_node *leaf, struct buf *ret);
/* A line for each rule that makes nothing of the new tree: its expression matches no key. */
int transform_idle(const struct transform *t, const struct tree *made, struct buf *ret);

/* Of struct derived: a store of the computed array. Nothing is computed before it is read. */
int derived_open(const struct tree_source *s, struct item *item, struct kv **ret);
/* Whether a function takes these arguments; -EINVAL says what it takes. */
int value_fn_check(enum value_fn fn, struct span args, unsigned n_inputs);
/* The function's name, a plugin's too. */
const char *derived_name(const struct derived *d);

#endif
