/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nearest.c - compare words by the number of edits between them.
 */
#include "core/base/nearest.h"

#include <string.h>

#include "core/base/mem.h"

#define BEGINNING 3 /* least number of letters of one that is taken for the word */
#define WORD_MAX 62

/* The number of edits between two short words: insertions, deletions and replacements. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[WORD_MAX + 1];
	size_t nb = strlen(b);

	if (strlen(a) > WORD_MAX || nb > WORD_MAX)
		return WORD_MAX + 1;
	for (size_t j = 0; j <= nb; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; a[i - 1]; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= nb; j++) {
			unsigned replace = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			row[j] = MIN(MIN(row[j], row[j - 1]) + 1, replace);
		}
	}
	return row[nb];
}

void nearest_begin(struct nearest *n, const char *name)
{
	/*
	 * The shorter the word, the fewer edits are allowed, since few letters would match
	 * otherwise.
	 */
	*n = (struct nearest){ .name = name,
			       .within = (unsigned)MIN((strlen(name) + 2) / 3 + 1, (size_t)4) };
}

void nearest_try(struct nearest *n, const char *word)
{
	size_t typed = strlen(n->name);
	/* A word that was not typed to its end is as near as one with a wrong letter. */
	unsigned d = typed >= BEGINNING && !strncmp(word, n->name, typed) && word[typed] ?
			     1 :
			     distance(n->name, word);

	if (d < n->within) {
		n->within = d;
		n->best = word;
	}
}
