/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_upload_gc.c - finds and removes what dead writers left in a bucket.
 *
 * The claim of a dead writer is taken over first. If that writer was only taken for dead because of
 * its age, and is alive, either it has renewed its claim meanwhile, and gc lets go; or it finds,
 * before it puts the marker, that its claim is not there any more. While gc holds the claim, no
 * other gc empties the place, and no new writer gets it. If gc dies, its own claim is one of a dead
 * process.
 */
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/remote/bucket/bucket_write.h"
#include "core/remote/upload/claim.h"
#include "core/remote/upload/claim_keeper.h"
#include "core/remote/upload/object_tree.h"
#include "core/remote/upload/step_upload_impl.h"

/* Whether nothing of what a writer that cannot be checked has sent is young. */
static bool is_old(const struct objects *all, int64_t older_than_ns)
{
	return older_than_ns && !clock_is_near(all->newest_ns, older_than_ns);
}

static int64_t in_future(const struct objects *all)
{
	return all->newest_ns > clock_real_ns() ? all->newest_ns : 0;
}

struct judged {
	bool is_dead;
	bool is_guess;           /* by its age */
	bool may_commit;         /* its request for the marker may arrive yet */
	int64_t future_ns;       /* of found_upload */
	char tag[STORE_TAG_MAX]; /* of the claim that was judged */
};

static int step_upload_gc_is_there(struct store *s, const char *dir, const char *name)
{
	auto_free char *path = str_fmt("%s%s%s", dir, *dir ? "/" : "", name);

	return path ? bucket_has(s, path) : fail(-ENOMEM, "cannot look at '%s'", name);
}

/* Judge the writer of a claim, whose object is o. */
static int judge(struct store *s, const char *path, const char *claim, const struct io_object *o,
		 const struct upload_gc *gc, struct judged *ret)
{
	auto_objects all = { .newest_ns = clock_ns_of(o->mtime) };
	auto_buf text = { 0 };
	int64_t older_than_ns = gc->older_than_ns;
	bool is_committing;
	int r = store_get(&s->base, claim, CLAIM_BYTES, &text, ret->tag), live;

	/* The claim has just been removed, or is not ours. */
	if (r < 0)
		return err_except(r, -ENOENT, -EFBIG);
	live = claim_is_live(buf_span(&text));
	is_committing = claim_is_committing(buf_span(&text));
	ret->is_guess = live < 0;
	r = live == 0 && is_committing ? step_upload_gc_is_there(s, path, MARKER_FILE) : 0;
	ret->is_dead = live == 0 && (!is_committing || r > 0);
	if (r < 0 || live > 0 || ret->is_dead)
		return MIN(r, 0);
	/* The request for the marker may arrive although its sender has ended. */
	if (live == 0)
		older_than_ns = CLAIM_COMMIT_NS;
	else if (older_than_ns && is_committing)
		older_than_ns = MAX(older_than_ns, CLAIM_COMMIT_NS);
	/* Only now: a claim that was renewed before it was read is young in this listing. */
	r = is_old(&all, older_than_ns) ? objects_collect(s, path, &all) : 0;
	if (r >= 0)
		ret->is_dead = is_old(&all, older_than_ns);
	ret->may_commit = live == 0 && !ret->is_dead;
	ret->future_ns = in_future(&all);
	return r;
}

/* A claim that was taken over, or could not be. */
struct taken {
	struct store *s;
	const char *path;
	struct span claim; /* this process's; empty: it is still that of the dead writer */
	const char *tag;   /* of the latter */
	unsigned number;
};

/* Another gc may have the place, if this one was suspended. */
static int step_upload_gc_renew(void *arg)
{
	struct taken *t = arg;
	char tag[STORE_TAG_MAX];
	auto_buf there = { 0 };
	int r;

	if (t->claim.n)
		return claim_renew(&t->s->base, t->path, t->claim, ++t->number, "");
	r = store_get(&t->s->base, t->path, CLAIM_BYTES, &there, tag);
	return r < 0                    ? r :
	       strcmp(tag, t->tag) != 0 ? fail(-EEXIST, "'%s' has changed", t->path) :
					  0;
}

/* Remove what the dead writer of a claim left. 0: it was not dead. */
static int remove_one(struct store *s, const char *claim, const struct judged *j,
		      struct found_upload *f)
{
	auto_buf own = { 0 };
	int r = claim_take_over(&s->base, claim, j->tag, &own);
	struct taken t = { .s = s,
			   .path = claim,
			   .claim = r < 0 ? span_of(NULL, 0) : buf_span(&own),
			   .tag = j->tag };

	if (r == -EEXIST || r == -ENOENT) {
		err_clear();
		return 0;
	}
	/* A process of this machine that has ended cannot come back, and a bucket may be full. */
	if (r < 0 && !j->is_guess) {
		err_clear();
		r = 0;
	}
	if (r < 0)
		return r;
	r = step_upload_gc_is_there(s, f->path, MARKER_FILE);
	if (r < 0)
		return r;
	f->is_step = r;
	r = f->is_step ? store_remove(&s->base, &claim, 1) :
			 object_tree_remove(s, f->path, step_upload_gc_renew, &t, &f->bytes);
	return r < 0 ? r : 1;
}

