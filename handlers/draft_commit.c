/*
 * draft_commit.c - names and contents of a draft -> struct commit, and what comes before and after it.
 *
 * Kept true: until the commit's rename nothing is taken away that the draft needs
 * to be committed again.
 */
#include <dirent.h>
#include <stdio.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/step/item.h"
#include "core/step/step_meta.h"
#include "core/step/step_name.h"
#include "core/tree/array_metadata.h"
#include "core/tree/sharding.h"
#include "core/tree/strings.h"
#include "handlers/draft_plan.h"
#include "handlers/ns.h"
#include "handlers/on_commit.h"

#define HANDLER(file, name) "orbax.checkpoint._src.handlers." file "." name
#define CLOSE_PATIENCE_MS 2000		/* a closed file's release may come after the rename */

static const char *const handlers[] = {
	[PLAN_TREE] = HANDLER("pytree_checkpoint_handler", "PyTreeCheckpointHandler"),
	[PLAN_JSON] = HANDLER("json_checkpoint_handler", "JsonCheckpointHandler"),
	[PLAN_PROTO] = HANDLER("proto_checkpoint_handler", "ProtoCheckpointHandler"),
	[PLAN_STORED] = NULL,
};

/* Everything that one item brings into the commit. */
struct sealing_item {
	struct plan *plan;
	struct commit_leaf *leaf;
	size_t n_leaves, cap_leaves;
	struct commit_file *file;
	size_t n_files, cap_files;
	struct buf strings, sharding, arrays, metadata;
	struct arena arena;		/* names, shifts, documents */
};

struct sealing {
	struct draft *d;
	struct sealing_item *item;
	struct commit_item *commit_item;
	size_t n;
	struct buf custom;
};

static void sealing_release(struct sealing *s)
{
	for (size_t i = 0; i < s->n; i++) {
		struct sealing_item *it = &s->item[i];

		buf_release(&it->strings);
		buf_release(&it->sharding);
		buf_release(&it->arrays);
		buf_release(&it->metadata);
		free(it->leaf);
		free(it->file);
		plan_free(it->plan);
		arena_release(&it->arena);
	}
	buf_release(&s->custom);
	free(s->item);
	free(s->commit_item);
}

static void *grow(void *list, size_t *cap, size_t size)
{
	size_t more = *cap ? 2 * *cap : 16;
	void *p = reallocarray(list, more, size);

	if (p)
		*cap = more;
	else
		fail(-ENOMEM, "cannot collect %zu entries", more);
	return p;
}

static int add_file(struct sealing_item *it, const struct commit_file *f)
{
	if (it->n_files == it->cap_files) {
		struct commit_file *more = grow(it->file, &it->cap_files, sizeof(*more));

		if (!more)
			return -ENOMEM;
		it->file = more;
	}
	it->file[it->n_files++] = *f;
	return 0;
}

static int add_leaf(struct sealing_item *it, const struct commit_leaf *l)
{
	if (it->n_leaves == it->cap_leaves) {
		struct commit_leaf *more = grow(it->leaf, &it->cap_leaves, sizeof(*more));

		if (!more)
			return -ENOMEM;
		it->leaf = more;
	}
	it->leaf[it->n_leaves++] = *l;
	return 0;
}

/* ---- arrays ---- */

/* The parts under the whole's name, their chunks moved; the first brings the whole's document. */
static int add_parts(struct sealing_item *it, struct plan_leaf *l)
{
	const struct array_layout *layout = &l->part[0]->file->array[0].layout;
	auto_buf json = { 0 };
	struct span kept;
	struct zarr_meta *meta = arena_calloc(&it->arena, 1, sizeof(*meta));
	int r = meta ? array_json(layout, l->part[0]->file->array[0].stored, l->rank, l->shape, &json) : -ENOMEM;

	if (r >= 0)
		r = arena_keep(&it->arena, buf_span(&json), &kept);
	if (r >= 0)
		r = zarr_meta_parse(kept, l->source->name, meta);
	for (size_t i = 0; i < l->n_parts && r >= 0; i++) {
		uint64_t *shift = arena_calloc(&it->arena, l->rank + 1, sizeof(*shift));
		struct draft_part p;

		r = shift ? draft_part_of(span_str(l->part[i]->name), &p) : -ENOMEM;
		for (unsigned k = 0; k < l->rank && r >= 0; k++)
			shift[k] = p.start[k] / layout->chunk[k];
		if (r >= 0)
			r = add_leaf(it, &(struct commit_leaf){ .kv = l->part[i]->file->array[0].kv, .param = l->node->param,
								.rank = l->rank, .shift = shift, .meta = meta,
								.json = i == 0 ? kept : span_of(NULL, 0) });
	}
	return r;
}

