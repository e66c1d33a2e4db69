/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npz.c - the custom leaf of Orbax's guide as a plugin: a MyState is one .npz file in a directory.
 *
 * The file in the mount is the stored file, so decode() and encode() pass it on unchanged. They
 * only check that it is a zip archive, with a directory at its end, whose members are .npy files.
 */
#include <stdio.h>
#include <string.h>

#include "handlers/plugin/leaf_plugin.h"

#define STORED "my_state.npz"
#define END_SIZE 22   /* bytes of the record at the end, without a comment */
#define ENTRY_SIZE 46 /* bytes of a directory entry, without its name */

static uint32_t le(const uint8_t *p, int n)
{
	uint32_t v = 0;

	while (n-- > 0)
		v = v << 8 | p[n];
	return v;
}

static int bad(const struct pytreefs_host *host, const char *why)
{
	host->message(host, why);
	return -1;
}

struct text {
	char p[4096];
	size_t n;
};

static int npz_add_name(struct text *t, const uint8_t *name, uint32_t len)
{
	if (len + 8 > sizeof(t->p) - t->n)
		return -1;
	/* Refuse names that JSON would have to escape; numpy makes none. */
	for (uint32_t i = 0; i < len; i++)
		if (name[i] < ' ' || name[i] == '"' || name[i] == '\\' || name[i] > '~')
			return -1;
	t->n += (size_t)snprintf(t->p + t->n, sizeof(t->p) - t->n, "%s\"%.*s\"",
				 t->n > 1 ? ", " : "", (int)len, name);
	return 0;
}

/* Returns -1 when it is not an archive of .npy files. ret gets the names of these, unless NULL. */
static int members(const struct pytreefs_host *host, const void *bytes, uint64_t n,
		   struct text *ret)
{
	const uint8_t *p = bytes, *end;
	uint64_t at;
	uint32_t left;

	if (n < END_SIZE || n > UINT32_MAX)
		return bad(host, "it is too short for a zip archive");
	for (end = p + n - END_SIZE; memcmp(end, "PK\5\6", 4); end--)
		if (end == p)
			return bad(host, "it is not a zip archive: it has no record at its end");
	at = le(end + 16, 4);
	for (left = le(end + 10, 2); left > 0; left--) {
		uint32_t name;

		if (at > n || n - at < ENTRY_SIZE || memcmp(p + at, "PK\1\2", 4) ||
		    n - at - ENTRY_SIZE < le(p + at + 28, 2))
			return bad(host, "the archive's directory is damaged");
		name = le(p + at + 28, 2);
		if (name < 5 || memcmp(p + at + ENTRY_SIZE + name - 4, ".npy", 4))
			return bad(host, "a member of the archive is not an .npy file");
		if (ret && npz_add_name(ret, p + at + ENTRY_SIZE, name - 4) < 0)
			return bad(host, "too many members");
		at += ENTRY_SIZE + name + le(p + at + 30, 2) + le(p + at + 32, 2);
	}
	return 0;
}

static const struct pytreefs_plugin_file *
stored_file(const struct pytreefs_host *host, const struct pytreefs_plugin_file *stored, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (!strcmp(stored[i].name, STORED))
			return &stored[i];
	bad(host, "its directory has no " STORED);
	return NULL;
}

static int npz_memory_size(const struct pytreefs_host *host,
			   const struct pytreefs_plugin_file *stored, uint32_t n, uint64_t *ret)
{
	const struct pytreefs_plugin_file *f = stored_file(host, stored, n);

	if (!f)
		return -1;
	*ret = f->n;
	return 0;
}

static int npz_decode(const struct pytreefs_host *host, const struct pytreefs_plugin_file *stored,
		      uint32_t n)
{
	const struct pytreefs_plugin_file *f = stored_file(host, stored, n);

	if (!f || members(host, f->p, f->n, NULL) < 0)
		return -1;
	return host->add(host, "", f->p, f->n);
}

static int npz_encode(const struct pytreefs_host *host, const void *p, uint64_t n)
{
	return members(host, p, n, NULL) < 0 ? -1 : host->add(host, STORED, p, n);
}

static int npz_metadata(const struct pytreefs_host *host, const struct pytreefs_plugin_file *stored,
			uint32_t n)
{
	const struct pytreefs_plugin_file *f = stored_file(host, stored, n);
	struct text t = { "[", 1 };

	if (!f || members(host, f->p, f->n, &t) < 0)
		return -1;
	t.p[t.n++] = ']';
	return host->add(host, "", t.p, t.n);
}

static const struct pytreefs_leaf npz = {
	.size = sizeof(npz),
	.name = "npz",
	.typestr = "MyState",
	.extension = ".npz",
	.summary = "MyState of Orbax's guide, one archive in a directory: .npz",
	.memory_size = npz_memory_size,
	.decode = npz_decode,
	.encode = npz_encode,
	.metadata = npz_metadata,
};

const struct pytreefs_plugin *pytreefs_plugin(void)
{
	static const struct pytreefs_plugin plugin = {
		.abi = PYTREEFS_ABI,
		.size = sizeof(plugin),
		.name = "npz",
		.leaf = &npz,
	};

	return &plugin;
}
