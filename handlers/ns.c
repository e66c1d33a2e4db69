/*
 * ns.c - opening a SOURCE as a file tree, and the table of opened items.
 *
 * An item is opened by the first look-up and shared. Items that no node holds
 * are dropped when there are more than KEEP_ITEMS, the longest unused first: a
 * walk over a thousand steps must not keep a thousand trees.
 */
#include "handlers/ns.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "handlers/value.h"
#include "handlers/watch.h"

#define KEEP_ITEMS 4			/* kept open though nobody holds them */

struct item_entry {
	struct item_entry *next;	/* most recently used first */
	char *path;
	struct item *item;		/* a reference; NULL while it is being opened */
	bool opening;
	struct err_note failed;		/* of the opening, for those who wait */
	unsigned waiters;
};

struct item_table {
	pthread_mutex_t lock;		/* protects all below */
	pthread_cond_t opened;
	struct item_entry *first;
};

int ns_join(const char *path, struct span name, char **ret)
{
	char *joined = NULL;

	if (!strcmp(path, "."))
		joined = span_dup_str(name);
	else if (asprintf(&joined, "%s/%.*s", path, SPAN_ARG(name)) < 0)
		joined = NULL;
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

/* ---- items ---- */

static void entry_free(struct item_entry *e)
{
	item_unref(e->item);
	free(e->path);
	free(e);
}

/* Entries beyond the limit that only the table holds; called with the lock held. */
static struct item_entry *surplus(struct item_table *t)
{
	struct item_entry *out = NULL;
	unsigned idle = 0;

	for (struct item_entry **at = &t->first; *at;) {
		struct item_entry *e = *at;

		idle += e->item && atomic_load(&e->item->refs) == 1;
		if (e->item && atomic_load(&e->item->refs) == 1 && !e->waiters && idle > KEEP_ITEMS) {
			*at = e->next;
			e->next = out;
			out = e;
		} else {
			at = &e->next;
		}
	}
	return out;
}

static void free_entries(struct item_entry *e)
{
	while (e) {
		struct item_entry *next = e->next;

		entry_free(e);
		e = next;
	}
}

static struct item_entry *find_entry(struct item_table *t, const char *path)
{
	for (struct item_entry **at = &t->first; *at; at = &(*at)->next)
		if (!strcmp((*at)->path, path)) {
			struct item_entry *e = *at;

			*at = e->next;
			e->next = t->first;
			t->first = e;
			return e;
		}
	return NULL;
}

static void remove_entry(struct item_table *t, struct item_entry *e)
{
	for (struct item_entry **at = &t->first; *at; at = &(*at)->next)
		if (*at == e) {
			*at = e->next;
			return;
		}
}

/* Wait for the thread that is opening it. Called with the lock held. */
static int wait_opened(struct item_table *t, struct item_entry *e, struct item **ret)
{
	int r = 0;

	e->waiters++;
	while (e->opening)
		pthread_cond_wait(&t->opened, &t->lock);
	e->waiters--;
	if (e->item)
		*ret = item_ref(e->item);
	else
		r = err_restore(&e->failed);
	/* A failed entry is out of the table; the last who waited frees it. */
	if (!e->item && !e->waiters)
		entry_free(e);
	return r;
}

static int open_entry(struct ns *ns, struct item_table *t, struct item_entry *e, struct item **ret)
{
	struct item *item = NULL;
	struct item_entry *out;
	int r = item_open(ns->ckpt, e->path, &item);

	pthread_mutex_lock(&t->lock);
	e->opening = false;
	e->item = item;
	if (r >= 0) {
		*ret = item_ref(item);
	} else {
		err_save(r, &e->failed);
		remove_entry(t, e);
	}
	pthread_cond_broadcast(&t->opened);
	out = surplus(t);
	if (r < 0 && !e->waiters) {
		e->next = out;
		out = e;
	}
	pthread_mutex_unlock(&t->lock);
	free_entries(out);
	return r;
}

/* 1 and the item that is in the table, waiting for it if need be; 0 when it is not there. */
static int known_item(struct ns *ns, struct item_table *t, const char *path, struct item **ret)
{
	struct item_entry *e;
	int r = 0;

	pthread_mutex_lock(&t->lock);
	e = find_entry(t, path);
	if (e)
		r = wait_opened(t, e, ret);
	pthread_mutex_unlock(&t->lock);
	if (!e || r < 0)
		return r;
	/* The same path may be another checkpoint by now; this drops the old one. */
	if (ns_is_same(ns, path, &(*ret)->id))
		return 1;
	item_unref(*ret);
	return 0;
}

int ns_item(struct ns *ns, const char *path, struct item **ret)
{
	struct item_table *t = ns->items;
	struct item_entry *e;
	int r = known_item(ns, t, path, ret);

	if (r != 0)
		return r < 0 ? r : 0;
	pthread_mutex_lock(&t->lock);
	e = find_entry(t, path);
	if (e) {
		/* Another thread began meanwhile. */
		r = wait_opened(t, e, ret);
		pthread_mutex_unlock(&t->lock);
		return r;
	}
	e = calloc(1, sizeof(*e));
	if (e)
		e->path = strdup(path);
	if (!e || !e->path) {
		pthread_mutex_unlock(&t->lock);
		free(e);
		return fail(-ENOMEM, "cannot open item '%s'", path);
	}
	e->opening = true;
	e->next = t->first;
	t->first = e;
	pthread_mutex_unlock(&t->lock);
	return open_entry(ns, t, e, ret);
}

void ns_drop_items(struct ns *ns, const char *path)
{
	struct item_table *t = ns->items;
	struct item_entry *out = NULL;
	size_t n = strlen(path);

	pthread_mutex_lock(&t->lock);
	for (struct item_entry **at = &t->first; *at;) {
		struct item_entry *e = *at;

		if (strncmp(e->path, path, n) || (e->path[n] && e->path[n] != '/') || e->opening) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		e->next = out;
		out = e;
	}
	pthread_mutex_unlock(&t->lock);
	free_entries(out);
}

static int item_table_new(struct item_table **ret)
{
	struct item_table *t = calloc(1, sizeof(*t));

	if (!t)
		return fail(-ENOMEM, "cannot allocate the table of items");
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->opened, NULL);
	*ret = t;
	return 0;
}

