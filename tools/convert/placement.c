/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement.c - reads the rules or the other checkpoint, and marks arrays.
 */
#include "tools/convert/placement.h"

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/tree/sharding.h"
#include "handlers/leaf/leaf.h"
#include "handlers/transform/regex.h"
#include "tools/convert/import_list.h"
#include "tools/convert/input.h"

struct rule {
	struct regex *key;
	struct sharding *sharding;
	struct span text, expression; /* text: of the sharding; both are in the arena */
	bool is_used;
};

/* A leaf of the other checkpoint; the path is in the arena. */
struct like_leaf {
	const char *path;
	struct subtree_place at;
};

struct placement {
	struct arena arena;
	struct rule *rule; /* the last one, without a key, is for numbers, which all devices have */
	size_t n_rules;
	struct input like; /* open if n_leaves > 0 */
	struct like_leaf *leaf;
	size_t n_leaves;
};

/* ---- rules ---- */

/*
 * Append {"sharding_type": "NamedSharding", ... without the partition spec, of "fsdp=64,tensor=2".
 */
static int put_mesh(const char *mesh, struct buf *ret)
{
	auto_buf sizes = { 0 }, names = { 0 };

	for (const char *at = mesh; *at;) {
		size_t n = strcspn(at, ","), name = strcspn(at, "=");
		char *end = NULL;
		long long size = name < n ? strtoll(at + name + 1, &end, 10) : 0;

		if (!name || size <= 0 || size > INT32_MAX || end != at + n ||
		    (at[n] && !at[n + 1]))
			return fail(-EINVAL, "--mesh is NAME=SIZE,..., not '%s'", mesh);
		if (buf_addf(&sizes, "%s%lld", sizes.n ? ", " : "", size) < 0 ||
		    (names.n && buf_add_str(&names, ", ") < 0) ||
		    json_put_str(&names, span_of(at, name), JSON_PYTHON) < 0)
			return -ENOMEM;
		at += n + (at[n] == ',');
	}
	if (!sizes.n)
		return fail(-EINVAL, "--mesh is NAME=SIZE,..., not ''");
	return buf_addf(ret,
			"{\"sharding_type\": \"NamedSharding\", \"shape\": [%.*s], "
			"\"axis_names\": [%.*s], \"partition_spec\": ",
			SPAN_ARG(buf_span(&sizes)), SPAN_ARG(buf_span(&names)));
}

static int set_sharding(struct placement *p, struct rule *rule, struct span mesh,
			const struct json *spec)
{
	auto_buf text = { 0 };
	int r = buf_add_span(&text, mesh);

	if (r < 0)
		return r;
	r = spec ? json_print(&text, spec, JSON_PYTHON) : buf_add_str(&text, "[]");
	if (r < 0)
		return r;
	r = buf_add_byte(&text, '}');
	if (r < 0)
		return r;
	r = arena_keep(&p->arena, buf_span(&text), &rule->text);
	return r < 0 ? r : sharding_parse(rule->text, "--mesh", &rule->sharding);
}

static int placement_add_rule(struct placement *p, struct span mesh, struct span key,
			      const struct json *spec, const char *file)
{
	struct rule *rule = &p->rule[p->n_rules];
	int r = regex_new(key, file, &rule->key);

	if (r < 0)
		return r;
	p->n_rules++;
	r = arena_keep(&p->arena, key, &rule->expression);
	if (r < 0)
		return r;
	if (!json_is(spec, JSON_ARRAY))
		return fail(
			-EINVAL,
			"'%s': '%.*s' has no partition spec, a list of null, names of mesh axes "
			"and lists of them",
			file, SPAN_ARG(key));
	r = set_sharding(p, rule, mesh, spec);
	return r < 0 ? err_at(r, "'%s': '%.*s'", file, SPAN_ARG(key)) : 0;
}

static int placement_read_rules(struct placement *p, const char *mesh, const char *file)
{
	auto_buf text = { 0 }, head = { 0 };
	auto_json doc = { 0 };
	int r = put_mesh(mesh, &head);

	if (r < 0)
		return r;
	r = import_read_file(file, LIMIT_JSON_BYTES, &text);
	if (r < 0)
		return r;
	r = json_parse(buf_span(&text), file, &doc);
	if (r < 0)
		return r;
	if (!json_is(doc.root, JSON_OBJECT) && !json_is(doc.root, JSON_ARRAY))
		return fail(-EINVAL, "'%s' is neither an object nor a list of pairs", file);
	p->rule = calloc(doc.root->n + 1, sizeof(*p->rule));
	if (!p->rule)
		return fail(-ENOMEM, "cannot read '%s'", file);
	for (size_t i = 0; i < doc.root->n; i++) {
		const struct json *item = &doc.root->items[i];
		bool pair = doc.root->kind == JSON_ARRAY;

		if (pair && (!json_is(item, JSON_ARRAY) || item->n != 2 ||
			     !json_is(&item->items[0], JSON_STRING)))
			return fail(-EINVAL,
				    "'%s': rule %zu is not a pair of an expression and a partition "
				    "spec",
				    file, i + 1);
		r = placement_add_rule(p, buf_span(&head), pair ? item->items[0].s : item->name,
				       pair ? &item->items[1] : item, file);
		if (r < 0)
			return r;
	}
	return set_sharding(p, &p->rule[p->n_rules], buf_span(&head), NULL);
}

