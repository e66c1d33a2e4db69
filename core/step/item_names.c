/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_names.c - the tree of an item without a document of it: from names of arrays and strings.
 *
 * In Orbax's directories and databases, a name is the keys of a leaf joined by dots. In a hierarchy
 * of zarr groups, and where other programs put arrays, it is a path, whose parts are keys. The
 * metadata of groups tells which it is, and without any Orbax's other files and the names
 * themselves; a group that `pytreefs export` wrote also has a manifest of the tree.
 *
 * Invariant: an array that is stored is in the tree, or opening the item fails. One that only the
 * consolidated metadata of a group name is lost, and is in the tree, where reading it fails.
 */
#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/meter.h"
#include "core/ocdbt/ocdbt.h"
#include "core/step/item_impl.h"
#include "core/step/item_names.h"
#include "core/tree/strings.h"
#include "core/tree/tree_tensors.h"

static void names_release(struct names *ns)
{
	free(ns->name);
	buf_release(&ns->databases);
	meter_release(ns->cap * NAME_BYTES);
	arena_release(&ns->arena);
}
#define auto_names __attribute__((cleanup(names_release))) struct names

int item_names_add(struct names *ns, struct span name, enum stored_as as)
{
	auto_buf whole = { .metered = true };
	struct stored_name *n;
	int r;

	if (ns->n == LIMIT_TREE_NODES)
		return fail(-EFBIG, "more than %d arrays", LIMIT_TREE_NODES);
	r = array_reserve_charged(ns->name, ns->cap, ns->n + 1, NAME_BYTES);
	if (r < 0)
		return r;
	n = &ns->name[ns->n];
	n->as = as;
	n->dir = ns->dir;
	if (ns->dir && buf_addf(&whole, "%s/%.*s", ns->dir, SPAN_ARG(name)) < 0)
		return fail(-ENOMEM, "cannot list arrays");
	if (arena_keep(&ns->arena, ns->dir ? buf_span(&whole) : name, &n->name) < 0)
		return fail(-ENOMEM, "cannot list arrays");
	ns->has_names |= n->name.n > 0;
	ns->n++;
	return 0;
}

/* ---- stored keys ---- */

/*
 * Note that there may be chunks of an array: then its metadata need not be read to learn that it is
 * not a group. Chunks of an array are usually listed together.
 */
static int add_chunk(struct names *ns, struct span key)
{
	const uint8_t *end = memmem(key.p, key.n, "/c/", 3);
	struct span name = span_of(key.p, end ? (size_t)(end - key.p) : 0);

	if (!end && span_ends(key, span_str("/c")))
		name = span_of(key.p, key.n - 2);
	if (!name.n || ns->n >= LIMIT_TREE_NODES / 2 ||
	    (ns->n && (ns->name[ns->n - 1].as & AS_CHUNKS) &&
	     span_eq(ns->name[ns->n - 1].name, name)))
		return 0;
	return item_names_add(ns, name, AS_CHUNKS);
}

static int item_names_add_key(void *arg, struct span key, uint64_t len)
{
	static const struct {
		const char *suffix;
		enum stored_as as;
	} kinds[] = { { ".zarray", AS_ARRAY },
		      { "zarr.json", AS_NODE },
		      { "_strings.json", AS_STRING },
		      { ".zgroup", AS_GROUP },
		      { ".zmetadata", AS_COPIES } };

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct span suffix = span_str(kinds[i].suffix), name = key;

		if (!span_ends(key, suffix))
			continue;
		name.n -= suffix.n;
		/*
		 * At the top, metadata means that the tree is this one array; a strings file there
		 * belongs to the whole item.
		 */
		if (name.n == 0)
			return kinds[i].as == AS_STRING ? 0 :
							  item_names_add(arg, name, kinds[i].as);
		if (name.p[name.n - 1] != '/')
			continue;
		name.n--;
		return item_names_add(arg, name, kinds[i].as);
	}
	return add_chunk(arg, key);
}

