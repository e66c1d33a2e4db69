/*
 * draft_told.c - what copied leaves and a copied `_METADATA` say that names and contents cannot say.
 *
 * Programs that copy an item write its `_METADATA`, too. The draft's own is
 * generated, always; but where a program carries no xattrs the copied one is all that
 * tells a list from a dict, and brings custom metadata. A leaf that is copied within
 * the mount keeps its dtype where its bytes name none. All that decides nothing that
 * names, contents or xattrs say.
 *
 * Kept true: a text that is not valid, or is of another tree, changes nothing.
 */
#include "core/base/err.h"
#include "core/base/log.h"
#include "handlers/draft_plan.h"

#define TOLD_MAX (32 * MiB)		/* of an item; longer ones tell nothing */

void draft_tell(struct draft_node *item, uint64_t off, const void *p, size_t n)
{
	struct buf *told = &item->told;

	pthread_mutex_lock(&item->draft->lock);
	if (off == 0)
		buf_release(told);
	/* Written from front to back by whoever copies; anything else tells nothing. */
	if (off != told->n || off + n > TOLD_MAX || buf_add(told, p, n) < 0)
		buf_release(told);
	pthread_mutex_unlock(&item->draft->lock);
}

void draft_tell_file(struct draft_node *item, struct draft_file *f)
{
	uint64_t size = draft_file_size(f);
	auto_buf text = { 0 };

	if (size <= TOLD_MAX && buf_reserve(&text, size + 1) >= 0 && draft_file_read_into(f, 0, size, text.p) >= 0)
		draft_tell(item, 0, text.p, size);
	err_clear();
}

static struct span word(struct span s)
{
	return s.n >= 2 && s.p[0] == '"' && s.p[s.n - 1] == '"' ? span_of(s.p + 1, s.n - 2) : s;
}

void draft_tell_leaf(struct draft_node *n, struct span dtype, struct span impl)
{
	pthread_mutex_lock(&n->draft->lock);
	n->told_dtype = dtype.n ? (int)dtype_by_name(word(dtype)) : DTYPE_UNKNOWN;
	buf_release(&n->told_impl);
	if (impl.n && buf_add_span(&n->told_impl, word(impl)) < 0)
		buf_release(&n->told_impl);
	pthread_mutex_unlock(&n->draft->lock);
	err_clear();
}

int plan_told(struct plan *p)
{
	struct draft_node *item = p->item;
	auto_buf text = { 0 };
	int r;

	pthread_mutex_lock(&item->draft->lock);
	r = buf_add_span(&text, buf_span(&item->told));
	pthread_mutex_unlock(&item->draft->lock);
	if (r >= 0 && text.n)
		r = tree_parse_metadata(buf_span(&text), "a copied _METADATA", &p->told);
	if (r < 0 && r != -ENOMEM) {
		trace(TRACE_LEAF, "item '%s': %s", item->name, err_text(r));
		err_clear();
		r = 0;
	}
	return r;
}

/* The node of the copied tree with the key path of one of ours. */
static const struct tree_node *told_node(const struct plan *p, const struct tree_node *n)
{
	const struct tree_node *parent;

	if (!n->parent)
		return p->told->root;
	parent = told_node(p, n->parent);
	return parent && parent->kind != TREE_LEAF ? tree_child_by_key(parent, n->key) : NULL;
}

enum tree_kind plan_told_kind(const struct plan *p, const struct tree_node *n)
{
	const struct tree_node *told = p->told ? told_node(p, n) : NULL;

	return told && (told->kind == TREE_LIST || told->kind == TREE_TUPLE) ? told->kind : TREE_DICT;
}
