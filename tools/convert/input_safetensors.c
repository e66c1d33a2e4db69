/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input_safetensors.c - a safetensors file, or a directory of shards, as import entries: a leaf for
 * each tensor.
 *
 * `__metadata__` becomes custom metadata of the item, except "format", the tree manifest, and
 * strings of the tree.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/base/lfs.h"
#include "core/base/path.h"
#include "core/step/item_safetensors.h"
#include "handlers/namespace/ns.h"
#include "handlers/format/safetensors.h"
#include "tools/convert/input.h"

/* ---- opening ---- */

static int read_exactly(int fd, const char *path, void *p, size_t n)
{
	ssize_t got = pread(fd, p, n, 0);

	if (got < 0)
		return err_sys("cannot read", path);
	return (size_t)got == n ? 0 :
				  fail(-EUCLEAN, "'%s' is not a safetensors file: it has %zd bytes",
				       path, got);
}

static int input_safetensors_read_header(int fd, const char *path, struct safetensors *ret)
{
	auto_buf head = { .metered = true };
	uint8_t length[8];
	uint64_t n = 0;
	struct stat st;
	uint8_t start[LFS_START_BYTES];
	int r = read_exactly(fd, path, length, sizeof(length));

	if (r < 0)
		return r;
	if (pread(fd, start, sizeof(start), 0) == (ssize_t)sizeof(start))
		r = lfs_check(path, span_of(start, sizeof(start)));
	if (r < 0)
		return r;
	for (int i = 7; i >= 0; i--)
		n = n << 8 | length[i];
	if (fstat(fd, &st) < 0)
		return err_sys("cannot look at", path);
	if (n > SAFETENSORS_HEADER_MAX || n + 8 > (uint64_t)st.st_size)
		return fail(-EUCLEAN,
			    "'%s' is not a safetensors file: a header of %llu bytes in %lld", path,
			    (unsigned long long)n, (long long)st.st_size);
	r = buf_reserve(&head, n + 8);
	if (r < 0)
		return r;
	r = read_exactly(fd, path, head.p, n + 8);
	if (r < 0)
		return r;
	head.n = n + 8;
	r = safetensors_parse(buf_span(&head), ret);
	if (r == 0)
		r = fail(-EUCLEAN, "its header is truncated");
	if (r < 0)
		return err_at(r, "'%s'", path);
	if (ret->data + ret->bytes != (uint64_t)st.st_size) {
		r = fail(-EUCLEAN, "'%s' has %lld bytes, its header says %llu", path,
			 (long long)st.st_size, (unsigned long long)(ret->data + ret->bytes));
		safetensors_release(ret);
		return r;
	}
	return 0;
}

static int input_safetensors_add_shard(struct input *in, const char *path)
{
	struct safetensors *more;
	int fd = input_add_fd(in, path);

	if (fd < 0)
		return fd;
	more = reallocarray(in->shard, in->n_fds, sizeof(*more));
	if (!more)
		return fail(-ENOMEM, "cannot open '%s'", path);
	in->shard = more;
	more[in->n_fds - 1] = (struct safetensors){ 0 };
	return input_safetensors_read_header(fd, path, &more[in->n_fds - 1]);
}

/* The files are those that all who read the directory take. */
static int add_shards(struct input *in)
{
	auto_of(io_engine) struct io_engine *io = NULL;
	auto_of(io_dir) struct io_dir *dir = NULL;
	auto_buf names = { 0 };
	int r = io_engine_open("sync", &io);

	if (r < 0)
		return r;
	r = io_dir_open(io, in->path, &dir);
	if (r < 0)
		return r;
	r = safetensors_files(dir, &names);
	for (size_t at = 0; at < names.n && r >= 0;) {
		struct span name = span_str((char *)names.p + at);
		auto_free char *path = NULL;

		r = path_join(in->path, name, &path);
		if (r < 0)
			return r;
		r = input_safetensors_add_shard(in, path);
		at += name.n + 1;
	}
	return r;
}

int input_safetensors_open(struct input *in)
{
	struct stat st;
	int r = stat(in->path, &st) < 0 ? err_sys("cannot open", in->path) :
		S_ISDIR(st.st_mode)     ? add_shards(in) :
					  input_safetensors_add_shard(in, in->path);

	/* Any shard may have the manifest; an export writes it to the first one. */
	for (size_t i = 0; i < in->n_fds && r >= 0; i++) {
		auto_json doc = { 0 };
		const struct json *text;

		if (!in->shard[i].metadata || in->tree_manifest.doc.root)
			continue;
		r = json_parse(span_str(in->shard[i].metadata), in->path, &doc);
		text = r < 0 ? NULL : json_member(doc.root, TREE_MANIFEST_KEY);
		if (json_is(text, JSON_STRING))
			r = tree_manifest_parse(text->s, in->path, &in->tree_manifest);
	}
	return r;
}

/* ---- listing ---- */

