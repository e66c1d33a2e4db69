/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_xattr.c - properties that names cannot express: kinds, dtypes, keys, custom metadata, and
 * options for a subtree.
 *
 * Programs that copy xattrs set all xattrs of the source. Xattrs that describe bytes (shape,
 * stored_bytes) follow from the contents, so setting one is accepted and has no effect.
 */
#include <stdio.h>
#include <sys/xattr.h>

#include "core/base/err.h"
#include "core/base/glob.h"
#include "core/base/json.h"
#include "core/base/lock.h"
#include "core/tree/sharding.h"
#include "handlers/draft/draft_array.h"
#include "handlers/draft/draft_file.h"

#define PREFIX "user.pytree."
#define SAVE "save."
#define FIELDS_MAX 4096 /* of a namedtuple */

/* ---- values ---- */

static struct draft_xattr *xattr_find(const struct draft_node *n, const char *name)
{
	for (struct draft_xattr *x = n->xattrs; x; x = x->next)
		if (!strcmp(x->name, name))
			return x;
	return NULL;
}

struct span draft_xattr_value(const struct draft_node *n, const char *name)
{
	const struct draft_xattr *x = xattr_find(n, name);

	return x ? buf_span(&x->value) : span_of(NULL, 0);
}

static struct span unquoted(struct span s)
{
	return s.n >= 2 && s.p[0] == '"' && s.p[s.n - 1] == '"' ? span_of(s.p + 1, s.n - 2) : s;
}

struct span draft_xattr_word(const struct draft_node *n, const char *name)
{
	return unquoted(draft_xattr_value(n, name));
}

static enum draft_kind kind_by_name(struct span word)
{
	static const char *const names[] = {
		[KIND_DICT] = "dict",     [KIND_LIST] = "list",
		[KIND_TUPLE] = "tuple",   [KIND_NAMEDTUPLE] = "namedtuple",
		[KIND_CUSTOM] = "custom", [KIND_OPAQUE] = "opaque",
		[KIND_LEAF] = "leaf",     [KIND_UNKNOWN] = "unknown",
	};

	for (size_t i = KIND_DICT; i < ARRAY_LEN(names); i++)
		if (span_eq(word, span_str(names[i])))
			return (enum draft_kind)i;
	return KIND_NONE;
}

enum draft_kind draft_kind_locked(const struct draft_node *n)
{
	return kind_by_name(draft_xattr_word(n, "kind"));
}

enum draft_kind draft_kind(const struct draft_node *n)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&n->draft->lock);

	return draft_kind_locked(n);
}

bool draft_is_opaque(const struct draft_node *n)
{
	for (; n; n = n->parent)
		if (n->is_dir && draft_kind_locked(n) == KIND_OPAQUE)
			return true;
	return false;
}

static int xattr_store_value(struct draft_node *n, const char *name, struct span value)
{
	struct draft_xattr *x = xattr_find(n, name);
	auto_buf copy = { 0 };
	int r = buf_add_span(&copy, value);

	/* An empty value counts as set. */
	r = r < 0 ? r : buf_reserve(&copy, 1);
	if (r < 0)
		return r;
	if (!x) {
		x = calloc(1, sizeof(*x));
		if (x)
			x->name = strdup(name);
		if (!x || !x->name) {
			free(x);
			return fail(-ENOMEM, "cannot keep %s%s", PREFIX, name);
		}
		x->next = n->xattrs;
		n->xattrs = x;
	}
	buf_release(&x->value);
	x->value = copy;
	copy = (struct buf){ 0 };
	return 0;
}

static int remove_value(struct draft_node *n, const char *name)
{
	for (struct draft_xattr **at = &n->xattrs; *at; at = &(*at)->next)
		if (!strcmp((*at)->name, name)) {
			struct draft_xattr *x = *at;

			*at = x->next;
			buf_release(&x->value);
			free(x->name);
			free(x);
			return 0;
		}
	/*
	 * rsync -X removes xattrs that are shown without having been set: that succeeds, and has no
	 * effect.
	 */
	if ((n->is_dir && !strcmp(name, "kind")) || (n == n->draft->root && !strcmp(name, "state")))
		return 0;
	return -ENODATA;
}

/* ---- accepted values ---- */

