/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_tree.c - read or reconstruct the tree of an item.
 *
 * The tree comes from `_METADATA`, with the values of a legacy aggregate file beside it; without
 * `_METADATA` from the aggregate file alone, or from the names of arrays and strings.
 *
 * Invariant: an array that is stored, but named in no document, is in the tree, or opening the item
 * fails.
 */
#include <fcntl.h>

#include "core/base/err.h"
#include "core/base/meter.h"
#include "core/step/item_impl.h"
#include "core/tree/strings.h"

/* ---- the legacy aggregate file ---- */

/* Returns 1 when the file exists and was read or mapped; 0 when it does not exist. */
static int open_aggregate(struct item *item, const char *name)
{
	int r = io_file_open(item->dir, name, O_RDONLY, 0, &item->aggregate);

	if (r == -ENOENT || r == -EISDIR) {
		err_clear();
		return 0;
	}
	if (r >= 0 && item->aggregate->size > LIMIT_AGGREGATE_BYTES)
		r = fail(-EFBIG, "'%s' has %llu bytes, the limit for an aggregate file is %llu",
			 name, (unsigned long long)item->aggregate->size,
			 (unsigned long long)LIMIT_AGGREGATE_BYTES);
	if (r < 0)
		return r;
	r = document_of(item->ckpt, item->aggregate, &item->aggregate_text);
	return r < 0 ? r : 1;
}

/* ---- a tree from names alone ---- */

struct stored_name {
	struct span name; /* allocated in the arena */
	bool is_string;
};

struct names {
	struct arena arena;
	struct stored_name *name;
	size_t n, cap;
	uint64_t charged;
};

static void names_release(struct names *ns)
{
	free(ns->name);
	meter_release(ns->charged);
	arena_release(&ns->arena);
}
#define auto_names __attribute__((cleanup(names_release))) struct names

static int names_add(struct names *ns, struct span name, bool is_string)
{
	struct stored_name *n;

	if (ns->n == LIMIT_TREE_NODES)
		return fail(-EFBIG, "more than %d arrays", LIMIT_TREE_NODES);
	if (ns->n == ns->cap) {
		size_t cap = ns->cap ? 2 * ns->cap : 256;

		/* The charge includes the arrays that tree_of_names() allocates. */
		uint64_t charge = (cap - ns->cap) * (sizeof(*n) + sizeof(struct span) + 1);
		int r = meter_charge(charge);

		if (r < 0)
			return r;
		ns->charged += charge;
		n = reallocarray(ns->name, cap, sizeof(*n));
		if (!n)
			return fail(-ENOMEM, "cannot list %zu arrays", cap);
		ns->name = n;
		ns->cap = cap;
	}
	n = &ns->name[ns->n];
	n->is_string = is_string;
	if (arena_keep(&ns->arena, name, &n->name) < 0)
		return fail(-ENOMEM, "cannot list arrays");
	ns->n++;
	return 0;
}

static int add_key(void *arg, struct span key, uint64_t len)
{
	static const struct {
		const char *suffix;
		bool is_string;
	} kinds[] = { { ".zarray", false }, { "zarr.json", false }, { "_strings.json", true } };

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
			return kinds[i].is_string ? 0 : names_add(arg, name, false);
		if (name.p[name.n - 1] != '/')
			continue;
		name.n--;
		return names_add(arg, name, kinds[i].is_string);
	}
	return 0;
}

/* Releases since 0.4 store all texts as members of one file. */
static int add_strings(struct item *item, struct names *ns)
{
	int r = item_read_strings(item);

	for (size_t i = 0; item->strings && i < item->strings->n && r >= 0; i++)
		r = names_add(ns, item->strings->entries[i].name, true);
	return r;
}

/* An array is sorted before a string of the same name. */
static int by_name(const void *a, const void *b)
{
	const struct stored_name *x = a, *y = b;
	int c = span_cmp(x->name, y->name);

	return c ? c : x->is_string - y->is_string;
}

/*
 * Sort the names and remove duplicates. Listing has no order, and lists a name twice if it is
 * stored in both formats, or as a string too.
 */
