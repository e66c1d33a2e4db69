/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_database.c - checks the databases of an item: its own, the parts of one that was never
 * merged, and those in directories below.
 */
#include "core/base/err.h"
#include "core/ocdbt/ocdbt.h"
#include "tools/verify/verify.h"

struct databases {
	struct verify *v;
	const char *path; /* below SOURCE */
	struct io_dir *dir;
};

struct finding_in {
	struct verify *v;
	const char *dir; /* of the database, relative to SOURCE */
};

static int database_found(void *arg, const struct ocdbt_finding *of)
{
	struct finding_in *in = arg;
	struct finding f = { .level = 2, .text = of->text };
	auto_free char *file = NULL;
	auto_buf text = { 0 };

	/* Unreferenced files: Orbax leaves them when it merges. */
	if (of->severity == OCDBT_INFO) {
		in->v->unused_files++;
		return 0;
	}
	f.severity = of->severity == OCDBT_ERROR ? verify_severity(in->v, of->code) :
						   SEVERITY_WARNING;
	if (!verify_place(of->where, in->dir, &f, &file)) {
		if (buf_addf(&text, "%s: %s", of->where, of->text) >= 0)
			f.text = buf_str(&text);
		file = verify_join(in->dir, "manifest.ocdbt");
		f.file = file;
	}
	verify_say(in->v, &f);
	return 0;
}

/* Check the database in a directory relative to the item ("." for its own). */
static int check_database(struct databases *d, const char *rel)
{
	auto_free char *below = verify_join(d->path, rel), *manifest = NULL;
	auto_of(io_dir) struct io_dir *dir = NULL;
	auto_of(ocdbt) struct ocdbt *db = NULL;
	struct finding_in in = { d->v, strcmp(rel, ".") ? below : d->path };
	const struct ocdbt_check_opts opts = {
		.all_versions = true, .unused_files = true, .found = database_found, .arg = &in
	};
	struct ocdbt_check_stats stats;
	int r;

	manifest = below ? verify_join(in.dir, "manifest.ocdbt") : NULL;
	if (!manifest)
		return -ENOMEM;
	r = io_dir_sub(d->dir, rel, &dir);
	if (r >= 0)
		r = ocdbt_db_open(dir, d->v->ckpt->cache, &db);
	if (r < 0)
		return verify_failed(d->v, manifest, r);
	dir = NULL;
	r = ocdbt_check(db, &opts, &stats);
	return r < 0 ? verify_failed(d->v, manifest, r) : 0;
}

/* Check the database in a directory, or the parts of one that was never merged. */
static int check_store(struct databases *d)
{
	auto_ocdbt_parts parts = { 0 };
	auto_free char *manifest = verify_join(d->path, "manifest.ocdbt");
	struct stat st;
	/* One that cannot be opened is there, too: the check says why. */
	bool has_own = io_stat(d->dir, "manifest.ocdbt", &st) != -ENOENT;
	int r;

	err_clear();
	r = has_own ? check_database(d, ".") : 0;
	if (r < 0)
		return r;
	r = ocdbt_parts_find(d->dir, &parts);
	for (size_t i = 0; i < parts.n && r >= 0; i++)
		r = check_database(d, parts.name[i]);
	if (r < 0 || has_own)
		return r;
	if (parts.n) {
		auto_buf text = { 0 };

		if (buf_add_str(&text, "its parts were never merged (") < 0 ||
		    ocdbt_parts_text(&parts, &text) < 0 ||
		    buf_add_str(&text, "): Orbax cannot read it") < 0 || !buf_str(&text))
			return -ENOMEM;
		verify_refused(d->v, manifest, buf_str(&text));
	}
	if (parts.n_bare && !parts.n)
		verify_say(d->v, &(struct finding){ SEVERITY_ERROR, 1, NULL, manifest, false, 0, 0,
						    ITEM_LOST_MANIFEST, true });
	else if (parts.n_bare)
		verify_file(d->v, 2, d->path,
			    "%zu %s no manifest: what wrote to it never committed", parts.n_bare,
			    noun(parts.n_bare, "part has", "parts have"));
	return 0;
}

static int database_check_below(void *arg, const char *dir, struct kv *kv)
{
	struct databases *around = arg;
	auto_free char *path = verify_join(around->path, dir);
	auto_of(io_dir) struct io_dir *sub = NULL;
	int r = path ? io_dir_sub(around->dir, dir, &sub) : -ENOMEM;

	return r < 0 ? r : check_store(&(struct databases){ around->v, path, sub });
}

int verify_databases(struct verify *v, struct item *item, const char *path, struct io_dir *dir)
{
	struct databases d = { v, path, dir };
	int r = check_store(&d);

	if (r < 0 || !item)
		return r;
	if (item->is_partial)
		verify_say(v, &(struct finding){ SEVERITY_UNCHECKED, 1, NULL, path, false, 0, 0,
						 "only arrays of its own database are checked: the "
						 "server cannot list what is below" });
	return item_below_each(item, database_check_below, &d);
}
