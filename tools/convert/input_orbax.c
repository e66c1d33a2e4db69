/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input_orbax.c - a checkpoint as import entries: the leaves as a mount shows them, with all of
 * their attributes.
 */
#include <dirent.h>
#include <fcntl.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/commit/item_store.h"
#include "core/tree/sharding.h"
#include "handlers/format/format.h"
#include "handlers/leaf/leaf_digest.h"
#include "handlers/namespace/node_tree.h"
#include "handlers/plan/copy_hints.h"
#include "handlers/subtree/tree_manifest.h"
#include "tools/convert/atomic_file.h"
#include "tools/convert/input.h"
#include "tools/convert/placement.h"
#include "tools/select/walk.h"

#define AHEAD_BYTES (16 * MiB) /* amount that is decoded before it is requested */

struct orbax_leaf {
	struct item *item; /* borrowed: the input has it open */
	const struct tree_node *leaf;
	enum dtype cast; /* restore_dtype= of an array that has another one; DTYPE_UNKNOWN: none */
};

static int leaf_entry_open(struct import_reading *rd)
{
	const struct orbax_leaf *l = rd->import_entry->arg;
	const struct ckpt *ckpt = l->item->ckpt;
	auto_free struct format *f = calloc(1, sizeof(*f));
	int r = f ? leaf_open_format(l->item, l->leaf, leaf_ext(NULL, l->leaf), l->cast, f) :
		    fail(-ENOMEM, "cannot open a leaf");

	if (r < 0)
		return r;
	rd->size = f->size;
	/*
	 * Stored chunks and digests are of the elements as they are stored. A tensor of a file is
	 * one chunk, whatever its size, which is not one for a checkpoint.
	 */
	if (f->ops->ext == NAME_EXT_NPY && l->cast == DTYPE_UNKNOWN &&
	    (!ckpt->only_item || ckpt->is_flax))
		rd->array = f->value.array;
	rd->state = take(f);
	r = rd->array ? leaf_digest_recorded(l->item, l->leaf, rd->sha256) : 0;
	rd->has_sha256 = r == 1;
	/* A digest that cannot be read is computed anew where options ask for it. */
	if (r < 0)
		err_clear();
	return 0;
}

static int leaf_entry_read(struct import_reading *rd, uint64_t off, size_t n, void *p)
{
	const struct orbax_leaf *l = rd->import_entry->arg;
	const struct format *f = rd->state;

	format_prefetch(f, off + n, MIN(AHEAD_BYTES, f->size - MIN(f->size, off + n)), NULL);
	return format_copy(f, l->item->ckpt->cache, off, n, p);
}

static void leaf_entry_close(struct import_reading *rd)
{
	format_release(rd->state);
	free(rd->state);
}

static const struct import_ops leaf_ops = { .open = leaf_entry_open,
					    .read = leaf_entry_read,
					    .close = leaf_entry_close };

/* ---- properties that names cannot express ---- */

/* A shortened name (`~`) does not contain the key. */
static int input_orbax_mark_key(const struct tree_node *t, const char *path, struct import_list *f)
{
	auto_buf key = { 0 };
	int r = tree_manifest_hidden_key(t, &key);

	return r == 1 ? import_list_mark_span(f, path, "key", buf_span(&key)) : r;
}

/* A sharding that cannot be read is left out, as Orbax would: no value depends on it. */
static int mark_sharding(const struct subtree_part *part, const struct tree_node *t,
			 const char *path, struct import_list *f)
{
	auto_of(sharding) struct sharding *s = NULL;
	struct span text;
	int r = item_sharding(part->item, t, &text);

	if (r <= 0)
		return r;
	r = sharding_parse(text, "'_sharding'", &s);
	if (r >= 0)
		return import_list_mark_span(f, path, "sharding", text);
	if (err_is_transient(r))
		return r;
	log_warn("'%s': its sharding is not copied: %s", path, err_text(r));
	err_clear();
	return 0;
}

