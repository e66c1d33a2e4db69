/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_command_ring.c - commands to devices, and the end of a wait.
 *
 * /dev/null completes every command with 0, and a regular file takes none.
 */
#include "tests/unit/lib/unit.h"

#include <fcntl.h>
#include <unistd.h>

#include "core/io/command_ring.h"

static struct command_ring *open_ring(void)
{
	struct command_ring *r = NULL;
	int e = command_ring_new(&r);

	if (e < 0)
		skip();
	return r;
}

static void many_commands_complete_one_after_the_other(void **state)
{
	struct command_ring *r = open_ring();
	const uint8_t command[COMMAND_BYTES] = { 1 };
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(command_ring_run(r, fd, i, command, sizeof(command), NULL, 0), 0);
	close(fd);
	command_ring_free(r);
}

static void the_error_of_a_command_is_its_result(void **state)
{
	struct command_ring *r = open_ring();
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int e = command_ring_run(r, fd, 1, "x", 1, NULL, 0);

	assert_int_equal(e, -EOPNOTSUPP);
	close(fd);
	/* The ring works on. */
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_int_equal(command_ring_run(r, fd, 1, "x", 1, NULL, 0), 0);
	close(fd);
	command_ring_free(r);
}

static void after_the_end_every_command_is_cancelled(void **state)
{
	struct command_ring *r = open_ring();
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	assert_int_equal(command_ring_run(r, fd, 1, "x", 1, NULL, 0), 0);
	command_ring_end(r);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(command_ring_run(r, fd, 1, "x", 1, NULL, 0), -ECANCELED);
	close(fd);
	command_ring_free(r);
}

static void a_ring_that_was_never_used_is_freed(void **state)
{
	command_ring_free(open_ring());
	command_ring_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_commands_complete_one_after_the_other),
		cmocka_unit_test(the_error_of_a_command_is_its_result),
		cmocka_unit_test(after_the_end_every_command_is_cancelled),
		cmocka_unit_test(a_ring_that_was_never_used_is_freed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
