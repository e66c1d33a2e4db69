/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access.c - combine the modes of several files, and the user for whom a thread works.
 */
#include "core/step/access.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/io/io_store.h"
#include "core/step/step_name.h"

#define GROUPS_MAX 65536

/* ---- ids that this user namespace does not map ---- */

/* The ranges of a uid_map or gid_map; each line of the file is "inside outside count". */
struct id_map {
	struct {
		unsigned first, n;
	} range[340]; /* the most that the kernel accepts */
	size_t n;
	bool known;
};

static struct id_map uids, gids;

static void read_map(const char *path, struct id_map *m)
{
	FILE *f = fopen(path, "re");
	unsigned inside, outside, n;

	while (f && m->n < ARRAY_LEN(m->range) &&
	       fscanf(f, "%u %u %u", &inside, &outside, &n) == 3) {
		m->range[m->n].first = inside;
		m->range[m->n++].n = n;
	}
	m->known = m->n > 0;
	if (f)
		fclose(f);
}

static void read_maps(void)
{
	read_map("/proc/self/uid_map", &uids);
	read_map("/proc/self/gid_map", &gids);
}

static bool is_mapped(const struct id_map *m, unsigned id)
{
	for (size_t i = 0; i < m->n; i++)
		if (id - m->range[i].first < m->range[i].n)
			return true;
	return !m->known;
}

static void make_known(struct access *a)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_maps);
	/*
	 * The kernel refuses all writes to a file whose owner or group is not mapped, with EACCES.
	 */
	if (!is_mapped(&gids, a->gid)) {
		a->gid = getegid();
		a->mode = (a->mode & ~070u) | ((a->mode & 07) << 3);
	}
	if (!is_mapped(&uids, a->uid)) {
		unsigned as = a->gid == getegid() ? a->mode >> 3 & 07 : a->mode & 07;

		a->uid = geteuid();
		a->mode = (a->mode & ~0700u) | as << 6;
	}
}

/* ---- one file ---- */

int access_of(struct io_dir *dir, const char *rel, struct access *ret)
{
	unsigned group, other;
	struct stat st;
	int r = io_stat_acl(dir, rel, &st, &group, &other);

	if (r < 0)
		return r;
	*ret = (struct access){ st.st_uid, st.st_gid, (st.st_mode & 0700) | group << 3 | other };
	make_known(ret);
	return 0;
}

int access_of_dir(struct io_dir *dir, struct access *ret)
{
	return access_of(dir, ".", ret);
}

void access_readers(struct access *a, bool is_dir)
{
	mode_t may = a->mode & 0444;

	if (is_dir)
		may &= (a->mode & 0111) << 2;
	a->mode = may | may >> 2;
}

/* ---- several files ---- */

static bool is_for_all(const struct access *a)
{
	return (a->mode & 0444) == 0444;
}

void access_both(struct access *a, const struct access *b)
{
	unsigned owner = a->mode >> 6 & 7, group = a->mode >> 3 & 7, other = a->mode & 7;
	unsigned b_owner = b->mode >> 6 & 7, b_group = b->mode >> 3 & 7, b_other = b->mode & 7;

	if (is_for_all(b))
		return;
	if (is_for_all(a)) {
		*a = *b;
		return;
	}
	/*
	 * If the owners or groups differ, a user in a class of one file may be in any class of the
	 * other, so a class keeps only the bits that all these classes have.
	 */
	if (a->uid == b->uid) {
		owner &= b_owner;
	} else {
		owner &= b_group & b_other;
		group &= b_owner;
		other &= b_owner;
	}
	if (a->gid == b->gid) {
		group &= b_group;
		other &= b_other;
	} else {
		group &= b_group & b_other;
		other &= b_group & b_other;
	}
	a->mode = owner << 6 | group << 3 | other;
}

void access_own(struct access *a)
{
	const struct access own = { .uid = geteuid(), .gid = getegid(), .mode = 0500 };

	access_both(a, &own);
}

struct below {
	struct io_dir *dir;
	const char *rel;
	bool deep;
	unsigned depth;
	struct access *a;
};

static int add_one(struct io_dir *dir, const char *rel, bool is_dir, struct access *a)
{
	struct access b;
	int r = access_of(dir, rel, &b);

	if (r < 0)
		return err_except(r, -ENOENT, -ENOTDIR, -EUCLEAN);
	access_readers(&b, is_dir);
	access_both(a, &b);
	return 1;
}

/* Whether readers of a checkpoint open the file. */
static bool access_counts(const char *name)
{
	return (name[0] != '.' || name[1] == 'z') && !step_name_is_tmp(span_str(name));
}

static int look_in(struct io_dir *dir, const char *rel, bool deep, unsigned depth,
		   struct access *a);

