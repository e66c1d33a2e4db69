/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.c - parses and prints the values of options, by the table in option_table.c.
 */
#include "handlers/options/options.h"

#include <ctype.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/glob.h"
#include "core/base/nearest.h"
#include "handlers/leaf/leaf.h"

#define LEAST_MEMORY 4096u /* bytes that a limit of memory may be set to */

static void *options_place(struct options *o, const struct option *opt)
{
	return (char *)o + opt->at;
}

static const void *place_const(const struct options *o, const struct option *opt)
{
	return (const char *)o + opt->at;
}

/* The index of a value among words separated by '|', or -1. */
static int word_index(const char *words, const char *value)
{
	int i = 0;

	for (const char *at = words; *at; i++) {
		size_t n = strcspn(at, "|");

		if (strlen(value) == n && !strncmp(at, value, n))
			return i;
		at += n + (at[n] == '|');
	}
	return -1;
}

static int bad_value(const struct option *opt, const char *value)
{
	return fail(-EINVAL, "option '%s' does not accept '%s'; it takes %s", opt->name, value,
		    opt->accepts);
}

static int parse_uint(const char *value, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(value, &end, 10);
	return errno || *end || !isdigit((unsigned char)*value) ? -EINVAL : 0;
}

static int parse_octal(const char *value, uint64_t *ret)
{
	char *end;

	*ret = strtoull(value, &end, 8);
	return *end || !isdigit((unsigned char)*value) || *ret > 07777 ? -EINVAL : 0;
}

static int parse_dtype(const char *value, int *ret)
{
	enum dtype t = *value ? dtype_by_user(span_str(value)) : DTYPE_UNKNOWN;

	if (*value && t == DTYPE_UNKNOWN)
		return -EINVAL;
	*ret = (int)t;
	return 0;
}

/* Parse "0:1", or "[0, 1]", the JSON of an xattr. */
static int parse_axes(const char *value, struct axes *ret)
{
	struct axes a = { 0 };

	while (*value) {
		char *end;
		unsigned long v;

		value += strspn(value, ":[], ");
		if (!*value)
			break;
		v = strtoul(value, &end, 10);
		if (end == value || v >= LIMIT_RANK || a.n == LIMIT_RANK)
			return -EINVAL;
		a.axis[a.n++] = (unsigned)v;
		value = end;
	}
	*ret = a;
	return 0;
}

static const struct option *find_option(const char *name)
{
	for (size_t i = 0; i < option_count; i++)
		if (!strcmp(option_table[i].name, name))
			return &option_table[i];
	return NULL;
}

const char *option_of_item(const char *name)
{
	const struct option *opt = find_option(name);

	return opt && opt->of_item ? opt->name : NULL;
}

/*
 * The path of an item is one name. A pattern of two or more names, not counting "**", matches only
 * leaves inside items.
 */
static bool matches_no_item(const char *glob)
{
	unsigned names = 0;

	while (*glob) {
		size_t n = strcspn(glob, "/");

		names += n && !(n == 2 && !strncmp(glob, "**", 2));
		glob += n + (glob[n] == '/');
	}
	return names > 1;
}

static int add_rule(struct options *o, const struct option *opt, const char *value)
{
	const char *colon = strchr(value, ':'), *eq = colon ? strchr(colon, '=') : NULL;
	auto_free char *name = eq ? span_dup_str(span_of(colon + 1, (size_t)(eq - colon) - 1)) :
				    NULL;
	auto_free char *glob = eq ? span_dup_str(span_of(value, (size_t)(colon - value))) : NULL;
	struct save_rule rule = { 0 }, *more;
	int r;

	if (!name || !glob)
		return bad_value(opt, value);
	r = save_opts_set(&rule.opts, name, eq + 1);
	rule.of_item = option_of_item(name);
	if (r >= 0 && rule.of_item && matches_no_item(glob))
		r = fail(-EINVAL, "%s applies to a whole item, and '%s' matches no item", name,
			 glob);
	if (r < 0)
		return err_at(r, "rule '%s'", value);
	rule.glob = take(glob);
	rule.text = strdup(value);
	more = reallocarray(o->rules, o->n_rules + 1, sizeof(*more));
	if (more)
		o->rules = more;
	if (!more || !rule.glob || !rule.text) {
		free(rule.glob);
		free(rule.text);
		return fail(-ENOMEM, "cannot keep rule '%s'", value);
	}
	o->rules[o->n_rules++] = rule;
	return 0;
}

const char *options_file(const struct options *o, size_t i)
{
	return o->transform ? transform_file(o->transform, i) : NULL;
}

