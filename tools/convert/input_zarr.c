/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input_zarr.c - a zarr group that an export made as import entries: a leaf for each array below
 * it. Groups of other programs are checkpoints (core/step/item_names.c).
 */
#include <dirent.h>

#include "core/base/err.h"
#include "core/base/path.h"
#include "core/commit/item_store.h"
#include "core/step/children.h"
#include "handlers/format/npy.h"
#include "tools/convert/input.h"
#include "tools/convert/atomic_file.h"

/* Attributes of exported groups contain texts, too; they are charged to the meter. */
#define GROUP_BYTES (256 * MiB)

const struct tree_manifest_style style_zarr = { .separator = "/", .is_path = true, .texts = true };

/* ---- opening ---- */

/* Parse the attributes of the group itself as a separate document. */
static int attributes(struct io_dir *dir, const char *what, struct json_doc *ret)
{
	auto_buf text = { 0 };
	int r = io_read_file(dir, "zarr.json", GROUP_BYTES, &text);

	if (r == -ENOENT) {
		err_clear();
		r = io_read_file(dir, ".zattrs", GROUP_BYTES, &text);
	}
	if (r == -ENOENT) {
		err_clear();
		return 0;
	}
	return r < 0 ? r : json_parse(buf_span(&text), what, ret);
}

static const struct json *attributes_of(const struct json_doc *doc)
{
	const struct json *inner = json_member(doc->root, "attributes");

	/* In v3, they are inside the group's document. */
	return json_member(doc->root, "zarr_format") ? inner : doc->root;
}

static const struct json *manifest_of(const struct json_doc *doc)
{
	return doc->root ? json_member(attributes_of(doc), TREE_MANIFEST_KEY) : NULL;
}

int input_zarr_is_export(const char *path)
{
	auto_of(io_engine) struct io_engine *io = NULL;
	auto_of(io_dir) struct io_dir *dir = NULL;
	auto_json doc = { 0 };
	int r = io_engine_open("sync", &io);

	if (r < 0)
		return r;
	r = io_dir_open(io, path, &dir);
	if (r < 0)
		return r;
	r = attributes(dir, path, &doc);
	return r < 0 ? r : json_is(manifest_of(&doc), JSON_OBJECT);
}

int input_zarr_open(struct input *in, struct cmd_args *a)
{
	enum shape shape = a->options.shape;
	auto_json doc = { 0 };
	auto_buf text = { .metered = true };
	const struct json *tree_manifest;
	int r;

	/* The detected kind does not matter, since only directories are read. */
	a->options.shape = SHAPE_ROOT;
	r = ns_open(in->path, &a->options, &in->ns);
	a->options.shape = shape;
	if (r < 0)
		return r;
	r = ns_start(in->ns, NULL);
	if (r < 0)
		return r;
	r = attributes(in->ns->ckpt->source, in->path, &doc);
	if (r < 0)
		return r;
	tree_manifest = manifest_of(&doc);
	if (!json_is(tree_manifest, JSON_OBJECT))
		return fail(-ESTALE, "'%s' was replaced", in->path);
	r = json_print(&text, tree_manifest, JSON_PYTHON);
	return r < 0 ? r : tree_manifest_parse(buf_span(&text), in->path, &in->tree_manifest);
}

/* ---- one array ---- */

struct zarr_leaf {
	const struct input *in;
	const char *dir; /* path below the group */
};

static int input_zarr_open_array(const struct input *in, const char *rel, struct zarr **ret)
{
	auto_of(kv) struct kv *kv = NULL;
	int r = kv_dir_open_in(in->ns->ckpt->source, rel, &kv);

	if (r < 0)
		return r;
	r = zarr_open(&in->ns->ckpt->env, kv, span_of(NULL, 0), cache_owner(), 0, ret);
	return r < 0 ? err_at(r, "'%s/%s'", in->path, rel) : 0;
}

struct zarr_state {
	struct zarr *z;
	struct zarr_view view;
	struct buf head;
};

static void state_free(struct zarr_state *s)
{
	if (!s)
		return;
	if (s->z)
		cache_drop(s->z->env->cache, s->z->owner);
	zarr_unref(s->z);
	buf_release(&s->head);
	free(s);
}
DEFINE_AUTO(zarr_state, struct zarr_state, state_free);

static int zarr_entry_open(struct import_reading *rd)
{
	const struct zarr_leaf *l = rd->import_entry->arg;
	auto_of(zarr_state) struct zarr_state *s = calloc(1, sizeof(*s));
	int r = s ? input_zarr_open_array(l->in, l->dir, &s->z) :
		    fail(-ENOMEM, "cannot open '%s'", l->dir);

	if (r < 0)
		return r;
	r = npy_header(&(struct array_type){ s->z->meta.dtype, s->z->meta.rank, s->z->meta.shape },
		       &s->head);
	if (r < 0)
		return r;
	zarr_view_whole(&s->z->meta, &s->view);
	rd->size = s->head.n + s->view.bytes;
	rd->array = s->z;
	rd->state = take(s);
	return 0;
}

