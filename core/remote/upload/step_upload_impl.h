/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_upload_impl.h - shared by step_upload.c and step_upload_shared.c, and included only there.
 */
#ifndef PYTREEFS_CORE_STORE_STEP_UPLOAD_IMPL_H
#define PYTREEFS_CORE_STORE_STEP_UPLOAD_IMPL_H

#include <time.h>

#include "core/remote/upload/claim_keeper.h"
#include "core/remote/upload/step_upload.h"
#include "core/remote/source/url_store_impl.h"

/* A file of the directory, as it was when it was sent. */
struct sent {
	char *path;
	int phase; /* of the upload */
	uint64_t ino, size;
	struct timespec mtime;
};

struct sent_list {
	struct sent *file;
	size_t n, cap;
};
void sent_list_release(struct sent_list *l);
#define auto_sent_list __attribute__((cleanup(sent_list_release))) struct sent_list

struct step_upload {
	struct store *s;
	struct budget *budget; /* borrowed */
	struct file_sender *sender;
	struct buf claim;
	struct claim_keeper *keeper; /* this process holds the claim; NULL: it does not */
	struct sent_list sent;       /* sorted by path */
	bool is_joined; /* another process holds the claim: only what was sent here is removed */
	enum upload_state state;
	int64_t asked_ns; /* UPLOAD_COMMITTING: CLOCK_BOOTTIME when the request was sent */
	bool has_dropped; /* an attempt has failed, of which objects may be there or arrive */
};

static inline struct io_store *base_of(struct step_upload *u)
{
	return &u->s->base;
}

/* Open the bucket of a URL, to write; the caller frees its store. -EROFS: it is only read. */
int step_upload_store(const char *url, const struct url_store_opts *opts, struct store **ret);
int step_upload_open(const char *url, const struct url_store_opts *opts, struct budget *budget,
		     struct step_upload **ret);
/* UPLOAD_LOST: the claim is not that of this step any more, and the error says who has it. */
int step_upload_check_claim(struct step_upload *u);
/* Remove the objects that were sent through u, if the place is still that of this step. */
int step_upload_remove_sent(struct step_upload *u);
/* The marker is there: wait until others see the step, and release the place. */
int step_upload_finish(struct step_upload *u);

#endif
