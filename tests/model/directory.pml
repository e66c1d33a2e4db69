/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory.pml - two writers of one step in a directory, and `gc`, on a file system whose locks
 * all of them see. A process may be suspended or killed between any two system calls.
 * docs/protocols.md explains it, and has what each condition prevents.
 *
 * A number stands for a directory, whoever's name it has; each writer makes the one with its own
 * number. The lock file that a process creates has its number, too. MODE 0: atomicity=rename;
 * MODE 1: commit_file, where the directory has the name of the step from the beginning.
 *
 * Each of the conditions that follow can be left out (without.pml).
 */
#include "without.pml"
#ifndef MODE
#define MODE 0
#endif
#define LOCKS_TO_REMOVE 1     /* who removes a draft of another writer locks its lock file */
#define LOOKS_WHEN_LOCKED 2   /* and looks whether that is still the one in the directory */
#define SPARES_MARKER 3       /* of a directory with the marker only the lock file goes */
#if MODE == 0
#define RENAMES_NEW 4         /* a rename never replaces */
#define LOCKS_BEFORE_NAME 5   /* a draft gets its name after its lock file is locked */
#else
#define ONE_CREATES 6         /* who creates the lock file has the directory */
#define LOOKS_WHEN_BEGUN 7    /* and looks whether it is the right one, and empty */
#endif
/* More than directories, lock files and processes. */
#define N 5
#define NONE 0
#define me _pid  /* writers are 1 and 2, gc is 3 */

/* ---- the disk ---- */

byte draft, step;     /* the directory of that name */
byte lock_file[N];    /* the lock file in a directory */
byte locked[N];       /* the process that holds a lock file */
byte files[N];        /* whose files a directory has: a bit of each writer; 4: some were removed */
byte marker[N];       /* the writer of its commit_success.txt */

bool dead[N];
bool is_whole[N];     /* the writer has written all its files */
bool told[N];         /* its caller knows that the step is committed */
bool failed[N];       /* and that it is not */
bool robbed;          /* the draft of a living writer was removed */
byte at[N];           /* the directory of a writer */

#define bit(w) (1 << ((w) - 1))

/*
 * draft_dir_remove_abandoned() for the directory of that name, which has a lock file. Goes on at
 * `busy` if somebody has it, else behind.
 */
inline remove_abandoned(name)
{
	atomic {
		dir = name;
		file = (dir -> lock_file[dir] : NONE)
	}
	if
	:: file ->
		atomic {
			if
			:: has(LOCKS_TO_REMOVE) && locked[file] && locked[file] != me -> goto busy
			:: else -> locked[file] = (has(LOCKS_TO_REMOVE) -> me : locked[file])
			fi
		}
		if
		:: has(LOOKS_WHEN_LOCKED) && (name != dir || lock_file[dir] != file) -> skip
		:: else ->
			if
			:: has(SPARES_MARKER) && marker[dir] ->
				lock_file[dir] = NONE;
				locked[file] = NONE;
				goto busy
			:: else
			fi;
			/* It gets another name first, whichever directory that is now. */
			atomic {
				gone = name;
				name = NONE;
				robbed = robbed || (gone && lock_file[gone] && locked[lock_file[gone]] &&
						    locked[lock_file[gone]] != me)
			}
			files[gone] = (files[gone] -> 4 : 0);
			lock_file[gone] = NONE
		fi;
		locked[file] = (locked[file] == me -> NONE : locked[file])
	:: else
	fi
}

#define is_mine(name) (name == at[me] && lock_file[at[me]] == me)

inline look_to_commit(name)
{
	if
	:: !is_mine(name) -> goto busy
	:: else
	fi
}

proctype writer() provided (!dead[me])
{
	byte dir, file, gone;

	/* ---- draft_dir_begin() ---- */
#if MODE == 0
	remove_abandoned(draft);
	at[me] = me;
	if
	:: has(LOCKS_BEFORE_NAME) ->
		lock_file[me] = me;
		locked[me] = me
	:: else
	fi;
	atomic {
		if
		:: has(RENAMES_NEW) && draft -> goto busy
		:: else -> draft = me
		fi
	}
	if
	:: has(LOCKS_BEFORE_NAME)
	:: else ->
		lock_file[me] = me;
		locked[me] = me
	fi;
#else
	remove_abandoned(step);
	/* Without a lock file, only one that is empty is taken. */
	atomic {
		if
		:: step == NONE -> step = me; at[me] = me
		:: step && files[step] == 0 && marker[step] == NONE -> at[me] = step
		:: else -> goto busy
		fi
	}
	atomic {
		if
		:: has(ONE_CREATES) && lock_file[at[me]] -> goto busy
		:: else -> lock_file[at[me]] = me
		fi
	}
	atomic {
		if
		:: locked[me] && locked[me] != me -> goto busy
		:: else -> locked[me] = me
		fi
	}
	if
	:: has(LOOKS_WHEN_BEGUN) && (!is_mine(step) || files[at[me]] || marker[at[me]]) ->
		if
		:: is_mine(step) -> lock_file[at[me]] = NONE
		:: else
		fi;
		goto busy
	:: else
	fi;
#endif
	/* ---- values and documents ---- */
	files[at[me]] = files[at[me]] | bit(me);
	is_whole[me] = true;

	/* ---- commit_run() ---- */
#if MODE == 0
	look_to_commit(draft);
	marker[me] = me;
	atomic {
		if
		:: draft == NONE || (has(RENAMES_NEW) && step) -> goto busy
		:: else -> step = draft; draft = NONE
		fi
	}
	if
	:: step != me ->
		/* It was another one's, and gets its name back. */
		atomic {
			if
			:: step && draft == NONE -> draft = step; step = NONE
			:: else
			fi
		}
		goto busy
	:: else
	fi;
#else
	look_to_commit(step);
	marker[at[me]] = me;
	if
	:: step != at[me] ->
		marker[at[me]] = NONE;
		goto busy
	:: else
	fi;
#endif
	told[me] = true;
	lock_file[at[me]] = NONE;
	locked[me] = NONE;
busy:
	failed[me] = !told[me]
}

proctype collector() provided (!dead[me])
{
	byte dir, file, gone;

	if
	:: remove_abandoned(draft)
	:: remove_abandoned(step)
	fi;
busy:
	skip
}

/* Who kills processes, whose locks end with them. */
proctype killer()
{
	if
	:: atomic { dead[1] = true; locked[1] = (locked[1] == 1 -> NONE : locked[1]); locked[2] = (locked[2] == 1 -> NONE : locked[2]) }
	:: atomic { dead[3] = true; locked[1] = (locked[1] == 3 -> NONE : locked[1]); locked[2] = (locked[2] == 3 -> NONE : locked[2]) }
	:: skip
	fi
}

/* ---- what must always hold ---- */

#if MODE == 0
#define is_seen (step != NONE)
#else
#define is_seen (step != NONE && marker[step] != NONE)
#endif
#define is_good(w) (step == at[w] && marker[step] == w && files[step] == bit(w) && is_whole[w])

proctype reader()
{
end:
	atomic {
		(is_seen && !(marker[step] && is_good(marker[step]))) ||
		robbed ||
		(is_seen && failed[marker[step]]) ||
		(told[1] && !is_good(1)) || (told[2] && !is_good(2)) ||
		(never_succeeds && (told[1] || told[2])) -> assert(false)
	}
}

init {
	atomic {
		leave_out();
		run writer();
		run writer();
		run collector();
		run killer();
		run reader()
	}
}