/* Find the rule for a leaf. -EINVAL: none matches an array with axes. */
static int by_rule(struct placement *p, const struct import_list *f, const char *path,
		   unsigned rank, const struct rule **ret)
{
	const char *dot = strrchr(path, '.'), *slash = strchr(path, '/');
	const char *at = f->is_step && slash ? slash + 1 : path;
	/* Its path in its item, without the extension. */
	struct span key = span_of(at, dot && dot > at ? (size_t)(dot - at) : strlen(at));
	struct regex_match m;
	int r;

	for (size_t i = 0; i < p->n_rules; i++) {
		r = regex_match(p->rule[i].key, key, &m);
		if (r < 0)
			return r;
		if (!r)
			continue;
		p->rule[i].is_used = true;
		*ret = &p->rule[i];
		return 0;
	}
	*ret = &p->rule[p->n_rules];
	if (rank == 0)
		return 0;
	return fail(-EINVAL,
		    "no rule of --spec matches '%.*s': \".*\": [] at the end is for all others",
		    SPAN_ARG(key));
}

/* ---- another checkpoint ---- */

static int placement_by_path(const void *a, const void *b)
{
	return strcmp(((const struct like_leaf *)a)->path, ((const struct like_leaf *)b)->path);
}

static int read_like(struct placement *p, struct cmd_args *a, const char *path)
{
	const struct subtree *st = &p->like.st;
	struct subtree_place at = { 0 };
	size_t n = 0;
	int r = input_open(a, path, &p->like);

	if (r < 0)
		return r;
	if (p->like.kind != INPUT_ORBAX || p->like.is_root)
		return fail(-EINVAL, "--chunks-like: '%s' is not a step or an item", path);
	for (size_t i = 0; i < st->n; i++) {
		if (st->part[i].kind == PART_BROKEN)
			return err_restore(st->part[i].note);
		n += st->part[i].kind == PART_TREE ? st->part[i].item->tree->n_nodes : 0;
	}
	p->leaf = calloc(n + 1, sizeof(*p->leaf));
	if (!p->leaf)
		return fail(-ENOMEM, "cannot list the leaves");
	while (subtree_next(st, &at)) {
		/* By its path in the step, or in the only item. */
		size_t item = st->n == 1 && *at.part->path ? strlen(at.part->path) + 1 : 0;
		struct like_leaf *l = &p->leaf[p->n_leaves];
		auto_buf text = { 0 };

		if (at.node->kind != TREE_LEAF)
			continue;
		r = subtree_path(at.part, at.node, &text);
		if (r < 0 || !buf_str(&text))
			return fail(-ENOMEM, "cannot list the leaves");
		*l = (struct like_leaf){ arena_str(&p->arena, buf_str(&text) + item), at };
		if (!l->path)
			return fail(-ENOMEM, "cannot list the leaves");
		p->n_leaves++;
	}
	qsort(p->leaf, p->n_leaves, sizeof(*p->leaf), placement_by_path);
	return r;
}

static const struct like_leaf *find_leaf(const struct placement *p, const char *path)
{
	const struct like_leaf key = { .path = path };

	return bsearch(&key, p->leaf, p->n_leaves, sizeof(key), placement_by_path);
}

/* ---- marks ---- */

/*
 * Whether the array is one of jax: 1. Only these have a sharding, and Orbax restores none of them
 * without one. An array of numpy that is not cut remains what it is: 0; so does one
 * of 64 bits that is not recorded as one of jax, of which jax restores 32 bits.
 */
static int mark_type(struct import_list *f, const struct placed_array *a, const uint64_t *part)
{
	const bool narrows = !a->is_jax && dtype_info(a->array.dtype)->word == 8;
	int r;

	if (f->any_leaf_type)
		return 1;
	if ((a->is_numpy || narrows) && array_type_has_shape(&a->array, a->array.rank, part))
		return 0;
	if (narrows)
		return fail(-EINVAL,
			    "'%s' is %s of %s: cut, it is one of jax, of which jax "
			    "restores 32 bits without jax_enable_x64 (-o leaf_type=jax.Array if "
			    "that is set)",
			    a->path, a->is_numpy ? "an array of numpy" : "an array",
			    dtype_info(a->array.dtype)->name);
	r = import_list_mark(f, a->path, "save.leaf_type", "jax.Array");
	return r < 0 ? r : 1;
}

