/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_leaf.c - one file of a draft -> the leaf, or the subtree, that it is.
 */
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/tree/sharding.h"
#include "core/dtype/cast.h"
#include "handlers/plan/draft_plan.h"
#include "handlers/subtree/safetensors_lost.h"

#define TEXT_MAX (64 * MiB) /* of one string, which is in memory while it is saved */

static struct span stem(const struct draft_node *n)
{
	struct span name = span_str(n->name);

	name.n -= strlen(name_ext_text(name_ext_of(name)));
	return name;
}

/* A leaf with the key that the file's name stands for; "%" alone is the tree itself. */
static int new_leaf(struct plan *p, struct tree_node *parent, struct draft_node *n,
		    struct plan_leaf **ret)
{
	auto_buf key = { 0 };
	int r = parent ? plan_key(p, parent, n, stem(n), false, &key) : 0;

	return r < 0 ? r : plan_leaf_new(p, parent, n, buf_span(&key), ret);
}

static int contents(struct draft_node *n, struct buf *ret)
{
	uint64_t size = draft_file_size(n->file);
	int r;

	if (size > TEXT_MAX)
		return fail(-EINVAL, "a text of %llu bytes, the limit is %llu",
			    (unsigned long long)size, (unsigned long long)TEXT_MAX);
	r = buf_reserve(ret, size + 1);
	if (r >= 0)
		r = draft_file_read_into(n->file, 0, size, ret->p);
	if (r >= 0)
		ret->n = size;
	return r;
}

/* ---- arrays ---- */

/* A text that the tree keeps, from an xattr; p NULL when it is not set. */
static int keep_xattr(struct plan *p, struct draft_node *n, const char *name, bool word,
		      struct span *ret)
{
	struct span value;
	int r = 0;

	pthread_mutex_lock(&n->draft->lock);
	value = word ? draft_xattr_word(n, name) : draft_xattr_value(n, name);
	if (!value.p && !strcmp(name, "prng_impl"))
		value = buf_span(&n->hint_impl);
	if (value.p)
		r = arena_keep(&p->tree->arena, value, ret);
	pthread_mutex_unlock(&n->draft->lock);
	return r;
}

int plan_array(struct plan *p, struct plan_leaf *l, struct span tensor)
{
	struct save_opts o;
	int r;

	l->kind = PLAN_ARRAY;
	pthread_mutex_lock(&l->source->draft->lock);
	r = draft_save_opts(l->source, tensor, &o);
	pthread_mutex_unlock(&l->source->draft->lock);
	if (r >= 0)
		r = keep_xattr(p, l->source, "sharding", false, &l->sharding);
	if (r >= 0)
		r = keep_xattr(p, l->source, "prng_impl", true, &l->key_impl);
	if (r < 0)
		return r;
	/* Only a jax array can be a typed PRNG key. */
	l->is_jax = o.leaf_type == LEAF_TYPE_JAX || l->key_impl.p;
	l->node->value_type = span_str(l->is_jax ? "jax.Array" : "np.ndarray");
	/* What `array_metadatas` would say, and only then. */
	if (l->is_jax && l->has_shape && p->opts.array_metadata) {
		uint64_t *shape = arena_calloc(&p->tree->arena, l->rank + 1, sizeof(*shape));

		if (!shape)
			return fail(-ENOMEM, "cannot describe an array");
		memcpy(shape, l->shape, l->rank * sizeof(*shape));
		l->node->has_write_shape = true;
		l->node->write_rank = (uint8_t)l->rank;
		l->node->write_shape = shape;
	}
	return 0;
}

static void take_shape(struct plan_leaf *l, const struct draft_array *a)
{
	l->has_shape = true;
	l->rank = a->rank;
	memcpy(l->shape, a->shape, sizeof(l->shape));
}

static int plan_npy(struct plan *p, struct tree_node *parent, struct draft_node *n)
{
	struct plan_leaf *l;
	int r = p->strict ? draft_file_seal(n->file) : 0;

	if (r >= 0)
		r = new_leaf(p, parent, n, &l);
	if (r < 0 || !l)
		return r;
	pthread_mutex_lock(&n->file->lock);
	if (n->file->n_arrays == 1 && !n->file->st.n)
		take_shape(l, &n->file->array[0]);
	pthread_mutex_unlock(&n->file->lock);
	if (p->strict && !l->has_shape)
		return fail(-EINVAL, "it holds no .npy array");
	r = plan_array(p, l, span_of(NULL, 0));
	return r < 0 ? r : 1;
}

