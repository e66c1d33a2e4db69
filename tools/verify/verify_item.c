/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_item.c - checks one PyTree item: its small files, and that they describe one tree.
 *
 * verify_database.c checks its databases, verify_leaf.c arrays and their chunks.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/path.h"
#include "core/kv/kv_table.h"
#include "core/step/item_others.h"
#include "core/step/step_name.h"
#include "core/tree/array_metadata.h"
#include "core/tree/sharding.h"
#include "core/tree/strings.h"
#include "tools/verify/verify.h"

/* The state of the checks of an item. */
struct checking {
	struct verify *v;
	const char *path;   /* below SOURCE */
	struct io_dir *dir; /* NULL for an item that is one file */
	struct verify_tree t;
};

static void checking_release(struct checking *c)
{
	for (size_t i = 0; i < c->t.n_arrays; i++)
		array_metadatas_free(c->t.arrays[i]);
	free(c->t.arrays);
	free(c->t.param);
	item_unref(c->t.item);
	io_dir_close(c->dir);
}

/* Report a finding about a file of the item, from the note of r. */
static int failed_file(struct checking *c, const char *name, int r)
{
	auto_free char *file = verify_join(c->path, name);

	return verify_failed(c->v, file, r);
}

#define say_file(c, level, name, ...)                                   \
	do {                                                            \
		auto_free char *file_ = verify_join((c)->path, (name)); \
		verify_file((c)->v, (level), file_, __VA_ARGS__);       \
	} while (0)

/* ---- small files ---- */

/*
 * Report the result of a read: 1 on success; 0: the file does not exist, or the error is reported.
 */
static int was_read(struct checking *c, const char *name, int r)
{
	if (r == -ENOENT || r == -ENOTDIR) {
		err_clear();
		return 0;
	}
	return r < 0 ? failed_file(c, name, r) : 1;
}

static int params_by_span(const void *a, const void *b)
{
	return span_cmp(*(const struct span *)a, *(const struct span *)b);
}

bool verify_is_param(const struct verify_tree *t, struct span name)
{
	return t->n_params && bsearch(&name, t->param, t->n_params, sizeof(name), params_by_span);
}

/*
 * Report that the shardings cannot be read. No value depends on them, but Orbax needs them for
 * arrays of JAX without a target.
 */
static void failed_sharding(struct checking *c, const char *name, int r)
{
	auto_free char *file = verify_join(c->path, name);
	enum severity severity = verify_severity(c->v, r);
	struct err_note note;

	err_save(r, &note);
	verify_say(c->v,
		   &(struct finding){ severity == SEVERITY_ERROR ? SEVERITY_WARNING : severity, 1,
				      NULL, file, false, 0, 0, note.text });
}

/* Level 2: check that a file of the item speaks of a leaf. */
static void check_param(struct checking *c, const char *file, struct span param)
{
	if (c->v->level >= 2 && c->t.item && !verify_is_param(&c->t, param))
		say_file(c, 2, file, "'%.*s' is not a leaf of the tree", SPAN_ARG(param));
}

static int check_sharding_file(struct checking *c, const char *name)
{
	auto_of(shardings) struct shardings *s = NULL;
	auto_buf text = { 0 };
	int r = was_read(c, name, io_read_file(c->dir, name, LIMIT_SMALL_FILE, &text));

	if (r <= 0)
		return r;
	r = shardings_parse(buf_span(&text), "'_sharding'", &s);
	if (r < 0 && r != -ENOMEM)
		failed_sharding(c, name, r);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	for (size_t i = 0; i < s->n; i++) {
		auto_of(sharding) struct sharding *one = NULL;

		r = sharding_parse(s->entries[i].text, "'_sharding'", &one);
		/* Shardings of kinds that JAX has removed are not damage. */
		if (r < 0 && r != -EOPNOTSUPP && r != -ENOMEM)
			failed_sharding(c, name, r);
		err_clear();
		check_param(c, name, s->entries[i].param);
	}
	return 0;
}

static int check_sharding_below(void *arg, const char *dir, struct kv *kv)
{
	auto_free char *name = verify_join(dir, "_sharding");

	return name ? check_sharding_file(arg, name) : -ENOMEM;
}

