/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.pml - what job.pml and job_bucket.pml have in common: votes, and the primary's record of a
 * draft (struct record of core/job/collective.c).
 *
 * A message that is late cannot be distinguished from one that is sent late, so a vote is a
 * variable that its sender sets and its reader reads later.
 */
#define PRIMARY 0
#define me (_pid - 1)
#define max(a, b) ((a) > (b) -> (a) : (b))

/* ---- messages ---- */

byte vote1[RANKS], vote2[RANKS];  /* the attempt of the newest vote */
bool against[RANKS];              /* it is an error */
byte go_on;                       /* the primary has answered the first round of this attempt */
byte answered;                    /* the primary has answered this attempt with its result */

/* ---- the primary's record (struct record) ---- */

byte decided, named, entered;
bool ended;
bool succeeded; /* the result of the attempt that was decided last */

/* ---- what has happened ---- */

byte committed;        /* the attempt that has made the step; 0: none */
bool dead[RANKS];
bool is_ok[RANKS];     /* rename has returned 0 */
byte failed[RANKS];    /* the last attempt for which it has returned an error */

/* collective_begin(): the attempt to take part in, or the result of one that was missed. */
inline begin()
{
	atomic {
		named = (has(TELLS_NAME) -> max(named, known) : named);
		current = max(named, decided + 1);
		if
		:: ended ->
			attempt = decided;
			is_decided = true;
			result = true
		:: else ->
			if
			:: current > attempt + 1 && !notified && entered != current ->
				attempt = current - 1;
				is_decided = true;
				result = false
			:: else ->
				attempt = current;
				entered = current;
				is_decided = false
			fi
		fi;
		notified = is_decided
	}
}
