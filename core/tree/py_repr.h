/* SPDX-License-Identifier: Apache-2.0 */
/*
 * py_repr.h - texts as Python's repr() spells them; entry names of `_METADATA` are such.
 */
#ifndef PYTREEFS_PY_REPR_H
#define PYTREEFS_PY_REPR_H

#include "core/base/buf.h"

/* repr() of a str. s must be UTF-8. Printable is what Unicode 14 (Python 3.11) says. */
int py_repr(struct buf *out, struct span s);

#endif
