/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_digest.c - checks `.sha256sums` of an item: that it names the leaves of the tree, and that
 * their values have these digests.
 *
 * A value is hashed from front to back, so one thread reads one leaf, in a separate walk after the
 * one over chunks.
 */
#include "core/base/err.h"
#include "handlers/leaf/leaf_digest.h"
#include "tools/verify/verify.h"

struct digest_checks {
	struct verify *v;
	const struct verify_tree *t;
	const struct digests *digests;
	char *file; /* below SOURCE */
};

struct digest_check {
	const struct digests_entry *entry;
	bool is_compared;
	uint8_t found[DIGEST_BYTES];
	uint64_t bytes;
};

/* ---- the file ---- */

/* A value that sha256sum(1) can read should have a line. */
static bool has_digest(const struct tree_node *t)
{
	return t->kind == TREE_LEAF && t->value != TREE_VALUE_NONE &&
	       t->value != TREE_VALUE_PLACEHOLDER && leaf_type_of(t) &&
	       leaf_ext(NULL, t) < NAME_EXT_PLUGIN;
}

/* Report lines without a leaf, and leaves without a line. */
static int digest_check_names(struct digest_checks *all)
{
	const struct tree *tree = all->t->item->tree;
	const struct digests *d = all->digests;
	auto_free bool *seen = calloc(d->n + 1, sizeof(*seen));
	auto_free char *missing = NULL;
	uint64_t n_missing = 0;
	int r = seen ? 0 : fail(-ENOMEM, "cannot look at %zu digests", d->n);

	for (uint32_t i = 0; i < tree->n_nodes && r >= 0; i++) {
		const struct digests_entry *e;
		auto_buf name = { 0 };

		if (!has_digest(tree->nodes[i]))
			continue;
		r = leaf_digest_name(tree->nodes[i], &name);
		if (r < 0)
			return r;
		e = digests_find(d, buf_span(&name));
		if (e)
			seen[e - d->entry] = true;
		else if (!n_missing++)
			missing = span_dup_str(buf_span(&name));
	}
	if (r < 0)
		return r;
	if (n_missing)
		verify_file(all->v, 2, all->file, "%llu %s no SHA-256, the first is '%s'",
			    (unsigned long long)n_missing,
			    noun(n_missing, "leaf has", "leaves have"), missing ? missing : "?");
	for (size_t i = 0; i < d->n; i++)
		if (!seen[i])
			verify_file(all->v, 2, all->file, "'%.*s' is not a leaf of the tree",
				    SPAN_ARG(d->entry[i].name));
	return r;
}

/* ---- values ---- */

static int digest_compare(struct digest_check *c, const struct value *v)
{
	int r = leaf_digest(v, c->found);

	c->is_compared = r == 1;
	c->bytes = v->kind == VALUE_ARRAY ? v->array->meta.bytes : v->text.n;
	return MIN(r, 0);
}

static int digest_begin(void *arg, struct walk_leaf *leaf)
{
	struct digest_checks *all = arg;
	struct digest_check *c = calloc(1, sizeof(*c));
	auto_buf name = { 0 };
	int r;

	if (!c)
		return fail(-ENOMEM, "cannot check '%s'", leaf->path);
	leaf->state = c;
	leaf->n_tasks = 0;
	r = leaf_digest_name(leaf->node, &name);
	if (r < 0)
		return r;
	c->entry = digests_find(all->digests, buf_span(&name));
	if (!c->entry)
		return 0;
	leaf->n_tasks = leaf->value.kind == VALUE_ARRAY;
	/* A text has no tasks. */
	return leaf->value.kind == VALUE_TEXT ? digest_compare(c, &leaf->value) : 0;
}

static int digest_task(void *arg, struct walk_leaf *leaf, uint64_t task, struct walk_worker *worker)
{
	return digest_compare(leaf->state, &leaf->value);
}

/* The walk over chunks has reported chunks that do not decode. */
static int digest_end(void *arg, struct walk_leaf *leaf)
{
	struct digest_checks *all = arg;
	auto_free struct digest_check *c = leaf->state;
	struct finding f = { SEVERITY_ERROR, 3, leaf->path, all->file };
	char found[DIGEST_TEXT], recorded[DIGEST_TEXT];
	auto_buf text = { 0 };
	int r = leaf->failed.code == -ENOMEM ? err_restore(&leaf->failed) : 0;

	if (!c || !c->is_compared)
		return r;
	all->v->digest_leaves++;
	all->v->digest_bytes += c->bytes;
	if (!memcmp(c->found, c->entry->sha256, DIGEST_BYTES))
		return r;
	digest_text(c->found, found);
	digest_text(c->entry->sha256, recorded);
	buf_addf(&text, "the SHA-256 of its value is %s, recorded is %s", found, recorded);
	f.text = buf_str(&text);
	if (f.text)
		verify_say(all->v, &f);
	return r;
}

/* On ranks other than 0: pack the result for rank 0. */
static int digest_pack(void *arg, struct walk_leaf *leaf, struct buf *ret)
{
	struct verify *v = ((struct digest_checks *)arg)->v;
	const struct verify was = *v;

	v->packed = ret;
	return verify_pack_end(v, digest_end(arg, leaf), &was, ret);
}

static int digest_unpack(void *arg, struct walk_leaf *leaf, int rank, struct span packed)
{
	return verify_unpack(((struct digest_checks *)arg)->v, packed);
}

int verify_digests(struct verify *v, const struct verify_tree *t)
{
	static const struct walk_ops ops = { .begin = digest_begin,
					     .task = digest_task,
					     .end = digest_end,
					     .pack = digest_pack,
					     .unpack = digest_unpack,
					     .part = digest_pack,
					     .join = digest_unpack };
	auto_free char *file = verify_join(t->item->path, DIGESTS_FILE);
	auto_of(digests) struct digests *d = NULL;
	struct digest_checks all = { v, t, NULL, file };
	auto_buf text = { 0 };
	int r;

	if (!file)
		return fail(-ENOMEM, "cannot look at digests");
	r = io_read_file(v->ckpt->source, file, LIMIT_SMALL_FILE, &text);
	if (r == 0)
		r = digests_parse(buf_span(&text), "'" DIGESTS_FILE "'", &d);
	if (r < 0 && r != -ENOENT)
		return verify_failed(v, file, r);
	err_clear();
	if (!d)
		return 0;
	all.digests = d;
	r = v->level >= 2 ? digest_check_names(&all) : 0;
	return r < 0 || v->level < 3 ? r : verify_walk(v, t, &ops, &all);
}
