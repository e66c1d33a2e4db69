/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_init.c - flags that libfuse does not know, in requests and replies of kernels of all ages.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>
#include <sys/uio.h>

#include "core/base/mem.h"
#include "fs/init.h"

#define UNIQUE 42

struct request {
	struct fuse_in_header head;
	struct fuse_init_in in;
};

static struct request request_of(uint64_t offered)
{
	return (struct request){
		.head = { .len = sizeof(struct request), .opcode = FUSE_INIT, .unique = UNIQUE },
		.in = { .major = 7,
			.minor = 45,
			.flags = (uint32_t)offered | FUSE_INIT_EXT,
			.flags2 = (uint32_t)(offered >> 32) },
	};
}

/* The second word of flags in a reply of libfuse that the kernel gets. */
static uint32_t reply(struct init *init, uint64_t unique, size_t bytes, int error,
		      bool *ret_is_init)
{
	struct fuse_out_header h = { .unique = unique, .error = error };
	struct fuse_init_out out = { .major = 7, .flags = FUSE_ASYNC_READ };
	struct iovec iov[] = { { &h, sizeof(h) }, { &out, bytes } };

	*ret_is_init = init_complete_reply(init, iov, bytes ? 2 : 1);
	assert_true(out.flags & FUSE_ASYNC_READ);
	assert_int_equal(out.flags2 != 0, (out.flags & FUSE_INIT_EXT) != 0);
	return out.flags2;
}

static void features_wanted_and_offered_are_granted(void **state)
{
	const uint64_t direct = FUSE_DIRECT_IO_ALLOW_MMAP, ring = FUSE_OVER_IO_URING;
	const struct {
		uint64_t wanted, offered, granted;
	} cases[] = {
		{ direct | ring, direct | ring, direct | ring },
		{ direct, direct | ring, direct },
		{ direct | ring, direct, direct },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct init init = { .wanted = cases[i].wanted };
		struct request q = request_of(cases[i].offered);
		bool is_init;

		init_see_request(&init, &q, sizeof(q));
		assert_true(init.granted == cases[i].granted);
		/* Other replies may come before. */
		assert_int_equal(
			reply(&init, UNIQUE + 1, sizeof(struct fuse_init_out), 0, &is_init), 0);
		assert_false(is_init);
		assert_int_equal(reply(&init, UNIQUE, sizeof(struct fuse_init_out), 0, &is_init),
				 (uint32_t)(cases[i].granted >> 32));
		assert_true(is_init);
		/* And only once. */
		assert_int_equal(reply(&init, UNIQUE, sizeof(struct fuse_init_out), 0, &is_init),
				 0);
		assert_false(is_init);
	}
}

static void an_older_kernel_offers_nothing(void **state)
{
	struct init init = { .wanted = FUSE_OVER_IO_URING };
	struct request q = request_of(FUSE_OVER_IO_URING);
	bool is_init;

	/* Linux 5.14: a request of 16 bytes. */
	init_see_request(&init, &q, sizeof(q.head) + 16);
	assert_true(init.granted == 0);
	assert_int_equal(reply(&init, UNIQUE, sizeof(struct fuse_init_out), 0, &is_init), 0);
	/* It announces no second word, and what is there means nothing. */
	init = (struct init){ .wanted = FUSE_OVER_IO_URING };
	q.in.flags &= ~(uint32_t)FUSE_INIT_EXT;
	init_see_request(&init, &q, sizeof(q));
	assert_true(init.granted == 0);
}

static void a_refused_or_short_reply_grants_nothing(void **state)
{
	const struct {
		size_t bytes;
		int error;
	} cases[] = { { sizeof(struct fuse_init_out), -71 }, { 24, 0 } };

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct init init = { .wanted = FUSE_OVER_IO_URING };
		struct request q = request_of(FUSE_OVER_IO_URING);
		bool is_init;

		init_see_request(&init, &q, sizeof(q));
		assert_true(init.granted != 0);
		assert_int_equal(reply(&init, UNIQUE, cases[i].bytes, cases[i].error, &is_init), 0);
		assert_true(is_init);
		assert_true(init.granted == 0);
	}
}

static void only_the_first_init_counts(void **state)
{
	struct init init = { .wanted = FUSE_OVER_IO_URING };
	struct request other = request_of(0), q = request_of(FUSE_OVER_IO_URING);

	other.head.opcode = FUSE_LOOKUP;
	init_see_request(&init, &other, sizeof(other));
	init_see_request(&init, &other, 8);
	assert_true(init.granted == 0);
	init_see_request(&init, &q, sizeof(q));
	assert_true(init.granted == FUSE_OVER_IO_URING);
	q = request_of(0);
	init_see_request(&init, &q, sizeof(q));
	assert_true(init.granted == FUSE_OVER_IO_URING);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(features_wanted_and_offered_are_granted),
		cmocka_unit_test(an_older_kernel_offers_nothing),
		cmocka_unit_test(a_refused_or_short_reply_grants_nothing),
		cmocka_unit_test(only_the_first_init_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
