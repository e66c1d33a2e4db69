/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_npz.c - one npz file: a member for each leaf, stored, as np.savez writes it.
 *
 * Members have their places before the first byte is written, so threads write
 * them at once; headers and directory follow, when all checksums are known.
 */
#include "core/base/err.h"
#include "core/base/wire.h"
#include "handlers/format/value.h"
#include "tools/convert/export.h"
#include "tools/convert/zip_data.h"

struct npz {
	struct export *x;
	struct zip_member *member; /* of leaf i: n_members are used */
	const struct export_leaf **leaf;
	size_t n;
	uint64_t end; /* of the last member */
};

/* "<U5" and UTF-32: a string as numpy has it. */
static int text_array(struct span text, struct buf *ret)
{
	auto_buf dict = { 0 };
	size_t n = 0, pad;
	int r = 0;

	for (size_t at = 0; at < text.n; at += MAX(utf8_len(span_from(text, at)), (size_t)1))
		n++;
	r = buf_addf(&dict, "{'descr': '<U%zu', 'fortran_order': False, 'shape': (), }", n);
	pad = (64 - (10 + dict.n + 1) % 64) % 64;
	for (size_t i = 0; i < pad && r >= 0; i++)
		r = buf_add_byte(&dict, ' ');
	if (r >= 0)
		r = buf_add_byte(&dict, '\n');
	if (r >= 0)
		r = buf_add(ret, "\x93NUMPY\x01\x00", 8);
	if (r >= 0)
		r = buf_add_byte(ret, (uint8_t)dict.n);
	if (r >= 0)
		r = buf_add_byte(ret, (uint8_t)(dict.n >> 8));
	if (r >= 0)
		r = buf_add_span(ret, buf_span(&dict));
	for (size_t at = 0; at < text.n && r >= 0;) {
		size_t len = utf8_len(span_from(text, at));
		uint32_t c = len ? utf8_code(text.p + at, len) : 0xfffd;
		const uint8_t code[4] = { (uint8_t)c, (uint8_t)(c >> 8), (uint8_t)(c >> 16),
					  (uint8_t)(c >> 24) };

		r = buf_add(ret, code, sizeof(code));
		at += MAX(len, (size_t)1);
	}
	return r;
}

static int size_of(struct npz *z, const struct export_leaf *l, uint64_t *ret)
{
	auto_format f = { 0 };
	auto_buf text = { 0 };
	int r;

	if (l->info->kind == VALUE_TEXT) {
		r = text_array(l->info->text, &text);
		*ret = text.n;
		return r;
	}
	r = export_leaf_open(z->x, l, NAME_EXT_NPY, &f);
	*ret = f.size;
	return r < 0 ? err_at(r, "leaf '%s'", l->path) : 0;
}

static int add_member(struct npz *z, const struct export_leaf *l)
{
	struct zip_member *m = &z->member[z->n];
	auto_buf name = { 0 };
	int r = tree_manifest_key(l->part, l->info->leaf, &style_npz, &name);

	if (r >= 0)
		r = buf_add_str(&name, ".npy");
	if (r >= 0)
		r = arena_keep(&z->x->arena, buf_span(&name), &m->name);
	if (r >= 0)
		r = size_of(z, l, &m->size);
	if (r < 0)
		return r;
	m->packed = m->size;
	m->header = z->end;
	z->leaf[z->n++] = l;
	if (!add_fits(z->end, zip_local_size(m->name), &z->end) ||
	    !add_fits(z->end, m->size, &z->end))
		return fail(-EFBIG, "an archive of more than 2^64 bytes");
	return 0;
}

static int write_member(void *arg, size_t i, struct worker *worker)
{
	struct npz *z = arg;
	struct zip_member *m = &z->member[i];
	const struct export_leaf *l = z->leaf[i];
	uint64_t at = m->header + zip_local_size(m->name);
	auto_buf text = { 0 };
	int r;

	if (l->info->kind != VALUE_TEXT)
		return export_leaf_write(z->x, l, NAME_EXT_NPY, z->x->out.file, at, worker,
					 &m->crc);
	r = text_array(l->info->text, &text);
	m->crc = r < 0 ? 0 : zip_crc(0, text.p, text.n);
	return r < 0 ? r : io_write_exact(z->x->out.file, text.p, text.n, at);
}