/* ---- safetensors ---- */

/* The dict for "a.b" of "a.b.c" below parent, or whatever joins keys in this mount. */
static int make_path(struct plan *p, struct tree_node *parent, struct span path,
		     struct tree_node **ret, struct span *ret_last)
{
	struct span by = span_str(p->item->draft->env->options->safetensors_separator);
	const uint8_t *at;

	while (by.n && (at = memmem(path.p, path.n, by.p, by.n))) {
		size_t n = (size_t)(at - path.p);
		int r = tree_build_child(&p->build, parent, span_of(path.p, n), false, &parent);

		if (r < 0)
			return r;
		if (parent->kind == TREE_LEAF)
			return fail(-EINVAL, "tensor '%.*s' is inside another one", SPAN_ARG(path));
		parent->kind = TREE_DICT;
		path = span_from(path, n + by.n);
	}
	*ret = parent;
	*ret_last = path;
	return 0;
}

static int plan_tensor(struct plan *p, struct tree_node *top, struct draft_node *n, size_t i)
{
	const struct draft_array *a = &n->file->array[i];
	struct tree_node *parent = NULL;
	struct plan_leaf *l;
	struct span last;
	int r = make_path(p, top, a->name, &parent, &last);

	if (r >= 0)
		r = plan_leaf_new(p, parent, n, last, &l);
	if (r < 0 || !l)
		return r;
	l->index = i;
	take_shape(l, a);
	return 0;
}

/* Metadata of the file becomes that of the item, unless an xattr gives it some. */
static int take_metadata(struct plan *p, const struct safetensors *st)
{
	if (!st->metadata || p->tree->custom_metadata)
		return 0;
	p->tree->custom_metadata = arena_str(&p->tree->arena, st->metadata);
	return p->tree->custom_metadata ? 0 : -ENOMEM;
}

/* What the file could not say, and its writer may have meant. Called with the file's lock held. */
static int say_what_is_lost(struct plan *p, const struct tree_node *top, struct draft_node *n)
{
	auto_buf lost = { 0 };
	int r = safetensors_lost_in(top, &n->file->st,
				    p->item->draft->env->options->safetensors_separator, &lost);

	if (r >= 0 && lost.n)
		log_info(
			"'%s' is a tree of dicts and arrays now: %.*s; None and empty containers are not in such a file",
			n->name, SPAN_ARG(buf_span(&lost)));
	return r;
}

static int plan_safetensors(struct plan *p, struct tree_node *parent, struct draft_node *n)
{
	struct tree_node *top = parent;
	size_t first = p->n_leaves;
	auto_buf key = { 0 };
	int r = p->strict ? draft_file_seal(n->file) : 0;

	/* An item of its own has its tensors at the top. */
	if (r >= 0 && n != p->item) {
		r = plan_key(p, parent, n, stem(n), true, &key);
		if (r >= 0)
			r = tree_build_child(&p->build, parent, buf_span(&key), false, &top);
		if (r == 0)
			return p->strict ? fail(-EINVAL, "there is another '%.*s'",
						SPAN_ARG(buf_span(&key))) :
					   0;
		top->kind = TREE_DICT;
	}
	if (r < 0)
		return r;
	pthread_mutex_lock(&n->file->lock);
	r = take_metadata(p, &n->file->st);
	for (size_t i = 0; n->file->st.n && i < n->file->n_arrays && r >= 0; i++)
		r = plan_tensor(p, top, n, i);
	if (r >= 0 && p->strict && draft_file_is_npy(n->file))
		r = fail(-EINVAL, "it is not a safetensors file");
	if (r >= 0 && p->strict)
		r = say_what_is_lost(p, top, n);
	/* The names live in the file's header, which another thread may write while the draft is
	 * only looked at. */
	for (size_t i = first; i < p->n_leaves && r >= 0; i++)
		r = plan_array(p, &p->leaf[i], n->file->array[p->leaf[i].index].name);
	pthread_mutex_unlock(&n->file->lock);
	return r < 0 ? r : 1;
}

