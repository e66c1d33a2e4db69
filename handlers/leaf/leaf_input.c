/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_input.c - the contents of a small file of a draft, read and parsed once for all types.
 */
#include "core/base/err.h"
#include "handlers/leaf/leaf_type.h"

int leaf_input_text(struct leaf_input *f, struct span *ret)
{
	int r = 0;

	if (!f->has_text) {
		f->has_text = true;
		r = f->ops->contents(f, &f->text);
	}
	if (r < 0)
		return r;
	*ret = buf_span(&f->text);
	return r;
}

int leaf_input_json(struct leaf_input *f, const struct json **ret)
{
	struct span text;
	int r = 0;

	if (!f->has_json) {
		r = leaf_input_text(f, &text);
		if (r < 0)
			return r;
		r = json_parse(text, f->name, &f->json);
		f->has_json = r >= 0;
	}
	if (r < 0)
		return r == -ENOMEM ? r : fail(-EINVAL, "%s", err_text(r));
	*ret = f->json.root;
	return 0;
}

void leaf_input_release(struct leaf_input *f)
{
	buf_release(&f->text);
	if (f->has_json)
		json_release(&f->json);
	f->has_text = f->has_json = false;
}
