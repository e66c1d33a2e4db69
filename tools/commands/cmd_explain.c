/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_explain.c - `pytreefs explain`: prints the plan of a read without reading, the TensorStore
 * spec of a leaf, or the box that each device had.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/path.h"
#include "core/step/step_name.h"
#include "core/remote/source/url_store.h"
#include "core/tree/sharding.h"
#include "core/zarr/meta/grid.h"
#include "handlers/leaf/leaf.h"
#include "handlers/namespace/node_tree.h"
#include "tools/cli/cmd.h"

/*
 * Append the path, or the URL, of the store that TensorStore opens: a database, or an array. The
 * path of a web server is a URL as it was given, while a bucket is given with plain keys; what is
 * below the source consists of names.
 */
static int explain_put_store(struct buf *ret, const char *source, struct item *item,
			     const struct zarr *array, bool ocdbt)
{
	const char *below = item_database_dir(item, array->kv), *host;
	bool is_url = path_is_url(source);
	auto_free char *path = strcmp(item->path, ".") ? str_fmt("%s/%s", source, item->path) :
							 strdup(source);
	auto_free char *real = NULL, *whole = NULL;
	size_t n;
	int r;

	if (!path)
		return -ENOMEM;
	if (!is_url && path[0] != '/') {
		real = realpath(path, NULL);
		if (!real)
			return err_sys("cannot find", "the item's directory");
	}
	whole = str_fmt("%s%s%s%s/%.*s", real ? real : path, item->gda ? STEP_NAME_GDA : "",
			below ? "/" : "", below ? below : "", ocdbt ? 0 : (int)array->prefix_len,
			array->prefix);
	if (!whole)
		return -ENOMEM;
	if (!is_url)
		return buf_add_str(ret, whole);
	host = strstr(source, "://") + strlen("://");
	n = store_is_bucket(source) ? (size_t)(host - source) : strlen(source);
	r = buf_add(ret, whole, n);
	return r < 0 ? r : path_escape(ret, whole + n);
}

/* Print the spec with which TensorStore opens the leaf's array. */
static int print_spec(struct source *s, struct node_leaf *l)
{
	auto_value v = { 0 };
	auto_buf out = { 0 }, path = { 0 };
	const char *source = s->ns->ckpt->opts.source;
	bool ocdbt, is_url = path_is_url(source);
	int r = leaf_open(l->item, l->tree, &v);

	if (r < 0)
		return r;
	if (v.kind != VALUE_ARRAY || l->tree->value == TREE_VALUE_AGGREGATE)
		return fail(-EINVAL, "'%s' is not an array that TensorStore can open", s->inner);
	ocdbt = item_has_nodes(l->item, v.array->kv);
	r = explain_put_store(&path, source, l->item, v.array, ocdbt);
	if (r < 0)
		return r;
	buf_addf(&out, "{\"driver\": \"%s\", \"kvstore\": ",
		 v.array->meta.format == 2 ? "zarr" : "zarr3");
	if (ocdbt)
		buf_add_str(&out, "{\"driver\": \"ocdbt\", \"base\": ");
	/* TensorStore takes a URL in place of the name of a driver and its parameters. */
	if (!is_url)
		buf_add_str(&out, "{\"driver\": \"file\", \"path\": ");
	json_put_str(&out, buf_span(&path), JSON_PRETTY);
	if (!is_url)
		buf_add_byte(&out, '}');
	if (ocdbt) {
		buf_add_str(&out, ", \"path\": ");
		json_put_str(&out, span_of(v.array->prefix, v.array->prefix_len), JSON_PRETTY);
		buf_add_byte(&out, '}');
	}
	printf("%s}\n", buf_str(&out));
	return EXIT_OK;
}

/* ---- shardings ---- */

/* Stored chunks that a box touches; each device reads them as a whole. */
struct stored {
	uint64_t chunks, bytes;
};

