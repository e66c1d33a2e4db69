/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_leaf.c - checks each leaf: its metadata, the presence of its chunks, and that they decode.
 *
 * The loops are over stored chunks, since an array may claim any number of chunks. Where these
 * cannot be listed, they are over a limited number of possible ones (verify_objects.c).
 */
#include <pthread.h>
#include <stdio.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/wire.h"
#include "core/tree/array_metadata.h"
#include "core/tree/sharding.h"
#include "core/zarr/chunk.h"
#include "core/zarr/meta/grid.h"
#include "handlers/leaf/leaf.h"
#include "tools/verify/verify.h"

#define KEEP_FINDINGS 100 /* largest number of findings for one leaf */

struct leaf_check {
	struct leaf_checks *all;
	char *file; /* file to report if a finding concerns no chunk: the one with the metadata */
	struct verify_objects objects;
	uint64_t per_task;
	bool has_nodes;       /* inline values are in nodes of a database */
	pthread_mutex_t lock; /* protects all members below */
	struct buf findings;  /* packed, at most KEEP_FINDINGS (verify_pack()) */
	size_t n_retained, n_findings;
	bool is_damaged; /* one of the findings is an error */
	uint64_t chunks, stored, decoded, missing;
	uint64_t unsummed; /* stored bytes that no checksum covers */
};

struct leaf_checks {
	struct verify *v;
	const struct verify_tree *t;
	pthread_mutex_t large; /* held by a thread that decodes with a large window */
};

static void leaf_check_free(struct leaf_check *c)
{
	if (!c)
		return;
	buf_release(&c->findings);
	pthread_mutex_destroy(&c->lock);
	free(c->file);
	verify_objects_release(&c->objects);
	free(c);
}

/* Keep a finding until the leaf is reported, so that findings are in order. */
static void leaf_keep(struct leaf_check *c, const struct finding *f)
{
	pthread_mutex_lock(&c->lock);
	c->n_findings++;
	c->is_damaged |= f->severity == SEVERITY_ERROR;
	if (c->n_retained < KEEP_FINDINGS && verify_pack(f, &c->findings) >= 0)
		c->n_retained++;
	pthread_mutex_unlock(&c->lock);
}

static void leaf_keep_text(struct leaf_check *c, enum severity severity, int level, const char *fmt,
			   ...) __attribute__((format(printf, 4, 5)));
static void leaf_keep_text(struct leaf_check *c, enum severity severity, int level, const char *fmt,
			   ...)
{
	struct finding f = { .severity = severity, .level = level, .file = c->file };
	auto_buf text = { 0 };
	va_list ap;

	va_start(ap, fmt);
	buf_vaddf(&text, fmt, ap);
	va_end(ap);
	f.text = buf_str(&text);
	if (f.text)
		leaf_keep(c, &f);
}

/* ---- metadata ---- */

/* Check that one device can have written such a part of the array. */
static void leaf_check_part(struct leaf_check *c, const char *given, const uint64_t *part,
			    const struct zarr_meta *m)
{
	for (unsigned i = 0; i < m->rank; i++)
		if (part[i] > MAX(m->shape[i], (uint64_t)1) || (!part[i] && m->shape[i])) {
			leaf_keep_text(
				c, SEVERITY_ERROR, 2,
				"%s a write_shape with %llu on axis %u, where its array has %llu",
				given, (unsigned long long)part[i], i,
				(unsigned long long)m->shape[i]);
			return;
		}
}

