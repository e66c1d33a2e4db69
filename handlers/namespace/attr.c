/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attr.c - user.pytree.*: what a checkpoint records, without reading data.
 *
 * Values are JSON. Attributes that the checkpoint does not record are absent (-ENODATA), and a
 * listing has only those that are present.
 */
#include <linux/limits.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/step/step_meta.h"
#include "handlers/draft/draft.h"
#include "handlers/leaf/leaf_digest.h"
#include "handlers/namespace/node_tree.h"
#include "handlers/plugin/plugins.h"
#include "handlers/namespace/node_parts.h"

#define PREFIX "user.pytree."

/* The source of an attribute; fields that do not apply are NULL. */
struct subject {
	struct node *node;
	const struct attr *attrs; /* of its kind; the last one has no name */
	struct item *item;
	const struct tree_node *tree; /* NULL: a step or a root */
	struct zarr *array;           /* for an array leaf: the stored array */
	struct zarr_view view;        /* for an array leaf: the view that the file shows */
};

struct attr {
	const char *name;
	/* Append the JSON value; -ENODATA when it is not recorded. */
	int (*print)(const struct subject *s, struct buf *ret);
};

/* ---- leaves ---- */

static int attr_dtype(const struct subject *s, struct buf *ret)
{
	if (!s->array)
		return -ENODATA;
	return buf_addf(ret, "\"%s\"", dtype_info(s->view.dtype)->name);
}

static int attr_shape(const struct subject *s, struct buf *ret)
{
	uint64_t shape[LIMIT_RANK];
	unsigned rank;

	if (!s->array)
		return -ENODATA;
	rank = zarr_view_result(&s->view, shape);
	return json_put_uints(ret, shape, rank, JSON_COMPACT);
}

static int attr_chunks(const struct subject *s, struct buf *ret)
{
	if (!s->array)
		return -ENODATA;
	return json_put_uints(ret, s->array->leaf_chunk, s->array->meta.rank, JSON_COMPACT);
}

static int attr_codecs(const struct subject *s, struct buf *ret)
{
	return s->array ? codec_print_chain(&s->array->leaf->codecs, ",", ret) : -ENODATA;
}

static int attr_typestr(const struct subject *s, struct buf *ret)
{
	if (!s->tree->value_type.n)
		return -ENODATA;
	return json_put_str(ret, s->tree->value_type, JSON_COMPACT);
}

static int attr_leaf_stored(const struct subject *s, struct buf *ret)
{
	uint64_t bytes = 0, objects;
	int r = s->array ? zarr_stored(s->array, &bytes, &objects) :
			   leaf_stored(s->item, s->tree, &bytes);

	return r < 0 ? r : buf_addf(ret, "%llu", (unsigned long long)bytes);
}

static int attr_key(const struct subject *s, struct buf *ret)
{
	return tree_key_json(s->tree, ret);
}

/* Whether the file has the shape of the stored array: only then is the sharding valid for it. */
static bool has_stored_shape(const struct subject *s)
{
	uint64_t shape[LIMIT_RANK];
	unsigned rank = s->array ? zarr_view_result(&s->view, shape) : 0;

	return s->array && rank == s->array->meta.rank &&
	       !memcmp(shape, s->array->meta.shape, rank * sizeof(*shape));
}

static int attr_write_shape(const struct subject *s, struct buf *ret)
{
	const uint64_t *shape;
	unsigned rank;
	int r = has_stored_shape(s) ? item_write_shape(s->item, s->tree, &shape, &rank) : 0;

	return r == 1 ? json_put_uints(ret, shape, rank, JSON_COMPACT) : r < 0 ? r : -ENODATA;
}

static int attr_sharding(const struct subject *s, struct buf *ret)
{
	struct span text;
	int r = has_stored_shape(s) ? item_sharding(s->item, s->tree, &text) : 0;

	return r == 1 ? buf_add_span(ret, text) : r < 0 ? r : -ENODATA;
}

/*
 * Whether the file has whole keys, which are rows of one dtype: not if it is cast, or a box that
 * cuts keys.
 */
static bool has_keys(const struct subject *s)
{
	unsigned last = s->view.rank - 1;

	return s->array && s->view.rank && s->view.dtype == s->array->meta.dtype &&
	       !s->view.axis[last].drop && s->view.axis[last].count == s->array->meta.shape[last];
}

static int attr_prng_impl(const struct subject *s, struct buf *ret)
{
	struct span impl;
	int r = has_keys(s) ? item_prng_impl(s->item, s->tree, &impl) : 0;

	return r == 1 ? json_put_str(ret, impl, JSON_COMPACT) : r < 0 ? r : -ENODATA;
}

