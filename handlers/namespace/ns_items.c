/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns_items.c - the table of opened items: the first lookup opens an item, others share it, and
 * unused ones are closed.
 *
 * Nodes hold their item, and the kernel holds nodes as long as it likes. To keep a walk over a
 * thousand steps from keeping a thousand trees, the kernel is asked to drop the least recently used
 * steps when the open items take more than ITEMS_BYTES. Items that are not held any more are closed
 * at the next open, or by the watcher, except the few most recently used.
 *
 * The kernel may keep a name below a deleted step, which no program can use any more, as long as it
 * has memory. Items of such steps are in a separate list until no file of them is open. Then their
 * data files are closed, which frees the space on disk.
 *
 * Invariants: an entry is in the list until its item is dropped or could not be opened; an entry
 * that a thread waits for may outlive its place in the list.
 */
#include <pthread.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/meter.h"
#include "core/base/refusal.h"
#include "handlers/namespace/memory_files.h"
#include "handlers/namespace/ns.h"
#include "handlers/namespace/watch.h"

#define ITEMS_BYTES (16 * MiB) /* bytes of all open items, including the nodes of their trees */
#define ITEMS_MAX 64           /* largest number of open items, since each has open files */
/* an item is large if its documents take more than this part of the memory for metadata */
#define LARGE_PART 16
#define KEEP_IDLE 4    /* number of items that stay open without being held */
#define ASK_MOST 20    /* times that the kernel is asked to drop a step which is gone */
#define NODE_BYTES 400 /* estimated size of a node of the mount, for each node of a tree */

struct item_entry {
	struct item_entry *next; /* most recently used first */
	char *path;
	struct item *item; /* a reference; NULL while it is being opened, or when that failed */
	uint64_t bytes;
	bool opening, listed;
	unsigned waiters;
	unsigned asked;         /* how often the kernel was asked to drop the step, which is gone */
	struct err_note failed; /* the error of the open, for threads that wait for it */
};

struct item_table {
	/*
	 * Held by the thread that opens an item with large documents; taken before `lock`. Without
	 * it, several such threads could each hold a part of the memory that one of them needs.
	 */
	pthread_mutex_t large;
	pthread_mutex_t lock; /* protects all members below */
	pthread_cond_t opened;
	struct item_entry *first;
	uint64_t bytes; /* sum over the entries in the list */
	unsigned n;
	/* entries that were dropped but are still held; not in the counts */
	struct item_entry *gone;
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

/* ---- entries; all functions are called with the lock held ---- */

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

/* Move an entry that is in no list to `out` if it is not needed any more. */
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

/* Unlist items that only the table holds, beyond the number and bytes that may stay. */
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

/* Called without the lock, since closing an item may be slow. */
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

/*
 * Wait for the thread that is opening the item, if there is one. Called with the lock held;
 * releases it.
 */
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
 * A walk opens items faster than the kernel drops those that it has left. Wait here before the file
 * descriptors are used up: an error would not help, since the kernel needs the lock of the
 * directory to drop names, and a lookup in it may be in progress. For the same reason the wait is
 * short.
 */
static void wait_for_descriptors(struct ns *ns)
{
	const struct timespec pause = { .tv_nsec = 2000000 };

	for (int i = 0; i < 50 && io_descriptors_are_short(); i++) {
		nanosleep(&pause, NULL);
		ns_trim_items(ns, false);
	}
}

void ns_say_left_out(struct ns *ns, const struct item *item)
{
	const struct transform *t = ns->options->transform;
	auto_left_out found = { 0 };
	auto_buf text = { 0 };
	int r;

	/* Commands report it themselves. */
	if (!t || !ns->listener.changed || !transform_is_for(t, item->path))
		return;
	r = transform_left_out(t, item->tree, &found);
	if (r >= 0)
		r = transform_left_out_text(&found, &text);
	if (r < 0)
		log_warn("item '%s': transforms: %s", item->path, err_text(r));
	else if (text.n)
		log_warn("item '%s': transforms: %.*s", item->path, SPAN_ARG(buf_span(&text)));
	if (r < 0)
		err_clear();
}

uint64_t ns_item_mark(struct ns *ns, const char *path, uint64_t *ret_bytes)
{
	const char *const names[] = { "", "/_METADATA", "/manifest.ocdbt", "/_strings.json", "/" };
	const char *aggregate = ns->ckpt->opts.aggregate_filename;
	uint64_t mark = 1, bytes = 0;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		bool last = i + 1 == ARRAY_LEN(names);
		auto_free char *file = str_fmt("%s%s%s", path, names[i], last ? aggregate : "");

		if (file)
			mark = io_mark(ns->ckpt->source, file, mark, &bytes);
	}
	if (ret_bytes)
		*ret_bytes = bytes;
	return mark;
}