static int zarr_entry_read(struct import_reading *rd, uint64_t off, size_t n, void *p)
{
	const struct zarr_state *s = rd->state;
	uint8_t *to = p;

	if (off < s->head.n) {
		size_t part = (size_t)MIN((uint64_t)n, s->head.n - off);

		memcpy(to, s->head.p + off, part);
		off += part;
		to += part;
		n -= part;
	}
	return n ? zarr_read_into(s->z, &s->view, off - s->head.n, n, to) : 0;
}

static void zarr_entry_close(struct import_reading *rd)
{
	state_free(rd->state);
}

static const struct import_ops zarr_ops = { .open = zarr_entry_open,
					    .read = zarr_entry_read,
					    .close = zarr_entry_close };

static int import_array(struct input *in, const char *rel, struct select *only,
			struct import_list *f)
{
	struct zarr_leaf *l = arena_alloc(&f->arena, sizeof(*l));
	auto_of(zarr) struct zarr *z = NULL;
	auto_buf path = { 0 };
	struct span key = strcmp(rel, ".") ? span_str(rel) : span_of(NULL, 0);
	int r = tree_manifest_path(&in->tree_manifest, key, &style_zarr, &path);

	if (r < 0 || !l || !buf_str(&path))
		return r < 0 ? r : -ENOMEM;
	if (!select_path(only, buf_span(&path)))
		return import_list_leave_out(f, buf_str(&path));
	r = input_zarr_open_array(in, rel, &z);
	if (r < 0)
		return r;
	if (span_ends(buf_span(&path), span_str(".json")) && z->meta.rank == 0) {
		uint8_t element[LIMIT_ITEM_BYTES];

		r = zarr_read_into(z, NULL, 0, z->meta.bytes, element);
		return r < 0 ? r :
			       import_add_scalar(f, buf_str(&path), in->path, z->meta.dtype,
						 element);
	}
	*l = (struct zarr_leaf){ in, arena_str(&f->arena, rel) };
	r = l->dir ? import_add_file(f, buf_str(&path), rel, &zarr_ops, l, z->meta.bytes) : -ENOMEM;
	return r < 0 ? r : import_list_mark_dtype(f, buf_str(&path), z->meta.dtype);
}

/* ---- the group ---- */

enum node_type { NODE_NOTHING, NODE_GROUP, NODE_ARRAY };

static int exists(struct io_dir *dir, const char *rel, const char *name)
{
	auto_free char *path = NULL;
	struct stat st;
	int r = path_join(rel, span_str(name), &path);

	if (r < 0)
		return r;
	r = io_stat(dir, path, &st);
	if (r == -ENOENT) {
		err_clear();
		return 0;
	}
	return r < 0 ? r : 1;
}

static int node_type(struct io_dir *dir, const char *rel, enum node_type *ret)
{
	auto_free char *path = NULL;
	auto_buf text = { 0 };
	auto_json doc = { 0 };
	struct span type = { 0 };
	int r = path_join(rel, span_str("zarr.json"), &path);

	if (r < 0)
		return r;
	r = io_read_file(dir, path, GROUP_BYTES, &text);
	if (r == -ENOENT) {
		err_clear();
		r = exists(dir, rel, ".zarray");
		/* A directory without metadata may contain others. */
		*ret = r == 1 ? NODE_ARRAY : NODE_GROUP;
		return r < 0 ? r : 0;
	}
	if (r < 0)
		return r;
	r = json_parse(buf_span(&text), path, &doc);
	if (r < 0)
		return r;
	r = json_get_str(doc.root, "node_type", path, &type);
	*ret = span_eq(type, span_str("array")) ? NODE_ARRAY : NODE_GROUP;
	return MIN(r, 0);
}

static int import_node(struct input *in, const char *rel, struct select *only,
		       struct import_list *f, unsigned depth)
{
	struct io_dir *dir = in->ns->ckpt->source;
	auto_children c = { 0 };
	enum node_type type = NODE_NOTHING;
	int r = depth > LIMIT_TREE_DEPTH ?
			fail(-EFBIG, "'%s' is deeper than %d groups", in->path, LIMIT_TREE_DEPTH) :
			node_type(dir, rel, &type);

	if (r < 0)
		return r;
	if (type == NODE_ARRAY)
		return import_array(in, rel, only, f);
	r = children_list(dir, rel, true, &c);
	children_sort(&c);
	for (size_t i = 0; i < c.n && r >= 0; i++) {
		const char *name = c.child[i].name;
		auto_free char *below = NULL;

		/* Exports of earlier versions may contain abandoned arrays. */
		if (c.child[i].type != DT_DIR || atomic_file_is_temp(name) ||
		    (depth == 0 && item_store_is_temporary(name)))
			continue;
		r = path_join(rel, span_str(name), &below);
		if (r < 0)
			return r;
		r = import_node(in, below, only, f, depth + 1);
	}
	return r;
}

int input_zarr_list(struct input *in, struct select *only, struct import_list *f)
{
	int r = tree_manifest_import(&in->tree_manifest, in->path, only, f);

	return r < 0 ? r : import_node(in, ".", only, f, 0);
}
