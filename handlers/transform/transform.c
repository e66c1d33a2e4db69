/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transform.c - reads a file of rules.
 *
 * transform_inverse.c inverts the rules, transform_tree.c applies them to a tree, and derived.c
 * computes values.
 */
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>

#include "core/base/err.h"
#include "handlers/plugin/plugins.h"
#include "handlers/transform/transform_impl.h"

#define FILE_MAX (16 * MiB) /* our limit for a file of rules */
#define RULES_MAX 10000     /* our limit for rules: each one is tried on each leaf */

/* ---- one rule ---- */

static int only_members(const struct json *obj, const char *what, const char *const *names,
			size_t n)
{
	for (size_t i = 0; i < obj->n; i++) {
		bool known = false;

		for (size_t j = 0; j < n; j++)
			known |= span_eq(obj->items[i].name, span_str(names[j]));
		if (!known)
			return fail(-EINVAL, "%s has an unknown member '%.*s'", what,
				    SPAN_ARG(obj->items[i].name));
	}
	return 0;
}

/* Replace the names of a rule's indexes by their numbers. The result is in the arena. */
static int fill_indexes(struct transform *t, const struct rule *rule, struct span text,
			struct span *ret)
{
	auto_buf out = { 0 };
	int r = 0;

	if (rule->n_indexes == 0) {
		*ret = text;
		return 0;
	}
	for (size_t i = 0; i < text.n && r >= 0; i++) {
		const uint8_t *end = text.p[i] == '{' ? memchr(text.p + i, '}', text.n - i) : NULL;
		unsigned k = rule->n_indexes;

		if (end)
			for (k = 0; k < rule->n_indexes; k++)
				if (span_eq(span_of(text.p + i + 1, (size_t)(end - text.p) - i - 1),
					    rule->index[k].name))
					break;
		if (k == rule->n_indexes) {
			r = buf_add_byte(&out, text.p[i]);
			continue;
		}
		r = buf_addf(&out, "%llu", (unsigned long long)rule->index[k].value);
		i = (size_t)(end - text.p);
	}
	return r < 0 ? r : arena_keep(&t->arena, buf_span(&out), ret);
}

static int read_originals(struct transform *t, const struct json *j, struct rule *rule)
{
	size_t n = j->kind == JSON_ARRAY ? j->n : 1;

	if (n == 0 || n > RULE_INPUTS_MAX)
		return fail(-EINVAL, "%s: original_key has %zu texts, it takes 1 to %d", rule->what,
			    n, RULE_INPUTS_MAX);
	for (size_t i = 0; i < n; i++) {
		const struct json *one = j->kind == JSON_ARRAY ? &j->items[i] : j;
		struct regex_piece piece;
		struct span rest;
		int r;

		if (one->kind != JSON_STRING)
			return fail(-EINVAL, "%s: original_key takes a text, or a list of texts",
				    rule->what);
		r = fill_indexes(t, rule, one->s, &rule->original[i]);
		if (r < 0)
			return r;
		/* All groups that the text names must exist. */
		rest = rule->original[i];
		do
			r = regex_piece(rule->key, &rest, &piece);
		while (r > 0);
		if (r < 0)
			return err_at(r, "%s: original_key", rule->what);
	}
	rule->n_originals = (unsigned)n;
	rule->has_original = true;
	return 0;
}

/* Parse "slice(0:2, 3)" into the function and its arguments "0:2, 3". */
static int read_step(struct transform *t, const struct json *j, const struct rule *rule,
		     struct rule_step *ret)
{
	struct span text = j->kind == JSON_STRING ? j->s : span_of(NULL, 0), name;
	int r = fill_indexes(t, rule, text, &text);
	const uint8_t *open = r >= 0 && text.n ? memchr(text.p, '(', text.n) : NULL;

	if (r < 0)
		return r;
	if (!open || text.p[text.n - 1] != ')')
		return fail(-EINVAL,
			    "%s: value_fn takes \"NAME(ARGUMENTS)\", or a list of 1 to %d of these",
			    rule->what, RULE_STEPS_MAX);
	name = span_of(text.p, (size_t)(open - text.p));
	ret->fn = value_fn_by_name(name);
	if (ret->fn == VALUE_FN_NONE) {
		ret->plugin = plugin_value_by_name(name);
		ret->fn = ret->plugin ? VALUE_FN_PLUGIN : VALUE_FN_NONE;
	}
	if (ret->fn == VALUE_FN_NONE)
		return fail(
			-EINVAL,
			"%s: value_fn '%.*s' is not one of cast, transpose, reshape, slice, scale, "
			"add, pad, unstack, concat, stack, or of a plugin given before",
			rule->what, SPAN_ARG(text));
	ret->args = span_of(open + 1, (size_t)(text.p + text.n - open) - 2);
	if (memchr(ret->args.p, 0, ret->args.n))
		return fail(-EINVAL, "%s: the arguments of value_fn have a NUL character",
			    rule->what);
	return 0;
}

