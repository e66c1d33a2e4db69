/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_npz.c - exports one npz file with a stored member for each leaf, as np.savez writes it.
 *
 * The position of each member is known before the first byte is written, so threads write members
 * at once. Headers and the directory follow when all checksums are known. A string is an array of
 * UTF-32, which is converted while it is written.
 */
#include <pthread.h>

#include "core/base/err.h"
#include "core/base/wire.h"
#include "handlers/format/value.h"
#include "handlers/leaf/leaf.h"
#include "tools/cli/interrupt.h"
#include "tools/convert/export.h"
#include "tools/convert/zip.h"

struct npz {
	struct export *x;
	struct zip_member *member; /* the member of leaf i; n_members of them are used */
	const struct export_leaf **leaf;
	size_t n;
	uint64_t end; /* of the last member */
	pthread_mutex_t text_lock;
};

/*
 * Make the header for numpy's string array: "<U5", in UTF-32. *ret_bytes is the size of header and
 * array.
 */
static int text_header(struct span text, struct buf *ret, uint64_t *ret_bytes)
{
	auto_buf dict = { 0 };
	size_t n = 0, pad;

	/* A byte that is not UTF-8 counts as one character. */
	for (size_t at = 0; at < text.n; at += MAX(utf8_len(span_from(text, at)), (size_t)1))
		n++;
	if (buf_addf(&dict, "{'descr': '<U%zu', 'fortran_order': False, 'shape': (), }", n) < 0)
		return -ENOMEM;
	pad = (64 - (10 + dict.n + 1) % 64) % 64;
	if (buf_addf(&dict, "%*s\n", (int)pad, "") < 0 ||
	    buf_add(ret, "\x93NUMPY\x01\x00", 8) < 0 || wire_put_u16le(ret, (uint16_t)dict.n) < 0 ||
	    buf_add_span(ret, buf_span(&dict)) < 0)
		return -ENOMEM;
	*ret_bytes = ret->n + 4 * (uint64_t)n;
	return 0;
}

/* Convert characters from *at on into as many bytes as fit. Returns the number of bytes. */
static size_t put_chars(struct span text, size_t *at, uint8_t *to, size_t room)
{
	size_t n = 0;

	for (; *at < text.n && room - n >= 4; n += 4) {
		struct span rest = span_from(text, *at);
		size_t len = utf8_len(rest);
		uint32_t c = len ? utf8_code(rest.p, len) : 0xfffd;

		for (unsigned i = 0; i < 4; i++)
			to[n + i] = (uint8_t)(c >> 8 * i);
		*at += MAX(len, (size_t)1);
	}
	return n;
}

static int add_member(struct npz *z, const struct export_leaf *l)
{
	struct zip_member *m = &z->member[z->n];
	struct item *item = l->info->part->item;
	auto_buf name = { 0 }, head = { 0 };
	auto_format f = { 0 };
	auto_value v = { 0 };
	int r = tree_manifest_key(l->info->part, l->info->leaf, &style_paths, &name);

	if (r < 0)
		return r;
	r = buf_add_str(&name, ".npy");
	if (r < 0)
		return r;
	r = arena_keep(&z->x->arena, buf_span(&name), &m->name);
	if (r < 0)
		return r;
	if (l->info->kind == VALUE_TEXT) {
		r = leaf_open(item, l->info->leaf, &v);
		if (r >= 0)
			r = text_header(buf_span(&v.text), &head, &m->size);
	} else {
		r = leaf_open_format(item, l->info->leaf, NAME_EXT_NPY, l->array.dtype, &f);
		m->size = f.size;
	}
	if (r < 0)
		return err_at(r, "leaf '%s'", l->path);
	m->packed = m->size;
	m->header = z->end;
	z->leaf[z->n++] = l;
	if (!add_fits(z->end, zip_local_size(m->name), &z->end) ||
	    !add_fits(z->end, m->size, &z->end))
		return fail(-EFBIG, "an archive of more than 2^64 bytes");
	return 0;
}

/* Through the worker's buffer, since a text in UTF-32 is four times as long. */
static int write_chars(struct npz *z, struct zip_member *m, struct span text, uint64_t at,
		       struct worker *worker)
{
	auto_buf head = { 0 };
	uint64_t bytes;
	int r = text_header(text, &head, &bytes);

	if (r < 0)
		return r;
	if (bytes != m->size)
		return fail(-EIO, "the text has changed");
	r = io_write_exact(z->x->out.file, head.p, head.n, at);
	if (r < 0)
		return r;
	m->crc = zip_crc(0, head.p, head.n);
	at += head.n;
	for (size_t done = 0; done < text.n;) {
		size_t n = put_chars(text, &done, worker->buf, WORKER_BYTES);

		r = interrupt_check();
		if (r < 0)
			return r;
		r = io_write_exact(z->x->out.file, worker->buf, n, at);
		if (r < 0)
			return r;
		m->crc = zip_crc(m->crc, worker->buf, n);
		at += n;
	}
	return 0;
}