/* ---- databases below the item ---- */

/* A file in the item's directory. */
static int item_names_add_file(void *arg, struct span key, uint64_t len)
{
	static const char manifest[] = "/manifest.ocdbt";
	struct names *ns = arg;
	int r;

	if (!span_ends(key, span_str(manifest)))
		return item_names_add_key(arg, key, len);
	r = buf_add(&ns->databases, key.p, key.n - strlen(manifest));
	return r < 0 ? r : buf_add_byte(&ns->databases, 0);
}

/*
 * List the database in a directory below the item. A part of one that was never merged belongs to
 * the database in the directory around it.
 */
static int add_database(struct item *item, struct names *ns, const char *dir)
{
	size_t n = ocdbt_part_parent(dir);
	auto_free char *whole = span_dup_str(span_of(dir, n));
	struct kv *kv;
	int r;

	if (!whole)
		return fail(-ENOMEM, "cannot list '%s'", dir);
	/* A part at the top is a part of the item's own database. */
	if (n == 0 || item_has_database(item, whole))
		return 0;
	r = item_below_add(item, whole, &kv);
	if (r < 0 || !kv)
		return r;
	ns->dir = item_database_dir(item, kv);
	r = kv_list(kv, span_of(NULL, 0), item_names_add_key, ns);
	ns->dir = NULL;
	return r < 0 ? err_at(r, "'%s'", whole) : r;
}

static int add_databases(struct item *item, struct names *ns)
{
	struct span rest = buf_span(&ns->databases);
	int r = 0;

	while (rest.n && r >= 0) {
		const char *dir = (const char *)rest.p;

		rest = span_from(rest, strlen(dir) + 1);
		r = add_database(item, ns, dir);
	}
	return r;
}

int item_names_by_name(const void *a, const void *b)
{
	return span_cmp(((const struct stored_name *)a)->name,
			((const struct stored_name *)b)->name);
}

/*
 * The name that an array of "a/process_0" has in the database "a", into which JAX merges those of
 * its processes: 1, or 0 when the directory is not one of these.
 */
static int name_in_merged(const struct stored_name *s, struct buf *ret)
{
	size_t n = s->dir ? item_process_database(s->dir) : SIZE_MAX;
	int r;

	buf_clear(ret);
	if (n == SIZE_MAX)
		return 0;
	r = buf_add(ret, s->dir, n);
	if (r < 0)
		return r;
	r = buf_add_span(ret, span_from(s->name, strlen(s->dir) + 1));
	return r < 0 ? r : 1;
}

/* Remove arrays that were merged from databases of processes, where they are still. */
static int drop_merged(struct names *ns)
{
	auto_buf name = { .metered = true };
	auto_free bool *drop = calloc(ns->n + 1, sizeof(*drop));
	size_t n = 0;

	if (!drop)
		return fail(-ENOMEM, "cannot list %zu arrays", ns->n);
	for (size_t i = 0; i < ns->n; i++) {
		struct stored_name key = { 0 };
		int r = name_in_merged(&ns->name[i], &name);

		if (r < 0)
			return r;
		key.name = buf_span(&name);
		drop[i] = r && bsearch(&key, ns->name, ns->n, sizeof(key), item_names_by_name);
	}
	for (size_t i = 0; i < ns->n; i++)
		if (!drop[i])
			ns->name[n++] = ns->name[i];
	ns->n = n;
	return 0;
}

/* ---- all names ---- */

int item_names_sort(struct names *ns)
{
	size_t n = 0;

	if (ns->n)
		qsort(ns->name, ns->n, sizeof(*ns->name), item_names_by_name);
	for (size_t i = 0; i < ns->n; i++) {
		struct stored_name *last = n ? &ns->name[n - 1] : NULL, *s = &ns->name[i];

		if (!last || !span_eq(last->name, s->name))
			ns->name[n++] = *s;
		else if (last->dir == s->dir)
			last->as |= s->as;
		else
			return fail(-EUCLEAN, "'%.*s' is in '%s' and in '%s'", SPAN_ARG(s->name),
				    last->dir ? last->dir : ".", s->dir ? s->dir : ".");
	}
	ns->n = n;
	return drop_merged(ns);
}

