/*
 * draft_nested.c - items inside an item of a draft: random keys, as Orbax's handlers of them save them.
 *
 * Such an item is a directory of two: "jax_random_key" or "np_random_key", which is a tree, and what that
 * is with "_metadata" behind it, a JSON item. Their names in a commit have that of the outer one before a '/'.
 *
 * Kept true: one of the two has arrays, so the store of the outer item is that of the tree.
 */
#include "core/base/err.h"
#include "handlers/draft_plan.h"

#define KEY_METADATA "_metadata"

/* Of a directory's children: the one that is the tree's, when the other is all that there is beside it. */
static struct draft_node *key_of(struct draft_node *const *child, size_t n)
{
	struct draft_node *key = NULL, *other = NULL;
	size_t len;

	for (size_t i = 0; i < n; i++) {
		if (plan_is_metadata(child[i]->name))
			continue;
		if (!child[i]->is_dir || (key && other))
			return NULL;
		/* In the order of names the longer one comes second. */
		*(key ? &other : &key) = child[i];
	}
	if (!other || (strcmp(key->name, "jax_random_key") && strcmp(key->name, "np_random_key")))
		return NULL;
	len = strlen(key->name);
	return !strncmp(other->name, key->name, len) && !strcmp(other->name + len, KEY_METADATA) ? key : NULL;
}

/* A JSON item, and no part of a tree with such keys. */
static int looks_stored(struct draft_node *dir)
{
	bool marked;

	pthread_mutex_lock(&dir->draft->lock);
	marked = span_eq(draft_xattr_word(dir, "kind"), span_str("opaque"));
	pthread_mutex_unlock(&dir->draft->lock);
	return marked ? 1 : plan_looks_opaque(dir);
}

int draft_nested(struct draft_node *item, struct draft_node *ret[2])
{
	struct draft_node **child, *key;
	size_t n, kept = 0;
	int r = item->is_dir && !item->draft->is_item ? draft_children(item, &child, &n) : -ENOTDIR;

	if (r < 0)
		return r == -ENOTDIR ? 0 : r;
	key = key_of(child, n);
	for (size_t i = 0; i < n && key && r >= 0; i++)
		if (child[i]->is_dir && child[i] != key)
			r = looks_stored(child[i]);
	if (r <= 0)
		key = NULL;
	for (size_t i = 0; i < n; i++) {
		if (key && child[i]->is_dir)
			ret[kept++] = child[i];
		else
			draft_node_unref(child[i]);
	}
	free(child);
	return r < 0 ? r : key != NULL;
}

bool plan_is_nested(const struct plan *p)
{
	return p->name && strchr(p->name, '/');
}

struct draft_node *plan_owner(const struct plan *p)
{
	return plan_is_nested(p) && p->kind == PLAN_TREE ? draft_item_of(p->item) : p->item;
}

/* Programs that copy write it as any other file: it is generated for items of the step only. */
int plan_told_nested(const struct plan *p, struct buf *ret)
{
	struct draft_node **child;
	size_t n;
	int r = draft_children(p->item, &child, &n);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		struct draft_file *f = child[i]->file;
		uint64_t size = f && !strcmp(child[i]->name, "_METADATA") ? draft_file_size(f) : 0;

		if (r >= 0 && size && size <= LIMIT_SMALL_FILE) {
			r = buf_reserve(ret, size + 1);
			if (r >= 0)
				r = draft_file_read_into(f, 0, size, ret->p);
			ret->n = r < 0 ? 0 : size;
		}
		draft_node_unref(child[i]);
	}
	free(child);
	return MIN(r, 0);
}
