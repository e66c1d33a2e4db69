/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket.pml - two writers of one step in a bucket, `gc`, and processes that are killed or
 * suspended. docs/protocols.md explains it, and has what each condition prevents.
 *
 * A request is sent, arrives later or never, and is answered. Its sender may stop waiting for the
 * answer at any time. Each statement is one request of core/remote, or one decision between two.
 *
 * The labels of a writer are the states of docs/protocols.md, and of enum upload_state.
 *
 * Each of the conditions that follow can be left out (without.pml).
 */
#include "without.pml"
#define RENEWS_TO_COMMIT 1      /* the claim is put again right before the marker */
#define SAYS_COMMITTING 2       /* and says that its writer commits: gc waits for ten minutes */
#define DEAD_COMMITTER_WAITS 3  /* gc does so too when it knows that the process has ended */
#define TAKES_OVER 4            /* gc replaces the claim that it judged before it removes anything */
#define LOOKS_FOR_MARKER 5      /* and then asks for the marker */
#define NEW_WRITER_LOOKS 6      /* so does a writer that has just put its claim */
#define RENEWS_TO_REMOVE 7      /* who removes objects puts its claim again before each removal */
#define ONLY_IF_ABSENT 8        /* objects are put only where there is none */
#define KEEPS_UNKNOWN 9         /* nothing is removed after a marker that was not answered */

#ifndef COLLECTORS
#define COLLECTORS 1
#endif
/* More than processes. Writers are 1 and 2, and collectors follow. */
#define N 5
#define NOBODY 0
#define me _pid

/* ---- the bucket ---- */

byte claim, version;    /* .pytreefs-draft: whose it is; its tag */
bool committing;        /* its line */
byte shared;            /* an object to which both writers give the same name: whose it is */
bool own[3];            /* a data file of that writer, which has a random name */
byte marker;            /* commit_success.txt: whose it is */

/* ---- what is on its way ---- */

bool sends_object[N], sends_marker[N], answered[N], refused[N];

/* ---- processes ---- */

bool dead[N];
bool young[N];   /* gc finds its claim or an object of it younger than the age that it was told */
bool begun[N];   /* it has put its claim for a request that has not arrived yet: see `in time` */
bool told[N];    /* its caller knows that the step is committed */
bool failed[N];  /* and that it is not */

/*
 * In time: from a renewal of the claim until the request that follows it has arrived, less time
 * passes than gc waits. Between all other statements any time may pass.
 */
inline renew(commits)
{
	version++;
	committing = commits;
	young[me] = true;
	begun[me] = true
}

inline put_claim()
{
	claim = me;
	version++;
	committing = false;
	young[me] = true
}

/* Ends if the claim is not ours any more. */
inline renew_to_remove()
{
	atomic {
		if
		:: has(RENEWS_TO_REMOVE) && claim != me -> goto gone
		:: has(RENEWS_TO_REMOVE) && claim == me -> renew(false)
		:: else
		fi
	}
}

inline remove_claim()
{
	atomic {
		claim = NOBODY;
		committing = false;
		begun[me] = false
	}
}

/* Remove everything but a marker, of which the caller knows that there is none. */
inline remove_objects()
{
	renew_to_remove();
	atomic {
		shared = NOBODY;
		begun[me] = false
	}
	renew_to_remove();
	atomic {
		own[1] = false;
		own[2] = false;
		begun[me] = false
	}
	/* It is last, so that a removal that failed can be repeated. */
	renew_to_remove();
	remove_claim()
}

