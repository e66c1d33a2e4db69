/* SPDX-License-Identifier: Apache-2.0 */
/* transform_impl.h - the rules as they were read, for the files transform*.c. */
#ifndef PYTREEFS_TRANSFORM_IMPL_H
#define PYTREEFS_TRANSFORM_IMPL_H

#include "handlers/transform/regex.h"
#include "handlers/transform/transform.h"

#define RULE_INPUTS_MAX 64 /* our limit for inputs of one rule */
#define RULE_STEPS_MAX 8   /* our limit for functions of one rule */
#define RULE_INDEXES_MAX 4 /* our limit for names in one "for" */

struct rule_step {
	enum value_fn fn;
	const struct plugin_value *plugin; /* for VALUE_FN_PLUGIN */
	struct span args;
};

/* "{i}" in the texts of a rule stands for this number. */
struct rule_index {
	struct span name;
	uint64_t value, count;
};

struct rule {
	char what[64];        /* "rule 3", "rule 3 (i=7)", for messages */
	struct span key_text; /* all texts live in the document or the arena */
	struct rule_index index[RULE_INDEXES_MAX];
	unsigned n_indexes;
	struct regex *key; /* owned */
	bool has_original, has_fallback;
	struct span original[RULE_INPUTS_MAX]; /* replacement texts */
	unsigned n_originals;
	const struct json *fallback;
	/* absolute path of the .npy file of a fallback, in the arena; NULL: none */
	const char *file;
	struct rule_step step[RULE_STEPS_MAX];
	unsigned n_steps;
	/* The rule inverted, if its expressions allow that. */
	/* matches keys that the first original makes; owned; its groups are called g1, g2, ... */
	struct regex *inverse;
};

struct transform {
	char *path;
	struct json_doc doc;
	struct arena arena;
	bool default_to_original;
	struct rule *rule; /* in the order of the file */
	/* descending by key, so that the first one that matches counts */
	const struct rule **by_key;
	size_t n_rules;
	const struct json *target; /* array of texts; NULL: none */
	struct span item;          /* the rules are for items of this name; empty: for all */
};

/*
 * The rule that counts for a key of the new tree, and its match. NULL when none matches, or, with
 * *error set, when matching fails.
 */
const struct rule *rule_for(const struct transform *t, struct span key, struct regex_match *ret,
			    int *error);
/* Set *ret to the rule for the key of a node; NULL: a node of that key is carried over. */
int transform_rule_of(const struct transform *t, const struct tree_node *n,
		      const struct rule **ret);
/* Set rule->inverse, or leave it NULL when the rule cannot be inverted. */
int rule_invert(struct rule *rule);
/* Append the new key that a rule makes of a stored key. Returns 1, or 0 when it makes none. */
int rule_new_key(const struct rule *rule, struct span old, struct buf *ret);

#endif