static void names_sort(struct names *ns)
{
	size_t n = 0;

	qsort(ns->name, ns->n, sizeof(*ns->name), by_name);
	for (size_t i = 0; i < ns->n; i++)
		if (n == 0 || !span_eq(ns->name[n - 1].name, ns->name[i].name))
			ns->name[n++] = ns->name[i];
	ns->n = n;
}

static int tree_of_names(struct item *item)
{
	auto_names ns = { .arena.metered = true };
	auto_free struct span *name = NULL;
	auto_free bool *is_string = NULL;
	int r = kv_list(item->kv, span_of(NULL, 0), add_key, &ns);

	/* Databases of 0.3.x have their strings in directories beside them. */
	if (r >= 0 && item->dirs)
		r = kv_list(item->dirs, span_of(NULL, 0), add_key, &ns);
	if (r >= 0)
		r = add_strings(item, &ns);
	if (r < 0)
		return r;
	if (ns.n == 0)
		return fail(-EUCLEAN, "item '%s' has no _METADATA and no arrays", item->path);
	names_sort(&ns);
	name = calloc(ns.n, sizeof(*name));
	is_string = calloc(ns.n, sizeof(*is_string));
	if (!name || !is_string)
		return fail(-ENOMEM, "cannot list %zu arrays", ns.n);
	for (size_t i = 0; i < ns.n; i++) {
		name[i] = ns.name[i].name;
		is_string[i] = ns.name[i].is_string;
	}
	return tree_from_names(name, is_string, ns.n, &item->tree);
}

/* ---- a tree from an aggregate file alone ---- */

/* Returns 1 when the text of a leaf is in a strings file, else 0. */
static int is_string(struct item *item, const struct tree_node *leaf)
{
	auto_buf path = { .metered = true };
	struct stat st;
	int r;

	if (item->strings && strings_find(item->strings, leaf->param))
		return 1;
	if (io_path_check(leaf->param, "leaf") < 0) {
		err_clear();
		return 0;
	}
	r = buf_addf(&path, "%.*s/_strings.json", SPAN_ARG(leaf->param));
	if (r < 0 || !buf_str(&path))
		return fail(-ENOMEM, "cannot look for '%.*s'", SPAN_ARG(leaf->param));
	r = io_stat(item->dir, buf_str(&path), &st);
	err_clear();
	return r >= 0 && S_ISREG(st.st_mode);
}

/*
 * Find the leaves that are strings: the aggregate file has a placeholder for each value stored
 * elsewhere, without its type.
 */
static int find_strings(struct item *item)
{
	int r = item_read_strings(item);

	for (uint32_t i = 0; i < item->tree->n_nodes && r >= 0; i++) {
		struct tree_node *t = item->tree->nodes[i];

		if (t->kind != TREE_LEAF || t->value != TREE_VALUE_STORED || t->value_type.n)
			continue;
		r = is_string(item, t);
		if (r > 0)
			t->value_type = span_str("string");
	}
	return r;
}

/* ---- all sources of a tree ---- */

int item_read_file(struct item *item, const char *name)
{
	int r = open_aggregate(item, name);

	if (r == 0)
		return fail(-ENOENT, "'%s' went away", name);
	item->is_aggregate = true;
	return r < 0 ? r : tree_parse_aggregate(item->aggregate_text.text, name, &item->tree);
}

static int read_metadata(struct item *item, struct span text, bool has_aggregate)
{
	int r = tree_parse_metadata(text, "'_METADATA'", &item->tree);

	if (r >= 0 && has_aggregate)
		r = tree_merge_aggregate(item->tree, item->aggregate_text.text, "aggregate file");
	return r;
}

int item_read_tree(struct item *item)
{
	auto_document text = { 0 };
	int aggregate,
		r = document_read(item->ckpt, item->dir, "_METADATA", LIMIT_JSON_BYTES, &text);
	bool has_metadata = r >= 0;

	if (r < 0 && r != -ENOENT)
		return r;
	err_clear();
	aggregate = open_aggregate(item, item->ckpt->opts.aggregate_filename);
	if (aggregate < 0)
		return aggregate;
	if (has_metadata)
		return read_metadata(item, text.text, aggregate);
	if (!aggregate)
		return tree_of_names(item);
	item->is_aggregate = true;
	r = tree_parse_aggregate(item->aggregate_text.text, "aggregate file", &item->tree);
	return r < 0 ? r : find_strings(item);
}