static int add_array(struct sealing_item *it, struct plan_leaf *l)
{
	bool shifted = false;
	int r = l->n_parts ? plan_join_parts(it->plan, l, &shifted) : 0;

	if (r < 0)
		return r;
	if (shifted)
		return add_parts(it, l);
	return add_leaf(it, &(struct commit_leaf){ .kv = l->kv ? l->kv : l->source->file->array[l->index].kv,
						   .param = l->node->param });
}

static int add_values(struct sealing_item *it)
{
	int r = 0;

	for (size_t i = 0; i < it->plan->n_leaves && r >= 0; i++) {
		struct plan_leaf *l = &it->plan->leaf[i];

		if (l->kind == PLAN_SCALAR) {
			r = plan_encode_scalar(l);
			if (r >= 0)
				r = add_leaf(it, &(struct commit_leaf){ .kv = l->kv, .param = l->node->param });
		} else if (l->kind == PLAN_ARRAY) {
			r = add_array(it, l);
		}
		if (r < 0)
			return err_at(r, "leaf '%.*s'", SPAN_ARG(l->node->param));
	}
	return 0;
}

/* ---- files of a tree ---- */

static int print_strings(struct sealing_item *it)
{
	struct plan *p = it->plan;
	auto_free struct strings_pair *pairs = calloc(p->n_leaves + 1, sizeof(*pairs));
	size_t n = 0;
	int r;

	if (!pairs)
		return fail(-ENOMEM, "cannot list strings");
	for (size_t i = 0; i < p->n_leaves; i++)
		if (p->leaf[i].kind == PLAN_STRING)
			pairs[n++] = (struct strings_pair){ p->leaf[i].node->param, buf_span(&p->leaf[i].text) };
	r = n ? strings_print(pairs, n, &it->strings) : 0;
	return r < 0 || !n ? r : add_file(it, &(struct commit_file){ .name = span_str("_strings.json"),
								     .text = buf_span(&it->strings) });
}

/* Where nothing else was said, the one device that every machine has. */
#define ONE_DEVICE "{\"sharding_type\": \"SingleDeviceSharding\", \"device_str\": \"TFRT_CPU_0\"}"

static int print_shardings(struct sealing_item *it)
{
	struct plan *p = it->plan;
	auto_free struct sharding_entry *entries = calloc(p->n_leaves + 1, sizeof(*entries));
	size_t n = 0;
	int r;

	if (!entries)
		return fail(-ENOMEM, "cannot list shardings");
	for (size_t i = 0; i < p->n_leaves; i++)
		if (p->leaf[i].kind == PLAN_ARRAY && p->leaf[i].is_jax)
			entries[n++] = (struct sharding_entry){ p->leaf[i].node->param, p->leaf[i].sharding.p ?
								p->leaf[i].sharding : span_str(ONE_DEVICE) };
	if (!n || !p->opts.sharding_file)
		return 0;
	r = shardings_print(entries, n, &it->sharding);
	return r < 0 ? r : add_file(it, &(struct commit_file){ .name = span_str("_sharding"),
							       .text = buf_span(&it->sharding) });
}

