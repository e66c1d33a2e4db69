/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugins.c - loads plugins, and finds the plugin of an item.
 *
 * plugin_call.c calls them, and handlers/leaf/leaf.c finds the leaves that their types take. The
 * plugin that was loaded last is asked first; bindings come before probing.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "handlers/leaf/leaf.h"
#include "handlers/plugin/leaf_plugin.h"
#include "handlers/plugin/plugins.h"
#include "handlers/plugin/value_fn.h"

#define VALUES_MAX 64 /* our limit for one plugin */

struct binding {
	struct binding *next;
	char *item, *name;
};

/* Written only while options are read. */
static struct plugin *loaded;
static struct binding *bindings;

/* ---- loading ---- */

static int plugins_refuse(const char *path, const char *why)
{
	return fail(-EINVAL, "plugin '%s' %s", path, why);
}

static bool plugins_is_word(const char *s, size_t max)
{
	size_t n = s ? strnlen(s, max + 1) : 0;

	for (size_t i = 0; i < n; i++)
		if (s[i] <= ' ' || s[i] > '~' || strchr("/\"\\%[]@:", s[i]))
			return false;
	return n > 0 && n <= max;
}

static int plugins_check_leaf(struct plugin *p, const char *path)
{
	const struct pytreefs_leaf *l = p->leaf;
	enum name_ext ext;
	int r;

	if (l->size < sizeof(*l))
		return plugins_refuse(path, "describes a leaf by a struct that is too short");
	if (!plugins_is_word(l->name, 64) || !l->typestr || !*l->typestr ||
	    strlen(l->typestr) > 1024)
		return plugins_refuse(path, "has a leaf without a name or type string");
	if (!plugins_is_word(l->extension, 16) || l->extension[0] != '.' ||
	    strchr(l->extension + 1, '.') || !l->extension[1])
		return plugins_refuse(path, "has a leaf whose extension is not a \".word\"");
	if (!l->decode)
		return plugins_refuse(path, "has a leaf without decode()");
	r = name_ext_add(l->extension, &ext);
	if (r < 0)
		return err_at(r, "plugin '%s'", path);
	plugin_leaf_type(p, ext);
	return 0;
}

static int plugins_check_item(const struct plugin *p, const char *path)
{
	const struct pytreefs_item *it = p->item;

	if (it->size < sizeof(*it))
		return plugins_refuse(path, "describes an item by a struct that is too short");
	if (!plugins_is_word(it->name, 64) || !it->decode)
		return plugins_refuse(path, "has an item without a name or decode()");
	return 0;
}

/*
 * Check that a value function is complete and that its name is a word, and not the name of a
 * built-in one.
 */
static int plugins_check_value(const struct pytreefs_value_fn *v, const char *path)
{
	if (!v || v->size < sizeof(*v))
		return plugins_refuse(
			path, "describes a value function by NULL or a struct that is too short");
	if (!plugins_is_word(v->name, 64) || strpbrk(v->name, "(),") || !v->plan || !v->run)
		return plugins_refuse(path, "has a value function without a name, plan() or run()");
	if (value_fn_by_name(span_str(v->name)) != VALUE_FN_NONE)
		return fail(
			-EINVAL,
			"plugin '%s' has a value function '%s', which is the name of a built-in "
			"one",
			path, v->name);
	return 0;
}

static int check_values(struct plugin *p, const struct pytreefs_plugin *d, const char *path)
{
	int r = 0;

	if (d->n_values > VALUES_MAX)
		return fail(-EINVAL, "plugin '%s' has %u value functions, the limit is %d", path,
			    d->n_values, VALUES_MAX);
	p->values = calloc(d->n_values + 1, sizeof(*p->values));
	if (!p->values)
		return fail(-ENOMEM, "cannot load plugin '%s'", path);
	for (uint32_t i = 0; i < d->n_values && r >= 0; i++) {
		r = plugins_check_value(d->values[i], path);
		p->values[i] = (struct plugin_value){ p, d->values[i] };
	}
	p->n_values = d->n_values;
	return r;
}

static int plugins_check(struct plugin *p, const struct pytreefs_plugin *d, const char *path)
{
	/*
	 * The description of a plugin that was built before value functions existed ends before
	 * `values`.
	 */
	bool has_values = d && d->size >= sizeof(*d) && d->values && d->n_values;
	int r = 0;

	if (!d)
		return plugins_refuse(path, "returned NULL from pytreefs_plugin()");
	if (d->abi != PYTREEFS_ABI)
		return fail(-EINVAL, "plugin '%s' has ABI version %u, this program needs %u", path,
			    d->abi, PYTREEFS_ABI);
	if (d->size < offsetof(struct pytreefs_plugin, values))
		return fail(-EINVAL,
			    "plugin '%s' has a description of %u bytes, ABI version %u needs %zu",
			    path, d->size, d->abi, offsetof(struct pytreefs_plugin, values));
	if (!plugins_is_word(d->name, 64) || (!d->leaf && !d->item && !has_values))
		return plugins_refuse(
			path, "has no name, or neither a leaf, an item nor a value function");
	p->name = d->name;
	p->leaf = d->leaf;
	p->item = d->item;
	if (p->item)
		r = plugins_check_item(p, path);
	if (r < 0)
		return r;
	if (has_values)
		r = check_values(p, d, path);
	/* Last, because it registers the leaf type and its extension. */
	return r < 0 || !p->leaf ? r : plugins_check_leaf(p, path);
}

