/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_groups.c - the groups of a zarr hierarchy among the names of an item, and what consolidated
 * metadata name.
 */
#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/step/consolidated.h"
#include "core/step/item_names.h"

/* ---- consolidated metadata ---- */

static int add_unlisted(void *arg, struct span name, bool is_array, const struct json *doc)
{
	struct names *ns = arg;
	bool is_v3 = json_is(json_member(doc, "node_type"), JSON_STRING);

	/* Its own metadata need not be read to learn that it is not a group. */
	return is_v3 && !name.n ? 0 :
				  item_names_add(ns, name,
						 !is_array ? AS_GROUP :
						 is_v3     ? AS_NODE | AS_CHUNKS :
							     AS_ARRAY);
}

int item_names_of_copies(struct item *item, struct names *ns)
{
	static const char *const files[] = { "zarr.json", ".zmetadata" };

	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		auto_buf text = { .metered = true };
		auto_json doc = { 0 };
		int r = item_names_read_key(item, span_of(NULL, 0), files[i], &text);

		if (r == 0)
			continue;
		if (r >= 0)
			r = json_parse(buf_span(&text), "consolidated metadata", &doc);
		if (r >= 0)
			r = consolidated_each(doc.root, add_unlisted, ns);
		if (r != 0)
			return r < 0 ? err_at(r, "'%s'", files[i]) : r;
	}
	return 0;
}

/* ---- groups ---- */

/* Whether an array or a group is below that name. Returns 1 or 0. */
static int has_below(const struct names *ns, struct span name)
{
	size_t from = 0, to = ns->n;
	auto_buf prefix = { 0 };

	if (buf_addf(&prefix, "%.*s%s", SPAN_ARG(name), name.n ? "/" : "") < 0)
		return fail(-ENOMEM, "cannot list arrays");
	while (from < to) {
		size_t mid = from + (to - from) / 2;

		if (span_cmp(ns->name[mid].name, buf_span(&prefix)) < 0)
			from = mid + 1;
		else
			to = mid;
	}
	for (; from < ns->n && span_starts(ns->name[from].name, buf_span(&prefix)); from++)
		if (ns->name[from].name.n &&
		    (ns->name[from].as & ~(unsigned)(AS_CHUNKS | AS_COPIES)))
			return 1;
	return 0;
}

struct in_group {
	struct names *ns;
	size_t at;       /* the group */
	size_t n_sorted; /* names that were listed */
};

/* Add an array or a group that was not listed. */
static int add_lost(void *arg, struct span name, bool is_array, const struct json *doc)
{
	const struct in_group *g = arg;
	struct names *ns = g->ns;
	const struct stored_name *group = &ns->name[g->at];
	size_t n_dir = group->dir ? strlen(group->dir) + 1 : 0;
	auto_buf below = { .metered = true }, whole = { .metered = true };
	struct stored_name key = { 0 }, *listed;
	int r = buf_addf(&whole, "%.*s%s%.*s", SPAN_ARG(group->name),
			 group->name.n && name.n ? "/" : "", SPAN_ARG(name));

	if (r < 0 || !name.n)
		return r;
	key.name = buf_span(&whole);
	listed = bsearch(&key, ns->name, g->n_sorted, sizeof(key), item_names_by_name);
	if (listed && (listed->as & ~(unsigned)(AS_CHUNKS | AS_COPIES)))
		return 0;
	ns->dir = group->dir;
	r = item_names_add(ns, span_from(key.name, n_dir), is_array ? AS_NAMED : AS_GROUP);
	ns->dir = NULL;
	return r;
}

/* Add what the consolidated metadata in a document of a group name, and is not stored. */
static int add_copies(struct names *ns, size_t at, size_t n_sorted, const struct json *root)
{
	struct in_group g = { ns, at, n_sorted };
	int r = consolidated_each(root, add_lost, &g);

	return r < 0 ? err_at(r, "the consolidated metadata of the group '%.*s'",
			      SPAN_ARG(ns->name[at].name)) :
		       0;
}

/*
 * Whether `zarr.json` is that of a group, whose consolidated metadata are looked at. If it cannot
 * be understood, it is if there is something below; else it is an array, whose error it will be.
 */
static int is_group(struct item *item, struct names *ns, size_t at, size_t n_sorted)
{
	const struct stored_name *s = &ns->name[at];
	auto_buf text = { .metered = true };
	auto_json doc = { 0 };
	const struct json *type;
	int below = has_below(ns, s->name), r;

	if (below < 0 || (!below && (s->as & AS_CHUNKS)))
		return below;
	r = item_names_read_key(item, s->name, "zarr.json", &text);
	if (r >= 0)
		r = json_parse(buf_span(&text), "'zarr.json'", &doc);
	if (err_is_transient(r))
		return r;
	if (r < 0 && below)
		log_warn("item '%s': the metadata of the group '%.*s': %s", item->path,
			 SPAN_ARG(s->name), err_text(r));
	err_clear();
	type = json_member(doc.root, "node_type");
	if (!json_is(type, JSON_STRING))
		return below;
	if (!span_eq(type->s, span_str("group")))
		return 0;
	r = add_copies(ns, at, n_sorted, doc.root);
	return r < 0 ? r : 1;
}

/* The same for `.zmetadata`. */
static int read_copies(struct item *item, struct names *ns, size_t at, size_t n_sorted)
{
	auto_buf text = { .metered = true };
	auto_json doc = { 0 };
	struct span group = ns->name[at].name;
	int r = item_names_read_key(item, group, ".zmetadata", &text);

	if (r >= 0)
		r = json_parse(buf_span(&text), "'.zmetadata'", &doc);
	if (err_is_transient(r))
		return r;
	if (r >= 0)
		return add_copies(ns, at, n_sorted, doc.root);
	/* The arrays have metadata of their own. */
	log_warn("item '%s': the consolidated metadata of the group '%.*s': %s", item->path,
		 SPAN_ARG(group), err_text(r));
	err_clear();
	return 0;
}

int item_names_find_groups(struct item *item, struct names *ns)
{
	size_t n = ns->n;

	for (size_t i = 0; i < n; i++) {
		unsigned as = ns->name[i].as;
		int r = as & AS_NODE ? is_group(item, ns, i, n) : 0;

		if (r > 0)
			ns->name[i].as = (as & ~(unsigned)AS_NODE) | AS_GROUP;
		if (r >= 0 && as & AS_COPIES)
			r = read_copies(item, ns, i, n);
		if (r < 0)
			return r;
		ns->has_groups |= (ns->name[i].as & AS_GROUP) != 0;
	}
	return ns->n > n ? item_names_sort(ns) : 0;
}
