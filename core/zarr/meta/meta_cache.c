/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta_cache.c - a short list of parsed documents, of which the oldest is replaced first, and a
 * table of those of arrays in stores.
 *
 * zarr_meta.c interprets documents; here they are only compared byte by byte.
 */
#include "core/zarr/meta/meta_cache.h"

#include <pthread.h>
#include <string.h>

#include "core/base/err.h"

#define CACHED_DOCS 16

#define ARRAYS ((size_t)1 << 13)

struct meta_of_array {
	uint64_t owner;
	const void *kv;
	struct meta_shared *doc; /* a reference, or NULL */
	uint32_t tag;
};

struct meta_cache {
	pthread_mutex_t lock;                 /* protects all below */
	struct meta_shared *doc[CACHED_DOCS]; /* a reference each */
	unsigned next;                        /* index of the one to replace */
	/* ARRAYS entries, each at the place of its hash; a later array replaces it. NULL: none */
	struct meta_of_array *arrays;
};

int meta_cache_new(struct meta_cache **ret)
{
	struct meta_cache *m = calloc(1, sizeof(*m));

	if (!m)
		return fail(-ENOMEM, "cannot allocate a cache of metadata");
	pthread_mutex_init(&m->lock, NULL);
	*ret = m;
	return 0;
}

void meta_cache_free(struct meta_cache *m)
{
	if (!m)
		return;
	for (unsigned i = 0; i < CACHED_DOCS; i++)
		meta_shared_unref(m->doc[i]);
	for (size_t i = 0; m->arrays && i < ARRAYS; i++)
		meta_shared_unref(m->arrays[i].doc);
	free(m->arrays);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

static struct meta_shared *meta_shared_ref(struct meta_shared *s)
{
	atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
	return s;
}

void meta_shared_unref(struct meta_shared *s)
{
	if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
		return;
	zarr_meta_release(&s->meta);
	free(s->text);
	free(s);
}

int meta_cache_parse(struct meta_cache *m, struct span json, const char *what,
		     struct meta_shared **ret)
{
	auto_of(meta_shared) struct meta_shared *s = NULL;
	bool small = m && json.n > 0 && json.n <= META_CACHED_BYTES;
	struct meta_shared *out;
	int r;

	if (small) {
		pthread_mutex_lock(&m->lock);
		for (unsigned i = 0; i < CACHED_DOCS && !s; i++)
			if (m->doc[i] && m->doc[i]->n == json.n &&
			    !memcmp(m->doc[i]->text, json.p, json.n))
				s = meta_shared_ref(m->doc[i]);
		pthread_mutex_unlock(&m->lock);
	}
	if (s) {
		*ret = take(s);
		return 0;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return fail(-ENOMEM, "cannot parse '%s'", what);
	atomic_init(&s->refs, 1);
	r = zarr_meta_parse(json, what, &s->meta);
	if (r < 0)
		return r;
	/* Without memory for the text, it will be parsed again. */
	s->text = small ? malloc(json.n) : NULL;
	if (s->text) {
		memcpy(s->text, json.p, json.n);
		s->n = json.n;
		pthread_mutex_lock(&m->lock);
		out = m->doc[m->next];
		m->doc[m->next] = meta_shared_ref(s);
		m->next = (m->next + 1) % CACHED_DOCS;
		pthread_mutex_unlock(&m->lock);
		meta_shared_unref(out);
	}
	*ret = take(s);
	return 0;
}

/* ---- by array ---- */

/* Leaves of one item are beside one another, so that those of a large tree do not collide. */
static struct meta_of_array *meta_cache_place_of(struct meta_cache *m, uint64_t owner, uint32_t tag)
{
	return &m->arrays[(owner * 0x9e3779b97f4a7c15u + tag) % ARRAYS];
}

struct meta_shared *meta_cache_get(struct meta_cache *m, uint64_t owner, uint32_t tag,
				   const void *kv)
{
	const struct meta_of_array *a;
	struct meta_shared *s = NULL;

	if (!m)
		return NULL;
	pthread_mutex_lock(&m->lock);
	a = m->arrays ? meta_cache_place_of(m, owner, tag) : NULL;
	if (a && a->doc && a->owner == owner && a->tag == tag && a->kv == kv)
		s = meta_shared_ref(a->doc);
	pthread_mutex_unlock(&m->lock);
	return s;
}

void meta_cache_put(struct meta_cache *m, uint64_t owner, uint32_t tag, const void *kv,
		    struct meta_shared *s)
{
	struct meta_shared *out = NULL;

	if (!m)
		return;
	pthread_mutex_lock(&m->lock);
	if (!m->arrays)
		m->arrays = calloc(ARRAYS, sizeof(*m->arrays));
	if (m->arrays) {
		struct meta_of_array *a = meta_cache_place_of(m, owner, tag);

		out = a->doc;
		*a = (struct meta_of_array){
			.owner = owner, .kv = kv, .doc = meta_shared_ref(s), .tag = tag
		};
	}
	pthread_mutex_unlock(&m->lock);
	meta_shared_unref(out);
}

void meta_cache_drop(struct meta_cache *m, uint64_t owner)
{
	for (size_t i = 0; m && i < ARRAYS; i++) {
		struct meta_shared *out = NULL;

		pthread_mutex_lock(&m->lock);
		if (m->arrays && m->arrays[i].owner == owner)
			out = take(m->arrays[i].doc);
		pthread_mutex_unlock(&m->lock);
		meta_shared_unref(out);
	}
}
