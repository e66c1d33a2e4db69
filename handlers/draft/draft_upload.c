/* SPDX-License-Identifier: Apache-2.0 */
/* draft_upload.c - claims the place of a draft in a bucket, and uploads the draft. */
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

struct draft_uploads {
	const struct draft_env *env; /* borrowed */
	struct url_store_opts opts;
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
			"'%s' is a mount of %s, which does not rename a step as a whole: it is "
			"copied "
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
	if (opts) {
		u->opts = *opts;
		env->ckpt->sends = true;
		ckpt_share_memory(env->ckpt, env->ckpt->opts.read_budget,
				  env->ckpt->opts.write_budget);
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
	pthread_mutex_destroy(&u->lock);
	free(u);
}

/* ---- beginning ---- */

int draft_upload_claim(struct draft_uploads *u, const char *final, struct span claimed,
		       struct step_upload **ret)
{
	struct budget *budget = &u->env->ckpt->upload_budget;
	auto_free char *url = str_fmt("%s/%s", u->env->ckpt->source->path, final);

	if (!url)
		return fail(-ENOMEM, "cannot write '%s'", final);
	return claimed.p ? step_upload_join(url, &u->opts, budget, claimed, ret) :
			   step_upload_begin(url, &u->opts, budget, ret);
}

int draft_upload_prepare(struct draft *d)
{
	struct draft_uploads *u = d->env->uploads;

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
	return 0;
}

int draft_upload_spill(struct draft *d, struct io_dir **ret)
{
	struct draft_uploads *u = d->env->uploads;
	int r = draft_upload_prepare(d);

	if (r < 0)
		return r;
	pthread_mutex_lock(&u->lock);
	if (!u->spill.dir)
		r = spill_dir_make(u->env->ckpt->io, u->where, &u->spill);
	pthread_mutex_unlock(&u->lock);
	*ret = u->spill.dir;
	return r;
}

int draft_upload_begin(struct draft *d, const char *final, unsigned mode)
{
	struct io_dir *spill;
	int r = draft_upload_spill(d, &spill);

	if (r < 0)
		return r;
	r = draft_upload_claim(d->env->uploads, final, span_of(NULL, 0), &d->upload);
	if (r < 0)
		return r;
	r = draft_dir_begin(spill, final, final, mode, false, &d->dir);
	if (r < 0) {
		step_upload_free(take(d->upload));
		return r;
	}
	draft_upload_set_sender(d);
	return 0;
}

void draft_upload_set_sender(struct draft *d)
{
	d->sender = file_sender_ref(step_upload_sender(d->upload));
}

int draft_copy_begin(struct draft *d, const char *final, unsigned mode)
{
	struct io_dir *spill;
	int r = draft_upload_spill(d, &spill);

	if (r < 0)
		return r;
	draft_uploads_log(d->env->uploads);
	return draft_dir_begin(spill, final, final, mode, false, &d->dir);
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

static void upload_cut(void *arg, void *mine, uint64_t end)
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

int draft_upload_watch_in(const struct draft_node *item, const char *database,
			  struct item_store_opts *ret)
{
	struct span name = span_str(item->name);
	struct sent_store *s = calloc(1, sizeof(*s));

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
	ret->watcher = (struct ocdbt_data_watcher){
		.grew = grew, .cut = upload_cut, .closed = closed, .arg = s
	};
	ret->unwatch = unwatch;
	return 0;
}

int draft_upload_watch(const struct draft_node *item, bool replicas, struct item_store_opts *ret)
{
	return draft_upload_watch_in(item, "", ret);
}

/* ---- ending ---- */

int draft_upload_check(void *arg)
{
	const struct uploading *u = arg;
	int r = write_env_check(&u->d->env->ckpt->write_env);

	if (r < 0)
		return r;
	if (atomic_load(&u->d->env->uploads->interrupted))
		return fail(-ECANCELED, "the mount is being ended");
	return commit_check_deadline(u->d->dir->final, u->deadline);
}

static int publish_copy(struct commit *c)
{
	struct draft *d = c->publisher_arg;
	struct uploading u = { d, c->deadline_ns };
	struct step_copy copy = {
		.from = d->dir->dir,
		.source = d->env->ckpt->source,
		.final = d->dir->final,
		.dir_mode = io_dir_mode(d->env->options->mode),
		.check = draft_upload_check,
		.arg = &u,
	};
	int r = draft_dir_check(d->dir);

	return r < 0 ? r : step_copy_run(&copy);
}

const struct commit_publisher publish_by_copy = { .publish = publish_copy };

static int publish_upload(struct commit *c)
{
	struct draft *d = c->publisher_arg;
	struct uploading u = { d, c->deadline_ns };
	enum upload_state state;
	int r = draft_dir_check(d->dir);

	if (r < 0)
		return r;
	/* It may not be known what has become of the last attempt. */
	r = d->upload ? step_upload_resolve(d->upload) :
			draft_upload_claim(d->env->uploads, d->dir->final, span_of(NULL, 0),
					   &d->upload);
	if (r > 0) {
		r = draft_upload_check_same(d);
	} else if (r == 0) {
		d->unknown_at = 0;
		r = step_upload_run(d->upload, d->dir->dir, draft_upload_check, &u);
	}
	state = d->upload ? step_upload_state(d->upload) : UPLOAD_LOST;
	/* After a failure, the step may be committed, or be so yet. */
	if (r < 0 && (state == UPLOAD_COMMITTING || state == UPLOAD_COMMITTED))
		draft_upload_set_unknown(d);
	else
		step_upload_free(take(d->upload));
	io_store_refresh(d->env->ckpt->io);
	return r;
}

const struct commit_publisher publish_by_upload = { .publish = publish_upload };

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

/* ---- the end of a draft ---- */

void draft_upload_remove_spill(struct draft *d)
{
	struct err_note why;
	int r = draft_dir_remove(d->dir);

	if (r < 0) {
		err_save(r, &why);
		log_warn("'%s' stays behind until the mount ends: %s", d->dir->dir->path, why.text);
	}
}

int draft_upload_end(struct draft *d)
{
	step_upload_free(take(d->upload));
	draft_upload_remove_spill(d);
	return 0;
}

void draft_upload_leave(struct draft *d)
{
	log_warn("draft '%s' was not committed, and was removed", d->name);
	draft_upload_end(d);
}
