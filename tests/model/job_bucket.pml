/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_bucket.pml - the commit of a draft that the ranks of a job share in a bucket: nothing can be
 * renamed, so a rank that knows no result keeps its objects until it does. bucket.pml has the claim
 * of the place. docs/protocols.md explains both, and has what each condition prevents.
 *
 * A rank may stop waiting at any time, and be killed at any time. The request for the marker may
 * arrive after its sender has stopped waiting, or never.
 *
 * Each of the conditions that follow can be left out (without.pml).
 */
#include "without.pml"
#define TWO_ROUNDS 1          /* the primary puts the marker after a second round of votes */
#define VOTES_HAVE_ATTEMPT 2  /* a vote counts for the attempt that it was made for */
#define KEEPS_UNDECIDED 3     /* a rank that knows no result keeps what it has uploaded */
#define SAYS_UNDECIDED 4      /* the primary distinguishes "failed" from "not known" */
#define WAITS_FOR_MARKER 5    /* the primary begins no attempt while a marker may arrive */
#define RESOLVES 6            /* and looks first whether the last one has made the step */
#define UPLOADS_AFTER_VOTE 7  /* nothing of an attempt is uploaded before its first round */
#define TELLS_NAME 8          /* who gives up an attempt takes part in a later one */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 2 /* of rename, by each rank */
#endif

/* ---- the bucket ---- */

byte object[RANKS];  /* the attempt for which the objects of a rank were uploaded; 0: none */
byte sends_marker;   /* a request is on its way: the attempt */
bool is_answered;

#include "record.pml"

bool undecided;  /* the result of the attempt that was decided last is not known to the primary */

proctype rank() provided (!dead[me])
{
	byte attempt, known = 1, calls, current, i;
	bool notified, is_decided, result, is_unknown, keeps, is_sent;

	do
	:: calls < CALLS && !is_ok[me] ->
		calls++;
		is_unknown = false;
		is_sent = keeps;
		if
		:: begin()
		:: me != PRIMARY ->
			attempt = max(attempt + 1, known);
			notified = false;
			is_decided = false;
			goto give_up
		fi;
		if
		:: is_decided -> is_unknown = !result && undecided; goto conclude
		:: else
		fi;
		if
		:: me == PRIMARY -> goto lead
		:: else
		fi;

		/* ---- follow() ---- */
		if
		:: !has(UPLOADS_AFTER_VOTE) -> object[me] = attempt; is_sent = true
		:: else
		fi;
		vote1[me] = attempt;
		if
		:: go_on == attempt
		:: answered == attempt ->
			atomic { result = succeeded; is_unknown = !result && undecided };
			goto conclude
		:: goto give_up
		fi;
		keeps = false;
		is_sent = true;
		object[me] = attempt;
		vote2[me] = attempt;
		if
		:: answered == attempt ->
			atomic { result = succeeded; is_unknown = !result && undecided };
			goto conclude
		:: skip
		fi;
give_up:
		result = false;
		/* It has uploaded nothing for this attempt, or is not needed: it cannot succeed. */
		known = attempt + 1;
		if
		:: atomic { named = (has(TELLS_NAME) -> max(named, known) : named) }
		:: skip /* the message comes too late */
		fi;
		is_unknown = is_sent;
conclude:
		if
		:: !result && is_unknown -> keeps = true; result = committed
		:: !result && !is_unknown -> keeps = false
		:: else
		fi;
		if
		:: !result && is_sent && (!keeps || !has(KEEPS_UNDECIDED)) -> object[me] = 0
		:: else
		fi;
		atomic {
			is_ok[me] = result;
			failed[me] = (result || is_unknown -> failed[me] : attempt)
		}
		goto next;

lead:
		/* ---- step_upload_resolve() ---- */
		result = true;
		if
		:: undecided && has(WAITS_FOR_MARKER) && sends_marker -> result = false; goto decide
		:: undecided && has(RESOLVES) && committed -> goto decide
		:: else -> undecided = false
		fi;
		/* ---- run_rounds() ---- */
		i = 1;
		do
		:: i < RANKS && result ->
			if
			:: vote1[i] == attempt || (!has(VOTES_HAVE_ATTEMPT) && vote1[i]) -> i++
			:: result = false
			fi
		:: else -> break
		od;
		if
		:: result ->
			go_on = attempt;
			object[me] = attempt;
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
		if
		:: result ->
			atomic { sends_marker = attempt; is_answered = false };
			if
			:: is_answered
			:: result = committed; undecided = !result
			fi
		:: else
		fi;
decide:
		/* collective_decide() */
		atomic {
			decided = attempt;
			ended = result;
			succeeded = result;
			undecided = undecided && has(SAYS_UNDECIDED) && !result
		}
		answered = attempt;
		if
		:: !result && !undecided -> object[me] = 0
		:: else
		fi;
		atomic {
			is_ok[me] = result;
			failed[me] = (result || undecided -> failed[me] : attempt)
		}
next:
		skip
	:: else -> break
	od
}

proctype world()
{
end:
	do
	:: atomic {
		sends_marker ->
			committed = (committed -> committed : sends_marker);
			is_answered = true;
			sends_marker = 0
	}
	:: sends_marker -> sends_marker = 0
	:: atomic { !dead[0] && !dead[1] -> dead[0] = true }
	:: atomic { !dead[0] && !dead[1] -> dead[1] = true }
	od
}

/* ---- what must always hold ---- */

/* A step has the objects of one attempt, and of all ranks. */
#define is_mixed(r) (committed && object[r] != committed)
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
		run world();
		run reader()
	}
}
