/* SPDX-License-Identifier: Apache-2.0 */
/* t_claim.c - the process of a claim, and whether it lives. */
#include "core/remote/upload/claim.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "tests/unit/lib/unit.h"

/* Make our claim with another value in the line of this name. */
static void claim_with(const char *name, const char *value, struct buf *ret)
{
	auto_buf own = { 0 };
	const char *at;

	assert_int_equal(claim_make(&own), 0);
	at = strstr(buf_str(&own), name);
	assert_non_null(at);
	assert_int_equal(buf_addf(ret, "%.*s%s%s%s", (int)(at - buf_str(&own)), buf_str(&own), name,
				  value, strchr(at + 1, '\n')),
			 0);
}

static int is_live_with(const char *name, const char *value)
{
	auto_buf text = { 0 };

	claim_with(name, value, &text);
	return claim_is_live(buf_span(&text));
}

static void own_lives(void **state)
{
	auto_buf a = { 0 }, b = { 0 };

	assert_int_equal(claim_make(&a), 0);
	assert_int_equal(claim_is_live(buf_span(&a)), 1);
	/* Two claims of this process differ, and both are alive. */
	assert_int_equal(claim_make(&b), 0);
	assert_false(span_eq(buf_span(&a), buf_span(&b)));
}

static void the_number_was_given_again(void **state)
{
	assert_int_equal(is_live_with("\nstarted=", "1"), 0);
}

/* Our claim with the identity of a machine, and of another boot. */
static void claim_of_another_boot(const char *machine, struct buf *ret)
{
	auto_buf text = { 0 };
	const char *at, *end;

	claim_with("\nboot=", "00000000-0000-0000-0000-000000000000", &text);
	at = strstr(buf_str(&text), "\nmachine=");
	assert_non_null(at);
	end = strchr(at + 1, '\n');
	assert_int_equal(buf_addf(ret, "%.*s%s%s%s", (int)(at - buf_str(&text)), buf_str(&text),
				  machine ? "\nmachine=" : "", machine ? machine : "", end),
			 0);
}

/* Host name, PID namespace and PID are the same on many machines. */
static void another_boot_ends_a_process_only_on_its_machine(void **state)
{
	static const struct {
		const char *claimed, *ours;
		int live;
	} table[] = {
		{ "aa", "aa", 0 }, { "aa", "bb", -1 }, { "aa", "", -1 },
		{ "", "aa", -1 },  { "", "", -1 },     { NULL, "aa", -1 },
	};

	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		auto_buf text = { 0 };

		claim_of_another_boot(table[i].claimed, &text);
		assert_int_equal(claim_is_live_on(buf_span(&text), table[i].ours), table[i].live);
	}
}

static void the_process_has_ended(void **state)
{
	char number[32];
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	snprintf(number, sizeof(number), "%d", (int)pid);
	assert_int_equal(is_live_with("\npid=", number), 0);
}

/* A process keeps its PID until its parent has waited for it. */
static void nobody_waited_for_the_process(void **state)
{
	auto_buf text = { 0 };
	uint8_t bytes[1024];
	siginfo_t info;
	ssize_t n;
	int fd[2];
	pid_t pid;

	assert_int_equal(pipe(fd), 0);
	pid = fork();
	if (pid == 0) {
		if (claim_make(&text) < 0 || write(fd[1], text.p, text.n) < 0)
			_exit(1);
		_exit(0);
	}
	n = read(fd[0], bytes, sizeof(bytes));
	assert_true(n > 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(claim_is_live(span_of(bytes, (size_t)n)), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	close(fd[0]);
	close(fd[1]);
}

static void others_are_not_known(void **state)
{
	static const char *const bad[] = {
		"",
		"pytreefs draft 1",
		"pytreefs draft 2\nid=0\n",
		"a text\nof somebody\n",
		"pytreefs draft 1\nhost=a\nboot=b\nnames=c\npid=x\nstarted=1\n",
	};
	char long_name[200];

	memset(long_name, 'a', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';
	assert_int_equal(is_live_with("\nhost=", "another.example.org"), -1);
	assert_int_equal(is_live_with("\nnames=", "pid:[1]"), -1);
	assert_int_equal(is_live_with("\nhost=", long_name), -1);
	assert_int_equal(is_live_with("\nhost=", "\x1b[2J"), -1);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(claim_is_live(span_str(bad[i])), -1);
}

static void it_is_shown(void **state)
{
	auto_buf text = { 0 };
	char who[192];

	claim_with("\nhost=", "node-7", &text);
	claim_show(buf_span(&text), who, sizeof(who));
	assert_non_null(strstr(who, "of 'node-7'"));
	/* A value with control characters is not shown. */
	buf_clear(&text);
	claim_with("\nhost=", "\x1b[2J", &text);
	claim_show(buf_span(&text), who, sizeof(who));
	assert_string_equal(who, "somebody");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(own_lives),
		cmocka_unit_test(the_number_was_given_again),
		cmocka_unit_test(another_boot_ends_a_process_only_on_its_machine),
		cmocka_unit_test(the_process_has_ended),
		cmocka_unit_test(nobody_waited_for_the_process),
		cmocka_unit_test(others_are_not_known),
		cmocka_unit_test(it_is_shown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