static int check_kind(struct draft_node *n, struct span value)
{
	struct span word = unquoted(value);
	enum draft_kind kind = kind_by_name(word);

	/* A file that is not a leaf has no other kind. */
	if (!n->is_dir && kind != KIND_OPAQUE)
		return fail(-EINVAL, "user.pytree.kind of a file is opaque, or not set");
	if (kind != KIND_NONE)
		return 0;
	return fail(
		-EINVAL,
		"user.pytree.kind is dict, list, tuple, namedtuple, custom or opaque, not '%.*s'",
		SPAN_ARG(word));
}

static int check_dtype(struct draft_node *n, struct span value)
{
	struct span word = unquoted(value);

	if (n->is_dir)
		return fail(
			-EINVAL,
			"user.pytree.dtype is for leaves; user.pytree.save.dtype casts a subtree");
	if (dtype_by_user(word) == DTYPE_UNKNOWN)
		return fail(-EINVAL, "no dtype '%.*s'", SPAN_ARG(word));
	return 0;
}

static int check_custom(struct draft_node *n, struct span value)
{
	auto_json doc = { 0 };
	int r;

	if (n != n->draft->root && draft_item_of(n) != n)
		return fail(-EINVAL, "custom metadata belongs to a step or an item");
	r = json_parse(value, "user.pytree.custom_metadata", &doc);
	if (r < 0)
		return r == -ENOMEM ? r : fail(-EINVAL, "%s", err_text(r));
	if (doc.root->kind != JSON_OBJECT)
		return fail(-EINVAL, "custom metadata is a JSON object");
	return 0;
}

static bool is_texts(const struct json *j)
{
	if (!json_is(j, JSON_ARRAY))
		return false;
	for (size_t i = 0; i < j->n; i++)
		if (j->items[i].kind != JSON_STRING)
			return false;
	return true;
}

static int xattr_check_key(struct draft_node *n, struct span value)
{
	auto_json doc = { 0 };
	int r = json_parse(value, "user.pytree.key", &doc);

	if (r < 0 || !is_texts(doc.root))
		return fail(-EINVAL, "user.pytree.key is a JSON array of texts");
	return 0;
}

/* The database of an item cannot change any more once it contains something. */
static int check_save(struct draft_node *n, const char *option, struct span value)
{
	auto_free char *text = span_dup_str(unquoted(value));
	struct save_opts o = { 0 };
	struct draft_node *item = draft_item_of(n);

	if (!text)
		return fail(-ENOMEM, "cannot keep an option");
	if (option_of_item(option) && n != item && n != n->draft->root)
		return fail(-EINVAL, "%s is the same for all leaves of an item: set it there",
			    option);
	if ((!strcmp(option, "ocdbt") || !strcmp(option, "target_data_file_size")) && item &&
	    item->item.store)
		return fail(-EBUSY, "%s must be set before the first array of '%s' is written",
			    option, item->name);
	return save_opts_set(&o, option, text);
}

static bool is_array_type(struct span word)
{
	return span_eq(word, span_str("jax.Array")) || span_eq(word, span_str("np.ndarray"));
}

static bool is_derived(const struct draft_node *n, const char *name, struct span value)
{
	static const char *const derived[] = { "shape",        "chunks",        "codecs",
					       "stored_bytes", "logical_bytes", "leaf_count",
					       "state",        "sha256" };

	/*
	 * The type of other leaves follows from their contents. A file may still become `.npy`:
	 * rsync renames.
	 */
	if (!strcmp(name, "typestr"))
		return n->is_dir || (name_ext_of(span_str(n->name)) != NAME_EXT_NPY &&
				     !is_array_type(unquoted(value)));
	for (size_t i = 0; i < ARRAY_LEN(derived); i++)
		if (!strcmp(name, derived[i]))
			return true;
	return false;
}

/* Check a sharding of a jax array, in the form in which a committed leaf shows it. */
static int xattr_check_sharding(struct draft_node *n, struct span value)
{
	auto_of(sharding) struct sharding *s = NULL;
	int r = n->is_dir ? -EINVAL : sharding_parse(value, "user.pytree.sharding", &s);

	if (r < 0 && r != -ENOMEM)
		return fail(-EINVAL,
			    "user.pytree.sharding is for leaves, as `_sharding` spells it");
	return r;
}

