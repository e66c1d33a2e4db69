/* SPDX-License-Identifier: Apache-2.0 */
/*
 * landlock.c - restricts the files that may be opened and the names that may be changed, with the
 * kernel's Landlock.
 *
 * A rule holds for a directory and everything below it, including what is made there later. It is
 * checked when a file is opened or a name is changed; open files remain usable. The C library has
 * no functions for Landlock. Headers may be older than the kernel, so additions of later versions
 * are defined here.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/mem.h"
#include "core/sandbox/sandbox_layers.h"

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif
#define VERSION_ASKED 1u /* LANDLOCK_CREATE_RULESET_VERSION */
#define RULE_PATH_BENEATH 1

/* Rights of <linux/landlock.h>. */
enum {
	RIGHT_EXECUTE = 1 << 0,
	RIGHT_WRITE_FILE = 1 << 1,
	RIGHT_READ_FILE = 1 << 2,
	RIGHT_READ_DIR = 1 << 3,
	RIGHT_REMOVE_DIR = 1 << 4,
	RIGHT_REMOVE_FILE = 1 << 5,
	RIGHT_MAKE_DIR = 1 << 7,
	RIGHT_MAKE_REG = 1 << 8,
	RIGHT_FIRST = (1 << 13) - 1, /* all of version 1 */
	RIGHT_REFER = 1 << 13,       /* version 2: rename between directories */
	RIGHT_TRUNCATE = 1 << 14,    /* 3 */
	RIGHT_IOCTL_DEV = 1 << 15,   /* 5 */
};
enum { NET_BIND_TCP = 1, NET_CONNECT_TCP = 2 };     /* 4 */
enum { SCOPE_ABSTRACT_UNIX = 1, SCOPE_SIGNAL = 2 }; /* 6 */

struct ruleset {
	uint64_t files, net, scoped;
};
struct path_beneath {
	uint64_t rights;
	int32_t parent;
} __attribute__((packed));

static uint64_t rights_of(unsigned access, bool is_dir)
{
	uint64_t rights = 0;

	if (access & SANDBOX_READ)
		rights |= RIGHT_READ_FILE | (is_dir ? RIGHT_READ_DIR : 0);
	if (access & SANDBOX_WRITE)
		rights |= RIGHT_WRITE_FILE | RIGHT_TRUNCATE |
			  (is_dir ? RIGHT_REMOVE_DIR | RIGHT_REMOVE_FILE | RIGHT_MAKE_DIR |
					    RIGHT_MAKE_REG | RIGHT_REFER :
				    0);
	if (access & SANDBOX_DEVICE)
		rights |= RIGHT_IOCTL_DEV;
	return rights;
}

static int add_place(int ruleset, uint64_t handled, const struct sandbox_place *p)
{
	auto_close int opened = p->path ? open(p->path, O_PATH | O_CLOEXEC) : -1;
	struct path_beneath rule = { .parent = p->path ? opened : p->fd };
	struct stat st;

	if (rule.parent < 0)
		return 0;
	if (fstat(rule.parent, &st) < 0)
		return -errno;
	rule.rights = rights_of(p->access, S_ISDIR(st.st_mode)) & handled;
	if (!rule.rights)
		return 0;
	return syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0) < 0 ? -errno :
											  0;
}

/* Allow the files that are read to find the address of a server, and to check its certificate. */
static int add_network_places(int ruleset, uint64_t handled)
{
	static const char *const paths[] = {
		"/etc/resolv.conf",
		"/etc/hosts",
		"/etc/nsswitch.conf",
		"/etc/gai.conf",
		"/etc/host.conf",
		"/etc/services",
		"/run/systemd/resolve",
		"/etc/ssl",
		"/usr/lib/ssl",
		"/usr/share/ca-certificates",
		"/usr/local/share/ca-certificates",
	};
	struct sandbox_place p = { .path = getenv("SSL_CERT_FILE"), .access = SANDBOX_READ };
	int r = p.path ? add_place(ruleset, handled, &p) : 0;

	for (size_t i = 0; i < ARRAY_LEN(paths) && r >= 0; i++) {
		p.path = paths[i];
		r = add_place(ruleset, handled, &p);
	}
	return r;
}

int landlock_enter(const struct sandbox_rules *rules)
{
	const struct sandbox_place everything = {
		.path = "/",
		.access = (rules->reads_everywhere ? SANDBOX_READ : 0u) |
			  (rules->writes_everywhere ? SANDBOX_WRITE : 0u),
	};
	int version = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, VERSION_ASKED), r = 0;
	auto_close int ruleset = -1;
	struct ruleset handled = { 0 };
	size_t size;

	if (version < 0)
		return -errno;
	/* The first version never allows a rename to another directory, which a commit needs. */
	if (version < 2)
		return -EOPNOTSUPP;
	if (!rules->writes_everywhere)
		handled.files = RIGHT_FIRST | RIGHT_REFER | (version >= 3 ? RIGHT_TRUNCATE : 0) |
				(version >= 5 ? RIGHT_IOCTL_DEV : 0);
	else
		/* The kernel refuses renames between directories unless a rule allows them. */
		handled.files = RIGHT_EXECUTE | RIGHT_REFER;
	handled.net = NET_BIND_TCP | (rules->uses_network ? 0u : NET_CONNECT_TCP);
	handled.scoped = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL;
	/* The size of the struct that this version knows. */
	size = version >= 6 ? 24 : version >= 4 ? 16 : 8;
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &handled, size, 0);
	if (ruleset < 0)
		return -errno;
	if (everything.access)
		r = add_place(ruleset, handled.files, &everything);
	if (r < 0)
		return r;
	if (rules->uses_network && !rules->reads_everywhere)
		r = add_network_places(ruleset, handled.files);
	for (size_t i = 0; i < rules->n_places && r >= 0; i++)
		r = add_place(ruleset, handled.files, &rules->place[i]);
	if (r < 0)
		return r;
	return syscall(SYS_landlock_restrict_self, ruleset, 0) < 0 ? -errno : version;
}
