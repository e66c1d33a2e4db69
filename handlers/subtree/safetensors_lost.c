/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_lost.c - describes the parts of a tree that a safetensors file cannot hold.
 *
 * The format has names and tensors. None is left out, strings go into `__metadata__`, lists and
 * tuples become names with numbers, and a key that contains the separator reads as two keys.
 */
#include "handlers/subtree/safetensors_lost.h"

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/tree/tree_tensors.h"

#define NAMED_MAX 3 /* examples of each kind in the message */

/* One kind of loss, with examples. */
struct loss {
	unsigned n;
	struct buf names;
};

static int lose(struct loss *l, struct span path)
{
	int r = 0;

	if (l->n++ < NAMED_MAX)
		r = buf_addf(&l->names, "%s'%.*s'", l->n > 1 ? ", " : "", SPAN_ARG(path));
	return r;
}

/* Append "2 strings ('a', 'b') in __metadata__". Does nothing after a failure, which it returns. */
static int say(int r, struct buf *out, struct loss *l, const char *one, const char *many,
	       const char *what)
{
	if (r >= 0 && l->n)
		r = buf_addf(out, "%s%u %s (%.*s%s) %s", out->n ? "; " : "", l->n,
			     l->n == 1 ? one : many, SPAN_ARG(buf_span(&l->names)),
			     l->n > NAMED_MAX ? ", ..." : "", what);
	buf_release(&l->names);
	return r;
}

static bool has_separator(struct span key, const char *separator)
{
	return *separator && memmem(key.p, key.n, separator, strlen(separator));
}

struct losses {
	struct loss none, string, empty, sequence, key;
};

static int lose_node(struct losses *l, const struct subtree_part *part, const struct tree_node *t,
		     const char *separator)
{
	auto_buf path = { .metered = true };
	struct span at;
	int r = subtree_path(part, t, &path);

	if (r < 0)
		return r;
	at = t == part->tree && t->kind != TREE_LEAF ? span_str(*part->path ? part->path : ".") :
						       buf_span(&path);
	if (t->kind == TREE_LEAF && !subtree_is_leaf(t))
		r = lose(&l->none, at);
	else if (t->kind == TREE_LEAF && span_eq(t->value_type, span_str("string")))
		r = lose(&l->string, at);
	else if (t->kind != TREE_LEAF && !t->n_children)
		r = lose(&l->empty, at);
	else if (t->kind != TREE_LEAF && t->kind != TREE_DICT)
		r = lose(&l->sequence, at);
	return r < 0 || t == part->tree || !has_separator(t->key, separator) ? r :
									       lose(&l->key, at);
}

int safetensors_lost_out(const struct subtree *st, const char *separator, struct buf *ret)
{
	struct subtree_place at = { 0 };
	struct losses l = { 0 };
	int r = 0;

	while (r >= 0 && subtree_next(st, &at))
		r = lose_node(&l, at.part, at.node, separator);
	r = say(r, ret, &l.none, "None", "None", "left out");
	r = say(r, ret, &l.empty, "empty container", "empty containers", "left out");
	r = say(r, ret, &l.string, "string", "strings", "in __metadata__");
	r = say(r, ret, &l.sequence, "list, tuple or similar container",
		"lists, tuples and similar containers", "as names of their positions or fields");
	r = say(r, ret, &l.key, "key", "keys", "containing the separator");
	return r;
}

/* Whether the children's keys are the numbers 0 to n - 1, in any order. */
static bool looks_like_list(const struct tree_node *dir)
{
	uint64_t sum = 0;
	size_t n = 0;

	for (const struct tree_node *c = dir->first; c; c = c->next, n++) {
		uint64_t v = 0;

		for (size_t i = 0; i < c->key.n; i++) {
			if (c->key.p[i] < '0' || c->key.p[i] > '9' || c->key.n > 9)
				return false;
			v = v * 10 + (c->key.p[i] - '0');
		}
		if (!c->key.n || (c->key.n > 1 && c->key.p[0] == '0'))
			return false;
		sum += v;
	}
	/* The keys are distinct numbers, so the sum decides. */
	return n && sum == (uint64_t)n * (n - 1) / 2;
}

static int lists_below(const struct tree_node *dir, unsigned depth, struct loss *list)
{
	int r = dir->kind == TREE_DICT && looks_like_list(dir) ?
			lose(list, dir->key.n ? dir->key : span_str(".")) :
			0;

	for (const struct tree_node *c = dir->first; c && depth < LIMIT_TREE_DEPTH && r >= 0;
	     c = c->next)
		if (c->kind != TREE_LEAF)
			r = lists_below(c, depth + 1, list);
	return r;
}

int safetensors_lost_in(const struct tree_node *top, const struct safetensors *file,
			const char *separator, struct buf *ret)
{
	struct loss string = { 0 }, list = { 0 }, split = { 0 };
	auto_json doc = { 0 };
	int r = file->metadata ? json_parse(span_str(file->metadata), "__metadata__", &doc) : 0;

	for (size_t i = 0; r >= 0 && doc.root && i < doc.root->n; i++)
		if (!span_eq(doc.root->items[i].name, span_str("format")) &&
		    !span_eq(doc.root->items[i].name, span_str(TREE_MANIFEST_KEY)))
			r = lose(&string, doc.root->items[i].name);
	if (r >= 0)
		r = lists_below(top, 0, &list);
	for (size_t i = 0; i < file->n && r >= 0; i++)
		if (has_separator(file->tensor[i].name, separator))
			r = lose(&split, file->tensor[i].name);
	r = say(r, ret, &string, "text", "texts",
		"of __metadata__ became custom metadata, not strings of the tree");
	r = say(r, ret, &list, "container", "containers",
		"with the keys 0, 1, ... became dicts, not lists");
	r = say(r, ret, &split, "name", "names", "with the separator became nested dicts");
	return r;
}
