/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns_items.c - the table of opened items: opened by the first look-up, shared, and dropped in time.
 *
 * Nodes hold their item, and the kernel holds nodes for as long as it likes. So
 * that a walk over a thousand steps does not keep a thousand trees, the kernel is
 * asked to forget the steps that were looked up the longest ago when the open
 * items take more than ITEMS_BYTES; what nobody holds any more is closed at the
 * next opening, or by the watcher, but for the few that were used last.
 *
 * The kernel may keep a name below a step that is gone, and which nobody can use any more, for as
 * long as it has memory. Items of such steps are kept in a list of their own until no file of them
 * is open; then their data files are closed, so that the space that somebody wanted is free.
 *
 * Invariants: an entry is in the list until its item is dropped or failed to open;
 * an entry that is waited for outlives its place in the list.
 */
#include <pthread.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/meter.h"
#include "handlers/namespace/ns.h"
#include "handlers/namespace/refused.h"
#include "handlers/namespace/watch.h"

#define ITEMS_BYTES (16 * MiB) /* of open items together, with the nodes of their trees */
#define ITEMS_MAX 64           /* open at once: each has files open */
#define LARGE_PART 16  /* of the memory for metadata: documents of one item that are large */
#define KEEP_IDLE 4    /* kept open though nobody holds them */
#define NODE_BYTES 400 /* of a node of the mount, for each node of a tree */

struct item_entry {
	struct item_entry *next; /* most recently used first */
	char *path;
	struct item *item; /* a reference; NULL while it is being opened, or when that failed */
	uint64_t bytes;
	bool opening, listed;
	unsigned waiters;
	struct err_note failed; /* of the opening, for those who wait */
};

struct item_table {
	/*
	 * Held by the thread that opens an item of large documents; taken before `lock`. So many
	 * such openings at once do not each hold a part of what one needs.
	 */
	pthread_mutex_t large;
	pthread_mutex_t lock; /* protects all below */
	pthread_cond_t opened;
	struct item_entry *first;
	uint64_t bytes; /* of those in the list */
	unsigned n;
	struct item_entry *gone; /* dropped, and still held; in neither count */
};

int item_table_new(struct item_table **ret)
{
	struct item_table *t = calloc(1, sizeof(*t));

	if (!t)
		return fail(-ENOMEM, "cannot allocate the table of items");
	pthread_mutex_init(&t->lock, NULL);
	pthread_mutex_init(&t->large, NULL);
	pthread_cond_init(&t->opened, NULL);
	*ret = t;
	return 0;
}

/* ---- entries; all of these are called with the lock held ---- */

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

static void list_entry(struct item_table *t, struct item_entry *e)
{
	e->next = t->first;
	t->first = e;
	e->listed = true;
	t->n++;
}

/* It is in no list: onto `out` when nobody needs it any more. */
static void retire(struct item_table *t, struct item_entry *e, struct item_entry **out)
{
	struct item_entry **to = e->item && atomic_load(&e->item->refs) > 1 ? &t->gone : out;

	if (e->opening || e->waiters)
		return;
	e->next = *to;
	*to = e;
}

static void unlist_at(struct item_table *t, struct item_entry **at, struct item_entry **out)
{
	struct item_entry *e = *at;

	*at = e->next;
	e->listed = false;
	e->next = NULL;
	t->n--;
	t->bytes -= e->bytes;
	retire(t, e, out);
}

static void unlist(struct item_table *t, struct item_entry *e, struct item_entry **out)
{
	for (struct item_entry **at = &t->first; *at; at = &(*at)->next)
		if (*at == e) {
			unlist_at(t, at, out);
			return;
		}
}

/* Those that only the table holds, beyond the few and the bytes that may stay. */
static void unlist_surplus(struct item_table *t, struct item_entry **out)
{
	uint64_t bytes = 0;
	unsigned idle = 0;

	for (struct item_entry **at = &t->first; *at;) {
		struct item_entry *e = *at;
		bool is_idle = e->item && !e->waiters && atomic_load(&e->item->refs) == 1;

		idle += is_idle;
		bytes += is_idle ? e->bytes : 0;
		if (is_idle && idle > 1 && (idle > KEEP_IDLE || bytes > ITEMS_BYTES))
			unlist_at(t, at, out);
		else
			at = &e->next;
	}
}

static bool is_too_much(const struct item_table *t)
{
	return t->n > 1 &&
	       (t->bytes > ITEMS_BYTES || t->n > ITEMS_MAX || io_descriptors_are_short());
}

/* Without the lock: closing an item may take its time. */
static void free_entries(struct item_entry *e)
{
	while (e) {
		struct item_entry *next = e->next;

		item_unref(e->item);
		free(e->path);
		free(e);
		e = next;
	}
}