static int explain_stored_of(const struct zarr *z, const struct sharding_box *b, struct stored *ret)
{
	const struct zarr_meta *m = &z->meta;
	struct grid g = { .rank = m->rank };
	struct grid_box all = { 0 };
	struct grid_part part;

	*ret = (struct stored){ 0 };
	for (unsigned i = 0; i < m->rank; i++) {
		if (b->start[i] == b->stop[i])
			return 0;
		all.hi[i] = b->stop[i] - b->start[i];
		g.axis[i] =
			(struct grid_axis){ b->start[i], 1, all.hi[i], m->shape[i], m->chunk[i] };
	}
	grid_part_first(&g, &all, &part);
	do {
		struct kv_loc at = { 0 };
		int r = zarr_object_locate(z, part.chunk, &at);

		if (r < 0)
			return r;
		ret->chunks += at.where != KV_ABSENT;
		ret->bytes += at.where != KV_ABSENT ? at.len : 0;
		kv_loc_release(&at);
	} while (grid_part_next(&g, &all, &part));
	return 0;
}

/*
 * Append the name of the file with the data of one device, a view of the leaf, and what is read for
 * it: of the leaf, and of the other one that has the sharding (NULL: none). The view of a device is
 * called "STEM[0:16,24:48].npy"; that of a scalar has no box.
 */
static void put_device(struct buf *out, const struct sharding_box *b, unsigned rank,
		       struct span stem, const struct stored *from, const struct stored *target,
		       bool json)
{
	auto_buf name = { 0 };

	buf_add_span(&name, stem);
	for (unsigned i = 0; i < rank; i++)
		buf_addf(&name, "%s%llu:%llu%s", i ? "," : "[", (unsigned long long)b->start[i],
			 (unsigned long long)b->stop[i], i + 1 == rank ? "]" : "");
	buf_add_str(&name, ".npy");
	if (!json) {
		buf_addf(out, "device %lld, replica %llu: %s: reads %llu stored bytes in %llu %s",
			 (long long)b->device, (unsigned long long)b->replica, buf_str(&name),
			 (unsigned long long)from->bytes, (unsigned long long)from->chunks,
			 noun(from->chunks, "chunk", "chunks"));
		if (target)
			buf_addf(out, ", of the target %llu in %llu %s",
				 (unsigned long long)target->bytes,
				 (unsigned long long)target->chunks,
				 noun(target->chunks, "chunk", "chunks"));
		buf_add_byte(out, '\n');
		return;
	}
	buf_addf(out, "{\"device\": %lld, \"replica\": %llu, \"box\": [", (long long)b->device,
		 (unsigned long long)b->replica);
	for (unsigned i = 0; i < rank; i++)
		buf_addf(out, "%s[%llu, %llu]", i ? ", " : "", (unsigned long long)b->start[i],
			 (unsigned long long)b->stop[i]);
	buf_add_str(out, "], \"view\": ");
	json_put_str(out, buf_span(&name), JSON_PRETTY);
	buf_addf(out, ", \"chunks\": %llu, \"stored_bytes\": %llu",
		 (unsigned long long)from->chunks, (unsigned long long)from->bytes);
	if (target)
		buf_addf(out, ", \"target_chunks\": %llu, \"target_stored_bytes\": %llu",
			 (unsigned long long)target->chunks, (unsigned long long)target->bytes);
	buf_add_byte(out, '}');
}

/*
 * The name of a leaf's file without its extension, and for a view without box, cast and shape. Keys
 * are escaped, so they contain none of these.
 */
static struct span leaf_stem(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path,
		   *dot = strrchr(name, '.');

	return span_of(name, MIN(dot ? (size_t)(dot - name) : strlen(name), strcspn(name, "[@")));
}

