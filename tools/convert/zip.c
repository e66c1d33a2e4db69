/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip.c - parses and writes the directory of a zip archive. zip_data.c reads the data.
 *
 * Sizes and offsets beyond 32 bits are in zip64 extra fields. Local headers of large members always
 * have this field when they are written here, so that their length is known before the data is.
 */
#include "tools/convert/zip.h"

#include <stdio.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/base/lfs.h"
#include "core/base/wire.h"

#define SIG_LOCAL 0x04034b50u
#define SIG_ENTRY 0x02014b50u
#define SIG_END 0x06054b50u
#define SIG_END64 0x06064b50u
#define SIG_WHERE64 0x07064b50u
#define END_BYTES 22
#define WHERE64_BYTES 20
#define END64_BYTES 56
#define LOCAL_BYTES 30
#define BIG 0xffffffffu
#define FLAG_ENCRYPTED 1u
#define FLAG_UTF8 0x800u

/* ---- reading ---- */

int zip_read_at(int fd, const char *what, uint64_t off, void *p, size_t n)
{
	ssize_t got = pread(fd, p, n, (off_t)off);

	if (got < 0)
		return err_sys("cannot read", what);
	return (size_t)got == n ? 0 :
				  fail(-EUCLEAN, "'%s' is truncated at byte %llu", what,
				       (unsigned long long)off + (unsigned long long)got);
}

struct directory {
	uint64_t n, size, at;
	struct span comment;
};

/* Find the end record, which is followed only by the comment whose length it has. */
static int find_end(int fd, const char *what, uint64_t file, struct arena *a, struct directory *ret)
{
	uint64_t n = MIN(file, (uint64_t)END_BYTES + 65535), from = file - n;
	uint8_t *tail = arena_alloc(a, n + 1);
	int r = tail ? zip_read_at(fd, what, from, tail, n) :
		       fail(-ENOMEM, "cannot read '%s'", what);
	uint64_t i, end = 0;
	uint8_t where[WHERE64_BYTES], big[END64_BYTES];

	if (r < 0)
		return r;
	r = lfs_check(what, span_of(tail, n));
	if (r < 0)
		return r;
	for (i = n; n >= END_BYTES && i-- > 0;) {
		if (i + END_BYTES > n || get_u32le(tail + i) != SIG_END)
			continue;
		if (i + END_BYTES + (tail[i + 20] | tail[i + 21] << 8) == n)
			break;
	}
	if (n < END_BYTES || i == UINT64_MAX || get_u32le(tail + i) != SIG_END)
		return fail(-EUCLEAN, "'%s' is not a zip archive: it has no end record", what);
	end = from + i;
	*ret = (struct directory){ (uint64_t)(tail[i + 10] | tail[i + 11] << 8),
				   get_u32le(tail + i + 12), get_u32le(tail + i + 16),
				   span_of(tail + i + END_BYTES, n - i - END_BYTES) };
	if (end < WHERE64_BYTES)
		return 0;
	r = zip_read_at(fd, what, end - WHERE64_BYTES, where, sizeof(where));
	if (r < 0 || get_u32le(where) != SIG_WHERE64)
		return r;
	r = zip_read_at(fd, what, get_u64le(where + 8), big, sizeof(big));
	if (r < 0)
		return r;
	if (get_u32le(big) != SIG_END64)
		return fail(-EUCLEAN, "'%s': the zip64 end record is not where it should be", what);
	ret->n = get_u64le(big + 32);
	ret->size = get_u64le(big + 40);
	ret->at = get_u64le(big + 48);
	return 0;
}

/* Parse values that did not fit in the entry, in its order; false when one is truncated. */
static bool read_zip64(struct span extra, struct zip_member *m)
{
	struct wire w = wire_of(extra);

	while (wire_left(&w) >= 4) {
		uint16_t id = wire_u16le(&w);
		struct wire field = wire_of(wire_bytes(&w, wire_u16le(&w)));

		if (id != 1)
			continue;
		if (m->size == BIG)
			m->size = wire_u64le(&field);
		if (m->packed == BIG)
			m->packed = wire_u64le(&field);
		if (m->header == BIG)
			m->header = wire_u64le(&field);
		if (!wire_ok(&field))
			return false;
	}
	return true;
}

static int zip_read_entry(struct wire *w, const char *what, struct zip_reader *z,
			  struct zip_member *m)
{
	uint32_t sig = wire_u32le(w);
	uint16_t flags, method, name, extra, comment;
	struct span text;
	bool is_whole;

