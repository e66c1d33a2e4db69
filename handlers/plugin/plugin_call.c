/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin_call.c - calls plugins, and checks everything that they return.
 *
 * Invariants: results are copied before the call returns; names stay inside the directory; a result
 * has the size that the plugin announced; a result beyond the limits is refused before it takes
 * memory.
 */
#include <dirent.h>
#include <stdio.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "handlers/plugin/plugin_call.h"

/* ---- files ---- */

void plugin_files_release(struct plugin_files *f)
{
	free(f->file);
	arena_release(&f->arena);
	*f = (struct plugin_files){ 0 };
}

int plugin_files_add(struct plugin_files *f, const char *name, const void *p, uint64_t n)
{
	struct plugin_file *more;

	if (f->n == PYTREEFS_MAX_FILES)
		return fail(-EFBIG, "more than %d files", PYTREEFS_MAX_FILES);
	if (n > PYTREEFS_MAX_BYTES || f->bytes + n > PYTREEFS_MAX_BYTES)
		return fail(-EFBIG, "the files have more than %u bytes, the limit for plugins",
			    PYTREEFS_MAX_BYTES);
	if (!array_reserve(f->file, f->cap, f->n + 1))
		return fail(-ENOMEM, "cannot keep the files of a plugin");
	more = &f->file[f->n];
	*more = (struct plugin_file){ arena_str(&f->arena, name),
				      p ? arena_dup(&f->arena, span_of(p, n)) : NULL, n };
	if (!more->name || (p && !more->p))
		return fail(-ENOMEM, "cannot keep the files of a plugin");
	f->n++;
	f->bytes += n;
	return 0;
}

struct reading {
	struct io_dir *dir;
	/* the directory being read: relative to `dir`, and to the leaf's or item's directory */
	const char *path, *below;
	bool contents;
	unsigned depth;
	struct plugin_files *files;
};

static int read_entry(void *arg, const char *name, unsigned char type)
{
	struct reading *rd = arg;
	auto_free char *path = NULL, *below = NULL;
	auto_buf bytes = { 0 };
	struct stat st;
	int r;

	path = str_fmt("%s/%s", rd->path, name);
	below = str_fmt("%s%s%s", rd->below, *rd->below ? "/" : "", name);
	if (!path || !below)
		return fail(-ENOMEM, "cannot read '%s'", rd->path);
	r = io_stat(rd->dir, path, &st);
	if (r < 0)
		return r;
	if (S_ISDIR(st.st_mode)) {
		struct reading in = *rd;

		in.path = path;
		in.below = below;
		in.depth++;
		return in.depth > 16 ? fail(-EFBIG, "'%s' is too deep for a plugin", path) :
				       io_list(in.dir, path, read_entry, &in);
	}
	/* Skip the marker of a commit, which is not a part of the value. */
	if (!S_ISREG(st.st_mode) || (!rd->depth && !strcmp(name, "commit_success.txt")))
		return 0;
	r = rd->contents ? io_read_file(rd->dir, path, PYTREEFS_MAX_BYTES, &bytes) : 0;
	return r < 0 ? r :
		       plugin_files_add(rd->files, below,
					rd->contents ? bytes.p ? (void *)bytes.p : (void *)"" :
						       NULL,
					rd->contents ? bytes.n : 0);
}

static int plugin_call_by_name(const void *a, const void *b)
{
	return strcmp(((const struct plugin_file *)a)->name, ((const struct plugin_file *)b)->name);
}

int plugin_files_read(struct io_dir *dir, const char *path, bool contents, struct plugin_files *ret)
{
	auto_plugin_files files = { 0 };
	struct reading rd = { dir, path, "", contents, 0, &files };
	int r = io_list(dir, path, read_entry, &rd);

	if (r < 0)
		return r;
	if (files.n)
		qsort(files.file, files.n, sizeof(*files.file), plugin_call_by_name);
	*ret = files;
	files = (struct plugin_files){ 0 };
	return 0;
}

/* ---- calls ---- */

static struct plugin_call *call_of(const struct pytreefs_host *host)
{
	return (struct plugin_call *)(uintptr_t)container_of(host, struct plugin_call, host);
}