static int import_tensor(struct input *in, size_t shard, const struct safetensor *t,
			 struct select *only, struct import_list *f)
{
	/* Keys in files with a manifest are joined by a dot, whatever the option is. */
	const bool is_ours = in->tree_manifest.doc.root;
	const struct tree_manifest_style style = { .separator = is_ours ? "." : in->separator };
	auto_buf path = { 0 };
	uint64_t at = in->shard[shard].data + t->begin;
	int r = tree_manifest_path(&in->tree_manifest, t->name, &style, &path);
	uint8_t element[LIMIT_ITEM_BYTES];
	enum dtype number;

	if (r < 0 || !buf_str(&path))
		return err_at(r < 0 ? r : -ENOMEM, "tensor '%.*s'", SPAN_ARG(t->name));
	if (!select_path(only, buf_span(&path)))
		return import_list_leave_out(f, buf_str(&path));
	if (t->array.dtype == DTYPE_UNKNOWN)
		return fail(
			-EOPNOTSUPP,
			"'%s': tensor '%.*s' has the type %.*s, whose elements are not whole bytes",
			in->path, SPAN_ARG(t->name), SPAN_ARG(t->type));
	number = tree_manifest_dtype(&in->tree_manifest, buf_str(&path));
	if (number != t->array.dtype || t->array.rank != 0 ||
	    !span_ends(buf_span(&path), span_str(".json")))
		return import_add_array(f, buf_str(&path), in->path, in->fd[shard], at, &t->array,
					t->bytes);
	if (pread(in->fd[shard], element, t->bytes, (off_t)at) != (ssize_t)t->bytes)
		return err_sys("cannot read", in->path);
	return import_add_scalar(f, buf_str(&path), in->path, number, element);
}

/* Add an entry of `__metadata__` that is not a string of the tree to the custom metadata. */
static int import_text(struct input *in, const struct json *m, struct select *only,
		       struct import_list *f, struct buf *custom)
{
	const struct json *path =
		json_member_span(json_member(in->tree_manifest.doc.root, "leaves"), m->name);
	int r;

	if (span_eq(m->name, span_str(TREE_MANIFEST_KEY)) ||
	    (span_eq(m->name, span_str("format")) && !json_is(path, JSON_STRING)))
		return 0;
	if (json_is(path, JSON_STRING) && span_ends(path->s, span_str(".txt")) &&
	    m->kind == JSON_STRING)
		return select_path(only, span_str((const char *)path->s.p)) ?
			       import_add_text(f, (const char *)path->s.p, in->path, m->s) :
			       0;
	r = buf_add_str(custom, custom->n ? ", " : "{");
	if (r < 0)
		return r;
	r = json_put_name(custom, m->name, JSON_PYTHON);
	return r < 0 ? r : json_print(custom, m, JSON_PYTHON);
}

/* Of files with a manifest: `ret` gets the members of an object. */
static int import_texts(struct input *in, struct select *only, struct import_list *f,
			struct buf *ret)
{
	int r = 0;

	for (size_t i = 0; i < in->n_fds && r >= 0; i++) {
		const struct safetensors *st = &in->shard[i];
		auto_json doc = { 0 };

		r = st->metadata ? json_parse(span_str(st->metadata), in->path, &doc) : 0;
		for (size_t k = 0; r >= 0 && doc.root && k < doc.root->n; k++)
			r = import_text(in, &doc.root->items[k], only, f, ret);
	}
	return r < 0 || !ret->n ? r : buf_add_byte(ret, '}');
}

static int input_safetensors_custom_of(struct input *in, struct buf *ret)
{
	auto_free const char **text = calloc(in->n_fds + 1, sizeof(*text));

	if (!text)
		return fail(-ENOMEM, "cannot read '%s'", in->path);
	for (size_t i = 0; i < in->n_fds; i++)
		text[i] = in->shard[i].metadata;
	return tensors_custom(text, in->n_fds, ret);
}

static int input_safetensors_import_metadata(struct input *in, struct select *only,
					     struct import_list *f)
{
	auto_buf custom = { 0 };
	int r = in->tree_manifest.doc.root ? import_texts(in, only, f, &custom) :
					     input_safetensors_custom_of(in, &custom);

	/* Custom metadata of the manifest takes precedence. */
	if (r < 0 || !custom.n || in->is_step || json_member(in->tree_manifest.doc.root, "custom"))
		return r;
	r = import_add_dir(f, "");
	if (r < 0)
		return r;
	return buf_str(&custom) ? import_list_mark(f, "", "custom_metadata", buf_str(&custom)) :
				  -ENOMEM;
}

int input_safetensors_list(struct input *in, struct select *only, struct import_list *f)
{
	int r = tree_manifest_import(&in->tree_manifest, in->path, only, f);

	for (size_t i = 0; i < in->n_fds && r >= 0; i++)
		for (size_t k = 0; k < in->shard[i].n && r >= 0; k++)
			r = import_tensor(in, i, &in->shard[i].tensor[k], only, f);
	return r < 0 ? r : input_safetensors_import_metadata(in, only, f);
}
