/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nearest.h - find the known word that is nearest to a mistyped one: "did you
 * mean".
 */
#ifndef PYTREEFS_NEAREST_H
#define PYTREEFS_NEAREST_H

struct nearest {
	const char *name; /* as it was typed */
	const char *best; /* NULL: no word is near */
	unsigned within;  /* a word must have fewer edits than this */
};

void nearest_begin(struct nearest *n, const char *name);
/* Offer one of the known words, which must outlive the result. */
void nearest_try(struct nearest *n, const char *word);

#endif