void item_table_free(struct item_table *t)
{
	if (!t)
		return;
	free_entries(t->first);
	free_entries(t->gone);
	pthread_cond_destroy(&t->opened);
	pthread_mutex_destroy(&t->lock);
	pthread_mutex_destroy(&t->large);
	free(t);
}

/* ---- opening ---- */

/* Wait for the thread that is opening it, if one is. Called with the lock held, which is released. */
static int wait_opened(struct item_table *t, struct item_entry *e, struct item **ret)
{
	struct item_entry *out = NULL;
	int r = 0;

	e->waiters++;
	while (e->opening)
		pthread_cond_wait(&t->opened, &t->lock);
	e->waiters--;
	if (e->item)
		*ret = item_ref(e->item);
	else
		r = err_restore(&e->failed);
	if (!e->listed)
		retire(t, e, &out);
	pthread_mutex_unlock(&t->lock);
	free_entries(out);
	return r;
}

/*
 * A walk opens items faster than the kernel forgets those that it has left. It waits here before
 * it has used up the descriptors: an error then would come too late, because forgetting needs the
 * lock of the directory in which a look-up may be under way. So the wait is short.
 */
static void wait_for_descriptors(struct ns *ns)
{
	const struct timespec pause = { .tv_nsec = 2000000 };

	for (int i = 0; i < 50 && io_descriptors_are_short(); i++) {
		nanosleep(&pause, NULL);
		ns_trim_items(ns, false);
	}
}

static int open_item(struct ns *ns, struct item_table *t, const char *path, struct item **ret)
{
	uint64_t bytes, mark = refused_mark(ns, path, &bytes);
	bool large = bytes > meter_most() / LARGE_PART;
	int64_t began;
	int r = refusals_ask(&ns->refused, span_str(path), mark);

	if (r < 0)
		return r;
	if (large) {
		pthread_mutex_lock(&t->large);
		/* Who waited may have waited for another one that was refused. */
		r = refusals_ask(&ns->refused, span_str(path), mark);
	}
	began = clock_ns();
	if (r >= 0)
		r = item_open_shown(ns->ckpt, path, ret);
	if (large)
		pthread_mutex_unlock(&t->large);
	return refusals_keep(&ns->refused, span_str(path), mark, began, r);
}

static int open_entry(struct ns *ns, struct item_table *t, struct item_entry *e, struct item **ret)
{
	struct item_entry *out = NULL;
	struct item *item = NULL;
	bool too_much;
	int r = open_item(ns, t, e->path, &item);

	pthread_mutex_lock(&t->lock);
	e->opening = false;
	e->item = item;
	if (r >= 0) {
		*ret = item_ref(item);
		e->bytes = item_memory(item) + (uint64_t)item->tree->n_nodes * NODE_BYTES;
		t->bytes += e->listed ? e->bytes : 0;
	} else {
		err_save(r, &e->failed);
	}
	if (r < 0 && e->listed)
		unlist(t, e, &out);
	else if (!e->listed)
		retire(t, e, &out);
	pthread_cond_broadcast(&t->opened);
	unlist_surplus(t, &out);
	too_much = is_too_much(t);
	pthread_mutex_unlock(&t->lock);
	free_entries(out);
	if (too_much) {
		watch_trim(ns->watch);
		wait_for_descriptors(ns);
	}
	return r;
}

/* An entry for this thread to open. Called with the lock held. */
static struct item_entry *entry_new(struct item_table *t, const char *path)
{
	struct item_entry *e = calloc(1, sizeof(*e));

	if (e)
		e->path = strdup(path);
	if (!e || !e->path) {
		free(e);
		return NULL;
	}
	e->opening = true;
	list_entry(t, e);
	return e;
}

int ns_item(struct ns *ns, const char *path, struct item **ret)
{
	struct item_table *t = ns->items;

	/* At most twice: the same path may be another checkpoint by now, and this finds it out. */
	for (bool first = true;; first = false) {
		struct item *item = NULL;
		struct item_entry *e;
		int r;

		pthread_mutex_lock(&t->lock);
		e = find_entry(t, path);
		if (!e) {
			e = entry_new(t, path);
			pthread_mutex_unlock(&t->lock);
			return e ? open_entry(ns, t, e, ret) :
				   fail(-ENOMEM, "cannot open item '%s'", path);
		}
		r = wait_opened(t, e, &item);
		if (r < 0)
			return r;
		if (!first || ns_is_same(ns, path, &item->id)) {
			*ret = item;
			return r;
		}
		item_unref(item);
	}
}

