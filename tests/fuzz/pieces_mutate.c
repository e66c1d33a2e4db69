/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces_mutate.c - mutations for libFuzzer: they change the data of one piece, a number or a word
 * in it, or the list of pieces.
 *
 * libFuzzer's own mutations would break lengths, so they are applied only to the data of a piece.
 */
#include <string.h>

#include "core/base/digest.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/pieces.h"

#define GROWTH 128 /* bytes that one mutation may add to a piece */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t n_a, const uint8_t *b, size_t n_b,
				 uint8_t *out, size_t max, unsigned seed);

/* ---- chance ---- */

static uint64_t state;

static size_t chance(size_t n)
{
	state = mix64(state + 0x9e3779b97f4a7c15);
	return n ? state % n : 0;
}

/* ---- words ---- */

static const char *const numbers[] = {
	"0",
	"1",
	"2",
	"3",
	"4",
	"7",
	"8",
	"9",
	"16",
	"31",
	"32",
	"33",
	"64",
	"100",
	"255",
	"256",
	"4096",
	"65535",
	"65536",
	"1048576",
	"4194304",
	"4194305",
	"16777216",
	"2147483647",
	"2147483648",
	"4294967295",
	"4294967296",
	"1099511627776",
	"9223372036854775807",
	"9223372036854775808",
	"18446744073709551615",
	"18446744073709551616",
	"-1",
	"-2",
	"1e308",
	"0.5",
	"null",
	"true",
	"[]",
	"{}",
};

static const char *const words[] = {
	"<f4",
	"<f8",
	">f4",
	"<f2",
	"|u1",
	"|i1",
	"<i8",
	"|b1",
	"<c8",
	"<c16",
	"bfloat16",
	"|V2",
	"float8_e4m3fn",
	"int4",
	"int2",
	"float32",
	"float64",
	"uint8",
	"int64",
	"bool",
	"complex64",
	"NaN",
	"Infinity",
	"-Infinity",
	"0x7f800000",
	"C",
	"F",
	".",
	"/",
	"zstd",
	"blosc",
	"gzip",
	"zlib",
	"bz2",
	"crc32c",
	"bytes",
	"transpose",
	"sharding_indexed",
	"regular",
	"default",
	"v2",
	"little",
	"big",
	"start",
	"end",
	"lz4",
	"shuffle",
	"bitshuffle",
	"noshuffle",
	"jax.Array",
	"np.ndarray",
	"scalar",
	"string",
	"int",
	"float",
	"None",
	"Dict",
	"List",
	"Tuple",
	"NamedTuple",
	"placeholder",
	"..",
	"w",
	"s",
	"p",
	"default",
	"d/0",
	"ocdbt.process_0/",
};

/* A run of digits of the data from a random place on: its end, or 0. */
static size_t find_run(struct span data, bool (*is)(uint8_t), size_t *ret_at)
{
	size_t at = chance(data.n), end;

	while (at < data.n && !is(data.p[at]))
		at++;
	while (at > 0 && at < data.n && is(data.p[at - 1]))
		at--;
	for (end = at; end < data.n && is(data.p[end]);)
		end++;
	*ret_at = at;
	return end;
}

static bool is_digit(uint8_t c)
{
	return c >= '0' && c <= '9';
}

static bool is_in_string(uint8_t c)
{
	return c != '"' && c >= ' ';
}

/* data with [at, end) replaced. */
static void replace(struct span data, size_t at, size_t end, struct span with, struct buf *ret)
{
	must(buf_add(ret, data.p, at) == 0);
	must(buf_add_span(ret, with) == 0);
	must(buf_add_span(ret, span_from(data, end)) == 0);
}

static void change_number(struct span data, struct buf *ret)
{
	size_t at, end = find_run(data, is_digit, &at);

	replace(data, at, end, span_str(numbers[chance(ARRAY_LEN(numbers))]), ret);
}

static void change_word(struct span data, struct buf *ret)
{
	size_t at, end = find_run(data, is_in_string, &at);

	replace(data, at, end, span_str(words[chance(ARRAY_LEN(words))]), ret);
}

static void change_bytes(struct span data, struct buf *ret)
{
	size_t max = data.n + GROWTH;

	must(buf_add_span(ret, data) == 0 && buf_add_zero(ret, GROWTH) == 0);
	ret->n = LLVMFuzzerMutate(ret->p, data.n, max);
}

