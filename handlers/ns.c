/*
 * ns.c - opening a SOURCE as a file tree. Opened items are ns_items.c's.
 */
#include "handlers/ns.h"

#include <stdio.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/step/joint.h"
#include "handlers/broadcast.h"
#include "handlers/draft.h"
#include "handlers/value.h"
#include "handlers/watch.h"
#include "handlers/whiteout.h"

int ns_join(const char *path, struct span name, char **ret)
{
	char *joined = NULL;

	if (!strcmp(path, "."))
		joined = span_dup_str(name);
	else
		joined = str_fmt("%s/%.*s", path, SPAN_ARG(name));
	if (!joined)
		return fail(-ENOMEM, "cannot look up '%.*s'", SPAN_ARG(name));
	*ret = joined;
	return 0;
}

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

void ns_stat_dir(const struct ns *ns, const struct timespec *mtime, struct stat *ret)
{
	ret->st_mode = S_IFDIR | ns->dir_mode;
	ret->st_uid = ns->ckpt->st.st_uid;
	ret->st_gid = ns->ckpt->st.st_gid;
	ret->st_mtim = ret->st_ctim = ret->st_atim = *mtime;
	ret->st_size = 4096;
	ret->st_blocks = 0;
}

void ns_stat_file(const struct ns *ns, const struct timespec *mtime, uint64_t size, uint64_t stored,
		  struct stat *ret)
{
	ns_stat_dir(ns, mtime, ret);
	ret->st_mode = S_IFREG | ns->file_mode;
	ret->st_size = (off_t)size;
	ret->st_blocks = (blkcnt_t)div_up(stored, 512);
}

/* ---- opening ---- */

/* The directory for spill files that the options ask for; NULL: none. */
static const char *spill_dir(const struct options *o)
{
	const char *tmp = getenv("TMPDIR");

	if (!strcmp(o->spill, "off"))
		return NULL;
	if (strcmp(o->spill, "auto"))
		return o->spill;
	/* Not /tmp first: it is often memory, and a spill file may be large. */
	if (tmp && access(tmp, W_OK) == 0)
		return tmp;
	return access("/var/tmp", W_OK) == 0 ? "/var/tmp" : "/tmp";
}

static int retree(void *arg, const char *path, struct tree *stored, struct tree **ret)
{
	const struct transform *t = arg;
	int r = transform_is_for(t, path) ? transform_tree(t, stored, ret) : 0;

	return r < 0 ? err_at(r, "transforms") : transform_is_for(t, path);
}

int ns_ckpt(const char *source, const struct options *o, struct ckpt **ret)
{
	struct ckpt_opts co = {
		.source = source,
		.io = o->io,
		.keep_written = o->keep_written,
		.shape = o->shape,
		.cache_bytes = o->cache,
		.read_budget = o->read_budget,
		.write_budget = o->write_budget,
		.spill_dir = spill_dir(o),
		.spill_limit = o->spill_limit,
		.threads = (unsigned)MIN(o->threads, (uint64_t)LIMIT_THREADS),
		.missing = o->missing,
		.atomicity = o->atomicity,
		.aggregate_filename = o->aggregate_filename,
		.ext_of = leaf_ext,
		.retree = o->transform ? retree : NULL,
		.retree_arg = o->transform,
	};

	int r = 0;

	/* What is shared between ranks has a limit of its own, for all that is decoded. */
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

int ns_open(const char *source, const struct options *o, struct ns **ret)
{
	auto_of(ns) struct ns *ns = calloc(1, sizeof(*ns));
	int r;

	if (!ns)
		return fail(-ENOMEM, "cannot open '%s'", source);
	ns->options = o;
	pthread_mutex_init(&ns->drafts_lock, NULL);
	clock_gettime(CLOCK_REALTIME, &ns->started);
	r = ns_ckpt(source, o, &ns->ckpt);
	if (r >= 0)
		r = node_table_new(&ns->nodes);
	if (r >= 0)
		r = item_table_new(&ns->items);
	if (r < 0)
		return r;
	/* Whoever may not read the source may not read it through the mount. */
	ns->dir_mode = ns->ckpt->st.st_mode & 0555;
	ns->file_mode = ns->ckpt->st.st_mode & 0444;
	r = node_root_new(ns, &ns->root);
	if (r < 0)
		return r;
	*ret = take(ns);
	return 0;
}

int ns_share(struct ns *ns, struct peers *peers)
{
	const struct options *o = ns->options;
	const struct joint_opts opts = {
		.peers = peers, .source = ns->ckpt->source, .active = o->active,
		.primary = o->primary || !o->active ? (int)MIN(o->primary, (uint64_t)INT32_MAX) : -1,
	};

	int r = 0;

	if (o->atomicity == ATOMICITY_COMMIT_FILE)
		return fail(-EINVAL, "atomicity=commit_file: ranks share drafts by renaming them");
	if (o->load_and_broadcast)
		r = broadcast_new(ns, peers, &ns->broadcast);
	if (r >= 0)
		r = joint_new(&opts, broadcast_serve, ns->broadcast, &ns->joint);
	return r;
}

void ns_follow_memory(struct ns *ns)
{
	uint64_t size;

	if (options_auto_size(ns->options, "write_budget", &size))
		budget_resize(&ns->ckpt->write_budget, size);
	if (options_auto_size(ns->options, "read_budget", &size))
		budget_resize(&ns->ckpt->read_budget, size / 2);
}

int ns_start(struct ns *ns, const struct ns_listener *listener)
{
	int r;

	if (listener)
		ns->listener = *listener;
	if (listener && ns->options->pinned_host_transfer)
		log_info("pinned_host_transfer has no effect: there is no device here");
	r = ckpt_start(ns->ckpt);
	if (r >= 0 && listener && ns->ckpt->shape == SHAPE_ROOT)
		r = watch_start(ns, &ns->watch);
	return r;
}

void ns_stop(struct ns *ns)
{
	watch_stop(take(ns->watch));
	drafts_release(ns);
	joint_free(take(ns->joint));
	/*
	 * Prefetch jobs hold items, and ask other ranks: they end before both do. What still runs may post more, but for
	 * the threads that served other ranks: they have ended.
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
	/* Its own children may hold it beyond this reference. */
	if (ns->root) {
		node_forget_name(ns->root);
		node_unref(ns->root, 1);
	}
	node_table_free(ns->nodes);
	item_table_free(ns->items);
	ckpt_close(ns->ckpt);
	whiteout_release(ns);
	pthread_mutex_destroy(&ns->drafts_lock);
	free(ns);
}
