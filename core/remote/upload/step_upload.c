/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_upload.c - uploads the files of a directory, and the marker that commits them.
 */
#include "core/remote/upload/step_upload_impl.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>

#include "core/base/array.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/remote/bucket/bucket_write.h"
#include "core/remote/upload/claim.h"
#include "core/remote/upload/object_tree.h"

#define SHOWN_WITHIN_MS 60000 /* a step is listed so soon after its marker was put */
#define LOOK_AGAIN_MS 100
#define OUR_PREFIX ".pytreefs-"

/* ---- the claim ---- */

/* Fail if the step has its marker: a listing may be older than the commit of another writer. */
static int check_uncommitted(struct step_upload *u)
{
	int r = bucket_has(u->s, MARKER_FILE);

	return r > 0 ? fail(-EEXIST, "'%s' is there already", base_of(u)->url) : r;
}

/* Describe the process of the claim that is there now: returns 1, or 0 when there is none. */
static int show_claim(struct step_upload *u, char *ret, size_t max)
{
	auto_buf text = { 0 };
	int r = store_get(base_of(u), CLAIM_FILE, CLAIM_BYTES, &text, NULL);

	if (r == -ENOENT || r == -EFBIG)
		err_clear();
	if (r == -ENOENT)
		return 0;
	if (r < 0 && r != -EFBIG)
		return r;
	claim_show(buf_span(&text), ret, max);
	return 1;
}

/* The place has the claim of another writer, or had it a moment ago. */
static int refuse_claimed(struct step_upload *u)
{
	char who[192] = "somebody";
	int r = check_uncommitted(u);

	if (r < 0)
		return r;
	r = show_claim(u, who, sizeof(who));
	return r < 0 ? r :
		       fail(-EBUSY,
			    "'%s' is being written by %s; if that died, `pytreefs gc` removes what "
			    "it left",
			    base_of(u)->url, who);
}

/* Say who has the place whose claim was lost: -EEXIST when the step is committed, else -EBUSY. */
static int refuse_lost(struct step_upload *u)
{
	const char *url = base_of(u)->url;
	char who[192] = "somebody";
	int r = bucket_has(u->s, MARKER_FILE);

	if (r > 0)
		return fail(-EEXIST,
			    "'%s' was taken away from its writer: another one has committed it",
			    url);
	if (r < 0)
		return r;
	r = show_claim(u, who, sizeof(who));
	if (r > 0)
		return fail(-EBUSY, "'%s' was taken away from its writer: %s has it now", url, who);
	return r < 0 ? r :
		       fail(-EBUSY,
			    "'%s' was taken away from its writer by `pytreefs gc`, or by hand: "
			    "nobody has it now",
			    url);
}

/* Fail if any object exists, except for our own claim. */
static int check_empty(struct step_upload *u)
{
	auto_of(object_list) struct object_list *l = NULL;
	bool is_ours = u->keeper;
	const char *url = base_of(u)->url;
	int r = u->s->kind->fetch(u->s, "", &l);

	if (r < 0)
		return err_except(r, -ENOENT);
	if (object_list_find(l, MARKER_FILE, NULL))
		return fail(-EEXIST, "'%s' is there already", url);
	if (!is_ours && object_list_find(l, CLAIM_FILE, NULL))
		return refuse_claimed(u);
	if (l->n <= (size_t)is_ours)
		return 0;
	return fail(-EEXIST,
		    "'%s' is not empty: it has '%s', and no " MARKER_FILE
		    "; `pytreefs gc` lists what writers left",
		    url, l->entry[is_ours && !strcmp(l->entry[0].name, CLAIM_FILE)].name);
}

int step_upload_store(const char *url, const struct url_store_opts *opts, struct store **ret)
{
	struct url_store_opts so = *opts;
	struct io_store *base;
	int r;

	so.writes = true;
	so.cache_dir = NULL;
	r = store_open(url, &so, &base);
	if (r < 0)
		return r;
	r = store_check_writable(base);
	if (r < 0) {
		base->ops->free(base);
		return r;
	}
	*ret = store_of(base);
	return 0;
}

int step_upload_open(const char *url, const struct url_store_opts *opts, struct budget *budget,
		     struct step_upload **ret)
{
	auto_of(step_upload) struct step_upload *u = calloc(1, sizeof(*u));
	int r = u ? step_upload_store(url, opts, &u->s) : fail(-ENOMEM, "cannot write '%s'", url);