static void call_message(const struct pytreefs_host *host, const char *text)
{
	struct plugin_call *c = call_of(host);

	snprintf(c->why, sizeof(c->why), "%s", text ? text : "");
}

int plugin_call_refuse(struct plugin_call *c, int code)
{
	if (!c->refused.code)
		err_save(code, &c->refused);
	return -1;
}

static int call_add(const struct pytreefs_host *host, const char *name, const void *p, uint64_t n)
{
	struct plugin_call *c = call_of(host);
	int r = 0;

	c->given++;
	if (!name || (!p && n))
		r = fail(-EINVAL, "it added a file without a name or bytes");
	else if (!c->bytes && !c->out)
		r = fail(-EINVAL, "it added a file where none was asked for");
	else if (c->bytes && c->given > 1)
		r = fail(-EINVAL, "it added more than one file");
	else if (c->bytes)
		r = n > PYTREEFS_MAX_BYTES ?
			    fail(-EFBIG, "the files have more than %u bytes, the limit for plugins",
				 PYTREEFS_MAX_BYTES) :
			    buf_add(c->bytes, p, n);
	else
		r = io_path_check(span_str(name), "the name of a file of a plugin");
	if (r >= 0 && c->out)
		r = plugin_files_add(c->out, name, n ? p : "", n);
	return r < 0 ? plugin_call_refuse(c, r) : 0;
}

static int call_read(const struct pytreefs_host *host, uint32_t i, uint64_t off, void *p,
		     uint64_t n)
{
	struct plugin_call *c = call_of(host);

	return c->read ? c->read(c, i, off, p, n) :
			 plugin_call_refuse(c, fail(-EINVAL, "it read elements outside of run()"));
}

static int call_write(const struct pytreefs_host *host, const void *p, uint64_t n)
{
	struct plugin_call *c = call_of(host);

	return c->write ?
		       c->write(c, p, n) :
		       plugin_call_refuse(c, fail(-EINVAL, "it wrote elements outside of run()"));
}

/*
 * Refuse a set of files that has a name twice, or a name that is also the directory of another:
 * these could be stored, but not shown.
 */
static int plugin_call_check_names(const struct plugin_files *f)
{
	auto_free const char **names = calloc(f->n + 1, sizeof(*names));

	if (!names)
		return fail(-ENOMEM, "cannot compare the names of files");
	for (size_t i = 0; i < f->n; i++)
		names[i] = f->file[i].name;
	qsort(names, f->n, sizeof(*names), array_by_text);
	for (size_t i = 0; i < f->n; i++) {
		auto_free char *above = strdup(names[i]);

		if (!above)
			return fail(-ENOMEM, "cannot compare the names of files");
		if (i && !strcmp(names[i - 1], names[i]))
			return fail(-EINVAL, "it added '%s' twice", names[i]);
		for (char *slash = strrchr(above, '/'); slash; slash = strrchr(above, '/')) {
			*slash = 0;
			if (bsearch(&above, names, f->n, sizeof(*names), array_by_text))
				return fail(-EINVAL, "it added '%s' as a file and as a directory",
					    above);
		}
	}
	return 0;
}

void plugin_call_begin(struct plugin_call *c, struct plugin *p, uint32_t flags)
{
	c->host = (struct pytreefs_host){ sizeof(c->host), call_add, call_message, call_read,
					  call_write };
	c->plugin = p;
	if (flags & PYTREEFS_SERIAL)
		pthread_mutex_lock(&p->serial);
}

int plugin_call_end(struct plugin_call *c, uint32_t flags, int result, int code)
{
	if (flags & PYTREEFS_SERIAL)
		pthread_mutex_unlock(&c->plugin->serial);
	if (c->failed.code)
		return err_restore(&c->failed);
	if (c->out && !c->refused.code) {
		int r = plugin_call_check_names(c->out);

		if (r < 0)
			plugin_call_refuse(c, r);
	}
	if (c->refused.code)
		return fail(c->refused.code == -ENOMEM ? -ENOMEM : code, "plugin '%s': %s",
			    c->plugin->name, c->refused.text);
	if (result < 0)
		return fail(code, "plugin '%s': %s", c->plugin->name,
			    *c->why ? c->why : "it failed without a message");
	if (result > 0)
		return fail(code, "plugin '%s': it returned %d instead of 0 or -1", c->plugin->name,
			    result);
	if (c->bytes && c->given == 0)
		return fail(code, "plugin '%s': it added no file", c->plugin->name);
	return 0;
}

