/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign_file.c - files of arrays that are not part of a checkpoint.
 */
#include "tools/cli/foreign_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/lfs.h"
#include "core/base/limits.h"
#include "core/base/path.h"
#include "core/step/children.h"
#include "core/step/item_safetensors.h"

#define DIRECTORIES_MAX 1000 /* looked into in search of files of arrays */

/* Whether a file has a name that PyTorch's users give to what torch.save() writes. */
static bool is_pickle(const char *path)
{
	static const char *const ends[] = { ".pt", ".pth", ".bin", ".ckpt", ".pkl" };

	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		if (span_ends(span_str(path), span_str(ends[i])))
			return true;
	return false;
}

/* Whether a file holds arrays that only `convert` and `save` read. */
static bool is_numpy(const char *path)
{
	return span_ends(span_str(path), span_str(".npz")) ||
	       span_ends(span_str(path), span_str(".npy"));
}

/* Read the first n bytes of a file. Returns the number that there are; negative: an error. */
static ssize_t read_start(const char *path, void *ret, size_t n)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	return fd < 0 ? -1 : pread(fd, ret, n, 0);
}

/*
 * The error for a file with a name as PyTorch's users give, which its first bytes may contradict.
 */
static int fail_pickle(const char *path)
{
	uint8_t b[9] = { 0 };
	ssize_t n = read_start(path, b, sizeof(b));
	bool is_pickle = n >= 2 &&
			 ((b[0] == 'P' && b[1] == 'K') || (b[0] == 0x80 && b[1] >= 2 && b[1] <= 5));
	/* The length of a header, which is an object. */
	bool is_safetensors = n == sizeof(b) && b[8] == '{' && !b[4] && !b[5] && !b[6] && !b[7];
	/* A map of msgpack: with up to 15 members, or with a count of 16 or 32 bits. */
	bool is_flax = n >= 2 && ((b[0] > 0x80 && b[0] <= 0x8f) || b[0] == 0xde || b[0] == 0xdf);

	if (is_pickle)
		return fail(-EINVAL,
			    "'%s' is not read: files of PyTorch are programs (pickle); save its "
			    "tensors with safetensors.torch.save_file()",
			    path);
	if (is_safetensors || is_flax)
		return fail(-EINVAL,
			    "'%s' begins as a file of %s does, which is read if its name ends in "
			    "%s: a link will do (ln -s)",
			    path, is_safetensors ? "safetensors" : "flax",
			    is_safetensors ? ".safetensors" : ".msgpack");
	return fail(-EINVAL,
		    "'%s' is not read: it has the name of a file of PyTorch (pickle), and does not "
		    "begin as such",
		    path);
}

bool foreign_is_of_arrays(const char *path)
{
	return is_numpy(path) || is_pickle(path) ||
	       span_ends(span_str(path), span_str(".safetensors")) ||
	       span_ends(span_str(path), span_str(".msgpack"));
}

int foreign_fail(const char *path, const struct err_note *why)
{
	uint8_t start[LFS_START_BYTES];
	struct stat st;
	int r;

	if (read_start(path, start, sizeof(start)) == (ssize_t)sizeof(start)) {
		r = lfs_check(path, span_of(start, sizeof(start)));
		if (r < 0)
			return r;
	}
	if (span_ends(span_str(path), span_str(".safetensors.index.json")))
		return fail(-EINVAL,
			    "'%s' is the index of a model: name the directory that it is in", path);
	if (path_is_url(path) && foreign_is_of_arrays(path))
		return fail(-EINVAL, "'%s' is not part of a checkpoint", path);
	if (stat(path, &st) == 0 && is_numpy(path))
		return fail(-EINVAL,
			    "'%s' is not a checkpoint: make one of it first (convert '%s' "
			    "SOME/DIRECTORY)",
			    path, path);
	if (stat(path, &st) == 0 && is_pickle(path))
		return fail_pickle(path);
	if (stat(path, &st) < 0)
		return fail(-ENOENT, "'%s' does not exist", path);
	return fail(
		-EINVAL,
		"'%s' exists, but is not part of a checkpoint, nor named as a file of arrays is "
		"(.safetensors, .msgpack)%s%s",
		path, why && why->code ? "; " : "", why && why->code ? why->text : "");
}

struct search {
	struct io_dir *dir;
	struct buf shards; /* names of the model's files, one after another; read when they count */
	bool has_shards;
};

/* Whether a file is meant; path: "./" and where it is below the directory. */
typedef bool is_meant_fn(const char *path, struct search *s);

/* Get the path of the first such file, allocated: 1; 0: none; -EFBIG: too many directories. */
static int foreign_file_find_file(struct search *s, const char *rel, is_meant_fn *is_meant,
				  unsigned depth, unsigned *n_left, char **ret)
{
	struct children c;
	int r = 0;

	if (depth == LIMIT_TREE_DEPTH || !*n_left)
		return -EFBIG;
	--*n_left;
	if (children_list(s->dir, rel, false, &c) >= 0)
		for (size_t i = 0; i < c.n && r == 0; i++) {
			auto_free char *path = str_fmt("%s/%s", rel, c.child[i].name);

			if (!path)
				r = -ENOMEM;
			else if (c.child[i].is_dir)
				r = foreign_file_find_file(s, path, is_meant, depth + 1, n_left,
							   ret);
			else if (is_meant(path, s))
				r = 1;
			if (r == 1 && !*ret)
				*ret = take(path);
		}
	children_release(&c);
	err_clear();
	return r;
}

static bool is_of_arrays(const char *path, struct search *s)
{
	(void)s;
	return foreign_is_of_arrays(path);
}

bool foreign_in_directory(struct io_dir *dir, const char *rel)
{
	struct search s = { .dir = dir };
	auto_free char *path = NULL;
	unsigned n_left = DIRECTORIES_MAX;

	return foreign_file_find_file(&s, rel, is_of_arrays, 0, &n_left, &path) != 0;
}

static bool is_shard(struct search *s, const char *rel)
{
	if (!s->has_shards && safetensors_files(s->dir, &s->shards) < 0)
		err_clear();
	s->has_shards = true;
	for (const char *at = NULL; (at = buf_next_text(&s->shards, at));)
		if (!strcmp(at, rel))
			return true;
	return false;
}

/* Whether a file holds arrays that are read if they are named, but not with the model's shards. */
static bool is_apart(const char *path, struct search *s)
{
	const char *rel = path + strlen("./"), *name = strrchr(path, '/') + 1;

	if (is_numpy(name) || !strcmp(name, ".zarray") || !strcmp(name, "zarr.json"))
		return true;
	return name != rel && span_ends(span_str(name), span_str(".safetensors")) &&
	       !is_shard(s, rel);
}

char *foreign_beside_shards(struct io_dir *dir)
{
	struct search s = { .dir = dir };
	char *path = NULL;
	unsigned n_left = DIRECTORIES_MAX;

	foreign_file_find_file(&s, ".", is_apart, 0, &n_left, &path);
	buf_release(&s.shards);
	return path;
}
