/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_upload.c - claims the place of a draft in a bucket, and uploads the draft.
 */
#include "handlers/draft/draft_upload.h"

#include <stdio.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/commit/spill_dir.h"
#include "core/commit/step_copy.h"
#include "core/io/bucket_mount.h"
#include "core/step/step_name.h"
#include "core/io/io_store.h"
#include "core/tree/name.h"

#define PART_BYTES (8 * MiB) /* the smallest part of an upload */

struct draft_uploads {
	const struct draft_env *env; /* borrowed */
	struct url_store_opts opts;
	struct budget budget; /* memory of parts that are being sent */
	const char *where;    /* NULL: there is no local directory for drafts */
	pthread_mutex_t lock; /* protects spill until it is set */
	struct spill_dir spill;
	char *remark; /* set if SOURCE is on a file system */
	atomic_bool interrupted;
};

int draft_uploads_new(const struct draft_env *env, const struct url_store_opts *opts,
		      const char *spill, struct draft_uploads **ret)
{
	struct draft_uploads *u = calloc(1, sizeof(*u));
	const struct bucket_mount *m = env->ckpt->source->bucket;

	if (u && !opts)
		u->remark = str_fmt(
			"'%s' is a mount of %s, which does not rename a step as a whole: it is copied "
			"there file by file, and is %s; if it is in S3 or GCS, a step of a SOURCE "
			"s3://... or gs://... is durable at once",
			env->ckpt->source->path, m->name, m->durable);
	if (!u || (!opts && !u->remark)) {
		free(u);
		return fail(-ENOMEM, "cannot open '%s'", env->ckpt->opts.source);
	}
	u->env = env;
	u->where = spill;
	pthread_mutex_init(&u->lock, NULL);
	budget_init(&u->budget, "write_budget", 0);
	if (opts) {
		u->opts = *opts;
		draft_uploads_resize(u, env->options->write_budget);
		io_never_sync(env->ckpt->io);
	}
	*ret = u;
	return 0;
}

const char *draft_uploads_remark(const struct draft_uploads *u)
{
	return u ? u->remark : NULL;
}

/* Not once per SOURCE, because commands open it for each step that they write. */
void draft_uploads_log(const struct draft_uploads *u)
{
	static atomic_flag is_logged = ATOMIC_FLAG_INIT;

	if (draft_uploads_remark(u) && !atomic_flag_test_and_set(&is_logged))
		log_warn("%s", u->remark);
}

uint64_t draft_upload_split(struct ckpt *ckpt, uint64_t write_budget)
{
	uint64_t half = write_budget / 2;

	budget_resize(&ckpt->write_budget, MAX(write_budget - MAX(half, PART_BYTES), half));
	return MAX(half, PART_BYTES);
}

void draft_uploads_resize(struct draft_uploads *u, uint64_t write_budget)
{
	if (u->remark)
		budget_resize(&u->env->ckpt->write_budget, write_budget);
	else
		budget_resize(&u->budget, draft_upload_split(u->env->ckpt, write_budget));
}

void draft_uploads_interrupt(struct draft_uploads *u)
{
	if (u)
		atomic_store(&u->interrupted, true);
}

void draft_uploads_free(struct draft_uploads *u)
{
	if (!u)
		return;
	spill_dir_remove(&u->spill);
	free(u->remark);
	budget_release(&u->budget);
	pthread_mutex_destroy(&u->lock);
	free(u);
}

const char *draft_uploads_url(const struct draft_uploads *u)
{
	return u->env->ckpt->source->path;
}

/* ---- beginning ---- */

static int make_spill(struct draft_uploads *u)
{
	int r = 0;

	pthread_mutex_lock(&u->lock);
	if (!u->spill.dir)
		r = spill_dir_make(u->env->ckpt->io, u->where, &u->spill);
	pthread_mutex_unlock(&u->lock);
	return r;
}

