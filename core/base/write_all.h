/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_all.h - bytes to a pipe, a terminal or a file at its own position. What belongs to a
 * checkpoint goes through core/io.
 */
#ifndef PYTREEFS_WRITE_ALL_H
#define PYTREEFS_WRITE_ALL_H

#include "core/base/buf.h"

/* All of s, in as many pieces as the descriptor takes. A negative errno without a note: nobody
 * knows how much was written. */
int write_all(int fd, struct span s);

#endif