/* A line twice, or not at all. */
static void change_lines(struct span data, struct buf *ret)
{
	size_t at = chance(data.n), end, where;

	while (at > 0 && data.p[at - 1] != '\n')
		at--;
	for (end = at; end < data.n && data.p[end] != '\n';)
		end++;
	end = MIN(end + 1, data.n);
	if (chance(2)) {
		replace(data, at, end, (struct span){ 0 }, ret);
		return;
	}
	where = chance(2) ? end : at;
	replace(data, where, where, span_from(span_of(data.p, end), at), ret);
}

/* ---- pieces ---- */

static void remove_piece(struct pieces *p, unsigned i)
{
	p->n--;
	memmove(p->piece + i, p->piece + i + 1, (p->n - i) * sizeof(*p->piece));
}

static void insert_piece(struct pieces *p, unsigned at, struct piece piece)
{
	if (p->n == PIECES_MAX)
		return;
	memmove(p->piece + at + 1, p->piece + at, (p->n - at) * sizeof(*p->piece));
	p->piece[at] = piece;
	p->n++;
}

/* Another file's name, one of a few, or its own with a change. */
static void rename_piece(struct pieces *p, struct piece *one, struct buf *room)
{
	static const char *const names[] = {
		"_METADATA",
		"_CHECKPOINT_METADATA",
		"manifest.ocdbt",
		"checkpoint",
		"_sharding",
		"_strings.json",
		"array_metadatas/process_0",
		".sha256sums",
		"w/.zarray",
		"w/zarr.json",
		"w/0",
		"w/c/0",
		"s",
		"ocdbt.process_0/manifest.ocdbt",
		"d/0",
		"1/default/_METADATA",
		"commit_success.txt",
		"descriptor/descriptor.pbtxt",
		"metrics/metrics",
	};

	switch (chance(3)) {
	case 0:
		one->name = p->piece[chance(p->n)].name;
		break;
	case 1:
		one->name = span_str(names[chance(ARRAY_LEN(names))]);
		break;
	default:
		buf_clear(room);
		change_bytes(one->name, room);
		one->name = buf_span(room);
	}
}

static void change_data(struct piece *one, struct buf *room)
{
	static void (*const how[])(struct span, struct buf *) = {
		change_bytes,  change_bytes,  change_bytes, change_bytes,
		change_number, change_number, change_word,  change_lines,
	};

	buf_clear(room);
	how[chance(ARRAY_LEN(how))](one->data, room);
	one->data = buf_span(room);
}

static void change_pieces(struct pieces *p, struct buf *room)
{
	unsigned i = (unsigned)chance(p->n), k = (unsigned)chance(p->n);
	struct piece one = p->piece[i];

	switch (chance(6)) {
	case 0:
		remove_piece(p, i);
		break;
	case 1:
		rename_piece(p, &one, room);
		insert_piece(p, k, one);
		break;
	case 2:
		p->piece[i] = p->piece[k];
		p->piece[k] = one;
		break;
	case 3:
		p->piece[i].kind = piece_kinds[chance(strlen(piece_kinds))];
		break;
	case 4:
		rename_piece(p, &p->piece[i], room);
		break;
	default:
		p->flags ^= (uint8_t)(1u << chance(8));
	}
}

static size_t print(const struct pieces *p, uint8_t *out, size_t max)
{
	auto_buf bytes = { 0 };

	pieces_print(p, &bytes);
	memcpy(out, bytes.p, MIN(bytes.n, max));
	return MIN(bytes.n, max);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
	static struct pieces p;
	auto_buf input = { 0 }, room = { 0 }, more = { 0 };

	state = seed;
	must(buf_add(&input, data, size) == 0);
	pieces_parse(buf_span(&input), &p);
	if (p.n == 0)
		return LLVMFuzzerMutate(data, size, max);
	if (chance(5)) {
		change_data(&p.piece[chance(p.n)], &room);
		if (chance(3) == 0)
			change_data(&p.piece[chance(p.n)], &more);
	} else {
		change_pieces(&p, &room);
	}
	return print(&p, data, max);
}

/* A piece of b, in the place of one of a or beside it. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t n_a, const uint8_t *b, size_t n_b,
				 uint8_t *out, size_t max, unsigned seed)
{
	static struct pieces p, from;
	unsigned i;

	state = seed;
	pieces_parse(span_of(a, n_a), &p);
	pieces_parse(span_of(b, n_b), &from);
	if (p.n && from.n) {
		const struct piece *one = &from.piece[chance(from.n)];

		i = (unsigned)chance(p.n);
		if (chance(2))
			insert_piece(&p, i, *one);
		else if (chance(2))
			p.piece[i].data = one->data;
		else
			p.piece[i] = *one;
	}
	return print(&p, out, max);
}
