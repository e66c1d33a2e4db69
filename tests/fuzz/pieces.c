/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces.c - pieces <-> bytes, and the files that they make up.
 *
 * What cannot be made (a record whose text is not understood, a path below a file) is left out:
 * the target is about what is read.
 */
#include "tests/fuzz/pieces.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/crc32c.h"
#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/wire.h"
#include "core/codec/codec.h"
#include "core/io/io.h"
#include "core/kv/kv_sum.h"
#include "core/kv/kv_table.h"
#include "core/ocdbt/record.h"
#include "tests/fuzz/fuzz.h"

#define NAME_MAX_BYTES 120

const char piece_kinds[] = "btmnvMNVcsieTDldfx";
static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
_Static_assert(sizeof(digits) > PIECES_MAX, "each piece has a digit");

static int digit_value(uint8_t c)
{
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* ---- bytes ---- */

void pieces_parse(struct span input, struct pieces *ret)
{
	struct wire w = wire_of(span_from(input, 1));

	ret->flags = input.n ? input.p[0] : 0;
	ret->n = 0;
	while (ret->n < PIECES_MAX && wire_left(&w) >= 4) {
		struct piece *p = &ret->piece[ret->n++];
		size_t n_name, n;

		p->kind = (char)wire_u8(&w);
		if (!p->kind || !strchr(piece_kinds, p->kind))
			p->kind = piece_kinds[(uint8_t)p->kind % (sizeof(piece_kinds) - 1)];
		n_name = wire_u8(&w);
		n = wire_u16le(&w);
		p->name = wire_bytes(&w, MIN(n_name, wire_left(&w)));
		p->data = wire_bytes(&w, MIN(n, wire_left(&w)));
	}
}

void pieces_print(const struct pieces *p, struct buf *ret)
{
	must(buf_add_byte(ret, p->flags) == 0);
	for (unsigned i = 0; i < p->n; i++) {
		const struct piece *one = &p->piece[i];
		size_t n_name = MIN(one->name.n, (size_t)UINT8_MAX);
		size_t n = MIN(one->data.n, (size_t)UINT16_MAX);

		must(buf_add_byte(ret, (uint8_t)one->kind) == 0);
		must(buf_add_byte(ret, (uint8_t)n_name) == 0);
		must(wire_put_u16le(ret, (uint16_t)n) == 0);
		must(buf_add(ret, one->name.p, n_name) == 0);
		must(buf_add(ret, one->data.p, n) == 0);
	}
}

/* ---- what a piece becomes ---- */

/* The files so far. */
struct making {
	const struct pieces *p;
	struct made_file {
		char name[NAME_MAX_BYTES + 1];
		struct buf bytes;
	} file[PIECES_MAX];
	unsigned n_files;
	size_t bytes;
	struct place {
		int file; /* -1: none */
		size_t off, n;
	} place[PIECES_MAX]; /* of each piece */
};

/* "$3" becomes offset and length of piece 3. */
static void expand(const struct making *m, struct span text, struct buf *ret)
{
	for (size_t i = 0; i < text.n; i++) {
		int of = text.p[i] == '$' && i + 1 < text.n ? digit_value(text.p[i + 1]) : -1;

		if (of < 0 || of >= (int)m->p->n) {
			must(buf_add_byte(ret, text.p[i]) == 0);
			continue;
		}
		must(buf_addf(ret, "%zu %zu", m->place[of].off, m->place[of].n) >= 0);
		i++;
	}
}

static void make_text(const struct making *m, struct span data, struct buf *ret)
{
	auto_buf text = { 0 };

	expand(m, data, &text);
	ocdbt_record_undump(buf_span(&text), ret);
}

static void make_index(const struct making *m, struct span data, struct buf *ret)
{
	for (size_t i = 0; i < data.n; i++) {
		int of = digit_value(data.p[i]);
		bool is_there = of >= 0 && of < (int)m->p->n;

		must(wire_put_u64le(ret, is_there ? m->place[of].off : UINT64_MAX) == 0);
		must(wire_put_u64le(ret, is_there ? m->place[of].n : UINT64_MAX) == 0);
	}
}

static void make_encoded(struct span data, struct buf *ret)
{
	const uint8_t *nul = data.n ? memchr(data.p, 0, data.n) : NULL;
	struct span spec = span_of(data.p, nul ? (size_t)(nul - data.p) : 0);
	struct codec_chain chain = { .dialect = CODEC_V2, .n = 1 };
	struct arena arena = { 0 };
	auto_json doc = { 0 };

	if (json_parse(spec, "codec", &doc) >= 0 &&
	    codec_parse(doc.root, CODEC_V2, 4, &arena, &chain.codec[0]) >= 0)
		codec_encode(&chain, span_from(data, spec.n + 1), ret);
	arena_release(&arena);
}

/* The key that readers have for a file: below the directory that the table's directory is in. */
static void make_table(const struct making *m, const char *table, struct buf *ret)
{
	const char *dir = strstr(table, KV_TABLE_DIR "/");
	size_t n_dir = dir ? (size_t)(dir - table) : 0;
	auto_kv_table t = { 0 };

	for (unsigned i = 0; i < m->n_files; i++)
		if (!strncmp(m->file[i].name, table, n_dir))
			must(kv_table_add(&t, span_str(m->file[i].name + n_dir),
					  crc32c(buf_span(&m->file[i].bytes))) == 0);
	kv_table_pack(&t, ret);
}

static void make_digest(struct span data, struct buf *ret)
{
	const uint8_t *nul = data.n ? memchr(data.p, 0, data.n) : NULL;
	struct span leaf = span_of(data.p, nul ? (size_t)(nul - data.p) : 0);
	uint8_t digest[32];

	sha256(span_from(data, leaf.n + 1), digest);
	for (size_t i = 0; i < sizeof(digest); i++)
		must(buf_addf(ret, "%02x", digest[i]) >= 0);
	must(buf_addf(ret, "  %.*s\n", SPAN_ARG(leaf)) >= 0);
}

static void make_record(char kind, struct span body, struct buf *ret)
{
	static const char lower[] = "mvn";
	static const enum ocdbt_record record[] = { OCDBT_MANIFEST, OCDBT_VERSIONNODE,
						    OCDBT_BTREENODE };
	struct ocdbt_config compress = { .compression = OCDBT_ZSTD };
	bool is_plain = strchr(lower, kind) != NULL;
	const char *at = strchr(lower, is_plain ? kind : kind - 'A' + 'a');

	must(at != NULL);
	ocdbt_frame_pack(record[at - lower], is_plain ? NULL : &compress, body, ret);
}

static void make(const struct making *m, unsigned i, const char *name, struct buf *ret)
{
	const struct piece *p = &m->p->piece[i];
	const struct place *last = i ? &m->place[i - 1] : NULL;
	struct span before = { 0 };

	if (last && last->file >= 0)
		before = span_of(span_from(buf_span(&m->file[last->file].bytes), last->off).p,
				 last->n);
	switch (p->kind) {
	case PIECE_TEXT:
		make_text(m, p->data, ret);
		break;
	case PIECE_CRC:
		must(wire_put_u32le(ret, crc32c(before)) == 0);
		break;
	case PIECE_TRAILER:
		must(buf_add_zero(ret, KV_SUM_BYTES) == 0);
		kv_sum_pack(crc32c(before), ret->p);
		break;
	case PIECE_INDEX:
		make_index(m, p->data, ret);
		break;
	case PIECE_ENCODED:
		make_encoded(p->data, ret);
		break;
	case PIECE_TABLE:
		make_table(m, name, ret);
		break;
	case PIECE_DIGESTS:
		make_digest(p->data, ret);
		break;
	case PIECE_AS_IS:
		must(buf_add_span(ret, p->data) == 0);
		break;
	default:
		make_record(p->kind, p->data, ret);
		break;
	}
	err_clear();
}

/* ---- files ---- */

/* A path below the directory, as a string; false when it is not one. */
static bool get_name(struct span name, char ret[NAME_MAX_BYTES + 1])
{
	if (name.n == 0 || name.n > NAME_MAX_BYTES || io_path_check(name, "name") < 0) {
		err_clear();
		return false;
	}
	memcpy(ret, name.p, name.n);
	ret[name.n] = '\0';
	return true;
}

static int find_file(struct making *m, const char *name)
{
	for (unsigned i = 0; i < m->n_files; i++)
		if (!strcmp(m->file[i].name, name))
			return (int)i;
	strcpy(m->file[m->n_files].name, name);
	return (int)m->n_files++;
}

/* Its directories are made; false when it cannot be. */
static bool make_parents(char *path, size_t skip)
{
	for (char *slash = strchr(path + skip, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(path, 0777) < 0 && errno != EEXIST) {
			*slash = '/';
			return false;
		}
		*slash = '/';
	}
	return true;
}

static void write_one(const char *dir, const char *name, char kind, struct span data)
{
	auto_free char *path = str_fmt("%s/%s", dir, name), *target = span_dup_str(data);
	auto_close int fd = -1;

	must(path && target);
	if (!make_parents(path, strlen(dir) + 1))
		return;
	switch (kind) {
	case PIECE_LINK:
		(void)!symlink(target, path);
		break;
	case PIECE_DIR:
		mkdir(path, 0777);
		break;
	case PIECE_FIFO:
		mkfifo(path, 0666);
		break;
	default:
		/* Not through a link, which may lead out. */
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
		if (fd >= 0)
			must(write(fd, data.p, data.n) == (ssize_t)data.n);
	}
}

static void add_piece(struct making *m, unsigned i, const char *name)
{
	int file = find_file(m, name);
	struct buf *bytes = &m->file[file].bytes;
	auto_buf made = { 0 };

	make(m, i, name, &made);
	if (made.n > PIECES_BYTES_MAX - m->bytes)
		return;
	m->place[i] = (struct place){ file, bytes->n, made.n };
	m->bytes += made.n;
	must(buf_add_span(bytes, buf_span(&made)) == 0);
}

void pieces_write(const struct pieces *p, const char *dir, struct buf *rules)
{
	struct making *m = calloc(1, sizeof(*m));
	char name[NAME_MAX_BYTES + 1] = "";

	must(m != NULL);
	m->p = p;
	for (unsigned i = 0; i < p->n; i++) {
		const struct piece *one = &p->piece[i];

		m->place[i].file = -1;
		if (one->name.n && !get_name(one->name, name))
			continue;
		if (one->kind == PIECE_RULES) {
			buf_clear(rules);
			must(buf_add_span(rules, one->data) == 0);
		} else if (!*name) {
			continue;
		} else if (strchr("ldf", one->kind)) {
			write_one(dir, name, one->kind, one->data);
		} else {
			add_piece(m, i, name);
		}
	}
	for (unsigned i = 0; i < m->n_files; i++) {
		write_one(dir, m->file[i].name, PIECE_AS_IS, buf_span(&m->file[i].bytes));
		buf_release(&m->file[i].bytes);
	}
	free(m);
}