static int mark_like(const struct placement *p, struct import_list *f, const struct placed_array *a)
{
	const struct like_leaf *l = find_leaf(p, a->path);
	const char *slash = strchr(a->path, '/');
	auto_value v = { 0 };
	const uint64_t *write;
	struct span text;
	unsigned n;
	int r;

	/* The other checkpoint may be one tree in place of a step with items. */
	if (!l && slash)
		l = find_leaf(p, slash + 1);
	if (!l)
		return fail(-EINVAL, "the checkpoint of --chunks-like has no '%s'", a->path);
	r = leaf_open(l->at.part->item, l->at.node, &v);
	if (r < 0)
		return r;
	if (v.kind != VALUE_ARRAY ||
	    !array_type_has_shape(&a->array, v.array->meta.rank, v.array->meta.shape))
		return fail(-EINVAL, "in the checkpoint of --chunks-like '%s' has another shape",
			    a->path);
	r = import_list_mark_shape(f, a->path, "chunk_shape", v.array->meta.chunk, a->array.rank);
	if (r < 0)
		return r;
	r = item_write_shape(l->at.part->item, l->at.node, &write, &n);
	if (r < 0)
		return r;
	if (r == 0 || n != a->array.rank)
		write = v.array->meta.chunk;
	else
		r = import_list_mark_shape(f, a->path, "write_shape", write, n);
	if (r < 0 || !span_eq(l->at.node->value_type, span_str("jax.Array")))
		return r;
	r = mark_type(f, a, write);
	if (r <= 0)
		return r;
	r = item_sharding(l->at.part->item, l->at.node, &text);
	return r == 1 ? import_list_mark_span(f, a->path, "sharding", text) : r;
}

static int mark_rule(struct placement *p, struct import_list *f, const struct placed_array *a)
{
	const struct rule *rule = NULL;
	struct sharding_box box;
	uint64_t part[LIMIT_RANK];
	int r = by_rule(p, f, a->path, a->array.rank, &rule);

	if (r < 0)
		return r;
	r = sharding_check(rule->sharding, a->array.shape, a->array.rank);
	if (r < 0)
		return r;
	sharding_box(rule->sharding, a->array.shape, a->array.rank, 0, &box);
	for (unsigned i = 0; i < a->array.rank; i++)
		part[i] = MAX(box.stop[i] - box.start[i], (uint64_t)1);
	r = import_list_mark_shape(f, a->path, "chunk_shape", part, a->array.rank);
	if (r < 0)
		return r;
	r = import_list_mark_shape(f, a->path, "write_shape", part, a->array.rank);
	if (r < 0)
		return r;
	r = mark_type(f, a, part);
	return r <= 0 ? r : import_list_mark_span(f, a->path, "sharding", rule->text);
}

int placement_mark(struct placement *p, struct import_list *f, const struct placed_array *a)
{
	return p->rule ? mark_rule(p, f, a) : mark_like(p, f, a);
}

void placement_warn_unused(const struct placement *p)
{
	for (size_t i = 0; p && i < p->n_rules; i++)
		if (!p->rule[i].is_used && !span_eq(p->rule[i].expression, span_str(".*")))
			log_warn("--spec: the rule '%.*s' is that of no array: an expression is "
				 "matched with the whole key ('.*kernel'), and the first match "
				 "counts",
				 SPAN_ARG(p->rule[i].expression));
}

/* ---- */

int placement_new(struct cmd_args *a, struct placement **ret)
{
	const char *mesh = cmd_value(a, "mesh"), *spec = cmd_value(a, "spec"),
		   *like = cmd_value(a, "chunks-like");
	auto_of(placement) struct placement *p = NULL;
	int r;

	*ret = NULL;
	if (!mesh && !spec && !like)
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return fail(-ENOMEM, "cannot read the rules");
	r = like ? read_like(p, a, like) : placement_read_rules(p, mesh, spec);
	if (r < 0)
		return r;
	*ret = take(p);
	return 0;
}

void placement_free(struct placement *p)
{
	if (!p)
		return;
	for (size_t i = 0; p->rule && i <= p->n_rules; i++) {
		regex_free(p->rule[i].key);
		sharding_free(p->rule[i].sharding);
	}
	free(p->rule);
	free(p->leaf);
	if (p->like.path)
		input_close(&p->like);
	arena_release(&p->arena);
	free(p);
}
