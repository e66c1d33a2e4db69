/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_upload_shared.c - a step that several processes upload: joining, failed attempts, and what
 * became of a commit.
 */
#include "core/base/array.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/remote/upload/object_tree.h"
#include "core/remote/upload/step_upload_impl.h"
#include "core/remote/bucket/store_write.h"

#define MARKER_BYTES (64 * KiB) /* more than any marker has */

int step_upload_join(const char *url, const struct url_store_opts *opts, struct budget *budget,
		     struct span claim, struct step_upload **ret)
{
	auto_of(step_upload) struct step_upload *u = NULL;
	int r = step_upload_open(url, opts, budget, &u);

	if (r < 0)
		return r;
	r = buf_add_span(&u->claim, claim);
	if (r < 0)
		return r;
	u->is_joined = true;
	*ret = take(u);
	return 0;
}

struct span step_upload_claim(const struct step_upload *u)
{
	return buf_span(&u->claim);
}

/* Whether nothing may be removed. */
static bool must_keep(const struct step_upload *u)
{
	return u->state != UPLOAD_CLAIMED && u->state != UPLOAD_EMPTYING;
}

/* The place may have been taken away, and its objects be those of another writer. */
int step_upload_remove_sent(struct step_upload *u)
{
	int r = must_keep(u) ? 0 : step_upload_check_claim(u);

	if (must_keep(u)) {
		err_clear();
		return 0;
	}
	return r < 0 ? r : file_sender_remove(u->sender);
}

int step_upload_drop(struct step_upload *u)
{
	struct file_sender *fresh = NULL;
	int r;

	/* It may be dropped later: step_upload_resolve(). */
	if (must_keep(u))
		return 0;
	u->state = UPLOAD_EMPTYING;
	u->has_dropped = true;
	file_sender_end(u->sender);
	r = step_upload_remove_sent(u);
	if (r < 0)
		return r;
	r = file_sender_new(base_of(u), u->budget, &fresh);
	if (r < 0)
		return r;
	sent_list_release(&u->sent);
	file_sender_unref(u->sender);
	u->sender = fresh;
	if (u->state == UPLOAD_EMPTYING)
		u->state = UPLOAD_CLAIMED;
	return 0;
}

int step_upload_list(const struct step_upload *u, struct buf *ret)
{
	int r = 0;

	for (size_t i = 0; i < u->sent.n && r >= 0; i++)
		r = buf_add(ret, u->sent.file[i].path, strlen(u->sent.file[i].path) + 1);
	return r;
}

struct wanted {
	const char **path; /* sorted */
	size_t n;
};

static bool is_wanted(void *arg, const char *path)
{
	const struct wanted *w = arg;

	return !strcmp(path, CLAIM_FILE) ||
	       (w->n && bsearch(&path, w->path, w->n, sizeof(*w->path), array_by_text));
}

int step_upload_remove_others(struct step_upload *u, const struct buf *list, size_t n)
{
	auto_free const char **path = NULL;
	struct wanted w = { 0 };
	size_t max = u->sent.n;

	for (size_t i = 0; i < n; i++)
		for (size_t at = 0; at < list[i].n; at += strlen((char *)list[i].p + at) + 1)
			max++;
	w.path = path = calloc(max + 1, sizeof(*path));
	if (!path)
		return fail(-ENOMEM, "cannot list '%s'", base_of(u)->url);
	for (size_t i = 0; i < u->sent.n; i++)
		w.path[w.n++] = u->sent.file[i].path;
	for (size_t i = 0; i < n; i++)
		for (size_t at = 0; at < list[i].n; at += strlen((char *)list[i].p + at) + 1)
			w.path[w.n++] = (const char *)list[i].p + at;
	qsort(w.path, w.n, sizeof(*w.path), array_by_text);
	return object_tree_remove_others(u->s, is_wanted, &w);
}

int step_upload_is_committed(struct step_upload *u)
{
	auto_buf there = { 0 };
	int r = store_get(base_of(u), MARKER_FILE, MARKER_BYTES, &there, NULL);

	return r < 0 ? err_except(r, -ENOENT) : span_ends(buf_span(&there), buf_span(&u->claim));
}

enum upload_state step_upload_state(const struct step_upload *u)
{
	return u->state;
}

void step_upload_set_state(struct step_upload *u, enum upload_state state)
{
	u->state = state;
}

int step_upload_resolve(struct step_upload *u)
{
	int64_t passed = clock_read_ns(CLOCK_BOOTTIME) - u->asked_ns;
	int r = must_keep(u) ? step_upload_is_committed(u) : 0;

	if (r > 0) {
		u->state = UPLOAD_COMMITTED;
		r = step_upload_finish(u);
		return r < 0 ? r : 1;
	}
	if (r < 0 || !must_keep(u))
		return r;
	if (u->state != UPLOAD_COMMITTING) {
		r = step_upload_check_claim(u);
		return r < 0 ? r :
			       fail(-EEXIST, "'%s' was committed by another writer",
				    base_of(u)->url);
	}
	if (passed < CLAIM_COMMIT_NS)
		return fail(-EIO,
			    "whether '%s' is committed is not known: the request for its marker "
			    "was not answered, and may arrive for another %lld s",
			    base_of(u)->url,
			    (long long)((CLAIM_COMMIT_NS - passed) / SECOND_NS) + 1);
	u->state = UPLOAD_CLAIMED;
	return step_upload_drop(u);
}
