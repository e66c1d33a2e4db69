/*
 * form_npy.c - arrays as .npy files, byte for byte as numpy writes them; and the bare bytes, .bin.
 */
#include <stdio.h>

#include "core/base/err.h"
#include "handlers/form.h"

#define NPY_ALIGN 64
#define NPY_GROWTH 21			/* numpy leaves room for the first extent to grow to 64 bits */

int npy_header(enum dtype t, unsigned rank, const uint64_t *shape, struct buf *ret)
{
	auto_buf text = { 0 };
	char digits[24];
	size_t total;
	int r = buf_addf(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (", dtype_info(t)->npy);

	for (unsigned i = 0; i < rank && r >= 0; i++)
		r = buf_addf(&text, i ? ", %llu" : "%llu", (unsigned long long)shape[i]);
	if (r >= 0)
		r = buf_add_str(&text, rank == 1 ? ",), }" : "), }");
	if (r >= 0 && rank > 0)
		r = buf_addf(&text, "%*s",
			     NPY_GROWTH - snprintf(digits, sizeof(digits), "%llu", (unsigned long long)shape[0]),
			     "");
	if (r < 0)
		return r;
	/* Magic, version and length are 10 bytes, the newline is one; there is always some padding. */
	total = 10 + text.n + 1;
	r = buf_addf(&text, "%*s\n", (int)(NPY_ALIGN - total % NPY_ALIGN), "");
	if (r >= 0)
		r = buf_add(ret, "\x93NUMPY\x01\x00", 8);
	if (r >= 0)
		r = buf_add_byte(ret, (uint8_t)(text.n & 0xff));
	if (r >= 0)
		r = buf_add_byte(ret, (uint8_t)(text.n >> 8));
	return r < 0 ? r : buf_add_span(ret, buf_span(&text));
}

static int npy_open(struct form *f)
{
	uint64_t shape[LIMIT_RANK];
	unsigned rank;

	if (f->value.kind != VALUE_ARRAY)
		return fail(-ENOENT, "only arrays and numbers have the form .npy");
	rank = zarr_view_result(&f->view, shape);
	f->has_body = true;
	return npy_header(f->view.dtype, rank, shape, &f->head);
}

static int bin_open(struct form *f)
{
	if (f->value.kind == VALUE_TEXT)
		return buf_add_span(&f->head, buf_span(&f->value.text));
	if (f->value.kind != VALUE_ARRAY)
		return fail(-ENOENT, "None has no bytes");
	f->has_body = true;
	return 0;
}

const struct form_ops form_npy = { .ext = NAME_EXT_NPY, .open = npy_open };
const struct form_ops form_bin = { .ext = NAME_EXT_BIN, .open = bin_open };