static int check_strings(struct checking *c)
{
	auto_of(strings) struct strings *s = NULL;
	auto_document text = { 0 };
	int r = document_read(c->v->ckpt, c->dir, "_strings.json", LIMIT_STRINGS_BYTES, &text);

	r = was_read(c, "_strings.json", r);
	if (r <= 0)
		return r;
	r = strings_parse(text.text, "'_strings.json'", &s);
	if (r < 0)
		return failed_file(c, "_strings.json", r);
	for (size_t i = 0; i < s->n; i++)
		check_param(c, "_strings.json", s->entries[i].name);
	return 0;
}

static int check_arrays_file(void *arg, const char *name, unsigned char type)
{
	auto_of(array_metadatas) struct array_metadatas *a = NULL;
	struct array_metadatas **more;
	struct checking *c = arg;
	auto_free char *file = verify_join("array_metadatas", name);
	auto_buf text = { 0 };
	int r;

	if (!file)
		return -ENOMEM;
	r = was_read(c, file, io_read_file(c->dir, file, LIMIT_SMALL_FILE, &text));
	if (r <= 0)
		return r;
	r = array_metadatas_parse(buf_span(&text), name, &a);
	if (r < 0)
		return failed_file(c, file, r);
	more = reallocarray(c->t.arrays, c->t.n_arrays + 1, sizeof(*more));
	if (!more)
		return -ENOMEM;
	for (size_t i = 0; i < a->n; i++)
		check_param(c, file, a->entries[i].param);
	c->t.arrays = more;
	c->t.arrays[c->t.n_arrays++] = take(a);
	return 0;
}

/* ---- keys of no leaf ---- */

struct orphans {
	struct checking *c;
	const char *dir; /* of the database below the item, or NULL */
	struct buf last; /* the last array that was reported */
	uint64_t said;
};

bool verify_has_owner(const struct verify_tree *t, struct span key, size_t longer_than)
{
	for (size_t n = key.n; n > longer_than; n--) {
		/* A name that ends in a slash is not followed by another one. */
		if (key.p[n - 1] == '/' &&
		    ((n - 1 > longer_than && verify_is_param(t, span_of(key.p, n - 1))) ||
		     verify_is_param(t, span_of(key.p, n))))
			return true;
	}
	return false;
}

static int item_check_key(void *arg, struct span key, uint64_t len)
{
	struct orphans *o = arg;
	struct span array = path_first(key);

	/* The array of a bare leaf has no prefix, and a slash alone is not a name. */
	if (verify_is_param(&o->c->t, span_of(key.p, 0)) ||
	    verify_is_param(&o->c->t, span_str("/")) || verify_has_owner(&o->c->t, key, 0))
		return 0;
	/* Report an array once; its keys are adjacent. */
	if (o->said && span_eq(array, buf_span(&o->last)))
		return 0;
	buf_clear(&o->last);
	if (buf_add_span(&o->last, array) < 0)
		return -ENOMEM;
	if (o->said++ < 100)
		say_file(o->c, 2, "manifest.ocdbt",
			 "key '%.*s' is stored, and is of no leaf of the tree", SPAN_ARG(key));
	return 0;
}

static int check_key_below(void *arg, struct span key, uint64_t len)
{
	struct orphans *o = arg;
	auto_buf whole = { 0 };
	int r = buf_addf(&whole, "%s/%.*s", o->dir, SPAN_ARG(key));

	return r < 0 ? r : item_check_key(arg, buf_span(&whole), len);
}

static int check_keys_below(void *arg, const char *dir, struct kv *kv)
{
	struct orphans *o = arg;

	/* Its arrays may be leaves as those of the database into which it was merged. */
	if (item_process_database(dir) != SIZE_MAX)
		return 0;
	o->dir = dir;
	return kv_list(kv, span_of(NULL, 0), check_key_below, o);
}

