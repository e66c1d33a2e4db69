/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_name.c - any bytes as a name and as a key: name -> view -> key -> name, key -> name -> key.
 */
#include "core/tree/name.h"
#include "tests/fuzz/fuzz.h"

/* A parsed name prints as one that parses to the same. */
static void check_name(struct span name)
{
	auto_buf printed = { 0 }, again = { 0 };
	struct name_view v, w;

	if (name_view_parse(name, &v) < 0)
		return;
	must(name_view_print(&v, &printed) == 0);
	must(name_view_parse(buf_span(&printed), &w) == 0);
	must(name_view_print(&w, &again) == 0);
	must(span_eq(buf_span(&printed), buf_span(&again)));
	for (unsigned k = 0; k < 2 * (NAME_OURS_ALL + 1); k++) {
		enum name_use use = k & 1 ? NAME_CONTAINER : NAME_LEAF;
		enum name_ext ext = use == NAME_LEAF ? NAME_EXT_NPY : NAME_EXT_NONE;
		auto_buf key = { 0 }, back = { 0 };

		if (name_unescape(v.stem, use, k / 2, &key) < 0)
			continue;
		must(name_escape(buf_span(&key), use, ext, k / 2, &back) == 0);
		back.n -= strlen(name_ext_text(ext));
		if (v.stem.n + 4 > LIMIT_NAME_BYTES || span_eq(buf_span(&back), v.stem))
			continue;
		/* Else as it is spelled where the name is ours. */
		buf_clear(&back);
		must(name_escape(buf_span(&key), use, ext, NAME_OURS_ALL, &back) == 0);
		must(use == NAME_CONTAINER && span_eq(buf_span(&back), v.stem));
	}
}

static void check_key(struct span key, enum name_ext ext)
{
	auto_buf name = { 0 }, back = { 0 };
	enum name_use use = ext ? NAME_LEAF : NAME_CONTAINER;
	struct name_view v;

	must(name_escape(key, use, ext, NAME_OURS_ALL, &name) == 0);
	must(name.n > 0 && name.n <= LIMIT_NAME_BYTES);
	must(!memchr(name.p, '/', name.n) && !memchr(name.p, '\0', name.n));
	/* A name of ours is never a view. */
	must(name_view_parse(buf_span(&name), &v) == 0);
	must(name_view_is_plain(&v) && v.ext == ext);
	if (name_is_hashed(v.stem))
		return;
	must(name_unescape(v.stem, use, NAME_OURS_ALL, &back) == 0);
	must(span_eq(buf_span(&back), key));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_name(span_of(data, size));
	for (int ext = NAME_EXT_NONE; ext < NAME_EXT_PLUGIN; ext++)
		check_key(span_of(data, size), (enum name_ext)ext);
	return 0;
}