/* Read one function, or a list of functions. */
static int read_fn(struct transform *t, const struct json *j, struct rule *rule)
{
	size_t n = j->kind == JSON_ARRAY ? j->n : 1;
	int r = 0;

	if (n == 0 || n > RULE_STEPS_MAX)
		return fail(-EINVAL, "%s: value_fn has %zu functions, it takes 1 to %d", rule->what,
			    n, RULE_STEPS_MAX);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = read_step(t, j->kind == JSON_ARRAY ? &j->items[i] : j, rule, &rule->step[i]);
	rule->n_steps = (unsigned)n;
	return r;
}

/* A text that ends in .npy names a file, relative to the file of rules. */
static int read_fallback(struct transform *t, const struct json *j, struct rule *rule)
{
	auto_free char *copy = strdup(t->path), *joined = NULL, *real = NULL;

	rule->fallback = j;
	rule->has_fallback = true;
	if (j->kind == JSON_ARRAY || j->kind == JSON_OBJECT)
		return fail(
			-EINVAL,
			"%s: use_fallback takes a number, a text, true, false, null, or an .npy "
			"file",
			rule->what);
	if (j->kind != JSON_STRING || !span_ends(j->s, span_str(".npy")))
		return 0;
	joined = !copy            ? NULL :
		 j->s.p[0] == '/' ? strdup((const char *)j->s.p) :
				    str_fmt("%s/%.*s", dirname(copy), SPAN_ARG(j->s));
	if (!joined)
		return fail(-ENOMEM, "cannot read '%s'", t->path);
	real = realpath(joined, NULL);
	if (!real)
		return err_at(err_sys("cannot find", joined), "%s: use_fallback", rule->what);
	rule->file = arena_str(&t->arena, real);
	return rule->file ? 0 : fail(-ENOMEM, "cannot read '%s'", t->path);
}

static int check_rule(const struct rule *rule)
{
	int r = 0;

	if (rule->has_fallback && (rule->has_original || rule->n_steps))
		return fail(-EINVAL,
			    "%s: use_fallback cannot be combined with original_key or value_fn",
			    rule->what);
	if (rule->n_originals > 1 && rule->step->fn != VALUE_FN_CONCAT &&
	    rule->step->fn != VALUE_FN_STACK && rule->step->fn != VALUE_FN_PLUGIN)
		return fail(
			-EINVAL,
			"%s: several inputs need value_fn concat(AXIS), stack(AXIS), or a plugin's",
			rule->what);
	/* The plugin checks its arguments itself, when it gets the inputs. */
	for (unsigned i = 0; i < rule->n_steps && r >= 0; i++)
		if (rule->step[i].fn != VALUE_FN_PLUGIN)
			r = value_fn_check(rule->step[i].fn, rule->step[i].args,
					   i ? 1 : MAX(rule->n_originals, 1u));
	return r < 0 ? err_at(r, "%s", rule->what) : 0;
}

static int read_rule(struct transform *t, const struct json *j, struct rule *rule)
{
	static const char *const names[] = { "key", "original_key", "use_fallback", "value_fn",
					     "for" };
	const struct json *key = json_member(j, "key"), *original = json_member(j, "original_key");
	const struct json *fallback = json_member(j, "use_fallback"),
			  *fn = json_member(j, "value_fn");
	int r;

	if (!json_is(j, JSON_OBJECT) || !json_is(key, JSON_STRING))
		return fail(-EINVAL, "%s needs a \"key\" that is a text", rule->what);
	r = only_members(j, rule->what, names, ARRAY_LEN(names));
	if (r < 0)
		return r;
	r = fill_indexes(t, rule, key->s, &rule->key_text);
	if (r < 0)
		return r;
	r = regex_new(rule->key_text, rule->what, &rule->key);
	if (r < 0)
		return r;
	if (original && original->kind != JSON_NULL)
		r = read_originals(t, original, rule);
	if (r < 0)
		return r;
	if (fallback)
		r = read_fallback(t, fallback, rule);
	if (r < 0)
		return r;
	if (fn && fn->kind != JSON_NULL)
		r = read_fn(t, fn, rule);
	if (r < 0)
		return r;
	r = check_rule(rule);
	return r < 0 || t->target ? r : rule_invert(rule);
}

