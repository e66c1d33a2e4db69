/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/buf.h"
#include "core/base/mem.h"

#define NO_LIMIT UINT64_MAX

/* Returns the number after `name` in a file of lines "NAME NUMBER", or NO_LIMIT. */
static uint64_t number_after(const char *path, const char *name)
{
	uint64_t found = NO_LIMIT, value;
	size_t n = strlen(name);
	char line[256];
	FILE *f = fopen(path, "re");

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, n) && sscanf(line + n, "%" SCNu64, &value) == 1)
			found = value;
	if (f)
		fclose(f);
	return found;
}

/* Returns the limit in a file of a group; NO_LIMIT for "max", or if there is no such file. */
static uint64_t limit_of(const char *group, const char *file)
{
	auto_free char *path = str_fmt("%s/%s", group, file);

	return path ? number_after(path, "") : NO_LIMIT;
}

/* Change a path to its parent; false at the top. */
static bool to_parent(char *group, size_t top)
{
	char *slash = strrchr(group + top, '/');

	if (!slash)
		return false;
	*slash = '\0';
	return true;
}

/* Memory of a group apart from the page cache of files; total: before its names in memory.stat. */
static uint64_t used_by(const char *group, const char *usage, const char *total)
{
	static const char *const lists[] = { "active_file ", "inactive_file " };
	auto_free char *stat = str_fmt("%s/memory.stat", group);
	uint64_t used = limit_of(group, usage);

	for (size_t i = 0; i < ARRAY_LEN(lists) && stat && used != NO_LIMIT; i++) {
		auto_free char *name = str_fmt("%s%s", total, lists[i]);
		uint64_t cached = name ? number_after(stat, name) : NO_LIMIT;

		used -= cached == NO_LIMIT ? 0 : MIN(cached, used);
	}
	return used == NO_LIMIT ? 0 : used;
}

/* Every group limits those below it. */
static uint64_t limit_of_version_2(char *group, size_t top, bool is_left)
{
	uint64_t limit = NO_LIMIT;

	do {
		uint64_t own = MIN(limit_of(group, "memory.max"), limit_of(group, "memory.high"));

		if (is_left && own != NO_LIMIT)
			own -= MIN(own, used_by(group, "memory.current", ""));
		limit = MIN(limit, own);
	} while (to_parent(group, top));
	return limit;
}

/*
 * A container often sees its own group at the top, while /proc names it by its path outside: the
 * deepest group that exists is this process's.
 */
static uint64_t limit_of_version_1(char *group, size_t top, bool is_left)
{
	auto_free char *stat = NULL;
	uint64_t limit;

	while (access(group, F_OK) < 0 && to_parent(group, top))
		;
	stat = str_fmt("%s/memory.stat", group);
	limit = MIN(limit_of(group, "memory.limit_in_bytes"),
		    stat ? number_after(stat, "hierarchical_memory_limit ") : NO_LIMIT);
	if (is_left && limit != NO_LIMIT)
		limit -= MIN(limit, used_by(group, "memory.usage_in_bytes", "total_"));
	return limit;
}

/* A line of /proc/self/cgroup is "NUMBER:CONTROLLERS:PATH"; version 2 has no controllers. */
static uint64_t limit_of_line(const char *root, char *line, bool is_left)
{
	char *controllers = strchr(line, ':'),
	     *path = controllers ? strchr(controllers + 1, ':') : NULL;
	auto_free char *listed = NULL, *group = NULL;
	bool is_version_2;
	size_t top;

	if (!path)
		return NO_LIMIT;
	*path++ = '\0';
	path[strcspn(path, "\n")] = '\0';
	/* The group is outside of what this process sees, or the top. */
	if (strstr(path, "/..") || !strcmp(path, "/"))
		*path = '\0';
	is_version_2 = !controllers[1];
	listed = str_fmt(",%s,", controllers + 1);
	if (!listed || (!is_version_2 && !strstr(listed, ",memory,")))
		return NO_LIMIT;
	group = str_fmt("%s/sys/fs/cgroup%s%s", root, is_version_2 ? "" : "/memory", path);
	if (!group)
		return NO_LIMIT;
	top = strlen(group) - strlen(path);
	return is_version_2 ? limit_of_version_2(group, top, is_left) :
			      limit_of_version_1(group, top, is_left);
}

static uint64_t memory_measure(const char *root, bool is_left)
{
	auto_free char *meminfo = str_fmt("%s/proc/meminfo", root);
	auto_free char *groups = str_fmt("%s/proc/self/cgroup", root);
	uint64_t kib = meminfo ? number_after(meminfo, "MemAvailable: ") : NO_LIMIT, available;
	char line[PATH_MAX + 256];
	FILE *f = groups ? fopen(groups, "re") : NULL;

	available = kib != NO_LIMIT ?
			    kib << 10 :
			    (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	while (f && fgets(line, sizeof(line), f))
		available = MIN(available, limit_of_line(root, line, is_left));
	if (f)
		fclose(f);
	return available;
}

uint64_t memory_available(const char *root)
{
	return memory_measure(root, false);
}

uint64_t memory_left(const char *root)
{
	return memory_measure(root, true);
}
