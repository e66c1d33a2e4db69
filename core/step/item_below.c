/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_below.c - databases in directories below an item's own.
 *
 * The array serialization of JAX, and Orbax 0.3.5 to 0.4.1 for names with slashes, put an array
 * "a/b/w" as "w" into a database in the directory "a/b". The tree of such an Orbax item says which
 * directories to look at, and each is looked at when a leaf needs it; those of JAX are found by
 * listing the item (item_tree.c).
 */
#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/meter.h"
#include "core/base/path.h"
#include "core/ocdbt/ocdbt.h"
#include "core/step/item_impl.h"

/* Charged for each database: its records, the files that it keeps, its directories. */
#define DATABASE_BYTES (4 * KiB)

/* The index of a directory, or where it belongs. */
static size_t item_below_place_of(const struct item *item, const char *dir)
{
	size_t lo = 0, hi = item->n_below;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (strcmp(item->below[mid].dir, dir) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static struct item_database *find_item_below(struct item *item, const char *dir)
{
	size_t at = item_below_place_of(item, dir);

	return at < item->n_below && !strcmp(item->below[at].dir, dir) ? &item->below[at] : NULL;
}

/* The databases that make up the one in dir: itself, or its parts if it was never merged. */
static int find_parts(struct item *item, const char *dir, struct ocdbt_parts *ret)
{
	auto_free char *manifest = str_fmt("%s/manifest.ocdbt", dir);
	auto_of(io_dir) struct io_dir *sub = NULL;
	struct stat st;
	int r = manifest ? io_stat(item->dir, manifest, &st) :
			   fail(-ENOMEM, "cannot look for '%s'", dir);

	if (r >= 0) {
		ret->name = calloc(1, sizeof(*ret->name));
		ret->n = ret->cap = ret->name != NULL;
		if (ret->n)
			ret->name[0] = strdup(dir);
		return ret->n && ret->name[0] ? 0 : fail(-ENOMEM, "cannot open '%s'", dir);
	}
	if (r != -ENOENT && r != -ENOTDIR)
		return r;
	err_clear();
	r = io_dir_sub(item->dir, dir, &sub);
	if (r < 0)
		return r;
	r = ocdbt_parts_find(sub, ret);
	for (size_t i = 0; i < ret->n && r >= 0; i++) {
		char *name = str_fmt("%s/%s", dir, ret->name[i]);

		if (!name)
			return fail(-ENOMEM, "cannot open '%s'", dir);
		free(ret->name[i]);
		ret->name[i] = name;
	}
	return r;
}

/* Open the database in dir. ret stays NULL if there is none. */
static int item_below_open_database(struct item *item, const char *dir, struct kv **ret)
{
	struct ocdbt_open_opts opts = { .name = item->path };
	auto_ocdbt_parts parts = { 0 };
	auto_of(io_dir) struct io_dir *top = NULL;
	int r = find_parts(item, dir, &parts);

	if (r < 0 || !parts.n)
		return err_except(r, -ENOENT, -ENOTDIR, -ENAMETOOLONG);
	r = io_dir_sub(item->dir, ".", &top);
	if (r < 0)
		return r;
	r = ocdbt_open_union(top, &parts, item->ckpt->cache, &opts, ret);
	if (r < 0)
		return r;
	top = NULL; /* taken */
	return 0;
}

/* Get what is known of a directory, and look at it first if nothing is. Called with below_lock. */
static int item_below_look_at(struct item *item, const char *dir, struct item_database **ret)
{
	struct item_database new = { 0 };
	size_t at = item_below_place_of(item, dir);
	int r;

	*ret = find_item_below(item, dir);
	if (*ret)
		return 0;
	if (item->n_below == LIMIT_ITEM_DATABASES)
		return fail(-EFBIG, "more than %d directories below item '%s' may be databases",
			    LIMIT_ITEM_DATABASES, item->path);
	r = meter_charge(DATABASE_BYTES);
	if (r < 0)
		return r;
	new.dir = strdup(dir);
	r = new.dir &&array_reserve(item->below, item->cap_below, item->n_below + 1) ?
		    item_below_open_database(item, dir, &new.kv) :
		    fail(-ENOMEM, "cannot open the databases below item '%s'", item->path);
	if (r < 0) {
		free(new.dir);
		meter_release(DATABASE_BYTES);
		return err_at(r, "'%s'", dir);
	}
	*ret = &item->below[at];
	memmove(*ret + 1, *ret, (item->n_below++ - at) * sizeof(new));
	**ret = new;
	return 0;
}

int item_below_add(struct item *item, const char *dir, struct kv **ret)
{
	struct item_database *d;
	int r;

	pthread_mutex_lock(&item->below_lock);
	r = item_below_look_at(item, dir, &d);
	if (r >= 0)
		*ret = d->kv;
	pthread_mutex_unlock(&item->below_lock);
	return r;
}

bool item_has_database(struct item *item, const char *dir)
{
	const struct item_database *d;
	bool has;

	pthread_mutex_lock(&item->below_lock);
	d = find_item_below(item, dir);
	has = d && d->kv;
	pthread_mutex_unlock(&item->below_lock);
	return has;
}

int item_below_find(struct item *item, struct span param, size_t *len, struct kv **ret)
{
	const uint8_t *slash = *len ? memrchr(param.p, '/', *len) : NULL;
	bool is_parent = *len == param.n;
	int r = 0;

	*ret = NULL;
	/* A name that is not a path has no directory. */
	if (!slash || item->is_file || io_path_check(param, "leaf") < 0) {
		err_clear();
		return 0;
	}
	pthread_mutex_lock(&item->below_lock);
	for (; slash && r >= 0 && !*ret; is_parent = false) {
		auto_free char *dir = NULL;
		struct item_database *d = NULL;

		*len = (size_t)(slash - param.p);
		dir = span_dup_str(span_of(param.p, *len));
		if (!dir)
			r = fail(-ENOMEM, "cannot look at leaf '%.*s'", SPAN_ARG(param));
		else if (is_parent && !item->below_listed)
			r = item_below_look_at(item, dir, &d);
		else
			d = find_item_below(item, dir);
		*ret = d ? d->kv : NULL;
		slash = memrchr(param.p, '/', *len);
	}
	pthread_mutex_unlock(&item->below_lock);
	return r < 0 ? r : *ret != NULL;
}

/* Look at the directories of all leaves. */
static int look_at_all(struct item *item)
{
	const struct tree *t = item->tree;

	for (uint32_t i = 0; i < t->n_nodes && !item->below_listed; i++) {
		struct span param = t->nodes[i]->param;
		struct kv *kv;
		int r = 0;

		if (t->nodes[i]->kind == TREE_LEAF && t->nodes[i]->value == TREE_VALUE_STORED)
			r = item_below_find(item, param, &(size_t){ param.n }, &kv);
		if (err_is_transient(r))
			return r;
		/* The leaf has any other error as well, whoever opens it. */
		err_clear();
	}
	return 0;
}

int item_below_each(struct item *item, item_below_fn *each, void *arg)
{
	int r = look_at_all(item);

	for (size_t i = 0; r == 0; i++) {
		struct item_database d = { 0 };
		bool more;

		/* Their names and stores remain where they are. */
		pthread_mutex_lock(&item->below_lock);
		more = i < item->n_below;
		if (more)
			d = item->below[i];
		pthread_mutex_unlock(&item->below_lock);
		if (!more)
			break;
		r = d.kv ? each(arg, d.dir, d.kv) : 0;
	}
	return r;
}

size_t item_process_database(const char *dir)
{
	const char *slash = strrchr(dir, '/'), *last = slash ? slash + 1 : dir;
	size_t digits = strncmp(last, "process_", 8) ? 0 : strspn(last + 8, "0123456789");

	return digits && !last[8 + digits] ? (size_t)(last - dir) : SIZE_MAX;
}

bool item_has_nodes(struct item *item, const struct kv *kv)
{
	return item->is_ocdbt && kv == item->kv ? true : item_database_dir(item, kv) != NULL;
}

const char *item_database_dir(struct item *item, const struct kv *kv)
{
	const char *dir = NULL;

	pthread_mutex_lock(&item->below_lock);
	for (size_t i = 0; i < item->n_below && !dir; i++)
		if (item->below[i].kv == kv)
			dir = item->below[i].dir;
	pthread_mutex_unlock(&item->below_lock);
	return dir;
}

const char *item_database_of(struct item *item, struct span param)
{
	struct kv *kv;
	int r = item_below_find(item, param, &(size_t){ param.n }, &kv);

	err_clear();
	return r > 0 ? item_database_dir(item, kv) : NULL;
}

void item_below_close_files(struct item *item)
{
	pthread_mutex_lock(&item->below_lock);
	for (size_t i = 0; i < item->n_below; i++)
		if (item->below[i].kv)
			kv_close_files(item->below[i].kv);
	pthread_mutex_unlock(&item->below_lock);
}

void item_below_release(struct item *item)
{
	for (size_t i = 0; i < item->n_below; i++) {
		kv_free(item->below[i].kv);
		free(item->below[i].dir);
	}
	meter_release(item->n_below * DATABASE_BYTES);
	free(item->below);
	pthread_mutex_destroy(&item->below_lock);
}