static void check_array_metadata(struct leaf_check *c, const struct tree_node *leaf,
				 const struct zarr *z)
{
	const struct verify_tree *t = c->all->t;
	bool found = false;
	struct span impl;

	for (size_t i = 0; i < t->n_arrays; i++) {
		const struct array_metadata *m = array_metadatas_find(t->arrays[i], leaf->param);

		if (!m)
			continue;
		found = true;
		if (m->write_rank != z->meta.rank || m->chunk_rank != z->meta.rank)
			leaf_keep_text(c, SEVERITY_ERROR, 2,
				       "array_metadatas give it %u %s, its array has %u",
				       m->write_rank, noun(m->write_rank, "axis", "axes"),
				       z->meta.rank);
		else if (memcmp(m->chunk_shape, z->leaf_chunk, m->chunk_rank * sizeof(uint64_t)))
			leaf_keep_text(c, SEVERITY_ERROR, 2,
				       "array_metadatas give it other chunks than its array has");
		else
			leaf_check_part(c, "array_metadatas give it", m->write_shape, &z->meta);
	}
	/* JAX makes random keys of rows of uint32. */
	if (item_prng_impl(t->item, leaf, &impl) == 1 &&
	    (z->meta.dtype != DTYPE_UINT32 || !z->meta.rank))
		leaf_keep_text(
			c, SEVERITY_ERROR, 2,
			"array_metadatas say that it holds random keys ('%.*s'), which are rows of "
			"uint32, and its array is of %s, with %u %s",
			SPAN_ARG(impl), dtype_info(z->meta.dtype)->name, z->meta.rank,
			noun(z->meta.rank, "axis", "axes"));
	err_clear();
	if (t->n_arrays && !found && span_eq(leaf->value_type, span_str("jax.Array")))
		leaf_keep_text(c, SEVERITY_ERROR, 2,
			       "array_metadatas do not have it, as they have every jax.Array");
}

static void leaf_check_sharding(struct leaf_check *c, const struct tree_node *leaf,
				const struct zarr_meta *m)
{
	auto_of(sharding) struct sharding *s = NULL;
	struct err_note note;
	struct span text;
	int r;

	/* A malformed text is reported with its file. */
	if (item_sharding(c->all->t->item, leaf, &text) != 1 ||
	    sharding_parse(text, "'_sharding'", &s) < 0) {
		err_clear();
		return;
	}
	r = sharding_check(s, m->shape, m->rank);
	if (r < 0) {
		err_save(r, &note);
		leaf_keep_text(c, SEVERITY_ERROR, 2, "its sharding does not fit its shape: %s",
			       note.text);
	}
	err_clear();
}

/* ---- stored chunks ---- */

/* Report the first object of the grid that is not stored. */
static void check_missing(struct leaf_check *c, const struct zarr *z)
{
	const struct verify_objects *o = &c->objects;
	uint64_t index[LIMIT_RANK], first = 0;
	auto_buf key = { 0 };
	char *file = NULL;

	if (o->n >= o->grid)
		return;
	if (!z->missing_is_error) {
		c->missing = o->grid - o->n;
		return;
	}
	while (first < o->n && o->object[first] == first)
		first++;
	for (unsigned i = z->meta.rank; i > 0; i--) {
		uint64_t part = MAX(z->meta.grid[i - 1], (uint64_t)1);

		index[i - 1] = first % part;
		first /= part;
	}
	if (zarr_object_key(z, index, &key) < 0)
		err_clear();
	/* A chunk that has a file of its own would be in that. */
	if (!item_has_nodes(c->all->t->item, z->kv) && buf_str(&key))
		file = verify_array_file(c->all->t->item, buf_str(&key));
	if (file) {
		free(c->file);
		c->file = file;
	}
	leaf_keep_text(c, SEVERITY_ERROR, 2,
		       "%llu of %llu chunks %s not stored, and the checkpoint says that all are; "
		       "the first is '%s'",
		       (unsigned long long)(o->grid - o->n), (unsigned long long)o->grid,
		       noun(o->grid - o->n, "is", "are"), key.n ? buf_str(&key) : "?");
}

static int list_objects(struct leaf_check *c, struct zarr *z)
{
	struct verify_objects *o = &c->objects;
	int r = verify_objects_list(c->all->t, z, o);

	if (r < 0)
		return r;
	if (o->n_strange)
		leaf_keep_text(c, SEVERITY_ERROR, 2,
			       "%llu %s of no chunk of its grid, the first is '%s'",
			       (unsigned long long)o->n_strange,
			       noun(o->n_strange, "key is", "keys are"),
			       o->strange ? o->strange : "?");
	if (!o->is_guessed)
		check_missing(c, z);
	else if (o->n < o->grid && c->all->v->level >= 3)
		leaf_keep_text(c, SEVERITY_UNCHECKED, 3,
			       "only %zu of its %llu chunks are checked: the server cannot list",
			       o->n, (unsigned long long)o->grid);
	return 0;
}

