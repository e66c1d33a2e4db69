/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_msgpack.c - the legacy aggregate file -> tree, through msgpack-c.
 *
 * tree_msgpack_print.c writes it, tree_chunks.c has arrays in chunks, and tree_merge.c adds the
 * file's values to a tree from `_METADATA`.
 *
 * msgpack-c's own unpacker allocates what an array claims to contain, has a fixed depth of 32, and
 * computes the length of an empty ext as -1. So its parsing template is used with callbacks of
 * ours: it keeps the open containers in a stack of LIMIT_TREE_DEPTH and counts items down, and
 * nothing is allocated before an item has been read. Values in extensions are parsed in place, and
 * the bytes of an array are never copied.
 *
 * Invariants: texts are UTF-8, keys are texts or integers, no value is longer than the bytes that
 * contain it.
 */
#include "core/base/limits.h"

#define MSGPACK_EMBED_STACK_SIZE LIMIT_TREE_DEPTH
#include <msgpack.h>
#include <msgpack/unpack_define.h>

#include "core/base/err.h"
#include "core/base/lfs.h"
#include "core/tree/tree_build.h"
#include "core/tree/tree_msgpack.h"

#define CHUNKED "__msgpack_chunked_array__"
#define DTYPE_NAME_MAX 64 /* ours: twice numpy's longest name */

/* The last one is that of flax: the array is in a directory beside the file. */
#define OF_FLAX "//GDAPlaceholder:"
static const char *const placeholders[] = { "PLACEHOLDER://", "AGGREGATED://", OF_FLAX };

/* A value: a leaf that has no node yet, or a container, which is a node already. */
struct value {
	enum { VALUE_LEAF, VALUE_NODE, VALUE_PART } what;
	union {
		struct aggregate leaf;
		struct tree_node *node;
		unsigned level; /* VALUE_PART: level in the payload of an array or complex number */
	};
};

/* The payload [shape, dtype, bytes], or [re, im]. */
struct payload {
	bool complex;
	uint8_t rank;
	unsigned level, item; /* arrays entered; items of the outer one so far */
	uint64_t shape[AGGREGATE_RANK_MAX];
	struct span dtype, data;
	double part[2];
};

struct unpack {
	struct tree *tree;
	struct tree_build *build;
	const char *what;
	struct payload *payload; /* NULL: the tree itself */
	unsigned nesting;        /* of tuples, each of which is a document of its own */
};

static int unpack_bytes(struct unpack *u, struct span bytes, struct value *ret);

static int tree_msgpack_no_memory(void)
{
	return fail(-ENOMEM, "cannot read an aggregate file: not enough memory");
}

static int broken(const struct unpack *u, const char *why)
{
	return fail(-EUCLEAN, "%s: %s", u->what, why);
}

/* ---- arrays and complex numbers ---- */

static int payload_array(struct unpack *u, unsigned n, struct value *ret)
{
	struct payload *p = u->payload;

	*ret = (struct value){ VALUE_PART, { .level = ++p->level } };
	if (p->level == 1 && (p->complex ? n == 2 : n == 3))
		return 0;
	if (p->level != 2 || p->complex || p->item != 0)
		return broken(u, p->complex ? "a complex number is not a pair" : "malformed array");
	if (n > AGGREGATE_RANK_MAX)
		return fail(-EOPNOTSUPP, "%s: an array of %u axes is not supported (at most %d)",
			    u->what, n, AGGREGATE_RANK_MAX);
	return 0;
}

static int payload_number(struct unpack *u, const struct value *v, double *ret)
{
	if (v->what != VALUE_LEAF)
		return broken(u, "a complex number is not a pair of numbers");
	switch (v->leaf.kind) {
	case AGGREGATE_FLOAT:
		*ret = v->leaf.f;
		return 0;
	case AGGREGATE_INT:
		*ret = (double)v->leaf.i;
		return 0;
	case AGGREGATE_UINT:
		*ret = (double)v->leaf.u;
		return 0;
	default:
		return broken(u, "a complex number is not a pair of numbers");
	}
}

static bool is_text(const struct value *v)
{
	return v->what == VALUE_LEAF &&
	       (v->leaf.kind == AGGREGATE_STRING || v->leaf.kind == AGGREGATE_BYTES);
}

static int payload_item(struct unpack *u, const struct value *in, const struct value *v)
{
	struct payload *p = u->payload;

	if (in->level == 2) { /* an axis of the shape */
		if (v->what != VALUE_LEAF || v->leaf.kind != AGGREGATE_INT || v->leaf.i < 0)
			return broken(u, "malformed shape of an array");
		p->shape[p->rank++] = (uint64_t)v->leaf.i;
		return 0;
	}
	if (p->complex)
		return payload_number(u, v, &p->part[p->item++]);
	switch (p->item++) {
	case 0:
		return v->what == VALUE_PART ? 0 : broken(u, "an array without a shape");
	case 1:
		if (!is_text(v) || v->leaf.s.n == 0 || v->leaf.s.n > DTYPE_NAME_MAX ||
		    memchr(v->leaf.s.p, '\0', v->leaf.s.n))
			return broken(u, "malformed dtype of an array");
		p->dtype = v->leaf.s;
		return 0;
	default:
		if (!is_text(v))
			return broken(u, "an array without data");
		p->data = v->leaf.s;
		return 0;
	}
}

