/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_name.h - names of step directories: which are steps, of which number, and what to call one.
 *
 * Orbax maps names to numbers with a format that is not recorded anywhere, so names are read by
 * what all formats have in common: the number is the digits at the end. Numbers may be longer than
 * 64 bits; they are compared as digits.
 */
#ifndef PYTREEFS_STEP_NAME_H
#define PYTREEFS_STEP_NAME_H

#include "core/base/buf.h"

#define STEP_TMP ".orbax-checkpoint-tmp"

/*
 * Drafts of ours are called ".STEP.pytreefs-draft" on the disk. No Orbax takes that for a step, and
 * none removes it: with cleanup_tmp_directories, or when it saves a step again, Orbax removes
 * whatever has its own STEP_TMP in the name. Releases of ours that used STEP_TMP left drafts of
 * that naming.
 */
#define STEP_DRAFT ".pytreefs-draft"

/* Whether a name is of a temporary directory: it contains STEP_TMP, or is a draft's of ours. */
bool step_name_is_tmp(struct span name);
/* The final name of a temporary one, without what makes it temporary; else the name itself. */
struct span step_name_final(struct span name);
/* What follows the mark in a temporary name: "", "-begun-1-2"; empty for other names. */
struct span step_name_rest(struct span name);

struct step_name {
	struct span prefix; /* before the digits: "", "ckpt_", "checkpoint"; borrowed */
	struct span digits; /* as they are, "000023"; borrowed */
	uint64_t number;    /* UINT64_MAX when it does not fit */
};

/*
 * Take a name apart: 1, or 0 when it does not end in a digit or is temporary. A name that is not a
 * step's ("run2") cannot be distinguished from one that is; step_name_is_orbax() is stricter.
 */
int step_name_parse(struct span name, struct step_name *ret);
/* Whether some format of Orbax lists it: the prefix is empty or ends in '_'. */
bool step_name_is_orbax(const struct step_name *n);
/* By number, and by name where two are equal ("07", "7"); the last is what Orbax calls latest. */
int step_name_cmp(const struct step_name *a, const struct step_name *b);

/*
 * Whether a directory of that name, made in the mount, is a draft: STEP.tmp, or STEP + STEP_TMP
 * with anything after it. ret_final is STEP, borrowed. -EINVAL: not a name of a draft, or STEP is
 * not a step's.
 */
int step_name_draft(struct span name, struct span *ret_final);
/* Check a draft's final name: it must be a step that Orbax lists. 0, or -EINVAL with the reason. */
int step_name_check(struct span name);
/* The name of a draft on disk: "." + STEP + STEP_DRAFT, also of an item in a step; appended. */
int step_name_on_disk(struct span final, struct buf *ret);
/* The same with `rest` after it, allocated; NULL: no memory. */
char *step_name_temporary(const char *final, const char *rest);

#endif
