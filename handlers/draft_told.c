/*
 * draft_told.c - what copied leaves and copied metadata files say that names and contents cannot say.
 *
 * Programs that copy an item write its `_METADATA`, too, and those that copy a step its
 * `_CHECKPOINT_METADATA`. The draft's own are generated, always; but where a program carries
 * no xattrs the copied ones are all that tell a list from a dict, say the key of a shortened
 * name, and bring custom metadata. A leaf that is copied within
 * the mount keeps its dtype where its bytes name none. All that decides nothing that
 * names, contents or xattrs say.
 *
 * Kept true: a text that is not valid, or is of another tree, changes nothing.
 */
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/step/step_meta.h"
#include "handlers/draft_plan.h"
#include "handlers/value.h"

#define TOLD_MAX (32 * MiB)		/* of a file; longer ones tell nothing */

void draft_tell(struct draft_node *dir, uint64_t off, const void *p, size_t n)
{
	struct buf *told = &dir->told;

	pthread_mutex_lock(&dir->draft->lock);
	if (off == 0)
		buf_release(told);
	/* Written from front to back by whoever copies; anything else tells nothing. */
	if (off != told->n || off + n > TOLD_MAX || buf_add(told, p, n) < 0)
		buf_release(told);
	pthread_mutex_unlock(&dir->draft->lock);
}

void draft_tell_file(struct draft_node *dir, struct draft_file *f)
{
	uint64_t size = draft_file_size(f);
	auto_buf text = { 0 };

	if (size <= TOLD_MAX && buf_reserve(&text, size + 1) >= 0 && draft_file_read_into(f, 0, size, text.p) >= 0)
		draft_tell(dir, 0, text.p, size);
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

void draft_tell_opaque(struct draft_node *n)
{
	pthread_mutex_lock(&n->draft->lock);
	n->from_opaque = true;
	pthread_mutex_unlock(&n->draft->lock);
}

int plan_told(struct plan *p)
{
	struct draft_node *item = p->item;
	auto_buf text = { 0 };
	int r;

	pthread_mutex_lock(&item->draft->lock);
	r = buf_add_span(&text, buf_span(&item->told));
	pthread_mutex_unlock(&item->draft->lock);
	if (r >= 0 && !text.n && plan_is_nested(p))
		r = plan_told_nested(p, &text);
	if (r >= 0 && text.n)
		r = tree_parse_metadata(buf_span(&text), "a copied _METADATA", &p->told);
	if (r < 0 && r != -ENOMEM) {
		trace(TRACE_LEAF, "item '%s': %s", item->name, err_text(r));
		err_clear();
		r = 0;
	}
	return r;
}

/* The step's file as it was copied; ret NULL: it tells nothing. */
static int told_step(struct draft_node *root, struct step_meta **ret)
{
	auto_buf text = { 0 };
	int r;

	*ret = NULL;
	pthread_mutex_lock(&root->draft->lock);
	r = buf_add_span(&text, buf_span(&root->told));
	pthread_mutex_unlock(&root->draft->lock);
	if (r >= 0 && text.n)
		r = step_meta_parse(buf_span(&text), "a copied _CHECKPOINT_METADATA", ret);
	if (r < 0 && r != -ENOMEM) {
		trace(TRACE_LEAF, "draft '%s': %s", root->draft->name, err_text(r));
		err_clear();
		r = 0;
	}
	return r;
}

int draft_told_custom(struct draft_node *root, struct buf *ret)
{
	auto_of(step_meta) struct step_meta *m = NULL;
	int r = told_step(root, &m);

	return r < 0 || !m || !m->custom || !strcmp(m->custom, "{}") ? r : buf_add_str(ret, m->custom);
}

int plan_told_array(struct plan *p)
{
	const struct tree_node *top = p->tree->root;
	auto_of(step_meta) struct step_meta *m = NULL;
	struct span told;
	int r = 0;

	if (!p->item->draft->is_item && p->n_leaves == 1 && top->n_children == 1 && top->children[0]->kind == TREE_LEAF)
		r = told_step(p->item->draft->root, &m);
	p->is_array = m && step_meta_handler(m, span_str(p->name), &told) > 0 && span_eq(told, span_str(ARRAY_HANDLER));
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

int plan_told_key(struct plan *p, const struct tree_node *parent, struct span stem, struct buf *ret)
{
	const struct tree_node *dir, *n;
	int r = 0;

	if (!p->told || !parent)
		return 0;
	if (!p->told_is_named)
		r = tree_name(p->told, leaf_ext, NULL);
	if (r < 0)
		return r;
	p->told_is_named = true;
	dir = told_node(p, parent);
	n = dir && dir->kind != TREE_LEAF ? tree_child_by_stem(dir, stem) : NULL;
	if (!n)
		return 0;
	r = buf_add_span(ret, n->key);
	return r < 0 ? r : 1;
}
