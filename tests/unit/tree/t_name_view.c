/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_name_view.c - the grammar of a name: the meaning of each part, and malformed names.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/tree/name.h"

/* "stem|box|cast|shape|ext" of a view, spelled as by name_view_print(). */
static const char *text_of(const struct name_view *v, struct buf *out)
{
	struct name_view part = { .stem = span_str("") };
	static const char *const kinds[] = { "r", "i", "e" };

	buf_addf(out, "%.*s|", SPAN_ARG(v->stem));
	for (unsigned i = 0; v->has_box && i < v->n_box; i++)
		buf_addf(out, "%s%s", i ? "," : "", kinds[v->box[i].kind]);
	part.has_box = v->has_box;
	part.n_box = v->n_box;
	memcpy(part.box, v->box, sizeof(part.box));
	name_view_print(&part, out);
	buf_addf(out, "|%.*s|", v->has_cast ? (int)v->cast.n : 0, (const char *)v->cast.p);
	for (unsigned i = 0; v->has_shape && i < v->n_shape; i++)
		buf_addf(out, "%s%llu", i ? "x" : "", (unsigned long long)v->shape[i]);
	buf_addf(out, "|%s", name_ext_text(v->ext));
	return buf_str(out);
}

static void parts_of_a_name(void **state)
{
	static const struct {
		const char *name, *want;
	} cases[] = {
		{ "w.npy", "w||||.npy" },
		{ "w", "w||||" },
		{ "a.b.npy.npy", "a.b.npy||||.npy" },
		{ "%2Fa%25.safetensors", "%2Fa%25||||.safetensors" },
		{ "w[0:512,256:512].npy", "w|r,r[0:512,256:512]|||.npy" },
		{ "w[3].npy", "w|i[3]|||.npy" },
		{ "w[-1,...,::2].bin", "w|i,e,r[-1,...,::2]|||.bin" },
		{ "w[:].npy", "w|r[:]|||.npy" },
		{ "w[1:].npy", "w|r[1:]|||.npy" },
		{ "w[:-5:3].npy", "w|r[:-5:3]|||.npy" },
		{ "w[1:5:].npy", "w|r[1:5]|||.npy" },
		{ "w[1:5:1].npy", "w|r[1:5]|||.npy" },
		{ "w[...].npy", "w|e[...]|||.npy" },
		{ "w@bfloat16.npy", "w||bfloat16||.npy" },
		{ "w@1024x512.npy", "w|||1024x512|.npy" },
		{ "w@0.npy", "w|||0|.npy" },
		{ "w@8@float8_e4m3fn.npy", "w||float8_e4m3fn|8|.npy" },
		{ "w@float32@8x0x4.npy", "w||float32|8x0x4|.npy" },
		{ "w[0:10]@float32.npy", "w|r[0:10]|float32||.npy" },
		{ "w[0:512,0:256]@1024x256.npy", "w|r,r[0:512,0:256]||1024x256|.npy" },
		{ "w@float32[0:10].npy", "w|r[0:10]|float32||.npy" },
		{ "w@1024x256[0:512,0:256].npy", "w|r,r[0:512,0:256]||1024x256|.npy" },
		{ "w@8[3]@int8.npy", "w|i[3]|int8|8|.npy" },
		{ "w@int8@8[3].npy", "w|i[3]|int8|8|.npy" },
		{ "w@18446744073709551615.npy", "w|||18446744073709551615|.npy" },
		{ "w[9223372036854775807].npy", "w|i[9223372036854775807]|||.npy" },
		{ "D@bfloat16.safetensors", "D||bfloat16||.safetensors" },
		{ "D.html", "D||||.html" },
		{ "w]x.npy", "w]x||||.npy" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct name_view v;
		auto_buf text = { 0 };

		assert_int_equal(name_view_parse(span_str(cases[i].name), &v), 0);
		assert_string_equal(text_of(&v, &text), cases[i].want);
		assert_int_equal(name_view_is_plain(&v), !strpbrk(cases[i].name, "[@"));
	}
}

static void malformed_views_are_refused(void **state)
{
	static const char *const bad[] = {
		"",
		".npy",
		"[0].npy",
		"@int8.npy",
		"w[0]",
		"w@int8",
		"w@8",
		"w[].npy",
		"w[0.npy",
		"w[0]x.npy",
		"w[0][1].npy",
		"w[0]@int8[0].npy",
		"w@int8[0.npy",
		"w@int8[0]x.npy",
		"w@[0].npy",
		"w@int8@int8.npy",
		"w@8@8.npy",
		"w@.npy",
		"w@@int8.npy",
		"w@int8@.npy",
		"w@Int-8.npy",
		"w@_x.npy",
		"w@int 8.npy",
		"w@8x.npy",
		"w@x8.npy.",
		"w@8xx8.npy",
		"w@08.npy",
		"w@8x08.npy",
		"w@+8.npy",
		"w@-8.npy",
		"w@18446744073709551616.npy",
		"w[ 0].npy",
		"w[0 ].npy",
		"w[+1].npy",
		"w[01].npy",
		"w[-0].npy",
		"w[--1].npy",
		"w[,].npy",
		"w[0,].npy",
		"w[,0].npy",
		"w[1:2:3:4].npy",
		"w[::0].npy",
		"w[::-1].npy",
		"w[1-2].npy",
		"w[...,...].npy",
		"w[..].npy",
		"w[a].npy",
		"w[9223372036854775808].npy",
		"w[0x1].npy",
		"w[1:2",
		"w[0]@.npy",
		"w@8 .npy",
		"w@1e3.npy",
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct name_view v = { .n_box = 77 };

		if (name_view_parse(span_str(bad[i]), &v) != -EINVAL)
			fail_msg("'%s' was taken", bad[i]);
		assert_int_equal(v.n_box, 77);
		assert_non_null(strstr(err_text(-EINVAL), "name '"));
	}
}

static void axes_are_bounded(void **state)
{
	for (unsigned n = LIMIT_RANK - 1; n <= LIMIT_RANK + 2; n++) {
		auto_buf box = { 0 }, dots = { 0 }, shape = { 0 };
		struct name_view v;

		buf_add_str(&box, "w[0");
		buf_add_str(&dots, "w[...");
		buf_add_str(&shape, "w@1");
		for (unsigned i = 1; i < n; i++) {
			buf_add_str(&box, ",:");
			buf_add_str(&dots, ",:");
			buf_add_str(&shape, "x1");
		}
		buf_add_str(&box, "].npy");
		buf_add_str(&dots, "].npy");
		buf_add_str(&shape, ".npy");
		assert_int_equal(name_view_parse(buf_span(&box), &v),
				 n <= LIMIT_RANK ? 0 : -EINVAL);
		assert_int_equal(name_view_parse(buf_span(&dots), &v),
				 n <= LIMIT_RANK + 1 ? 0 : -EINVAL);
		assert_int_equal(name_view_parse(buf_span(&shape), &v),
				 n <= LIMIT_RANK ? 0 : -EINVAL);
	}
}

static uint64_t seed = 12345;

static unsigned rnd(unsigned n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(seed >> 33) % n;
}

static void printed_views_parse_again(void **state)
{
	static const char chars[] = "w01:-.,[]@xifloat8_ ";
	unsigned taken = 0;

	for (int i = 0; i < 2000000; i++) {
		char name[40] = "w";
		auto_buf a = { 0 }, b = { 0 };
		struct name_view v, again;
		size_t n = 1;

		for (unsigned len = 1 + rnd(16); n < len; n++)
			name[n] = n == 1 ? "[@"[rnd(2)] : chars[rnd(sizeof(chars) - 1)];
		memcpy(name + n, ".npy", 4);
		if (name_view_parse(span_of(name, n + 4), &v) < 0)
			continue;
		taken += !name_view_is_plain(&v);
		assert_int_equal(name_view_print(&v, &a), 0);
		assert_int_equal(name_view_parse(buf_span(&a), &again), 0);
		assert_int_equal(name_view_print(&again, &b), 0);
		assert_true(span_eq(buf_span(&a), buf_span(&b)));
		assert_int_equal(v.n_box, again.n_box);
		assert_int_equal(v.n_shape, again.n_shape);
		assert_memory_equal(v.shape, again.shape, v.n_shape * sizeof(v.shape[0]));
	}
	assert_true(taken > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parts_of_a_name),
		cmocka_unit_test(malformed_views_are_refused),
		cmocka_unit_test(axes_are_bounded),
		cmocka_unit_test(printed_views_parse_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