static int read_payload(struct unpack *u, struct span bytes, struct payload *p)
{
	struct unpack inner = *u;
	struct value v;
	int r;

	inner.payload = p;
	r = unpack_bytes(&inner, bytes, &v);
	if (r < 0)
		return r;
	return v.what == VALUE_PART ? 0 : broken(u, "the payload of an extension is not an array");
}

static int ext_complex(struct unpack *u, struct span bytes, struct value *ret)
{
	struct payload p = { .complex = true };
	int r = read_payload(u, bytes, &p);

	if (r < 0)
		return r;
	*ret = (struct value){ VALUE_LEAF, { .leaf = { .kind = AGGREGATE_COMPLEX } } };
	ret->leaf.re = p.part[0];
	ret->leaf.im = p.part[1];
	return 0;
}

static int ext_array(struct unpack *u, struct span bytes, bool scalar, struct value *ret)
{
	struct payload p = { .complex = false };
	struct span *chunk, dtype;
	int r = read_payload(u, bytes, &p);

	ret->what = VALUE_LEAF;
	if (r < 0)
		return r;
	r = aggregate_array(u->tree, u->what, p.shape, p.rank, p.data.n, &ret->leaf);
	if (r < 0)
		return r;
	r = tree_build_text(u->build, p.dtype, &dtype);
	if (r < 0)
		return r;
	chunk = arena_alloc(&u->tree->arena, sizeof(*chunk));
	if (!chunk)
		return tree_msgpack_no_memory();
	*chunk = p.data;
	ret->leaf.is_scalar = scalar && p.rank == 0;
	ret->leaf.dtype = (const char *)dtype.p;
	ret->leaf.chunks = chunk;
	ret->leaf.n_chunks = 1;
	return 0;
}

static int ext_tuple(struct unpack *u, struct span bytes, struct value *ret)
{
	int r;

	if (u->nesting == LIMIT_TREE_DEPTH)
		return fail(-EFBIG, "%s: the tree is deeper than %d keys", u->what,
			    LIMIT_TREE_DEPTH);
	u->nesting++;
	r = unpack_bytes(u, bytes, ret);
	u->nesting--;
	if (r < 0)
		return r;
	if (ret->what != VALUE_NODE || ret->node->kind != TREE_LIST)
		return broken(u, "the payload of a tuple is not an array");
	ret->node->kind = TREE_TUPLE;
	return 0;
}

/* ---- nodes ---- */

static bool take_placeholder(struct tree_node *node, struct span s)
{
	for (size_t i = 0; i < ARRAY_LEN(placeholders); i++)
		if (span_starts(s, span_str(placeholders[i]))) {
			node->param = span_from(s, strlen(placeholders[i]));
			if (!strcmp(placeholders[i], OF_FLAX))
				node->value_type = span_str("np.ndarray");
			return true;
		}
	return false;
}

static int make_leaf(struct unpack *u, struct tree_node *node, const struct aggregate *a)
{
	static const char *const types[] = {
		[AGGREGATE_NIL] = "None",         [AGGREGATE_BOOL] = "scalar",
		[AGGREGATE_INT] = "scalar",       [AGGREGATE_UINT] = "scalar",
		[AGGREGATE_FLOAT] = "scalar",     [AGGREGATE_STRING] = "string",
		[AGGREGATE_BYTES] = "bytes",      [AGGREGATE_COMPLEX] = "scalar",
		[AGGREGATE_ARRAY] = "np.ndarray", [AGGREGATE_SPEC] = "np.ndarray",
	};

	struct aggregate *copy;

	node->kind = TREE_LEAF;
	if (a->kind == AGGREGATE_STRING && take_placeholder(node, a->s))
		return 0;
	node->value_type = span_str(a->is_scalar ? "scalar" : types[a->kind]);
	node->value = a->kind == AGGREGATE_NIL ? TREE_VALUE_NONE : TREE_VALUE_AGGREGATE;
	if (a->kind == AGGREGATE_NIL)
		return 0;
	copy = arena_alloc(&u->tree->arena, sizeof(*copy));
	if (!copy)
		return tree_msgpack_no_memory();
	*copy = *a;
	node->aggregate = copy;
	return 0;
}

