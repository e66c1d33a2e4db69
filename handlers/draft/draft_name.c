/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_name.c - the names that a draft accepts for files and directories.
 *
 * Only the form of a name is checked when it is made. Its meaning (the kind of leaf, the key) is
 * determined at the commit, so programs may use temporary names until then.
 */
#include "core/base/err.h"
#include "core/tree/name.h"
#include "handlers/draft/draft_array.h"

/* Refuse names that Orbax reserves or hides, so they cannot name an item. */
int draft_check_item_name(struct span stem)
{
	static const char *const reserved[] = {
		"AUTO",      "_CHECKPOINT_DELETION", "_CHECKPOINT_METADATA",
		"_METADATA", "commit_success.txt",   "orbax.checkpoint"
	};

	for (size_t i = 0; i < ARRAY_LEN(reserved); i++)
		if (span_eq(stem, span_str(reserved[i])))
			return fail(-EINVAL, "'%.*s' is a name that Orbax keeps to itself",
				    SPAN_ARG(stem));
	if (span_eq(stem, span_str(".")) || span_eq(stem, span_str("..")))
		return fail(-EINVAL, "'%.*s' is not a name of an item", SPAN_ARG(stem));
	if (memmem(stem.p, stem.n, ".orbax-checkpoint-tmp", 21))
		return fail(-EINVAL,
			    "'%.*s' is not a name of an item: Orbax takes it for a temporary one",
			    SPAN_ARG(stem));
	return 0;
}

static struct span draft_name_stem(struct span name)
{
	return span_of(name.p, name.n - strlen(name_ext_text(name_ext_of(name))));
}

/* Whether a file is known to be stored as it is: it is marked, or a copy of such a file. */
static bool is_as_it_is(const struct draft_node *n)
{
	return !n->is_dir &&
	       (n->from_other || n->from_opaque || draft_kind_locked(n) == KIND_OPAQUE);
}

/*
 * Check the name of a file or directory: its escapes must be valid, and only a part may have the
 * form of a view.
 */
static int draft_name_check_form(struct draft_node *dir, struct span name, bool is_dir,
				 bool any_name)
{
	bool of_draft = dir == dir->draft->root && !dir->draft->is_item;
	/* `_METADATA` at the top of an item */
	unsigned generated = draft_item_of(dir) == dir ? NAME_OURS_METADATA : 0;
	struct draft_part part;
	auto_buf key = { 0 };
	int r;

	if (name.n > LIMIT_NAME_BYTES)
		return fail(-ENAMETOOLONG, "a name of %zu bytes", name.n);
	if (draft_is_opaque(dir))
		return 0;
	if (!utf8_valid(name))
		return fail(-EINVAL, "'%.*s' is not UTF-8, and keys are text", SPAN_ARG(name));
	if (any_name)
		return 0;
	/* The name of an item is not a key: it is used literally, in a committed step as well. */
	if (of_draft && is_dir)
		return draft_check_item_name(name);
	if (is_dir)
		return name_is_hashed(name) ? 0 :
					      name_unescape(name, NAME_CONTAINER, generated, &key);
	/*
	 * rsync writes to ".NAME.XXXXXX" and renames. Escapes of NAME may be shifted or truncated
	 * there, so only the final name is checked as a key.
	 */
	if (name.n > 1 && name.p[0] == '.' && name_ext_of(name) == NAME_EXT_NONE)
		return 0;
	/* The leaf of an item that is one bare leaf. */
	if (span_starts(name, span_str("%.")) && name_ext_of(name) != NAME_EXT_NONE &&
	    draft_name_stem(name).n == 1)
		return 0;
	r = draft_part_of(name, &part);
	if (r != 0)
		return r < 0 ? r : 0;
	/* Escapes of other temporary names must be valid as well, but the key does not matter. */
	if (name_is_hashed(draft_name_stem(name)))
		return 0;
	r = name_unescape(draft_name_stem(name), NAME_LEAF, 0, &key);
	if (r == -EINVAL && name_ext_of(name) == NAME_EXT_NONE)
		r = name_unescape(name, NAME_CONTAINER, 0, &key);
	return r;
}

/*
 * The name of the item that a child of the draft is, or will be; empty for other names, such as a
 * temporary name of a copy.
 */
static struct span item_name_of(struct span name, bool is_dir)
{
	enum name_ext ext = name_ext_of(name);

	if (is_dir)
		return name;
	if (span_ends(name, span_str(".pbtxt")))
		return span_of(name.p, name.n - strlen(".pbtxt"));
	return ext == NAME_EXT_JSON || ext == NAME_EXT_SAFETENSORS ? draft_name_stem(name) :
								     span_of(NULL, 0);
}

/*
 * Refuse "metrics.json" beside an item "metrics", and the reverse: both are the same item. `self`
 * is the node that is being renamed, which does not count.
 */
static int check_item_twice(const struct draft_node *dir, struct span name, bool is_dir,
			    const struct draft_node *self)
{
	struct span item = item_name_of(name, is_dir);

	if (dir != dir->draft->root || dir->draft->is_item || !item.n)
		return 0;
	for (size_t i = 0; i < dir->n_children; i++) {
		const struct draft_node *c = dir->child[i];

		/* Whether a new file is an item is known after cp(1) has set its attributes: the
		 * commit checks it. */
		if (c != self && !is_as_it_is(c) && (self || is_dir || !c->is_dir) &&
		    span_eq(item_name_of(span_str(c->name), c->is_dir), item))
			return fail(-EEXIST, "'%.*s': there is an item '%.*s' already, '%s'",
				    SPAN_ARG(name), SPAN_ARG(item), c->name);
	}
	return 0;
}

/* The number of nested directories, including this one. */
static unsigned height(const struct draft_node *n)
{
	unsigned most = 0;

	for (size_t i = 0; i < n->n_children; i++)
		most = MAX(most, height(n->child[i]));
	return most + n->is_dir;
}

int draft_check_name(const struct draft_node *self, struct draft_node *dir, struct span name,
		     bool is_dir, const struct draft_node *old)
{
	bool any_name = self ? is_as_it_is(self) :
			       !is_dir && atomic_load(&dir->draft->env->others_read);
	int r = draft_name_check_form(dir, name, is_dir, any_name);
	unsigned depth;

	if (r < 0 || any_name)
		return r;
	r = old ? 0 : check_item_twice(dir, name, is_dir, self);
	if (r < 0)
		return r;
	if (!is_dir)
		return draft_check_stored_name(dir, name);
	/*
	 * Functions recurse as deep as the directories of a draft, and no deeper tree could be
	 * committed. The item counts as a level besides the keys of its tree.
	 */
	depth = self ? height(self) : 1;
	for (const struct draft_node *up = dir; up->parent; up = up->parent)
		depth++;
	if (depth > 1 + LIMIT_TREE_DEPTH)
		return fail(-EFBIG, "'%.*s': more than %d directories inside each other",
			    SPAN_ARG(name), LIMIT_TREE_DEPTH);
	return 0;
}