static int ns_items_open_item(struct ns *ns, struct item_table *t, const char *path,
			      struct item **ret)
{
	const struct refusal_key key = refusal_key(ns->ckpt->owner, span_str(path), 0);
	uint64_t bytes, mark = ns_item_mark(ns, path, &bytes);
	bool large = bytes > meter_most() / LARGE_PART;
	int64_t began;
	int r = refusal_ask(key, mark);

	if (r < 0)
		return r;
	if (large) {
		pthread_mutex_lock(&t->large);
		/* While this thread waited, another one may have failed to open the item. */
		r = refusal_ask(key, mark);
	}
	began = clock_ns();
	if (r >= 0)
		r = item_open_shown(ns->ckpt, path, ret);
	if (large)
		pthread_mutex_unlock(&t->large);
	if (r >= 0)
		ns_say_left_out(ns, *ret);
	return refusal_keep(key, mark, began, r);
}

static int open_entry(struct ns *ns, struct item_table *t, struct item_entry *e, struct item **ret)
{
	struct item_entry *out = NULL;
	struct item *item = NULL;
	bool too_much;
	int r = ns_items_open_item(ns, t, e->path, &item);

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

/* Make an entry for an item that this thread will open. Called with the lock held. */
static struct item_entry *entry_new(struct item_table *t, const char *path)
{
	struct item_entry *e = calloc(1, sizeof(*e));

	if (e)
		e->path = strdup(path);
	if (!e || !e->path) {
		free(e);
		return NULL;
	}
	e->opening = e->listed = true;
	e->next = t->first;
	t->first = e;
	t->n++;
	return e;
}

int ns_item(struct ns *ns, const char *path, struct item **ret)
{
	struct item_table *t = ns->items;

	/*
	 * At most two rounds: the path may have become another checkpoint, which the first round
	 * detects.
	 */
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
	size_t n = strlen(path), n_owners = 0;
	uint64_t owner[ITEMS_MAX];
	bool is_left;

	pthread_mutex_lock(&t->lock);
	for (struct item_entry **at = &t->first; *at;) {
		const char *p = (*at)->path;

		if (strncmp(p, path, n) || (p[n] && p[n] != '/')) {
			at = &(*at)->next;
			continue;
		}
		if ((*at)->item)
			atomic_store(&(*at)->item->is_gone, true);
		if ((*at)->item && n_owners < ARRAY_LEN(owner))
			owner[n_owners++] = (*at)->item->owner;
		unlist_at(t, at, &out);
	}
	is_left = t->gone;
	pthread_mutex_unlock(&t->lock);
	/* The kernel may remember names for long. */
	for (size_t i = 0; i < n_owners; i++)
		memory_files_drop(ns->memory, owner[i]);
	free_entries(out);
	/*
	 * The kernel drops the names in a moment. Until the watcher's next scan, the files of all
	 * deleted steps would stay open.
	 */
	if (is_left)
		watch_trim(ns->watch);
}

/*
 * Whether the kernel still holds names of the step, and with them the item's directories. It keeps
 * a name that is in use at the moment when it is asked to drop it, so it is asked again.
 */
static bool is_held(struct ns *ns, struct item_entry *e)
{
	auto_free char *step = NULL;

	if (atomic_load(&e->item->refs) == 1 || !ns->listener.changed || e->asked++ == ASK_MOST)
		return false;
	step = span_dup_str(span_of(e->path, strcspn(e->path, "/")));
	if (step)
		ns_changed(ns, step);
	return step;
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
		if (!in_use)
			item_close_files(e->item);
		if (!in_use && !is_held(ns, e)) {
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
		if (!ns_is_same(ns, all[n].path, &all[n].id)) {
			all[n].path[strcspn(all[n].path, "/")] = '\0';
			ns_changed(ns, all[n].path);
		}
		free(all[n].path);
	}
	free(all);
}

/* ---- dropping ---- */

struct step_names {
	char name[ITEMS_MAX][LIMIT_NAME_BYTES + 1];
	unsigned n;
};

/*
 * Choose the least recently used steps, whose items exceed the limits. Skip steps with open files:
 * the kernel would drop the step's name, keep what is in use, and could not find it afterwards.
 * Called with the lock held.
 */
static void pick_steps(struct ns *ns, const struct item_table *t, struct step_names *ret)
{
	unsigned n = 0,
		 most = MIN((unsigned)ITEMS_MAX, io_descriptors_are_short() ? t->n : ITEMS_MAX) / 2;
	uint64_t bytes = 0;

	for (const struct item_entry *e = t->first; e; e = e->next) {
		size_t len = strcspn(e->path, "/");

		bytes += e->bytes;
		n++;
		/* The most recently used step, and its other items, are still in use. */
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
		ns_changed(ns, names->name[i]);
	}
	return more;
}
