/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_meta.c - parse and print `_CHECKPOINT_METADATA` and `_ROOT_METADATA`.
 *
 * The callers read and write the files. step_deletion.c parses the record of a deletion, which
 * contains whole documents of this kind.
 *
 * A first pass finds all members of the document, since the meaning of unknown members depends on
 * whether custom_metadata exists; then each member is parsed.
 */
#include "core/step/step_meta.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/json_pull.h"
#include "core/base/log.h"

/*
 * The members of a document: the known ones, and the text of all others as the inside of an object.
 */
struct members {
	struct json_pull in;
	struct arena *arena;
	const char *const *names;
	struct span raw[8]; /* by position in names; p NULL: absent */
	size_t n;
	struct buf others; /* "\"k\": v, \"l\": w" */
};

static int step_meta_no_memory(void)
{
	return fail(-ENOMEM, "cannot read metadata: not enough memory");
}

static int step_meta_take_member(struct members *m, struct span name)
{
	int r;

	for (size_t i = 0; i < m->n; i++)
		if (span_eq(name, span_str(m->names[i])))
			return json_pull_raw(&m->in, &m->raw[i]);
	r = json_put_member(&m->others, name, JSON_PYTHON);
	return r < 0 ? r : json_pull_respell(&m->in, &m->others);
}

static int step_meta_take_members(struct members *m, struct span json, const char *what)
{
	struct span name;
	int r;

	json_pull_init(&m->in, json, what);
	r = json_pull_enter(&m->in, JSON_OBJECT);
	while (r >= 0 && (r = json_pull_next(&m->in, &name)) > 0)
		r = step_meta_take_member(m, name);
	return r < 0 ? r : json_pull_end(&m->in);
}

static void members_release(struct members *m)
{
	json_pull_release(&m->in);
	buf_release(&m->others);
}
#define auto_members __attribute__((cleanup(members_release))) struct members

static int step_meta_wrong_type(const struct members *m, size_t i, const char *want)
{
	return fail(-EUCLEAN, "%s: member '%s' is not %s", m->in.what, m->names[i], want);
}

/* The kind of a member, which was checked to be JSON; JSON_NULL when it is absent. */
static enum json_kind step_meta_kind_of(const struct members *m, size_t i)
{
	struct json_pull p;
	int kind = JSON_NULL;

	if (m->raw[i].p) {
		json_pull_init(&p, m->raw[i], m->in.what);
		kind = json_pull_kind(&p);
	}
	return kind < 0 ? JSON_UNKNOWN : (enum json_kind)kind;
}

static int step_meta_keep(struct members *m, struct span text, const char **ret)
{
	struct span copy;
	int r = arena_keep(m->arena, text, &copy);

	if (r < 0)
		return r;
	*ret = (const char *)copy.p;
	return r;
}

/* The text of an object; "{}" for null. */
static int take_object(struct members *m, size_t i, const char **ret)
{
	auto_json_pull p = { 0 };
	auto_buf text = { .metered = true };
	enum json_kind kind = step_meta_kind_of(m, i);
	int r;

	if (kind == JSON_NULL)
		return step_meta_keep(m, span_str("{}"), ret);
	if (kind != JSON_OBJECT)
		return step_meta_wrong_type(m, i, "an object");
	json_pull_init(&p, m->raw[i], m->in.what);
	r = json_pull_respell(&p, &text);
	return r < 0 ? r : step_meta_keep(m, buf_span(&text), ret);
}

/* custom_metadata, or the unknown members in its place. */
static int step_meta_take_custom(struct members *m, size_t i, const char **ret)
{
	auto_buf text = { .metered = true };
	int r = take_object(m, i, ret);

	if (r < 0 || !m->others.n)
		return r;
	if (strcmp(*ret, "{}"))
		return fail(-EUCLEAN, "%s: unknown members beside '%s': %.*s", m->in.what,
			    m->names[i], (int)MIN(m->others.n, (size_t)100),
			    (const char *)m->others.p);
	r = buf_addf(&text, "{%.*s}", SPAN_ARG(m->others));
	return r < 0 ? r : step_meta_keep(m, buf_span(&text), ret);
}