/* The chunk shape that an array has, wherever its chunks come from. */
static int chunk_of(struct plan_leaf *l, uint64_t *ret)
{
	const struct array_layout *layout = &l->source->file->array[l->index].layout;
	struct draft_array whole = { .dtype = l->source->file->array[l->index].stored, .rank = l->rank };
	struct array_wanted w;
	int r = 0;

	if (!l->kv) {
		memcpy(ret, layout->chunk, sizeof(layout->chunk));
		return 0;
	}
	memcpy(whole.shape, l->shape, sizeof(whole.shape));
	r = array_wanted_plain(l->source, &whole, &w);
	if (r >= 0)
		memcpy(ret, w.layout.chunk, sizeof(w.layout.chunk));
	return r;
}

static int describe_array(struct sealing_item *it, struct plan_leaf *l, struct array_metadata *ret)
{
	uint64_t *chunk = arena_calloc(&it->arena, LIMIT_RANK, sizeof(*chunk));
	auto_buf ext = { 0 };
	int r = chunk ? chunk_of(l, chunk) : -ENOMEM;

	*ret = (struct array_metadata){ .param = l->node->param, .write_rank = l->rank, .chunk_rank = l->rank,
					.write_shape = l->shape, .chunk_shape = chunk };
	if (r >= 0 && l->key_impl.p)
		r = array_metadata_key_ext(l->key_impl, &ext);
	if (r >= 0 && l->key_impl.p)
		r = arena_keep(&it->arena, buf_span(&ext), &ret->ext);
	return r;
}

static int print_arrays(struct sealing_item *it)
{
	struct plan *p = it->plan;
	auto_free struct array_metadata *entries = calloc(p->n_leaves + 1, sizeof(*entries));
	size_t n = 0;
	int r = entries ? 0 : fail(-ENOMEM, "cannot describe arrays");

	for (size_t i = 0; i < p->n_leaves && r >= 0; i++)
		if (p->leaf[i].kind == PLAN_ARRAY && p->leaf[i].is_jax)
			r = describe_array(it, &p->leaf[i], &entries[n++]);
	if (r < 0 || !n || !p->opts.array_metadata)
		return r;
	r = array_metadatas_print(entries, n, &it->arrays);
	return r < 0 ? r : add_file(it, &(struct commit_file){ .name = span_str("array_metadatas/process_0"),
							       .text = buf_span(&it->arrays) });
}

static int add_tree(struct sealing_item *it)
{
	int r = add_values(it);

	if (r >= 0)
		r = print_strings(it);
	if (r >= 0)
		r = print_shardings(it);
	if (r >= 0)
		r = print_arrays(it);
	if (r >= 0)
		r = tree_print_metadata(it->plan->tree, it->plan->opts.rich_types, &it->metadata);
	return r < 0 ? r : add_file(it, &(struct commit_file){ .name = span_str("_METADATA"),
							       .text = buf_span(&it->metadata) });
}

/* ---- items that are no trees ---- */

static int read_file(void *arg, uint64_t off, size_t n, void *p)
{
	return draft_file_read_into(arg, off, n, p);
}

static int add_draft_file(struct sealing_item *it, struct span name, struct draft_node *n)
{
	struct commit_file f = { .source = read_file, .arg = n->file, .size = draft_file_size(n->file) };
	int r = arena_keep(&it->arena, name, &f.name);

	return r < 0 ? r : add_file(it, &f);
}

static int check_json(struct draft_node *n)
{
	uint64_t size = draft_file_size(n->file);
	auto_buf text = { 0 };
	auto_json doc = { 0 };
	int r = size > LIMIT_SMALL_FILE ? fail(-EINVAL, "'%s' has %llu bytes, the limit is %llu", n->name,
					       (unsigned long long)size, (unsigned long long)LIMIT_SMALL_FILE) :
					  buf_reserve(&text, size + 1);

	if (r >= 0)
		r = draft_file_read_into(n->file, 0, size, text.p);
	text.n = r < 0 ? 0 : size;
	if (r >= 0)
		r = json_parse(buf_span(&text), n->name, &doc);
	return r == -EUCLEAN ? fail(-EINVAL, "%s", err_text(r)) : r;
}