/*
 * Whether only a rank of a job sends the object dir/PATH: for its database, or a part of an array
 * in a directory of an item. (In a directory of an item that is given as the URL, it may be live:
 * the claim is above.)
 */
static bool is_of_rank(const char *dir, const char *path)
{
	const char *first = path + strlen(dir) + 1;

	for (const char *name = first; *name; name += strcspn(name, "/")) {
		name += *name == '/';
		if (!strncmp(name, RANK_PREFIX, strlen(RANK_PREFIX)) ||
		    (name != first && !strncmp(name, PART_PREFIX, strlen(PART_PREFIX))))
			return true;
	}
	return false;
}

/* Whether a directory has neither a marker nor a claim, both asked for by their names. */
static int is_unclaimed(struct store *s, const char *path)
{
	int r = step_upload_gc_is_there(s, path, MARKER_FILE);

	if (r == 0)
		r = step_upload_gc_is_there(s, path, CLAIM_FILE);
	return r < 0 ? r : !r;
}

/*
 * Handle a directory without claim and marker. If the process that holds the claim of a job dies,
 * and the claim is removed while another rank still sends, the objects of that rank remain. Nothing
 * says which process sent them, so only their age decides. A directory with any other object is not
 * ours: what another program has committed has at least a document that describes it.
 */
static int look_at_unclaimed(struct store *s, const char *path, const struct upload_gc *gc)
{
	struct found_upload f = { .path = path, .is_unclaimed = true };
	auto_objects all = { 0 };
	int r = objects_collect(s, path, &all);

	if (r < 0 || !all.n)
		return r;
	for (size_t i = 0; i < all.n; i++)
		if (!is_of_rank(path, all.path[i]))
			return 0;
	r = is_unclaimed(s, path);
	/* If path is an item, its step has them. */
	if (r > 0)
		r = is_unclaimed(s, "");
	if (r <= 0)
		return r;
	f.bytes = all.bytes;
	f.future_ns = in_future(&all);
	f.removed = is_old(&all, gc->older_than_ns);
	/* Only what was listed: a new writer may have claimed the place since, even committed. */
	if (f.removed && !gc->dry_run)
		f.failed = MIN(store_remove(&s->base, (const char *const *)all.path, all.n), 0);
	f.removed = f.removed && f.failed == 0;
	gc->each(gc->arg, &f);
	return 0;
}

/* Handle a directory, which may have a claim. */
static int step_upload_gc_look_at(struct store *s, const char *path, bool is_in_root,
				  const struct upload_gc *gc)
{
	auto_free char *claim = str_fmt("%s%s" CLAIM_FILE, path, *path ? "/" : "");
	struct found_upload f = { .path = path };
	auto_of(object_list) struct object_list *l = NULL;
	struct io_object o;
	struct judged j = { 0 };
	int r = claim ? s->kind->fetch(s, path, &l) : -ENOMEM;

	if (r < 0)
		return err_except(r, -ENOENT);
	f.is_step = object_list_find(l, MARKER_FILE, NULL);
	if (!object_list_find(l, CLAIM_FILE, &o) || o.is_dir)
		return is_in_root && !f.is_step ? look_at_unclaimed(s, path, gc) : 0;
	r = judge(s, path, claim, &o, gc, &j);
	if (r >= 0 && j.is_dead && !f.is_step) {
		r = step_upload_gc_is_there(s, path, MARKER_FILE);
		f.is_step = r > 0;
	}
	if (r >= 0)
		r = j.is_dead;
	if (r > 0 && !gc->dry_run)
		r = remove_one(s, claim, &j, &f);
	f.is_live = r == 0;
	f.may_commit = j.may_commit;
	f.future_ns = j.future_ns;
	if (f.is_live || (r > 0 && gc->dry_run && !f.is_step))
		r = object_tree_size(s, path, &f.bytes);
	f.failed = MIN(r, 0);
	f.removed = !f.is_live && r >= 0;
	gc->each(gc->arg, &f);
	return 0;
}

static int look_around(struct store *s, const struct upload_gc *gc)
{
	auto_of(object_list) struct object_list *l = NULL;
	bool is_step;
	int r = s->kind->fetch(s, "", &l);

	if (r < 0)
		return r;
	/* In a step that is committed or claimed, nothing without a claim is left over. */
	is_step = object_list_find(l, MARKER_FILE, NULL) || object_list_find(l, CLAIM_FILE, NULL);
	for (size_t i = 0; i < l->n && r >= 0; i++)
		if (l->entry[i].is_dir)
			r = step_upload_gc_look_at(s, l->entry[i].name, !is_step, gc);
	return r < 0 ? r : step_upload_gc_look_at(s, "", false, gc);
}

int step_uploads_remove(const char *url, const struct url_store_opts *opts,
			const struct upload_gc *gc)
{
	struct store *s;
	int r = step_upload_store(url, opts, &s);

	if (r < 0)
		return r;
	r = look_around(s, gc);
	s->base.ops->free(&s->base);
	return r;
}
