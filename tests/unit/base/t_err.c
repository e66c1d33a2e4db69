/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_err.c - a note belongs to the code that it was made for.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

static void a_note_is_shown_for_its_code_only(void **state)
{
	assert_int_equal(fail(-EUCLEAN, "node %d is bad", 7), -EUCLEAN);
	assert_string_equal(err_text(-EUCLEAN), "node 7 is bad");
	assert_string_equal(err_text(-EIO), strerror(EIO));
	assert_non_null(strstr(err_where(-EUCLEAN), "t_err.c:"));
}

static void context_goes_in_front(void **state)
{
	fail(-EBADMSG, "crc32c 1, stored 2");
	err_at(-EBADMSG, "chunk %s", "0.3");
	assert_int_equal(err_at(-EBADMSG, "leaf 'w'"), -EBADMSG);
	assert_string_equal(err_text(-EBADMSG), "leaf 'w': chunk 0.3: crc32c 1, stored 2");
	err_at(-ENOENT, "step '7'");
	assert_string_equal(err_text(-ENOENT), "step '7': No such file or directory");
}

static void a_long_context_keeps_the_cause(void **state)
{
	char name[3 * ERR_TEXT_MAX], path[600];

	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	memset(path, 'y', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	fail(-EUCLEAN, "the cause");
	err_at(-EUCLEAN, "leaf '%s' from '/in/w.npy'", path);
	assert_non_null(strstr(err_text(-EUCLEAN), "y' from '/in/w.npy': the cause"));
	assert_non_null(strstr(err_text(-EUCLEAN), "leaf 'yy"));
	fail(-EUCLEAN, "the cause");
	err_at(-EUCLEAN, "leaf '%s'", name);
	assert_non_null(strstr(err_text(-EUCLEAN), ": the cause"));
	for (int i = 0; i < 400; i++)
		err_at(-EUCLEAN, "'layer%d'", i);
	assert_non_null(strstr(err_text(-EUCLEAN), ": the cause"));
	assert_non_null(strstr(err_text(-EUCLEAN), "'layer399': 'layer398': "));
}

static void notes_travel_between_threads(void **state)
{
	struct err_note n;

	fail(-EFBIG, "limit of 5");
	err_save(-EFBIG, &n);
	err_clear();
	assert_string_not_equal(err_text(-EFBIG), "limit of 5");
	assert_int_equal(err_restore(&n), -EFBIG);
	assert_string_equal(err_text(-EFBIG), "limit of 5");
	/* The place of the fail() travels with the note. */
	assert_non_null(strstr(err_where(-EFBIG), "t_err.c:"));
}

static void errors_that_are_expected_leave_no_note(void **state)
{
	fail(-ENOENT, "not there");
	assert_int_equal(err_except(-ENOENT, -ENOTDIR, -ENOENT), 0);
	assert_string_not_equal(err_text(-ENOENT), "not there");
	fail(-EIO, "broken");
	assert_int_equal(err_except(-EIO, -ENOTDIR, -ENOENT), -EIO);
	assert_string_equal(err_text(-EIO), "broken");
	assert_int_equal(err_except(1, -ENOENT), 1);
}

static void format_errors_are_eio_at_the_mount(void **state)
{
	assert_int_equal(err_errno(-EUCLEAN), EIO);
	assert_int_equal(err_errno(-EBADMSG), EIO);
	assert_int_equal(err_errno(-ENOENT), ENOENT);
	assert_int_equal(err_errno(0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_note_is_shown_for_its_code_only),
		cmocka_unit_test(context_goes_in_front),
		cmocka_unit_test(a_long_context_keeps_the_cause),
		cmocka_unit_test(notes_travel_between_threads),
		cmocka_unit_test(errors_that_are_expected_leave_no_note),
		cmocka_unit_test(format_errors_are_eio_at_the_mount),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