/* ---- numbers, texts, None ---- */

static bool is_number_word(struct span s)
{
	return span_eq(s, span_str("NaN")) || span_eq(s, span_str("Infinity")) ||
	       span_eq(s, span_str("-Infinity"));
}

/* The type that Orbax gives a Python value. */
static enum dtype natural_dtype(const struct json *j)
{
	switch (j->kind) {
	case JSON_BOOL:
		return DTYPE_BOOL;
	case JSON_INT:
		return DTYPE_INT64;
	case JSON_UINT:
		return DTYPE_UINT64;
	case JSON_FLOAT:
		return DTYPE_FLOAT64;
	case JSON_STRING:
		return is_number_word(j->s) ? DTYPE_FLOAT64 : DTYPE_UNKNOWN;
	case JSON_ARRAY:
		return j->n == 2 ? DTYPE_COMPLEX128 : DTYPE_UNKNOWN;
	default:
		return DTYPE_UNKNOWN;
	}
}

/* No dtype that Orbax gives a Python value holds it: it would become another number. */
static bool is_beyond(const struct json *j)
{
	bool is = j->kind == JSON_FLOAT && j->is_beyond;

	for (size_t i = 0; j->kind == JSON_ARRAY && i < j->n; i++)
		is |= j->items[i].kind == JSON_FLOAT && j->items[i].is_beyond;
	return is;
}

static int plan_scalar(struct plan_leaf *l, const struct json *j)
{
	enum dtype t = natural_dtype(j), named, hint;
	uint8_t element[LIMIT_ITEM_BYTES];
	struct save_opts o;
	struct span word;
	int r;

	if (t == DTYPE_UNKNOWN)
		return fail(-EINVAL,
			    "a .json leaf is a number, true, false, a text, null or [re, im]");
	pthread_mutex_lock(&l->source->draft->lock);
	word = draft_xattr_word(l->source, "dtype");
	named = word.p ? dtype_by_user(word) : t;
	hint = word.p ? DTYPE_UNKNOWN : (enum dtype)l->source->hint_dtype;
	r = draft_save_opts(l->source, span_of(NULL, 0), &o);
	pthread_mutex_unlock(&l->source->draft->lock);
	/* A copy keeps its type, as long as it can hold what is there now. */
	if (r >= 0 && hint != DTYPE_UNKNOWN && dtype_value_parse(hint, j, element) >= 0)
		named = hint;
	else if (r >= 0)
		r = dtype_value_parse(named, j, element);
	if (r < 0)
		return r;
	l->kind = PLAN_SCALAR;
	l->node->value_type = span_str("scalar");
	l->dtype = save_opts_dtype(&o, named);
	cast(l->dtype, l->element, named, element, 1);
	return 0;
}

static int plan_string(struct plan_leaf *l, struct span text)
{
	l->kind = PLAN_STRING;
	l->node->value_type = span_str("string");
	return utf8_valid(text) ? buf_add_span(&l->text, text) :
				  fail(-EINVAL, "a text that is not UTF-8");
}

static int plan_none(struct plan_leaf *l)
{
	l->kind = PLAN_NONE;
	l->node->value = TREE_VALUE_NONE;
	l->node->value_type = span_str("None");
	return 0;
}

static int plan_json(struct plan_leaf *l, struct span text)
{
	auto_json doc = { 0 };
	int r = json_parse(text, l->source->name, &doc);

	if (r < 0)
		return r == -ENOMEM ? r : fail(-EINVAL, "%s", err_text(r));
	if (doc.root->kind == JSON_NULL)
		return plan_none(l);
	if (doc.root->kind == JSON_STRING && !is_number_word(doc.root->s))
		return plan_string(l, doc.root->s);
	if (is_beyond(doc.root)) {
		const uint8_t *end = memchr(text.p, '\n', text.n);

		text.n = MIN(end ? (size_t)(end - text.p) : text.n, (size_t)100);
		return fail(-EINVAL,
			    "'%.*s' is more than an integer of 64 bits, or a float64, can be",
			    SPAN_ARG(text));
	}
	return plan_scalar(l, doc.root);
}

