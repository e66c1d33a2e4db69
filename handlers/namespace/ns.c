/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns.c - opens a SOURCE as a file tree. ns_items.c has the opened items.
 */
#include "handlers/options/job_options.h"
#include "handlers/leaf/leaf.h"
#include "handlers/namespace/ahead.h"
#include "handlers/namespace/memory_files.h"
#include "handlers/namespace/node_tree.h"
#include "handlers/namespace/ns.h"

#include <dirent.h>
#include <stdio.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/path.h"
#include "core/base/log.h"
#include "core/job/collective.h"
#include "core/step/step.h"
#include "core/step/step_name.h"
#include "handlers/commit/draft_drivers.h"
#include "handlers/job/broadcast.h"
#include "handlers/draft/draft.h"
#include "handlers/draft/draft_upload.h"
#include "handlers/job/job_driver.h"
#include "handlers/namespace/watch.h"

#define LOOK_MOST 1000 /* names in a directory that are looked at in search of a link */

bool ns_is_same(struct ns *ns, const char *path, const struct file_id *id)
{
	struct stat st;
	bool same = io_stat(ns->ckpt->source, path, &st) >= 0 && st.st_dev == id->dev &&
		    st.st_ino == id->ino && st.st_ctim.tv_sec == id->ctime.tv_sec &&
		    st.st_ctim.tv_nsec == id->ctime.tv_nsec;

	err_clear();
	if (!same)
		ns_drop_items(ns, path);
	return same;
}

bool ns_is_gone(struct ns *ns)
{
	const struct ckpt *c = ns->ckpt;
	struct stat st;
	int r;

	if (c->source->fd < 0)
		return false;
	r = io_stat(c->source, ".", &st);
	if (r < 0)
		err_clear();
	/* Some file systems report no links of any directory. */
	return r == -ENOENT || r == -ESTALE || (r >= 0 && c->st.st_nlink && !st.st_nlink);
}

int ns_check_there(struct ns *ns)
{
	if (!ns_is_gone(ns))
		return 0;
	return fail(-ESTALE, "'%s' was removed since it was opened: open or mount it again",
		    ns->ckpt->source->path);
}

void ns_stat_dir(const struct ns *ns, const struct access *a, const struct timespec *mtime,
		 struct stat *ret)
{
	/* Nothing inside a step can be written; write permission says who may delete it. */
	ret->st_mode = S_IFDIR | (a->mode & (ns->options->allow_delete ? 0777 : 0555));
	ret->st_uid = a->uid;
	ret->st_gid = a->gid;
	ret->st_mtim = ret->st_ctim = ret->st_atim = *mtime;
	ret->st_size = 4096;
	ret->st_blocks = 0;
}

void ns_stat_file(const struct ns *ns, const struct access *a, const struct timespec *mtime,
		  uint64_t size, uint64_t stored, struct stat *ret)
{
	ns_stat_dir(ns, a, mtime, ret);
	ret->st_mode = S_IFREG | (a->mode & 0444);
	ret->st_size = (off_t)size;
	/* GNU tar --sparse takes a file without blocks for zeros, and reads none of it. */
	ret->st_blocks = (blkcnt_t)MAX(div_up(stored, 512), size ? (uint64_t)1 : 0);
}

int ns_stat_root(const struct ns *ns, const struct timespec *mtime, struct stat *ret)
{
	struct access a;
	struct stat st;
	int r = access_of_dir(ns->ckpt->source, &a);

	if (r < 0)
		return r;
	r = io_stat(ns->ckpt->source, ".", &st);
	if (r < 0)
		return r;
	ns_stat_dir(ns, &a, mtime ? mtime : &st.st_mtim, ret);
	/* Drafts are made in this directory, so write permission and owner are those of SOURCE. */
	ret->st_mode |= ns->drafts.driver->writable | (a.mode & ns->drafts.driver->writable_of) |
			(st.st_mode & (S_ISVTX | S_ISGID));
	return 0;
}

/* ---- opening ---- */

const char *ns_spill_dir(const struct options *o)
{
	const char *tmp = getenv("TMPDIR");

	if (!strcmp(o->spill, "off"))
		return NULL;
	if (strcmp(o->spill, "auto"))
		return o->spill;
	/* Spill files may be large, and /tmp is often in memory. */
	if (tmp && access(tmp, W_OK) == 0)
		return tmp;
	return access("/var/tmp", W_OK) == 0 ? "/var/tmp" : "/tmp";
}

