/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_options.h - checks of options that only a job of several ranks uses. They are checked in
 * every mount.
 */
#ifndef PYTREEFS_JOB_OPTIONS_H
#define PYTREEFS_JOB_OPTIONS_H

#include "handlers/options/options.h"

/* Parse "2x4" into at most LIMIT_RANK axes. -EINVAL for anything else. */
int job_mesh_parse(const char *text, unsigned *axis, unsigned *ret_n);
/* Parse "0.75": above 0 and at most 1. */
int job_scaling_parse(const char *text, double *ret);

/* For the option table: whether a value is valid by itself. */
bool job_mesh_is_valid(const char *text);
bool job_active_is_valid(const char *text);
bool job_scaling_is_valid(const char *text);

/* Check the options against each other, whatever the number of ranks is. -EINVAL names both. */
int job_options_check(const struct options *o);

#endif
