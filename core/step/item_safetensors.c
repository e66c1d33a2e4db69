/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_safetensors.c - open a safetensors file, or a directory of shards, as an item.
 *
 * Each tensor is an array with one raw chunk, which is a range of the file. All other code thus
 * reads it as any array, and nothing is copied. Names are split at `safetensors_separator`, unless
 * the file has a manifest of ours.
 */
#include <fcntl.h>

#include <stdio.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/meter.h"
#include "core/base/wire.h"
#include "core/io/io_store.h"
#include "core/step/item_impl.h"
#include "core/step/item_safetensors.h"
#include "core/tree/safetensors_header.h"
#include "core/tree/tree_tensors.h"

#define INDEX_NAME ITEM_SHARDS_INDEX

struct shard {
	const char *name;
	struct io_file *file;
	struct safetensors header;
};

struct shards {
	struct shard *shard;
	size_t n, cap;
	struct arena arena; /* of names, and of the list of all tensors */
};

static void shards_release(struct shards *s)
{
	for (size_t i = 0; i < s->n; i++) {
		io_file_unref(s->shard[i].file);
		safetensors_release(&s->shard[i].header);
	}
	free(s->shard);
	meter_release(s->cap * sizeof(*s->shard));
	arena_release(&s->arena);
}
#define auto_shards __attribute__((cleanup(shards_release))) struct shards

/* ---- the files ---- */

static int add_shard(struct shards *s, const char *name)
{
	const char *copy = arena_str(&s->arena, name);
	int r;

	if (!copy)
		return fail(-ENOMEM, "cannot list '%s'", name);
	r = array_reserve_charged(s->shard, s->cap, s->n + 1, sizeof(*s->shard));
	if (r < 0)
		return r;
	s->shard[s->n++] = (struct shard){ .name = copy };
	return 0;
}

static int add_listed(void *arg, const char *name, unsigned char type)
{
	return item_is_safetensors(name) ? add_shard(arg, name) : 0;
}

static int by_file_name(const void *a, const void *b)
{
	return strcmp(((const struct shard *)a)->name, ((const struct shard *)b)->name);
}

/* The index file, which maps tensors to files. */
struct index {
	struct buf text;
	struct json_doc doc;
	const struct json *map; /* NULL: there is no such file */
};

static void index_release(struct index *x)
{
	json_release(&x->doc);
	buf_release(&x->text);
}
#define auto_index __attribute__((cleanup(index_release))) struct index

static int read_index(struct io_dir *dir, struct index *x)
{
	int r = io_read_file(dir, INDEX_NAME, LIMIT_JSON_BYTES, &x->text);

	if (r < 0)
		return err_except(r, -ENOENT);
	r = json_parse(buf_span(&x->text), "'" INDEX_NAME "'", &x->doc);
	if (r < 0)
		return r;
	x->map = json_member(x->doc.root, "weight_map");
	return json_is(x->map, JSON_OBJECT) ? 0 :
					      fail(-EUCLEAN, "'" INDEX_NAME "' has no weight_map");
}

static void sort_shards(struct shards *s)
{
	size_t n = 0;

	if (s->n)
		qsort(s->shard, s->n, sizeof(*s->shard), by_file_name);
	for (size_t i = 0; i < s->n; i++)
		if (!n || by_file_name(&s->shard[n - 1], &s->shard[i]) != 0)
			s->shard[n++] = s->shard[i];
	s->n = n;
}

/* List the files of a model: those of its index, or else all; where nothing can be listed, one. */
static int list_shards(struct io_dir *dir, const struct json *map, struct shards *s)
{
	int r = map                  ? 0 :
		io_dir_can_list(dir) ? io_list(dir, ".", add_listed, s) :
				       add_shard(s, ITEM_SHARDS_FILE);

	for (size_t i = 0; map && i < map->n && r >= 0; i++) {
		auto_free char *name =
			json_is(&map->items[i], JSON_STRING) ? span_dup_str(map->items[i].s) : NULL;

		/* An entry that is not a text is reported when the map is compared. */
		r = name ? add_shard(s, name) : 0;
	}
	if (r < 0)
		return r;
	sort_shards(s);
	return s->n ? r : fail(-EINVAL, "'%s' has no .safetensors files", dir->path);
}