	wire_bytes(w, 4);
	flags = wire_u16le(w);
	method = wire_u16le(w);
	wire_bytes(w, 4);
	m->crc = wire_u32le(w);
	m->packed = wire_u32le(w);
	m->size = wire_u32le(w);
	name = wire_u16le(w);
	extra = wire_u16le(w);
	comment = wire_u16le(w);
	wire_bytes(w, 8);
	m->header = wire_u32le(w);
	text = wire_bytes(w, name);
	is_whole = read_zip64(wire_bytes(w, extra), m);
	wire_bytes(w, comment);
	if (!wire_ok(w) || sig != SIG_ENTRY || !is_whole)
		return fail(-EUCLEAN, "'%s': its directory is broken", what);
	if (arena_keep(&z->arena, text, &m->name) < 0)
		return fail(-ENOMEM, "cannot list '%s'", what);
	if (memchr(text.p, '\0', text.n))
		return fail(-EUCLEAN, "'%s': the name of a member holds a NUL", what);
	if (flags & FLAG_ENCRYPTED || (method != 0 && method != 8))
		return fail(-EOPNOTSUPP, "'%s': member '%.*s' is %s %u", what, SPAN_ARG(m->name),
			    flags & FLAG_ENCRYPTED ? "encrypted, method" : "packed by method",
			    method);
	m->is_deflated = method == 8;
	if (m->header > z->file_size || m->packed > z->file_size - m->header ||
	    (!m->is_deflated && m->packed != m->size))
		return fail(-EUCLEAN, "'%s': member '%.*s' does not lie in the file", what,
			    SPAN_ARG(m->name));
	return 0;
}

int zip_open(int fd, const char *what, struct zip_reader *ret)
{
	auto_zip_reader z = { 0 };
	struct directory d = { 0 };
	struct stat st;
	uint8_t *bytes;
	struct wire w;
	int r;

	if (fstat(fd, &st) < 0)
		return err_sys("cannot look at", what);
	z.file_size = (uint64_t)st.st_size;
	r = find_end(fd, what, z.file_size, &z.arena, &d);
	if (r < 0)
		return r;
	if (d.at > z.file_size || d.size > z.file_size - d.at || d.n > d.size / 46)
		return fail(-EUCLEAN, "'%s': its directory does not lie in the file", what);
	if (d.size > ZIP_DIRECTORY_MAX)
		return fail(-EFBIG, "'%s': a directory of %llu bytes, the limit is %llu", what,
			    (unsigned long long)d.size, (unsigned long long)ZIP_DIRECTORY_MAX);
	bytes = arena_alloc(&z.arena, d.size + 1);
	z.member = arena_calloc(&z.arena, d.n + 1, sizeof(*z.member));
	if (!bytes || !z.member)
		return fail(-ENOMEM, "cannot list '%s'", what);
	r = zip_read_at(fd, what, d.at, bytes, d.size);
	if (r < 0)
		return r;
	w = wire_of(span_of(bytes, d.size));
	for (; z.n < d.n; z.n++) {
		r = zip_read_entry(&w, what, &z, &z.member[z.n]);
		if (r < 0)
			return r;
	}
	z.comment = d.comment;
	*ret = z;
	z = (struct zip_reader){ 0 };
	return 0;
}

void zip_reader_release(struct zip_reader *z)
{
	arena_release(&z->arena);
	*z = (struct zip_reader){ 0 };
}

int zip_member_at(int fd, const char *what, const struct zip_member *m, uint64_t file_size,
		  uint64_t *ret)
{
	uint8_t head[LOCAL_BYTES];
	auto_buf text = { 0 };
	size_t name;
	uint64_t at;
	int r = zip_read_at(fd, what, m->header, head, sizeof(head));

	if (r < 0)
		return r;
	name = (size_t)(head[26] | head[27] << 8);
	at = m->header + LOCAL_BYTES + name + (uint64_t)(head[28] | head[29] << 8);
	if (get_u32le(head) != SIG_LOCAL || at > file_size || m->packed > file_size - at)
		return fail(-EUCLEAN, "'%s': member '%.*s' is not where the directory says", what,
			    SPAN_ARG(m->name));
	r = buf_reserve(&text, name);
	if (r < 0)
		return r;
	r = zip_read_at(fd, what, m->header + LOCAL_BYTES, text.p, name);
	if (r < 0)
		return r;
	text.n = name;
	if (!span_eq(buf_span(&text), m->name))
		return fail(-EUCLEAN,
			    "'%s': member '%.*s' of its directory is called '%.*s' at its data",
			    what, SPAN_ARG(m->name), SPAN_ARG(text));
	*ret = at;
	return 0;
}

/* ---- writing ---- */

static bool is_big(const struct zip_member *m)
{
	return m->size >= BIG;
}

uint64_t zip_local_size(struct span name)
{
	return LOCAL_BYTES + name.n + 20;
}

