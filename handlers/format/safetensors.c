/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.c - layout and header of a safetensors file, spelled as the official writer does.
 *
 * handlers/subtree/subtree_file.c chooses the leaves of a file and reads them.
 */
#include "handlers/format/safetensors.h"

#include "core/base/err.h"

#define LENGTH_BYTES 8     /* size of the field before the header */
#define TEXT_BYTES 6       /* bytes of an entry of `__metadata__` besides its name and text */
#define METADATA_BYTES 256 /* bytes of `__metadata__` besides its entries */

/* Data types in the order of the format's own list. A file has the last one first. */
static const enum dtype type_order[] = {
	DTYPE_BOOL,
	DTYPE_UINT8,
	DTYPE_INT8,
	DTYPE_FLOAT8_E5M2,
	DTYPE_FLOAT8_E4M3FN,
	DTYPE_FLOAT8_E8M0FNU,
	DTYPE_FLOAT8_E4M3FNUZ,
	DTYPE_FLOAT8_E5M2FNUZ,
	DTYPE_INT16,
	DTYPE_UINT16,
	DTYPE_FLOAT16,
	DTYPE_BFLOAT16,
	DTYPE_INT32,
	DTYPE_UINT32,
	DTYPE_FLOAT32,
	DTYPE_COMPLEX64,
	DTYPE_FLOAT64,
	DTYPE_INT64,
	DTYPE_UINT64,
};

static unsigned order_of(enum dtype t)
{
	for (unsigned i = 0; i < ARRAY_LEN(type_order); i++)
		if (type_order[i] == t)
			return i;
	return ARRAY_LEN(type_order);
}

static int by_layout(const void *a, const void *b)
{
	const struct st_tensor *x = a, *y = b;
	unsigned ox = order_of(x->array.dtype), oy = order_of(y->array.dtype);

	if (ox != oy)
		return ox < oy ? 1 : -1;
	return (x->id > y->id) - (x->id < y->id);
}

static int safetensors_check_dtype(enum dtype t)
{
	const char *wider;

	if (dtype_info(t)->safetensors)
		return 0;
	/* A type that has a name, and every value of the small ones. */
	wider = dtype_info(t)->kind == DTYPE_KIND_INT   ? "int8" :
		dtype_info(t)->kind == DTYPE_KIND_UINT  ? "uint8" :
		dtype_info(t)->kind == DTYPE_KIND_FLOAT ? "bfloat16" :
							  NULL;
	return fail(-EOPNOTSUPP,
		    "safetensors has no name for %s: npy, npz and zarr files hold it%s%s%s",
		    dtype_info(t)->name, wider ? ", and 'pytreefs convert -o rule=GLOB:dtype=" : "",
		    wider ? wider : "", wider ? "' makes it a type that has one" : "");
}

struct named {
	struct span name, path;
};