/* ---- the file ---- */

const char *transform_file(const struct transform *t, size_t i)
{
	for (size_t k = 0; k < t->n_rules; k++)
		if (t->rule[k].file && i-- == 0)
			return t->rule[k].file;
	return NULL;
}

void transform_free(struct transform *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n_rules; i++) {
		regex_free(t->rule[i].key);
		regex_free(t->rule[i].inverse);
	}
	free(t->rule);
	free(t->by_key);
	json_release(&t->doc);
	arena_release(&t->arena);
	free(t->path);
	free(t);
}

/* Orders rules by descending key. Orbax sorts rules, so their order in the file does not matter. */
static int by_key_backwards(const void *a, const void *b)
{
	const struct rule *ra = *(const struct rule *const *)a,
			  *rb = *(const struct rule *const *)b;
	int c = span_cmp(rb->key_text, ra->key_text);

	return c ? c : (rb > ra) - (rb < ra);
}

/* ---- "for" ---- */

/*
 * Whether a key contains the name of an index in braces. Without it all rules of the "for" would
 * make the same keys.
 */
static bool has_index(const struct json *key, struct span name)
{
	struct span s = json_is(key, JSON_STRING) ? key->s : span_of(NULL, 0);

	for (size_t i = 0; i + name.n + 1 < s.n; i++)
		if (s.p[i] == '{' && s.p[i + 1 + name.n] == '}' &&
		    span_eq(span_of(s.p + i + 1, name.n), name))
			return true;
	return false;
}

/*
 * Read the names and counts of a rule's "for" into ret, and set *ret_n to the number of rules that
 * it stands for.
 */
static int read_for(const struct json *rule, size_t number, struct rule *ret, size_t *ret_n)
{
	const struct json *j = json_member(rule, "for");

	*ret_n = 1;
	if (!j || j->kind == JSON_NULL)
		return 0;
	if (j->kind != JSON_OBJECT || j->n == 0 || j->n > RULE_INDEXES_MAX)
		return fail(-EINVAL,
			    "rule %zu: \"for\" takes 1 to %d names with counts, {\"i\": 32}",
			    number, RULE_INDEXES_MAX);
	for (size_t i = 0; i < j->n; i++) {
		const struct json *count = &j->items[i];

		if (count->kind != JSON_INT || count->i < 1 || count->i > RULES_MAX)
			return fail(-EINVAL, "rule %zu: \"for\" takes counts of 1 to %d", number,
				    RULES_MAX);
		if (count->name.n == 0 || !has_index(json_member(rule, "key"), count->name))
			return fail(-EINVAL, "rule %zu: its key does not have '{%.*s}'", number,
				    SPAN_ARG(count->name));
		ret->index[i] =
			(struct rule_index){ .name = count->name, .count = (uint64_t)count->i };
		*ret_n *= (size_t)count->i;
		if (*ret_n > RULES_MAX)
			return fail(-EFBIG, "rule %zu expands to more than %d rules", number,
				    RULES_MAX);
	}
	ret->n_indexes = (unsigned)j->n;
	return 0;
}

/* Set the indexes for the k-th of the rules of a "for". The last index varies fastest. */
static void set_indexes(struct rule *rule, size_t number, size_t k)
{
	int at = snprintf(rule->what, sizeof(rule->what), "rule %zu", number);

	for (unsigned i = rule->n_indexes; i-- > 0; k /= rule->index[i].count)
		rule->index[i].value = k % rule->index[i].count;
	for (unsigned i = 0; i < rule->n_indexes && at < (int)sizeof(rule->what); i++)
		at += snprintf(rule->what + at, sizeof(rule->what) - (size_t)at, "%s%.*s=%llu%s",
			       i ? ", " : " (", SPAN_ARG(rule->index[i].name),
			       (unsigned long long)rule->index[i].value,
			       i + 1 == rule->n_indexes ? ")" : "");
}

