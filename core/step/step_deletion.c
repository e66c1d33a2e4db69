/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_deletion.c - parse and print `_CHECKPOINT_DELETION`.
 *
 * Documents are compared as texts with sorted members. This differs from equality in Python only
 * for numbers that are equal in two spellings (1 and 1.0); both documents come from one program.
 */
#include "core/step/step_deletion.h"

#include "core/base/err.h"
#include "core/base/json.h"

static int step_deletion_no_memory(void)
{
	return fail(-ENOMEM, "cannot read a deletion record: not enough memory");
}

void step_deletion_free(struct step_deletion *d)
{
	if (!d)
		return;
	arena_release(&d->arena);
	free(d);
}

static int check_operation(struct span s, const char *what)
{
	bool good = s.n == 32;

	for (size_t i = 0; i < s.n && good; i++)
		good = (s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f');
	return good ? 0 : fail(-EUCLEAN, "%s: operation_id is not 32 hex digits", what);
}

static int check_item(struct span s, const char *what)
{
	static const char *const reserved[] = {
		"", ".", "..", "metrics", "AUTO", "_CHECKPOINT_DELETION", "_CHECKPOINT_METADATA",
	};
	bool good = true;

	for (size_t i = 0; i < ARRAY_LEN(reserved); i++)
		good = good && !span_eq(s, span_str(reserved[i]));
	for (size_t i = 0; i < s.n; i++)
		good = good && s.p[i] != '/' && s.p[i] != '\\' && s.p[i] != '\0';
	return good ? 0 : fail(-EUCLEAN, "%s: '%.*s' is not a name of an item", what, SPAN_ARG(s));
}

/* The original document without the item, as text with sorted members. */
static int expected_update(struct step_deletion *d, const struct json *original, const char *what,
			   struct buf *ret)
{
	const struct json *handlers = json_member(original, "item_handlers");
	struct json doc = *original, *members, *items, *rest;
	size_t n = 0;

	if (!json_is(handlers, JSON_OBJECT) || !json_member_span(handlers, d->item))
		return fail(-EUCLEAN, "%s: original_metadata has no item '%.*s'", what,
			    SPAN_ARG(d->item));
	members = (void *)arena_dup(&d->arena,
				    span_of(original->items, original->n * sizeof(*members)));
	items = arena_calloc(&d->arena, handlers->n, sizeof(*items));
	if (!members || !items)
		return step_deletion_no_memory();
	for (size_t i = 0; i < handlers->n; i++)
		if (!span_eq(handlers->items[i].name, d->item))
			items[n++] = handlers->items[i];
	rest = &members[handlers - original->items];
	rest->items = items;
	rest->n = n;
	doc.items = members;
	return json_print(ret, &doc, JSON_PYTHON_SORTED);
}

static int step_deletion_take_texts(struct step_deletion *d, const struct json *root,
				    const char *what)
{
	const struct json *destination = json_member(root, "destination");
	struct span operation = span_of(NULL, 0), item = span_of(NULL, 0);
	int r = json_get_str(root, "operation_id", what, &operation);

	if (r < 0)
		return r;
	r = json_get_str(root, "checkpointable_name", what, &item);
	if (r < 0)
		return r;
	r = check_operation(operation, what);
	if (r < 0)
		return r;
	r = check_item(item, what);
	if (r < 0)
		return r;
	r = arena_keep(&d->arena, operation, &d->operation);
	if (r < 0)
		return r;
	r = arena_keep(&d->arena, item, &d->item);
	if (r < 0 || !destination || destination->kind == JSON_NULL)
		return r;
	if (destination->kind != JSON_STRING)
		return fail(-EUCLEAN, "%s: member 'destination' is not a string", what);
	return arena_keep(&d->arena, destination->s, &d->destination);
}

static int take_documents(struct step_deletion *d, const struct json *root, const char *what)
{
	auto_buf original = { 0 }, updated = { 0 }, expected = { 0 };
	const struct json *from, *to;
	int r = json_get_object(root, "original_metadata", what, &from);

	if (r > 0)
		r = json_get_object(root, "updated_metadata", what, &to);
	if (r == 0)
		return fail(-EUCLEAN, "%s: original_metadata or updated_metadata is missing", what);
	if (r < 0)
		return r;
	r = json_print(&original, from, JSON_PYTHON_SORTED);
	if (r < 0)
		return r;
	r = json_print(&updated, to, JSON_PYTHON_SORTED);
	if (r < 0)
		return r;
	r = expected_update(d, from, what, &expected);
	if (r < 0)
		return r;
	if (!span_eq(buf_span(&updated), buf_span(&expected)))
		return fail(-EUCLEAN, "%s: updated_metadata is not the original without '%.*s'",
			    what, SPAN_ARG(d->item));
	r = arena_keep(&d->arena, buf_span(&original), &d->original);
	return r < 0 ? r : arena_keep(&d->arena, buf_span(&updated), &d->updated);
}

int step_deletion_parse(struct span json, const char *what, struct step_deletion **ret)
{
	auto_of(step_deletion) struct step_deletion *d = calloc(1, sizeof(*d));
	auto_json doc = { 0 };
	int r;

	if (!d)
		return step_deletion_no_memory();
	d->arena.metered = true;
	r = json_parse(json, what, &doc);
	if (r < 0)
		return r;
	if (doc.root->kind != JSON_OBJECT)
		return fail(-EUCLEAN, "%s: not an object", what);
	r = step_deletion_take_texts(d, doc.root, what);
	if (r < 0)
		return r;
	r = take_documents(d, doc.root, what);
	if (r < 0)
		return r;
	*ret = take(d);
	return 0;
}

int step_deletion_matches(const struct step_deletion *d, struct span metadata)
{
	auto_json doc = { 0 };
	auto_buf text = { 0 };
	int r = json_parse(metadata, "'_CHECKPOINT_METADATA'", &doc);

	if (r < 0)
		return r;
	r = json_print(&text, doc.root, JSON_PYTHON_SORTED);
	if (r < 0)
		return r;
	return span_eq(buf_span(&text), d->original) || span_eq(buf_span(&text), d->updated);
}

int step_deletion_print(const struct step_deletion *d, struct buf *ret)
{
	auto_buf item = { .metered = ret->metered }, destination = { .metered = ret->metered };
	int r = json_put_str(&item, d->item, JSON_PYTHON);

	if (r < 0)
		return r;
	r = d->destination.p ? json_put_str(&destination, d->destination, JSON_PYTHON) :
			       buf_add_str(&destination, "null");
	if (r < 0)
		return r;
	return buf_addf(ret,
			"{\"checkpointable_name\": %.*s, \"destination\": %.*s, "
			"\"operation_id\": \"%.*s\", \"original_metadata\": %.*s, "
			"\"updated_metadata\": %.*s}",
			SPAN_ARG(item), SPAN_ARG(destination), SPAN_ARG(d->operation),
			SPAN_ARG(d->original), SPAN_ARG(d->updated));
}
