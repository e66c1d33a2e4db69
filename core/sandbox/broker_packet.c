/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_packet.c - packets of a socket of SOCK_SEQPACKET, with descriptors as SCM_RIGHTS.
 */
#include "core/sandbox/broker_packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/mem.h"

int broker_packet_send(int socket, const void *p, size_t n, const int *files, unsigned n_files)
{
	char control[CMSG_SPACE(BROKER_FILES_MAX * sizeof(int))] = { 0 };
	struct iovec part = { .iov_base = (void *)p, .iov_len = n };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t sent;

	if (n_files) {
		struct cmsghdr *c;

		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE(n_files * sizeof(int));
		c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_files * sizeof(int));
		memcpy(CMSG_DATA(c), files, n_files * sizeof(int));
	}
	do {
		sent = sendmsg(socket, &message, MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

ssize_t broker_packet_receive(int socket, void *p, size_t max, int ret_files[BROKER_FILES_MAX])
{
	char control[CMSG_SPACE(BROKER_FILES_MAX * sizeof(int))];
	struct iovec part = { .iov_base = p, .iov_len = max };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = control,
				  .msg_controllen = sizeof(control) };
	struct cmsghdr *c;
	ssize_t n;

	for (unsigned i = 0; i < BROKER_FILES_MAX; i++)
		ret_files[i] = -1;
	do {
		n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	c = CMSG_FIRSTHDR(&message);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(ret_files, CMSG_DATA(c),
		       MIN(c->cmsg_len - CMSG_LEN(0), BROKER_FILES_MAX * sizeof(int)));
	return n;
}