/* ---- groups ---- */

int item_names_read_key(struct item *item, struct span name, const char *file, struct buf *ret)
{
	auto_buf key = { 0 };
	size_t n = name.n;
	struct kv *below;
	int r = name.n ? buf_addf(&key, "%.*s/%s", SPAN_ARG(name), file) : buf_add_str(&key, file);

	if (r < 0)
		return r;
	r = kv_get_all(item->kv, buf_span(&key), LIMIT_JSON_BYTES, ret);
	if (r == 0 && item->dirs)
		r = kv_get_all(item->dirs, buf_span(&key), LIMIT_JSON_BYTES, ret);
	while (r == 0 && (r = item_below_find(item, name, &n, &below)) > 0)
		r = kv_get_all(below, span_from(buf_span(&key), n + 1), LIMIT_JSON_BYTES, ret);
	return r;
}

/* Get the manifest in the attributes of the top group: 1; 0: there is none. */
static int read_manifest(struct item *item, struct json_doc *doc, const struct json **ret)
{
	static const char *const files[] = { "zarr.json", ".zattrs" };
	auto_buf text = { .metered = true };
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(files) && r == 0; i++)
		r = item_names_read_key(item, span_of(NULL, 0), files[i], &text);
	if (r <= 0)
		return r;
	r = json_parse(buf_span(&text), "the attributes of the group", doc);
	if (r < 0)
		return r;
	/* In v3, they are inside the group's document. */
	*ret = json_member(json_member(doc->root, "zarr_format") ?
				   json_member(doc->root, "attributes") :
				   doc->root,
			   TREE_MANIFEST_KEY);
	return json_is(*ret, JSON_OBJECT);
}

/* ---- the tree ---- */

/* The names of leaves and of groups, for the functions that make trees. */
struct listed {
	struct span *leaf, *group;
	bool *is_string; /* of leaves */
	size_t n, n_groups;
	bool has_string;
	bool has_path; /* the name of a leaf is a path, as far as names tell */
};

static void listed_release(struct listed *l)
{
	free(l->leaf);
	free(l->group);
	free(l->is_string);
}

/*
 * Whether a name is a path, as far as it tells: Orbax puts a dot before the last key, and a slash
 * is part of a key ("mlp/~/linear_0.w").
 */
static bool item_names_is_path(struct span name)
{
	const uint8_t *slash = name.n ? memrchr(name.p, '/', name.n) : NULL;

	return slash && !memchr(slash, '.', (size_t)(name.p + name.n - slash));
}

static int list_all(const struct names *ns, struct listed *ret)
{
	ret->leaf = calloc(ns->n + 1, sizeof(*ret->leaf));
	ret->is_string = calloc(ns->n + 1, sizeof(*ret->is_string));
	ret->group = calloc(ns->has_groups ? ns->n + 1 : 1, sizeof(*ret->group));
	if (!ret->leaf || !ret->is_string || !ret->group)
		return fail(-ENOMEM, "cannot list %zu arrays", ns->n);
	for (size_t i = 0; i < ns->n; i++) {
		const struct stored_name *s = &ns->name[i];

		if (s->as & AS_GROUP)
			ret->group[ret->n_groups++] = s->name;
		if (!(s->as & (AS_ARRAY | AS_NODE | AS_STRING | AS_NAMED)) ||
		    (s->as & AS_NAMED && s->as & AS_GROUP))
			continue;
		/* An array is preferred to a string of the same name. */
		ret->is_string[ret->n] = !(s->as & (AS_ARRAY | AS_NODE | AS_NAMED));
		ret->has_string |= ret->is_string[ret->n];
		ret->has_path |= s->dir || item_names_is_path(s->name);
		ret->leaf[ret->n++] = s->name;
	}
	return 0;
}

