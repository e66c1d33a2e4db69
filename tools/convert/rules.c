/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.c - counts what rules leave out.
 */
#include "tools/convert/rules.h"

#include "core/base/err.h"

struct found {
	size_t trees, unused, idle;
	struct buf first; /* the first unused leaf */
	struct buf lines; /* of rules that have made nothing so far */
};

int rules_unused_text(const struct transform_unused *u, struct buf *ret)
{
	int r = buf_add_byte(ret, '\'');

	if (r >= 0)
		r = transform_key(u->leaf, ret);
	if (r >= 0)
		r = buf_add_byte(ret, '\'');
	if (r >= 0 && u->parts)
		r = buf_addf(ret, ", of which rules take only %llu of %llu parts",
			     (unsigned long long)u->parts, (unsigned long long)u->of);
	return r;
}

/* Keep the lines that both texts have. */
static int keep_common(struct buf *lines, const struct buf *more)
{
	auto_buf both = { 0 };
	struct span rest = buf_span(lines);

	while (rest.n) {
		size_t n = (size_t)((const uint8_t *)memchr(rest.p, '\n', rest.n) - rest.p) + 1;

		if (more->n && memmem(more->p, more->n, rest.p, n) && buf_add(&both, rest.p, n) < 0)
			return -ENOMEM;
		rest = span_from(rest, n);
	}
	buf_release(lines);
	*lines = both;
	both = (struct buf){ 0 };
	return 0;
}

static int look_at(const struct transform *t, const struct tree *tree, struct found *f)
{
	auto_free struct transform_unused *unused = NULL;
	auto_buf idle = { 0 };
	size_t n = 0;
	int r = transform_unused(t, tree, &unused, &n);

	if (r >= 0 && n && !f->unused)
		r = rules_unused_text(&unused[0], &f->first);
	f->unused += n;
	if (r >= 0)
		r = transform_idle(t, tree, &idle);
	if (r < 0)
		return r;
	return f->trees++ ? keep_common(&f->lines, &idle) :
			    buf_add_span(&f->lines, buf_span(&idle));
}

static int report(const struct cmd_args *a, struct found *f, bool say)
{
	auto_buf text = { 0 };
	int r = 0;

	for (size_t i = 0; i < f->lines.n; i++)
		f->idle += f->lines.p[i] == '\n';
	if (!f->unused && !f->idle)
		return 0;
	if (f->unused)
		r = buf_addf(&text,
			     "%zu stored leaves are left out by the rules, the first is %.*s",
			     f->unused, SPAN_ARG(buf_span(&f->first)));
	if (r >= 0 && f->idle)
		r = buf_addf(&text, "%s%zu rules make no leaf", f->unused ? "; " : "", f->idle);
	if (r >= 0)
		r = buf_addf(&text, " (`pytreefs transform --check %s` lists them)",
			     a->options.transforms);
	if (r < 0 || !buf_str(&text))
		return -ENOMEM;
	if (cmd_flag(a, "strict"))
		return fail(-EINVAL, "--strict: %s", buf_str(&text));
	if (say && !cmd_flag(a, "quiet")) {
		fputs("pytreefs: transforms: ", stderr);
		print_name(stderr, buf_str(&text));
		fputc('\n', stderr);
	}
	return 0;
}

int rules_check(const struct cmd_args *a, const struct subtree *st, bool say)
{
	const struct transform *t = a->options.transform;
	struct found f = { 0 };
	int r = 0;

	for (size_t i = 0; t && i < st->n && r >= 0; i++) {
		const struct subtree_part *part = &st->part[i];
		bool again = false;

		/* Parts of one item share its tree. */
		for (size_t k = 0; k < i && part->kind == PART_TREE; k++)
			again |= st->part[k].kind == PART_TREE && st->part[k].item == part->item;
		if (part->kind == PART_TREE && !again && transform_is_for(t, part->item->path))
			r = look_at(t, part->item->tree, &f);
	}
	if (r >= 0)
		r = report(a, &f, say);
	buf_release(&f.first);
	buf_release(&f.lines);
	return r;
}
