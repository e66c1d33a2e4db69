/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_npy.c - headers as numpy writes them, as it reads them, and as nobody should.
 */
#include "tests/unit/lib/unit.h"

#include "handlers/format/npy.h"

static void file_with(struct buf *b, const char *header)
{
	buf_add(b, "\x93NUMPY\x01\x00", 8);
	buf_add_byte(b, (uint8_t)strlen(header));
	buf_add_byte(b, 0);
	buf_add_str(b, header);
}

static bool has_text(const struct buf *b, const char *text)
{
	return memmem(b->p, b->n, text, strlen(text));
}

static void headers_are_written_as_numpy_does(void **state)
{
	static const uint64_t three[] = { 3 }, two[] = { 2, 1000000 };
	auto_buf a = { 0 }, b = { 0 }, c = { 0 };

	assert_int_equal(npy_header(&(struct array_type){ DTYPE_FLOAT32, 1, three }, &a), 0);
	assert_int_equal(a.n, 128);
	assert_memory_equal(
		a.p,
		"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }",
		67);
	assert_int_equal(a.p[127], '\n');
	assert_int_equal(npy_header(&(struct array_type){ DTYPE_BFLOAT16, 2, two }, &b), 0);
	assert_true(
		has_text(&b, "{'descr': '<V2', 'fortran_order': False, 'shape': (2, 1000000), }"));
	assert_int_equal(npy_header(&(struct array_type){ DTYPE_INT64 }, &c), 0);
	assert_int_equal(c.n % 64, 0);
	assert_true(has_text(&c, "'shape': (), }"));
}

static void headers_that_numpy_reads_are_read(void **state)
{
	static const struct {
		const char *header;
		enum dtype dtype;
		unsigned rank;
		uint64_t bytes;
		bool fortran, big;
	} cases[] = {
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n", DTYPE_FLOAT32, 1,
		  12, false, false },
		{ "{\"shape\": (2, 3), \"descr\": \">i2\", \"fortran_order\": True}", DTYPE_INT16,
		  2, 12, true, true },
		{ "{'descr': '|b1', 'fortran_order': False, 'shape': ()}", DTYPE_BOOL, 0, 1, false,
		  false },
		{ "{'descr': '<V2', 'fortran_order': False, 'shape': (0, 5)}", DTYPE_BFLOAT16, 2, 0,
		  false, false },
		{ "{'descr': '<f1', 'fortran_order': False, 'shape': (4L,)}", DTYPE_FLOAT8_E5M2, 1,
		  4, false, false },
		{ "{'descr': '|V1', 'fortran_order': False, 'shape': (7,)}", DTYPE_UNKNOWN, 1, 7,
		  false, false },
		{ " { 'descr' : 'float32' , 'fortran_order' : False , 'shape' : ( 1 , 2 , ) , } ",
		  DTYPE_FLOAT32, 2, 8, false, false },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_buf b = { 0 };
		struct npy n;

		file_with(&b, cases[i].header);
		if (npy_parse(buf_span(&b), &n) != 1)
			fail_msg("%s: %s", cases[i].header, unit_last_note());
		assert_int_equal(n.dtype, cases[i].dtype);
		assert_int_equal(n.rank, cases[i].rank);
		assert_int_equal(n.bytes, cases[i].bytes);
		assert_int_equal(n.fortran, cases[i].fortran);
		assert_int_equal(n.big_endian, cases[i].big);
		assert_int_equal(n.data, b.n);
		/* Cut off anywhere, more is wanted. */
		for (size_t k = 0; k < b.n; k++)
			assert_int_equal(npy_parse(span_of(b.p, k), &n), 0);
	}
}

static void malformed_headers_are_refused(void **state)
{
	static const struct {
		const char *header;
		int want;
	} cases[] = {
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (3)}", -EUCLEAN },
		{ "{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}", -EUCLEAN },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': [3]}", -EUCLEAN },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}", -EUCLEAN },
		{ "{'descr': '<f4', 'fortran_order': False}", -EUCLEAN },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x': 1}", -EUCLEAN },
		{ "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
		  -EUCLEAN },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} x", -EUCLEAN },
		{ "{'descr': '|O', 'fortran_order': False, 'shape': (3,)}", -EOPNOTSUPP },
		{ "{'descr': '<U3', 'fortran_order': False, 'shape': (3,)}", -EOPNOTSUPP },
		{ "{'descr': '<V4', 'fortran_order': False, 'shape': (3,)}", -EOPNOTSUPP },
		{ "{'descr': [('a', '<i4'), ('b', '<f8')], 'fortran_order': False, 'shape': (3,)}",
		  -EOPNOTSUPP },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
		  -EUCLEAN },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
		  -EUCLEAN },
		{ "__import__('os')", -EUCLEAN },
		{ "", -EUCLEAN },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_buf b = { 0 };
		struct npy n;
		int r;

		file_with(&b, cases[i].header);
		buf_add_zero(&b, 12);
		r = npy_parse(buf_span(&b), &n);
		if (r != cases[i].want)
			fail_msg("'%s' gave %d", cases[i].header, r);
	}
	assert_int_equal(npy_parse(span_str("PK\3\4"), &(struct npy){ 0 }), -EUCLEAN);
	assert_int_equal(npy_parse(span_of("\x93NUMPY\x04\x00\x00\x00\x00\x00", 12),
				   &(struct npy){ 0 }),
			 -EUCLEAN);
	assert_int_equal(npy_parse(span_of("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12),
				   &(struct npy){ 0 }),
			 -EUCLEAN);
}

static void corrupted_bytes_never_crash(void **state)
{
	auto_buf b = { 0 };

	file_with(&b, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }  \n");
	for (size_t i = 0; i < b.n; i++)
		for (unsigned v = 0; v < 256; v++) {
			uint8_t was = b.p[i];
			struct npy n;

			b.p[i] = (uint8_t)v;
			npy_parse(buf_span(&b), &n);
			b.p[i] = was;
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(headers_are_written_as_numpy_does),
		cmocka_unit_test(headers_that_numpy_reads_are_read),
		cmocka_unit_test(malformed_headers_are_refused),
		cmocka_unit_test(corrupted_bytes_never_crash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