/* Check the type that is recorded for an array. */
static int check_typestr(struct draft_node *n, struct span value)
{
	struct span word = unquoted(value);

	if (is_array_type(word))
		return 0;
	return fail(-EINVAL,
		    "user.pytree.typestr of an array is jax.Array or np.ndarray, not '%.*s'",
		    SPAN_ARG(word));
}

/* least: the smallest number that an axis may have. */
static int xattr_check_shape(struct draft_node *n, const char *name, struct span value,
			     int64_t least)
{
	auto_json doc = { 0 };
	int r = json_parse(value, name, &doc);
	bool good = r >= 0 && !n->is_dir && doc.root->kind == JSON_ARRAY &&
		    doc.root->n <= LIMIT_RANK;

	for (size_t i = 0; good && i < doc.root->n; i++)
		good = doc.root->items[i].kind == JSON_INT && doc.root->items[i].i >= least;
	if (good || r == -ENOMEM)
		return MIN(r, 0);
	return fail(
		-EINVAL,
		"user.pytree.%s is for leaves, a JSON array of integers from %d on, not '%.*s' for "
		"'%s'",
		name, (int)least, SPAN_ARG(value), n->name);
}

static int check_prng_impl(struct draft_node *n, struct span value)
{
	struct span word = unquoted(value);

	if (n->is_dir || word.n == 0)
		return fail(-EINVAL,
			    "user.pytree.prng_impl is for leaves: the name of an implementation");
	for (size_t i = 0; i < word.n; i++)
		if (!(word.p[i] == '_' || (word.p[i] >= '0' && word.p[i] <= '9') ||
		      ((word.p[i] | 32) >= 'a' && (word.p[i] | 32) <= 'z')))
			return fail(-EINVAL,
				    "user.pytree.prng_impl: '%.*s' names no implementation",
				    SPAN_ARG(word));
	return 0;
}

static int check_namedtuple(struct draft_node *n, struct span value)
{
	auto_json doc = { 0 };
	const struct json *module, *class, *fields;
	int r;

	if (!n->is_dir)
		return fail(-EINVAL, "user.pytree.namedtuple is for directories");
	r = json_parse(value, "user.pytree.namedtuple", &doc);
	if (r == -ENOMEM)
		return r;
	if (r >= 0 && doc.root->kind == JSON_OBJECT) {
		module = json_member(doc.root, "module");
		class = json_member(doc.root, "clazz");
		fields = json_member(doc.root, "fields");
		/* Without a class it is the order of a dict. */
		if (is_texts(fields) && fields->n > 0 &&
		    ((!module && !class) ||
		     (json_is(module, JSON_STRING) && json_is(class, JSON_STRING) &&
		      fields->n <= FIELDS_MAX)))
			return 0;
	}
	return fail(-EINVAL, "user.pytree.namedtuple is {\"module\": TEXT, \"clazz\": TEXT, "
			     "\"fields\": [TEXT, ...]}");
}

static int xattr_check(struct draft_node *n, const char *name, struct span value)
{
	static const struct {
		const char *name;
		int (*check)(struct draft_node *n, struct span value);
	} known[] = {
		{ "sharding", xattr_check_sharding },
		{ "typestr", check_typestr },
		{ "prng_impl", check_prng_impl },
		{ "kind", check_kind },
		{ "dtype", check_dtype },
		{ "custom_metadata", check_custom },
		{ "key", xattr_check_key },
		{ "namedtuple", check_namedtuple },
	};

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (!strcmp(name, known[i].name))
			return known[i].check(n, value);
	if (!strcmp(name, "write_shape"))
		return xattr_check_shape(n, name, value, 0);
	if (!strcmp(name, "chunk_shape"))
		return xattr_check_shape(n, name, value, 1);
	if (!strncmp(name, SAVE, strlen(SAVE)))
		return check_save(n, name + strlen(SAVE), value);
	return fail(-EINVAL,
		    "%s%s means nothing in a draft; there are kind, namedtuple, dtype, "
		    "custom_metadata, key and save.OPTION",
		    PREFIX, name);
}