/* ---- decoding ---- */

static void chunk_failed(struct leaf_check *c, struct zarr *z, const uint64_t *index, int r)
{
	struct finding f = { .severity = verify_severity(c->all->v, r), .level = 3 };
	struct item *item = c->all->t->item;
	auto_free char *file = NULL;
	struct chunk at = { 0 };
	struct err_note note;

	err_save(r, &note);
	f.text = note.text;
	memcpy(at.index, index, sizeof(at.index));
	/* The names of files in a part are relative to it; the note says which part it is. */
	if (!item->is_unmerged && !item_database_dir(item, z->kv) && chunk_locate(z, &at, 1) >= 0) {
		/* The checksum covers the whole value, also the index of a shard with one chunk. */
		bool all = chunk_source_is_all(&at.src);

		f.has_range = at.src.loc.where == KV_FILE;
		if (f.has_range) {
			f.file = file = verify_array_file(item, at.src.loc.file->name);
			f.off = all ? at.src.loc.off : at.src.loc.off + at.src.off;
			f.len = all ? at.src.loc.len : at.src.len;
		}
		kv_loc_release(&at.src.loc);
	}
	if (!f.file)
		verify_place(note.text, c->all->t->item->path, &f, &file);
	if (!f.file)
		f.file = c->file;
	leaf_keep(c, &f);
	err_clear();
}

/* Check the inner chunks of one stored object. Returns only errors that are not about the chunk. */
static int check_object(struct leaf_check *c, struct zarr *z, uint64_t object,
			struct walk_worker *worker)
{
	struct grid g = { .rank = z->meta.rank };
	struct grid_box all = { 0 };
	struct grid_part part;

	for (unsigned i = z->meta.rank; i-- > 0;) {
		uint64_t start = object % z->meta.grid[i] * z->meta.chunk[i];

		all.hi[i] = MIN(z->meta.chunk[i], z->meta.shape[i] - start);
		g.axis[i] = (struct grid_axis){ start, 1, all.hi[i], z->meta.shape[i],
						z->leaf_chunk[i] };
		object /= z->meta.grid[i];
	}
	grid_part_first(&g, &all, &part);
	do {
		struct verify_chunk found = { 0 };
		int r = verify_chunk(z, part.chunk, worker, &c->all->large, c->has_nodes, &found);

		if (r == -ENOMEM)
			return r;
		if (r < 0) {
			chunk_failed(c, z, part.chunk, r);
		} else {
			pthread_mutex_lock(&c->lock);
			c->chunks += found.stored > 0;
			c->missing += !found.stored;
			c->stored += found.stored;
			c->unsummed += found.is_summed ? 0 : found.stored;
			c->decoded += found.stored ? z->leaf->bytes : 0;
			pthread_mutex_unlock(&c->lock);
		}
		if (worker->walk->progress)
			progress_add(worker->walk->progress, z->leaf->bytes);
	} while (grid_part_next(&g, &all, &part));
	return 0;
}

/* ---- the walk ---- */

static void plan(struct leaf_check *c, struct walk_leaf *leaf, const struct zarr *z)
{
	uint64_t bytes = dtype_info(z->meta.dtype)->size;

	for (unsigned i = 0; i < z->meta.rank; i++)
		if (!mul_fits(bytes, z->meta.chunk[i], &bytes))
			bytes = UINT64_MAX;
	c->per_task = MAX((uint64_t)1, TILE_BYTES / MAX(bytes, (uint64_t)1));
	c->per_task = MAX(c->per_task, div_up(c->objects.n, WALK_TASKS));
	leaf->n_tasks = c->all->v->level >= 3 ? div_up(c->objects.n, c->per_task) : 0;
}

