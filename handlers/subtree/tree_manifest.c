/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_manifest.c - prints the manifest of a tree: the JSON text that accompanies its arrays.
 */
#include "handlers/subtree/tree_manifest.h"

#include "core/base/err.h"
#include "core/tree/name.h"
#include "handlers/leaf/leaf.h"
#include "handlers/format/format.h"

#define WRITE_BYTES ((size_t)256 << 10) /* bytes that are written at once */

/* ---- printing ---- */

/* The place of a string leaf. */
struct text_place {
	const struct subtree_part *part;
	const struct tree_node *leaf;
};

struct printing {
	const struct tree_manifest_style *style;
	struct tree_manifest_only only;
	const struct tree_manifest_casts *casts;
	struct buf kinds, leaves, dtypes, marks, custom;
	struct buf texts; /* an array of struct text_place */

	tree_manifest_put_fn *put;
	void *arg;
	struct buf out; /* text that has not been written yet */
	bool is_first;  /* the object is still empty */
};

static void tree_manifest_printing_release(struct printing *p)
{
	buf_release(&p->kinds);
	buf_release(&p->leaves);
	buf_release(&p->dtypes);
	buf_release(&p->texts);
	buf_release(&p->marks);
	buf_release(&p->custom);
	buf_release(&p->out);
}

static bool is_chosen(const struct tree_manifest_only *only, const struct subtree_part *part,
		      const struct tree_node *leaf)
{
	return !only->choose || only->choose(only->arg, part, leaf);
}

/* Append "a": "b" to an object. */
static int add_pair(struct buf *out, struct span name, struct span value)
{
	json_put_member(out, name, JSON_PYTHON);
	json_put_str(out, value, JSON_PYTHON);
	return buf_failed(out);
}

int tree_manifest_key(const struct subtree_part *part, const struct tree_node *leaf,
		      const struct tree_manifest_style *style, struct buf *ret)
{
	int r;

	if (!style->is_path)
		return subtree_key(part, leaf, style->separator, ret);
	r = subtree_path(part, leaf, ret);
	if (r < 0)
		return r;
	ret->n -= strlen(name_ext_text(name_ext_of(buf_span(ret))));
	return r;
}

int tree_manifest_hidden_key(const struct tree_node *t, struct buf *ret)
{
	struct span stem = t->name;
	int r;

	if (t->kind == TREE_LEAF)
		stem.n -= strlen(name_ext_text(name_ext_of(stem)));
	if (!t->parent || !name_is_hashed(stem))
		return 0;
	r = tree_key_json(t, ret);
	return r < 0 ? r : 1;
}

bool tree_manifest_is_whole(const struct tree_manifest_only *only, const struct subtree_part *part,
			    const struct tree_node *t)
{
	for (uint32_t i = t->id; i < subtree_end(t) && only->choose; i++) {
		const struct tree_node *below = part->item->tree->nodes[i];

		if (below->kind == TREE_LEAF ? !is_chosen(only, part, below) :
					       only->is_part && !below->n_children)
			return false;
	}
	return true;
}

/*
 * Print properties that neither the name nor the bytes have: the key of a shortened name, the type
 * of a namedtuple, the implementation of a random key, and whether another array is JAX's.
 */
static int print_marks(struct printing *p, const struct subtree_part *part,
		       const struct tree_node *t, struct span path)
{
	auto_buf marks = { 0 }, key = { 0 }, type = { 0 };
	struct span impl;
	int r = t == part->tree ? 0 : tree_manifest_hidden_key(t, &key);

	if (r == 1)
		r = buf_addf(&marks, "\"key\": %.*s", SPAN_ARG(buf_span(&key)));
	if (r < 0)
		return r;
	/*
	 * The type of a namedtuple, or the order of a dict, which is also that of a part of it; of
	 * others only of a container that is exported completely.
	 */
	if (t->kind == TREE_DICT ||
	    (t->kind != TREE_LEAF && tree_manifest_is_whole(&p->only, part, t)))
		r = tree_namedtuple_json(t, &type);
	if (r < 0 && r != -ENODATA)
		return r;
	if (r == -ENODATA)
		err_clear();
	else if (type.n)
		buf_addf(&marks, "%s\"namedtuple\": %.*s", marks.n ? ", " : "",
			 SPAN_ARG(buf_span(&type)));
	r = 0;
	if (subtree_is_leaf(t))
		r = item_prng_impl(part->item, t, &impl);
	if (r < 0)
		return r;
	if (r == 1)
		r = add_pair(&marks, span_str("prng_impl"), impl);
	else if (span_eq(t->value_type, span_str(JAX_ARRAY)) && leaf_ext(NULL, t) == NAME_EXT_NPY)
		r = add_pair(&marks, span_str("typestr"), t->value_type);
	r = r < 0 ? r : buf_failed(&marks);
	if (r < 0 || !marks.n)
		return r;
	json_put_member(&p->marks, path, JSON_PYTHON);
	buf_addf(&p->marks, "{%.*s}", SPAN_ARG(buf_span(&marks)));
	return buf_failed(&p->marks);
}