static int access_add_entry(void *arg, const char *name, unsigned char type)
{
	struct below *b = arg;
	auto_free char *path = NULL;
	struct stat st;
	int r;

	if (!access_counts(name) || (type == DT_DIR && !b->deep))
		return 0;
	path = strcmp(b->rel, ".") ? str_fmt("%s/%s", b->rel, name) : strdup(name);
	if (!path)
		return fail(-ENOMEM, "cannot look at '%s'", name);
	/* Symbolic links count as their targets. */
	if (type != DT_DIR && type != DT_REG) {
		r = io_stat(b->dir, path, &st);
		type = r >= 0 && S_ISDIR(st.st_mode) ? DT_DIR : DT_REG;
		err_clear();
		/* A link to a blob may have been followed before the blob was closed to others. */
		if (r == -EUCLEAN && io_dir_blobs(b->dir) >= 0)
			access_own(b->a);
		if (r < 0 || (type == DT_DIR && !b->deep))
			return 0;
	}
	r = add_one(b->dir, path, type == DT_DIR, b->a);
	return r <= 0 || type != DT_DIR || b->depth == LIMIT_TREE_DEPTH ?
		       MIN(r, 0) :
		       look_in(b->dir, path, true, b->depth + 1, b->a);
}

static int look_in(struct io_dir *dir, const char *rel, bool deep, unsigned depth, struct access *a)
{
	struct below b = { dir, rel, deep, depth, a };
	/* In a store, everything in a directory has the access of the directory. */
	int r = io_dir_in_store(dir) ? 0 : io_list(dir, rel, access_add_entry, &b);

	/*
	 * The directory was removed meanwhile, or this process may not list it; then it cannot show
	 * its files to anyone.
	 */
	return err_except(MIN(r, 0), -ENOENT, -EACCES, -ENOTDIR);
}

int access_below(struct io_dir *dir, const char *rel, bool deep, struct access *a)
{
	struct stat st;
	int r = io_stat(dir, rel, &st);

	if (r >= 0)
		r = add_one(dir, rel, S_ISDIR(st.st_mode), a);
	if (r > 0 && S_ISDIR(st.st_mode))
		return look_in(dir, rel, deep, 0, a);
	return err_except(MIN(r, 0), -ENOENT);
}

int access_of_all(struct io_dir *dir, const char *rel, struct access *ret)
{
	struct access a;
	struct stat st;
	int r = io_stat(dir, rel, &st);

	if (r < 0)
		return r;
	r = access_of(dir, rel, &a);
	if (r < 0)
		return r;
	access_readers(&a, S_ISDIR(st.st_mode));
	if (S_ISDIR(st.st_mode))
		r = look_in(dir, rel, true, 0, &a);
	if (r < 0)
		return r;
	*ret = a;
	return r;
}

int access_on_the_way(struct io_dir *dir, const char *rel, struct access *a)
{
	int r = 0;

	for (const char *at = rel; (at = strchr(at, '/')) && r >= 0; at++) {
		auto_free char *parent = span_dup_str(span_of(rel, (size_t)(at - rel)));

		r = parent ? add_one(dir, parent, true, a) :
			     fail(-ENOMEM, "cannot look at '%s'", rel);
	}
	return MIN(r, 0);
}

/* ---- the user ---- */

static _Thread_local const struct user *now;

void user_set(const struct user *u)
{
	now = u;
}

const struct user *user_now(void)
{
	return now;
}

bool user_is_other(void)
{
	return now && now->uid != 0 && now->uid != geteuid();
}

static bool is_in_group(const struct user *u, gid_t gid)
{
	auto_free gid_t *list = NULL;
	int n;

	if (u->gid == gid)
		return true;
	n = u->groups ? u->groups(u->arg, 0, NULL) : 0;
	if (n <= 0 || n > GROUPS_MAX || !(list = calloc((size_t)n, sizeof(*list))))
		return false;
	n = MIN(n, u->groups(u->arg, n, list));
	for (int i = 0; i < n; i++)
		if (list[i] == gid)
			return true;
	return false;
}

bool user_may(const struct access *a, unsigned want)
{
	unsigned has;

	if (!user_is_other())
		return true;
	has = a->uid == now->uid ? a->mode >> 6 : is_in_group(now, a->gid) ? a->mode >> 3 : a->mode;
	return (has & want) == want;
}

int user_check(struct io_dir *dir, const char *rel, unsigned want, const char *what)
{
	struct access a;
	int r = access_of(dir, rel, &a);

	return r < 0 || user_may(&a, want) ? r :
					     fail(-EACCES, "'%s' is not yours to %s", rel, what);
}