static int add_json(struct sealing_item *it)
{
	const char *name = it->plan->item->draft->ns->options->json_filename;
	int r = check_json(it->plan->item);

	/* The metrics of a manager have a file name of their own. */
	if (!strcmp(it->plan->name, "metrics"))
		name = "metrics";
	return r < 0 ? r : add_draft_file(it, span_str(name), it->plan->item);
}

/* All files below an opaque directory. */
static int add_opaque(struct sealing_item *it, struct draft_node *dir, const char *path, unsigned depth)
{
	struct draft_node **child;
	size_t n;
	int r = depth > LIMIT_TREE_DEPTH ? fail(-EFBIG, "directories are too deep") : draft_children(dir, &child, &n);

	if (r < 0)
		return r;
	if (n == 0 && depth > 0) {
		struct commit_file f = { .is_dir = true };

		r = arena_keep(&it->arena, span_str(path), &f.name);
		if (r >= 0)
			r = add_file(it, &f);
	}
	for (size_t i = 0; i < n; i++) {
		auto_free char *at = NULL;

		if (r >= 0 && asprintf(&at, "%s%s%s", path, depth ? "/" : "", child[i]->name) < 0) {
			at = NULL;
			r = fail(-ENOMEM, "cannot list '%s'", dir->name);
		}
		if (r >= 0)
			r = child[i]->is_dir ? add_opaque(it, child[i], at, depth + 1) :
					       add_draft_file(it, span_str(at), child[i]);
		draft_node_unref(child[i]);
	}
	free(child);
	return r;
}

/* The type string of an item; p NULL: none. A copy of a JSON or proto item is one again. */
static struct span handler_of(const struct plan *p)
{
	const struct options *o = p->item->draft->ns->options;
	const char *handler = handlers[p->kind];
	const struct draft_node *only;

	if (p->kind == PLAN_STORED && p->item->n_children == 1) {
		only = p->item->child[0];
		if (only->is_dir)
			handler = NULL;
		else if (!strcmp(only->name, o->proto_filename))
			handler = handlers[PLAN_PROTO];
		else if (!strcmp(only->name, o->json_filename) || !strcmp(only->name, "metrics"))
			handler = handlers[PLAN_JSON];
	}
	return handler ? span_str(handler) : span_of(NULL, 0);
}

static int add_item(struct sealing_item *it)
{
	switch (it->plan->kind) {
	case PLAN_TREE:
		return add_tree(it);
	case PLAN_JSON:
		return add_json(it);
	case PLAN_PROTO:
		return add_draft_file(it, span_str(it->plan->item->draft->ns->options->proto_filename), it->plan->item);
	case PLAN_STORED:
		return add_opaque(it, it->plan->item, "", 0);
	}
	return -EINVAL;
}

/* ---- the whole draft ---- */

static int plan_items(struct sealing *s)
{
	struct draft *d = s->d;
	struct draft_node **child = NULL;
	size_t n = 1;
	int r = d->is_item ? 0 : draft_children(d->root, &child, &n);

	if (r < 0)
		return r;
	s->item = calloc(n + 1, sizeof(*s->item));
	s->commit_item = calloc(n + 1, sizeof(*s->commit_item));
	if (!s->item || !s->commit_item)
		r = fail(-ENOMEM, "cannot commit %zu items", n);
	for (size_t i = 0; i < n; i++) {
		struct draft_node *node = child ? child[i] : d->root;

		if (r >= 0 && strcmp(node->name, "_CHECKPOINT_METADATA")) {
			r = plan_new(node, true, &s->item[s->n].plan);
			if (r >= 0)
				s->n++;
			else
				err_at(r, "item '%s'", node->name);
		}
		if (child)
			draft_node_unref(node);
	}
	free(child);
	for (size_t i = 1; i < s->n && r >= 0; i++)
		for (size_t k = 0; k < i; k++)
			if (!strcmp(s->item[i].plan->name, s->item[k].plan->name))
				r = fail(-EINVAL, "'%s' and '%s' are the same item", s->item[k].plan->item->name,
					 s->item[i].plan->item->name);
	if (r >= 0 && s->n == 0)
		r = fail(-EINVAL, "draft '%s' is empty", d->name);
	return r;
}

