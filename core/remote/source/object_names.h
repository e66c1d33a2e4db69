/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_names.h - names of objects that readers of a bucket look for, and writers of a step put.
 */
#ifndef PYTREEFS_CORE_REMOTE_OBJECT_NAMES_H
#define PYTREEFS_CORE_REMOTE_OBJECT_NAMES_H

#define MARKER_FILE "commit_success.txt"
#define RANK_PREFIX "ocdbt.process_"  /* the directory with the database of a rank, in its item */
#define PART_PREFIX ".pytreefs-part-" /* a part of an array, which a rank sends to the primary */

#endif
