/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_stored.c - items of a draft that are not trees, and files beside the arrays of one that is,
 * or beside the items: all of these are stored byte for byte.
 *
 * The mark is user.pytree.kind. Without it, files that were copied within the mount are of the kind
 * that they were; README.md has the rule.
 */
#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/lock.h"
#include "handlers/plan/copy_hints.h"

/* Properties of the files of a directory and of those below it. */
struct signs {
	bool beside;   /* copies from beside the arrays of a tree are looked for, not the others */
	size_t n;      /* number of files, without generated ones */
	bool leaf;     /* a file has the name of a leaf, or there is a directory */
	bool array;    /* a file has a name that arrays have */
	bool known;    /* a file has a name that Orbax gives to such items */
	char *copied;  /* the path of a file that was copied from there; owned; NULL: none */
	char *written; /* the path of one that was not; owned */
};

static void signs_release(struct signs *s)
{
	free(s->copied);
	free(s->written);
}
#define auto_signs __attribute__((cleanup(signs_release))) struct signs

static bool stored_is_copied(struct draft_node *n, bool beside)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&n->draft->lock);

	return beside ? n->from_other : n->from_opaque;
}

static int look_at_file(struct draft_node *n, const char *dir, struct signs *s)
{
	const struct options *o = n->draft->env->options;
	enum name_ext ext = name_ext_of(span_str(n->name));
	bool copied = stored_is_copied(n, s->beside);
	char **example = copied ? &s->copied : &s->written;

	s->n++;
	s->leaf |= ext != NAME_EXT_NONE;
	s->array |= ext == NAME_EXT_NPY || ext == NAME_EXT_SAFETENSORS;
	s->known |= !strcmp(n->name, o->json_filename) || !strcmp(n->name, o->proto_filename) ||
		    !strcmp(n->name, "metadata") || !strcmp(n->name, "metrics") ||
		    !strcmp(n->name, "proto.pbtxt");
	/* No program asks to copy the contents of an empty file, so it may be either. */
	if (*example || (!copied && draft_file_size(n->file) == 0))
		return 0;
	*example = str_fmt("%s%s", dir, n->name);
	return *example ? 0 : fail(-ENOMEM, "cannot look at '%s'", n->name);
}

/* path: that of the directory, with '/' at its end; "" for the item. */
static int stored_look(struct draft_node *dir, const char *path, struct signs *s)
{
	auto_draft_list child = { 0 };
	int r = draft_children(dir, &child);

	for (size_t i = 0; i < child.n && r >= 0; i++) {
		struct draft_node *c = child.node[i];
		auto_free char *at = c->is_dir ? str_fmt("%s%s/", path, c->name) : NULL;

		s->leaf |= c->is_dir;
		if (c->is_dir)
			r = at ? stored_look(c, at, s) :
				 fail(-ENOMEM, "cannot look at '%s'", c->name);
		else if (*path || !plan_is_metadata(c))
			r = look_at_file(c, path, s);
	}
	return r;
}

/* ---- empty files and directories ---- */

/* Whether it is an empty file, or a directory of nothing but such files and directories. */
static bool is_empty(struct draft_node *n)
{
	auto_draft_list child = { 0 };

	if (!n->is_dir)
		return draft_file_size(n->file) == 0;
	if (draft_children(n, &child) < 0)
		return false;
	for (size_t i = 0; i < child.n; i++)
		if (!is_empty(child.node[i]))
			return false;
	return true;
}

/* Whether the copied tree has the name at its top, as a mount shows it. */
static bool is_of_hint(struct plan *p, const char *name)
{
	if (!p->hint || p->hint->root->kind == TREE_LEAF)
		return false;
	if (plan_name_hint(p) < 0) {
		err_clear();
		return true;
	}
	return tree_child(p->hint->root, span_str(name)) != NULL;
}

/*
 * Whether n, in a directory of the draft, is a copy of what lies beside arrays or items and is
 * empty: cp says nothing of the contents of an empty file. There is such a file or directory where
 * other files were copied from. p: the plan of dir when it is an item; NULL: it is the draft.
 */
static bool is_empty_copy(const struct draft_node *dir, struct draft_node *n, struct plan *p)
{
	struct draft *d = n->draft;
	auto_free char *path = NULL;
	struct stat st;
	bool there;

	if (!is_empty(n))
		return false;
	pthread_mutex_lock(&d->lock);
	if (draft_copied(dir)->from && draft_kind_locked(n) == KIND_NONE)
		path = str_fmt("%s/%s", draft_copied(dir)->from, n->name);
	pthread_mutex_unlock(&d->lock);
	if (!path || (p && is_of_hint(p, n->name)))
		return false;
	there = io_stat(d->env->ckpt->source, path, &st) >= 0;
	err_clear();
	return there && (n->is_dir ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode) && st.st_size == 0);
}