/* The file is read at once, so that the user who mounts sees its errors. */
static int set_transforms(struct options *o, const struct option *opt, const char *value)
{
	struct transform *t;
	char *copy;
	int r = transform_open(value, &t);

	if (r < 0)
		return err_at(r, "option '%s'", opt->name);
	copy = strdup(value);
	if (!copy) {
		transform_free(t);
		return fail(-ENOMEM, "cannot set option '%s'", opt->name);
	}
	transform_free(o->transform);
	free(o->transforms);
	o->transforms = copy;
	o->transform = t;
	return 0;
}

static int set_size(struct options *o, const struct option *opt, const char *value, uint64_t *at)
{
	bool is_auto = !strcmp(value, "auto"), has_auto = strstr(opt->accepts, "auto");
	uint64_t size;

	/* "auto" measures memory, so it is only for options that say so. */
	if ((is_auto && !has_auto) || option_parse_size(value, &size) < 0)
		return bad_value(opt, value);
	/* A limit of memory, in which a number without a unit was meant as MiB or GiB. */
	if (has_auto && size > 0 && size < LEAST_MEMORY)
		return fail(-EINVAL,
			    "option '%s': '%s' is a size in bytes, of at least %u, as %s is",
			    opt->name, value, LEAST_MEMORY, opt->fallback);
	o->follows[opt - option_table] = is_auto;
	*at = size;
	return 0;
}

static int options_set_value(struct options *o, const struct option *opt, const char *value)
{
	void *at = options_place(o, opt);
	int i;

	switch (opt->kind) {
	case OPTION_BOOL:
		i = word_index("off|on|false|true|0|1|no|yes", value);
		if (i < 0)
			return bad_value(opt, value);
		*(bool *)at = i & 1;
		leaf_types_allow(o->override, o->handlers == HANDLERS_ALL);
		return 0;
	case OPTION_SIZE:
		return set_size(o, opt, value, at);
	case OPTION_AGGREGATE:
		i = word_index("off|all|false|on", value);
		if (i < 0)
			return fail(
				-EINVAL,
				"option '%s' does not accept '%s'; in a rule or an xattr it takes "
				"all or off",
				opt->name, value);
		*(bool *)at = i & 1;
		return 0;
	case OPTION_UINT:
		return parse_uint(value, at) < 0 ? bad_value(opt, value) : 0;
	case OPTION_ENUM:
		i = word_index(opt->accepts, value);
		if (i < 0)
			return bad_value(opt, value);
		*(int *)at = i;
		leaf_types_allow(o->override, o->handlers == HANDLERS_ALL);
		return 0;
	case OPTION_OCTAL:
		return parse_octal(value, at) < 0 ? bad_value(opt, value) : 0;
	case OPTION_DTYPE:
		return parse_dtype(value, at) < 0 ? bad_value(opt, value) : 0;
	case OPTION_AXES:
		return parse_axes(value, at) < 0 ? bad_value(opt, value) : 0;
	case OPTION_COMPRESSION:
		return compression_parse(value, at) < 0 ? bad_value(opt, value) : 0;
	case OPTION_RULE:
		return add_rule(o, opt, value);
	case OPTION_TRANSFORMS:
		return set_transforms(o, opt, value);
	case OPTION_PLUGIN:
		return plugin_load(value);
	case OPTION_BINDING:
		return plugin_bind(value);
	case OPTION_REFUSED:
		return fail(-EINVAL, "option '%s' is %s", opt->name, opt->help);
	case OPTION_TEXT: {
		char *copy;

		if (opt->is_valid && !opt->is_valid(value))
			return bad_value(opt, value);
		copy = strdup(value);
		if (!copy)
			return fail(-ENOMEM, "cannot set option '%s'", opt->name);
		free(*(char **)at);
		*(char **)at = copy;
		return 0;
	}
	}
	return -EINVAL;
}

int options_init(struct options *o)
{
	_Static_assert(sizeof(enum shape) == sizeof(int) && sizeof(enum missing) == sizeof(int),
		       "option_set() stores enums of the table as int");
	*o = (struct options){ 0 };
	for (size_t i = 0; i < option_count; i++) {
		int r = option_table[i].fallback ?
				options_set_value(o, &option_table[i], option_table[i].fallback) :
				0;

		if (r < 0)
			return r;
	}
	o->setting_from = OPTION_FROM_MOUNT;
	return 0;
}

/* Parses comma-separated words, as after -o, and only options of this program. */
int options_set_environment(struct options *o)
{
	const char *text = getenv("PYTREEFS_OPTIONS");
	auto_free char *copy = text ? strdup(text) : NULL;
	char *rest = copy, *word;
	int r = text && !copy ? fail(-ENOMEM, "cannot read PYTREEFS_OPTIONS") : 0;

	o->setting_from = OPTION_FROM_ENVIRONMENT;
	while (r >= 0 && rest && (word = strsep(&rest, ",")))
		r = *word ? option_set(o, word, false) : 0;
	o->setting_from = OPTION_FROM_MOUNT;
	return r < 0 ? err_at(r, "PYTREEFS_OPTIONS") : 0;
}

