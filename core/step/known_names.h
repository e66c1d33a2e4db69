/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known_names.h - by which names a checkpoint is known, for sources that cannot list.
 */
#ifndef PYTREEFS_KNOWN_NAMES_H
#define PYTREEFS_KNOWN_NAMES_H

#include "core/store/url_store.h"

extern const struct store_names known_names;

#endif
