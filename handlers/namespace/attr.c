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
	struct item *item;
	const struct tree_node *tree;
	struct zarr *array;    /* for an array leaf: the stored array */
	struct zarr_view view; /* for an array leaf: the view that the file shows */
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

static int attr_logical(const struct subject *s, struct buf *ret)
{
	struct totals t = { 0 };
	int r = add_totals(s->item, s->tree, &t);

	return r < 0 ? r : buf_addf(ret, "%llu", (unsigned long long)t.logical);
}

static int attr_dir_stored(const struct subject *s, struct buf *ret)
{
	struct totals t = { 0 };
	int r = add_totals(s->item, s->tree, &t);

	return r < 0 ? r : buf_addf(ret, "%llu", (unsigned long long)t.stored);
}

static int attr_namedtuple(const struct subject *s, struct buf *ret)
{
	return tree_namedtuple_json(s->tree, ret);
}

/* Check that the caller may read the item: sums over items reveal something about each. */
static int check_reader(struct ns *ns, const char *item)
{
	struct access a;
	int r = user_is_other() ? access_of_all(ns->ckpt->source, item, &a) : 0;

	if (r < 0 || !user_is_other() || user_may(&a, 04))
		return MIN(r, 0);
	return fail(-EACCES, "item '%s' is not yours to read", item);
}

