/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_memory.c - the limit of the control group is found in both versions, on made-up files.
 */
#include "tests/unit/lib/unit.h"

#include "core/base/memory.h"
#include "tests/unit/lib/tmp_dir.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static char root[TMP_DIR_MAX];

/* Make a file below root, with the directories that lead to it. */
static void put(const char *path, const char *text)
{
	char whole[PATH_MAX];
	FILE *f;

	snprintf(whole, sizeof(whole), "%s/%s", root, path);
	for (char *c = whole + strlen(root) + 1; (c = strchr(c, '/')); c++) {
		*c = '\0';
		assert_true(mkdir(whole, 0777) == 0 || errno == EEXIST);
		*c = '/';
	}
	f = fopen(whole, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* A machine with 8 GiB. */
static int setup(void **state)
{
	if (tmp_dir_make(root, "t_memory") < 0)
		return -1;
	put("proc/meminfo", "MemTotal:       16777216 kB\n"
			    "MemFree:           10240 kB\n"
			    "MemAvailable:    8388608 kB\n");
	return 0;
}

static int teardown(void **state)
{
	return tmp_dir_remove(root);
}

static void without_groups_it_is_what_the_machine_has(void **state)
{
	assert_int_equal(memory_available(root), 8 * GIB);
	put("proc/self/cgroup", "nonsense\n1:\n\n::\n4:memory\n");
	assert_int_equal(memory_available(root), 8 * GIB);
}

static void version_2_takes_the_smallest_of_all_groups_above(void **state)
{
	put("proc/self/cgroup", "0::/system.slice/pytreefs@weights.service\n");
	put("sys/fs/cgroup/system.slice/pytreefs@weights.service/memory.max", "max\n");
	assert_int_equal(memory_available(root), 8 * GIB);
	put("sys/fs/cgroup/system.slice/memory.max", "2147483648\n");
	assert_int_equal(memory_available(root), 2 * GIB);
	put("sys/fs/cgroup/system.slice/pytreefs@weights.service/memory.max", "1073741824\n");
	assert_int_equal(memory_available(root), GIB);
	put("sys/fs/cgroup/system.slice/pytreefs@weights.service/memory.high", "536870912\n");
	assert_int_equal(memory_available(root), 512 * MIB);
	/* The machine has less than a group may use. */
	put("proc/meminfo", "MemAvailable: 1024 kB\n");
	assert_int_equal(memory_available(root), MIB);
}

static void version_2_in_a_container_is_the_top(void **state)
{
	put("sys/fs/cgroup/memory.max", "1073741824\n");
	put("proc/self/cgroup", "0::/\n");
	assert_int_equal(memory_available(root), GIB);
	/* Without a namespace of its own the container knows its path outside, which it cannot see.
	 */
	put("proc/self/cgroup", "0::/docker/0123456789abcdef\n");
	assert_int_equal(memory_available(root), GIB);
	/* A path that leads outside of the namespace is not followed. */
	put("sys/fs/memory.max", "4096\n");
	put("proc/self/cgroup", "0::/../outside\n");
	assert_int_equal(memory_available(root), GIB);
}

static void version_1_takes_its_group_and_those_above(void **state)
{
	put("proc/self/cgroup",
	    "9:name=systemd:/\n5:cpu,cpuacct:/other\n4:memory:/batch/job\n0::/\n");
	put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put("sys/fs/cgroup/memory/other/memory.limit_in_bytes", "4096\n");
	put("sys/fs/cgroup/memory/batch/job/memory.limit_in_bytes", "9223372036854771712\n");
	put("sys/fs/cgroup/memory/batch/job/memory.stat",
	    "cache 4096\n"
	    "hierarchical_memory_limit 9223372036854771712\n"
	    "hierarchical_memsw_limit 4096\n");
	assert_int_equal(memory_available(root), 8 * GIB);
	put("sys/fs/cgroup/memory/batch/job/memory.limit_in_bytes", "2147483648\n");
	assert_int_equal(memory_available(root), 2 * GIB);
	/* The limit of /batch, which the kernel passes on where groups are hierarchical. */
	put("sys/fs/cgroup/memory/batch/job/memory.stat", "cache 4096\n"
							  "hierarchical_memory_limit 1073741824\n"
							  "hierarchical_memsw_limit 4096\n");
	assert_int_equal(memory_available(root), GIB);
	/* Without use_hierarchy, that of /batch is none of this group. */
	put("sys/fs/cgroup/memory/batch/memory.limit_in_bytes", "4096\n");
	assert_int_equal(memory_available(root), GIB);
}

static void version_1_in_a_container_is_the_deepest_that_exists(void **state)
{
	put("proc/self/cgroup", "4:cpu,memory:/docker/0123456789abcdef\n");
	put("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
	assert_int_equal(memory_available(root), GIB);
}

static void memory_that_groups_use_is_not_left(void **state)
{
	put("proc/self/cgroup", "0::/a/b\n");
	put("sys/fs/cgroup/a/b/memory.max", "1073741824\n");
	assert_int_equal(memory_left(root), GIB);
	put("sys/fs/cgroup/a/b/memory.current", "943718400\n");
	assert_int_equal(memory_left(root), 124 * MIB);
	/* Pages of files are given up by the kernel. */
	put("sys/fs/cgroup/a/b/memory.stat", "anon 1\ninactive_anon 7\nactive_anon 9\n"
					     "inactive_file 104857600\nactive_file 209715200\n");
	assert_int_equal(memory_left(root), 424 * MIB);
	assert_int_equal(memory_available(root), GIB);
	/* The group above it has less. */
	put("sys/fs/cgroup/a/memory.high", "2147483648\n");
	put("sys/fs/cgroup/a/memory.current", "2147483648\n");
	assert_int_equal(memory_left(root), 0);
	put("sys/fs/cgroup/a/memory.current", "3147483648\n");
	assert_int_equal(memory_left(root), 0);
	put("proc/self/cgroup", "4:memory:/job\n");
	put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
	put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1063256064\n");
	put("sys/fs/cgroup/memory/job/memory.stat",
	    "hierarchical_memory_limit 1073741824\ninactive_file 5\ntotal_inactive_file 1048576\n"
	    "total_active_file 2097152\n");
	assert_int_equal(memory_left(root), 13 * MIB);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(without_groups_it_is_what_the_machine_has),
		TEST(version_2_takes_the_smallest_of_all_groups_above),
		TEST(version_2_in_a_container_is_the_top),
		TEST(version_1_takes_its_group_and_those_above),
		TEST(version_1_in_a_container_is_the_deepest_that_exists),
		TEST(memory_that_groups_use_is_not_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