int safetensors_files(struct io_dir *dir, struct buf *ret)
{
	auto_shards s = { .arena.metered = true };
	auto_index x = { 0 };
	int r = read_index(dir, &x);

	if (r < 0)
		return r;
	r = list_shards(dir, x.map, &s);
	for (size_t i = 0; i < s.n && r >= 0; i++) {
		r = io_path_check(span_str(s.shard[i].name), "safetensors file");
		if (r < 0)
			return r;
		r = buf_add(ret, s.shard[i].name, strlen(s.shard[i].name) + 1);
	}
	return r;
}

/* Say what is not read: a file that the index does not name, or what a server cannot list. */
static int remark_others(struct item *item, const struct shards *s, const struct json *map)
{
	auto_shards all = { .arena.metered = true };
	int r;

	if (!io_dir_can_list(item->dir))
		return map ? 0 :
			     item_remark(item, "is read as '" ITEM_SHARDS_FILE
					       "' alone: its server cannot list what is beside it");
	if (!map)
		return 0;
	r = io_list(item->dir, ".", add_listed, &all);
	if (r < 0)
		return r;
	/* Directories have no order: the same file is named each time. */
	sort_shards(&all);
	for (size_t i = 0; i < all.n; i++) {
		auto_free char *text = NULL;

		if (bsearch(&all.shard[i], s->shard, s->n, sizeof(*s->shard), by_file_name))
			continue;
		text = str_fmt("is read without '%s', which '" INDEX_NAME "' does not name",
			       all.shard[i].name);
		return text ? item_remark(item, text) : -ENOMEM;
	}
	return 0;
}

/* ---- headers ---- */

static int read_header(struct shard *s)
{
	auto_buf head = { .metered = true };
	const uint64_t length = 8, first = MIN(s->file->size, (uint64_t)IO_FIRST_BYTES);
	uint64_t n;
	int r;

	if (s->file->size < length)
		return fail(-EUCLEAN, "it has %llu bytes, a safetensors file has at least 8",
			    (unsigned long long)s->file->size);
	/* Most headers are no longer, and a server has sent that much. */
	r = buf_reserve(&head, first);
	if (r < 0)
		return r;
	r = io_read_exact(s->file, head.p, first, 0);
	if (r < 0)
		return r;
	n = get_u64le(head.p);
	if (n > SAFETENSORS_HEADER_MAX || n > s->file->size - length)
		return fail(-EUCLEAN, "a header of %llu bytes in a file of %llu",
			    (unsigned long long)n, (unsigned long long)s->file->size);
	n += length;
	head.n = MIN(n, first);
	r = buf_reserve(&head, n - head.n);
	if (r < 0)
		return r;
	if (n > first)
		r = io_read_exact(s->file, head.p + first, n - first, first);
	if (r < 0)
		return r;
	head.n = n;
	r = safetensors_parse(buf_span(&head), &s->header);
	if (r < 0)
		return r;
	if (r == 0)
		return fail(-EUCLEAN, "its header is truncated");
	if (s->header.data + s->header.bytes != s->file->size)
		return fail(-EUCLEAN, "it has %llu bytes, its header says %llu",
			    (unsigned long long)s->file->size,
			    (unsigned long long)(s->header.data + s->header.bytes));
	return 0;
}

static int open_shard(struct item *item, struct shard *s)
{
	int r = io_path_check(span_str(s->name), "safetensors file");

	if (r < 0)
		return r;
	r = io_file_open_range(item->dir, s->name, 0, IO_FIRST_BYTES, &s->file);
	return r < 0 ? r : io_why_bad(read_header(s), s->file);
}

