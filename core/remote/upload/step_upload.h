/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_upload.h - uploads a directory of this machine as a step of a bucket, or as an item in one.
 *
 * A bucket cannot rename. So the place is claimed first, by an object that is put only if it does
 * not exist. Then files are put at their final names, documents that refer to others last. The
 * marker commit_success.txt, put only if it does not exist, makes it a step. A release without a
 * commit removes everything, the claim last; by the claim of a writer that died
 * step_uploads_remove() finds the rest.
 */
#ifndef PYTREEFS_CORE_STORE_STEP_UPLOAD_H
#define PYTREEFS_CORE_STORE_STEP_UPLOAD_H

#include "core/remote/upload/file_sender.h"
#include "core/remote/source/object_names.h"
#include "core/remote/source/url_store.h"

struct step_upload;

/*
 * The place of a step, as its writer knows it: the states of docs/protocols.md, without "free",
 * which a place is before step_upload_begin() and after step_upload_free().
 */
enum upload_state {
	UPLOAD_CLAIMED,    /* this writer puts files, and may remove them */
	UPLOAD_EMPTYING,   /* files of a failed attempt are being removed; that may have failed */
	UPLOAD_COMMITTING, /* the marker was sent; whether it has arrived, or will, is not known */
	UPLOAD_COMMITTED,  /* the marker is there, which may be that of another writer */
	UPLOAD_LOST,       /* the claim was taken away: files may be those of another writer */
};

/*
 * budget limits the memory of parts that are being sent; it is borrowed, and uploads may share it.
 * -EEXIST: a step exists there, or other objects are below that URL; -EBUSY: another writer has
 * claimed the place.
 */
int step_upload_begin(const char *url, const struct url_store_opts *opts, struct budget *budget,
		      struct step_upload **ret);
/* The sender for data files that are still being written. Borrowed: take a reference to keep it. */
struct file_sender *step_upload_sender(struct step_upload *u);
/*
 * Upload all files of a directory and commit the step: 0 when listings show it. check may be NULL;
 * it is called by any thread, and stops the upload by an error. -EEXIST: another writer committed
 * it; -EBUSY: the claim was lost to another writer, or to gc, and the message says who has it.
 */
int step_upload_run(struct step_upload *u, struct io_dir *from, int (*check)(void *arg), void *arg);
/*
 * Remove everything that was not committed; what was joined removes what was sent through it.
 * Accepts NULL.
 */
void step_upload_free(struct step_upload *u);
DEFINE_AUTO(step_upload, struct step_upload, step_upload_free);

/*
 * A step that several processes write. One begins it and shares its claim with the others, which
 * join. Each sends its files; when the first one knows that all have done so, it commits.
 */
struct span step_upload_claim(const struct step_upload *u);
int step_upload_join(const char *url, const struct url_store_opts *opts, struct budget *budget,
		     struct span claim, struct step_upload **ret);
/*
 * Upload the files of a directory, without the stores of a draft that are not placed yet
 * (".pytreefs-item-..."). Files that an earlier call sent are sent again only if they have changed.
 */
int step_upload_send(struct step_upload *u, struct io_dir *from, int (*check)(void *arg),
		     void *arg);
/*
 * For the process that holds the claim, after its step_upload_send(): remove the parts of arrays
 * (PART_PREFIX) and put the marker.
 */
int step_upload_commit_shared(struct step_upload *u, int (*check)(void *arg), void *arg);
/*
 * An attempt has failed: remove what was sent through u, unless the claim is not that of this step
 * any more. The next step_upload_send() sends it again; it repeats the removal if that failed.
 */
int step_upload_drop(struct step_upload *u);
/* Append the paths that the last step_upload_send() found, each with a NUL. */
int step_upload_list(const struct step_upload *u, struct buf *ret);
/*
 * Before the marker, after a failed attempt: remove all objects that neither this process nor the
 * others have in their lists: those that could not be removed, or of which nobody knew that they
 * had arrived.
 */
int step_upload_remove_others(struct step_upload *u, const struct buf *list, size_t n);
enum upload_state step_upload_state(const struct step_upload *u);
/* For a process that has joined the upload: what it has learned from the one that commits. */
void step_upload_set_state(struct step_upload *u, enum upload_state state);
/*
 * For the process that holds the claim, after a failed attempt: find out what has become of it. 1:
 * the step is committed; 0: it is not, and will not be, and what it sent is removed; -EEXIST or
 * -EBUSY: the place belongs to another writer; another error: it is not known yet.
 */
int step_upload_resolve(struct step_upload *u);
/* Whether the process that holds the claim has committed the step: 1 or 0. */
int step_upload_is_committed(struct step_upload *u);

/* Objects that a writer left in a directory of steps, or in a step. */
struct found_upload {
	const char *path;  /* relative to the URL; "": the URL itself */
	bool is_live;      /* its writer may be alive, or: */
	bool may_commit;   /* it has ended, and its request for the marker may arrive yet */
	bool is_step;      /* it is committed, and only the claim is left over */
	bool is_unclaimed; /* objects that ranks sent; the claim of their job is gone */
	bool removed;      /* true in a dry run if it would be removed */
	uint64_t bytes;
	/* where its age decides: the time of its newest object if that is in the future; else 0 */
	int64_t future_ns;
	int failed; /* the error, with a note, if it could not be removed */
};
struct upload_gc {
	bool dry_run;
	/* age of objects whose writers cannot be checked; 0: keep these */
	int64_t older_than_ns;
	void (*each)(void *arg, const struct found_upload *f);
	void *arg;
};
int step_uploads_remove(const char *url, const struct url_store_opts *opts,
			const struct upload_gc *gc);

#endif
