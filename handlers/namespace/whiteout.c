/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whiteout.c - the set of hidden names, as paths below the mount.
 */
#include "handlers/namespace/whiteout.h"

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/step/step_name.h"
#include "handlers/namespace/ns.h"

#define KEEP_SECONDS 10 /* after this time without a removal, the rm is assumed to have ended */

struct whiteout {
	struct whiteout *next;
	int64_t until; /* clock_ns(); only valid in the newest name of a step */
	char path[];
};

static int path_of(const struct node *dir, struct span name, struct buf *ret)
{
	int r = node_path(dir, ret);

	if (r >= 0 && ret->n)
		r = buf_add_byte(ret, '/');
	if (r >= 0)
		r = buf_add_span(ret, name);
	return r >= 0 && !buf_str(ret) ? -ENOMEM : r;
}

/* Called with the lock held. The newest name is first, and its time applies to the others. */
static void expire(struct ns *ns)
{
	if (!ns->whiteouts || ns->whiteouts->until >= clock_ns())
		return;
	for (struct whiteout *w = ns->whiteouts, *next; w; w = next) {
		next = w->next;
		free(w);
	}
	__atomic_store_n(&ns->whiteouts, NULL, __ATOMIC_RELEASE);
}

bool whiteout_has(const struct node *dir, struct span name)
{
	struct ns *ns = dir->ns;
	auto_buf path = { 0 };
	bool has = false;

	if (!__atomic_load_n(&ns->whiteouts, __ATOMIC_ACQUIRE) || path_of(dir, name, &path) < 0)
		return false;
	pthread_mutex_lock(&ns->drafts.lock);
	expire(ns);
	for (struct whiteout *w = ns->whiteouts; w && !has; w = w->next)
		has = !strcmp(w->path, buf_str(&path));
	pthread_mutex_unlock(&ns->drafts.lock);
	return has;
}

int whiteout_add(struct node *dir, struct span name)
{
	struct ns *ns = dir->ns;
	struct whiteout *w;
	auto_buf path = { 0 };
	int r = path_of(dir, name, &path);

	if (r < 0)
		return r;
	if (!ns->options->allow_delete || ns->ckpt->shape != SHAPE_ROOT ||
	    span_starts(buf_span(&path), span_str(".pytreefs")))
		return fail(-EROFS, "'%s' cannot be removed: committed steps are immutable",
			    buf_str(&path));
	w = malloc(sizeof(*w) + path.n + 1);
	if (!w)
		return fail(-ENOMEM, "cannot remove '%s'", buf_str(&path));
	memcpy(w->path, buf_str(&path), path.n + 1);
	w->until = clock_ns() + KEEP_SECONDS * SECOND_NS;
	pthread_mutex_lock(&ns->drafts.lock);
	expire(ns);
	w->next = ns->whiteouts;
	__atomic_store_n(&ns->whiteouts, w, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&ns->drafts.lock);
	return 0;
}

void whiteout_clear(struct ns *ns, struct span step)
{
	pthread_mutex_lock(&ns->drafts.lock);
	for (struct whiteout **at = &ns->whiteouts; *at;) {
		struct whiteout *w = *at;
		bool below = span_starts(span_str(w->path), step) && w->path[step.n] == '/';

		if (below) {
			*at = w->next;
			free(w);
		} else {
			at = &w->next;
		}
	}
	pthread_mutex_unlock(&ns->drafts.lock);
}

void whiteout_release(struct ns *ns)
{
	while (ns->whiteouts) {
		struct whiteout *w = ns->whiteouts;

		ns->whiteouts = w->next;
		free(w);
	}
}