int draft_set_xattr(struct draft_node *n, const char *name, const struct span *value, int flags)
{
	int r;

	/* For example ACLs, which are permissions in another form. */
	if (strncmp(name, "user.", strlen("user.")))
		return -EOPNOTSUPP;
	if (strncmp(name, PREFIX, strlen(PREFIX)))
		return fail(-EOPNOTSUPP, "a checkpoint has no place for the xattr '%s'", name);
	name += strlen(PREFIX);
	if (value && is_derived(n, name, *value))
		return 0;

	auto_unlock pthread_mutex_t *held = lock_hold(&n->draft->lock);

	n->draft->changes++;
	if (n->draft->life == DRAFT_COMMITTING)
		return fail(-EBUSY, "draft '%s' is being committed", n->draft->name);
	if (!value)
		return remove_value(n, name);
	if (flags & XATTR_CREATE && xattr_find(n, name))
		return -EEXIST;
	if (flags & XATTR_REPLACE && !xattr_find(n, name))
		return -ENODATA;
	r = xattr_check(n, name, *value);
	return r < 0 ? r : xattr_store_value(n, name, *value);
}

int draft_get_xattr(struct draft_node *n, const char *name, struct buf *ret)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&n->draft->lock);
	struct span value = draft_xattr_value(n, name);

	if (value.p)
		return buf_add_span(ret, value);
	if (!strcmp(name, "kind") && n->is_dir)
		return buf_add_str(ret, "\"dict\"");
	if (!strcmp(name, "state") && n == n->draft->root)
		return buf_add_str(ret, "\"draft\"");
	return -ENODATA;
}

static int xattr_add_name(struct buf *ret, const char *name)
{
	int r = buf_addf(ret, PREFIX "%s", name);

	return r < 0 ? r : buf_add_byte(ret, 0);
}

int draft_list_xattr(struct draft_node *n, struct buf *ret)
{
	int r = 0;
	auto_unlock pthread_mutex_t *held = lock_hold(&n->draft->lock);

	if (n->is_dir && !xattr_find(n, "kind"))
		r = xattr_add_name(ret, "kind");
	if (r >= 0 && n == n->draft->root)
		r = xattr_add_name(ret, "state");
	for (const struct draft_xattr *x = n->xattrs; x && r >= 0; x = x->next)
		r = xattr_add_name(ret, x->name);
	return r;
}

/* ---- effective options ---- */

/* Append the path of a node, after the name of the item that its tree represents. */
static int xattr_put_path(const struct draft_node *n, struct buf *ret, unsigned *ret_skip)
{
	const char *from = n->draft->rules_from;
	auto_buf path = { 0 };
	int r;

	*ret_skip = !n->draft->is_item || !(n->draft->any_name || n->draft->is_tree);
	if (!from)
		return draft_node_path(n, ret);
	*ret_skip = 1;
	for (const char *at = from; *at; at++)
		*ret_skip += *at == '/';
	r = draft_node_path(n, &path);
	if (r < 0)
		return r;
	r = buf_addf(ret, path.n ? "%s/" : "%s", from);
	return r < 0 ? r : buf_add_span(ret, buf_span(&path));
}

int draft_rules_from(struct draft *d, struct span item)
{
	char *copy = span_dup_str(item);

	if (!copy)
		return fail(-ENOMEM, "cannot begin draft '%s'", d->name);
	auto_unlock pthread_mutex_t *held = lock_hold(&d->lock);

	free(d->rules_from);
	d->rules_from = copy;
	return 0;
}

/*
 * Append the path that rules are matched against. Keys in the name of a tensor are separated by
 * slashes. *ret_skip is the number of leading names that a pattern may leave out.
 */