static int custom_metadata(struct sealing *s)
{
	auto_buf text = { 0 };
	auto_json doc = { 0 };
	int r = draft_get_xattr(s->d->root, "custom_metadata", &text);

	if (r == -ENODATA || s->d->is_item) {
		err_clear();
		return 0;
	}
	if (r >= 0)
		r = json_parse(buf_span(&text), "custom metadata", &doc);
	return r < 0 ? r : json_print(&s->custom, doc.root, JSON_PYTHON);
}

/* ---- the draft's directory ---- */

static bool is_store_dir(const struct sealing *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct draft_node *n = s->item[i].plan->item;

		if (n->item.dir && !strcmp(n->item.dir, name))
			return true;
	}
	return false;
}

struct leftovers {
	const struct sealing *s;
	struct buf names;		/* NUL-terminated, one behind the other */
};

static int add_leftover(void *arg, const char *name, unsigned char type)
{
	struct leftovers *l = arg;

	if (!strcmp(name, DRAFT_LOCK_FILE) || is_store_dir(l->s, name))
		return 0;
	return buf_add(&l->names, name, strlen(name) + 1);
}

/* What an earlier commit that failed, or an item that was removed, left behind. */
static int clean(struct sealing *s)
{
	struct io_dir *dir = s->d->dir->dir;
	struct leftovers l = { .s = s };
	int r = s->d->is_item ? 0 : io_list(dir, ".", add_leftover, &l);

	for (size_t at = 0; at < l.names.n && r >= 0; at += strlen((char *)l.names.p + at) + 1)
		r = io_remove_tree(dir, (char *)l.names.p + at);
	buf_release(&l.names);
	return r;
}

static int move_store(struct draft *d, struct draft_node *n, const char *to)
{
	char *copy = strdup(to);
	int r = copy ? io_dirop(d->dir->dir, IO_RENAME_NEW, n->item.dir, to, 0) : -ENOMEM;

	if (r < 0) {
		free(copy);
		return r;
	}
	free(n->item.dir);
	n->item.dir = copy;
	return 0;
}

/* Stores get the names of their items; those that must change go out of the way of others first. */
static int name_stores(struct sealing *s)
{
	int r = 0;

	for (size_t i = 0; i < s->n && r >= 0; i++) {
		struct draft_node *n = s->item[i].plan->item;
		char temp[64];

		if (!n->item.dir || !strcmp(n->item.dir, s->item[i].plan->name) || n->item.dir[0] == '.')
			continue;
		snprintf(temp, sizeof(temp), ".pytreefs-item-%u", s->d->n_stores++);
		r = move_store(s->d, n, temp);
	}
	for (size_t i = 0; i < s->n && r >= 0; i++) {
		struct draft_node *n = s->item[i].plan->item;

		if (n->item.dir && strcmp(n->item.dir, s->item[i].plan->name))
			r = move_store(s->d, n, s->item[i].plan->name);
	}
	return r;
}

/* ---- verification ---- */

/* The node of the opened tree with the key path of one that was planned. */
static const struct tree_node *same_path(const struct tree *tree, const struct tree_node *n)
{
	const struct tree_node *parent = n->parent ? same_path(tree, n->parent) : NULL;

	return n->parent ? parent ? tree_child_by_key(parent, n->key) : NULL : tree->root;
}

static int verify_leaf(struct item *item, const struct plan_leaf *l, bool all_stored)
{
	auto_of(zarr) struct zarr *z = NULL;
	const struct tree_node *leaf = same_path(item->tree, l->node);
	uint64_t bytes, objects, wanted = 1;
	int r;

	if (!leaf)
		return fail(-EUCLEAN, "it is not in the tree that was written");
	r = item_array(item, leaf, &z);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < z->meta.rank; i++)
		wanted *= z->meta.grid[i];
	if (l->kind == PLAN_ARRAY && (z->meta.rank != l->rank || memcmp(z->meta.shape, l->shape, l->rank * sizeof(uint64_t))))
		return fail(-EUCLEAN, "the shape that was written is not its own");
	r = zarr_stored(z, &bytes, &objects);
	if (r >= 0 && all_stored && objects != wanted)
		return fail(-EUCLEAN, "%llu chunks are stored, it has %llu", (unsigned long long)objects,
			    (unsigned long long)wanted);
	return r;
}