	if (r < 0)
		return r;
	u->budget = budget;
	r = file_sender_new(base_of(u), budget, &u->sender);
	if (r < 0)
		return r;
	*ret = take(u);
	return 0;
}

/* Remove the claim, and nothing else. */
static void release_claim(struct step_upload *u)
{
	const char *claim = CLAIM_FILE;
	int r;

	claim_keeper_free(take(u->keeper));
	r = store_remove(base_of(u), &claim, 1);
	if (r < 0)
		log_warn("a claim stays behind, which gc removes: %s", err_text(r));
	err_clear();
}

static int keep_claim(struct step_upload *u, unsigned renew_ms)
{
	int r = claim_keeper_new(base_of(u), buf_span(&u->claim), renew_ms, &u->keeper);

	if (r < 0)
		return r;
	/* Another writer may have committed the step and removed its claim meanwhile. */
	r = check_empty(u);
	return r < 0 ? r : check_uncommitted(u);
}

int step_upload_begin(const char *url, const struct url_store_opts *opts, struct budget *budget,
		      struct step_upload **ret)
{
	auto_of(step_upload) struct step_upload *u = NULL;
	int r = step_upload_open(url, opts, budget, &u);

	if (r < 0)
		return r;
	r = check_empty(u);
	if (r >= 0)
		r = claim_make(&u->claim);
	if (r >= 0)
		r = store_put(base_of(u), CLAIM_FILE, buf_span(&u->claim), STORE_IF_ABSENT, NULL);
	if (r == -EEXIST)
		return refuse_claimed(u);
	if (r < 0)
		return r;
	r = keep_claim(u, opts->claim_renew_ms);
	if (r < 0) {
		struct err_note why;

		err_save(r, &why);
		claim_keeper_stop(u->keeper);
		/* If it is not ours any more, who has it removes it. It has just been put if no
		 * keeper was made. */
		if (!u->keeper || claim_keeper_renew(u->keeper, "") != -EEXIST)
			release_claim(u);
		return err_restore(&why);
	}
	*ret = take(u);
	return 0;
}

/* ---- files ---- */

/* The phase of a file: documents by which readers find other files are uploaded after those. */
static int phase_of(const char *path)
{
	static const char *const second[] = { "manifest.ocdbt", "_METADATA", ".zarray", "zarr.json",
					      "checkpoint" };
	const char *name = path_last(path);

	if (!strcmp(name, MARKER_FILE) || !strcmp(name, "_CHECKPOINT_METADATA"))
		return 2;
	for (size_t i = 0; i < ARRAY_LEN(second); i++)
		if (!strcmp(name, second[i]))
			return 1;
	return 0;
}

void sent_list_release(struct sent_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->file[i].path);
	free(l->file);
	*l = (struct sent_list){ 0 };
}

struct finding {
	struct sent_list *all;
	struct io_dir *from;
};

static int add_file(void *arg, const char *path, unsigned char type)
{
	struct finding *f = arg;
	struct sent_list *a = f->all;
	struct stat st;
	int r;

	/* The marker and the claim, and stores of the draft that are in no item, are left out. */
	if (!strcmp(path, MARKER_FILE) ||
	    (!strchr(path, '/') && !strncmp(path, OUR_PREFIX, strlen(OUR_PREFIX)) &&
	     strncmp(path, PART_PREFIX, strlen(PART_PREFIX)) != 0))
		return 1;
	if (type == DT_DIR)
		return 0;
	r = io_stat(f->from, path, &st);
	if (r < 0)
		return r;
	if (!array_reserve(a->file, a->cap, a->n + 1))
		return fail(-ENOMEM, "cannot write '%s'", path);
	a->file[a->n] = (struct sent){ .path = strdup(path),
				       .phase = phase_of(path),
				       .ino = st.st_ino,
				       .size = (uint64_t)st.st_size,
				       .mtime = st.st_mtim };
	return a->file[a->n++].path ? 0 : fail(-ENOMEM, "cannot write '%s'", path);
}

static int by_phase(const void *a, const void *b)
{
	const struct sent *x = a, *y = b;

	return x->phase != y->phase ? x->phase - y->phase : strcmp(x->path, y->path);
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct sent *)a)->path, ((const struct sent *)b)->path);
}

static bool is_same(const struct sent *s, const struct sent *f)
{
	return s->ino == f->ino && s->size == f->size && s->mtime.tv_sec == f->mtime.tv_sec &&
	       s->mtime.tv_nsec == f->mtime.tv_nsec;
}