/* The array of a leaf with the sharding that is recorded of it. */
static int open_sharded(struct source *s, struct value *ret_value, struct sharding **ret)
{
	struct node_leaf *l = container_of(s->node, struct node_leaf, node);
	auto_of(sharding) struct sharding *sharding = NULL;
	struct span text;
	int r = leaf_open(l->item, l->tree, ret_value);

	if (r < 0)
		return r;
	r = item_sharding(l->item, l->tree, &text);
	if (r < 0)
		return r;
	if (r == 0 || ret_value->kind != VALUE_ARRAY)
		return fail(-EINVAL, "'%s' has no recorded sharding", s->inner);
	r = sharding_parse(text, "'_sharding'", &sharding);
	if (r < 0)
		return r;
	r = sharding_check(sharding, ret_value->array->meta.shape, ret_value->array->meta.rank);
	if (r < 0)
		return r;
	*ret = take(sharding);
	return 0;
}

/* Open the leaf whose sharding is the target; it must have the shape of the other. */
static int open_target(struct cmd_args *a, const char *path, const struct zarr_meta *m,
		       struct source *ret_source, struct value *ret_value, struct sharding **ret)
{
	int r = source_open(a, path, ret_source);

	if (r < 0)
		return r;
	if (ret_source->node->ops != &node_leaf_ops)
		return fail(-EINVAL, "'%s' is not a leaf: `pytreefs ls` lists what is in it", path);
	r = open_sharded(ret_source, ret_value, ret);
	if (r < 0)
		return r;
	if (ret_value->array->meta.rank != m->rank ||
	    memcmp(ret_value->array->meta.shape, m->shape, m->rank * sizeof(*m->shape)) != 0)
		return fail(-EINVAL, "'%s' has another shape", path);
	return 0;
}

static int print_sharding(struct cmd_args *a, struct source *s)
{
	struct node_leaf *l = container_of(s->node, struct node_leaf, node);
	const char *path = cmd_value(a, "target");
	bool json = cmd_flag(a, "json");
	auto_of(sharding) struct sharding *sharding = NULL;
	auto_source target = { 0 };
	auto_value v = { 0 }, of_target = { 0 };
	auto_buf out = { 0 };
	int r = path ? leaf_open(l->item, l->tree, &v) : open_sharded(s, &v, &sharding);

	if (r < 0)
		return r;
	if (v.kind != VALUE_ARRAY)
		return fail(-EINVAL, "'%s' is not an array", s->inner);
	if (path)
		r = open_target(a, path, &v.array->meta, &target, &of_target, &sharding);
	if (r < 0)
		return r;
	for (uint64_t i = 0; i < sharding->n_devices; i++) {
		struct stored from, to;
		struct sharding_box b;

		sharding_box(sharding, v.array->meta.shape, v.array->meta.rank, i, &b);
		r = explain_stored_of(v.array, &b, &from);
		if (r < 0)
			return r;
		if (path)
			r = explain_stored_of(of_target.array, &b, &to);
		if (r < 0)
			return r;
		if (json)
			buf_add_str(&out, i ? ",\n" : "[");
		put_device(&out, &b, v.array->meta.rank, leaf_stem(s->inner), &from,
			   path ? &to : NULL, json);
	}
	if (json)
		buf_add_str(&out, "]\n");
	print_buf(stdout, &out);
	return EXIT_OK;
}

/*
 * Append the size of the leaf's file, and the part of its array that n bytes at off are made from.
 */
static int put_plan(struct buf *out, const struct node_leaf *l, const struct format *f,
		    uint64_t off, uint64_t n, bool json)
{
	/* A text is made as a whole at open, possibly from an array. */
	bool is_text = l->ext == NAME_EXT_JSON || l->ext == NAME_EXT_TXT ||
		       l->ext == NAME_EXT_NULL || l->ext == NAME_EXT_HTML;
	unsigned long long size = f->size, head = f->head.n;
	uint64_t from = off > head ? off - head : 0;
	int r;

	if (is_text)
		r = buf_addf(out,
			     json ? "{\"bytes\": %llu, \"made_when_opened\": true" :
				    "file of %llu bytes: text that is made when it is opened\n",
			     size);
	else
		r = buf_addf(out,
			     json ? "{\"bytes\": %llu, \"header_bytes\": %llu, \"array_bytes\": "
				    "%llu" :
				    "file of %llu bytes: %llu of header, %llu of array\n",
			     size, head, size - head);
	if (r < 0 || f->value.kind != VALUE_ARRAY)
		return r;
	r = json ? buf_add_str(out, ", \"boxes\": ") : 0;
	if (r < 0)
		return r;
	if (is_text)
		return zarr_explain(f->value.array, &f->view, 0, f->view.bytes, json, out);
	if (!f->has_body || off + n <= head)
		return json ? buf_add_str(out, "[]") : 0;
	return zarr_explain(f->value.array, &f->view, from, off + n - head - from, json, out);
}