/* Make a node without parent of a finished value. */
static int to_node(struct unpack *u, struct value v, struct tree_node **ret)
{
	struct span path;

	/* Only a map with the key CHUNKED has no kind at this point. */
	if (v.what == VALUE_NODE && v.node->kind == TREE_UNKNOWN) {
		const struct tree_node *map = v.node;
		int r = aggregate_join(u->tree, u->what, map, &v.leaf);

		if (r < 0)
			return r;
		v.what = VALUE_LEAF;
	} else if (v.what == VALUE_NODE && aggregate_is_spec(v.node)) {
		const struct tree_node *map = v.node;
		int r = aggregate_spec(u->tree, map, &v.leaf, &path);

		if (r < 0)
			return r;
		v.what = VALUE_LEAF;
	}
	if (v.what == VALUE_LEAF) {
		int r = tree_node_new(u->tree, ret);

		if (r < 0)
			return r;
		if (v.leaf.kind == AGGREGATE_SPEC)
			(*ret)->param = path;
		return make_leaf(u, *ret, &v.leaf);
	}
	*ret = v.node;
	return 0;
}

static int put_child(struct unpack *u, struct tree_node *parent, struct span key, bool is_index,
		     struct value v)
{
	struct tree_node *child;
	int r = to_node(u, v, &child);

	if (r < 0)
		return r;
	tree_link(parent, child, key, is_index);
	return r;
}

static int new_container(struct unpack *u, enum tree_kind kind, struct value *ret)
{
	struct tree_node *node;
	int r = tree_node_new(u->tree, &node);

	if (r < 0)
		return r;
	node->kind = kind;
	*ret = (struct value){ VALUE_NODE, { .node = node } };
	return 0;
}

/* ---- callbacks of the template ---- */

static struct value leaf_of(enum aggregate_kind kind)
{
	return (struct value){ VALUE_LEAF, { .leaf = { .kind = kind } } };
}

static struct value cb_root(struct unpack **u)
{
	return leaf_of(AGGREGATE_NIL);
}

static int cb_signed(struct unpack **u, int64_t v, struct value *ret)
{
	*ret = leaf_of(AGGREGATE_INT);
	ret->leaf.i = v;
	return 0;
}

static int cb_unsigned(struct unpack **u, uint64_t v, struct value *ret)
{
	if (v <= INT64_MAX)
		return cb_signed(u, (int64_t)v, ret);
	*ret = leaf_of(AGGREGATE_UINT);
	ret->leaf.u = v;
	return 0;
}

static int cb_double(struct unpack **u, double v, struct value *ret)
{
	*ret = leaf_of(AGGREGATE_FLOAT);
	ret->leaf.f = v;
	return 0;
}

static int cb_nil(struct unpack **u, struct value *ret)
{
	*ret = leaf_of(AGGREGATE_NIL);
	return 0;
}

static int cb_true(struct unpack **u, struct value *ret)
{
	*ret = leaf_of(AGGREGATE_BOOL);
	ret->leaf.b = true;
	return 0;
}

static int cb_false(struct unpack **u, struct value *ret)
{
	*ret = leaf_of(AGGREGATE_BOOL);
	return 0;
}

static int cb_array(struct unpack **u, unsigned n, struct value *ret)
{
	return (*u)->payload ? payload_array(*u, n, ret) : new_container(*u, TREE_LIST, ret);
}

static int cb_array_item(struct unpack **u, struct value *in, struct value v)
{
	char key[16];
	struct span copy;
	int r;

	if ((*u)->payload)
		return payload_item(*u, in, &v);
	snprintf(key, sizeof(key), "%u", in->node->n_children);
	r = arena_keep(&(*u)->tree->arena, span_str(key), &copy);
	return r < 0 ? r : put_child(*u, in->node, copy, true, v);
}

static int cb_map(struct unpack **u, unsigned n, struct value *ret)
{
	if ((*u)->payload)
		return broken(*u, "a map inside an array");
	return new_container(*u, TREE_DICT, ret);
}

/*
 * Flax writes the integers of an nnx.List. Like Orbax, a tree has a dict's integer keys as texts:
 * one that has 0 and "0" has a key twice.
 */
static int key_text(struct unpack *u, const struct value *key, char number[24], struct span *ret)
{
	if (key->what == VALUE_LEAF && key->leaf.kind == AGGREGATE_INT)
		snprintf(number, 24, "%lld", (long long)key->leaf.i);
	else if (key->what == VALUE_LEAF && key->leaf.kind == AGGREGATE_UINT)
		snprintf(number, 24, "%llu", (unsigned long long)key->leaf.u);
	else if (key->what != VALUE_LEAF || key->leaf.kind != AGGREGATE_STRING)
		return broken(u, "a key is neither a text nor an integer");
	*ret = key->leaf.kind == AGGREGATE_STRING ? key->leaf.s : span_str(number);
	return 0;
}