/* ---- _CHECKPOINT_METADATA ---- */

enum { ITEM_HANDLERS, METRICS, PERFORMANCE_METRICS, INIT, COMMIT, CUSTOM, N_MEMBERS };

static const char *const step_names[] = {
	"item_handlers",          "metrics",         "performance_metrics", "init_timestamp_nsecs",
	"commit_timestamp_nsecs", "custom_metadata",
};

/*
 * Add one item of the map. A handler that is not a string counts as unknown, since the item may
 * exist.
 */
static int take_item(struct members *m, struct json_pull *p, struct span name, struct buf *items)
{
	struct step_item item = { .handler = span_of(NULL, 0) };
	struct span handler;
	int r = arena_keep(m->arena, name, &item.name);

	if (r < 0)
		return r;
	if (json_pull_kind(p) != JSON_STRING) {
		r = json_pull_skip(p);
	} else {
		r = json_pull_str(p, &handler);
		if (r < 0)
			return r;
		r = arena_keep(m->arena, handler, &item.handler);
	}
	return r < 0 ? r : buf_add(items, &item, sizeof(item));
}

static int take_items(struct members *m, struct step_meta *ret)
{
	auto_json_pull p = { 0 };
	auto_buf items = { .metered = true };
	struct span name;
	int r;

	json_pull_init(&p, m->raw[ITEM_HANDLERS], m->in.what);
	r = json_pull_enter(&p, JSON_OBJECT);
	while (r >= 0 && (r = json_pull_next(&p, &name)) > 0)
		r = take_item(m, &p, name, &items);
	if (r < 0)
		return r;
	ret->kind = STEP_ITEMS_MAP;
	ret->n_items = items.n / sizeof(*ret->items);
	ret->items = (const void *)arena_dup(m->arena, buf_span(&items));
	return ret->items ? 0 : step_meta_no_memory();
}

static int take_handlers(struct members *m, struct step_meta *ret)
{
	auto_json_pull p = { 0 };
	struct span handler;
	int r;

	switch (step_meta_kind_of(m, ITEM_HANDLERS)) {
	case JSON_NULL:
		return 0;
	case JSON_OBJECT:
		return take_items(m, ret);
	case JSON_STRING:
		ret->kind = STEP_ITEMS_ONE;
		json_pull_init(&p, m->raw[ITEM_HANDLERS], m->in.what);
		r = json_pull_str(&p, &handler);
		return r < 0 ? r : arena_keep(m->arena, handler, &ret->handler);
	default:
		return step_meta_wrong_type(m, ITEM_HANDLERS, "an object or a string");
	}
}

/* Integers only: Orbax refuses 5.0 too. */
static int take_time(struct members *m, size_t i, bool *ret_has, int64_t *ret)
{
	auto_json_pull p = { 0 };

	if (step_meta_kind_of(m, i) == JSON_NULL)
		return 0;
	for (size_t k = 0; k < m->raw[i].n; k++)
		if ((m->raw[i].p[k] < '0' || m->raw[i].p[k] > '9') &&
		    !(k == 0 && m->raw[i].p[k] == '-'))
			return step_meta_wrong_type(m, i, "an integer");
	*ret_has = true;
	json_pull_init(&p, m->raw[i], m->in.what);
	return json_pull_int(&p, ret) < 0 ? step_meta_wrong_type(m, i, "an integer of 64 bits") : 0;
}

/* metrics: values that are false in Python ({}, [], "", 0, false, null) become {}. */
static int take_metrics(struct members *m, struct step_meta *ret)
{
	auto_json_pull p = { 0 };
	auto_buf text = { .metered = true };
	static const char *const falsy[] = {
		"{}", "[]", "\"\"", "0", "0.0", "-0.0", "false", "null"
	};
	int r;

	if (m->raw[METRICS].p) {
		json_pull_init(&p, m->raw[METRICS], m->in.what);
		r = json_pull_respell(&p, &text);
		if (r < 0)
			return r;
		for (size_t i = 0; i < ARRAY_LEN(falsy); i++)
			if (span_eq(buf_span(&text), span_str(falsy[i])))
				m->raw[METRICS] = span_of(NULL, 0);
	}
	return take_object(m, METRICS, &ret->metrics);
}

