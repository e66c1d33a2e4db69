/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known_names.h - the names of files that a checkpoint may have, for sources that cannot be listed.
 */
#ifndef PYTREEFS_KNOWN_NAMES_H
#define PYTREEFS_KNOWN_NAMES_H

#include "core/store/url_store.h"

extern const struct store_names known_names;

#endif
