/* SPDX-License-Identifier: Apache-2.0 */
/*
 * py_repr.h - repr() of Python for texts, as in entry names of `_METADATA`.
 */
#ifndef PYTREEFS_PY_REPR_H
#define PYTREEFS_PY_REPR_H

#include "core/base/buf.h"

/*
 * Append repr() of a str. s must be UTF-8. Unicode 14 (Python 3.11) defines which characters are
 * printable.
 */
int py_repr(struct buf *out, struct span s);

#endif