static void item_table_free(struct item_table *t)
{
	if (!t)
		return;
	free_entries(t->first);
	pthread_cond_destroy(&t->opened);
	pthread_mutex_destroy(&t->lock);
	free(t);
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

int ns_ckpt(const char *source, const struct options *o, struct ckpt **ret)
{
	struct ckpt_opts co = {
		.source = source,
		.io = o->io,
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
	};

	return ckpt_open(&co, ret);
}

int ns_open(const char *source, const struct options *o, struct ns **ret)
{
	auto_of(ns) struct ns *ns = calloc(1, sizeof(*ns));
	int r;

	if (!ns)
		return fail(-ENOMEM, "cannot open '%s'", source);
	ns->options = o;
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

int ns_start(struct ns *ns, const struct ns_listener *listener)
{
	int r;

	if (listener)
		ns->listener = *listener;
	r = ckpt_start(ns->ckpt);
	if (r >= 0 && listener && ns->ckpt->shape == SHAPE_ROOT)
		r = watch_start(ns, &ns->watch);
	return r;
}

void ns_stop(struct ns *ns)
{
	watch_stop(take(ns->watch));
	/* Prefetch jobs hold items: they end before their tables do. */
	if (ns->ckpt) {
		struct pool *pool = take(ns->ckpt->pool);

		ns->ckpt->env.pool = NULL;
		pool_free(pool);
	}
}

void ns_close(struct ns *ns)
{
	if (!ns)
		return;
	ns_stop(ns);
	node_unref(ns->root, 1);
	item_table_free(ns->items);
	node_table_free(ns->nodes);
	ckpt_close(ns->ckpt);
	free(ns);
}
