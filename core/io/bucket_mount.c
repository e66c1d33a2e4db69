/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket_mount.c - recognize the file system of a directory by its entry in /proc/self/mountinfo.
 */
#include "core/io/bucket_mount.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "core/base/mem.h"

#define OF_RCLONE "; rclone cannot reach it, or is uploading it: its log says which"
#define AT_CLOSE "durable as far as a file is in the bucket when it is closed"

static const struct bucket_mount mounts[] = {
	{ "fuse.rclone", NULL, "rclone", true,
	  "not durable before rclone has uploaded it, which with a cache is some time later",
	  OF_RCLONE, OF_RCLONE ", and with --vfs-cache-mode full it can be read meanwhile" },
	{ "fuse.s3fs", NULL, "s3fs", false, AT_CLOSE, "; the log of s3fs has the reason", NULL },
	{ "fuse.gcsfuse", NULL, "gcsfuse", false, AT_CLOSE, "; the log of gcsfuse has the reason",
	  NULL },
	{ "fuse", "mountpoint-s3", "Mountpoint for Amazon S3", false, AT_CLOSE,
	  "; the log of Mountpoint has the reason", NULL },
};

const struct bucket_mount *bucket_mount_of(int fd)
{
	const struct bucket_mount *found = NULL;
	auto_free char *line = NULL;
	struct statfs fs;
	struct stat st;
	size_t cap = 0;
	FILE *f;

	if (fstatfs(fd, &fs) < 0 || fs.f_type != FUSE_SUPER_MAGIC || fstat(fd, &st) < 0)
		return NULL;
	f = fopen("/proc/self/mountinfo", "re");
	/* "36 35 0:41 / /mnt rw,... master:1 - fuse.rclone SOURCE OPTIONS" */
	while (f && !found && getline(&line, &cap, f) > 0) {
		unsigned major_of, minor_of;
		char *rest = strstr(line, " - "), *type, *source, *at;

		if (!rest || sscanf(line, "%*d %*d %u:%u", &major_of, &minor_of) != 2 ||
		    major_of != major(st.st_dev) || minor_of != minor(st.st_dev))
			continue;
		type = strtok_r(rest + 3, " \n", &at);
		source = type ? strtok_r(NULL, " \n", &at) : NULL;
		for (size_t i = 0; source && !found && i < ARRAY_LEN(mounts); i++)
			if (!strcmp(type, mounts[i].type) &&
			    (!mounts[i].source || !strcmp(source, mounts[i].source)))
				found = &mounts[i];
	}
	if (f)
		fclose(f);
	return found;
}

const char *bucket_mount_advice(const struct bucket_mount *m, int code, bool reading)
{
	if (!m || code != -EIO)
		return "";
	return reading && m->of_reads ? m->of_reads : m->advice;
}
