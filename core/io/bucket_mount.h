/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket_mount.h - file systems that show the objects of a bucket as files: rclone, s3fs, gcsfuse,
 * Mountpoint for Amazon S3.
 *
 * An object is made as a whole when its file is closed, and has one name for good: a directory is
 * renamed by copying each object, a file that is open when it is renamed or removed may come back
 * under its old name, and an error of an upload is that of close(2), if it is reported at all. So a
 * step is made in another directory, and copied there (core/commit/step_copy.h).
 */
#ifndef PYTREEFS_BUCKET_MOUNT_H
#define PYTREEFS_BUCKET_MOUNT_H

#include <stdbool.h>

struct bucket_mount {
	const char *type, *source; /* as in /proc/self/mountinfo; source NULL: any */
	const char *name;
	/*
	 * A file is uploaded some time after it was closed, so one that is removed while it is open
	 * never is. Elsewhere it is closed first, because the name of an open one may remain.
	 */
	bool uploads_later;
	const char *durable; /* for messages: when a file that was closed is in the bucket */
	const char *advice, *of_reads; /* for messages; of_reads NULL: advice */
};

/* The one that an open directory is in, or NULL. Makes no note. */
const struct bucket_mount *bucket_mount_of(int fd);
/* "" or, after an I/O error in m, a text for the end of its message. m may be NULL.
 * reading: reads and opens. */
const char *bucket_mount_advice(const struct bucket_mount *m, int code, bool reading);

#endif