/* Note what a look at the claim has found, and return it. */
static int note_claim(struct step_upload *u, int r)
{
	if (r != -EEXIST)
		return r;
	u->state = UPLOAD_LOST;
	return refuse_lost(u);
}

int step_upload_check_claim(struct step_upload *u)
{
	return note_claim(u, claim_check(base_of(u), buf_span(&u->claim)));
}

/* From now on gc cannot take the place over on account of an earlier look at the claim. */
static int renew_claim(struct step_upload *u, bool commits)
{
	int r = claim_keeper_renew(u->keeper, commits ? CLAIM_COMMITTING : "");

	/* Where nothing can be replaced, gc cannot take the place over, either. */
	if (r >= 0 || r == -EEXIST || (commits && r != -EOPNOTSUPP))
		return note_claim(u, r);
	/* Credentials or a full bucket may allow to read and to remove, and not to replace. */
	return step_upload_check_claim(u);
}

int step_upload_send(struct step_upload *u, struct io_dir *from, int (*check)(void *arg), void *arg)
{
	auto_sent_list a = { 0 };
	const struct sent_list *before = &u->sent;
	struct finding f = { &a, from };
	int r = u->state == UPLOAD_EMPTYING ? step_upload_drop(u) : 0;

	if (r < 0)
		return r;
	r = io_walk(from, ".", false, add_file, &f);
	if (r < 0)
		return r;
	if (a.n)
		qsort(a.file, a.n, sizeof(*a.file), by_phase);
	/* A phase begins when all objects of the one before exist. */
	for (size_t at = 0; at < a.n && r >= 0;) {
		int phase = a.file[at].phase;

		/* Objects of another writer may be there by now, under the same names. */
		r = step_upload_check_claim(u);
		for (; at < a.n && a.file[at].phase == phase && r >= 0; at++) {
			const struct sent *s = before->n ?
						       bsearch(&a.file[at], before->file, before->n,
							       sizeof(*before->file), by_path) :
						       NULL;

			if (!s || !is_same(s, &a.file[at]))
				r = file_sender_add(u->sender, from, a.file[at].path,
						    !s && !u->has_dropped);
		}
		if (r < 0)
			return r;
		r = file_sender_wait(u->sender, check, arg);
	}
	if (r < 0)
		return r;
	r = file_sender_drop_others(u->sender);
	if (r < 0)
		return r;
	if (a.n)
		qsort(a.file, a.n, sizeof(*a.file), by_path);
	sent_list_release(&u->sent);
	u->sent = a;
	a = (struct sent_list){ 0 };
	return 0;
}

struct file_sender *step_upload_sender(struct step_upload *u)
{
	return u->sender;
}

/* ---- the commit ---- */

static int put_marker(struct step_upload *u)
{
	auto_buf text = { 0 }, there = { 0 };
	bool may_arrive = false;
	struct err_note why;
	int r = buf_addf(&text, "Checkpoint commit was successful to %s\n%.*s", base_of(u)->url,
			 SPAN_ARG(buf_span(&u->claim)));

	if (r < 0)
		return r;
	u->asked_ns = clock_read_ns(CLOCK_BOOTTIME);
	r = store_put(base_of(u), MARKER_FILE, buf_span(&text), STORE_IF_ABSENT, &may_arrive);
	if (r < 0 && r != -EEXIST && may_arrive) {
		/* As long as the marker may arrive, everything stays (step_upload_resolve()). */
		err_save(r, &why);
		u->state = UPLOAD_COMMITTING;
		r = store_get(base_of(u), MARKER_FILE, text.n, &there, NULL);
		if (r < 0 || !span_eq(buf_span(&there), buf_span(&text)))
			return fail(why.code, "whether '%s' is committed is not known: %s",
				    base_of(u)->url, why.text);
	}
	if (r >= 0 || r == -EEXIST)
		u->state = UPLOAD_COMMITTED;
	return r == -EEXIST ? refuse_lost(u) : r;
}

static int wait_shown(struct step_upload *u)
{
	int64_t end = clock_ns() + (int64_t)SHOWN_WITHIN_MS * 1000000;

	for (;;) {
		int r = object_is_listed(u->s, "", MARKER_FILE);

		if (r > 0 || (r < 0 && r != -ENOENT))
			return MIN(r, 0);
		err_clear();
		if (clock_ns() > end)
			return fail(-ETIMEDOUT,
				    "'%s' is committed, and no listing shows it after %d s",
				    base_of(u)->url, SHOWN_WITHIN_MS / 1000);
		nanosleep(&(struct timespec){ .tv_nsec = LOOK_AGAIN_MS * 1000000 }, NULL);
	}
}