/* Write version, flags, method, a fixed time (1980), crc and sizes. */
static int put_common(const struct zip_member *m, bool big, struct buf *ret)
{
	uint32_t size = big ? BIG : (uint32_t)m->size;

	if (wire_put_u16le(ret, 45) < 0 || wire_put_u16le(ret, FLAG_UTF8) < 0 ||
	    wire_put_u16le(ret, 0) < 0 || wire_put_u32le(ret, 0x00210000u) < 0 ||
	    wire_put_u32le(ret, m->crc) < 0 || wire_put_u32le(ret, size) < 0 ||
	    wire_put_u32le(ret, size) < 0)
		return -ENOMEM;
	return wire_put_u16le(ret, (uint16_t)m->name.n);
}

int zip_put_local(const struct zip_member *m, struct buf *ret)
{
	if (m->name.n > 65535)
		return fail(-EINVAL, "'%.*s' is too long for a zip archive", SPAN_ARG(m->name));
	if (wire_put_u32le(ret, SIG_LOCAL) < 0 || put_common(m, is_big(m), ret) < 0 ||
	    wire_put_u16le(ret, 20) < 0 || buf_add_span(ret, m->name) < 0)
		return -ENOMEM;
	/* The field is always there; readers use it only when a size requires it. */
	if (wire_put_u16le(ret, is_big(m) ? 1 : 0xcafe) < 0 || wire_put_u16le(ret, 16) < 0 ||
	    wire_put_u64le(ret, m->size) < 0)
		return -ENOMEM;
	return wire_put_u64le(ret, m->size);
}

static int zip_put_entry(const struct zip_member *m, struct buf *ret)
{
	bool big = is_big(m), far = m->header >= BIG;
	uint16_t extra = (uint16_t)((big || far ? 4 : 0) + (big ? 16 : 0) + (far ? 8 : 0));

	if (wire_put_u32le(ret, SIG_ENTRY) < 0 || wire_put_u16le(ret, 3 << 8 | 45) < 0 ||
	    put_common(m, big, ret) < 0 || wire_put_u16le(ret, extra) < 0 ||
	    buf_add_zero(ret, 6) < 0)
		return -ENOMEM;
	/* A regular file that all may read and its owner may write. */
	if (wire_put_u32le(ret, 0100644u << 16) < 0 ||
	    wire_put_u32le(ret, far ? BIG : (uint32_t)m->header) < 0 ||
	    buf_add_span(ret, m->name) < 0)
		return -ENOMEM;
	if (extra && (wire_put_u16le(ret, 1) < 0 || wire_put_u16le(ret, (uint16_t)(extra - 4)) < 0))
		return -ENOMEM;
	if (big && (wire_put_u64le(ret, m->size) < 0 || wire_put_u64le(ret, m->size) < 0))
		return -ENOMEM;
	return far ? wire_put_u64le(ret, m->header) : 0;
}

static int put_end64(size_t n, uint64_t at, uint64_t size, struct buf *ret)
{
	if (wire_put_u32le(ret, SIG_END64) < 0 || wire_put_u64le(ret, END64_BYTES - 12) < 0 ||
	    wire_put_u32le(ret, (3u << 8 | 45) | 45u << 16) < 0 || buf_add_zero(ret, 8) < 0)
		return -ENOMEM;
	if (wire_put_u64le(ret, n) < 0 || wire_put_u64le(ret, n) < 0 ||
	    wire_put_u64le(ret, size) < 0 || wire_put_u64le(ret, at) < 0)
		return -ENOMEM;
	if (wire_put_u32le(ret, SIG_WHERE64) < 0 || buf_add_zero(ret, 4) < 0 ||
	    wire_put_u64le(ret, at + size) < 0)
		return -ENOMEM;
	return wire_put_u32le(ret, 1);
}

int zip_put_directory(const struct zip_member *m, size_t n, uint64_t at, struct span comment,
		      struct buf *ret)
{
	size_t begin = ret->n;
	uint64_t size;
	uint16_t few = (uint16_t)MIN(n, (size_t)0xffff);
	bool big;
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++)
		r = zip_put_entry(&m[i], ret);
	size = ret->n - begin;
	big = n >= 0xffff || at >= BIG || size >= BIG;
	if (r < 0)
		return r;
	if ((big && put_end64(n, at, size, ret) < 0) || wire_put_u32le(ret, SIG_END) < 0 ||
	    buf_add_zero(ret, 4) < 0 || wire_put_u16le(ret, few) < 0 ||
	    wire_put_u16le(ret, few) < 0 ||
	    wire_put_u32le(ret, size >= BIG ? BIG : (uint32_t)size) < 0 ||
	    wire_put_u32le(ret, at >= BIG ? BIG : (uint32_t)at) < 0 ||
	    wire_put_u16le(ret, (uint16_t)comment.n) < 0)
		return -ENOMEM;
	return buf_add_span(ret, comment);
}
