/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nearest.h - the nearest of the known words to a mistyped one: "did you mean".
 */
#ifndef PYTREEFS_NEAREST_H
#define PYTREEFS_NEAREST_H

struct nearest {
	const char *name; /* as it was typed */
	const char *best; /* NULL: none is near */
	unsigned within;  /* a word must have fewer edits than this */
};

void nearest_begin(struct nearest *n, const char *name);
/* Offer one of the known words. It must live as long as the result is used. */
void nearest_try(struct nearest *n, const char *word);

#endif