static int count_rules(const struct json *rules, size_t *ret)
{
	size_t n = 0, more;

	for (size_t i = 0; rules && i < rules->n; i++, n += more) {
		struct rule names = { 0 };
		int r = read_for(&rules->items[i], i + 1, &names, &more);

		if (r < 0)
			return r;
		if (more > RULES_MAX - n)
			return fail(-EFBIG, "more than %d rules", RULES_MAX);
	}
	*ret = n;
	return 0;
}

static int read_rules(struct transform *t, const struct json *rules)
{
	size_t n = 0, more = 0;
	int r = count_rules(rules, &n);

	if (r < 0)
		return r;
	t->rule = calloc(n + 1, sizeof(*t->rule));
	t->by_key = calloc(n + 1, sizeof(*t->by_key));
	if (!t->rule || !t->by_key)
		return fail(-ENOMEM, "cannot keep %zu rules", n);
	for (size_t i = 0; rules && i < rules->n && r >= 0; i++) {
		struct rule names = { 0 };

		r = read_for(&rules->items[i], i + 1, &names, &more);
		for (size_t k = 0; k < more && r >= 0; k++) {
			struct rule *rule = &t->rule[t->n_rules++];

			*rule = names;
			set_indexes(rule, i + 1, k);
			r = read_rule(t, &rules->items[i], rule);
		}
	}
	for (size_t i = 0; i < t->n_rules; i++)
		t->by_key[i] = &t->rule[i];
	if (t->n_rules)
		qsort(t->by_key, t->n_rules, sizeof(*t->by_key), by_key_backwards);
	return r;
}

static int read_document(struct transform *t)
{
	static const char *const names[] = { "default_to_original", "rules", "target", "item" };
	const struct json *rules = NULL, *root = t->doc.root;
	int r = json_is(root, JSON_OBJECT) ?
			only_members(root, "the file", names, ARRAY_LEN(names)) :
			fail(-EINVAL, "it is not a JSON object");

	t->default_to_original = true;
	if (r < 0)
		return r;
	r = json_get_bool(root, "default_to_original", "the file", &t->default_to_original);
	if (r < 0)
		return r;
	r = json_get_array(root, "rules", "the file", &rules);
	if (r < 0)
		return r;
	r = json_get_str(root, "item", "the file", &t->item);
	if (r < 0)
		return r;
	r = json_get_array(root, "target", "the file", &t->target);
	for (size_t i = 0; t->target && i < t->target->n && r >= 0; i++)
		if (t->target->items[i].kind != JSON_STRING)
			r = fail(-EINVAL, "target takes a list of keys");
	return r < 0 ? r : read_rules(t, rules);
}

static int read_whole_file(const char *path, struct buf *ret)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	int r = fd < 0 ? err_sys("cannot open", path) : 0;
	ssize_t got = 1;

	while (r >= 0 && got > 0) {
		r = buf_reserve(ret, 65536);
		got = r < 0 ? 0 : read(fd, ret->p + ret->n, 65536);
		if (got < 0)
			r = err_sys("cannot read", path);
		ret->n += got > 0 ? (size_t)got : 0;
		if (ret->n > FILE_MAX)
			r = fail(-EFBIG, "'%s' is longer than %llu bytes", path,
				 (unsigned long long)FILE_MAX);
	}
	return r;
}

int transform_open(const char *given, struct transform **ret)
{
	auto_of(transform) struct transform *t = calloc(1, sizeof(*t));
	bool is_text = given[0] == '{';
	const char *path = is_text ? "transforms=" : given;
	auto_free char *what = str_fmt("'%s'", path);
	auto_buf text = { 0 };
	int r;

	if (t)
		t->path = strdup(path);
	if (!t || !t->path || !what)
		return fail(-ENOMEM, "cannot read '%s'", path);
	r = is_text ? buf_add_str(&text, given) : read_whole_file(path, &text);
	r = r < 0 ? r : json_parse(buf_span(&text), what, &t->doc);
	if (r >= 0) {
		r = read_document(t);
		if (r < 0)
			err_at(r, "%s", what);
	}
	/* The user wrote this file, so it is an invalid argument and not a damaged checkpoint. */
	if (r < 0)
		return r == -EUCLEAN ? fail(-EINVAL, "%s", err_text(r)) : r;
	*ret = take(t);
	return 0;
}

bool transform_is_for(const struct transform *t, const char *item_path)
{
	const char *slash = strrchr(item_path, '/');

	return t->item.n == 0 || span_eq(t->item, span_str(slash ? slash + 1 : item_path));
}