/* The digest covers the whole stored value. */
static int attr_sha256(const struct subject *s, struct buf *ret)
{
	uint8_t sha256[DIGEST_BYTES];
	char text[DIGEST_TEXT];
	int r = s->array && !s->view.plain ? 0 : leaf_digest_recorded(s->item, s->tree, sha256);

	if (r <= 0)
		return r < 0 ? r : -ENODATA;
	digest_text(sha256, text);
	return buf_addf(ret, "\"%s\"", text);
}

/* Append the description that a plugin gives for its leaf. */
static int attr_plugin(const struct subject *s, struct buf *ret)
{
	struct plugin *p = plugin_of_ext(leaf_ext(NULL, s->tree));
	auto_free char *dir = p ? span_dup_str(s->tree->param) : NULL;
	auto_plugin_files stored = { 0 };
	int r = dir ? plugin_files_read(s->item->dir, dir, true, &stored) : -ENODATA;

	return r < 0 ? r : plugin_leaf_metadata(p, &stored, ret);
}

static const struct attr leaf_attrs[] = {
	{ "key", attr_key },
	{ "typestr", attr_typestr },
	{ "dtype", attr_dtype },
	{ "shape", attr_shape },
	{ "chunks", attr_chunks },
	{ "codecs", attr_codecs },
	{ "stored_bytes", attr_leaf_stored },
	{ "write_shape", attr_write_shape },
	{ "sharding", attr_sharding },
	{ "prng_impl", attr_prng_impl },
	{ "sha256", attr_sha256 },
	{ "plugin", attr_plugin },
	{ NULL },
};

/* ---- directories ---- */

static int attr_kind(const struct subject *s, struct buf *ret)
{
	return buf_addf(ret, "\"%s\"", tree_kind_text(s->tree->kind));
}

static int attr_state(const struct subject *s, struct buf *ret)
{
	return buf_add_str(ret, s->item && s->item->is_unmerged ? "\"unmerged\"" : "\"committed\"");
}

static int attr_custom(const struct subject *s, struct buf *ret)
{
	if (!s->item->tree->custom_metadata || s->tree->parent)
		return -ENODATA;
	return buf_add_str(ret, s->item->tree->custom_metadata);
}

struct totals {
	uint64_t leaves, logical, stored;
};

static int add_totals(struct item *item, const struct tree_node *t, struct totals *ret)
{
	uint32_t end = subtree_end(t);

	for (uint32_t i = t->id; i < end; i++) {
		const struct tree_node *leaf = item->tree->nodes[i];
		auto_value v = { 0 };
		uint64_t stored = 0, objects;
		int r;

		ret->leaves += leaf->kind == TREE_LEAF;
		if (!subtree_is_leaf(leaf))
			continue;
		/* The dtype of a leaf of unknown type is unknown. */
		if (!leaf_type_of(leaf))
			continue;
		r = leaf_open(item, leaf, &v);
		if (r < 0)
			return r;
		if (v.kind == VALUE_ARRAY)
			r = zarr_stored(v.array, &stored, &objects);
		if (r < 0)
			return r;
		ret->logical += v.kind == VALUE_ARRAY ? v.array->meta.bytes : v.text.n;
		ret->stored += v.kind == VALUE_ARRAY ? stored : v.text.n;
	}
	return 0;
}

static int attr_leaf_count(const struct subject *s, struct buf *ret)
{
	return buf_addf(ret, "%u", subtree_leaves(s->item->tree, s->tree));
}

/* Find the PyTrees below a node for a caller who may read all of them: sums reveal each. */
static int open_readable(struct node *n, struct subtree *ret)
{
	int r = node_open_subtree(n, ret);

	for (size_t i = 0; i < ret->n && r >= 0 && user_is_other(); i++) {
		struct access a;

		r = access_of_all(n->ns->ckpt->source, ret->part[i].source, &a);
		if (r >= 0 && !user_may(&a, 04))
			r = fail(-EACCES, "item '%s' is not yours to read", ret->part[i].source);
	}
	return r;
}

static int totals_of(const struct subject *s, struct totals *ret)
{
	auto_subtree st = { 0 };
	int r;

	if (s->tree)
		return add_totals(s->item, s->tree, ret);
	/* Include composite items, which D.json of the step counts, too. */
	r = open_readable(s->node, &st);
	for (size_t i = 0; i < st.n && r >= 0; i++) {
		if (st.part[i].kind == PART_TREE)
			r = add_totals(st.part[i].item, st.part[i].tree, ret);
		else if (st.part[i].kind == PART_BROKEN)
			r = err_restore(st.part[i].note);
	}
	return r;
}

static int attr_logical(const struct subject *s, struct buf *ret)
{
	struct totals t = { 0 };
	int r = totals_of(s, &t);

	return r < 0 ? r : buf_addf(ret, "%llu", (unsigned long long)t.logical);
}