/* Mark what is recorded of an array; its type remains unless the user sets one for all leaves. */
static int mark_recorded(const struct subtree_part *part, const struct tree_node *t,
			 const char *path, struct import_list *f)
{
	const uint64_t *shape;
	unsigned rank;
	int r = 0;

	if (span_eq(t->value_type, span_str("jax.Array")) && !f->any_leaf_type)
		r = import_list_mark(f, path, "save.leaf_type", "jax.Array");
	if (r < 0)
		return r;
	r = mark_sharding(part, t, path, f);
	if (r < 0)
		return r;
	r = item_write_shape(part->item, t, &shape, &rank);
	return r <= 0 ? r : import_list_mark_shape(f, path, "write_shape", shape, rank);
}

static int mark_array(const struct subtree_part *part, struct orbax_leaf *l, const char *path,
		      struct import_list *f)
{
	const struct tree_node *t = l->leaf;
	struct placed_array a = { .path = path,
				  .is_numpy = span_eq(t->value_type, span_str("np.ndarray")),
				  .is_jax = span_eq(t->value_type, span_str("jax.Array")) };
	enum dtype dtype;
	struct span text;
	auto_value v = { 0 };
	int r = leaf_open(part->item, t, &v);

	if (r < 0 || v.kind != VALUE_ARRAY)
		return r;
	if (leaf_ext(NULL, t) == NAME_EXT_JSON)
		return import_list_mark(f, path, "dtype", dtype_info(v.array->meta.dtype)->name);
	dtype = v.array->meta.dtype;
	r = leaf_restored_dtype(part->item, t, f->restore_dtype, v.is_scalar, &dtype);
	if (r < 0)
		return r;
	if (dtype != v.array->meta.dtype)
		l->cast = dtype;
	f->import_entry[f->n - 1].bytes = v.array->meta.bytes;
	r = import_list_mark_dtype(f, path, dtype);
	if (r < 0)
		return r;
	a.array = (struct array_type){ dtype, v.array->meta.rank, v.array->meta.shape };
	r = f->placement ? placement_mark(f->placement, f, &a) : mark_recorded(part, t, path, f);
	if (r < 0)
		return r;
	r = item_prng_impl(part->item, t, &text);
	return r == 1 ? import_list_mark_span(f, path, "prng_impl", text) : r;
}

/*
 * Names of tensors are split, but not one that begins with the whole name of another: that one
 * would be a leaf and a container.
 */
static int check_split(const struct subtree_part *part, const struct tree_node *t)
{
	const struct ckpt *ckpt = part->item->ckpt;
	struct span by =
		span_str(ckpt->opts.safetensors_separator ? ckpt->opts.safetensors_separator : ".");

	if (!ckpt->only_item || ckpt->is_flax || part->item->tree->has_manifest || !t->parent)
		return 0;
	for (size_t n = 1; by.n && n < t->key.n; n++) {
		struct span stem = span_of(t->key.p, n);
		const struct tree_node *other = span_starts(span_from(t->key, n), by) ?
							tree_child_by_key(t->parent, stem) :
							NULL;

		if (other && other->kind == TREE_LEAF)
			return fail(-EINVAL, "'%.*s.npy' is the second leaf of key '%.*s'",
				    SPAN_ARG(stem), SPAN_ARG(stem));
	}
	return 0;
}

/* Whether it is a step in one file or group, which is not itself an item of a step. */
static bool is_whole_step(const struct subtree_part *part)
{
	return part->item->tree->is_step && !part->tree->parent && !*part->path;
}

/* The path of a node in the draft: of a step in one file, the first name is that of the item. */
static int import_path(const struct subtree_part *part, const struct tree_node *t, struct buf *ret)
{
	const struct tree_node *item = t;
	auto_buf path = { 0 };
	int r;

	if (t == part->tree && t->kind != TREE_LEAF)
		return buf_add_str(ret, part->path);
	if (t == part->tree || !is_whole_step(part))
		return subtree_path(part, t, ret);
	while (item->parent != part->tree)
		item = item->parent;
	r = subtree_path(part, t, &path);
	if (r < 0)
		return r;
	r = buf_add_span(ret, item->key);
	return r < 0 ? r : buf_add_span(ret, span_from(buf_span(&path), item->name.n));
}

