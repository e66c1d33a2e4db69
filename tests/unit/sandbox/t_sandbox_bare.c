/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_sandbox_bare.c - messages of a program that was built without libseccomp, with each mode of the
 * sandbox.
 */
#include "tests/unit/lib/unit.h"

#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/sandbox/sandbox.h"

/* Give up rights in a process of its own, since this is permanent. Returns its exit status. */
static int enter(enum sandbox_mode mode, bool (*holds)(int r))
{
	const struct sandbox_rules rules = {
		.mode = mode, .reads_everywhere = true, .writes_everywhere = true, .broker = -1
	};
	pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		_exit(holds(sandbox_enter(&rules)) ? 0 : 1);
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static const char said[] = "seccomp is not in force: the program was built without libseccomp";

/* Sanitizers and coverage have no filter either, for a reason of their own. */
static bool says_so(const char *text)
{
	return strstr(text, said) || strstr(text, "sanitizers or coverage");
}

static bool is_refused(int r)
{
	return r == -EPERM && strstr(err_text(r), "sandbox=require") && says_so(err_text(r));
}

static bool goes_on_and_says_so(int r)
{
	auto_buf text = { 0 };

	return r == 0 && sandbox_print(&text) == 0 &&
	       strstr(buf_str(&text), "\"seccomp\": false") && says_so(buf_str(&text));
}

static void require_refuses(void **state)
{
	assert_int_equal(enter(SANDBOX_REQUIRE, is_refused), 0);
}

static void auto_goes_on(void **state)
{
	assert_int_equal(enter(SANDBOX_AUTO, goes_on_and_says_so), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(require_refuses),
		cmocka_unit_test(auto_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