static int attr_stored(const struct subject *s, struct buf *ret)
{
	struct totals t = { 0 };
	int r = totals_of(s, &t);

	return r < 0 ? r : buf_addf(ret, "%llu", (unsigned long long)t.stored);
}

static int attr_namedtuple(const struct subject *s, struct buf *ret)
{
	return tree_namedtuple_json(s->tree, ret);
}

/* The sum is of whole items, also for a directory of one. */
static int attr_left_out(const struct subject *s, struct buf *ret)
{
	const struct transform *t = s->node->ns->options->transform;
	auto_left_out found = { 0 };
	auto_subtree st = { 0 };
	auto_buf text = { 0 };
	int r = t ? open_readable(s->node, &st) : -ENODATA;

	if (r < 0)
		return r;
	r = node_parts_left_out(t, &st, &found);
	if (r < 0)
		return r;
	r = transform_left_out_text(&found, &text);
	if (r < 0 || !text.n)
		return r < 0 ? r : -ENODATA;
	r = buf_addf(ret, "{\"unused_leaves\": %zu, \"idle_rules\": %zu, \"text\": ", found.unused,
		     found.idle);
	if (r < 0)
		return r;
	r = json_put_str(ret, buf_span(&text), JSON_PYTHON);
	return r < 0 ? r : buf_add_byte(ret, '}');
}

static int attr_remarks(const struct subject *s, struct buf *ret)
{
	auto_subtree st = { 0 };
	size_t had = ret->n;
	int r = open_readable(s->node, &st);

	if (r < 0)
		return r;
	r = node_parts_remarks(s->node, &st, ret);
	return r < 0 || ret->n > had ? r : -ENODATA;
}

static const struct attr dir_attrs[] = {
	{ "key", attr_key },
	{ "kind", attr_kind },
	{ "namedtuple", attr_namedtuple },
	{ "state", attr_state },
	{ "custom_metadata", attr_custom },
	{ "leaf_count", attr_leaf_count },
	{ "logical_bytes", attr_logical },
	{ "stored_bytes", attr_stored },
	{ "left_out", attr_left_out },
	{ "remarks", attr_remarks },
	{ NULL },
};

/* ---- steps: sums over their items ---- */

int node_step_custom(struct node *step, struct buf *ret)
{
	auto_of(step_meta) struct step_meta *meta = NULL;
	auto_buf text = { 0 };
	int r = io_read_file(node_step_dir(step), "_CHECKPOINT_METADATA", LIMIT_STEP_FILE, &text);

	if (r < 0)
		return err_except(r, -ENOENT, -ENOTDIR);
	r = step_meta_parse(buf_span(&text), "'_CHECKPOINT_METADATA'", &meta);
	if (r < 0)
		return r;
	return meta->custom && strcmp(meta->custom, "{}") ? buf_add_str(ret, meta->custom) : 0;
}

static int step_custom(const struct subject *s, struct buf *ret)
{
	struct access a;
	size_t had = ret->n;
	int r = access_of(node_step_dir(s->node), "_CHECKPOINT_METADATA", &a);

	if (r >= 0 && !user_may(&a, 04))
		return fail(-EACCES, "'_CHECKPOINT_METADATA' of '%s' is not yours to read",
			    s->node->name);
	/* A link that is not followed. */
	if (r == -EUCLEAN)
		return r;
	if (r >= 0)
		r = node_step_custom(s->node, ret);
	err_clear();
	return r < 0 || ret->n == had ? -ENODATA : 0;
}

static int step_leaf_count(const struct subject *s, struct buf *ret)
{
	struct totals t = { 0 };
	int r = totals_of(s, &t);

	return r < 0 ? r : buf_addf(ret, "%llu", (unsigned long long)t.leaves);
}

static const struct attr step_attrs[] = {
	{ "state", attr_state },           { "custom_metadata", step_custom },
	{ "leaf_count", step_leaf_count }, { "logical_bytes", attr_logical },
	{ "stored_bytes", attr_stored },   { "left_out", attr_left_out },
	{ "remarks", attr_remarks },       { NULL },
};

/* ---- a directory of steps ---- */

