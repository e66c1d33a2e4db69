/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select.c - the patterns of --only.
 *
 * Every pattern is tried on every leaf, so that unused patterns are known.
 */
#include "tools/select/select.h"

#include <string.h>

#include "core/base/err.h"
#include "core/base/glob.h"

int select_make(struct cmd_args *a, struct select **ret)
{
	const char *only = cmd_value(a, "only");
	struct select *s;
	size_t n = 1;

	*ret = NULL;
	if (!only)
		return 0;
	for (const char *at = only; (at = strchr(at, '\n')); at++)
		n++;
	s = arena_calloc(&a->arena, 1, sizeof(*s));
	if (s)
		s->pattern = arena_calloc(&a->arena, n, sizeof(*s->pattern));
	for (; s && s->pattern && s->n < n; s->n++) {
		struct span one = span_of(only, strcspn(only, "\n"));

		s->pattern[s->n].glob = (const char *)arena_dup(&a->arena, one);
		if (!s->pattern[s->n].glob)
			break;
		only += one.n + 1;
	}
	if (!s || s->n < n)
		return fail(-ENOMEM, "cannot keep %zu patterns", n);
	*ret = s;
	return 0;
}

/* Whether the pattern is the name of a directory, for the message if it selects nothing. */
static bool names_a_directory(const char *glob, struct span path)
{
	const uint8_t *slash;

	while (glob_is_name(glob) && path.n && (slash = memrchr(path.p, '/', path.n))) {
		path.n = (size_t)(slash - path.p);
		if (glob_match(glob, path))
			return true;
	}
	return false;
}

static bool try_all(struct select *s, struct span path, unsigned skip)
{
	size_t ext = strlen(name_ext_text(name_ext_of(path)));
	bool any = false;

	for (size_t i = 0; i < s->n; i++) {
		struct select_pattern *p = &s->pattern[i];
		bool hit = glob_selects(p->glob, path, skip, ext);

		any |= hit;
		p->hit |= hit;
		if (!p->hit && !p->is_directory)
			p->is_directory = names_a_directory(p->glob, path);
	}
	return any;
}

bool select_path(struct select *s, struct span path)
{
	return !s || try_all(s, path, s->skip);
}

static unsigned count_names(const char *path)
{
	unsigned n = *path != '\0';

	for (; *path; path++)
		n += path[0] == '/' && path[1];
	return n;
}

bool select_leaf(struct select *s, const char *prefix, const struct subtree_part *part,
		 const struct tree_node *leaf)
{
	auto_buf path = { 0 }, rule = { 0 };
	bool any;
	unsigned skip;

	if (!s)
		return true;
	/* The path as it is printed. */
	if (buf_add_str(&path, prefix) < 0 || subtree_path(part, leaf, &path) < 0)
		return false;
	skip = count_names(prefix) + count_names(part->path);
	any = try_all(s, buf_span(&path), MAX(skip, s->skip));
	/* The path for rules, as in a mount. */
	if (subtree_rule_path(part->item, leaf, &rule, &skip) < 0)
		return any;
	return try_all(s, buf_span(&rule), skip) || any;
}

int select_end(const struct select *s)
{
	for (size_t i = 0; s && i < s->n; i++) {
		const struct select_pattern *p = &s->pattern[i];

		if (!p->hit && p->is_directory)
			return fail(
				-ENOENT,
				"no leaf is called '%s', a directory is: --only '**/%s/' chooses "
				"what is below it",
				p->glob, p->glob);
		if (!p->hit)
			return fail(
				-ENOENT,
				"no leaf matches '%s'; `pytreefs help patterns` says what patterns "
				"mean",
				p->glob);
	}
	return 0;
}
