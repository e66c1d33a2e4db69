/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known_names.h - the names of files that a checkpoint may have, for sources that cannot be listed.
 */
#ifndef PYTREEFS_KNOWN_NAMES_H
#define PYTREEFS_KNOWN_NAMES_H

#include "core/remote/source/url_store.h"

struct io_dir;
struct step_meta;

extern const struct store_names known_names;
/* Whether the directory of an item has more than its marker: 1 or 0. */
int known_names_any(struct io_dir *dir, const char *rel);
/*
 * Whether the names of all files of an item are known that is not recognized as a tree, in rel of
 * dir: 1; 0 with a note: it may have others, which its server cannot list. -EOPNOTSUPP: none is
 * known. -EUCLEAN: it has none, and a handler of Orbax that writes some. meta: of its step; NULL:
 * it has none, as inside a random key, or it is damaged.
 */
int known_names_of_item(struct io_dir *dir, const char *rel, const struct step_meta *meta,
			struct span item);

#endif