static int import_leaf(const struct subtree_part *part, const struct tree_node *t,
		       struct select *only, struct import_list *f)
{
	struct orbax_leaf *l;
	auto_buf path = { 0 };
	int r = import_path(part, t, &path);

	if (r < 0 || !buf_str(&path))
		return fail(-ENOMEM, "cannot list the leaves");
	if (!select_leaf(only, "", part, t))
		return import_list_leave_out(f, buf_str(&path));
	l = arena_alloc(&f->arena, sizeof(*l));
	if (!l)
		return fail(-ENOMEM, "cannot list the leaves");
	*l = (struct orbax_leaf){ part->item, t, DTYPE_UNKNOWN };
	if (!leaf_type_of(t))
		return fail(-EOPNOTSUPP, "'%s' has the unknown type '%.*s'", buf_str(&path),
			    SPAN_ARG(t->value_type));
	r = check_split(part, t);
	if (r >= 0)
		r = import_add_file(f, buf_str(&path), part->item->path, &leaf_ops, l, 0);
	if (r >= 0)
		r = input_orbax_mark_key(t, buf_str(&path), f);
	if (r >= 0 && subtree_is_leaf(t))
		r = mark_array(part, l, buf_str(&path), f);
	return r < 0 ? err_at(r, "'%s'", buf_str(&path)) : 0;
}

/* Add types from rich types, which remain unless the user switches them off. */
static int mark_types(const struct subtree_part *part, const struct tree_node *t, const char *path,
		      struct import_list *f)
{
	auto_buf type = { 0 };
	int r = tree_namedtuple_json(t, &type);

	if (r >= 0)
		r = import_list_mark_span(f, path, "namedtuple", buf_span(&type));
	if ((r >= 0 || r == -ENODATA) && !t->parent && part->item->tree->rich && !f->any_rich_types)
		r = import_list_mark(f, path, "save.rich_types", "on");
	return r == -ENODATA ? 0 : r;
}

static int import_container(const struct subtree_part *part, const struct tree_node *t,
			    struct import_list *f)
{
	auto_buf path = { 0 };
	const char *kind = tree_kind_text(t->kind);
	int r = import_path(part, t, &path);

	if (r < 0 || !buf_str(&path))
		return fail(-ENOMEM, "cannot list the leaves");
	r = import_add_dir(f, buf_str(&path));
	if (r < 0)
		return r;
	/* A draft whose only leaf has no key is that leaf, and so may be an item of a file. */
	if (strcmp(kind, "dict") ||
	    (!is_whole_step(part) && t->n_children == 1 && !t->children[0]->key.n))
		r = import_list_mark(f, buf_str(&path), "kind", kind);
	if (r < 0)
		return r;
	r = mark_types(part, t, buf_str(&path), f);
	if (r < 0)
		return r;
	if (t != part->tree)
		r = input_orbax_mark_key(t, buf_str(&path), f);
	if (r < 0)
		return r;
	if (!t->parent && part->item->tree->custom_metadata)
		r = import_list_mark(f, buf_str(&path), "custom_metadata",
				     part->item->tree->custom_metadata);
	return r;
}

/* Groups of exports of earlier versions may contain abandoned arrays. */
static bool is_abandoned_array(const struct subtree_part *part, const struct tree_node *t)
{
	auto_free char *key = part->item->is_hierarchy && part->item->tree->has_manifest ?
				      span_dup_str(t->key) :
				      NULL;

	return key && (atomic_file_is_temp(key) ||
		       (t->parent == part->tree && item_store_is_temporary(key)));
}

