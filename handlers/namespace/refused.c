/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refused.c - marks of the documents of an item, and views whose error is remembered.
 */
#include "handlers/namespace/refused.h"

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/refusal.h"
#include "core/step/document.h"
#include "handlers/namespace/ns.h"
#include "handlers/subtree/subtree_file.h"

uint64_t refused_mark(struct ns *ns, const char *path, uint64_t *ret_bytes)
{
	const char *const names[] = { "", "/_METADATA", "/manifest.ocdbt", "/_strings.json", "/" };
	const char *aggregate = ns->ckpt->opts.aggregate_filename;
	uint64_t mark = 1, bytes = 0;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		bool last = i + 1 == ARRAY_LEN(names);
		auto_free char *file = str_fmt("%s%s%s", path, names[i], last ? aggregate : "");

		if (file)
			mark = io_mark(ns->ckpt->source, file, mark, &bytes);
	}
	if (ret_bytes)
		*ret_bytes = bytes;
	return mark;
}

int refused_or_new_file(struct ns *ns, const struct subtree *st, const struct subtree_want *want,
			struct subtree_file **ret)
{
	int64_t began = clock_ns();
	uint64_t mark = 1;
	struct refusal_key key;
	auto_buf name = { 0 };
	int r = buf_addf(&name, "%d %d %s", (int)want->ext, (int)want->cast, want->name);

	for (size_t i = 0; i < st->n && r >= 0; i++) {
		const struct subtree_part *p = &st->part[i];

		mark = mark * 31 + refused_mark(ns, p->source, NULL);
		r = buf_addf(&name, " %s:%u", p->source, p->tree ? p->tree->id : 0);
	}
	if (r < 0)
		return r;
	key = refusal_key(ns->ckpt->owner, buf_span(&name), 1);
	r = refusal_ask(key, mark);
	if (r < 0)
		return r;
	r = subtree_file_new(st, want, ret);
	return refusal_keep(key, mark, began, r);
}
