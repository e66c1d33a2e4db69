/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_npy.c - arrays as .npy files, byte for byte as numpy writes them, and without a header
 * (.bin).
 */
#include "core/base/err.h"
#include "handlers/format/format.h"
#include "handlers/format/npy.h"

static int npy_open(struct format *f)
{
	uint64_t shape[LIMIT_RANK];
	struct array_type t = { .dtype = f->view.dtype, .shape = shape };

	if (f->value.kind != VALUE_ARRAY)
		return fail(-ENOENT, "only arrays and numbers have the format .npy");
	t.rank = zarr_view_result(&f->view, shape);
	f->has_body = true;
	return npy_header(&t, &f->head);
}

static int bin_open(struct format *f)
{
	if (f->value.kind == VALUE_TEXT || f->value.kind == VALUE_FILE)
		return buf_add_span(&f->head, buf_span(&f->value.text));
	if (f->value.kind != VALUE_ARRAY)
		return fail(-ENOENT, "None does not have the format .bin");
	f->has_body = true;
	return 0;
}

const struct format_ops format_npy = { .ext = NAME_EXT_NPY, .open = npy_open };
const struct format_ops format_bin = { .ext = NAME_EXT_BIN, .open = bin_open };
