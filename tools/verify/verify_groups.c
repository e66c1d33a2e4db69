/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_groups.c - checks a hierarchy of zarr groups: the metadata of groups, and that everything
 * in it belongs to an array or a group.
 *
 * A consolidated copy of all metadata in a group is what zarr-python reads: an array that is named
 * there only is shown with its fill value in place of what was lost, and one whose shape or type
 * differs there is read wrongly.
 */
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/path.h"
#include "core/step/consolidated.h"
#include "core/step/item_others.h"
#include "tools/verify/verify.h"

#define OTHERS_MOST 100 /* directories that are reported */

struct groups {
	struct verify *v;
	const char *path; /* of the item, below SOURCE */
	const struct verify_tree *t;
	struct buf docs;   /* keys of documents of groups, each followed by a NUL */
	struct buf others; /* directories without an array, each followed by a NUL */
	struct span *group;
	size_t n_groups;
	unsigned n_others;
};

static void groups_release(struct groups *g)
{
	buf_release(&g->docs);
	buf_release(&g->others);
	free(g->group);
}

static int groups_add_text(struct buf *to, struct span text)
{
	int r = buf_add_span(to, text);

	return r < 0 ? r : buf_add_byte(to, '\0');
}

/* The part of a key before its last name: "" for a key without a slash. */
static struct span groups_dir_of(struct span key)
{
	const uint8_t *slash = memrchr(key.p, '/', key.n);

	return span_of(key.p, slash ? (size_t)(slash - key.p) : 0);
}

static struct span groups_file_of(struct span key)
{
	struct span dir = groups_dir_of(key);

	return span_from(key, dir.n + (dir.n < key.n && key.p[dir.n] == '/'));
}

static void groups_say(struct groups *g, const char *key, const char *text)
{
	auto_free char *file = verify_join(g->path, key);

	verify_file(g->v, 2, file, "%s", text);
}

/* ---- keys ---- */