static int verify_item(struct sealing *s, struct sealing_item *it)
{
	struct draft *d = s->d;
	auto_of(item) struct item *item = NULL;
	auto_free char *path = NULL;
	int r = ns_join(d->dir->name, span_str(it->plan->name), &path);

	if (r >= 0)
		r = item_open(d->ns->ckpt, d->is_item ? d->dir->name : path, &item);
	for (size_t i = 0; i < it->plan->n_leaves && r >= 0; i++) {
		const struct plan_leaf *l = &it->plan->leaf[i];

		if (l->kind != PLAN_ARRAY && l->kind != PLAN_SCALAR)
			continue;
		r = verify_leaf(item, l, it->plan->opts.store_fill_value);
		if (r < 0)
			err_at(r, "leaf '%.*s'", SPAN_ARG(l->node->param));
	}
	return r < 0 ? err_at(r, "verify_commit: item '%s'", it->plan->name) : 0;
}

static int verify(void *arg)
{
	struct sealing *s = arg;
	int r = 0;

	for (size_t i = 0; i < s->n && r >= 0; i++)
		if (s->item[i].plan->kind == PLAN_TREE)
			r = verify_item(s, &s->item[i]);
	return r;
}

/* ---- the commit ---- */

static int check_final(struct draft *d, struct span final)
{
	struct ns *ns = d->ns;
	auto_free char *name = span_dup_str(final);
	struct stat st;
	int r;

	if (!name)
		return fail(-ENOMEM, "cannot commit '%s'", d->name);
	if (!d->is_item)
		r = step_name_check(final);
	else
		r = step_name_is_tmp(final) || span_ends(final, span_str(".tmp")) || name[0] == '.' ?
			    fail(-EINVAL, "'%s' is no item's name", name) : 0;
	if (r < 0)
		return r;
	if (ns->options->atomicity == ATOMICITY_COMMIT_FILE)
		return strcmp(name, d->dir->final) ?
			       fail(-EINVAL, "draft '%s' is written in place and can only become '%s'", d->name, d->dir->final) : 0;
	r = io_stat(ns->ckpt->source, name, &st);
	if (r >= 0)
		return fail(-EEXIST, "there is a '%s' already", name);
	if (r != -ENOENT)
		return r;
	err_clear();
	free(d->dir->final);
	d->dir->final = take(name);
	return 0;
}

static int run_commit(struct sealing *s, int64_t deadline)
{
	struct draft *d = s->d;
	const struct options *o = d->ns->options;
	struct commit c = {
		.ckpt = d->ns->ckpt, .draft = d->dir, .items = s->commit_item, .n_items = s->n, .direct = d->is_item,
		.custom = s->custom.n ? buf_str(&s->custom) : NULL, .dir_mode = (unsigned)o->mode,
		.atomicity = o->atomicity, .deadline_ns = deadline,
	};
	int r = 0;

	for (size_t i = 0; i < s->n && r >= 0; i++) {
		r = add_item(&s->item[i]);
		if (r < 0)
			err_at(r, "item '%s'", s->item[i].plan->name);
	}
	if (r >= 0)
		r = clean(s);
	if (r >= 0)
		r = name_stores(s);
	for (size_t i = 0; i < s->n; i++) {
		const struct sealing_item *it = &s->item[i];

		s->commit_item[i] = (struct commit_item){
			.name = span_str(it->plan->name), .handler = handler_of(it->plan),
			.store = it->plan->item->item.store, .leaves = it->leaf, .n_leaves = it->n_leaves,
			.files = it->file, .n_files = it->n_files,
		};
	}
	if (o->verify_commit) {
		c.verify = verify;
		c.verify_arg = s;
	}
	return r < 0 ? r : commit_run(&c);
}