/* Whether a container is in the output: not if none of its leaves is. */
static bool tree_manifest_is_there(const struct printing *p, const struct subtree_part *part,
				   const struct tree_node *t)
{
	for (uint32_t i = t->id; i < subtree_end(t) && p->only.is_part; i++) {
		const struct tree_node *below = part->item->tree->nodes[i];

		if (below->kind == TREE_LEAF && is_chosen(&p->only, part, below))
			return true;
	}
	return !p->only.is_part;
}

static int print_container(struct printing *p, const struct subtree_part *part,
			   const struct tree_node *t)
{
	auto_buf path = { 0 };
	int r = 0;

	if (t == part->tree)
		r = buf_add_str(&path, part->path);
	else
		r = subtree_path(part, t, &path);
	if (r < 0)
		return r;
	r = print_marks(p, part, t, buf_span(&path));
	if (r < 0 || (t->kind == TREE_DICT && t->n_children) ||
	    !tree_manifest_is_whole(&p->only, part, t))
		return r;
	return add_pair(&p->kinds, buf_span(&path), span_str(tree_kind_text(t->kind)));
}

int tree_manifest_cast(struct item *item, const struct tree_node *leaf, bool is_scalar,
		       const struct tree_manifest_casts *casts, enum dtype *dtype)
{
	if (casts->cast == DTYPE_UNKNOWN || (is_scalar && !casts->numbers) ||
	    dtype_info(*dtype)->kind != DTYPE_KIND_FLOAT)
		return leaf_restored_dtype(item, leaf, casts->restore, is_scalar, dtype);
	*dtype = casts->cast;
	return 0;
}

static int print_dtype(struct printing *p, struct item *item, const struct tree_node *t,
		       struct span path, const struct value *v)
{
	enum dtype dtype = v->array->meta.dtype;
	int r = tree_manifest_cast(item, t, v->is_scalar, p->casts, &dtype);
	bool big;

	if (r < 0)
		return r;
	/* A dtype is printed for numbers, and for arrays whose .npy header cannot express it. */
	if (leaf_ext(NULL, t) == NAME_EXT_NPY &&
	    dtype_by_npy(span_str(dtype_info(dtype)->npy), &big) == dtype)
		return 0;
	return add_pair(&p->dtypes, path, span_str(dtype_info(dtype)->name));
}

/* Print the path of a leaf, unless it is the one that its key implies. */
static int print_path(struct printing *p, const struct subtree_part *part,
		      const struct tree_node *t, struct span path)
{
	auto_buf key = { 0 }, plain = { 0 };
	int r = tree_manifest_key(part, t, p->style, &key);

	if (r < 0)
		return r;
	r = tree_manifest_default_path(buf_span(&key),
				       p->style->is_path ? p->style : &style_safetensors, &plain);
	if (r < 0 || span_eq(path, buf_span(&plain)))
		return r;
	return add_pair(&p->leaves, buf_span(&key), path);
}

static int print_leaf(struct printing *p, const struct subtree_part *part,
		      const struct tree_node *t)
{
	auto_buf path = { 0 };
	auto_value v = { 0 };
	int r = subtree_path(part, t, &path);

	if (r < 0)
		return r;
	r = print_path(p, part, t, buf_span(&path));
	if (r < 0)
		return r;
	r = print_marks(p, part, t, buf_span(&path));
	if (r < 0)
		return r;
	r = leaf_open(part->item, t, &v);
	if (r < 0)
		return r;
	if (v.kind == VALUE_ARRAY)
		return print_dtype(p, part->item, t, buf_span(&path), &v);
	if (v.kind == VALUE_TEXT && p->style->texts)
		return buf_add(&p->texts, &(struct text_place){ part, t },
			       sizeof(struct text_place));
	return 0;
}

static int print_part(struct printing *p, const struct subtree_part *part)
{
	const char *custom = part->tree->parent ? NULL : part->item->tree->custom_metadata;
	uint32_t end = subtree_end(part->tree);
	int r = 0;

	if (custom) {
		json_put_member(&p->custom, span_str(part->path), JSON_PYTHON);
		r = buf_add_str(&p->custom, custom);
	}
	for (uint32_t i = part->tree->id; i < end && r >= 0; i++) {
		const struct tree_node *t = part->item->tree->nodes[i];

		if (t->kind != TREE_LEAF) {
			r = tree_manifest_is_there(p, part, t) ? print_container(p, part, t) : 0;
		} else if (is_chosen(&p->only, part, t)) {
			r = print_leaf(p, part, t);
			if (r < 0)
				return err_at(r, "leaf '%.*s'", SPAN_ARG(t->param));
		}
	}
	return r;
}

/* ---- output ---- */

static int put_out(struct printing *p)
{
	int r = buf_failed(&p->out);

	if (r < 0)
		return r;
	r = p->put(p->arg, buf_span(&p->out));
	buf_clear(&p->out);
	return r;
}