unsigned item_shards_of(const char *name, unsigned *ret_stem, unsigned *ret_width)
{
	unsigned k, n;
	int stem = -1, from = -1, to = -1, end = -1;
	const char *at = strstr(name, "-of-");

	if (!at)
		return 0;
	while (at > name && at[-1] >= '0' && at[-1] <= '9')
		at--;
	stem = (int)(at - name);
	if (sscanf(at, "%9u%n-of-%n%9u%n", &k, &from, &to, &n, &end) != 2 || at[end] != '.' ||
	    !item_is_whole_file(name) || end - to != from)
		return 0;
	*ret_stem = (unsigned)stem;
	*ret_width = (unsigned)from;
	return n;
}

int item_remark_shard(struct item *item)
{
	const char *slash = strrchr(item->path, '/'), *name = slash ? slash + 1 : item->path;
	unsigned stem, width, n = item_shards_of(name, &stem, &width);
	auto_free char *text = NULL;

	if (n < 2)
		return 0;
	text = str_fmt("is one of %u shards: the others have the rest of the model%s", n,
		       item_is_safetensors(name) ? " (name their directory)" :
						   " (docs/huggingface.md joins them)");
	return text ? item_remark(item, text) : fail(-ENOMEM, "cannot open '%s'", item->path);
}

/* A file that is called the first of two has a second one. */
static int item_safetensors_check_numbered(struct shards *s)
{
	unsigned stem = 0, width = 0;

	for (size_t i = 0; i < s->n; i++) {
		unsigned n = item_shards_of(s->shard[i].name, &stem, &width);

		for (unsigned k = 1; k <= n; k++) {
			auto_free char *name = str_fmt("%.*s%0*u-of-%0*u.safetensors", (int)stem,
						       s->shard[i].name, (int)width, k, (int)width,
						       n);
			const struct shard key = { .name = name };

			if (!name)
				return fail(-ENOMEM, "cannot list %u safetensors files", n);
			if (!bsearch(&key, s->shard, s->n, sizeof(key), by_file_name))
				return fail(-EUCLEAN, "'%s' is not there, of which '%s' is a part",
					    name, s->shard[i].name);
		}
	}
	return 0;
}

/* ---- all tensors, sorted by name ---- */

struct tensor {
	const struct shard *shard;
	const struct safetensor *t;
};

static int item_safetensors_by_name(const void *a, const void *b)
{
	return span_cmp(((const struct tensor *)a)->t->name, ((const struct tensor *)b)->t->name);
}

/* The list is allocated in the arena of the shards. */
static int item_safetensors_collect(struct shards *s, struct tensor **ret, size_t *ret_n)
{
	struct tensor *all;
	size_t n = 0, at = 0;

	for (size_t i = 0; i < s->n; i++)
		n += s->shard[i].header.n;
	if (n > LIMIT_TREE_NODES)
		return fail(-EFBIG, "%zu tensors, the limit is %d", n, LIMIT_TREE_NODES);
	all = arena_calloc(&s->arena, n + 1, sizeof(*all));
	if (!all)
		return fail(-ENOMEM, "cannot list %zu tensors", n);
	for (size_t i = 0; i < s->n; i++)
		for (size_t k = 0; k < s->shard[i].header.n; k++)
			all[at++] = (struct tensor){ &s->shard[i], &s->shard[i].header.tensor[k] };
	qsort(all, n, sizeof(*all), item_safetensors_by_name);
	for (size_t i = 1; i < n; i++)
		if (span_eq(all[i - 1].t->name, all[i].t->name))
			return fail(-EUCLEAN,
				    "tensor '%.*s' is in '%s' and in '%s': read one of these files "
				    "by its own name, or list the files of the model in "
				    "'" INDEX_NAME "'",
				    SPAN_ARG(all[i].t->name), all[i - 1].shard->name,
				    all[i].shard->name);
	*ret = all;
	*ret_n = n;
	return 0;
}