/* Whether the text of a number is a float in Python. */
static bool is_float(struct span number)
{
	for (size_t i = 0; i < number.n; i++)
		if (strchr(".eENI", number.p[i]))
			return true;
	return false;
}

/* performance_metrics: only floats are kept. */
static int take_performance(struct members *m, struct step_meta *ret)
{
	auto_json_pull p = { 0 };
	auto_buf text = { .metered = true };
	struct span name, raw;
	int r;

	if (step_meta_kind_of(m, PERFORMANCE_METRICS) != JSON_OBJECT)
		return take_object(m, PERFORMANCE_METRICS, &ret->performance_metrics);
	json_pull_init(&p, m->raw[PERFORMANCE_METRICS], m->in.what);
	r = json_pull_enter(&p, JSON_OBJECT);
	if (r < 0)
		return r;
	r = buf_add_byte(&text, '{');
	while (r >= 0 && (r = json_pull_next(&p, &name)) > 0) {
		auto_json_pull value = { 0 };
		bool number = json_pull_kind(&p) == JSON_FLOAT;

		r = json_pull_raw(&p, &raw);
		if (r < 0 || !number || !is_float(raw))
			continue;
		r = json_put_member(&text, name, JSON_PYTHON);
		if (r < 0)
			return r;
		json_pull_init(&value, raw, m->in.what);
		r = json_pull_respell(&value, &text);
	}
	if (r < 0)
		return r;
	r = buf_add_byte(&text, '}');
	return r < 0 ? r : step_meta_keep(m, buf_span(&text), &ret->performance_metrics);
}

static int set_members(struct members *m, struct step_meta *ret)
{
	int r = take_handlers(m, ret);

	if (r < 0)
		return r;
	r = take_metrics(m, ret);
	if (r < 0)
		return r;
	r = take_performance(m, ret);
	if (r < 0)
		return r;
	r = take_time(m, INIT, &ret->has_init, &ret->init_ns);
	if (r < 0)
		return r;
	r = take_time(m, COMMIT, &ret->has_commit, &ret->commit_ns);
	return r < 0 ? r : step_meta_take_custom(m, CUSTOM, &ret->custom);
}

/* Whether the text is valid JSON; the caller logs the error. */
static int check_json(struct span json, const char *what)
{
	auto_json_pull p = { 0 };
	int r;

	json_pull_init(&p, json, what);
	r = json_pull_skip(&p);
	return r < 0 ? r : json_pull_end(&p);
}

int step_meta_parse(struct span json, const char *what, struct step_meta **ret)
{
	auto_of(step_meta) struct step_meta *s = calloc(1, sizeof(*s));
	auto_members m = { .names = step_names, .n = N_MEMBERS };
	int r;

	if (!s)
		return step_meta_no_memory();
	r = json.n ? check_json(json, what) : -EUCLEAN;
	if (r == -EUCLEAN) {
		if (json.n)
			log_warn("%s; taken as absent", err_text(r));
		s->absent = true;
		json = span_str("{}");
	} else if (r < 0) {
		return r;
	}
	s->arena.metered = m.others.metered = true;
	m.arena = &s->arena;
	r = step_meta_take_members(&m, json, what);
	if (r < 0)
		return r;
	r = set_members(&m, s);
	if (r < 0)
		return r;
	*ret = take(s);
	return 0;
}

void step_meta_free(struct step_meta *m)
{
	if (!m)
		return;
	arena_release(&m->arena);
	free(m);
}

