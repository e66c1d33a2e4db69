/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xattr.c - leaf metadata as extended attributes: `user.pytree.*`.
 */
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "fs/fs.h"

#define USER "user."
#define PREFIX USER "pytree."

/*
 * The error for names in a namespace that checkpoints do not have (ACLs, capabilities, security
 * labels). Programs remember "not supported" for the whole mount; otherwise, `ls -l` would request
 * two of these for each file, and take four times as long.
 */
static int absent(const char *name)
{
	return strncmp(name, USER, strlen(USER)) ? -EOPNOTSUPP : -ENODATA;
}

void fs_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct node *n = fs_node(fuse_req_userdata(req), ino);
	auto_buf value = { 0 };
	struct user user;
	int r = absent(name);

	if (!strncmp(name, PREFIX, strlen(PREFIX))) {
		caller_enter(req, &user);
		r = node_xattr_get(n, name + strlen(PREFIX), &value);
		caller_leave();
	}
	if (r < 0)
		reply_code(req, r, "read an attribute of", n);
	else
		reply_xattr(req, buf_span(&value), size);
}

void fs_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct node *n = fs_node(fuse_req_userdata(req), ino);
	auto_buf names = { 0 };
	int r = node_xattr_list(n, &names);

	if (r < 0)
		reply_code(req, r, "list attributes of", n);
	else
		reply_xattr(req, buf_span(&names), size);
}

void fs_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags)
{
	struct node *n = fs_node(fuse_req_userdata(req), ino);
	struct span v = span_of(value, size);

	reply_code(req, node_xattr_set(n, name, &v, flags), "set an attribute of", n);
}

void fs_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct node *n = fs_node(fuse_req_userdata(req), ino);

	reply_code(req, node_xattr_set(n, name, NULL, 0), "remove an attribute of", n);
}
