/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_name.h - names of step directories: which names are steps, their numbers, and names of
 * drafts.
 *
 * Orbax maps names to numbers with a format that is recorded nowhere, so names are parsed by the
 * common part of all formats: the digits at the end are the number. Numbers may exceed 64 bits and
 * are compared as strings of digits.
 */
#ifndef PYTREEFS_STEP_NAME_H
#define PYTREEFS_STEP_NAME_H

#include "core/base/buf.h"

#define STEP_TMP ".orbax-checkpoint-tmp"

/* Beside steps, this name means the newest of them, for all who read and whatever is there. */
#define STEP_LATEST "latest"

/*
 * Our drafts are called ".STEP.pytreefs-draft" on the disk. No release of Orbax takes such a name
 * for a step or removes it, whereas with cleanup_tmp_directories, or when it saves a step again,
 * Orbax removes all directories with its own STEP_TMP in their names. Old releases of pytreefs used
 * STEP_TMP, so their drafts may remain.
 */
#define STEP_DRAFT ".pytreefs-draft"

/* After the name of a flax file: the directory with the arrays that many hosts wrote. */
#define STEP_NAME_GDA "_gda"

/* Whether a name is temporary: it contains STEP_TMP, or is our name of a draft. */
bool step_name_is_tmp(struct span name);
/* The final name in a temporary name; for other names the name itself. */
struct span step_name_final(struct span name);
/* The text after the mark in a temporary name: "", "-begun-1-2"; empty for other names. */
struct span step_name_rest(struct span name);

struct step_name {
#define EXPONENT_MOST 99999
	struct span prefix; /* before the digits: "", "ckpt_", "checkpoint"; borrowed */
	struct span digits; /* as written, "000023"; borrowed */
	/*
	 * The digits after the dot in "0.85" and "checkpoint_0.85", as flax writes them; borrowed.
	 */
	struct span fraction;
	struct span power; /* "e-05" in "checkpoint_1e-05", as flax writes it; borrowed */
	int exponent;      /* -5, or 0; a large one is cut to EXPONENT_MOST */
	uint64_t number;   /* UINT64_MAX when it does not fit, or is not written as a whole one */
};

/*
 * Split a name: returns 1, or 0 when it does not end in a digit or is temporary. A name that is not
 * a step's ("run2") cannot be distinguished from one that is; step_name_is_orbax() is stricter.
 */
int step_name_parse(struct span name, struct step_name *ret);
/* Whether one of Orbax's formats matches: a whole number, and a prefix that is empty or ends in
 * '_'. */
bool step_name_is_orbax(const struct step_name *n);
/*
 * Compare by number, then by name if the numbers are equal ("07", "7"). The greatest is the latest
 * in Orbax.
 */
int step_name_cmp(const struct step_name *a, const struct step_name *b);

/*
 * Whether creating a directory with this name in the mount begins a draft: STEP.tmp, or STEP +
 * STEP_TMP with any suffix. ret_final is STEP, borrowed. -EINVAL: it is not a name of a draft, and
 * ret_final is empty; or STEP is not a name that step_name_check() takes.
 */
int step_name_draft(struct span name, struct span *ret_final);
/*
 * Check the final name of a draft, which must be a step that Orbax lists: 0, or -EINVAL with the
 * reason.
 */
int step_name_check(struct span name);
/*
 * Append the name of a draft on the disk: "." + STEP + STEP_DRAFT. Also used for an item in a step.
 */
int step_name_on_disk(struct span final, struct buf *ret);
/* The same with `rest` appended, allocated; NULL when out of memory. */
char *step_name_temporary(const char *final, const char *rest);

#endif