static int check_index(const struct json *map, const struct tensor *all, size_t n)
{
	for (size_t i = 0; i < map->n; i++) {
		const struct json *m = &map->items[i];
		const struct safetensor key = { .name = m->name };
		const struct tensor wanted = { NULL, &key },
				    *t = bsearch(&wanted, all, n, sizeof(*all),
						 item_safetensors_by_name);

		if (!json_is(m, JSON_STRING))
			return fail(-EUCLEAN, "'" INDEX_NAME "': '%.*s' has no file",
				    SPAN_ARG(m->name));
		if (!t)
			return fail(-EUCLEAN,
				    "tensor '%.*s' is in no file, '" INDEX_NAME "' says in '%.*s'",
				    SPAN_ARG(m->name), SPAN_ARG(m->s));
		if (!span_eq(span_str(t->shard->name), m->s))
			return fail(-EUCLEAN,
				    "tensor '%.*s' is in '%s', '" INDEX_NAME "' says in '%.*s'",
				    SPAN_ARG(m->name), t->shard->name, SPAN_ARG(m->s));
	}
	return 0;
}

/* ---- as a store ---- */

/* Of a type whose elements have less than a byte: reading the leaf is an error that names it. */
static int put_packed_meta(struct kv *kv, struct span key, const struct safetensor *t)
{
	auto_buf text = { 0 }, shape = { 0 };
	int r = json_put_uints(&shape, t->array.shape, t->array.rank, JSON_COMPACT);

	if (r < 0)
		return r;
	r = buf_addf(&text,
		     "{\"zarr_format\":2,\"compressor\":null,\"filters\":null,\"order\":\"C\","
		     "\"fill_value\":null,\"dtype\":\"%.*s\",\"shape\":%.*s,\"chunks\":%.*s}",
		     SPAN_ARG(t->type), SPAN_ARG(buf_span(&shape)), SPAN_ARG(buf_span(&shape)));
	return r < 0 ? r : kv_put(kv, key, buf_span(&text));
}

static int item_safetensors_put_meta(struct kv *kv, struct span prefix, const struct safetensor *t)
{
	auto_buf key = { 0 }, text = { 0 };
	int r = buf_add_span(&key, prefix);

	if (r < 0)
		return r;
	r = buf_add_str(&key, ".zarray");
	if (r < 0)
		return r;
	if (t->array.dtype == DTYPE_UNKNOWN)
		return put_packed_meta(kv, buf_span(&key), t);
	r = zarr_meta_print_whole(&t->array, &text);
	return r < 0 ? r : kv_put(kv, buf_span(&key), buf_span(&text));
}

static int put_tensor(struct kv *kv, const struct tensor *all)
{
	const struct safetensor *t = all->t;
	auto_buf prefix = { .metered = true };
	/* The prefix of the param that a tree of names has for it. */
	int r = t->name.n ? buf_addf(&prefix, "%.*s/", SPAN_ARG(t->name)) : 0;

	if (r < 0)
		return r;
	r = item_safetensors_put_meta(kv, buf_span(&prefix), t);
	if (r < 0)
		return r;
	r = zarr_whole_key(t->array.rank, &prefix);
	if (r < 0 || !t->bytes)
		return r;
	return kv_mem_put_file(kv, buf_span(&prefix), all->shard->file,
			       all->shard->header.data + t->begin, t->bytes);
}

/* Find the metadata of the first file with a manifest: returns 1, or 0 when none has one. */
static int find_manifest(const struct shards *s, struct json_doc *ret)
{
	for (size_t i = 0; i < s->n; i++) {
		auto_json doc = { 0 };
		int r = s->shard[i].header.metadata ?
				json_parse(span_str(s->shard[i].header.metadata), "__metadata__",
					   &doc) :
				0;

		if (r < 0)
			return err_at(r, "'%s'", s->shard[i].name);
		if (!json_member(doc.root, TREE_MANIFEST_KEY))
			continue;
		*ret = doc;
		doc = (struct json_doc){ 0 };
		return 1;
	}
	return 0;
}

