/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_ns_items.c - opened items whose path becomes something else.
 */
#include "tests/unit/lib/unit.h"

#include <stdlib.h>
#include <unistd.h>

#include "handlers/namespace/ns.h"

__attribute__((format(printf, 1, 2))) static void shell(const char *fmt, ...)
{
	char cmd[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	assert_int_equal(system(cmd), 0);
}

/* The item that was open is given back, and nothing is handed over in its place. */
static void an_item_that_is_no_more(void **state)
{
	struct item *const nothing = (struct item *)(uintptr_t)1;
	struct item *item = nothing;
	struct options o;
	struct ns *ns;
	char root[] = "/tmp/t_ns_items.XXXXXX";

	assert_non_null(mkdtemp(root));
	shell("cp -r '" DATA "/sample/1000' %s/5", root);
	assert_int_equal(options_init(&o), 0);
	assert_int_equal(ns_open(root, &o, &ns), 0);
	assert_int_equal(ns_item(ns, "5/state", &item), 0);
	item_unref(item);
	item = nothing;
	shell("rm -r %s/5/state", root);
	assert_int_equal(ns_item(ns, "5/state", &item), -ENOENT);
	assert_ptr_equal(item, nothing);
	err_clear();
	ns_close(ns);
	options_release(&o);
	shell("rm -r %s", root);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(an_item_that_is_no_more) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
