/*
 * text_set.h - texts that come again and again, each kept once; private to core/tree.
 */
#ifndef PYTREEFS_TEXT_SET_H
#define PYTREEFS_TEXT_SET_H

#include "core/base/arena.h"

struct text_slot;

/* A zeroed one is empty. The texts live in an arena, the table on the heap. */
struct text_set {
	struct text_slot *slots;
	size_t n_slots, used;
};

/* The one copy of text in the arena, which is always the same for one set; a NUL follows it. */
int text_set_keep(struct text_set *set, struct arena *arena, struct span text, struct span *ret);
void text_set_release(struct text_set *set);
#define auto_text_set __attribute__((cleanup(text_set_release))) struct text_set

#endif
