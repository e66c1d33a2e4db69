/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refused.c - a table of the last refusals; the oldest makes room.
 */
#include "handlers/namespace/refused.h"

#include <pthread.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/refusal.h"
#include "core/step/document.h"
#include "handlers/namespace/ns.h"
#include "handlers/subtree/subtree_file.h"

#define REFUSED_MAX 64

struct refused {
	pthread_mutex_t lock; /* protects all below */
	unsigned next;
	struct {
		char *name; /* NULL: none */
		struct refusal refusal;
	} at[REFUSED_MAX];
};

int refused_new(struct refused **ret)
{
	struct refused *t = calloc(1, sizeof(*t));

	if (!t)
		return fail(-ENOMEM, "cannot allocate the table of refusals");
	pthread_mutex_init(&t->lock, NULL);
	*ret = t;
	return 0;
}

void refused_free(struct refused *t)
{
	if (!t)
		return;
	for (unsigned i = 0; i < REFUSED_MAX; i++)
		free(t->at[i].name);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

uint64_t refused_mark(struct ns *ns, const char *path, uint64_t *ret_bytes)
{
	const char *const names[] = { "", "/_METADATA", "/manifest.ocdbt", "/_strings.json", "/" };
	const char *aggregate = ns->ckpt->opts.aggregate_filename;
	uint64_t mark = 1, bytes = 0;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		bool last = i + 1 == ARRAY_LEN(names);
		auto_free char *file = str_fmt("%s%s%s", path, names[i], last ? aggregate : "");

		if (file)
			mark = document_mark(ns->ckpt->source, file, mark, &bytes);
	}
	if (ret_bytes)
		*ret_bytes = bytes;
	return mark;
}

/* Called with the lock held. */
static struct refusal *find(struct refused *t, const char *name)
{
	for (unsigned i = 0; i < REFUSED_MAX; i++)
		if (t->at[i].name && !strcmp(t->at[i].name, name))
			return &t->at[i].refusal;
	return NULL;
}

int refused_ask(struct refused *t, const char *name, uint64_t mark)
{
	const struct refusal *f;
	int r = 0;

	pthread_mutex_lock(&t->lock);
	f = find(t, name);
	if (f)
		r = refusal_ask(f, mark);
	pthread_mutex_unlock(&t->lock);
	return r;
}

int refused_keep(struct refused *t, const char *name, uint64_t mark, int64_t began, int r)
{
	struct refusal *f;

	if (!refusal_pays(r, began))
		return r;
	pthread_mutex_lock(&t->lock);
	f = find(t, name);
	if (!f) {
		unsigned i = t->next++ % REFUSED_MAX;

		free(t->at[i].name);
		t->at[i].name = strdup(name);
		f = &t->at[i].refusal;
		*f = (struct refusal){ 0 };
	}
	refusal_keep(f, mark, began, r);
	pthread_mutex_unlock(&t->lock);
	return r;
}

int refused_or_new_file(struct ns *ns, const struct subtree *st, const struct subtree_want *want,
			struct subtree_file **ret)
{
	int64_t began = clock_ns();
	uint64_t mark = 1;
	auto_buf name = { 0 };
	int r = buf_addf(&name, "%d %d %s", (int)want->ext, (int)want->cast, want->name);

	for (size_t i = 0; i < st->n && r >= 0; i++) {
		const struct subtree_part *p = &st->part[i];

		mark = mark * 31 + refused_mark(ns, p->source, NULL);
		r = buf_addf(&name, " %s:%u", p->source, p->tree ? p->tree->id : 0);
	}
	if (r >= 0 && !buf_str(&name))
		r = -ENOMEM;
	if (r >= 0)
		r = refused_ask(ns->refused, buf_str(&name), mark);
	if (r < 0)
		return r;
	r = subtree_file_new(st, want, ret);
	return refused_keep(ns->refused, buf_str(&name), mark, began, r);
}