static int write_member(void *arg, size_t i, struct worker *worker)
{
	struct npz *z = arg;
	struct zip_member *m = &z->member[i];
	const struct export_leaf *l = z->leaf[i];
	uint64_t at = m->header + zip_local_size(m->name);
	auto_value v = { 0 };
	int r;

	if (l->info->kind != VALUE_TEXT)
		return export_leaf_write(z->x, l, NAME_EXT_NPY, z->x->out.file, at, worker,
					 &m->crc);
	/* Strings are written one at a time, since each is in memory as a whole. */
	pthread_mutex_lock(&z->text_lock);
	r = leaf_open(l->info->part->item, l->info->leaf, &v);
	if (r >= 0)
		r = write_chars(z, m, buf_span(&v.text), at, worker);
	value_release(&v);
	v = (struct value){ 0 };
	pthread_mutex_unlock(&z->text_lock);
	progress_add(&z->x->progress, l->bytes);
	return r < 0 ? err_at(r, "leaf '%s'", l->path) : 0;
}

/*
 * The tree manifest goes into the archive's comment. If it is too long for a comment, it goes
 * before the directory, where readers of archives do not look, and the comment has its position.
 */
struct manifest {
	struct npz *z;
	struct buf *comment; /* the whole manifest, if it is short */
	uint64_t bytes;      /* number of bytes written; 0: it is short */
};

static int write_manifest(struct manifest *m, struct span piece)
{
	int r = io_write_exact(m->z->x->out.file, piece.p, piece.n, m->z->end + m->bytes);

	m->bytes += piece.n;
	return r;
}

static int export_npz_put_piece(void *arg, struct span piece)
{
	struct manifest *m = arg;
	int r;

	if (m->bytes)
		return write_manifest(m, piece);
	r = buf_add_span(m->comment, piece);
	if (r < 0 || m->comment->n <= ZIP_COMMENT_MAX)
		return r;
	return write_manifest(m, buf_span(m->comment));
}

static int write_directory(struct npz *z)
{
	struct export *x = z->x;
	auto_buf tail = { 0 }, comment = { 0 };
	struct manifest m = { .z = z, .comment = &comment };
	int r = tree_manifest_write(&x->st, export_only(x), &x->casts, &style_paths,
				    export_npz_put_piece, &m);

	if (r < 0)
		return r;
	if (m.bytes) {
		buf_clear(&comment);
		r = buf_addf(&comment, "{\"" NPZ_AT "\": %llu, \"" NPZ_BYTES "\": %llu}",
			     (unsigned long long)z->end, (unsigned long long)m.bytes);
		z->end += m.bytes;
	}
	if (r < 0)
		return r;
	r = zip_put_directory(z->member, z->n, z->end, buf_span(&comment), &tail);
	return r < 0 ? r : io_write_exact(x->out.file, tail.p, tail.n, z->end);
}

/* Collect the checksums of members that other ranks have written on rank 0, for the headers. */
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

		/* A rank has 0 for members that it has not written. */
		for (size_t k = 0; k < z->n && r >= 0; k++)
			z->member[k].crc |= wire_u32le(&w);
		buf_release(&from[i]);
	}
	free(from);
	return r;
}

int export_npz(struct export *x)
{
	auto_free struct zip_member *member = calloc(x->n + 1, sizeof(*member));
	auto_free const struct export_leaf **leaf = calloc(x->n + 1, sizeof(*leaf));
	auto_free uint64_t *bytes = calloc(x->n + 1, sizeof(*bytes));
	struct npz z = {
		.x = x, .member = member, .leaf = leaf, .text_lock = PTHREAD_MUTEX_INITIALIZER
	};
	int r = member && leaf && bytes ? 0 : fail(-ENOMEM, "cannot list %zu leaves", x->n);

	export_remarks(x);
	for (size_t i = 0; i < x->n && r >= 0; i++)
		if (x->leaf[i].info->kind != VALUE_NONE)
			r = add_member(&z, &x->leaf[i]);
	for (size_t i = 0; i < z.n; i++)
		bytes[i] = member[i].size;
	r = export_workers(x, r, z.n, bytes, write_member, &z);
	if (r < 0)
		return r;
	r = gather_sums(&z);
	if (r < 0 || !group_is_lead(x->group))
		return r;
	for (size_t i = 0; i < z.n; i++) {
		auto_buf head = { 0 };

		r = zip_put_local(&member[i], &head);
		if (r < 0)
			return r;
		r = io_write_exact(x->out.file, head.p, head.n, member[i].header);
		if (r < 0)
			return r;
	}
	return write_directory(&z);
}
