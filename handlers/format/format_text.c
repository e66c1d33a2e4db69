/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_text.c - values as text: .json and .txt, and the empty .null.
 *
 * The size of a text is known only when it has been printed, so format_open() prints it whole. An
 * array becomes nested lists; its elements may take 1 MiB at most.
 */
#include "core/base/blocks.h"
#include "core/base/err.h"
#include "handlers/format/format.h"

#define JSON_ARRAY_MAX (1 * MiB)

struct printing {
	enum dtype dtype;
	size_t item;
	const uint8_t *at;
	unsigned rank;
	uint64_t shape[LIMIT_RANK];
	struct buf *out;
};

/* Failures are in the buffer. */
static void print_axis(struct printing *p, unsigned axis)
{
	if (axis == p->rank) {
		dtype_value_print(p->dtype, p->at, p->out);
		p->at += p->item;
		return;
	}
	buf_add_byte(p->out, '[');
	/* The recursion is as deep as the rank, at most LIMIT_RANK. */
	for (uint64_t i = 0; i < p->shape[axis] && !buf_failed(p->out); i++) {
		if (i)
			buf_add_str(p->out, ", ");
		print_axis(p, axis + 1);
	}
	buf_add_byte(p->out, ']');
}

static int json_array(struct format *f)
{
	struct printing p = { .dtype = f->view.dtype,
			      .item = dtype_info(f->view.dtype)->size,
			      .out = &f->head };
	auto_free uint8_t *bytes = NULL;
	uint64_t lists = 1;
	int r;

	if (f->view.bytes > JSON_ARRAY_MAX)
		return fail(-ENOENT,
			    "an array of %llu bytes is too large for JSON, the limit is %llu",
			    (unsigned long long)f->view.bytes, (unsigned long long)JSON_ARRAY_MAX);
	bytes = malloc(f->view.bytes + 1);
	if (!bytes)
		return fail(-ENOMEM, "cannot allocate %llu bytes",
			    (unsigned long long)f->view.bytes);
	r = zarr_read_into(f->value.array, &f->view, 0, f->view.bytes, bytes);
	if (r < 0)
		return r;
	p.at = bytes;
	p.rank = zarr_view_result(&f->view, p.shape);
	/*
	 * An array without elements is printed as nested lists down to its first empty axis. These
	 * lists take no bytes of the array, so the limit is applied to their number.
	 */
	for (unsigned i = 0; i < p.rank && f->view.n_elements == 0; i++) {
		if (p.shape[i] == 0)
			p.rank = i + 1;
		else if (!mul_fits(lists, p.shape[i], &lists) || lists > JSON_ARRAY_MAX)
			return fail(-ENOENT,
				    "the empty lists of this array are too many for JSON, the "
				    "limit is %llu",
				    (unsigned long long)JSON_ARRAY_MAX);
	}
	print_axis(&p, 0);
	buf_add_byte(&f->head, '\n');
	return buf_failed(&f->head);
}

static int json_open(struct format *f)
{
	switch (f->value.kind) {
	case VALUE_ARRAY:
		return json_array(f);
	case VALUE_TEXT:
		json_put_str(&f->head, buf_span(&f->value.text), JSON_PRETTY);
		/* Free the text: the head holds it as JSON. */
		buf_release(&f->value.text);
		buf_add_byte(&f->head, '\n');
		return buf_failed(&f->head);
	case VALUE_NONE:
		return buf_add_str(&f->head, "null\n");
	case VALUE_FILE:
	case VALUE_UNKNOWN:
		break;
	}
	return fail(-ENOENT, "this value does not have the format .json");
}

/* Move the text to the head, so that it is in memory only once. */
static void move_text(struct format *f)
{
	buf_release(&f->head);
	f->head = f->value.text;
	f->value.text = (struct buf){ 0 };
}

static int txt_open(struct format *f)
{
	if (f->value.kind != VALUE_TEXT)
		return fail(-ENOENT, "only strings have the format .txt");
	move_text(f);
	return 0;
}

static int null_open(struct format *f)
{
	return f->value.kind == VALUE_NONE ? 0 : fail(-ENOENT, "only None has the format .null");
}

static int plugin_open(struct format *f)
{
	if (f->value.kind != VALUE_FILE)
		return fail(-ENOENT, "only leaves of a plugin have its format");
	move_text(f);
	return 0;
}

const struct format_ops format_plugin = { .ext = NAME_EXT_PLUGIN, .open = plugin_open };
const struct format_ops format_json = { .ext = NAME_EXT_JSON, .open = json_open };
const struct format_ops format_txt = { .ext = NAME_EXT_TXT, .open = txt_open };
const struct format_ops format_null = { .ext = NAME_EXT_NULL, .open = null_open };