static int draft_rule_path(const struct draft_node *n, struct span tensor, struct buf *ret,
			   unsigned *ret_skip)
{
	struct draft_part part;
	enum name_ext ext = name_ext_of(span_str(n->name));
	struct span by = span_str(n->draft->env->options->safetensors_separator);
	const uint8_t *at;
	size_t cut = 0;
	int r = xattr_put_path(n, ret, ret_skip);

	if (draft_part_of(span_str(n->name), &part) == 1)
		cut = strlen(n->name) - part.stem.n;
	else if (!n->is_dir)
		cut = strlen(name_ext_text(ext));
	err_clear();
	ret->n -= MIN(cut, ret->n);
	if (r < 0 || !tensor.n)
		return r < 0 ? r : buf_str(ret) ? 0 : -ENOMEM;
	r = buf_add_byte(ret, '/');
	while (r >= 0 && by.n && (at = memmem(tensor.p, tensor.n, by.p, by.n))) {
		size_t key = (size_t)(at - tensor.p);

		r = buf_add(ret, tensor.p, key);
		if (r < 0)
			return r;
		r = buf_add_byte(ret, '/');
		tensor = span_from(tensor, key + by.n);
	}
	if (r < 0)
		return r;
	r = buf_add_span(ret, tensor);
	return r < 0 ? r : buf_str(ret) ? 0 : -ENOMEM;
}

int draft_selects(const char *glob, const struct draft_node *n, struct span tensor,
		  struct buf *path)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&n->draft->lock);
	unsigned skip;
	int r;

	buf_clear(path);
	r = draft_rule_path(n, tensor, path, &skip);
	return r < 0 ? r : glob_selects(glob, buf_span(path), skip, 0);
}

static int apply_xattrs(const struct draft_node *n, struct save_opts *o)
{
	int r = n->parent ? apply_xattrs(n->parent, o) : 0;

	for (const struct draft_xattr *x = n->xattrs; x && r >= 0; x = x->next) {
		auto_free char *text = NULL;

		if (strncmp(x->name, SAVE, strlen(SAVE)))
			continue;
		text = span_dup_str(unquoted(buf_span(&x->value)));
		r = text ? save_opts_set(o, x->name + strlen(SAVE), text) : -ENOMEM;
	}
	return r;
}

int draft_save_opts(const struct draft_node *n, struct span tensor, struct save_opts *ret)
{
	const struct copied_format *f = &draft_copied(n)->format;
	auto_buf path = { 0 };
	unsigned skip;
	int r = draft_rule_path(n, tensor, &path, &skip);

	if (r < 0)
		return r;
	save_opts_for(n->draft->env->options, buf_span(&path), skip, ret);
	r = apply_xattrs(n, ret);
	if (f->known && !save_opts_given(ret, "ocdbt"))
		ret->ocdbt = f->ocdbt;
	if (f->known && !save_opts_given(ret, "zarr"))
		ret->zarr = f->zarr3 ? SAVE_ZARR3 : SAVE_ZARR2;
	return r;
}

/* ---- leaves that are directories ---- */

int draft_options(const struct draft_node *n, struct span tensor, struct save_opts *ret)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&n->draft->lock);

	return draft_save_opts(n, tensor, ret);
}

/*
 * Append the keys from below the item down to dir, each followed by a dot. 1; 0: the key of a
 * shortened name is not known.
 */
static int add_keys(struct draft_node *dir, const struct draft_node *item, struct buf *ret)
{
	int r = dir == item ? 1 : add_keys(dir->parent, item, ret);

	if (r <= 0 || dir == item)
		return r;
	if (name_is_hashed(span_str(dir->name)))
		return 0;
	r = name_unescape(span_str(dir->name), NAME_CONTAINER, 0, ret);
	if (r < 0)
		return r;
	r = buf_add_byte(ret, '.');
	return r < 0 ? r : 1;
}

int draft_check_stored_name(struct draft_node *dir, struct span name)
{
	const struct draft_node *item = draft_item_of(dir);
	struct draft_part part;
	struct save_opts o;
	struct span stem;
	auto_buf param = { 0 };
	int r;

	/* The commit alone knows whether other files become arrays. */
	if (!item || draft_is_opaque(dir) || name_ext_of(name) != NAME_EXT_NPY)
		return 0;
	r = draft_part_of(name, &part);
	stem = r == 1 ? part.stem : span_of(name.p, name.n - strlen(".npy"));
	if (r < 0)
		return r;
	if (name_is_hashed(stem))
		return 0;
	r = draft_save_opts(item, span_of(NULL, 0), &o);
	if (r < 0 || o.ocdbt)
		return r;
	r = add_keys(dir, item, &param);
	if (r <= 0 || (r = name_unescape(stem, NAME_LEAF, 0, &param)) < 0)
		return r;
	return item_store_leaf_check(buf_span(&param));
}