int step_upload_finish(struct step_upload *u)
{
	int r = wait_shown(u);

	if (r < 0)
		return r;
	release_claim(u);
	return 0;
}

static int commit(struct step_upload *u, int (*check)(void *arg), void *arg)
{
	int64_t began;
	int r = check ? check(arg) : 0;

	if (r < 0)
		return r;
	/* Remove uploads whose first answer was lost. */
	r = store_remove_uploads(base_of(u), "");
	if (r < 0)
		return r;
	/* The claim is renewed again if this process was suspended meanwhile. */
	do {
		began = clock_read_ns(CLOCK_BOOTTIME);
		r = renew_claim(u, true);
		if (r < 0)
			return r;
	} while (clock_read_ns(CLOCK_BOOTTIME) - began > CLAIM_COMMIT_NS / 2);
	r = put_marker(u);
	return r < 0 ? r : step_upload_finish(u);
}

int step_upload_run(struct step_upload *u, struct io_dir *from, int (*check)(void *arg), void *arg)
{
	int r = step_upload_send(u, from, check, arg);

	return r < 0 ? r : commit(u, check, arg);
}

int step_upload_commit_shared(struct step_upload *u, int (*check)(void *arg), void *arg)
{
	auto_of(object_list) struct object_list *l = NULL;
	int r = u->s->kind->fetch(u->s, "", &l);

	if (r < 0)
		return r;
	/* Ranks sent parts of arrays so that this process could join them. */
	for (size_t i = 0; i < l->n && r >= 0; i++)
		if (!strncmp(l->entry[i].name, PART_PREFIX, strlen(PART_PREFIX)))
			r = object_tree_remove(u->s, l->entry[i].name, NULL, NULL, NULL);
	return r < 0 ? r : commit(u, check, arg);
}

static int renew_to_remove(void *arg)
{
	return renew_claim(arg, false);
}

static int remove_uncommitted(struct step_upload *u)
{
	const char *claim = CLAIM_FILE;
	int r;

	if (u->state != UPLOAD_LOST) {
		r = object_tree_remove(u->s, "", renew_to_remove, u, NULL);
		if (u->state != UPLOAD_LOST)
			return r;
		err_clear();
	}
	/*
	 * Objects that were on their way when gc took the place away may have arrived since. If
	 * nobody has claimed the place, claim it again to remove them.
	 */
	r = store_put(base_of(u), CLAIM_FILE, buf_span(&u->claim), STORE_IF_ABSENT, NULL);
	if (r < 0)
		return err_except(r, -EEXIST);
	r = bucket_has(u->s, MARKER_FILE);
	if (r != 0)
		return r < 0 ? r : store_remove(base_of(u), &claim, 1);
	return object_tree_remove(u->s, "", renew_to_remove, u, NULL);
}

void step_upload_free(struct step_upload *u)
{
	struct err_note why, left;
	int r;

	if (!u)
		return;
	err_peek(&why);
	if (u->sender)
		file_sender_end(u->sender);
	r = u->is_joined ? step_upload_remove_sent(u) : 0;
	if (r < 0) {
		err_save(r, &left);
		log_warn("objects below '%s' stay behind, which gc removes: %s", base_of(u)->url,
			 left.text);
	}
	claim_keeper_stop(u->keeper);
	/* This process may go on for long, and gc finds out what has become of the step. */
	if (u->keeper && u->state == UPLOAD_COMMITTING)
		claim_keeper_renew(u->keeper, CLAIM_ENDED CLAIM_COMMITTING);
	else if (u->keeper && u->state != UPLOAD_COMMITTED) {
		r = remove_uncommitted(u);
		if (r < 0) {
			err_save(r, &left);
			log_warn("'%s' stays behind, which gc removes: %s", base_of(u)->url,
				 left.text);
		}
	}
	claim_keeper_free(u->keeper);
	sent_list_release(&u->sent);
	file_sender_unref(u->sender);
	if (u->s)
		base_of(u)->ops->free(base_of(u));
	buf_release(&u->claim);
	free(u);
	err_restore(&why);
}
