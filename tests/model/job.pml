/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.pml - the commit of a draft that the ranks of a job share in a directory: attempts in two
 * rounds of votes, and what a rank does that gets no answer. docs/protocols.md explains it, and
 * has what each condition prevents.
 *
 * A rank may stop waiting at any time, and be killed at any time.
 *
 * Each of the conditions that follow can be left out (without.pml).
 */
#include "without.pml"
#define TWO_ROUNDS 1          /* the primary publishes after a second round of votes */
#define VOTES_HAVE_ATTEMPT 2  /* a vote counts for the attempt that it was made for */
#define FENCES 3              /* who gives up an attempt renames the draft */
#define RENAMES_BY_NAME 4     /* the primary renames only a draft that has the name it knows */
#define LOOKS_FIRST 5         /* who gives up looks whether the draft has become the step */
#define TELLS_NAME 6          /* a rank tells the primary the name of the draft that it has seen */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 2 /* of rename, by each rank */
#endif
#define STEP 15

/* ---- the directory ---- */

byte name = 1;       /* the draft has the name for this attempt; STEP: it is the step */
byte sealed[RANKS];  /* the attempt for which the values of a rank were made durable last */

#include "record.pml"

/* draft_dir_fence(): 0 is_done: this attempt cannot succeed any more */
inline fence()
{
	if
	:: !has(FENCES) -> is_done = has(LOOKS_FIRST) && name == STEP
	:: else ->
		atomic {
			if
			:: name == STEP -> is_done = has(LOOKS_FIRST)
			:: name != STEP && name > attempt -> is_done = false; known = name
			:: else -> name = attempt + 1; known = name; is_done = false
			fi
		}
	fi
}

proctype rank() provided (!dead[me])
{
	byte attempt, known = 1, calls, current, i;
	bool notified, is_decided, result, is_done, is_against;

	do
	:: calls < CALLS && !is_ok[me] ->
		calls++;
		is_against = false;
		/* draft_dir_find() */
		atomic {
			if
			:: name == STEP -> is_against = true
			:: else -> known = name
			fi
		}
		if
		:: begin()
		:: me != PRIMARY ->
			/* no answer */
			attempt = max(attempt + 1, known);
			notified = false;
			goto give_up
		fi;
		if
		:: is_decided -> goto conclude
		:: else
		fi;
		if
		:: me == PRIMARY -> goto lead
		:: else
		fi;

		/* ---- follow() ---- */
ATTEMPT_FIRST_ROUND:
		atomic {
			vote1[me] = attempt;
			against[me] = is_against
		}
		if
		:: go_on == attempt
		:: answered == attempt -> result = succeeded; goto conclude
		:: goto give_up
		fi;
ATTEMPT_SECOND_ROUND:
		sealed[me] = attempt;
		vote2[me] = attempt;
		if
		:: answered == attempt -> result = succeeded; goto conclude
		:: goto give_up
		fi;
give_up:
		fence();
		result = is_done;
		goto conclude;

lead:
		/* ---- run_rounds() ---- */
		result = !is_against;
		i = 1;
		do
		:: i < RANKS && result ->
			if
			:: vote1[i] == attempt || (!has(VOTES_HAVE_ATTEMPT) && vote1[i]) -> result = !against[i]; i++
			:: result = false
			fi
		:: else -> break
		od;
		if
		:: result ->
			go_on = attempt;
			sealed[me] = attempt;
			i = 1
		:: else
		fi;
		do
		:: i < RANKS && result && has(TWO_ROUNDS) ->
			if
			:: vote2[i] == attempt || (!has(VOTES_HAVE_ATTEMPT) && vote2[i]) -> i++
			:: result = false
			fi
		:: else -> break
		od;
		atomic {
			if
			:: result && name != STEP && (name == known || !has(RENAMES_BY_NAME)) ->
				name = STEP;
				committed = attempt
			:: else -> result = false
			fi
		}
		/* collective_decide() */
		atomic {
			decided = attempt;
			ended = result;
			succeeded = result
		}
		answered = attempt;
conclude:
		atomic {
			is_ok[me] = result;
			failed[me] = (result -> failed[me] : attempt)
		}
	:: else -> break
	od
}

proctype killer()
{
end:
	if
	:: atomic { !dead[0] -> dead[0] = true }
	:: atomic { !dead[1] -> dead[1] = true }
	fi
}

/* ---- what must always hold ---- */

/* A step has the values of one attempt. */
#define is_mixed(r) (committed && sealed[r] != committed)
/* Nobody is told that an attempt has failed which makes the step; nor that there is one, if not. */
#define is_lie(r) ((committed && failed[r] == committed) || (is_ok[r] && !committed))

proctype reader()
{
end:
	atomic {
		(is_mixed(0) || is_mixed(1) || is_mixed(RANKS - 1) ||
		 is_lie(0) || is_lie(1) || is_lie(RANKS - 1) ||
		 (never_succeeds && is_ok[0] && is_ok[1])) -> assert(false)
	}
}

init {
	atomic {
		leave_out();
		run rank();
		run rank();
#if RANKS == 3
		run rank();
#endif
		run killer();
		run reader()
	}
}