static int retree(void *arg, const char *path, struct tree **tree)
{
	const struct transform *t = arg;
	int r = transform_is_for(t, path) ? transform_tree(t, tree) : 0;

	return r < 0 ? err_at(r, "transforms") : 0;
}

struct url_store_opts ns_store_opts(const struct options *o)
{
	return (struct url_store_opts){
		.connections = (unsigned)MIN(o->connections, (uint64_t)LIMIT_CONNECTIONS),
		.listing_ms =
			options_given(o, "poll") ? (unsigned)MIN(MAX(o->poll, 100u), 3600000u) : 0,
		.endpoint = o->endpoint,
		.region = o->region,
		.addressing = o->addressing,
		.anonymous = o->anonymous,
		.http_headers = o->http_headers,
		.cache_dir = o->cache_dir,
		.cache_dir_limit = o->cache_dir_limit,
	};
}

int ns_search(const char *url, const struct options *o, size_t *ret)
{
	const struct url_store_opts so = ns_store_opts(o);

	return ckpt_search(url, &so, o->search, ret);
}

int ns_make_cache_dir(const struct options *o)
{
	return store_make_cache_dir(o->cache_dir);
}

int ns_ckpt(const char *source, const struct options *o, struct ckpt **ret)
{
	struct ckpt_opts co = {
		.source = source,
		.store = ns_store_opts(o),
		.io = o->io,
		.keep_written = o->keep_written,
		.shape = o->shape,
		.todelete = o->todelete,
		.cache_bytes = o->cache,
		.read_budget = o->read_budget,
		.write_budget = o->write_budget,
		.spill_dir = ns_spill_dir(o),
		.spill_limit = o->spill_limit,
		.threads = (unsigned)MIN(o->threads, (uint64_t)LIMIT_THREADS),
		.missing = o->missing,
		.atomicity = o->atomicity,
		.aggregate_filename = o->aggregate_filename,
		.tensors = o->tensors,
		.is_above = o->is_above,
		.for_others = o->for_others,
		.safetensors_separator = o->safetensors_separator,
		.ext_of = leaf_ext,
		.retree = o->transform ? retree : NULL,
		.retree_arg = o->transform,
	};

	int r = job_options_check(o);

	if (r < 0)
		return r;
	co.store.search = o->search;
	/* For shared chunks, the limit of all decoded data is a separate one. */
	if (o->load_and_broadcast) {
		uint64_t memory;

		r = broadcast_memory(o, &memory);
		if (r < 0)
			return r;
		co.cache_bytes = MIN(co.cache_bytes, memory - memory / 4);
		co.read_budget = MIN(co.read_budget, MAX(memory / 4, 8 * MiB));
	}
	return ckpt_open(&co, ret);
}

/* Look for the step that the name from byte `at` of a path means, in the directory before it. */
static int find_typed_step(const char *path, size_t at, const struct options *o, char **ret)
{
	const struct span typed = span_of(path + at, strcspn(path + at, "/"));
	auto_free char *root = at ? span_dup_str(span_of(path, at)) : strdup("./"), *step = NULL;
	auto_of(ckpt) struct ckpt *ckpt = NULL;
	struct options above = *o;
	int r;

	above.is_above = true;
	r = root ? ns_ckpt(root, &above, &ckpt) : fail(-ENOMEM, "cannot open '%s'", path);
	if (r < 0 || ckpt->shape != SHAPE_ROOT)
		return MIN(r, 0);
	r = step_meant(ckpt->source, typed, ckpt_needs_marker(ckpt), &step);
	if (r < 0 || !step)
		return MIN(r, 0);
	*ret = str_fmt("%s%s%s", root, step, path + at + typed.n);
	return *ret ? 1 : fail(-ENOMEM, "cannot open '%s'", path);
}

int ns_find_step(const char *path, const struct options *o, char **ret)
{
	size_t at = strlen(path);

	/* Of a step, and of an item in one. */
	for (int depth = 0; depth < 2 && at > 0; depth++) {
		int r;

		while (at > 0 && path[at - 1] == '/')
			at--;
		while (at > 0 && path[at - 1] != '/')
			at--;
		r = find_typed_step(path, at, o, ret);
		if (r > 0 || (r < 0 && r != -ENOENT && r != -EINVAL))
			return MIN(r, 0);
	}
	return -ENOENT;
}

