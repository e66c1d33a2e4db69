/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault_rules.h - the rules of io=fault() in an enumeration of faults, without their number, and
 * the error that each causes.
 */
#ifndef PYTREEFS_TESTS_FAULT_RULES_H
#define PYTREEFS_TESTS_FAULT_RULES_H

#include <errno.h>

static const struct {
	const char *rule;
	int code;
} fault_rules[] = {
	{ "change:eio", -EIO }, { "change:enospc", -ENOSPC }, { "read:eio", -EIO },
	{ "open:eio", -EIO },   { "any:enomem", -ENOMEM },    { "write:torn", -EIO },
	{ "read:torn", -EIO },
};

#endif