proctype writer() provided (!dead[me])
{
	/* Whatever a listing shows: it may be older than the bucket. */
	atomic {
		if
		:: claim == NOBODY -> put_claim()
		:: else -> goto gone
		fi
	}
	if
	:: has(NEW_WRITER_LOOKS) && marker != NOBODY ->
		renew_to_remove();
		remove_claim();
		goto gone
	:: else
	fi;

UPLOAD_CLAIMED:
	own[me] = true;
	atomic {
		sends_object[me] = true;
		answered[me] = false
	}
	if
	:: answered[me] && !refused[me]
	:: answered[me] && refused[me] -> goto UPLOAD_EMPTYING
	:: goto UPLOAD_EMPTYING
	fi;

UPLOAD_COMMITTING:
	atomic {
		if
		:: !has(RENEWS_TO_COMMIT)
		:: has(RENEWS_TO_COMMIT) && claim != me -> goto UPLOAD_LOST
		:: has(RENEWS_TO_COMMIT) && claim == me -> renew(has(SAYS_COMMITTING))
		:: has(RENEWS_TO_COMMIT) -> goto UPLOAD_EMPTYING  /* the put is refused */
		fi
	}
	atomic {
		sends_marker[me] = true;
		answered[me] = false
	}
	if
	:: answered[me] -> begun[me] = false
	:: skip
	fi;
	if
	:: marker == me
	:: marker != NOBODY && marker != me -> goto gone
	:: marker == NOBODY && has(KEEPS_UNKNOWN) -> goto gone
	:: marker == NOBODY && !has(KEEPS_UNKNOWN) -> goto UPLOAD_EMPTYING
	fi;
UPLOAD_COMMITTED:
	told[me] = true;
	/* The place has a marker, so whose claim it is does not matter. */
	remove_claim();
	goto gone;

UPLOAD_EMPTYING:
	failed[me] = true;
	atomic {
		if
		:: claim != me -> goto UPLOAD_LOST
		:: else -> renew(false)
		fi
	}
	remove_objects();
	goto gone;

UPLOAD_LOST:
	failed[me] = true;
	/* Requests of ours may have arrived after gc has emptied the place. */
	atomic {
		if
		:: claim == NOBODY -> put_claim()
		:: else -> goto gone
		fi
	}
	if
	:: marker == NOBODY -> remove_objects()
	:: marker != NOBODY ->
		renew_to_remove();
		remove_claim()
	fi;
gone:
	skip
}

proctype collector() provided (!dead[me])
{
	byte owner, judged;

	atomic {
		owner = claim;
		judged = version;
		if
		:: owner == NOBODY || owner == me -> goto gone
		/* A process of this machine, or one of which only the age is known. */
		:: (dead[owner] || !young[owner]) &&
		   (!committing || (dead[owner] && !has(DEAD_COMMITTER_WAITS)) ||
		    (!sends_marker[owner] && (dead[owner] || !begun[owner])))
		:: else -> goto gone
		fi
	}
	atomic {
		if
		:: has(TAKES_OVER) && (claim != owner || version != judged) -> goto gone
		:: else -> put_claim()
		fi
	}
	if
	:: has(LOOKS_FOR_MARKER) && marker != NOBODY ->
		renew_to_remove();
		remove_claim()
	:: else -> remove_objects()
	fi;
gone:
	skip
}

/* The network, the time, and who kills processes. */
proctype world()
{
end:
	do
	:: atomic {
		sends_object[1] ->
			refused[1] = has(ONLY_IF_ABSENT) && shared == 2;
			shared = (refused[1] -> shared : 1);
			young[1] = true;
			answered[1] = true;
			sends_object[1] = false
	}
	:: atomic {
		sends_object[2] ->
			refused[2] = has(ONLY_IF_ABSENT) && shared == 1;
			shared = (refused[2] -> shared : 2);
			young[2] = true;
			answered[2] = true;
			sends_object[2] = false
	}
	:: atomic {
		sends_marker[1] ->
			marker = (marker == NOBODY -> 1 : marker);
			answered[1] = true;
			sends_marker[1] = false
	}
	:: atomic {
		sends_marker[2] ->
			marker = (marker == NOBODY -> 2 : marker);
			answered[2] = true;
			sends_marker[2] = false
	}
	/* A request is lost. */
	:: atomic { sends_object[1] -> sends_object[1] = false }
	:: atomic { sends_marker[1] -> sends_marker[1] = false; begun[1] = false }
	:: atomic { sends_marker[2] -> sends_marker[2] = false; begun[2] = false }
	/* Time passes. */
	:: atomic { young[1] && !begun[1] -> young[1] = false }
	:: atomic { young[2] && !begun[2] -> young[2] = false }
#if COLLECTORS == 2
	:: atomic { young[3] && !begun[3] -> young[3] = false }
#endif
	/* A process is killed. What it has sent may arrive. */
	:: atomic { !dead[1] -> dead[1] = true }
#if COLLECTORS == 2
	/* Without another one it is as if it was suspended. */
	:: atomic { !dead[3] -> dead[3] = true }
#endif
	od
}

/* ---- what must always hold ---- */

#define is_whole(w) (marker == w && shared == w && own[w])

proctype reader()
{
end:
	atomic {
		/* Who sees a marker reads one writer's step, and all of it. */
		(marker != NOBODY && !is_whole(marker)) ||
		/* Who was told that a step is committed finds it. */
		(told[1] && !is_whole(1)) || (told[2] && !is_whole(2)) ||
		(marker != NOBODY && failed[marker]) ||
		(never_succeeds && (told[1] || told[2])) -> assert(false)
	}
}

init {
	atomic {
		leave_out();
		run writer();
		run writer();
		run collector();
#if COLLECTORS == 2
		run collector();
#endif
		run world();
		run reader()
	}
}