static int import_tree(const struct subtree_part *part, struct select *only, struct import_list *f)
{
	const struct tree *tree = part->item->tree;
	uint32_t end = subtree_end(part->tree);
	bool ocdbt, zarr3;
	int r = 0;

	/* Of a file or group that an export made: what nodes of its tree have no place for. */
	for (uint32_t i = 0; is_whole_step(part) && i < tree->n_marks && r >= 0; i++)
		r = import_list_mark(f, tree->marks[i].path, tree->marks[i].name,
				     tree->marks[i].value);
	if (r >= 0 && !tree->has_manifest && item_format(part->item, &ocdbt, &zarr3))
		r = import_list_format(f, part->path, ocdbt, zarr3);

	for (uint32_t i = part->tree->id; i < end && r >= 0; i++) {
		const struct tree_node *t = tree->nodes[i];

		if (is_abandoned_array(part, t)) {
			i = subtree_end(t) - 1;
			continue;
		}
		r = t->kind == TREE_LEAF ? import_leaf(part, t, only, f) :
					   import_container(part, t, f);
	}
	return r;
}

/* ---- items that are not trees ---- */

struct stored_file {
	struct io_dir *dir; /* the source, borrowed */
	const char *path;
};

/* The file is only open while it is read, since there may be more files than descriptors. */
static int input_orbax_stored_open(struct import_reading *rd)
{
	const struct stored_file *s = rd->import_entry->arg;
	struct io_file *file;
	int r = io_file_open(s->dir, s->path, O_RDONLY, 0, &file);

	if (r < 0)
		return r;
	rd->state = file;
	rd->size = rd->import_entry->bytes;
	return 0;
}

static int input_orbax_stored_read(struct import_reading *rd, uint64_t off, size_t n, void *p)
{
	return io_read_exact(rd->state, p, n, off);
}

static void input_orbax_stored_close(struct import_reading *rd)
{
	io_file_unref(rd->state);
}

static const struct import_ops stored_ops = { .open = input_orbax_stored_open,
					      .read = input_orbax_stored_read,
					      .close = input_orbax_stored_close };

struct import_files {
	struct import_list *f;
	struct io_dir *dir;
	const char *source, *path; /* the directory's path in the source, and in the draft */
	unsigned depth;
};

static int import_stored(struct import_files *d);

/* Add the file or directory that d names. */
static int import_stored_at(struct import_files *d)
{
	auto_free char *from = str_fmt("%s/%s", d->dir->path, d->source);
	struct stored_file *s;
	struct stat st;
	int r = io_stat(d->dir, d->source, &st);

	if (r < 0)
		return r;
	if (S_ISDIR(st.st_mode))
		return import_stored(d);
	if (!S_ISREG(st.st_mode))
		return fail(-EIO, "'%s' is neither a file nor a directory", d->source);
	s = arena_alloc(&d->f->arena, sizeof(*s));
	if (s)
		*s = (struct stored_file){ d->dir, arena_str(&d->f->arena, d->source) };
	if (!s || !s->path || !from)
		return fail(-ENOMEM, "cannot list '%s'", d->source);
	return import_add_file(d->f, d->path, from, &stored_ops, s, (uint64_t)st.st_size);
}

static int import_stored_one(void *arg, const char *name, unsigned char type)
{
	struct import_files below = *(struct import_files *)arg;
	auto_free char *source = NULL, *path = NULL;
	int r;

	/* The item's own marker, which a commit writes anew. */
	if (!below.depth && !strcmp(name, "commit_success.txt"))
		return 0;
	r = path_join(below.source, span_str(name), &source);
	if (r < 0)
		return r;
	r = path_join(below.path, span_str(name), &path);
	if (r < 0)
		return r;
	below.source = source;
	below.path = path;
	below.depth++;
	return import_stored_at(&below);
}

static int import_stored(struct import_files *d)
{
	int r = d->depth > LIMIT_TREE_DEPTH ? fail(-EFBIG, "'%s' is too deep", d->source) :
					      import_add_dir(d->f, d->path);

	return r < 0 ? r : io_list(d->dir, d->source, import_stored_one, d);
}

/* Add a file or directory that lies beside the arrays of a tree, or beside the items. */
static int import_other(void *arg, const struct subtree_part *part,
			const struct subtree_other *other)
{
	struct import_files files = *(struct import_files *)arg;
	int r = import_list_keep(files.f, other->path);

	files.f->has_others = true;
	files.source = other->source;
	files.path = other->path;
	if (r < 0)
		return r;
	r = import_stored_at(&files);
	return r < 0 ? r : import_list_mark(files.f, other->path, "kind", "opaque");
}

