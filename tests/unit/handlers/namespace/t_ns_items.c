/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_ns_items.c - opened items whose path becomes something else.
 */
#include "tests/unit/lib/unit.h"

#include "tests/unit/lib/tmp_dir.h"

#include "handlers/namespace/ns.h"

/* The item that was open is given back, and nothing is handed over in its place. */
static void an_item_that_is_no_more(void **state)
{
	struct item *const nothing = (struct item *)(uintptr_t)1;
	struct item *item = nothing;
	struct options o;
	struct ns *ns;
	char root[TMP_DIR_MAX], step[TMP_DIR_MAX + 2], state_of_step[TMP_DIR_MAX + 8];

	assert_int_equal(tmp_dir_make(root, "t_ns_items"), 0);
	snprintf(step, sizeof(step), "%s/5", root);
	snprintf(state_of_step, sizeof(state_of_step), "%s/state", step);
	assert_int_equal(tmp_dir_copy(DATA "/sample/1000", step), 0);
	assert_int_equal(options_init(&o), 0);
	assert_int_equal(ns_open(root, &o, &ns), 0);
	assert_int_equal(ns_item(ns, "5/state", &item), 0);
	item_unref(item);
	item = nothing;
	assert_int_equal(tmp_dir_remove(state_of_step), 0);
	assert_int_equal(ns_item(ns, "5/state", &item), -ENOENT);
	assert_ptr_equal(item, nothing);
	err_clear();
	ns_close(ns);
	options_release(&o);
	assert_int_equal(tmp_dir_remove(root), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(an_item_that_is_no_more) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
