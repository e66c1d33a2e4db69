/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_table_json.c - the table of leaves as one JSON document.
 *
 * Containers are objects with "entries"; leaves are objects with their dtype, shape and sizes; each
 * is on a line of its own. Sums are printed before the entries that they cover, so they are
 * computed first.
 */
#include "core/base/err.h"
#include "core/base/json.h"
#include "core/step/item_others.h"
#include "handlers/subtree/leaf_table.h"

struct printing {
	const struct leaf_table *s;
	leaf_table_more_fn *more;
	void *arg;
	struct buf *out;
	const struct subtree_part *part;
	size_t at, end; /* the next leaf to print, and the end of the part */
	/* prefix sums over the leaves */
	uint64_t *bytes, *stored;
};

static void printing_release(struct printing *p)
{
	free(p->bytes);
	free(p->stored);
}

static void put_text(struct printing *p, const char *name, struct span text)
{
	buf_addf(p->out, ", \"%s\": ", name);
	json_put_str(p->out, text, JSON_COMPACT);
}

/*
 * Append JSON that the checkpoint has, if it parses. It is printed anew, since a strict reader
 * might refuse its spelling.
 */
static int put_json(struct printing *p, const char *name, struct span json)
{
	auto_json doc = { 0 };
	int r = json_parse(json, name, &doc);

	if (r < 0) {
		err_clear();
		return r == -ENOMEM ? r : 0;
	}
	buf_addf(p->out, ", \"%s\": ", name);
	return json_print(p->out, doc.root, JSON_COMPACT);
}

static void put_sizes(struct printing *p, const char *name, const uint64_t *sizes, unsigned n)
{
	buf_addf(p->out, ", \"%s\": ", name);
	json_put_uints(p->out, sizes, n, JSON_PYTHON);
}

static void put_sums(struct printing *p, size_t from, size_t to)
{
	buf_addf(p->out, ", \"leaf_count\": %zu, \"bytes\": %llu, \"stored_bytes\": %llu",
		 to - from, (unsigned long long)(p->bytes[to] - p->bytes[from]),
		 (unsigned long long)(p->stored[to] - p->stored[from]));
}

/*
 * Append {"name": ..., "key": ..., "kind": ... An error, also of what was added before, ends the
 * document.
 */
static int leaf_table_json_begin(struct printing *p, struct span name, const struct span *key,
				 const char *kind)
{
	if (p->out->n > LIMIT_VIEW_TEXT)
		return fail(-EFBIG, "the description has more than %llu bytes",
			    (unsigned long long)LIMIT_VIEW_TEXT);
	buf_add_str(p->out, "{\"name\": ");
	json_put_str(p->out, name, JSON_COMPACT);
	if (key)
		put_text(p, "key", *key);
	buf_addf(p->out, ", \"kind\": \"%s\"", kind);
	return buf_failed(p->out);
}

static const char *leaf_table_json_kind_of(const struct leaf_info *f)
{
	switch (f->kind) {
	case VALUE_ARRAY:
		return f->is_scalar ? "scalar" : "array";
	case VALUE_TEXT:
		return "string";
	case VALUE_NONE:
		return f->leaf->value == TREE_VALUE_PLACEHOLDER ? "placeholder" : "none";
	case VALUE_FILE:
		return "file";
	case VALUE_UNKNOWN:
		break;
	}
	return "unknown";
}

static int leaf_table_json_put_leaf(struct printing *p, const struct leaf_info *f, struct span name)
{
	bool is_array = f->kind == VALUE_ARRAY;
	struct span sharding;
	int r = leaf_table_json_begin(p, name, &f->leaf->key, leaf_table_json_kind_of(f));

	if (r < 0)
		return r;
	if (f->leaf->value_type.n)
		put_text(p, "typestr", f->leaf->value_type);
	if (is_array) {
		buf_addf(p->out, ", \"dtype\": \"%s\"", dtype_info(f->array.dtype)->name);
		put_sizes(p, "shape", f->array.shape, f->array.rank);
		put_sizes(p, "chunks", f->chunk, f->array.rank);
		buf_addf(p->out, ", \"codecs\": %s", f->codecs);
	}
	if (is_array || f->kind == VALUE_TEXT || f->kind == VALUE_FILE)
		buf_addf(p->out, ", \"bytes\": %llu, \"stored_bytes\": %llu",
			 (unsigned long long)f->bytes, (unsigned long long)f->stored);
	if (item_sharding(p->part->item, f->leaf, &sharding) == 1)
		r = put_json(p, "sharding", sharding);
	if (r < 0)
		return r;
	if (f->why)
		put_text(p, "error", span_str(f->why));
	if (p->more)
		r = p->more(p->arg, f, p->out);
	return r < 0 ? r : buf_add_byte(p->out, '}');
}