static int claim(struct draft_uploads *u, const char *final, struct step_upload **ret)
{
	auto_free char *url = str_fmt("%s/%s", draft_uploads_url(u), final);

	return url ? step_upload_begin(url, &u->opts, &u->budget, ret) :
		     fail(-ENOMEM, "cannot write '%s'", final);
}

/* Of a draft that the ranks of a job share, the primary has the claim, and the others join it. */
static int join_upload(struct draft *d, const char *final, struct span claimed)
{
	struct draft_uploads *u = d->env->uploads;
	struct collective *j = d->env->collective;
	auto_free char *url = str_fmt("%s/%s", draft_uploads_url(u), final);

	if (collective_is_primary(j)) {
		d->upload = collective_place(j, &d->member);
		return d->upload ? 0 : fail(-ESTALE, "draft '%s' is gone", d->name);
	}
	return url ? step_upload_join(url, &u->opts, &u->budget, claimed, &d->upload) :
		     fail(-ENOMEM, "cannot write '%s'", final);
}

/* Remove what a failed attempt has sent. */
static void drop_objects(const struct draft *d, struct step_upload *u)
{
	struct err_note left;
	int r = step_upload_drop(u);

	if (r >= 0)
		return;
	err_save(r, &left);
	log_warn("objects of draft '%s' stay behind: %s", d->name, left.text);
}

/* The primary's upload of a shared draft belongs to the record of the draft. */
static void release_upload(struct draft *d)
{
	struct step_upload *u = take(d->upload);

	if (!d->env->collective || !collective_is_primary(d->env->collective))
		step_upload_free(u);
	else if (u)
		drop_objects(d, u);
}

static int make_shared_dir(struct draft *d, const char *final, unsigned mode, int64_t init_ns)
{
	auto_buf name = { 0 };
	int r = step_name_on_disk(span_str(final), &name);

	if (r >= 0)
		r = buf_str(&name) ? draft_dir_begin_shared(d->env->uploads->spill.dir,
							    buf_str(&name), final, mode, &d->dir) :
				     -ENOMEM;
	if (r >= 0)
		d->dir->init_ns = init_ns;
	return r;
}

static int begin_shared(struct draft *d, const char *final, unsigned mode)
{
	auto_buf claimed = { 0 };
	struct err_note why;
	int64_t init_ns;
	int r = collective_join_place(d->env->collective, final, &d->member, &init_ns, &claimed);

	if (r < 0)
		return r;
	r = join_upload(d, final, buf_span(&claimed));
	if (r >= 0)
		r = make_shared_dir(d, final, mode, init_ns);
	if (r >= 0)
		return 0;
	err_save(r, &why);
	release_upload(d);
	collective_leave(d->env->collective, &d->member, true);
	return err_restore(&why);
}

int draft_upload_begin(struct draft *d, const char *final, unsigned mode)
{
	struct draft_uploads *u = d->env->uploads;
	int r;

	if (user_is_other())
		return fail(-EACCES,
			    "'%s': only the user who mounted the bucket writes to it, with the "
			    "credentials of that user",
			    d->name);
	if (!u->where)
		return fail(-EOPNOTSUPP,
			    "'%s': a step of a bucket is made in a directory of this machine "
			    "first: spill=off has none",
			    d->name);
	if (u->remark && d->env->collective)
		return fail(-EOPNOTSUPP, "'%s': ranks of a job share no drafts there: %s", d->name,
			    u->remark);
	draft_uploads_log(u);
	r = make_spill(u);
	if (r >= 0 && d->env->collective) {
		r = begin_shared(d, final, mode);
	} else if (r >= 0) {
		if (!u->remark)
			r = claim(u, final, &d->upload);
		if (r >= 0)
			r = draft_dir_begin(u->spill.dir, final, final, mode, &d->dir);
		if (r < 0)
			step_upload_free(take(d->upload));
	}
	if (r >= 0 && d->upload)
		d->sender = file_sender_ref(step_upload_sender(d->upload));
	return MIN(r, 0);
}

