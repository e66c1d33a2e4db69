/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin_leaf.c - the leaf type of a plugin as a struct leaf_type.
 *
 * plugin_call.c calls the plugin and checks its results.
 */
#include "core/base/err.h"
#include "handlers/leaf/leaf.h"
#include "handlers/plugin/leaf_plugin.h"
#include "handlers/plugin/plugins.h"

static struct plugin *plugin_leaf_plugin_of(const struct leaf_type *t)
{
	return (struct plugin *)(uintptr_t)container_of(t, struct plugin, type);
}

static bool plugin_takes(const struct leaf_type *t, struct span typestr)
{
	const struct pytreefs_leaf *l = plugin_leaf_plugin_of(t)->leaf;
	auto_free char *text = l->probe ? span_dup_str(typestr) : NULL;

	return text && l->probe(text) == 1;
}

static int plugin_leaf_plugin_open(const struct leaf_type *t, struct item *item,
				   const struct tree_node *leaf, struct value *ret)
{
	struct plugin *p = plugin_leaf_plugin_of(t);
	auto_plugin_files stored = { 0 };
	auto_free char *dir = span_dup_str(leaf->param);
	int r = dir ? io_path_check(leaf->param, "leaf of a plugin") :
		      fail(-ENOMEM, "cannot open a leaf");

	if (r < 0)
		return r;
	r = plugin_files_read(item->dir, dir, true, &stored);
	if (r == -ENOENT)
		r = fail(-EUCLEAN, "leaf '%s' of type '%s' has no files", dir, p->leaf->typestr);
	if (r < 0)
		return r;
	r = plugin_decode_leaf(p, &stored, &ret->text);
	if (r < 0)
		return r;
	ret->kind = VALUE_FILE;
	return r;
}

/*
 * A file with the extension is taken without a look at its contents; the plugin checks them when
 * the commit encodes it.
 */
static int plugin_classify(const struct leaf_type *t, struct leaf_input *f, struct leaf_desc *ret)
{
	return f->ext == t->ext;
}

static int plugin_encode(const struct leaf_desc *d, struct leaf_input *f, struct leaf_sink *to)
{
	auto_plugin_files stored = { 0 };
	auto_buf bytes = { 0 };
	int r = f->ops->contents(f, &bytes);

	if (r < 0)
		return r;
	r = plugin_encode_leaf(plugin_leaf_plugin_of(d->type), buf_span(&bytes), &stored);
	for (size_t i = 0; i < stored.n && r >= 0; i++)
		r = to->ops->file(to, stored.file[i].name,
				  span_of(stored.file[i].p, stored.file[i].n));
	return r;
}

static int plugin_leaf_finalize(const struct leaf_type *t)
{
	return plugin_finalize(plugin_leaf_plugin_of(t));
}

void plugin_leaf_type(struct plugin *p, enum name_ext ext)
{
	p->typestr[0] = p->leaf->typestr;
	p->type = (struct leaf_type){
		.name = p->leaf->name,
		.noun = "a leaf of a plugin",
		.typestr = p->typestr,
		.summary = p->leaf->summary ? p->leaf->summary : "",
		.ext = ext,
		.takes = plugin_takes,
		.open = plugin_leaf_plugin_open,
		.classify = plugin_classify,
		.encode = plugin_encode,
		.finalize = plugin_leaf_finalize,
	};
}
