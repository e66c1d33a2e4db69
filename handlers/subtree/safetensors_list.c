/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_list.c - names, dtypes and sizes of the tensors of a safetensors file.
 *
 * handlers/format/safetensors.c orders them and writes the header.
 */
#include "handlers/subtree/safetensors_list.h"

#include "core/base/err.h"

int safetensors_list_begin(struct safetensors_list *l, size_t leaves)
{
	l->tensor = arena_calloc(&l->arena, leaves + 1, sizeof(*l->tensor));
	l->text = arena_calloc(&l->arena, leaves + 1, sizeof(*l->text));
	return l->tensor && l->text ? 0 : fail(-ENOMEM, "cannot lay out %zu leaves", leaves);
}

void safetensors_list_release(struct safetensors_list *l)
{
	buf_release(&l->manifest);
	arena_release(&l->arena);
}

int safetensors_list_add(struct safetensors_list *l, const struct leaf_info *info, struct span path,
			 size_t id)
{
	struct st_tensor t = { .path = path, .id = (uint32_t)id };
	auto_buf name = { .metered = l->arena.metered };
	uint64_t elements;
	int r;

	if (info->kind != VALUE_ARRAY && info->kind != VALUE_TEXT)
		return 0;
	if (info->kind == VALUE_ARRAY) {
		elements = info->bytes / dtype_info(info->array.dtype)->size;
		t.array = info->array;
		r = tree_manifest_cast(info->part->item, info->leaf, info->is_scalar, &l->casts,
				       &t.array.dtype);
		if (r < 0)
			return r;
		if (!mul_fits(elements, dtype_info(t.array.dtype)->size, &t.bytes))
			return fail(-EFBIG, "the tensor has more than 2^64 bytes");
	}
	r = subtree_key(info->part, info->leaf, l->separator, &name);
	if (r < 0)
		return r;
	r = arena_keep(&l->arena, buf_span(&name), &t.name);
	if (r < 0)
		return r;
	if (info->kind == VALUE_ARRAY)
		l->tensor[l->n++] = t;
	else
		l->text[l->n_texts++] = (struct st_text){ t.name, path, info->text };
	return 0;
}

int safetensors_list_end(struct safetensors_list *l)
{
	const struct tree_manifest_style style = { .separator = l->separator };
	int r = tree_manifest_print(l->st, l->only, &l->casts, &style, &l->manifest);

	/* A plain dict of arrays needs none. */
	if (r < 0 || span_eq(buf_span(&l->manifest), span_str("{}")))
		return r;
	l->text[l->n_texts++] = (struct st_text){ span_str(TREE_MANIFEST_KEY),
						  span_str(TREE_MANIFEST_KEY),
						  buf_span(&l->manifest) };
	return 0;
}
