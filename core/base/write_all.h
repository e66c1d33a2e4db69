/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_all.h - write bytes to a pipe, a terminal or a file at its own position. Files of a
 * checkpoint are written through core/io instead.
 */
#ifndef PYTREEFS_WRITE_ALL_H
#define PYTREEFS_WRITE_ALL_H

#include "core/base/buf.h"

/*
 * Write all of s, in as many pieces as the descriptor takes. Returns a negative errno without a
 * note; the number of bytes written is then unknown.
 */
int write_all(int fd, struct span s);

#endif