/* Whether the directory of that name contains files of a leaf. */
static bool is_of_leaf(const struct checking *c, struct span name)
{
	for (size_t i = 0; i < c->t.n_params; i++)
		if (span_starts(c->t.param[i], name) &&
		    (c->t.param[i].n == name.n || c->t.param[i].p[name.n] == '/'))
			return true;
	return false;
}

static int item_check_entry(void *arg, const char *name, unsigned char type)
{
	struct checking *c = arg;
	struct span s = span_str(name);
	struct stat st;
	int r;

	/* JAX leaves the databases of its processes beside the one into which it merges them. */
	if (type != DT_DIR || item_is_own_name(s) || is_of_leaf(c, s) ||
	    item_has_database(c->t.item, name))
		return 0;
	/* The chunks of a bare leaf are in the item itself. */
	if (verify_is_param(&c->t, span_str("")))
		return 0;
	/* Other directories than those of arrays are a program's own. */
	r = item_other(c->t.item, s, &st);
	if (r != 0)
		return MIN(r, 0);
	say_file(c, 2, name, "a directory of no leaf of the tree");
	return 0;
}

static int count_other(void *arg, const char *name, unsigned char type)
{
	((struct verify *)arg)->other_files++;
	return 0;
}

static int check_orphans(struct checking *c)
{
	struct orphans o = { .c = c };
	int r = 0;

	if (c->t.item->is_ocdbt)
		r = kv_list(c->t.item->kv, span_of(NULL, 0), item_check_key, &o);
	r = r < 0 ? r : item_below_each(c->t.item, check_keys_below, &o);
	buf_release(&o.last);
	if (r < 0 && r != -ENOMEM) {
		/* The database was checked before, and its errors were reported. */
		err_clear();
		r = 0;
	}
	if (r < 0)
		return r;
	r = io_list(c->dir, ".", item_check_entry, c);
	return r < 0 ? r : item_each_other(c->t.item, count_other, c->v);
}

/* ---- the item ---- */

static int list_params(struct checking *c)
{
	const struct tree *t = c->t.item->tree;

	c->t.param = calloc(t->n_nodes + 1, sizeof(*c->t.param));
	if (!c->t.param)
		return fail(-ENOMEM, "cannot list %u nodes", t->n_nodes);
	for (uint32_t i = 0; i < t->n_nodes; i++)
		if (t->nodes[i]->kind == TREE_LEAF)
			c->t.param[c->t.n_params++] = t->nodes[i]->param;
	qsort(c->t.param, c->t.n_params, sizeof(*c->t.param), params_by_span);
	return 0;
}

/* Find the file to report for an item that cannot be opened. */
static int blame(struct checking *c, int r)
{
	auto_of(tree) struct tree *t = NULL;
	auto_document text = { 0 };
	struct err_note note;

	err_save(r, &note);
	r = c->dir ? document_read(c->v->ckpt, c->dir, "_METADATA", LIMIT_JSON_BYTES, &text) :
		     -ENOENT;
	if (r != -ENOENT) {
		r = r < 0 ? r : tree_parse_metadata(text.text, "'_METADATA'", &t);
		if (r < 0)
			return failed_file(c, "_METADATA", r);
	}
	err_clear();
	return verify_failed(c->v, c->path, err_restore(&note));
}

static int note_tmp(void *arg, const char *name, unsigned char type)
{
	struct checking *c = arg;

	/* A leaf may have such a name. */
	if (!step_name_is_tmp(span_str(name)) || is_of_leaf(c, span_str(name)))
		return 0;
	return verify_draft(c->v, c->path, name);
}

static int item_check_files(struct checking *c)
{
	auto_kv_table table = { 0 };
	int r = verify_databases(c->v, c->t.item, c->path, c->dir);

	if (r < 0)
		return r;
	r = check_sharding_file(c, "_sharding");
	if (r < 0)
		return r;
	if (c->t.item)
		r = item_below_each(c->t.item, check_sharding_below, c);
	if (r < 0)
		return r;
	r = check_strings(c);
	if (r < 0)
		return r;
	r = io_list(c->dir, "array_metadatas", check_arrays_file, c);
	r = err_except(r, -ENOENT, -ENOTDIR);
	if (r < 0)
		return r;
	/* If the table is damaged, each value is an error, so it is reported as well. */
	r = kv_table_load(c->dir, &table);
	if (r < 0)
		r = failed_file(c, KV_TABLE_DIR, r);
	if (r < 0)
		return r;
	r = verify_own_metadata(c->v, c->path);
	if (r < 0)
		return r;
	r = io_list(c->dir, ".", note_tmp, c);
	if (r < 0 || !c->t.item)
		return r;
	if (c->t.item->is_hierarchy)
		return verify_groups(c->v, c->path, &c->t);
	return c->v->level >= 2 ? check_orphans(c) : 0;
}

