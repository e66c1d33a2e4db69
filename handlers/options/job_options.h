/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_options.h - options that only a job of several ranks uses, checked whether there is one or
 * not.
 */
#ifndef PYTREEFS_JOB_OPTIONS_H
#define PYTREEFS_JOB_OPTIONS_H

#include "handlers/options/options.h"

/* "2x4": the axes, of LIMIT_RANK; -EINVAL for anything else. */
int job_mesh_parse(const char *text, unsigned *axis, unsigned *ret_n);
/* "0.75": above 0 and at most 1. */
int job_scaling_parse(const char *text, double *ret);

/* For the option table: whether a value is one at all. */
bool job_mesh_is_valid(const char *text);
bool job_active_is_valid(const char *text);
bool job_scaling_is_valid(const char *text);

/* Whether they fit each other, whatever the number of ranks: -EINVAL names both. */
int job_options_check(const struct options *o);

#endif
