/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_digests.c - computes the SHA-256 of every leaf of an item that a commit is about to
 * publish.
 *
 * Leaves are read back from the finished draft, so the hash covers what a reader will get. Leaves
 * whose stored chunks were copied are not read: they take over the digest from the step that they
 * come from, which still tells whether they equal what was once saved there.
 */
#include "handlers/commit/draft_digests.h"

#include <stdatomic.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/thread.h"
#include "core/commit/seal.h"
#include "core/step/item.h"
#include "handlers/draft/commit_driver.h"
#include "handlers/leaf/leaf_digest.h"
#include "handlers/plan/copy_hints.h"

#define THREADS_MAX 8

struct leaf_sum {
	const struct tree_node *leaf; /* NULL: the node is not a leaf that can be opened */
	bool has;                     /* the digest is known */
	uint8_t sha256[DIGEST_BYTES];
};

/* The leaves of one item, which several threads hash. */
struct summing {
	struct item *item;
	struct leaf_sum *sum; /* indexed by the node's id */
	size_t n;
	atomic_size_t next;
	pthread_mutex_t lock; /* protects why */
	struct err_note why;  /* the first failure */
};

/* The digest that came with the copied array of the leaf. */
static const uint8_t *copied_digest(const struct plan_leaf *l)
{
	const struct draft_file *f = l->source ? l->source->file : NULL;

	if (!f || l->n_parts || l->aggregated || l->kv || l->index >= f->n_arrays ||
	    !f->array[l->index].copied || !draft_copied(l->source)->leaf.has_sha256)
		return NULL;
	return draft_copied(l->source)->leaf.sha256;
}

bool draft_digests_wanted(const struct plan *p)
{
	if (p->kind != PLAN_TREE)
		return false;
	/*
	 * A plan that was merged from those of all ranks has `manifest` set without a bit in
	 * `given`.
	 */
	if (p->opts.manifest || save_opts_given(&p->opts, "manifest"))
		return p->opts.manifest;
	for (size_t i = 0; i < p->n_leaves; i++)
		if (copied_digest(&p->leaf[i]))
			return true;
	return false;
}

/* ---- hashing ---- */

static void *hash_leaves(void *arg)
{
	struct summing *s = arg;

	for (size_t i; (i = atomic_fetch_add(&s->next, 1)) < s->n;) {
		struct leaf_sum *sum = &s->sum[i];
		auto_value v = { 0 };
		int r;

		if (sum->has || !sum->leaf)
			continue;
		r = leaf_open(s->item, sum->leaf, &v);
		r = r < 0 ? r : leaf_digest(&v, sum->sha256);
		sum->has = r == 1;
		if (r >= 0)
			continue;
		err_at(r, "leaf '%.*s'", SPAN_ARG(sum->leaf->param));
		pthread_mutex_lock(&s->lock);
		if (!s->why.code)
			err_save(r, &s->why);
		pthread_mutex_unlock(&s->lock);
		/* Let the other threads stop. */
		atomic_store(&s->next, s->n);
	}
	return NULL;
}

static int hash_all(struct summing *s, uint64_t threads)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t thread[THREADS_MAX];
	size_t n = 0, want = threads ? threads : online > 0 ? (size_t)online : 1;

	want = MIN(MIN(want, (size_t)THREADS_MAX), s->n);
	/* This thread hashes as well, and does all of it when no other thread can be started. */
	while (n + 1 < want && thread_start(&thread[n], "digest", hash_leaves, s) >= 0)
		n++;
	err_clear();
	hash_leaves(s);
	for (size_t i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	return s->why.code ? err_restore(&s->why) : 0;
}

/* ---- one item ---- */

static int digests_list_leaves(struct summing *s, const struct plan *p)
{
	const struct tree *t = s->item->tree;

	s->n = t->n_nodes;
	s->sum = calloc(s->n + 1, sizeof(*s->sum));
	if (!s->sum)
		return fail(-ENOMEM, "cannot list the leaves of %zu nodes", s->n);
	for (size_t i = 0; i < s->n; i++)
		if (t->nodes[i]->kind == TREE_LEAF && leaf_type_of(t->nodes[i]))
			s->sum[i].leaf = t->nodes[i];
	for (size_t i = 0; i < p->n_leaves; i++) {
		const uint8_t *copied = copied_digest(&p->leaf[i]);
		const struct tree_node *n = copied ? plan_same_path(t, p->leaf[i].node) : NULL;

		if (!n || !s->sum[n->id].leaf)
			continue;
		s->sum[n->id].has = true;
		memcpy(s->sum[n->id].sha256, copied, DIGEST_BYTES);
	}
	return 0;
}

static int sum_item(struct draft *d, struct sealing_item *it, const struct commit_item *item,
		    struct commit *c)
{
	struct summing s = { .lock = PTHREAD_MUTEX_INITIALIZER };
	auto_of(item) struct item *opened = NULL;
	auto_free struct leaf_sum *sum = NULL;
	auto_buf text = { 0 };
	int r = d->env->driver->open_finished(d, it->plan->name, &opened);

	if (r < 0)
		return r;
	s.item = opened;
	r = digests_list_leaves(&s, it->plan);
	if (r < 0)
		return r;
	sum = s.sum;
	r = hash_all(&s, d->env->options->threads);
	if (r < 0)
		return r;
	for (size_t i = 0; i < s.n && r >= 0; i++) {
		auto_buf name = { 0 };

		if (!s.sum[i].has)
			continue;
		r = leaf_digest_name(s.sum[i].leaf, &name);
		r = r < 0 ? r : digests_print(buf_span(&name), s.sum[i].sha256, &text);
	}
	if (r < 0)
		return r;
	/* Do not write a file that readers would refuse. */
	if (text.n > LIMIT_SMALL_FILE)
		return fail(-EINVAL, "'" DIGESTS_FILE "' would have %zu bytes, the limit is %llu",
			    text.n, (unsigned long long)LIMIT_SMALL_FILE);
	return seal_file(c, item,
			 &(struct commit_file){ .name = span_str(DIGESTS_FILE),
						.text = buf_span(&text) });
}

int draft_digests(struct draft *d, struct sealing_item *item, size_t n, struct commit *c)
{
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++) {
		if (!draft_digests_wanted(item[i].plan))
			continue;
		r = sum_item(d, &item[i], &c->items[i], c);
		if (r < 0)
			err_at(r, "manifest: item '%s'", item[i].plan->name);
	}
	return r;
}
