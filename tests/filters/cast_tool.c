/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast_tool.c - element types and casts as a filter, for tests/interop/test_casts.py.
 *
 * Each request is a line "COMMAND WORD WORD LENGTH" and LENGTH bytes; each answer a line
 * "ok LENGTH" or "error CODE LENGTH" and LENGTH bytes:
 *   cast FROM TO     elements -> elements
 *   print TYPE -     elements -> their texts, one a line
 *   parse TYPE -     JSON -> one element
 *   fill VERSION TYPE        fill value in JSON -> its bytes
 *   unfill VERSION TYPE      its bytes -> JSON
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/dtype/cast.h"

static enum dtype type_of(const char *name)
{
	enum dtype t = dtype_by_name(span_str(name));

	if (t == DTYPE_UNKNOWN) {
		fprintf(stderr, "no type '%s'\n", name);
		exit(2);
	}
	return t;
}

static int do_cast(enum dtype from, enum dtype to, struct span in, struct buf *out)
{
	size_t n = in.n / dtype_info(from)->size;
	int r = buf_reserve(out, n * dtype_info(to)->size);

	if (r < 0)
		return r;
	cast(to, out->p, from, in.p, n);
	out->n = n * dtype_info(to)->size;
	return 0;
}

static int do_print(enum dtype t, struct span in, struct buf *out)
{
	int r = 0;

	for (size_t i = 0; i < in.n && r >= 0; i += dtype_info(t)->size) {
		r = dtype_value_print(t, in.p + i, out);
		if (r >= 0)
			r = buf_add_byte(out, '\n');
	}
	return r;
}

static int do_parse(enum dtype t, int fill_version, struct span in, struct buf *out)
{
	auto_json doc = { 0 };
	uint8_t element[LIMIT_ITEM_BYTES] = { 0 };
	int r = json_parse(in, "value", &doc);

	if (r >= 0)
		r = fill_version ? dtype_fill_parse(t, fill_version, doc.root, element) :
				   dtype_value_parse(t, doc.root, element);
	return r < 0 ? r : buf_add(out, element, dtype_info(t)->size);
}

static int run(const char *command, const char *a, const char *b, struct span in, struct buf *out)
{
	uint8_t fill[LIMIT_ITEM_BYTES] = { 0 };

	if (strcmp(command, "cast") == 0)
		return do_cast(type_of(a), type_of(b), in, out);
	if (strcmp(command, "print") == 0)
		return do_print(type_of(a), in, out);
	if (strcmp(command, "parse") == 0)
		return do_parse(type_of(a), 0, in, out);
	if (strcmp(command, "fill") == 0)
		return do_parse(type_of(b), atoi(a), in, out);
	if (strcmp(command, "unfill") == 0 && in.n <= sizeof(fill)) {
		memcpy(fill, in.p, in.n);
		return dtype_fill_print(type_of(b), atoi(a), fill, out);
	}
	fprintf(stderr, "no command '%s'\n", command);
	exit(2);
}

int main(void)
{
	char line[256], command[32], a[64], b[64];
	size_t n;

	while (fgets(line, sizeof(line), stdin)) {
		auto_buf in = { 0 }, out = { 0 };
		int r;

		if (sscanf(line, "%31s %63s %63s %zu", command, a, b, &n) != 4)
			return 2;
		if (buf_reserve(&in, n + 1) < 0 || fread(in.p, 1, n, stdin) != n)
			return 2;
		in.n = n;
		r = run(command, a, b, buf_span(&in), &out);
		if (r < 0) {
			const char *text = err_text(r);

			printf("error %d %zu\n%s", r, strlen(text), text);
		} else {
			printf("ok %zu\n", out.n);
			fwrite(out.p, 1, out.n, stdout);
		}
		fflush(stdout);
	}
	return 0;
}