int plan_looks_opaque(struct draft_node *dir)
{
	auto_signs s = { 0 };
	int r = stored_look(dir, "", &s);

	if (r < 0)
		return r;
	if (s.copied && s.written)
		return fail(-EINVAL,
			    "'%s' is a copy from an item that is not a tree, and '%s' is not: "
			    "setfattr -n user.pytree.kind -v opaque '%s/%s' stores all of it as it "
			    "is, and 'dict' in place of 'opaque' makes a tree of it",
			    s.copied, s.written, dir->draft->name, dir->name);
	if (s.copied || (s.n == 1 && s.known && !s.leaf))
		return 1;
	return !draft_copied(dir)->document.n && dir->parent == dir->draft->root &&
	       !dir->draft->is_item && is_empty_copy(dir->draft->root, dir, NULL);
}

/*
 * Whether a child of an item that is a tree is stored as it is: 1 or 0. -EINVAL: only a part of a
 * directory was copied from beside a tree.
 */
static int is_other(struct draft_node *n)
{
	auto_signs s = { .beside = true };
	enum draft_kind kind = draft_kind(n);
	int r;

	if (kind != KIND_NONE)
		return kind == KIND_OPAQUE;
	r = n->is_dir ? stored_look(n, "", &s) : stored_is_copied(n, true);
	if (r < 0)
		return r;
	if (s.copied && s.written)
		return fail(-EINVAL,
			    "'%s/%s' is a copy of a file beside the arrays of a tree, and '%s/%s' "
			    "is not: user.pytree.kind of '%s' says which it is, 'opaque' or 'dict'",
			    n->name, s.copied, n->name, s.written, n->name);
	return n->is_dir ? s.copied != NULL : r;
}

int plan_is_beside_items(struct draft_node *n)
{
	if (plan_is_metadata(n) || (n->is_dir && n->name[0] != '.'))
		return 0;
	return is_empty_copy(n->draft->root, n, NULL) ? 1 : is_other(n);
}

static int stored_add_other(struct plan *p, struct draft_node *n)
{
	if (!array_reserve(p->other, p->cap_others, p->n_others + 1))
		return fail(-ENOMEM, "cannot look at '%s'", n->name);
	p->other[p->n_others++] = n;
	return 0;
}

int plan_take_beside(struct plan *p)
{
	auto_draft_list child = { 0 };
	int r = draft_children(p->item, &child);

	for (size_t i = 0; i < child.n && r >= 0; i++) {
		r = plan_is_beside_items(child.node[i]);
		if (r <= 0)
			continue;
		if (!array_reserve(p->held, p->cap_held, p->n_held + 1))
			return fail(-ENOMEM, "cannot look at '%s'", child.node[i]->name);
		p->held[p->n_held++] = draft_node_ref(child.node[i]);
		r = stored_add_other(p, child.node[i]);
	}
	return r;
}

/* Whether a file in the directory, or below it, has a name that arrays have: 1 or 0. */
static int has_arrays(struct draft_node *dir)
{
	auto_signs s = { 0 };
	int r = stored_look(dir, "", &s);

	return r < 0 ? r : s.array;
}

int plan_take_others(struct plan *p, struct draft_node **child, size_t *n)
{
	size_t n_retained = 0;

	p->n_others = 0;
	for (size_t i = 0; i < *n; i++) {
		int r = plan_is_metadata(child[i])          ? 0 :
			is_empty_copy(p->item, child[i], p) ? 1 :
							      is_other(child[i]);

		if (r > 0)
			r = stored_add_other(p, child[i]);
		else if (r == 0)
			child[n_retained++] = child[i];
		if (r < 0)
			return r;
	}
	*n = n_retained;
	return 0;
}

int plan_say_how_to_mark(const struct plan *p, int r)
{
	const struct draft *d = p->item->draft;
	const char *item = d->is_item ? "" : p->item->name, *file = NULL;
	struct err_note why;
	enum name_ext ext;
	bool say;

	/* Names can be marked in a mount only, whose drafts need the name of a step. */
	if (r != -EINVAL || !p->strict || !p->item->is_dir || p->kind != PLAN_TREE || d->any_name)
		return r;
	err_save(r, &why);
	say = p->hint ? 0 : has_arrays(p->item) == 0;
	/* A name at the top may have been meant as another file, unless there are arrays in it. */
	if (!say && p->refused) {
		ext = name_ext_of(span_str(p->refused->name));
		say = p->refused->is_dir ? has_arrays(p->refused) == 0 :
					   ext != NAME_EXT_NPY && ext != NAME_EXT_SAFETENSORS;
		file = p->refused->name;
	}
	if (!say)
		return err_restore(&why);
	return fail(r,
		    "%s; %s is stored as it is when cp -a copies it, or when it is marked: "
		    "setfattr -n user.pytree.kind -v opaque '%s%s%s%s%s'",
		    why.text, file ? "what is not a leaf" : "an item of other files", d->name,
		    *item ? "/" : "", item, file ? "/" : "", file ? file : "");
}