static const struct pytreefs_plugin_file *files_of(const struct plugin_files *f)
{
	return (const struct pytreefs_plugin_file *)f->file;
}

int plugin_decode_leaf(struct plugin *p, const struct plugin_files *stored, struct buf *ret)
{
	const struct pytreefs_leaf *l = p->leaf;
	struct plugin_call size = { 0 }, c = { .bytes = ret };
	uint64_t announced = 0;
	int r = 0;

	if (l->memory_size) {
		plugin_call_begin(&size, p, l->flags);
		r = l->memory_size(&size.host, files_of(stored), (uint32_t)stored->n, &announced);
		r = plugin_call_end(&size, l->flags, r, -EUCLEAN);
		if (r < 0)
			return r;
		if (announced > PYTREEFS_MAX_BYTES)
			return fail(-EFBIG, "plugin '%s': %llu bytes, the limit is %u", p->name,
				    (unsigned long long)announced, PYTREEFS_MAX_BYTES);
	}
	plugin_call_begin(&c, p, l->flags);
	r = l->decode(&c.host, files_of(stored), (uint32_t)stored->n);
	r = plugin_call_end(&c, l->flags, r, -EUCLEAN);
	if (r < 0)
		return r;
	if (l->memory_size && ret->n != announced)
		return fail(-EUCLEAN, "plugin '%s': it announced %llu bytes and added %zu", p->name,
			    (unsigned long long)announced, ret->n);
	return r;
}

int plugin_encode_leaf(struct plugin *p, struct span bytes, struct plugin_files *ret)
{
	const struct pytreefs_leaf *l = p->leaf;
	struct plugin_call c = { .out = ret };
	int r;

	if (!l->encode)
		return fail(-EINVAL, "plugin '%s' cannot write leaves", p->name);
	plugin_call_begin(&c, p, l->flags);
	r = l->encode(&c.host, bytes.p ? bytes.p : (const uint8_t *)"", bytes.n);
	r = plugin_call_end(&c, l->flags, r, -EINVAL);
	return r < 0 || ret->n ? r : fail(-EINVAL, "plugin '%s': it added no file", p->name);
}

int plugin_leaf_metadata(struct plugin *p, const struct plugin_files *stored, struct buf *ret)
{
	const struct pytreefs_leaf *l = p->leaf;
	struct plugin_call c = { .bytes = ret };
	auto_json doc = { 0 };
	int r;

	if (!l->metadata)
		return -ENODATA;
	plugin_call_begin(&c, p, l->flags);
	r = l->metadata(&c.host, files_of(stored), (uint32_t)stored->n);
	r = plugin_call_end(&c, l->flags, r, -EUCLEAN);
	return r < 0 ? r : json_parse(buf_span(ret), "metadata of a plugin", &doc);
}

int plugin_finalize(struct plugin *p)
{
	struct plugin_call c = { 0 };
	int r;

	if (!p->leaf->finalize)
		return 0;
	plugin_call_begin(&c, p, p->leaf->flags);
	r = p->leaf->finalize(&c.host);
	return plugin_call_end(&c, p->leaf->flags, r, -EINVAL);
}

int plugin_decode_item(struct plugin *p, const struct plugin_files *stored,
		       struct plugin_files *ret)
{
	struct plugin_call c = { .out = ret };
	int r;

	plugin_call_begin(&c, p, p->item->flags);
	r = p->item->decode(&c.host, files_of(stored), (uint32_t)stored->n);
	return plugin_call_end(&c, p->item->flags, r, -EUCLEAN);
}

int plugin_encode_item(struct plugin *p, const struct plugin_files *shown, struct plugin_files *ret)
{
	struct plugin_call c = { .out = ret };
	int r;

	if (!p->item->encode)
		return fail(-EINVAL, "plugin '%s' cannot write items", p->name);
	plugin_call_begin(&c, p, p->item->flags);
	r = p->item->encode(&c.host, files_of(shown), (uint32_t)shown->n);
	return plugin_call_end(&c, p->item->flags, r, -EINVAL);
}