void options_release(struct options *o)
{
	for (size_t i = 0; i < option_count; i++)
		if (option_table[i].kind == OPTION_TEXT ||
		    option_table[i].kind == OPTION_TRANSFORMS)
			free(*(char **)options_place(o, &option_table[i]));
	for (size_t i = 0; i < o->n_rules; i++) {
		free(o->rules[i].glob);
		free(o->rules[i].text);
	}
	free(o->rules);
	transform_free(o->transform);
	*o = (struct options){ 0 };
}

static int unknown(const char *name, bool has_value)
{
	struct nearest n;

	nearest_begin(&n, name);
	for (size_t i = 0; i < option_count; i++)
		nearest_try(&n, option_table[i].name);
	/* The short ones are near to anything. */
	for (const char *const *word = mount_words; *word; word++)
		if (strchr(*word, '_') || !strcmp(*word, name))
			nearest_try(&n, *word);
	if (n.best && !strcmp(n.best, name))
		return has_value ?
			       fail(-EINVAL,
				    "option '%s' of mount takes no value; without it, it is off",
				    name) :
			       fail(-EINVAL, "option '%s' is for -o of a mount only", name);
	if (n.best)
		return fail(-EINVAL, "unknown option '%s'; did you mean '%s'?", name, n.best);
	return fail(-EINVAL, "unknown option '%s'; `pytreefs help options` lists them", name);
}

static uint64_t scoped_bit(const struct option *opt)
{
	return (uint64_t)1 << (opt - option_table);
}

bool options_given(const struct options *o, const char *name)
{
	return o->from[find_option(name) - option_table] != OPTION_FROM_DEFAULT;
}

bool options_given_here(const struct options *o, const char *name)
{
	return o->from[find_option(name) - option_table] == OPTION_FROM_MOUNT;
}

const struct option *options_of_saving(const struct options *o)
{
	for (size_t i = 0; i < option_count; i++)
		if (o->from[i] == OPTION_FROM_MOUNT &&
		    (option_table[i].scoped || option_table[i].kind == OPTION_RULE))
			return &option_table[i];
	return NULL;
}

bool options_auto_size(const struct options *o, const char *name, uint64_t *ret)
{
	if (!o->follows[find_option(name) - option_table])
		return false;
	*ret = option_auto_size();
	return true;
}

/* Whether the name alone switches the option on, or is refused with the reason. */
static bool may_stand_alone(const struct option *opt)
{
	return opt->kind == OPTION_BOOL || opt->kind == OPTION_REFUSED ||
	       (opt->kind == OPTION_ENUM && word_index(opt->accepts, "on") >= 0);
}

int option_set(struct options *o, const char *text, bool known_only)
{
	const char *eq = strchr(text, '=');
	auto_free char *name = span_dup_str(span_of(text, eq ? (size_t)(eq - text) : strlen(text)));

	const struct option *opt;
	auto_buf rule = { 0 };

	if (!name)
		return fail(-ENOMEM, "cannot set an option");
	opt = find_option(name);
	if (!opt)
		return known_only ? -ENOENT : unknown(name, eq != NULL);
	if (!eq && !may_stand_alone(opt))
		return fail(-EINVAL, "option '%s' needs a value: %s", name, opt->accepts);
	o->from[opt - option_table] = o->setting_from;
	/* aggregate=GLOB is a short form of a rule. */
	if (opt->kind == OPTION_AGGREGATE && word_index("off|all|false|on", eq + 1) < 0) {
		if (buf_addf(&rule, "%s:aggregate=all", eq + 1) < 0 || !buf_str(&rule))
			return -ENOMEM;
		return add_rule(o, find_option("rule"), buf_str(&rule));
	}
	if (opt->scoped)
		o->save.given |= scoped_bit(opt);
	return options_set_value(o, opt, eq ? eq + 1 : "on");
}