/* Check that what is recorded of an array agrees with it, and that Orbax can restore it. */
static void check_recorded(struct leaf_check *c, const struct tree_node *leaf, const struct zarr *z)
{
	auto_buf why = { 0 };

	if (verify_orbax_array(c->all->t->item, leaf, z, &why) && buf_str(&why))
		leaf_keep_text(c, SEVERITY_REFUSED, 2, "%s", buf_str(&why));
	if (leaf->has_write_shape && leaf->write_rank != z->meta.rank)
		leaf_keep_text(c, SEVERITY_ERROR, 2, "_METADATA gives it %u %s, its array has %u",
			       leaf->write_rank, noun(leaf->write_rank, "axis", "axes"),
			       z->meta.rank);
	else if (leaf->has_write_shape)
		leaf_check_part(c, "_METADATA gives it", leaf->write_shape, &z->meta);
	check_array_metadata(c, leaf, z);
	leaf_check_sharding(c, leaf, &z->meta);
}

static int leaf_check_begin(void *arg, struct walk_leaf *leaf)
{
	struct leaf_checks *all = arg;
	struct leaf_check *c = calloc(1, sizeof(*c));
	struct zarr *z = leaf->value.array;
	int r;

	if (!c)
		return fail(-ENOMEM, "cannot check '%s'", leaf->path);
	pthread_mutex_init(&c->lock, NULL);
	leaf->state = c;
	leaf->n_tasks = 0;
	c->all = all;
	c->file = verify_leaf_file(all->t, leaf->node, z);
	if (leaf->value.kind != VALUE_ARRAY)
		return 0;
	c->has_nodes = item_has_nodes(all->t->item, z->kv);
	if (all->v->level >= 2)
		check_recorded(c, leaf->node, z);
	r = all->v->level >= 2 ? list_objects(c, z) : 0;
	/* Only rank 0 reports leaf-level findings. */
	if (leaf->is_shared && !group_is_lead(all->v->t.group)) {
		buf_clear(&c->findings);
		c->n_retained = c->n_findings = 0;
		c->is_damaged = false;
	}
	if (r < 0)
		return r;
	plan(c, leaf, z);
	return 0;
}

static int leaf_check_task(void *arg, struct walk_leaf *leaf, uint64_t task,
			   struct walk_worker *worker)
{
	struct leaf_check *c = leaf->state;

	int r = 0;

	for (uint64_t i = task * c->per_task;
	     i < MIN((task + 1) * c->per_task, c->objects.n) && r >= 0; i++)
		r = check_object(c, leaf->value.array, c->objects.object[i], worker);
	return r;
}

/* Report a leaf that cannot be opened, at the place in its note, or in the file of its metadata. */
static void say_unopened(struct leaf_checks *all, const struct walk_leaf *leaf)
{
	/* Leaves of unknown types cannot be checked, which is not damage, nor restored by Orbax. */
	enum severity severity = leaf_type_of(leaf->node) ?
					 verify_severity(all->v, leaf->failed.code) :
					 SEVERITY_REFUSED;
	struct finding f = { severity, 1, leaf->path, NULL, false, 0, 0, leaf->failed.text };
	static const char *const names[] = { ".zarray", "zarr.json" };
	const char *below = item_database_of(all->t->item, leaf->node->param);
	auto_free char *file = NULL, *dir = NULL;

	/* Nodes have names that are relative to their database. */
	dir = below && strstr(leaf->failed.text, "btreenode:") ?
		      verify_join(all->t->item->path, below) :
		      strdup(all->t->item->path);
	if (!dir || !verify_place(leaf->failed.text, dir, &f, &file)) {
		for (size_t i = 0; i < ARRAY_LEN(names) && !f.file && !below; i++) {
			auto_buf key = { 0 }, where = { 0 };

			if (buf_addf(&key, "%.*s/%s", SPAN_ARG(leaf->node->param), names[i]) >= 0 &&
			    kv_where_text(all->t->item->kv, buf_span(&key), &where) >= 0 &&
			    buf_str(&where))
				verify_place(buf_str(&where), all->t->item->path, &f, &file);
		}
		err_clear();
	}
	if (!f.file && span_ends(span_str(f.text), span_str(ITEM_LOST_MANIFEST))) {
		f.text = ITEM_LOST_MANIFEST;
		f.of_item = true;
		f.file = file = verify_join(all->t->item->path, "manifest.ocdbt");
	}
	if (!f.file)
		f.file = file = verify_leaf_file(all->t, leaf->node, NULL);
	verify_say(all->v, &f);
}