/* Without a manifest, what a file says of itself is the custom metadata. */
static int item_safetensors_set_custom(struct item *item, struct shards *s)
{
	const char **text = arena_calloc(&s->arena, s->n + 1, sizeof(*text));
	auto_buf custom = { .metered = true };
	int r;

	if (!text)
		return fail(-ENOMEM, "cannot read __metadata__");
	for (size_t i = 0; i < s->n; i++)
		text[i] = s->shard[i].header.metadata;
	r = tensors_custom(text, s->n, &custom);
	if (r < 0 || !custom.n)
		return r;
	item->shows_headers = true;
	if (buf_str(&custom))
		item->tree->custom_metadata = arena_str(&item->tree->arena, buf_str(&custom));
	return item->tree->custom_metadata ? 0 : fail(-ENOMEM, "cannot read __metadata__");
}

static int item_safetensors_make_tree(struct item *item, struct shards *s, const struct tensor *all,
				      size_t n)
{
	struct span *name = arena_calloc(&s->arena, n + 1, sizeof(*name));
	auto_json metadata = { 0 };
	const char *by = item->ckpt->opts.safetensors_separator;
	int r;

	if (!name)
		return fail(-ENOMEM, "cannot list %zu tensors", n);
	for (size_t i = 0; i < n; i++)
		name[i] = all[i].t->name;
	r = find_manifest(s, &metadata);
	if (r < 0)
		return r;
	r = tree_from_tensors(name, n, metadata.root, by ? by : ".", &item->tree);
	item->shows_headers = metadata.root != NULL;
	return r < 0 || metadata.root ? r : item_safetensors_set_custom(item, s);
}

/* Keep which files were opened, for item_access.c. */
static int keep_shards(struct item *item, const struct shards *s)
{
	item->shard = calloc(s->n + 1, sizeof(*item->shard));
	for (size_t i = 0; i < s->n && item->shard; i++) {
		struct item_shard *to = &item->shard[item->n_shards++];

		*to = (struct item_shard){ .name = strdup(s->shard[i].name),
					   .dev = s->shard[i].file->dev,
					   .ino = s->shard[i].file->ino };
		if (!to->name)
			return fail(-ENOMEM, "cannot open %zu files", s->n);
	}
	return item->shard ? 0 : fail(-ENOMEM, "cannot open %zu files", s->n);
}

static int read_item(struct item *item, const char *path, struct shards *s, struct index *x)
{
	struct tensor *all = NULL;
	size_t n = 0;
	int r = item->is_file ? add_shard(s, path) : read_index(item->dir, x);

	if (r < 0)
		return r;
	if (!item->is_file) {
		r = list_shards(item->dir, x->map, s);
		if (r < 0)
			return r;
		r = remark_others(item, s, x->map);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < s->n; i++) {
		r = open_shard(item, &s->shard[i]);
		if (r == -ENOENT && x->map)
			return fail(-EUCLEAN, "'%s' is not there, '" INDEX_NAME "' names it",
				    s->shard[i].name);
		if (r < 0)
			return err_at(r, "'%s'", s->shard[i].name);
	}
	if (!item->is_file)
		r = keep_shards(item, s);
	if (r < 0)
		return r;
	r = item_safetensors_collect(s, &all, &n);
	if (r < 0)
		return r;
	if (x->map)
		r = check_index(x->map, all, n);
	if (r < 0)
		return r;
	if (!item->is_file)
		r = item_safetensors_check_numbered(s);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		r = put_tensor(item->kv, &all[i]);
		if (r < 0)
			return err_at(r, "tensor '%.*s'", SPAN_ARG(all[i].t->name));
	}
	return item_safetensors_make_tree(item, s, all, n);
}

int item_read_safetensors(struct item *item, const char *path)
{
	auto_shards s = { .arena.metered = true };
	auto_index x = { 0 };
	int r = io_dir_sub(item->ckpt->source, ".", &item->dir);

	if (r < 0)
		return r;
	/* Documents of Orbax in the directory are about something else. */
	item->strings_read = item->shardings_read = item->arrays_read = item->digests_read = true;
	r = kv_mem_new(item->ckpt->io, &item->kv);
	if (r < 0)
		return r;
	kv_mem_meter(item->kv);
	r = read_item(item, path, &s, &x);
	return r < 0 || !item->is_file ? r : item_remark_shard(item);
}
