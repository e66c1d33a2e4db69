/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin_leaf.c - the leaf type of a plugin as a struct leaf_type.
 *
 * Calling the plugin, and checking what it gives, is plugin_call.c's.
 */
#include "core/base/err.h"
#include "handlers/leaf/leaf.h"
#include "handlers/plugin/leaf_plugin.h"
#include "handlers/plugin/plugins.h"

static struct plugin *plugin_of(const struct leaf_type *t)
{
	return (struct plugin *)(uintptr_t)container_of(t, struct plugin, type);
}

static bool plugin_takes(const struct leaf_type *t, struct span typestr)
{
	const struct pytreefs_leaf *l = plugin_of(t)->leaf;
	auto_free char *text = l->probe ? span_dup_str(typestr) : NULL;

	return text && l->probe(text) == 1;
}

static int plugin_open(const struct leaf_type *t, struct item *item, const struct tree_node *leaf,
		       struct value *ret)
{
	struct plugin *p = plugin_of(t);
	auto_plugin_files stored = { 0 };
	auto_free char *dir = span_dup_str(leaf->param);
	int r = dir ? io_path_check(leaf->param, "leaf of a plugin") :
		      fail(-ENOMEM, "cannot open a leaf");

	if (r >= 0)
		r = plugin_files_read(item->dir, dir, true, &stored);
	if (r == -ENOENT)
		r = fail(-EUCLEAN, "leaf '%s' of type '%s' has no files", dir, p->leaf->typestr);
	if (r >= 0)
		r = plugin_decode_leaf(p, &stored, &ret->text);
	if (r >= 0)
		ret->kind = VALUE_FILE;
	return r;
}

void plugin_leaf_type(struct plugin *p, enum name_ext ext)
{
	p->typestr[0] = p->leaf->typestr;
	p->type = (struct leaf_type){
		.name = p->leaf->name,
		.typestr = p->typestr,
		.summary = p->leaf->summary ? p->leaf->summary : "",
		.ext = ext,
		.takes = plugin_takes,
		.open = plugin_open,
	};
}