/* ---- data files, while they grow ---- */

/* The watcher of one store. */
struct sent_store {
	struct file_sender *sender; /* a reference */
	char *prefix;               /* of the item's files, below the step */
};

static void grew(void *arg, void **mine, const char *path, struct io_file *file, uint64_t end)
{
	const struct sent_store *s = arg;
	struct sent_file *known = *mine;
	auto_free char *whole = known ? NULL : str_fmt("%s%s", s->prefix, path);

	if (known || whole)
		file_sender_grew(s->sender, &known, whole, file, end);
	*mine = known;
}

static void cut(void *arg, void *mine, uint64_t end)
{
	const struct sent_store *s = arg;

	file_sender_cut(s->sender, mine, end);
}

static void closed(void *arg, void *mine)
{
	const struct sent_store *s = arg;

	file_sender_closed(s->sender, mine);
}

static void unwatch(void *arg)
{
	struct sent_store *s = arg;

	file_sender_unref(s->sender);
	free(s->prefix);
	free(s);
}

int draft_upload_watch(const struct draft_node *item, bool replicas, struct item_store_opts *ret)
{
	struct span name = span_str(item->name);
	struct sent_store *s = calloc(1, sizeof(*s));
	char database[64] = "";

	/* Each rank has a database of its own (handlers/job/collective_values.c). */
	if (item->draft->env->collective)
		snprintf(database, sizeof(database), "ocdbt.process_%s%d/",
			 replicas ? "replica_" : "", collective_rank(item->draft->env->collective));

	/* "default.safetensors" in the draft is the item "default". */
	if (!item->is_dir)
		name.n -= strlen(name_ext_text(name_ext_of(name)));
	if (s)
		s->prefix = item->draft->is_item ? strdup(database) :
						   str_fmt("%.*s/%s", SPAN_ARG(name), database);
	if (!s || !s->prefix) {
		free(s);
		return fail(-ENOMEM, "cannot write to '%s'", item->name);
	}
	s->sender = file_sender_ref(item->draft->sender);
	ret->watcher =
		(struct ocdbt_data_watcher){ .grew = grew, .cut = cut, .closed = closed, .arg = s };
	ret->unwatch = unwatch;
	return 0;
}

/* ---- ending ---- */

struct uploading {
	const struct draft *d;
	int64_t deadline;
};

static int check(void *arg)
{
	const struct uploading *u = arg;
	int r = write_env_check(&u->d->env->ckpt->write_env);

	if (r >= 0 && atomic_load(&u->d->env->uploads->interrupted))
		r = fail(-ECANCELED, "the mount is being ended");
	return r < 0 ? r : commit_check_deadline(u->d->dir->final, u->deadline);
}

static int copy(struct draft *d, struct uploading *u)
{
	struct step_copy c = {
		.from = d->dir->dir,
		.source = d->env->ckpt->source,
		.final = d->dir->final,
		.dir_mode = io_dir_mode(d->env->options->mode),
		.check = check,
		.arg = u,
	};

	return step_copy_run(&c);
}

int draft_upload_run(struct draft *d, int64_t deadline)
{
	struct uploading u = { d, deadline };
	int r;

	if (d->env->uploads->remark)
		return copy(d, &u);
	/* It may not be known what has become of the last attempt. */
	r = d->upload ? step_upload_resolve(d->upload) :
			claim(d->env->uploads, d->dir->final, &d->upload);
	if (r > 0) {
		r = draft_upload_check_same(d);
	} else if (r == 0) {
		d->unknown_at = 0;
		r = step_upload_run(d->upload, d->dir->dir, check, &u);
	}
	if (r >= 0 || !step_upload_may_exist(d->upload))
		step_upload_free(take(d->upload));
	else
		draft_upload_set_unknown(d);
	io_store_refresh(d->env->ckpt->io);
	return r;
}

