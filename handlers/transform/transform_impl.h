/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transform_impl.h - what the files of transformations share: rules as they were read.
 */
#ifndef PYTREEFS_TRANSFORM_IMPL_H
#define PYTREEFS_TRANSFORM_IMPL_H

#include "handlers/transform/regex.h"
#include "handlers/transform/transform.h"

#define RULE_INPUTS_MAX 64 /* ours: inputs of one rule */
#define RULE_STEPS_MAX 8   /* ours: functions of one rule, one after the other */
#define RULE_INDEXES_MAX 4 /* ours: names in one "for" */

struct rule_step {
	enum value_fn fn;
	const struct plugin_value *plugin; /* of VALUE_FN_PLUGIN */
	struct span args;
};

/* "{i}" in the texts of a rule is this number. */
struct rule_index {
	struct span name;
	uint64_t value, count;
};

struct rule {
	char what[64];        /* "rule 3", "rule 3 (i=7)", for messages */
	struct span key_text; /* all texts live in the document, or the arena */
	struct rule_index index[RULE_INDEXES_MAX];
	unsigned n_indexes;
	struct regex *key; /* owned */
	bool has_original, has_fallback;
	struct span original[RULE_INPUTS_MAX]; /* replacement texts */
	unsigned n_originals;
	const struct json *fallback;
	const char *file; /* the .npy file of a fallback, absolute; NULL: none. In the arena */
	struct rule_step step[RULE_STEPS_MAX];
	unsigned n_steps;
	/* The other direction, when the expressions allow it. */
	struct regex *inverse; /* of the first original: owned; its groups are called g1, g2, ... */
};

struct transform {
	char *path;
	struct json_doc doc;
	struct arena arena;
	bool default_to_original;
	struct rule *rule;          /* in the order of the file */
	const struct rule **by_key; /* the last key first: the first one that matches counts */
	size_t n_rules;
	const struct json *target; /* array of texts; NULL: none */
	struct span item;          /* only for items of this name; empty: for all */
};

/* The first rule that matches a key of the new tree; NULL when none does, or, with *error set, when
 * matching fails. */
const struct rule *rule_for(const struct transform *t, struct span key, struct regex_match *ret,
			    int *error);
/* Find the inverse of a rule; left NULL when there is none. */
int rule_invert(struct rule *rule);
/* The key that a rule makes of a stored one: 1, or 0 when it makes none. */
int rule_new_key(const struct rule *rule, struct span old, struct buf *ret);

#endif