/*
 * Whether a part is not a tree of its own: an item of files, or a part of an item that consists of
 * a tree and of files, as a random key does.
 */
static bool input_orbax_is_other_item(const struct input *in, const struct subtree_part *part)
{
	const char *slash = strrchr(part->path, '/');
	size_t n = slash ? (size_t)(slash - part->path) + 1 : 0;
	bool other = part->kind == PART_FILES;

	for (size_t i = 0; i < in->st.n && n; i++)
		other |= in->st.part[i].kind == PART_FILES &&
			 !strncmp(in->st.part[i].path, part->path, n);
	return other;
}

static int import_part(struct input *in, const struct subtree_part *part, struct select *only,
		       struct import_list *f)
{
	struct import_files files = { .f = f,
				      .dir = in->source.ns->ckpt->source,
				      .source = part->source,
				      .path = part->path };
	int r = 0;

	if (part->kind == PART_BROKEN)
		return err_restore(part->note);
	if (input_orbax_is_other_item(in, part)) {
		if (f->no_items)
			return 0;
		only = NULL;
		r = import_list_keep(f, part->path);
	}
	if (r < 0)
		return r;
	if (part->kind != PART_FILES)
		return import_tree(part, only, f);
	r = import_stored(&files);
	return r < 0 ? r : import_list_mark(f, part->path, "kind", "opaque");
}

int input_orbax_list(struct input *in, struct select *only, struct import_list *f)
{
	struct import_files others = { .f = f, .dir = in->source.ns->ckpt->source, .depth = 1 };
	int r = in->st.custom ? import_list_mark(f, "", "custom_metadata", in->st.custom) : 0;

	for (size_t i = 0; i < in->st.n && r >= 0; i++)
		r = import_part(in, &in->st.part[i], only, f);
	return r < 0 || f->no_items ? r : subtree_each_other(&in->st, import_other, &others);
}

/* ---- hints for the draft ---- */

/* Copy the file that says which handler saved an item, as a program that copies the step would. */
static int hint_step(const struct input *in, struct draft *d)
{
	struct node *step = in->is_step ? in->source.node : NULL;
	/* A step that is one tree has the file beside its arrays. */
	struct item *one = d->is_item && in->st.n == 1 ? in->st.part[0].item : NULL;
	struct io_dir *dir = step && step->ops == &node_step_ops ? node_step_dir(step) :
			     one                                 ? one->dir :
								   NULL;
	auto_buf text = { 0 };
	int r = dir ? io_read_file(dir, "_CHECKPOINT_METADATA", LIMIT_STEP_FILE, &text) : 0;

	if (r >= 0 && text.n)
		copy_hint_text(d->root, 0, text.p, text.n);
	err_clear();
	return r == -ENOMEM ? r : 0;
}

/* Patterns of options select the same leaves as in a mount, where the tree is an item. */
static int hint_rules(const struct input *in, struct draft *d)
{
	const struct subtree_part *part =
		in->st.n == 1 && in->st.part[0].kind == PART_TREE ? &in->st.part[0] : NULL;
	auto_buf path = { 0 }, below = { 0 };
	struct span name = part ? subtree_item_name(part->item) : span_of(NULL, 0);
	int r;

	if (!d->is_item || in->is_step || !name.n)
		return 0;
	r = buf_add_span(&path, name);
	if (r < 0)
		return r;
	if (part->tree->parent)
		r = tree_path(part->tree, &below);
	if (r < 0)
		return r;
	if (below.n)
		r = buf_addf(&path, "/%.*s", SPAN_ARG(buf_span(&below)));
	return r < 0 ? r : draft_rules_from(d, buf_span(&path));
}

int input_hint(const struct input *in, struct draft *d)
{
	int r = in->kind == INPUT_ORBAX ? hint_rules(in, d) : 0;

	return r < 0 || in->kind != INPUT_ORBAX ? r : hint_step(in, d);
}