static int64_t deadline_of(const struct ns *ns)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return ns->options->commit_timeout ?
		       ((int64_t)t.tv_sec + (int64_t)MIN(ns->options->commit_timeout, (uint64_t)1 << 32)) * 1000000000 + t.tv_nsec : 0;
}

/* ---- files that are still open ---- */

static int check_closed(struct draft_node *dir, unsigned *patience);

static int check_file_closed(struct draft_node *n, unsigned *patience)
{
	enum draft_open open;

	while ((open = draft_file_is_open(n->file)) == DRAFT_OPEN_CLOSING && *patience > 0) {
		const struct timespec tick = { .tv_nsec = 2000000 };

		nanosleep(&tick, NULL);
		*patience -= MIN(*patience, 2u);
	}
	return open == DRAFT_OPEN_CLOSED ? 0 : fail(-EBUSY, "'%s' is open for writing", n->name);
}

static int check_closed(struct draft_node *dir, unsigned *patience)
{
	struct draft_node **child;
	size_t n;
	int r = draft_children(dir, &child, &n);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		if (r >= 0) {
			r = child[i]->is_dir ? check_closed(child[i], patience) : check_file_closed(child[i], patience);
			if (r < 0 && child[i]->is_dir)
				err_at(r, "'%s'", child[i]->name);
		}
		draft_node_unref(child[i]);
	}
	free(child);
	return r;
}

static int begin(struct draft *d)
{
	int r = 0;

	pthread_mutex_lock(&d->lock);
	if (d->life == DRAFT_COMMITTING)
		r = fail(-EBUSY, "draft '%s' is being committed already", d->name);
	else if (d->life == DRAFT_GONE)
		r = -ENOENT;
	else
		d->life = DRAFT_COMMITTING;
	pthread_mutex_unlock(&d->lock);
	return r;
}

int draft_commit(struct draft *d, struct span final)
{
	struct sealing s = { .d = d };
	int64_t deadline = deadline_of(d->ns);
	unsigned patience = CLOSE_PATIENCE_MS;
	int r = begin(d);

	if (r < 0)
		return r;
	r = check_final(d, final);
	if (r >= 0)
		r = check_closed(d->root, &patience);
	if (r >= 0)
		r = plan_items(&s);
	if (r >= 0)
		r = custom_metadata(&s);
	if (r >= 0)
		r = run_commit(&s, deadline);
	sealing_release(&s);
	if (r < 0) {
		pthread_mutex_lock(&d->lock);
		d->life = DRAFT_OPEN;
		pthread_mutex_unlock(&d->lock);
		return err_at(r, "draft '%s' is not committed", d->name);
	}
	log_info("draft '%s' became '%s'", d->name, d->dir->final);
	draft_end(d);
	on_commit_run(d->ns, d->dir->final);
	return 0;
}

/* ---- what the step's metadata would say now ---- */

int draft_checkpoint_metadata(struct draft *d, struct buf *ret)
{
	struct draft_node **child;
	struct step_meta m = { .kind = STEP_ITEMS_MAP, .has_init = true, .init_ns = d->dir->init_ns };
	struct step_item *items;
	struct plan **plans;
	size_t n;
	int r = draft_children(d->root, &child, &n);

	if (r < 0)
		return r;
	items = calloc(n + 1, sizeof(*items));
	plans = calloc(n + 1, sizeof(struct plan *));
	m.items = items;
	for (size_t i = 0; i < n; i++) {
		/* What is no item yet is left out. */
		if (items && plans && plan_new(child[i], false, &plans[i]) >= 0 && handlers[plans[i]->kind])
			items[m.n_items++] = (struct step_item){ span_str(plans[i]->name), span_str(handlers[plans[i]->kind]) };
		draft_node_unref(child[i]);
	}
	err_clear();
	r = items && plans ? step_meta_print(&m, ret) : fail(-ENOMEM, "cannot describe draft '%s'", d->name);
	for (size_t i = 0; i < n && plans; i++)
		plan_free(plans[i]);
	free(plans);
	free(items);
	free(child);
	return r;
}
