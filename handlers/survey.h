/*
 * survey.h - what is known of every leaf of a subtree without reading its data.
 *
 * Leaves are opened by all threads of the pool. A leaf that cannot be opened is described by the
 * reason.
 */
#ifndef PYTREEFS_SURVEY_H
#define PYTREEFS_SURVEY_H

#include "handlers/subtree.h"
#include "handlers/value.h"

struct leaf_facts {
	const struct tree_node *leaf;
	uint32_t part;
	bool is_scalar;
	uint8_t rank;
	enum value_kind kind;		/* VALUE_UNKNOWN: why says what is wrong */
	enum dtype dtype;		/* of VALUE_ARRAY, with what follows */
	const uint64_t *shape, *chunk;
	const char *codecs;		/* JSON */
	uint64_t bytes, stored;		/* of a text, too */
	struct span text;		/* of VALUE_TEXT, when it was asked for */
	int error;			/* negative errno; 0 also for a leaf without a handler */
	const char *why;
};

enum survey_flags { SURVEY_STORED = 1 << 0, SURVEY_TEXTS = 1 << 1 };

struct survey {
	const struct subtree *subtree;	/* borrowed */
	struct leaf_facts *leaf;	/* in the order of parts and trees */
	size_t n;
	struct survey_slice *slice;	/* private: memory of the facts */
	size_t n_slices;
};

int survey_make(const struct subtree *st, unsigned flags, struct survey *ret);
void survey_release(struct survey *s);
#define auto_survey __attribute__((cleanup(survey_release))) struct survey

/*
 * The subtree as one JSON document: structure, kinds, dtypes, shapes, sizes; one line per entry.
 * name is that of the whole. more (may be NULL) adds members to a leaf's object, each with ", " in
 * front. -EFBIG: longer than LIMIT_VIEW_TEXT.
 */
typedef int survey_more_fn(void *arg, const struct leaf_facts *leaf, struct buf *out);
int survey_json(const struct survey *s, const char *name, survey_more_fn *more, void *arg, struct buf *ret);
/* The same in a page for browsers that needs nothing else. */
int survey_html(const struct survey *s, const char *name, survey_more_fn *more, void *arg, struct buf *ret);

#endif
