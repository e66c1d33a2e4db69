/* SPDX-License-Identifier: Apache-2.0 */
/* plan_handler.c - the handler of Orbax that a step records for an item. */
#include "core/base/lock.h"
#include "core/step/step_meta.h"
#include "handlers/plan/copy_hints.h"
#include "handlers/plugin/leaf_plugin.h"

#define HANDLER(file, name) "orbax.checkpoint._src.handlers." file "." name

static const char *const handlers[] = {
	[PLAN_TREE] = HANDLER("pytree_checkpoint_handler", "PyTreeCheckpointHandler"),
	[PLAN_JSON] = HANDLER("json_checkpoint_handler", "JsonCheckpointHandler"),
	[PLAN_PROTO] = HANDLER("proto_checkpoint_handler", "ProtoCheckpointHandler"),
	[PLAN_STORED] = NULL,
	[PLAN_BESIDE] = NULL,
};

static const char *const jax_key = HANDLER("random_key_checkpoint_handler",
					   "JaxRandomKeyCheckpointHandler"),
			 *const numpy_key = HANDLER("random_key_checkpoint_handler",
						    "NumpyRandomKeyCheckpointHandler");

/*
 * Whether the tree is, at least in part, a copy of the item of that name. An item that a program
 * made anew, or of another item, has nothing to do with a handler that we do not know.
 */
static bool is_copied_tree(const struct plan *p)
{
	struct draft *d = p->item->draft;
	auto_unlock pthread_mutex_t *held = lock_hold(&d->lock);
	const char *from = d->is_item ? NULL : draft_copied(p->item)->from;
	const char *slash = from ? strrchr(from, '/') : NULL;

	return (p->hint || draft_copied(p->item)->format.known) &&
	       (!from || !strcmp(slash ? slash + 1 : from, p->name));
}

/*
 * Whether a copy has the handler of what it was copied from. It may have been written anew, so that
 * a handler of another kind of item does not suit it.
 */
static bool plan_handler_is_copied(const struct plan *p)
{
	static const char *const others[] = { "Json", "Metrics", "Proto", "ArrayCheckpoint",
					      "RandomKey" };
	const char *handler = p->copied_handler;

	if (!handler || plan_is_nested(p))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(others) && p->kind == PLAN_TREE; i++)
		if (strstr(handler, others[i]))
			return false;
	if (p->kind == PLAN_TREE)
		return step_meta_tree_handler(span_str(handler)) || is_copied_tree(p);
	return p->kind == PLAN_STORED && !step_meta_tree_handler(span_str(handler));
}

/* A copy of a JSON or proto item without a recorded handler has that type again. */
struct span plan_handler(const struct plan *p)
{
	const struct options *o = p->item->draft->env->options;
	const char *handler = p->kind == PLAN_PLUGIN_ITEM ? p->plugin->item->handler :
							    handlers[p->kind];
	const struct draft_node *only;

	if (plan_handler_is_copied(p))
		return span_str(p->copied_handler);
	/* The two nested items share the handler of the outer item, which is recorded once. */
	if (plan_is_nested(p)) {
		handler = p->kind != PLAN_TREE                     ? NULL :
			  !strcmp(p->item->name, "jax_random_key") ? jax_key :
								     numpy_key;
	} else if (p->kind == PLAN_STORED && p->item->n_children == 1) {
		only = p->item->child[0];
		if (only->is_dir)
			handler = NULL;
		else if (!strcmp(only->name, o->proto_filename))
			handler = handlers[PLAN_PROTO];
		else if (!strcmp(only->name, o->json_filename) || !strcmp(only->name, "metrics"))
			handler = handlers[PLAN_JSON];
	} else if (p->is_array) {
		handler = ARRAY_HANDLER;
	}
	return handler ? span_str(handler) : span_of(NULL, 0);
}