/*
 * Whether names without groups are paths all the same, as of jax's array serialization and of
 * programs that use TensorStore or zarr: 1 or 0.
 */
static int are_paths(const struct item *item, const struct listed *l)
{
	int r = l->has_path && !l->has_string ? item_has_trace(item) : 1;

	return r < 0 ? r : !r;
}

static int item_names_make_tree(struct item *item, const struct listed *l)
{
	const struct json *manifest = NULL;
	auto_json doc = { 0 };
	struct stat st;
	int r;

	if (!l->n && !l->n_groups)
		return fail(-EUCLEAN, "it has no _METADATA and no arrays%s",
			    io_stat(item->dir, "d", &st) >= 0 ?
				    ": manifest.ocdbt is lost, which names what is in 'd'" :
				    "");
	r = l->n_groups ? 1 : are_paths(item, l);
	if (r < 0)
		return r;
	if (r == 0)
		return tree_from_names(l->leaf, l->is_string, l->n, &item->tree);
	if (!l->n_groups)
		return tree_from_hierarchy(l->leaf, l->n, NULL, 0, &item->tree);
	item->is_hierarchy = true;
	r = read_manifest(item, &doc, &manifest);
	if (r < 0)
		return r;
	return r ? tree_from_group(l->leaf, l->n, manifest, &item->tree) :
		   tree_from_hierarchy(l->leaf, l->n, l->group, l->n_groups, &item->tree);
}

/* Say what cannot be shown. One array has nothing below it. */
static int find_whether_partial(struct item *item, const struct kv *dirs, const struct names *ns)
{
	bool is_array = ns->n == 1 && !ns->name[0].name.n && !(ns->name[0].as & AS_GROUP);

	item->is_partial = dirs->no_list && !ns->is_consolidated && !is_array;
	/* A database has all of its keys, those of groups, too. */
	if (item->is_partial && ns->has_groups && !item->is_ocdbt)
		return fail(
			-EOPNOTSUPP,
			"'%s' is a zarr group without consolidated metadata, which name what is "
			"in it, and its server cannot list: name the group above it that has them",
			item->dir->path);
	return item->is_partial ?
		       item_remark(item, "has no _METADATA, and its server cannot list: arrays in "
					 "directories below it are not shown") :
		       0;
}

int item_tree_of_names(struct item *item)
{
	__attribute__((cleanup(listed_release))) struct listed listed = { 0 };
	struct kv *dirs = item->dirs ? item->dirs : item->kv;
	auto_names ns = { .arena.metered = true, .databases.metered = true };
	int r = item->dirs ? kv_list(item->kv, span_of(NULL, 0), item_names_add_key, &ns) : 0;

	if (r < 0)
		return r;
	/*
	 * Databases of 0.3.x have their strings in directories beside them, and JAX writes one for
	 * each directory of arrays.
	 */
	r = kv_list(dirs, span_of(NULL, 0), item_names_add_file, &ns);
	if (r < 0)
		return r;
	r = add_databases(item, &ns);
	if (r < 0)
		return r;
	if (dirs->no_list && !item->is_ocdbt)
		r = item_names_of_copies(item, &ns);
	if (r < 0)
		return r;
	/* Metadata that were consolidated before anything was in the group name the group alone. */
	ns.is_consolidated = r > 0 && ns.has_names;
	/* Releases since 0.4 store all texts as members of one file. */
	r = item_read_strings(item);
	for (size_t i = 0; item->strings && i < item->strings->n && r >= 0; i++)
		r = item_names_add(&ns, item->strings->entries[i].name, AS_STRING);
	if (r < 0)
		return r;
	r = item_names_sort(&ns);
	if (r < 0)
		return r;
	r = item_names_find_groups(item, &ns);
	if (r < 0)
		return r;
	r = list_all(&ns, &listed);
	if (r < 0)
		return r;
	r = find_whether_partial(item, dirs, &ns);
	return r < 0 ? r : item_names_make_tree(item, &listed);
}