static int cb_map_item(struct unpack **u, struct value *in, struct value key, struct value v)
{
	struct span text, copy;
	char number[24];
	int r = key_text(*u, &key, number, &text);

	if (r < 0)
		return r;
	if (span_eq(text, span_str(CHUNKED)))
		in->node->kind = TREE_UNKNOWN;
	r = tree_build_text((*u)->build, text, &copy);
	return r < 0 ? r : put_child(*u, in->node, copy, false, v);
}

static int cb_bin(struct unpack **u, const char *base, const char *p, unsigned n, struct value *ret)
{
	*ret = leaf_of(AGGREGATE_BYTES);
	/* The pointer of an empty one is meaningless. */
	ret->leaf.s = span_of(n ? p : base, n);
	return 0;
}

static int cb_str(struct unpack **u, const char *base, const char *p, unsigned n, struct value *ret)
{
	struct span s = span_of(n ? p : base, n);

	/* Old writers put an array's bytes into a text. A text that is too long is never read. */
	if (!(*u)->payload && s.n <= LIMIT_STRING_BYTES && !utf8_valid(s))
		return broken(*u, "a text is not UTF-8");
	*ret = leaf_of(AGGREGATE_STRING);
	ret->leaf.s = s;
	return 0;
}

static int cb_ext(struct unpack **u, const char *base, const char *p, unsigned n, struct value *ret)
{
	struct span payload;

	if (n == 0 || (*u)->payload)
		return broken(*u, "malformed extension");
	payload = span_of(p + 1, n - 1);
	switch ((int8_t)p[0]) {
	case EXT_NDARRAY:
		return ext_array(*u, payload, false, ret);
	case EXT_SCALAR:
		return ext_array(*u, payload, true, ret);
	case EXT_COMPLEX:
		return ext_complex(*u, payload, ret);
	case EXT_TUPLE:
		return ext_tuple(*u, payload, ret);
	default:
		return fail(-EOPNOTSUPP, "%s: extension type %d is not supported", (*u)->what,
			    (int8_t)p[0]);
	}
}

#define cb_uint8 cb_unsigned
#define cb_uint16 cb_unsigned
#define cb_uint32 cb_unsigned
#define cb_uint64 cb_unsigned
#define cb_int8 cb_signed
#define cb_int16 cb_signed
#define cb_int32 cb_signed
#define cb_int64 cb_signed
#define cb_float cb_double

#define msgpack_unpack_struct(name) struct unpack##name
#define msgpack_unpack_func(ret, name) static inline ret unpack##name
#define msgpack_unpack_callback(name) cb##name
#define msgpack_unpack_object struct value
#define msgpack_unpack_user struct unpack *
#include <msgpack/unpack_template.h>

/* Parse exactly one value. */
static int unpack_bytes(struct unpack *u, struct span bytes, struct value *ret)
{
	/* 30 KiB, of which only a part is touched; on the heap, because tuples nest. */
	auto_free struct unpack_context *c = malloc(sizeof(*c));
	size_t off = 0;
	int r;

	if (!c)
		return tree_msgpack_no_memory();
	c->user = u;
	unpack_init(c);
	r = bytes.n ? unpack_execute(c, (const char *)bytes.p, bytes.n, &off) : 0;
	if (r == MSGPACK_UNPACK_NOMEM_ERROR)
		return fail(-EFBIG, "%s: the tree is deeper than %d keys", u->what,
			    LIMIT_TREE_DEPTH);
	if (r == MSGPACK_UNPACK_PARSE_ERROR)
		return broken(u, "not msgpack");
	if (r < 0)
		return r;
	if (r == 0)
		return broken(u, "the document is truncated");
	if (off != bytes.n)
		return broken(u, "something follows the document");
	*ret = unpack_data(c);
	return 0;
}

int tree_parse_aggregate(struct span bytes, const char *what, struct tree **ret)
{
	auto_of(tree) struct tree *tree = NULL;
	struct tree_build build = { 0 };
	struct unpack u = { .what = what, .build = &build };
	struct value v;
	int r;

	if (bytes.n > LIMIT_AGGREGATE_BYTES)
		return fail(-EFBIG, "%s: %zu bytes exceed the limit of %llu", what, bytes.n,
			    (unsigned long long)LIMIT_AGGREGATE_BYTES);
	r = tree_new(&tree);
	if (r < 0)
		return r;
	tree->arena.metered = true;
	u.tree = build.tree = tree;
	r = unpack_bytes(&u, bytes, &v);
	if (r >= 0)
		r = to_node(&u, v, &tree->root);
	tree_build_release(&build);
	if (r < 0)
		return lfs_check(what, bytes) < 0 ? -EUCLEAN : r;
	r = tree_finish_as(tree, -EUCLEAN);
	if (r < 0)
		return err_at(r, "%s", what);
	*ret = take(tree);
	return 0;
}
