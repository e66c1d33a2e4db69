/*
 * step_name.h - temporary.
 */
#ifndef PYTREEFS_STEP_NAME_H
#define PYTREEFS_STEP_NAME_H

#include "core/base/buf.h"

bool step_name_is_tmp(struct span name);
bool step_name_number(struct span name, uint64_t *ret);

#endif
