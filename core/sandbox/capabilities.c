/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capabilities.c - drops most of root's capabilities.
 *
 * A mount by root reads sources of other users whose modes exclude root's group (DAC_OVERRIDE,
 * DAC_READ_SEARCH), makes files in the name of the caller (SETUID, SETGID; the filter of system
 * calls allows only setfsuid() and setfsgid()), and sets the modes that the caller chose (CHOWN,
 * FOWNER, FSETID). An ordinary user has no capabilities.
 */
#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/mem.h"
#include "core/sandbox/sandbox_layers.h"

static const struct {
	const char *name;
	unsigned number;
	bool of_writers; /* only kept by processes that write */
} needed[] = {
	{ "chown", CAP_CHOWN, true },
	{ "dac_override", CAP_DAC_OVERRIDE, true },
	{ "dac_read_search", CAP_DAC_READ_SEARCH, false },
	{ "fowner", CAP_FOWNER, true },
	{ "fsetid", CAP_FSETID, true },
	{ "setgid", CAP_SETGID, true },
	{ "setuid", CAP_SETUID, true },
};

static int get(uint64_t *ret)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &head, data) < 0)
		return -errno;
	*ret = data[0].permitted | (uint64_t)data[1].permitted << 32;
	return 0;
}

int capabilities_drop(const struct sandbox_rules *rules)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };
	uint64_t have, keep = 0;
	int r = get(&have);

	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_LEN(needed); i++)
		if (rules->changes_owners || !needed[i].of_writers)
			keep |= UINT64_C(1) << needed[i].number;
	keep &= have;
	/*
	 * Fails without CAP_SETPCAP. Then no program could get them back anyway, since new
	 * privileges are off.
	 */
	for (unsigned c = 0; prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
		if (!(keep >> c & 1) && prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0)
			break;
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	data[0].permitted = data[0].effective = (uint32_t)keep;
	data[1].permitted = data[1].effective = (uint32_t)(keep >> 32);
	return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

int capabilities_print(struct buf *ret)
{
	uint64_t have;
	const char *before = "";
	int r = get(&have);

	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_LEN(needed); i++) {
		if (!(have >> needed[i].number & 1))
			continue;
		buf_addf(ret, "%s\"%s\"", before, needed[i].name);
		have &= ~(UINT64_C(1) << needed[i].number);
		before = ", ";
	}
	if (have)
		buf_addf(ret, "%s\"others\"", before);
	return buf_failed(ret);
}