int verify_walk(struct verify *v, const struct verify_tree *t, const struct walk_ops *ops,
		void *arg)
{
	const char *path = strcmp(t->item->path, ".") ? t->item->path : "";
	size_t n = v->ckpt->shape == SHAPE_ROOT ? strcspn(path, "/") : 0;
	auto_free char *prefix = NULL;
	auto_subtree st = { 0 };
	int r;

	/* For a root, paths begin with the step, as in other commands. */
	prefix = str_fmt("%.*s%s", (int)n, path, n ? "/" : "");
	r = prefix ? subtree_of_item(t->item, path + n + (path[n] == '/'), &st) : -ENOMEM;
	return r < 0 ? r : selection_walk(&v->t, &st, prefix, ops, arg);
}

static int item_check(struct verify *v, const char *path, bool named)
{
	__attribute__((cleanup(checking_release))) struct checking c = { .v = v, .path = path };
	struct stat st;
	int r = io_stat(v->ckpt->source, path, &st);

	if (cmd_flag(v->t.a, "verbose")) {
		progress_clear(&v->t.progress);
		print_name(stderr, path);
		fputc('\n', stderr);
	}
	v->items++;
	if (r < 0)
		return r;
	if (S_ISDIR(st.st_mode))
		r = io_dir_sub(v->ckpt->source, path, &c.dir);
	if (r < 0)
		return r;
	r = item_open(v->ckpt, path, &c.t.item);
	if (r == -ENOMEM)
		return r;
	r = r < 0 ? blame(&c, r) : list_params(&c);
	if (r < 0)
		return r;
	if (c.dir)
		r = item_check_files(&c);
	if (r < 0 || !c.t.item)
		return r;
	if (c.dir)
		r = verify_orbax(v, path, c.t.item, named);
	if (r < 0)
		return r;
	r = verify_leaves(v, &c.t);
	return r < 0 || !c.dir ? r : verify_digests(v, &c.t);
}

int verify_item(struct verify *v, const char *path, bool named)
{
	int r = item_check(v, path, named);

	/* Report any other failure as damage, and continue with the next item. */
	return r < 0 ? verify_failed(v, path, r) : r;
}

char *verify_array_file(const struct item *item, const char *name)
{
	auto_free char *dir = str_fmt("%s%s", item->path, item->gda ? STEP_NAME_GDA : "");

	return dir ? verify_join(dir, name) : NULL;
}

char *verify_leaf_file(const struct verify_tree *t, const struct tree_node *leaf,
		       const struct zarr *z)
{
	struct item *item = t->item;
	const char *dir = z ? item_database_dir(item, z->kv) : item_database_of(item, leaf->param);
	bool zarr3 = z ? z->meta.format == 3 : item->tree->use_zarr3;
	auto_buf name = { 0 };

	if (span_eq(leaf->value_type, span_str("string")))
		return verify_join(item->path, "_strings.json");
	if (dir && buf_addf(&name, "%s/manifest.ocdbt", dir) >= 0)
		return verify_join(item->path, buf_str(&name));
	if (item->is_unmerged || (item->is_aggregate && !z))
		return strdup(item->path);
	if (item->is_ocdbt && (!z || z->kv == item->kv))
		return verify_join(item->path, "manifest.ocdbt");
	if (buf_addf(&name, "%.*s%s%s", SPAN_ARG(leaf->param), leaf->param.n ? "/" : "",
		     zarr3 ? "zarr.json" : ".zarray") < 0)
		return NULL;
	return verify_array_file(item, buf_str(&name));
}