void draft_upload_set_unknown(struct draft *d)
{
	if (!d->unknown_at)
		d->unknown_at = d->changes + 1;
}

int draft_upload_check_same(const struct draft *d)
{
	if (!d->unknown_at || d->unknown_at == d->changes + 1)
		return 0;
	return fail(-EEXIST,
		    "'%s' is committed as it was at an earlier rename, whose result was not known, "
		    "and the draft has changed since",
		    d->dir->final);
}

/* ---- drafts that ranks share ---- */

int draft_upload_send(struct draft *d, int64_t deadline)
{
	struct uploading u = { d, deadline };
	int r = 0;

	d->unknown_at = 0;

	/*
	 * An attempt whose result this rank did not know has failed: before another one, the
	 * primary has found out.
	 */
	if (d->is_undecided) {
		step_upload_set_keep(d->upload, false);
		d->is_undecided = false;
		r = step_upload_drop(d->upload);
	}
	if (r >= 0)
		r = step_upload_send(d->upload, d->dir->dir, check, &u);
	io_store_refresh(d->env->ckpt->io);
	return r;
}

int draft_upload_list(const struct draft *d, struct buf *ret)
{
	/* At the first attempt nothing can be there that nobody sent for it. */
	return d->member.attempt > 1 ? step_upload_list(d->upload, ret) : 0;
}

int draft_upload_publish(struct draft *d, const struct buf *list, size_t n, int64_t deadline)
{
	struct uploading u = { d, deadline };
	int r = step_upload_send(d->upload, d->dir->dir, check, &u);

	if (r >= 0 && d->member.attempt > 1)
		r = step_upload_remove_others(d->upload, list, n);
	if (r >= 0)
		r = step_upload_commit_shared(d->upload, check, &u);
	io_store_refresh(d->env->ckpt->io);
	return r;
}

void draft_upload_decided(struct draft *d, int r)
{
	struct err_note why;

	err_save(r, &why);
	d->is_undecided = false;
	/* The primary knows better whether there may be a marker. */
	if (!collective_is_primary(d->env->collective))
		step_upload_set_keep(d->upload, r >= 0);
	if (r < 0)
		drop_objects(d, d->upload);
	if (r >= 0)
		io_store_refresh(d->env->ckpt->io);
	err_restore(&why);
}

int draft_upload_find(struct draft *d)
{
	draft_upload_set_unknown(d);
	d->is_undecided = true;
	step_upload_set_keep(d->upload, true);
	return step_upload_is_committed(d->upload);
}

int draft_upload_resolve(struct draft *d)
{
	return step_upload_resolve(d->upload);
}

bool draft_upload_keeps(const struct draft *d)
{
	return step_upload_must_keep(d->upload);
}

int draft_upload_dir(struct draft *d, struct io_dir **ret)
{
	io_store_refresh(d->env->ckpt->io);
	return io_dir_sub(d->env->ckpt->source, d->dir->final, ret);
}

static int claim_place(void *arg, const char *final, void **ret_place, struct buf *ret)
{
	struct step_upload *s = NULL;
	int r = claim(arg, final, &s);

	if (r >= 0)
		r = buf_add_span(ret, step_upload_claim(s));
	if (r < 0) {
		step_upload_free(s);
		return r;
	}
	*ret_place = s;
	return 0;
}

static void release_place(void *arg, void *place)
{
	step_upload_free(place);
}

const struct collective_place_ops draft_upload_place = { .claim = claim_place,
							 .release = release_place };

/* ---- the end of a draft ---- */

void draft_upload_end(struct draft *d)
{
	struct err_note why;
	int r;

	release_upload(d);
	r = draft_dir_remove(d->dir);
	if (r < 0) {
		err_save(r, &why);
		log_warn("'%s' stays behind until the mount ends: %s", d->dir->dir->path, why.text);
	}
}