static int write_headers(struct npz *z)
{
	int r = 0;

	for (size_t i = 0; i < z->n && r >= 0; i++) {
		auto_buf head = { 0 };

		r = zip_put_local(&z->member[i], &head);
		if (r >= 0)
			r = io_write_exact(z->x->out.file, head.p, head.n, z->member[i].header);
	}
	return r;
}

/*
 * What arrays cannot say: in the archive's comment, or before the directory when it is longer than
 * a comment may be, where no reader of archives looks. The comment then says where.
 */
static int put_manifest(struct npz *z, struct buf *ret_comment)
{
	auto_buf tree_manifest = { 0 };
	int r = tree_manifest_print(&z->x->st, z->x->only, z->x->cast, &style_npz, &tree_manifest);

	if (r >= 0 && tree_manifest.n <= ZIP_COMMENT_MAX)
		return buf_add_span(ret_comment, buf_span(&tree_manifest));
	if (r >= 0)
		r = io_write_exact(z->x->out.file, tree_manifest.p, tree_manifest.n, z->end);
	if (r >= 0)
		r = buf_addf(ret_comment, "{\"" NPZ_AT "\": %llu, \"" NPZ_BYTES "\": %zu}",
			     (unsigned long long)z->end, tree_manifest.n);
	if (r >= 0)
		z->end += tree_manifest.n;
	return r;
}

static int write_directory(struct npz *z)
{
	auto_buf tail = { 0 }, comment = { 0 };
	int r = put_manifest(z, &comment);

	if (r >= 0)
		r = zip_put_directory(z->member, z->n, z->end, buf_span(&comment), &tail);
	return r < 0 ? r : io_write_exact(z->x->out.file, tail.p, tail.n, z->end);
}

/* Checksums of what other ranks have written, for the headers: rank 0 has them all then. */
static int gather_sums(struct npz *z)
{
	struct rank_group *t = z->x->group;
	struct buf *from = t ? calloc((size_t)t->peers->size, sizeof(*from)) : NULL;
	auto_buf mine = { 0 };
	int r = !t || from ? 0 : fail(-ENOMEM, "cannot gather checksums");

	for (size_t i = 0; i < z->n && r >= 0 && t; i++)
		r = wire_put_u32le(&mine, z->member[i].crc);
	r = group_gather(t, r, buf_span(&mine), from);
	for (int i = 1; from && i < t->peers->size; i++) {
		struct wire w = wire_of(buf_span(&from[i]));

		/* A member that a rank has not written has no checksum there. */
		for (size_t k = 0; k < z->n && r >= 0; k++)
			z->member[k].crc |= wire_u32le(&w);
		buf_release(&from[i]);
	}
	free(from);
	return r;
}

static int list_members(struct npz *z, uint64_t *bytes)
{
	struct export *x = z->x;
	int r = z->member && z->leaf && bytes ? 0 : fail(-ENOMEM, "cannot list %zu leaves", x->n);

	for (size_t i = 0; i < x->n && r >= 0; i++)
		if (x->leaf[i].info->kind != VALUE_NONE)
			r = add_member(z, &x->leaf[i]);
	for (size_t i = 0; i < z->n; i++)
		bytes[i] = z->member[i].size;
	return r;
}

int export_npz(struct export *x)
{
	struct npz z = { .x = x };
	auto_free uint64_t *bytes = calloc(x->n + 1, sizeof(*bytes));
	int r;

	export_remarks(x);
	z.member = calloc(x->n + 1, sizeof(*z.member));
	z.leaf = calloc(x->n + 1, sizeof(*z.leaf));
	r = list_members(&z, bytes);
	r = export_workers(x, r, z.n, bytes, write_member, &z);
	if (r >= 0)
		r = gather_sums(&z);
	if (r >= 0 && group_is_lead(x->group))
		r = write_headers(&z);
	if (r >= 0 && group_is_lead(x->group))
		r = write_directory(&z);
	free(z.member);
	free(z.leaf);
	return r;
}