static int print_plan(struct node_leaf *l, uint64_t off, uint64_t n, bool json)
{
	auto_format f = { 0 };
	auto_buf out = { 0 };
	int r = node_leaf_format(l, &f);

	if (r < 0)
		return r;
	if (off > f.size && n == UINT64_MAX)
		return fail(-EINVAL, "byte %llu is not inside the file of %llu",
			    (unsigned long long)off, (unsigned long long)f.size);
	if (off > f.size || (n != UINT64_MAX && n > f.size - off))
		return fail(-EINVAL, "bytes %llu+%llu are not inside the file of %llu",
			    (unsigned long long)off, (unsigned long long)n,
			    (unsigned long long)f.size);
	r = put_plan(&out, l, &f, off, MIN(n, f.size - off), json);
	if (r < 0)
		return r;
	print_buf(stdout, &out);
	if (json)
		printf("}\n");
	return EXIT_OK;
}

static int run_explain(struct cmd_args *a)
{
	auto_source s = { 0 };
	uint64_t off = 0, n = UINT64_MAX;
	struct node_leaf *l;
	int r = 0;

	for (int i = 1; i < a->n_args && r >= 0; i++)
		r = option_parse_size(a->arg[i], i == 1 ? &off : &n);
	if (r < 0)
		return cmd_usage(a->cmd, "OFFSET and LENGTH are numbers of bytes");
	if (cmd_flag(a, "spec") + cmd_flag(a, "sharding") + (a->n_args > 1) > 1)
		return cmd_usage(a->cmd, "one of OFFSET, --spec and --sharding at a time");
	if (cmd_value(a, "target") && !cmd_flag(a, "sharding"))
		return cmd_usage(a->cmd, "--target is for --sharding");
	r = source_open(a, a->arg[0], &s);
	if (r < 0)
		return r;
	if (s.node->ops != &node_leaf_ops)
		return fail(-EINVAL, "'%s' is not a leaf: `pytreefs ls` lists what is in it",
			    a->arg[0]);
	l = container_of(s.node, struct node_leaf, node);
	if (cmd_flag(a, "sharding"))
		return print_sharding(a, &s);
	return cmd_flag(a, "spec") ? print_spec(&s, l) : print_plan(l, off, n, cmd_flag(a, "json"));
}

static const struct cmd_option options[] = {
	{ "spec", 0, NULL, "print the TensorStore spec of the leaf's array, as JSON" },
	{ "sharding", 0, NULL, "print each device's box, and the stored bytes that it reads" },
	{ "target", 0, "LEAF", "with --sharding: boxes as this leaf records them" },
	{ "json", 0, NULL, "print the plan, or --sharding, as one JSON document" },
	{ 0 },
};

const struct cmd cmd_explain = {
	.name = "explain",
	.args = "SOURCE/LEAF [OFFSET [LENGTH]]",
	.summary = "explain a read without data: its boxes, chunks, keys and places",
	.help = "",
	.example = "pytreefs explain ckpts/latest/state/params/embed/table.npy 0 4K",
	.options = options,
	.min_args = 1,
	.max_args = 3,
	.takes_mount_options = true,
	.confined = CMD_READS,
	.run = run_explain,
};