int plugin_load(const char *path)
{
	auto_free char *real = realpath(path, NULL);
	const struct pytreefs_plugin *(*describe)(void);
	struct plugin *p;
	void *so, *symbol;
	int r;

	if (!real)
		return err_sys("cannot find plugin", path);
	for (p = loaded; p; p = p->next)
		if (!strcmp(p->path, real))
			return plugins_refuse(path, "is loaded already");
	so = dlopen(real, RTLD_NOW | RTLD_LOCAL);
	if (!so)
		return fail(-EINVAL, "cannot load plugin '%s': %s", path, dlerror());
	symbol = dlsym(so, "pytreefs_plugin");
	if (!symbol)
		return plugins_refuse(path, "has no function pytreefs_plugin()");
	memcpy(&describe, &symbol, sizeof(describe));
	p = calloc(1, sizeof(*p));
	if (!p)
		return fail(-ENOMEM, "cannot load plugin '%s'", path);
	r = plugins_check(p, describe(), path);
	if (r >= 0 && p->leaf)
		r = leaf_type_add(&p->type);
	if (r < 0) {
		free(p->values);
		free(p);
		return r;
	}
	pthread_mutex_init(&p->serial, NULL);
	p->path = take(real);
	p->next = loaded;
	loaded = p;
	return 0;
}

const struct item_type item_types[] = {
	{ "tree", "a PyTree, whose leaves are files", NULL },
	{ "json", "a JSON document, in the file of json_filename=",
	  "the file NAME.json of a draft is such an item" },
	{ "proto", "a text-format protocol buffer, in the file of proto_filename=",
	  "the file NAME.pbtxt of a draft is such an item" },
	{ "files", "anything else, shown and stored byte for byte", NULL },
	{ 0 },
};

/* Whether a plugin has an item type of that name, which comes before a built-in one. */
static bool has_item_type(const char *name)
{
	for (const struct plugin *p = loaded; p; p = p->next)
		if (p->item && !strcmp(p->item->name, name))
			return true;
	return false;
}

int plugin_bind(const char *text)
{
	const char *colon = strchr(text, ':');
	const struct item_type *type = item_types;
	struct binding *b;

	if (!colon || colon == text || !colon[1])
		return fail(-EINVAL, "option 'handler' does not accept '%s'; it takes ITEM:NAME",
			    text);
	while (type->name && strcmp(type->name, colon + 1))
		type++;
	if (!has_item_type(colon + 1)) {
		if (!type->name)
			return fail(-EINVAL,
				    "option 'handler': no plugin before it has an item type '%s', "
				    "and it is not tree or files",
				    colon + 1);
		if (type->hint)
			return fail(-EINVAL, "option 'handler' does not take '%s': %s", type->name,
				    type->hint);
	}
	b = calloc(1, sizeof(*b));
	if (b) {
		b->item = span_dup_str(span_of(text, (size_t)(colon - text)));
		b->name = strdup(colon + 1);
	}
	if (!b || !b->item || !b->name)
		return fail(-ENOMEM, "cannot bind '%s'", text);
	b->next = bindings;
	bindings = b;
	return 0;
}

enum item_binding item_bound(const char *item)
{
	for (const struct binding *b = bindings; b; b = b->next)
		if (!strcmp(b->item, item))
			return has_item_type(b->name)    ? ITEM_OF_PLUGIN :
			       !strcmp(b->name, "files") ? ITEM_AS_FILES :
							   ITEM_AS_TREE;
	return ITEM_UNBOUND;
}

int plugins_print(struct buf *ret)
{
	int r = 0;

	for (const struct plugin *p = loaded; p && r >= 0; p = p->next)
		r = buf_addf(ret, "%s%s", p == loaded ? "" : " ", p->path);
	return r;
}

int plugins_print_bindings(struct buf *ret)
{
	int r = 0;

	for (const struct binding *b = bindings; b && r >= 0; b = b->next)
		r = buf_addf(ret, "%s%s:%s", b == bindings ? "" : " ", b->item, b->name);
	return r;
}

const struct plugin *plugin_first(void)
{
	return loaded;
}

const struct plugin_value *plugin_value_by_name(struct span name)
{
	for (const struct plugin *p = loaded; p; p = p->next)
		for (uint32_t i = 0; i < p->n_values; i++)
			if (span_eq(name, span_str(p->values[i].value->name)))
				return &p->values[i];
	return NULL;
}

/* ---- look-up ---- */

struct plugin *plugin_of_ext(enum name_ext ext)
{
	for (struct plugin *p = loaded; p; p = p->next)
		if (p->leaf && p->type.ext == ext)
			return p;
	return NULL;
}

int plugin_of_item(const char *item, struct io_dir *dir, const char *path, struct plugin **ret)
{
	auto_plugin_files files = { 0 };
	bool any = false;
	int r = 0;

	*ret = NULL;
	for (const struct binding *b = bindings; b; b = b->next)
		for (struct plugin *p = loaded; p && !strcmp(b->item, item); p = p->next)
			if (p->item && !strcmp(p->item->name, b->name)) {
				*ret = p;
				return 0;
			}
	for (struct plugin *p = loaded; p; p = p->next)
		any |= p->item && p->item->probe;
	if (!any || !dir || item_bound(item) != ITEM_UNBOUND)
		return 0;
	r = plugin_files_read(dir, path, false, &files);
	/* An item that exceeds the limits of plugins is not offered to any. */
	if (r == -EFBIG) {
		err_clear();
		return 0;
	}
	_Static_assert(sizeof(struct plugin_file) == sizeof(struct pytreefs_plugin_file),
		       "the array of one is passed as an array of the other");
	for (struct plugin *p = loaded; p && r >= 0 && !*ret; p = p->next)
		if (p->item && p->item->probe &&
		    p->item->probe((const struct pytreefs_plugin_file *)files.file,
				   (uint32_t)files.n) == 1)
			*ret = p;
	return r;
}