static bool is_document(struct span file)
{
	static const char *const names[] = { "zarr.json", ".zgroup", ".zattrs", ".zmetadata" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (span_eq(file, span_str(names[i])))
			return true;
	return false;
}

static int see_key(void *arg, struct span key, uint64_t len)
{
	struct groups *g = arg;
	struct span dir = groups_dir_of(key), file = groups_file_of(key);
	const char *last = NULL;

	if (is_document(file) &&
	    !(verify_is_param(g->t, dir) && span_eq(file, span_str("zarr.json"))))
		return groups_add_text(&g->docs, key);
	/* Files of other programs beside the groups at the top are like any beside an item. */
	if (!dir.n || key.p[0] == '.' || verify_has_owner(g->t, key, 0))
		return 0;
	/* Most directories have more than one file, which are listed together. */
	for (const char *at = NULL; (at = buf_next_text(&g->others, at));)
		last = at;
	if (g->n_others >= OTHERS_MOST || (last && span_eq(span_str(last), dir)))
		return 0;
	g->n_others++;
	return groups_add_text(&g->others, dir);
}

/* A file of an item whose arrays are in a database. */
static int see_file(void *arg, struct span key, uint64_t len)
{
	return groups_dir_of(key).n && item_is_own_name(path_first(key)) ? 0 :
									   see_key(arg, key, len);
}

/* ---- documents of groups ---- */

/* Returns 1, or 0 when it is not there. */
static int groups_read(const struct groups *g, struct span key, struct json_doc *ret)
{
	const struct item *item = g->t->item;
	auto_buf text = { 0 };
	int r = kv_get_all(item->kv, key, LIMIT_JSON_BYTES, &text);

	if (r == 0 && item->dirs)
		r = kv_get_all(item->dirs, key, LIMIT_JSON_BYTES, &text);
	if (r <= 0)
		return r;
	r = json_parse(buf_span(&text), "the metadata of a group", ret);
	return r < 0 ? r : 1;
}

struct copy_check {
	struct groups *g;
	const char *key; /* of the document with the consolidated metadata */
};

/* The shape, types and chunks that two documents of an array or a group give are the same. */
static int compare_copy(const struct copy_check *c, const char *name, const struct json *own,
			const struct json *copy)
{
	static const char *const members[] = { "node_type", "shape", "chunks", "dtype",
					       "data_type" };

	for (size_t i = 0; i < ARRAY_LEN(members); i++) {
		const struct json *a = json_member(own, members[i]);
		const struct json *b = json_member(copy, members[i]);
		auto_buf mine = { 0 }, other = { 0 }, text = { 0 };
		int r = a ? json_print(&mine, a, JSON_COMPACT) : 0;

		if (r >= 0 && b)
			r = json_print(&other, b, JSON_COMPACT);
		if (r < 0)
			return r;
		if (span_eq(buf_span(&mine), buf_span(&other)))
			continue;
		r = buf_addf(&text, "'%s' of '%s' is %.*s here, and %.*s in its own metadata",
			     members[i], name, SPAN_ARG(buf_span(&other)),
			     SPAN_ARG(buf_span(&mine)));
		if (r < 0 || !buf_str(&text))
			return -ENOMEM;
		groups_say(c->g, c->key, buf_str(&text));
	}
	return 0;
}

/* Check an array or a group of consolidated metadata. Lost arrays are found at their leaves. */
static int check_copy(void *arg, struct span name, bool is_array, const struct json *copy)
{
	const struct copy_check *c = arg;
	struct span top = groups_dir_of(span_str(c->key));
	const char *file = json_member(copy, "node_type") ? "zarr.json" :
			   is_array                       ? ".zarray" :
							    ".zgroup";
	auto_buf path = { 0 }, key = { 0 }, text = { 0 };
	auto_json own = { 0 };
	int r = buf_addf(&path, "%.*s%s%.*s", SPAN_ARG(top), top.n && name.n ? "/" : "",
			 SPAN_ARG(name));

	if (r < 0 || !name.n)
		return r;
	r = buf_addf(&key, "%.*s/%s", SPAN_ARG(buf_span(&path)), file);
	if (r < 0 || !buf_str(&path))
		return -ENOMEM;
	r = groups_read(c->g, buf_span(&key), &own);
	/* Damage is found where the document is read. */
	if (r < 0 && r != -ENOMEM) {
		err_clear();
		return 0;
	}
	if (r != 0 || is_array)
		return r <= 0 ? r : compare_copy(c, buf_str(&path), own.root, copy);
	r = buf_addf(&text, "group '%s' is named, and is not there", buf_str(&path));
	if (r < 0 || !buf_str(&text))
		return -ENOMEM;
	groups_say(c->g, c->key, buf_str(&text));
	return 0;
}

static int check_format(const struct json *root, struct span file)
{
	int64_t format = 0, wanted = span_eq(file, span_str("zarr.json")) ? 3 : 2;
	struct span type = { 0 };
	int r = json_is(root, JSON_OBJECT) ? 0 : fail(-EUCLEAN, "it is not an object");

	if (r < 0 || span_eq(file, span_str(".zattrs")) || span_eq(file, span_str(".zmetadata")))
		return r;
	r = json_get_int(root, "zarr_format", "the group", &format);
	if (r < 0)
		return r;
	if (format != wanted)
		return fail(-EUCLEAN, "'zarr_format' is %lld, not %lld", (long long)format,
			    (long long)wanted);
	if (wanted == 3)
		r = json_get_str(root, "node_type", "the group", &type);
	if (r < 0)
		return r;
	if (wanted == 3 && !span_eq(type, span_str("group")))
		return fail(-EUCLEAN, "'node_type' is '%.*s', not 'group'", SPAN_ARG(type));
	return MIN(r, 0);
}

static int check_document(struct groups *g, const char *key)
{
	struct copy_check copies = { g, key };
	auto_json doc = { 0 };
	int r = groups_read(g, span_str(key), &doc);

	if (r >= 0)
		r = check_format(doc.root, groups_file_of(span_str(key)));
	if (r >= 0 && g->v->level >= 2 && !span_ends(span_str(key), span_str(".zattrs")))
		r = consolidated_each(doc.root, check_copy, &copies);
	if (r < 0) {
		auto_free char *file = verify_join(g->path, key);

		return verify_failed(g->v, file, r);
	}
	return 0;
}

/* ---- what belongs to nothing ---- */

static int groups_by_span(const void *a, const void *b)
{
	return span_cmp(*(const struct span *)a, *(const struct span *)b);
}

static int list_groups(struct groups *g)
{
	size_t n = 0;

	for (const char *at = NULL; (at = buf_next_text(&g->docs, at));)
		n++;
	g->group = calloc(n + 1, sizeof(*g->group));
	if (!g->group)
		return fail(-ENOMEM, "cannot list %zu groups", n);
	for (const char *at = NULL; (at = buf_next_text(&g->docs, at));) {
		struct span file = groups_file_of(span_str(at));

		if (span_eq(file, span_str("zarr.json")) || span_eq(file, span_str(".zgroup")))
			g->group[g->n_groups++] = groups_dir_of(span_str(at));
	}
	qsort(g->group, g->n_groups, sizeof(*g->group), groups_by_span);
	return 0;
}

static bool groups_is_group(const struct groups *g, struct span dir)
{
	return g->n_groups && bsearch(&dir, g->group, g->n_groups, sizeof(dir), groups_by_span);
}

int verify_groups(struct verify *v, const char *path, const struct verify_tree *t)
{
	__attribute__((cleanup(groups_release))) struct groups g = { v, path, t };
	const struct item *item = t->item;
	int r = kv_list(item->kv, span_of(NULL, 0), see_key, &g);

	if (r < 0)
		return r;
	if (item->dirs)
		r = kv_list(item->dirs, span_of(NULL, 0), see_file, &g);
	for (const char *at = NULL; r >= 0 && (at = buf_next_text(&g.docs, at));)
		r = check_document(&g, at);
	if (r < 0 || v->level < 2)
		return r;
	r = list_groups(&g);
	if (r < 0)
		return r;
	for (const char *at = NULL; (at = buf_next_text(&g.docs, at));) {
		struct span dir = groups_dir_of(span_str(at));

		if (span_eq(groups_file_of(span_str(at)), span_str(".zattrs")) &&
		    !verify_is_param(t, dir) && !groups_is_group(&g, dir))
			groups_say(&g, at, "attributes of no array and no group");
	}
	for (const char *at = NULL; (at = buf_next_text(&g.others, at));) {
		/* A file of another program in a group is not part of the hierarchy. */
		if (!groups_is_group(&g, span_str(at)))
			groups_say(&g, at, "files of no array: the metadata of one is not there");
	}
	return 0;
}