/* Checked at the mount, so that the error does not come at the first deletion. */
static int check_todelete(const char *path)
{
	struct span first = span_of(path, strcspn(path, "/"));
	struct step_name step;

	if (path[0] == '/' || io_path_check(span_str(path), "todelete") < 0)
		return fail(-EINVAL,
			    "todelete='%s' is not a path within SOURCE: it is relative to it",
			    path);
	/* A directory there would be part of a step, or be removed with an abandoned draft. */
	if (step_name_is_tmp(first) || span_eq(first, span_str(STEP_LATEST)) ||
	    (step_name_parse(first, &step) && step_name_is_orbax(&step)))
		return fail(-EINVAL, "todelete='%s': '%.*s' is a name of steps or of their drafts",
			    path, SPAN_ARG(first));
	return 0;
}

void ns_warn_of_bucket(const struct ns *ns)
{
	if (ns->ckpt->shape != SHAPE_ITEM)
		draft_uploads_log(ns->drafts.uploads);
}

void ns_warn_if_empty(const struct ns *ns)
{
	struct io_dir *source = ns->ckpt->source;
	int r;

	/* A bucket without steps is not mounted without shape=root. */
	if (ns->ckpt->shape != SHAPE_ROOT || ns->options->shape == SHAPE_ROOT || source->fd < 0)
		return;
	r = step_any(source);
	if (r < 0)
		err_clear();
	else if (r == 0)
		log_warn("nothing was found in '%s': no step and no item; if steps will be saved "
			 "there, -o shape=root avoids this warning",
			 ns->ckpt->opts.source);
}

/* The least names of a directory's first entries: of a directory and of a link. */
struct least_names {
	struct buf dir, link;
	unsigned seen;
};

static int take_least(void *arg, const char *name, unsigned char type)
{
	struct least_names *l = arg;
	struct buf *to = type == DT_LNK ? &l->link : type == DT_DIR ? &l->dir : NULL;

	if (to && name[0] != '.' && (!to->n || strcmp(name, (char *)to->p) < 0)) {
		to->n = 0;
		if (buf_add(to, name, strlen(name) + 1) < 0)
			return -ENOMEM;
	}
	return ++l->seen == LOOK_MOST;
}

/* Find a link in a directory, or else in the first one of those in it: 1, or 0. */
static int first_link(struct io_dir *source, const char *in, unsigned depth, char **ret)
{
	struct least_names l = { 0 };
	int r = io_list(source, in, take_least, &l);
	auto_buf dir = l.dir, link = l.link;
	const struct buf *found = link.n ? &link : &dir;
	auto_free char *path = NULL;

	if (r < 0 || !found->n)
		return MIN(r, 0);
	r = path_join(in, span_str((char *)found->p), &path);
	if (r < 0)
		return r;
	if (!link.n)
		return depth ? first_link(source, path, depth - 1, ret) : 0;
	*ret = take(path);
	return 1;
}

void ns_warn_of_links(const struct ns *ns)
{
	struct io_dir *source = ns->ckpt->source;
	auto_free char *path = NULL;
	struct stat st;

	if (source->fd < 0 || ckpt_is_file(ns->ckpt))
		return;
	/* A step, an item and the directories of leaves are below a root. */
	if (first_link(source, ".", 4, &path) > 0 && io_stat(source, path, &st) == -EUCLEAN)
		log_warn("%s", err_text(-EUCLEAN));
	err_clear();
}

static int choose_driver(struct ns *ns, const char *source)
{
	const struct options *o = ns->options;
	const struct url_store_opts so = ns_store_opts(o);
	bool is_url = store_is_bucket(source);

	if (!is_url && !ns->ckpt->source->bucket) {
		ns->drafts.driver = o->atomicity == ATOMICITY_COMMIT_FILE ? &in_place_driver :
									    &directory_driver;
		return 0;
	}
	ns->drafts.driver = is_url ? &bucket_driver : &mounted_driver;
	return draft_uploads_new(&ns->drafts, is_url ? &so : NULL, ns_spill_dir(o),
				 &ns->drafts.uploads);
}

