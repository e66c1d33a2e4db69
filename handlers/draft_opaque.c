/*
 * draft_opaque.c - a directory of nothing but files that are no leaves, and no xattr: what is it?
 *
 * cp -r and tar carry no xattr, so a copy of an item that is no tree comes like this. So does a leaf
 * whose ending is a typo, and what it would become no Orbax restores. So something else must say that it
 * is a copy: where the files came from, their names, or a committed step with such an item.
 */
#include "core/base/err.h"
#include "core/step/step.h"
#include "handlers/draft_plan.h"
#include "handlers/ns.h"

/* What the files of a directory say together. */
struct signs {
	size_t n;			/* files, generated ones not counted */
	bool other;			/* a directory, or a leaf */
	bool known;			/* a name that Orbax's items have */
	bool copied;			/* all are copies of such files, or empty: of these no program asks for a copy */
	bool any_copied;
};

static bool is_known(const struct options *o, const char *name)
{
	return !strcmp(name, o->json_filename) || !strcmp(name, o->proto_filename) || !strcmp(name, "metadata") ||
	       !strcmp(name, "metrics") || !strcmp(name, "proto.pbtxt");
}

static bool is_copied(struct draft_node *n)
{
	bool copied;

	pthread_mutex_lock(&n->draft->lock);
	copied = n->from_opaque;
	pthread_mutex_unlock(&n->draft->lock);
	return copied;
}

static int look(struct draft_node *dir, struct signs *ret)
{
	struct signs s = { .copied = true };
	struct draft_node **child;
	size_t n;
	int r = draft_children(dir, &child, &n);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		struct draft_node *c = child[i];

		if (!plan_is_metadata(c->name)) {
			s.n++;
			s.other |= c->is_dir || name_ext_of(span_str(c->name)) != NAME_EXT_NONE;
			s.known |= is_known(dir->draft->ns->options, c->name);
			s.any_copied |= is_copied(c);
			s.copied &= is_copied(c) || (!c->is_dir && draft_file_size(c->file) == 0);
		}
		draft_node_unref(c);
	}
	free(child);
	*ret = s;
	return 0;
}

/* Whether a committed step, the newest first, has an item of that name which is stored as it is. */
static int is_stored_elsewhere(struct ns *ns, const char *item)
{
	bool marker = ns->options->atomicity == ATOMICITY_COMMIT_FILE;
	auto_step_list l = { 0 };
	int r = step_list(ns->ckpt->source, marker, false, &l);

	for (size_t i = l.n; i-- > 0 && r >= 0;) {
		auto_free char *path = str_fmt("%s/%s", l.entry[i].name, item);
		enum item_kind kind;

		if (!path)
			return fail(-ENOMEM, "cannot look at '%s'", item);
		/* The first that has it tells. What cannot be read is no reason against a new step. */
		if (!l.entry[i].is_file && detect_item(ns->ckpt->source, path, &kind) >= 0)
			return kind == ITEM_STORED;
		err_clear();
	}
	return r;
}

int plan_looks_opaque(struct draft_node *dir)
{
	struct ns *ns = dir->draft->ns;
	struct signs s = { 0 };
	int r = look(dir, &s);

	if (r < 0 || !s.n || s.other)
		return MIN(r, 0);
	if ((s.n == 1 && s.known) || (s.copied && s.any_copied))
		return 1;
	return ns->ckpt->shape == SHAPE_ROOT && !dir->draft->is_item ? is_stored_elsewhere(ns, dir->name) : 0;
}