/* The custom metadata of a manager for all steps, under its present or older name. */
int node_root_custom(struct node *root, struct buf *ret)
{
	static const char *const files[] = { "metadata/_ROOT_METADATA", "metadata/metadata" };
	struct io_dir *dir = root->ns->ckpt->source;
	auto_of(root_meta) struct root_meta *meta = NULL;
	auto_json doc = { 0 };
	auto_buf text = { 0 };
	int r = -ENOENT;

	for (size_t i = 0; i < ARRAY_LEN(files) && r == -ENOENT; i++) {
		r = user_check(dir, files[i], 04, "read");
		if (r < 0)
			continue;
		r = io_read_file(dir, files[i], LIMIT_STEP_FILE, &text);
		/* The older one has nothing but the document of the user. */
		if (r >= 0 && i == 0)
			r = root_meta_parse(buf_span(&text), "'_ROOT_METADATA'", &meta);
	}
	if (r < 0)
		return err_except(r, -ENOENT, -ENOTDIR);
	r = json_parse(meta ? span_str(meta->custom) : buf_span(&text), "custom metadata", &doc);
	if (r < 0 || !json_is(doc.root, JSON_OBJECT) || doc.root->n == 0)
		return MIN(r, 0);
	return json_print(ret, doc.root, JSON_PYTHON);
}

static int root_custom(const struct subject *s, struct buf *ret)
{
	size_t had = ret->n;
	int r = node_root_custom(s->node, ret);

	if (r < 0 && r != -EUCLEAN)
		return r;
	err_clear();
	return ret->n == had ? -ENODATA : 0;
}

static const struct attr root_attrs[] = { { "custom_metadata", root_custom }, { NULL } };

/* ---- listing and getting, by table ---- */

/* v holds the array of a leaf; *ret has none for others. */
static int subject_of(struct node *n, struct value *v, struct subject *ret)
{
	const struct node_dir *d;
	struct node_leaf *l;
	int r;

	*ret = (struct subject){ .node = n, .attrs = root_attrs };
	if (n->ops == &node_leaf_ops) {
		l = container_of(n, struct node_leaf, node);
		r = node_leaf_value(l, v, &ret->view);
		ret->attrs = leaf_attrs;
		ret->item = l->item;
		ret->tree = l->tree;
		ret->array = v->array;
		return r;
	}
	if (n->ops == &node_dir_ops) {
		d = container_of(n, struct node_dir, node);
		ret->attrs = dir_attrs;
		ret->item = d->item;
		ret->tree = d->tree;
	} else if (n->ops == &node_step_ops) {
		ret->attrs = step_attrs;
	}
	return 0;
}

int tree_xattr_list(struct node *n, struct buf *ret)
{
	auto_value v = { 0 };
	struct subject s;
	int r = subject_of(n, &v, &s);

	if (r < 0)
		return r;
	for (const struct attr *a = s.attrs; a->name; a++) {
		auto_buf value = { 0 };

		r = 0;
		/* These are of the mount, not of the checkpoint, and would be copied with it. */
		if (a->print == attr_left_out || a->print == attr_remarks)
			continue;
		/* Sums over all leaves always exist, so they are listed without being computed. */
		if (a->print != attr_logical && a->print != attr_stored &&
		    a->print != step_leaf_count)
			r = a->print(&s, &value);
		/* It exists, but its link is not followed; the others are listed. */
		if (r == -EUCLEAN && a->print == step_custom) {
			err_clear();
			r = 0;
		}
		/*
		 * Do not list values that are too large for the kernel: copying programs would fail
		 * on them.
		 */
		if (r == -ENODATA || (r >= 0 && value.n > XATTR_SIZE_MAX))
			continue;
		if (r < 0)
			return r;
		r = buf_addf(ret, PREFIX "%s", a->name);
		if (r < 0)
			return r;
		r = buf_add_byte(ret, '\0');
		if (r < 0)
			return r;
	}
	return 0;
}

int tree_xattr_get(struct node *n, const char *name, struct buf *ret)
{
	auto_value v = { 0 };
	struct subject s;
	int r = subject_of(n, &v, &s);

	if (r < 0)
		return r;
	for (const struct attr *a = s.attrs; a->name; a++)
		if (!strcmp(a->name, name))
			return a->print(&s, ret);
	return -ENODATA;
}

void leaf_copied(struct node *n, struct buf *write_shape, struct copied_leaf *ret)
{
	auto_value v = { 0 };
	struct subject s;
	int r = subject_of(n, &v, &s);

	*ret = (struct copied_leaf){ 0 };
	if (r >= 0) {
		ret->dtype = s.array ? s.view.dtype : DTYPE_UNKNOWN;
		ret->is_jax = span_eq(s.tree->value_type, span_str("jax.Array"));
		if (attr_write_shape(&s, write_shape) >= 0)
			ret->write_shape = buf_span(write_shape);
		if (has_stored_shape(&s))
			item_sharding(s.item, s.tree, &ret->sharding);
		if (has_keys(&s))
			item_prng_impl(s.item, s.tree, &ret->prng_impl);
		ret->has_sha256 = (!s.array || s.view.plain) &&
				  leaf_digest_recorded(s.item, s.tree, ret->sha256) == 1;
	}
	err_clear();
}