int ns_open(const char *source, const struct options *o, struct ns **ret)
{
	auto_of(ns) struct ns *ns = calloc(1, sizeof(*ns));
	int r;

	if (!ns)
		return fail(-ENOMEM, "cannot open '%s'", source);
	ns->options = o;
	r = o->todelete ? check_todelete(o->todelete) : 0;
	if (r < 0)
		return r;
	pthread_mutex_init(&ns->drafts.lock, NULL);
	clock_gettime(CLOCK_REALTIME, &ns->started);
	r = ns_ckpt(source, o, &ns->ckpt);
	ns->drafts.ckpt = ns->ckpt;
	ns->drafts.options = o;
	if (r < 0)
		return r;
	r = choose_driver(ns, source);
	if (r < 0)
		return r;
	r = node_table_new(&ns->nodes);
	if (r < 0)
		return r;
	r = item_table_new(&ns->items);
	if (r < 0)
		return r;
	r = node_root_new(ns, &ns->root);
	if (r < 0)
		return r;
	*ret = take(ns);
	return 0;
}

static int ns_open_item(void *arg, const char *path, struct item **ret)
{
	return ns_item(arg, path, ret);
}

int ns_share(struct ns *ns, struct peers *peers)
{
	const struct options *o = ns->options;
	const struct commit_driver *driver = NULL;
	int r = job_driver_over(ns->drafts.driver, &driver);
	const struct collective_opts opts = {
		.peers = peers,
		.source = ns->ckpt->source,
		.active = o->active,
		.primary = o->primary || !o->active ? (int)MIN(o->primary, (uint64_t)INT32_MAX) :
						      -1,
		.place = driver ? driver->place : NULL,
		.place_arg = ns->drafts.uploads,
	};
	const struct broadcast_opts shared = {
		.ckpt = ns->ckpt,
		.options = o,
		.peers = peers,
		.open_item = ns_open_item,
		.arg = ns,
	};

	if (r < 0)
		return r;
	if (o->load_and_broadcast)
		r = broadcast_new(&shared, &ns->broadcast);
	if (r < 0)
		return r;
	r = collective_new(&opts, broadcast_serve, ns->broadcast, &ns->drafts.collective);
	if (r < 0)
		return r;
	ns->drafts.driver = driver;
	ns->peers = peers;
	return 0;
}

void ns_make_memory_files(struct ns *ns)
{
	const struct options *o = ns->options;

	/* Ranks share chunks, and a cast is not what a leaf's file in memory has. */
	if (o->passthrough && !o->direct_io && !o->restore_dtype && !o->load_and_broadcast &&
	    ns->ckpt->source->fd >= 0)
		memory_files_new(&ns->memory);
	/* The item that SOURCE is was opened before. */
	if (ns->root->ops == &node_dir_ops)
		ahead_use_memory(container_of(ns->root, struct node_dir, node)->ahead, ns->memory);
}

int ns_start(struct ns *ns, const struct ns_listener *listener)
{
	int r;

	if (listener)
		ns->listener = *listener;
	if (listener && ns->options->pinned_host_transfer)
		log_info("pinned_host_transfer has no effect: pytreefs uses no device");
	r = ckpt_start(ns->ckpt);
	if (r < 0 || !listener)
		return r;
	/* It was opened before this was known to be a mount. */
	if (ns->root->ops == &node_dir_ops)
		ns_say_left_out(ns, container_of(ns->root, struct node_dir, node)->item);
	return ns->ckpt->shape == SHAPE_ROOT ? watch_start(ns, &ns->watch) : r;
}

void ns_interrupt(struct ns *ns)
{
	draft_uploads_interrupt(ns->drafts.uploads);
	collective_interrupt(ns->drafts.collective);
}

void ns_stop(struct ns *ns)
{
	watch_stop(take(ns->watch));
	drafts_release(&ns->drafts);
	collective_free(take(ns->drafts.collective));
	/*
	 * Prefetch jobs hold items and send requests to other ranks, so they end before both.
	 * Running jobs may post more jobs, except the threads that served other ranks, which have
	 * ended.
	 */
	if (ns->ckpt) {
		pool_free(ns->ckpt->pool);
		ns->ckpt->pool = ns->ckpt->env.pool = NULL;
	}
	broadcast_free(take(ns->broadcast));
}

void ns_close(struct ns *ns)
{
	if (!ns)
		return;
	ns_stop(ns);
	/* Its children may still hold it. */
	if (ns->root) {
		node_forget_name(ns->root);
		node_unref(ns->root, 1);
	}
	node_table_free(ns->nodes);
	item_table_free(ns->items);
	memory_files_free(ns->memory);
	draft_uploads_free(ns->drafts.uploads);
	ckpt_close(ns->ckpt);
	pthread_mutex_destroy(&ns->drafts.lock);
	free(ns);
}