/* The sum is of whole items, also for a directory of one. */
static int attr_left_out(const struct subject *s, struct buf *ret)
{
	const struct transform *t = s->node->ns->options->transform;
	auto_left_out found = { 0 };
	auto_subtree st = { 0 };
	auto_buf text = { 0 };
	int r = t ? node_open_subtree(s->node, &st) : -ENODATA;

	for (size_t i = 0; i < st.n && r >= 0; i++)
		r = check_reader(s->node->ns, st.part[i].source);
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
	int r = node_open_subtree(s->node, &st);

	for (size_t i = 0; i < st.n && r >= 0; i++)
		r = check_reader(s->node->ns, st.part[i].source);
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
	{ "stored_bytes", attr_dir_stored },
	{ "left_out", attr_left_out },
	{ "remarks", attr_remarks },
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

static int step_totals(struct node *n, struct totals *ret)
{
	auto_subtree st = { 0 };
	int r = node_open_subtree(n, &st);

	/* Include composite items, which D.json of the step counts, too. */
	for (size_t i = 0; i < st.n && r >= 0; i++) {
		r = check_reader(n->ns, st.part[i].source);
		if (r < 0)
			break;
		if (st.part[i].kind == PART_TREE)
			r = add_totals(st.part[i].item, st.part[i].tree, ret);
		else if (st.part[i].kind == PART_BROKEN)
			r = err_restore(st.part[i].note);
	}
	return r;
}

static int step_leaf_count(const struct subject *s, struct buf *ret)
{
	struct totals t = { 0 };
	int r = step_totals(s->node, &t);

	return r < 0 ? r : buf_addf(ret, "%llu", (unsigned long long)t.leaves);
}

static int step_logical(const struct subject *s, struct buf *ret)
{
	struct totals t = { 0 };
	int r = step_totals(s->node, &t);

	return r < 0 ? r : buf_addf(ret, "%llu", (unsigned long long)t.logical);
}

static int step_stored(const struct subject *s, struct buf *ret)
{
	struct totals t = { 0 };
	int r = step_totals(s->node, &t);

	return r < 0 ? r : buf_addf(ret, "%llu", (unsigned long long)t.stored);
}

static const struct attr step_attrs[] = {
	{ "state", attr_state },           { "custom_metadata", step_custom },
	{ "leaf_count", step_leaf_count }, { "logical_bytes", step_logical },
	{ "stored_bytes", step_stored },   { "left_out", attr_left_out },
	{ "remarks", attr_remarks },
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

static const struct attr root_attrs[] = { { "custom_metadata", root_custom } };

/* ---- listing and getting, by table ---- */

static int list_attrs(const struct attr *attrs, size_t n, const struct subject *s, struct buf *ret)
{
	for (size_t i = 0; i < n; i++) {
		auto_buf value = { 0 };
		int r = 0;

		/* These are of the mount, not of the checkpoint, and would be copied with it. */
		if (attrs[i].print == attr_left_out || attrs[i].print == attr_remarks)
			continue;
		/* Sums over all leaves always exist, so they are listed without being computed. */
		if (attrs[i].print != attr_logical && attrs[i].print != attr_dir_stored &&
		    attrs[i].print != step_logical && attrs[i].print != step_stored &&
		    attrs[i].print != step_leaf_count)
			r = attrs[i].print(s, &value);
		/* It exists, but its link is not followed; the others are listed. */
		if (r == -EUCLEAN && attrs[i].print == step_custom) {
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
		r = buf_addf(ret, PREFIX "%s", attrs[i].name);
		if (r < 0)
			return r;
		r = buf_add_byte(ret, '\0');
		if (r < 0)
			return r;
	}
	return 0;
}

static int get_attr(const struct attr *attrs, size_t n, const struct subject *s, const char *name,
		    struct buf *ret)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(attrs[i].name, name))
			return attrs[i].print(s, ret);
	return -ENODATA;
}

/* Get the array of a leaf's node; *ret remains empty for other leaves. */
static int leaf_subject(struct node *n, struct value *v, struct subject *ret)
{
	struct node_leaf *l = container_of(n, struct node_leaf, node);
	struct zarr_view view = { 0 };
	int r = node_leaf_value(l, v, &view);

	*ret = (struct subject){ n, l->item, l->tree, v->array, view };
	return r;
}

void leaf_copied(struct node *n, struct buf *write_shape, struct copied_leaf *ret)
{
	auto_value v = { 0 };
	struct subject s;
	int r = leaf_subject(n, &v, &s);

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

int leaf_xattr_list(struct node *n, struct buf *ret)
{
	auto_value v = { 0 };
	struct subject s;
	int r = leaf_subject(n, &v, &s);

	return r < 0 ? r : list_attrs(leaf_attrs, ARRAY_LEN(leaf_attrs), &s, ret);
}

int leaf_xattr_get(struct node *n, const char *name, struct buf *ret)
{
	auto_value v = { 0 };
	struct subject s;
	int r = leaf_subject(n, &v, &s);

	return r < 0 ? r : get_attr(leaf_attrs, ARRAY_LEN(leaf_attrs), &s, name, ret);
}

int dir_xattr_list(struct node *n, struct buf *ret)
{
	struct node_dir *d = container_of(n, struct node_dir, node);
	struct subject s = { .node = n, .item = d->item, .tree = d->tree };

	return list_attrs(dir_attrs, ARRAY_LEN(dir_attrs), &s, ret);
}

int dir_xattr_get(struct node *n, const char *name, struct buf *ret)
{
	struct node_dir *d = container_of(n, struct node_dir, node);
	struct subject s = { .node = n, .item = d->item, .tree = d->tree };

	return get_attr(dir_attrs, ARRAY_LEN(dir_attrs), &s, name, ret);
}

int step_xattr_list(struct node *n, struct buf *ret)
{
	struct subject s = { .node = n };

	return list_attrs(step_attrs, ARRAY_LEN(step_attrs), &s, ret);
}

int step_xattr_get(struct node *n, const char *name, struct buf *ret)
{
	struct subject s = { .node = n };

	return get_attr(step_attrs, ARRAY_LEN(step_attrs), &s, name, ret);
}

int root_xattr_list(struct node *n, struct buf *ret)
{
	struct subject s = { .node = n };

	return list_attrs(root_attrs, ARRAY_LEN(root_attrs), &s, ret);
}

int root_xattr_get(struct node *n, const char *name, struct buf *ret)
{
	struct subject s = { .node = n };

	return get_attr(root_attrs, ARRAY_LEN(root_attrs), &s, name, ret);
}