int option_print(const struct options *o, const struct option *opt, struct buf *ret)
{
	const void *at = place_const(o, opt);
	const char *words = opt->accepts;

	switch (opt->kind) {
	case OPTION_BOOL:
		return buf_add_str(ret, *(const bool *)at ? "on" : "off");
	case OPTION_SIZE:
		if (o->follows[opt - option_table])
			return buf_add_str(ret, "auto");
		return buf_addf(ret, "%llu", (unsigned long long)*(const uint64_t *)at);
	case OPTION_AGGREGATE:
		return buf_add_str(ret, *(const bool *)at ? "all" : "off");
	case OPTION_UINT:
		return buf_addf(ret, "%llu", (unsigned long long)*(const uint64_t *)at);
	case OPTION_ENUM:
		for (int i = *(const int *)at; i > 0; i--)
			words += strcspn(words, "|") + 1;
		return buf_add(ret, words, strcspn(words, "|"));
	case OPTION_OCTAL:
		return buf_addf(ret, "%llo", (unsigned long long)*(const uint64_t *)at);
	case OPTION_DTYPE:
		return *(const int *)at ?
			       buf_add_str(ret, dtype_info((enum dtype) * (const int *)at)->name) :
			       0;
	case OPTION_AXES:
		for (unsigned i = 0, n = ((const struct axes *)at)->n; i < n; i++)
			if (buf_addf(ret, i ? ":%u" : "%u", ((const struct axes *)at)->axis[i]) < 0)
				return -ENOMEM;
		return 0;
	case OPTION_COMPRESSION:
		return compression_print(at, ret);
	case OPTION_RULE:
		for (size_t i = 0; i < o->n_rules; i++)
			if (buf_addf(ret, "%s%s", i ? " " : "", o->rules[i].text) < 0)
				return -ENOMEM;
		return 0;
	case OPTION_TEXT:
	case OPTION_TRANSFORMS:
		return buf_add_str(ret, *(char *const *)at ? *(char *const *)at : "");
	case OPTION_PLUGIN:
		return plugins_print(ret);
	case OPTION_BINDING:
		return plugins_print_bindings(ret);
	case OPTION_REFUSED:
		return 0;
	}
	return -EINVAL;
}

const char *option_from_text(const struct options *o, const struct option *opt)
{
	static const char *const text[] = {
		[OPTION_FROM_DEFAULT] = "default",
		[OPTION_FROM_MOUNT] = "mount",
		[OPTION_FROM_ENVIRONMENT] = "environment",
	};

	return text[o->from[opt - option_table]];
}

/* ---- scoped options ---- */

int save_opts_set(struct save_opts *s, const char *name, const char *value)
{
	const struct option *opt = find_option(name);
	struct options all = { .save = *s };
	int r;

	if (!opt || !opt->scoped)
		return fail(-EINVAL, "'%s' is not an option of leaves and items", name);
	r = options_set_value(&all, opt, value);
	if (r < 0)
		return r;
	*s = all.save;
	s->given |= scoped_bit(opt);
	s->dtype_is_scoped |= opt->kind == OPTION_DTYPE;
	return 0;
}

static size_t scoped_size(enum option_kind kind)
{
	switch (kind) {
	case OPTION_BOOL:
	case OPTION_AGGREGATE:
		return sizeof(bool);
	case OPTION_SIZE:
	case OPTION_UINT:
	case OPTION_OCTAL:
		return sizeof(uint64_t);
	case OPTION_AXES:
		return sizeof(struct axes);
	case OPTION_ENUM:
	case OPTION_DTYPE:
		return sizeof(int);
	case OPTION_COMPRESSION:
		return sizeof(struct compression);
	case OPTION_TEXT:
	case OPTION_RULE:
	case OPTION_TRANSFORMS:
	case OPTION_PLUGIN:
	case OPTION_BINDING:
	case OPTION_REFUSED:
		break;
	}
	return 0;
}

void save_opts_merge(struct save_opts *base, const struct save_opts *over)
{
	for (size_t i = 0; i < option_count; i++) {
		const struct option *opt = &option_table[i];
		size_t at = opt->at - offsetof(struct options, save);

		if (opt->scoped && over->given & scoped_bit(opt))
			memcpy((char *)base + at, (const char *)over + at, scoped_size(opt->kind));
	}
	base->given |= over->given;
	base->dtype_is_scoped |= over->dtype_is_scoped;
}

bool save_opts_given(const struct save_opts *s, const char *name)
{
	const struct option *opt = find_option(name);

	return opt && s->given & scoped_bit(opt);
}

enum dtype save_opts_dtype(const struct save_opts *s, enum dtype from)
{
	enum dtype to = (enum dtype)s->dtype;

	if (to == DTYPE_UNKNOWN || from == DTYPE_UNKNOWN || s->dtype_is_scoped)
		return to == DTYPE_UNKNOWN ? from : to;
	/* bfloat16 would turn 70001 into 70144: steps, counters, masks and indices are not cast. */
	return dtype_info(to)->kind == DTYPE_KIND_FLOAT &&
			       dtype_info(from)->kind != DTYPE_KIND_FLOAT ?
		       from :
		       to;
}

void save_opts_for(const struct options *o, struct span path, unsigned skip, struct save_opts *ret)
{
	*ret = o->save;
	for (size_t i = 0; i < o->n_rules; i++)
		if (glob_selects(o->rules[i].glob, path, skip, 0))
			save_opts_merge(ret, &o->rules[i].opts);
}
