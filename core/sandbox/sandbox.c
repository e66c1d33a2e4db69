/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox.c - applies the layers in order, and reports which are active.
 *
 * Capabilities are dropped first, since that needs a capability; Landlock and the filter require
 * that new privileges are off.
 */
#include "core/sandbox/sandbox.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/sandbox/sandbox_layers.h"

/* Sanitizers and coverage open files, map memory and start programs of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(PYTREEFS_COVERAGE)
#define INSTRUMENTED true
#else
#define INSTRUMENTED false
#endif

static struct {
	enum sandbox_mode mode;
	bool entered, no_new_privs, capabilities, system_calls;
	int landlock;      /* its version; 0: not active */
	char missing[512]; /* the layers that are not active, with reasons; "": none */
} now = { .mode = SANDBOX_OFF };

static void miss(const char *layer, const char *reason)
{
	size_t n = strlen(now.missing);

	snprintf(now.missing + n, sizeof(now.missing) - n, "%s%s is not in force: %s",
		 n ? "; " : "", layer, reason);
}

int sandbox_enter(const struct sandbox_rules *rules)
{
	int r;

	now.mode = rules->mode;
	if (rules->mode == SANDBOX_OFF)
		return 0;
	/*
	 * Load what the C library opens only on first use, when it could not be opened any more:
	 * without libgcc, pthread_cancel() and pthread_exit() end the process.
	 */
	dlopen("libgcc_s.so.1", RTLD_NOW);
	tzset();
	r = capabilities_drop(rules);
	now.capabilities = r >= 0;
	if (r < 0)
		miss("capabilities", strerror(-r));
	now.no_new_privs = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
	if (!now.no_new_privs)
		miss("no_new_privs", strerror(errno));
	if (INSTRUMENTED) {
		miss("landlock and seccomp", "the program was built with sanitizers or coverage");
	} else if (rules->is_rank) {
		miss("landlock and seccomp", "MPI opens files and sockets of its own");
	} else if (now.no_new_privs) {
		r = landlock_enter(rules);
		now.landlock = MAX(r, 0);
		if (r < 0)
			miss("landlock",
			     r == -EOPNOTSUPP || r == -ENOSYS ?
				     "the kernel does not have it, or only its first version" :
				     strerror(-r));
		r = system_calls_filter(rules);
		now.system_calls = r >= 0;
		if (r < 0)
			miss("seccomp", r == -ENOPKG ? "the program was built without libseccomp" :
					r == -EOPNOTSUPP ? "the kernel does not have it" :
							   strerror(-r));
	}
	now.entered = true;
	if (rules->mode == SANDBOX_REQUIRE && *now.missing)
		return fail(-EPERM, "sandbox=require: %s", now.missing);
	return 0;
}

void sandbox_log_missing(void)
{
	if (*now.missing && !INSTRUMENTED)
		log_info("the sandbox is not whole: %s", now.missing);
}

const char *sandbox_extent(void)
{
	return !now.entered ? "off" : *now.missing ? "in part" : "whole";
}

int sandbox_print(struct buf *ret)
{
	static const char *const words[] = { "auto", "off", "require" };
	int r;

	buf_addf(ret, "{\"mode\": \"%s\", \"no_new_privs\": %s, \"capabilities\": [",
		 words[now.mode], now.no_new_privs ? "true" : "false");
	r = capabilities_print(ret);
	if (r < 0)
		return r;
	buf_addf(ret, "], \"landlock\": %d, \"seccomp\": %s", now.landlock,
		 now.system_calls ? "true" : "false");
	if (*now.missing) {
		buf_addf(ret, ", \"missing\": \"");
		for (const char *c = now.missing; *c; c++)
			buf_add_byte(ret, (uint8_t)(*c == '"' || *c == '\\' ? '\'' : *c));
		buf_add_byte(ret, '"');
	}
	buf_add_byte(ret, '}');
	return buf_failed(ret);
}