static int safetensors_by_name(const void *a, const void *b)
{
	return span_cmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

/* Tensors and texts share one set of names: two leaves of equal name would become one. */
static int check_names(const struct st_tensor *tensor, size_t n, const struct st_text *text,
		       size_t n_texts)
{
	auto_free struct named *all = calloc(n + n_texts + 1, sizeof(*all));
	size_t m = 0;

	if (!all)
		return fail(-ENOMEM, "cannot compare %zu names", n + n_texts);
	for (size_t i = 0; i < n; i++)
		all[m++] = (struct named){ tensor[i].name, tensor[i].path };
	for (size_t i = 0; i < n_texts; i++)
		all[m++] = (struct named){ text[i].name, text[i].path };
	qsort(all, m, sizeof(*all), safetensors_by_name);
	for (size_t i = 0; i < m; i++) {
		if (!utf8_valid(all[i].name))
			return fail(-EINVAL, "'%.*s' is not UTF-8", SPAN_ARG(all[i].path));
		if (span_eq(all[i].name, span_str("__metadata__")))
			return fail(-EINVAL,
				    "'%.*s': no leaf can be called '__metadata__' in safetensors",
				    SPAN_ARG(all[i].path));
		if (i && span_eq(all[i - 1].name, all[i].name))
			return fail(-EINVAL,
				    "'%.*s' and '%.*s' are both called '%.*s' in safetensors",
				    SPAN_ARG(all[i - 1].path), SPAN_ARG(all[i].path),
				    SPAN_ARG(all[i].name));
	}
	return 0;
}

static int too_long(void)
{
	return fail(-EFBIG, "the safetensors header would have more than %d bytes",
		    SAFETENSORS_HEADER_MAX);
}

static int put_metadata(const struct st_text *text, size_t n, struct buf *out)
{
	bool has_format = false;
	uint64_t least = 0;

	for (size_t i = 0; i < n; i++) {
		has_format |= span_eq(text[i].name, span_str("format"));
		least += text[i].text.n + text[i].name.n + TEXT_BYTES;
	}
	if (least > SAFETENSORS_HEADER_MAX)
		return too_long();
	buf_reserve(out, least + METADATA_BYTES);
	buf_add_str(out, "{\"__metadata__\":{");
	if (!has_format)
		buf_add_str(out, "\"format\":\"pt\"");
	for (size_t i = 0; i < n && !buf_failed(out); i++) {
		json_put_member(out, text[i].name, JSON_COMPACT);
		json_put_str(out, text[i].text, JSON_COMPACT);
		if (out->n > LENGTH_BYTES + SAFETENSORS_HEADER_MAX)
			return too_long();
	}
	buf_add_byte(out, '}');
	return buf_failed(out);
}

int safetensors_header(struct st_tensor *tensor, size_t n, const struct st_text *text,
		       size_t n_texts, struct buf *ret)
{
	auto_buf out = { .metered = ret->metered };
	uint64_t off = 0;
	int r = check_names(tensor, n, text, n_texts);

	for (size_t i = 0; i < n && r >= 0; i++) {
		r = safetensors_check_dtype(tensor[i].array.dtype);
		if (r < 0)
			err_at(r, "'%.*s'", SPAN_ARG(tensor[i].path));
	}
	if (r < 0)
		return r;
	buf_add_zero(&out, LENGTH_BYTES);
	r = put_metadata(text, n_texts, &out);
	if (r < 0)
		return r;
	if (n)
		qsort(tensor, n, sizeof(*tensor), by_layout);
	for (size_t i = 0; i < n; i++) {
		struct st_tensor *t = &tensor[i];

		buf_add_byte(&out, ',');
		json_put_str(&out, t->name, JSON_COMPACT);
		buf_addf(&out,
			 ":{\"dtype\":\"%s\",\"shape\":", dtype_info(t->array.dtype)->safetensors);
		json_put_uints(&out, t->array.shape, t->array.rank, JSON_COMPACT);
		t->off = off;
		if (!add_fits(off, t->bytes, &off) || off > INT64_MAX / 2)
			return fail(-EFBIG, "the tensors have more than 2^62 bytes");
		buf_addf(&out, ",\"data_offsets\":[%llu,%llu]}", (unsigned long long)t->off,
			 (unsigned long long)off);
		if (out.n > LENGTH_BYTES + SAFETENSORS_HEADER_MAX)
			return too_long();
		if (buf_failed(&out))
			return buf_failed(&out);
	}
	buf_add_byte(&out, '}');
	while (out.n % 8 && !buf_failed(&out))
		buf_add_byte(&out, ' ');
	if (buf_failed(&out))
		return buf_failed(&out);
	for (size_t i = 0; i < n; i++)
		tensor[i].off += out.n;
	for (unsigned i = 0; i < LENGTH_BYTES; i++)
		out.p[i] = (uint8_t)((out.n - LENGTH_BYTES) >> 8 * i);
	buf_release(ret);
	*ret = out;
	out = (struct buf){ 0 };
	return 0;
}