static int put_span(struct printing *p, struct span text)
{
	int r = 0;

	while (text.n && r >= 0) {
		size_t n = MIN(text.n, WRITE_BYTES);

		buf_add(&p->out, text.p, n);
		if (p->out.n >= WRITE_BYTES)
			r = put_out(p);
		text = span_from(text, n);
	}
	return r;
}

static int put_object(struct printing *p, const char *name, struct buf *members)
{
	int r = buf_failed(members);

	if (r < 0 || !members->n)
		return r;
	buf_addf(&p->out, "%s\"%s\": {", p->is_first ? "" : ", ", name);
	p->is_first = false;
	r = put_span(p, buf_span(members));
	buf_release(members);
	buf_add_byte(&p->out, '}');
	return r;
}

/* Print a JSON string, after what is before it. */
static int put_string(struct printing *p, const char *before, struct span text)
{
	int r = 0;

	buf_addf(&p->out, "%s\"", before);
	while (text.n && r >= 0) {
		auto_buf piece = { 0 };
		size_t n = MIN(text.n, WRITE_BYTES);

		/* No UTF-8 sequence is split. */
		for (int i = 0; i < 3 && n < text.n && (text.p[n] & 0xc0) == 0x80; i++)
			n--;
		r = json_put_str(&piece, span_of(text.p, n), JSON_PYTHON);
		if (r < 0)
			return r;
		r = put_span(p, span_of(piece.p + 1, piece.n - 2));
		text = span_from(text, n);
	}
	buf_add_byte(&p->out, '"');
	return r;
}

static int tree_manifest_put_texts(struct printing *p)
{
	const struct text_place *place = (const struct text_place *)(void *)p->texts.p;
	size_t n = p->texts.n / sizeof(*place);

	for (size_t i = 0; i < n; i++) {
		const struct text_place *at = &place[i];
		auto_buf key = { 0 };
		auto_value v = { 0 };
		int r = tree_manifest_key(at->part, at->leaf, p->style, &key);

		r = r < 0 ? r : leaf_open(at->part->item, at->leaf, &v);
		r = r < 0 ? r : put_string(p, i ? ", " : "", buf_span(&key));
		r = r < 0 ? r : put_string(p, ": ", buf_span(&v.text));
		if (r < 0)
			return err_at(r, "leaf '%.*s'", SPAN_ARG(at->leaf->param));
	}
	return 0;
}

static int tree_manifest_put_all(struct printing *p, bool step)
{
	int r;

	buf_add_str(&p->out, step ? "{\"step\": true" : "{");
	p->is_first = !step;
	r = put_object(p, "kinds", &p->kinds);
	if (r < 0)
		return r;
	r = put_object(p, "leaves", &p->leaves);
	if (r < 0)
		return r;
	r = put_object(p, "dtypes", &p->dtypes);
	if (r < 0)
		return r;
	if (p->texts.n) {
		buf_addf(&p->out, "%s\"texts\": {", p->is_first ? "" : ", ");
		p->is_first = false;
		r = tree_manifest_put_texts(p);
		buf_add_byte(&p->out, '}');
	}
	if (r < 0)
		return r;
	r = put_object(p, "marks", &p->marks);
	if (r < 0)
		return r;
	r = put_object(p, "custom", &p->custom);
	if (r < 0)
		return r;
	buf_add_byte(&p->out, '}');
	return put_out(p);
}

int tree_manifest_write(const struct subtree *st, struct tree_manifest_only only,
			const struct tree_manifest_casts *casts,
			const struct tree_manifest_style *style, tree_manifest_put_fn *put,
			void *arg)
{
	const struct buf metered = { .metered = true };
	__attribute__((cleanup(tree_manifest_printing_release))) struct printing p = {
		.style = style,
		.only = only,
		.casts = casts,
		.kinds = metered,
		.leaves = metered,
		.dtypes = metered,
		.marks = metered,
		.custom = metered,
		.texts = metered,
		.put = put,
		.arg = arg,
	};
	bool step = false;
	int r = 0;

	if (st->custom) {
		json_put_member(&p.custom, span_str(""), JSON_PYTHON);
		r = buf_add_str(&p.custom, st->custom);
	}
	for (size_t i = 0; i < st->n && r >= 0; i++) {
		step |= *st->part[i].path != '\0';
		if (st->part[i].kind == PART_TREE)
			r = print_part(&p, &st->part[i]);
	}
	return r < 0 ? r : tree_manifest_put_all(&p, step);
}

static int tree_manifest_add_piece(void *arg, struct span piece)
{
	return buf_add_span(arg, piece);
}

int tree_manifest_print(const struct subtree *st, struct tree_manifest_only only,
			const struct tree_manifest_casts *casts,
			const struct tree_manifest_style *style, struct buf *ret)
{
	auto_buf out = { .metered = true };
	int r = tree_manifest_write(st, only, casts, style, tree_manifest_add_piece, &out);

	if (r < 0)
		return r;
	buf_release(ret);
	*ret = out;
	out = (struct buf){ 0 };
	return 0;
}