static size_t leaves_before(const struct printing *p, uint32_t id)
{
	size_t lo = p->at, hi = p->end;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (p->s->leaf[mid].leaf->id < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct printing_others {
	struct printing *p;
	bool any; /* an entry was printed before */
};

static int put_other(void *arg, const char *name, unsigned char type)
{
	struct printing_others *o = arg;
	int r;

	buf_add_str(o->p->out, o->any ? ",\n" : "\n");
	o->any = true;
	r = leaf_table_json_begin(o->p, span_str(name), NULL, "files");
	return r < 0 ? r : buf_add_byte(o->p->out, '}');
}

/* The recursion is as deep as the tree, at most LIMIT_TREE_DEPTH. */
static int leaf_table_json_put_node(struct printing *p, const struct tree_node *t, struct span name)
{
	struct item *item = p->part->item;
	bool whole_item = t == item->tree->root;
	struct printing_others others = { p, t->kind != TREE_LEAF && t->n_children };
	int r;

	if (t->kind == TREE_LEAF)
		return leaf_table_json_put_leaf(p, &p->s->leaf[p->at++], name);
	r = leaf_table_json_begin(p, name, t->parent ? &t->key : NULL, tree_kind_text(t->kind));
	if (r < 0)
		return r;
	put_sums(p, p->at, leaves_before(p, subtree_end(t)));
	if (whole_item) {
		buf_addf(p->out, ", \"store\": \"%s\"",
			 item->is_aggregate     ? "aggregate" :
			 item_is_database(item) ? "ocdbt" :
						  "directories");
		if (item->is_unmerged)
			buf_add_str(p->out, ", \"state\": \"unmerged\"");
		if (item->tree->custom_metadata)
			r = put_json(p, "custom_metadata", span_str(item->tree->custom_metadata));
	}
	buf_add_str(p->out, ", \"entries\": [");
	for (uint32_t i = 0; i < t->n_children && r >= 0; i++) {
		buf_add_str(p->out, i ? ",\n" : "\n");
		r = leaf_table_json_put_node(p, t->children[i], t->children[i]->name);
	}
	if (r < 0)
		return r;
	if (whole_item)
		r = item_each_other(item, put_other, &others);
	return r < 0 ? r : buf_add_str(p->out, "]}");
}

static int leaf_table_json_put_part(struct printing *p, const struct subtree_part *part,
				    struct span name)
{
	int r;

	p->part = part;
	if (part->kind == PART_TREE) {
		p->end = p->at;
		while (p->end < p->s->n && p->s->leaf[p->end].part == part)
			p->end++;
		return leaf_table_json_put_node(p, part->tree, name);
	}
	r = leaf_table_json_begin(p, name, NULL, part->kind == PART_FILES ? "files" : "unknown");
	if (r < 0)
		return r;
	if (part->note)
		put_text(p, "error", span_str(part->note->text));
	return buf_add_byte(p->out, '}');
}

static int put_step(struct printing *p, const char *name)
{
	const struct subtree *st = p->s->subtree;
	struct printing_others others = { p, st->n > 0 };
	int r = leaf_table_json_begin(p, span_str(name), NULL, "step");

	if (r < 0)
		return r;
	put_sums(p, 0, p->s->n);
	buf_add_str(p->out, ", \"entries\": [");
	for (size_t i = 0; i < st->n && r >= 0; i++) {
		buf_add_str(p->out, i ? ",\n" : "\n");
		r = leaf_table_json_put_part(p, &st->part[i], span_str(st->part[i].path));
	}
	for (size_t i = 0; i < st->n_others && r >= 0; i++)
		r = put_other(&others, st->other[i].path, st->other[i].type);
	return r < 0 ? r : buf_add_str(p->out, "]}");
}

int leaf_table_json(const struct leaf_table *s, const char *name, leaf_table_more_fn *more,
		    void *arg, struct buf *ret)
{
	__attribute__((cleanup(printing_release))) struct printing p = { .s = s,
									 .more = more,
									 .arg = arg };
	const struct subtree *st = s->subtree;
	auto_buf out = { .metered = true };
	int r;

	p.out = &out;
	p.bytes = calloc(s->n + 1, sizeof(*p.bytes));
	p.stored = calloc(s->n + 1, sizeof(*p.stored));
	if (!p.bytes || !p.stored)
		return fail(-ENOMEM, "cannot sum up %zu leaves", s->n);
	for (size_t i = 0; i < s->n; i++) {
		p.bytes[i + 1] = p.bytes[i] + s->leaf[i].bytes;
		p.stored[i + 1] = p.stored[i] + s->leaf[i].stored;
	}
	if (st->n == 1 && !*st->part[0].path)
		r = leaf_table_json_put_part(&p, &st->part[0], span_str(name));
	else
		r = put_step(&p, name);
	buf_add_byte(&out, '\n');
	if (r >= 0)
		r = buf_failed(&out);
	if (r < 0)
		return r;
	if (!ret->p) {
		*ret = out;
		out = (struct buf){ 0 };
		return 0;
	}
	return buf_add_span(ret, buf_span(&out));
}