static int plan_text(struct plan *p, struct tree_node *parent, struct draft_node *n,
		     enum name_ext ext)
{
	struct plan_leaf *l;
	auto_buf text = { 0 };
	int r = new_leaf(p, parent, n, &l);

	if (r < 0 || !l)
		return r;
	r = contents(n, &text);
	if (r >= 0 && ext == NAME_EXT_TXT)
		r = plan_string(l, buf_span(&text));
	else if (r >= 0 && ext == NAME_EXT_JSON)
		r = plan_json(l, buf_span(&text));
	else if (r >= 0)
		r = text.n == 0 ? plan_none(l) :
				  fail(-EINVAL, "None has no bytes, and there are %zu", text.n);
	/* What is being written may be anything yet: it is shown as a text. */
	if (r == -EINVAL && !p->strict) {
		err_clear();
		l->kind = PLAN_STRING;
		l->node->value_type = span_str("string");
		r = 0;
	}
	return r < 0 ? r : 1;
}

/* A file of a plugin's form: what is stored of it is what the plugin says. */
static int plan_plugin(struct plan *p, struct tree_node *parent, struct draft_node *n,
		       enum name_ext ext)
{
	struct plugin *plugin = plugin_of_ext(ext);
	auto_buf bytes = { 0 };
	struct plan_leaf *l;
	int r = plugin ? new_leaf(p, parent, n, &l) : -EINVAL;

	if (r < 0 || !l)
		return r;
	l->kind = PLAN_PLUGIN;
	l->plugin = plugin;
	l->node->value_type = span_str(plugin->typestr[0]);
	if (!p->strict)
		return 1;
	r = contents(n, &bytes);
	if (r >= 0)
		r = plugin_encode_leaf(plugin, buf_span(&bytes), &l->stored);
	return r < 0 ? r : 1;
}

/* The refusal names the command that makes an item of it. */
static int not_a_leaf(const struct plan *p)
{
	const struct draft *d = p->item->draft;

	return fail(
		-EINVAL,
		"it is not a leaf: leaves are .npy, .json, .txt, .null and .safetensors files; an item of other "
		"files is stored as it is when it is marked: setfattr -n user.pytree.kind -v opaque '%s%s%s'",
		d->name, d->is_item ? "" : "/", d->is_item ? "" : p->item->name);
}

int plan_file(struct plan *p, struct tree_node *parent, struct draft_node *n)
{
	enum name_ext ext = name_ext_of(span_str(n->name));
	int r;

	switch (ext) {
	case NAME_EXT_NPY:
		r = plan_npy(p, parent, n);
		break;
	case NAME_EXT_SAFETENSORS:
		r = parent ? plan_safetensors(p, parent, n) : 0;
		break;
	case NAME_EXT_JSON:
	case NAME_EXT_TXT:
	case NAME_EXT_NULL:
		r = plan_text(p, parent, n, ext);
		break;
	case NAME_EXT_BIN:
	case NAME_EXT_HTML:
	case NAME_EXT_NONE:
	default:
		if (ext >= NAME_EXT_PLUGIN) {
			r = plan_plugin(p, parent, n, ext);
			break;
		}
		r = p->strict ? not_a_leaf(p) : 0;
		break;
	}
	if (r == -EINVAL && !p->strict) {
		err_clear();
		r = 0;
	}
	return r;
}

/* ---- storing a number ---- */

static int read_element(void *arg, uint64_t off, size_t n, void *p)
{
	memcpy(p, (const uint8_t *)arg + off, n);
	return 0;
}

int plan_encode_scalar(struct plan_leaf *l)
{
	const struct draft_array scalar = { .dtype = l->dtype, .item = dtype_info(l->dtype)->size };
	const struct store *store;
	auto_of(kv) struct kv *kv = NULL;
	struct array_wanted w;
	auto_buf json = { 0 };
	int r = array_wanted_plain(l->source, &scalar, &w);

	if (r >= 0)
		r = array_json(&w.layout, l->dtype, 0, NULL, &json);
	if (r >= 0)
		r = draft_leaf_kv(l->source, false, &kv, &store);
	if (r >= 0)
		r = zarr_write_all(&l->source->draft->env->ckpt->write_env, kv, buf_span(&json),
				   ZARR_FILL_STORE, read_element, l->element);
	if (r >= 0)
		l->kv = take(kv);
	return r;
}