void ns_drop_items(struct ns *ns, const char *path)
{
	struct item_table *t = ns->items;
	struct item_entry *out = NULL;
	size_t n = strlen(path);
	bool is_left;

	pthread_mutex_lock(&t->lock);
	for (struct item_entry **at = &t->first; *at;) {
		const char *p = (*at)->path;

		if (strncmp(p, path, n) || (p[n] && p[n] != '/'))
			at = &(*at)->next;
		else
			unlist_at(t, at, &out);
	}
	is_left = t->gone;
	pthread_mutex_unlock(&t->lock);
	free_entries(out);
	/* The kernel lets go of them in a moment. Waiting for the watcher's next look at the root
	 * would keep the files of all the steps that are deleted until then. */
	if (is_left)
		watch_trim(ns->watch);
}

bool ns_close_gone(struct ns *ns)
{
	struct item_table *t = ns->items;
	struct item_entry *all, *done = NULL;
	bool is_left = false;

	pthread_mutex_lock(&t->lock);
	all = take(t->gone);
	pthread_mutex_unlock(&t->lock);
	while (all) {
		struct item_entry *e = all;
		bool in_use = atomic_load(&e->item->refs) > 1 &&
			      node_is_in_use(ns, span_of(e->path, strcspn(e->path, "/")));

		all = e->next;
		if (!in_use) {
			item_close_files(e->item);
			e->next = done;
			done = e;
			continue;
		}
		pthread_mutex_lock(&t->lock);
		e->next = t->gone;
		t->gone = e;
		is_left = true;
		pthread_mutex_unlock(&t->lock);
	}
	free_entries(done);
	return is_left;
}

void ns_drop_changed_items(struct ns *ns)
{
	struct item_table *t = ns->items;
	struct opened {
		char *path;
		struct file_id id;
	} * all;
	unsigned n = 0;

	pthread_mutex_lock(&t->lock);
	all = calloc(t->n + 1, sizeof(*all));
	for (const struct item_entry *e = t->first; all && e; e = e->next)
		if (e->item && (all[n].path = strdup(e->path)))
			all[n++].id = e->item->id;
	pthread_mutex_unlock(&t->lock);
	while (n-- > 0) {
		if (!ns_is_same(ns, all[n].path, &all[n].id) && ns->listener.changed) {
			all[n].path[strcspn(all[n].path, "/")] = '\0';
			ns->listener.changed(ns->listener.arg, all[n].path);
		}
		free(all[n].path);
	}
	free(all);
}

/* ---- forgetting ---- */

struct step_names {
	char name[ITEMS_MAX][LIMIT_NAME_BYTES + 1];
	unsigned n;
};

/*
 * The steps, used the longest ago, whose items are beyond what may be open. Not those in which a
 * file is open: the kernel would forget the step's name, keep what is in use, and find no way to it
 * afterwards. Called with the lock held.
 */
static void pick_steps(struct ns *ns, const struct item_table *t, struct step_names *ret)
{
	unsigned n = 0, most = MIN(ITEMS_MAX, io_descriptors_are_short() ? t->n : ITEMS_MAX) / 2;
	uint64_t bytes = 0;

	for (const struct item_entry *e = t->first; e; e = e->next) {
		size_t len = strcspn(e->path, "/");

		bytes += e->bytes;
		n++;
		/* Whoever was last is in the midst of its step, and of the step's other items. */
		if (n == 1 ||
		    (!strncmp(e->path, t->first->path, len) && strcspn(t->first->path, "/") == len))
			continue;
		if ((bytes <= ITEMS_BYTES / 2 && n <= most) || e->opening || ret->n == ITEMS_MAX ||
		    len > LIMIT_NAME_BYTES || node_is_in_use(ns, span_of(e->path, len)))
			continue;
		memcpy(ret->name[ret->n], e->path, len);
		ret->name[ret->n++][len] = '\0';
	}
}

bool ns_trim_items(struct ns *ns, bool ask)
{
	auto_free struct step_names *names = calloc(1, sizeof(*names));
	struct item_table *t = ns->items;
	struct item_entry *out = NULL;
	bool more;

	pthread_mutex_lock(&t->lock);
	unlist_surplus(t, &out);
	more = is_too_much(t);
	if (more && ask && names)
		pick_steps(ns, t, names);
	pthread_mutex_unlock(&t->lock);
	free_entries(out);
	for (unsigned i = 0; names && i < names->n; i++) {
		trace(TRACE_STEP, "step '%s' may be forgotten", names->name[i]);
		if (ns->listener.changed)
			ns->listener.changed(ns->listener.arg, names->name[i]);
	}
	return more;
}