int step_meta_handler(const struct step_meta *m, struct span item, struct span *ret)
{
	if (m->kind != STEP_ITEMS_MAP)
		return 0;
	for (size_t i = m->n_items; i > 0; i--)
		if (span_eq(m->items[i - 1].name, item) && m->items[i - 1].handler.p) {
			*ret = m->items[i - 1].handler;
			return 1;
		}
	return 0;
}

bool step_meta_is_tree(const struct step_meta *m, struct span item)
{
	struct span handler = { 0 };

	return step_meta_handler(m, item, &handler) == 1 && step_meta_tree_handler(handler);
}

bool step_meta_tree_handler(struct span handler)
{
	static const char *const names[] = { "PyTreeCheckpointHandler", "StandardCheckpointHandler",
					     "PyTreeHandler" };
	bool is = false;

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		is |= memmem(handler.p, handler.n, names[i], strlen(names[i])) != NULL;
	return is;
}

static int put_handlers(const struct step_meta *m, struct buf *out)
{
	int r;

	if (m->kind == STEP_ITEMS_NONE)
		return buf_add_str(out, "null");
	if (m->kind == STEP_ITEMS_ONE)
		return json_put_str(out, m->handler, JSON_PYTHON);
	r = buf_add_byte(out, '{');
	for (size_t i = 0; i < m->n_items && r >= 0; i++) {
		r = json_put_member(out, m->items[i].name, JSON_PYTHON);
		if (r < 0)
			return r;
		r = m->items[i].handler.p ? json_put_str(out, m->items[i].handler, JSON_PYTHON) :
					    buf_add_str(out, "null");
	}
	return r < 0 ? r : buf_add_byte(out, '}');
}

#define TIME_TEXT_BYTES 24

static const char *time_text(bool has, int64_t ns, char *to)
{
	if (!has)
		return "null";
	snprintf(to, TIME_TEXT_BYTES, "%" PRId64, ns);
	return to;
}

int step_meta_print(const struct step_meta *m, struct buf *ret)
{
	char init[TIME_TEXT_BYTES], commit[TIME_TEXT_BYTES];
	auto_buf handlers = { .metered = ret->metered };
	int r = put_handlers(m, &handlers);

	if (r < 0)
		return r;
	return buf_addf(ret,
			"{\"item_handlers\": %.*s, \"metrics\": %s, \"performance_metrics\": %s, "
			"\"init_timestamp_nsecs\": %s, \"commit_timestamp_nsecs\": %s, "
			"\"custom_metadata\": %s}",
			SPAN_ARG(handlers), m->metrics ? m->metrics : "{}",
			m->performance_metrics ? m->performance_metrics : "{}",
			time_text(m->has_init, m->init_ns, init),
			time_text(m->has_commit, m->commit_ns, commit),
			m->custom ? m->custom : "{}");
}

/* ---- _ROOT_METADATA ---- */

static const char *const root_names[] = { "internal_metadata", "custom_metadata" };

int root_meta_parse(struct span json, const char *what, struct root_meta **ret)
{
	auto_of(root_meta) struct root_meta *root = calloc(1, sizeof(*root));
	auto_members m = { .names = root_names, .n = ARRAY_LEN(root_names) };
	int r;

	if (!root)
		return step_meta_no_memory();
	root->arena.metered = m.others.metered = true;
	m.arena = &root->arena;
	r = step_meta_take_members(&m, json.n ? json : span_str("{}"), what);
	if (r < 0)
		return r;
	r = take_object(&m, 0, &root->internal);
	if (r < 0)
		return r;
	r = step_meta_take_custom(&m, 1, &root->custom);
	if (r < 0)
		return r;
	*ret = take(root);
	return 0;
}

int root_meta_print(const struct root_meta *m, struct buf *ret)
{
	return buf_addf(ret, "{\"internal_metadata\": %s, \"custom_metadata\": %s}",
			m->internal ? m->internal : "{}", m->custom ? m->custom : "{}");
}

void root_meta_free(struct root_meta *m)
{
	if (!m)
		return;
	arena_release(&m->arena);
	free(m);
}