static void add_up(struct leaf_checks *all, const struct leaf_check *c,
		   const struct walk_leaf *leaf)
{
	struct verify *v = all->v;

	v->chunks += c->chunks;
	v->stored_bytes += c->stored;
	v->decoded_bytes += c->decoded;
	v->missing += c->missing;
	/* A string is in a JSON file, and a plugin has files of its own. */
	v->unsummed_leaves += c->unsummed > 0 || leaf->value.kind == VALUE_TEXT ||
			      leaf->value.kind == VALUE_FILE;
	if (leaf->value.kind == VALUE_ARRAY && leaf->value.array->leaf->codecs.n)
		v->unsummed_bytes += c->unsummed;
	else
		v->raw_bytes += c->unsummed;
}

static int say_findings(struct leaf_checks *all, const struct leaf_check *c, const char *leaf)
{
	struct wire packed = wire_of(buf_span(&c->findings));
	int r = verify_unpack_findings(all->v, leaf, &packed);
	auto_buf text = { 0 };

	if (r < 0 || c->n_findings == c->n_retained)
		return r;
	r = buf_addf(&text, "and %zu %s more", c->n_findings - c->n_retained,
		     noun(c->n_findings - c->n_retained, "finding", "findings"));
	if (r < 0)
		return r;
	verify_say(all->v, &(struct finding){ c->is_damaged ? SEVERITY_ERROR : SEVERITY_UNCHECKED,
					      3, leaf, c->file, false, 0, 0, buf_str(&text) });
	return 0;
}

static int leaf_check_end(void *arg, struct walk_leaf *leaf)
{
	struct leaf_checks *all = arg;
	struct leaf_check *c = leaf->state;
	int r = 0;

	all->v->leaves++;
	all->v->unopened_leaves += leaf->failed.code != 0;
	if (leaf->failed.code == -ENOMEM) {
		leaf_check_free(c);
		return err_restore(&leaf->failed);
	}
	/* A shared leaf fails on all ranks, and is reported once. */
	if (leaf->failed.code && !(leaf->is_shared && !group_is_lead(all->v->t.group)))
		say_unopened(all, leaf);
	if (c) {
		r = say_findings(all, c, leaf->path);
		add_up(all, c, leaf);
	}
	leaf_check_free(c);
	return r;
}

/* On ranks other than 0: pack the result for rank 0. */
static int leaf_check_pack(void *arg, struct walk_leaf *leaf, struct buf *ret)
{
	struct verify *v = ((struct leaf_checks *)arg)->v;
	const struct verify was = *v;
	int r;

	v->packed = ret;
	r = leaf_check_end(arg, leaf);
	/* A shared leaf is counted once, by rank 0. */
	v->leaves -= leaf->is_shared;
	if (leaf->is_shared) {
		v->unsummed_leaves = was.unsummed_leaves;
		v->unopened_leaves = was.unopened_leaves;
	}
	return verify_pack_end(v, r, &was, ret);
}

static int leaf_check_unpack(void *arg, struct walk_leaf *leaf, int rank, struct span packed)
{
	return verify_unpack(((struct leaf_checks *)arg)->v, packed);
}

int verify_leaves(struct verify *v, const struct verify_tree *t)
{
	static const struct walk_ops ops = { .begin = leaf_check_begin,
					     .task = leaf_check_task,
					     .end = leaf_check_end,
					     .pack = leaf_check_pack,
					     .unpack = leaf_check_unpack,
					     .part = leaf_check_pack,
					     .join = leaf_check_unpack };
	struct leaf_checks all = { v, t, PTHREAD_MUTEX_INITIALIZER };

	return verify_walk(v, t, &ops, &all);
}
