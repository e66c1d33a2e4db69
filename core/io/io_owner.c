/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_owner.c - attributes of files: the owner of new ones, modes and access lists.
 *
 * A mount that root runs for other users creates a draft's files for the draft's writer, so that
 * the step belongs to that user and counts towards the user's quota. They are created with the
 * user's identity rather than changed afterwards: the user owns the directory, and could replace a
 * file that root is about to give away.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/xattr.h>

#include "core/base/clock.h"
#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/wire.h"
#include "core/io/io_engine.h"

void io_dir_own(struct io_dir *dir, uid_t uid, gid_t gid)
{
	dir->owned = true;
	dir->uid = uid;
	dir->gid = gid;
}

/* For this thread only. The group comes first, since only root can change it. */
void io_owner_enter(const struct io_dir *dir)
{
	if (!dir->owned)
		return;
	setfsgid(dir->gid);
	setfsuid(dir->uid);
}

void io_owner_leave(const struct io_dir *dir)
{
	if (!dir->owned)
		return;
	setfsuid(geteuid());
	setfsgid(getegid());
}

/* ---- access lists ---- */

enum { ACL_GROUP_OBJ = 4, ACL_USER = 2, ACL_GROUP = 8, ACL_MASK = 16, ACL_OTHER = 32 };

/*
 * The kernel's format of an access list is a version, then tag, permissions and id of each entry.
 */
static void read_acl(struct span text, unsigned *group, unsigned *other)
{
	struct wire w = wire_of(text);
	unsigned mask = 7, named = 7;

	if (wire_u32le(&w) != 2)
		return;
	while (wire_left(&w) >= 8) {
		unsigned tag = wire_u16le(&w), may = wire_u16le(&w);

		(void)wire_u32le(&w);
		if (tag == ACL_USER || tag == ACL_GROUP)
			named &= may;
		else if (tag == ACL_MASK)
			mask = may;
		else if (tag == ACL_GROUP_OBJ)
			*group = may;
		else if (tag == ACL_OTHER)
			*other = may;
	}
	*group &= mask & named;
	*other &= named == 7 ? 7 : named & mask;
}

/* *ret_fd: a descriptor for the attributes, which the caller closes if there is one. */
static int stat_at(struct io_dir *dir, const char *rel, int *ret_fd, struct stat *ret)
{
	*ret_fd = io_open_in(dir->io, dir, rel, O_PATH, 0);
	if (*ret_fd < 0)
		return io_open_failed(*ret_fd, dir, "cannot stat", io_shown(dir, rel));
	return fstat(*ret_fd, ret) < 0 ? err_sys("cannot stat", io_shown(dir, rel)) : 0;
}

int io_local_stat(struct io_dir *dir, const char *rel, struct stat *ret)
{
	auto_close int fd = -1;

	return stat_at(dir, rel, &fd, ret);
}

uint64_t io_mark(struct io_dir *dir, const char *rel, uint64_t seed, uint64_t *bytes)
{
	struct stat st;
	int r = io_stat(dir, rel, &st);
	uint64_t v[] = { (uint64_t)-r, 0, 0, 0, 0 };

	if (r >= 0) {
		v[1] = mix64((uint64_t)st.st_dev) + (uint64_t)st.st_ino;
		v[2] = (uint64_t)st.st_size;
		*bytes += S_ISREG(st.st_mode) ? v[2] : 0;
		v[3] = (uint64_t)clock_ns_of(st.st_mtim);
		v[4] = (uint64_t)clock_ns_of(st.st_ctim);
	}
	err_clear();
	return hash64(span_of(v, sizeof(v)), seed);
}

int io_local_stat_acl(struct io_dir *dir, const char *rel, struct stat *ret, unsigned *ret_group,
		      unsigned *ret_other)
{
	auto_close int fd = -1;
	char path[64];
	uint8_t acl[4096];
	struct stat st;
	ssize_t n;
	int r = stat_at(dir, rel, &fd, &st);

	if (r < 0)
		return r;
	*ret_group = st.st_mode >> 3 & 7;
	*ret_other = st.st_mode & 7;
	/* The descriptor is not open for reading attributes, but its path in /proc is. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	do {
		n = getxattr(path, "system.posix_acl_access", acl, sizeof(acl));
	} while (n < 0 && errno == EINTR);
	if (n > 0)
		read_acl(span_of(acl, (size_t)n), ret_group, ret_other);
	else if (n < 0 && errno != ENODATA && errno != ENOTSUP && errno != ENOENT)
		/*
		 * A list that cannot be read may exclude anybody. Without /proc (ENOENT) there may
		 * be no list.
		 */
		*ret_group = *ret_other = 0;
	*ret = st;
	return 0;
}
