/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name.c - key <-> file name.
 *
 * tree_name.c finds the child of a tree by name; name_view.c parses the part of a name after the
 * stem.
 *
 * Invariants: name_unescape(name_escape(key)) is key for every key whose name is not shortened; for
 * every stem and place at most one key is accepted; no result contains '/', NUL, '[', ']' or '@',
 * is "." or "..", or is longer than LIMIT_NAME_BYTES.
 */
#include "core/tree/name.h"

#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/json.h"

#define HASH_DIGITS 16

/* Those of plugins are NULL until they are loaded, before other threads exist. */
static const char *ext_text[NAME_EXT_COUNT] = {
	"", ".npy", ".bin", ".json", ".txt", ".null", ".safetensors", ".html",
};

/* Indexed by the bits of enum name_ours. */
static const char *const names_of_ours[] = { "_METADATA", "_CHECKPOINT_METADATA", ".pytreefs" };

const char *name_ext_text(enum name_ext ext)
{
	return ext_text[ext] ? ext_text[ext] : "";
}

int name_ext_add(const char *text, enum name_ext *ret)
{
	for (int ext = NAME_EXT_NPY; ext < NAME_EXT_COUNT; ext++) {
		if (ext_text[ext] && strcmp(ext_text[ext], text))
			continue;
		if (ext < NAME_EXT_PLUGIN)
			return fail(-EINVAL, "'%s' is an extension of ours", text);
		ext_text[ext] = text;
		*ret = (enum name_ext)ext;
		return 0;
	}
	return fail(-EFBIG, "more than %d extensions", NAME_EXT_COUNT - NAME_EXT_PLUGIN);
}

enum name_ext name_ext_of(struct span name)
{
	for (int ext = NAME_EXT_NPY; ext < NAME_EXT_COUNT; ext++)
		if (ext_text[ext] && span_ends(name, span_str(ext_text[ext])))
			return (enum name_ext)ext;
	return NAME_EXT_NONE;
}

bool name_is_hashed(struct span stem)
{
	if (stem.n < HASH_DIGITS + 1 || stem.p[stem.n - HASH_DIGITS - 1] != '~')
		return false;
	for (size_t i = stem.n - HASH_DIGITS; i < stem.n; i++) {
		uint8_t c = stem.p[i];

		if ((c < '0' || c > '9') && (c < 'a' || c > 'f'))
			return false;
	}
	return true;
}

static bool is_ours(struct span key, unsigned ours)
{
	for (size_t i = 0; i < ARRAY_LEN(names_of_ours); i++)
		if (ours & 1u << i && span_eq(key, span_str(names_of_ours[i])))
			return true;
	return false;
}

/* Append the stem of a key, of any length. bare: no extension will follow. */
static int escape_stem(struct span key, bool bare, unsigned ours, struct buf *ret)
{
	static const char always[] = "/%[]@";
	bool dots = span_eq(key, span_str(".")) || span_eq(key, span_str(".."));
	/* The byte that is escaped because of its place; key.n: none. */
	size_t odd = key.n;
	int r = 0;

	if (key.n == 0)
		return buf_add_byte(ret, '%');
	if (name_is_hashed(key))
		odd = key.n - HASH_DIGITS - 1;
	else if (bare && name_ext_of(key))
		odd = key.n - strlen(name_ext_text(name_ext_of(key)));
	else if (bare && is_ours(key, ours))
		odd = 0;
	for (size_t i = 0; i < key.n && r >= 0; i++) {
		uint8_t c = key.p[i];

		if (c == '\0' || strchr(always, c) || (dots && c == '.') || i == odd)
			r = buf_addf(ret, "%%%02X", c);
		else
			r = buf_add_byte(ret, c);
	}
	return r;
}

/*
 * The number of bytes of a stem to keep: at most max, without splitting a character or an escape.
 */
static size_t keep_len(struct span stem, size_t max)
{
	size_t n = 0;

	while (n < stem.n) {
		size_t unit = stem.p[n] == '%' ? 3 : MAX(utf8_len(span_from(stem, n)), (size_t)1);

		unit = MIN(unit, stem.n - n);
		if (n + unit > max)
			break;
		n += unit;
	}
	return n;
}

static bool is_bare(enum name_use use, enum name_ext ext)
{
	return use == NAME_CONTAINER || ext == NAME_EXT_NONE;
}

/* Hash the key; for a further attempt, followed by a NUL and the number of the attempt. */
static int hash_key(struct span key, unsigned attempt, uint8_t ret[32])
{
	auto_buf salted = { 0 };

	if (attempt) {
		if (buf_add_span(&salted, key) < 0 || buf_addf(&salted, "%c%u", '\0', attempt) < 0)
			return -ENOMEM;
		key = buf_span(&salted);
	}
	sha256(key, ret);
	return 0;
}

int name_escape_hashed(struct span key, enum name_use use, enum name_ext ext, unsigned attempt,
		       struct buf *ret)
{
	auto_buf name = { .metered = true };
	char digits[HASH_DIGITS + 1];
	uint8_t digest[32];
	int r = escape_stem(key, is_bare(use, ext), 0, &name);

	if (r < 0)
		return r;
	r = hash_key(key, attempt, digest);
	if (r < 0)
		return r;
	name.n = keep_len(buf_span(&name), LIMIT_NAME_KEEP);
	hex_text(span_of(digest, HASH_DIGITS / 2), digits);
	r = buf_addf(&name, "~%s%s", digits, name_ext_text(ext));
	return r < 0 ? r : buf_add_span(ret, buf_span(&name));
}

int name_escape(struct span key, enum name_use use, enum name_ext ext, unsigned ours,
		struct buf *ret)
{
	size_t was = ret->n;
	int r = escape_stem(key, is_bare(use, ext), ours, ret);

	if (r >= 0)
		r = buf_add_str(ret, name_ext_text(ext));
	if (r >= 0 && ret->n - was <= LIMIT_NAME_BYTES)
		return 0;
	ret->n = was;
	return r < 0 ? r : name_escape_hashed(key, use, ext, 0, ret);
}

static int upper_hex(uint8_t c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Undo %XX; the caller checks whether each was needed. */
static int decode(struct span stem, struct buf *ret)
{
	int r = 0;

	if (span_eq(stem, span_str("%")))
		return 0;
	for (size_t i = 0; i < stem.n && r >= 0; i++) {
		int high, low;

		if (stem.p[i] != '%') {
			r = buf_add_byte(ret, stem.p[i]);
			continue;
		}
		high = i + 2 < stem.n ? upper_hex(stem.p[i + 1]) : -1;
		low = i + 2 < stem.n ? upper_hex(stem.p[i + 2]) : -1;
		if (high < 0 || low < 0)
			return fail(-EINVAL, "name '%.*s' has a malformed escape", SPAN_ARG(stem));
		r = buf_add_byte(ret, (uint8_t)(high << 4 | low));
		i += 2;
	}
	return r;
}

int name_unescape(struct span stem, enum name_use use, unsigned ours, struct buf *ret_key)
{
	auto_buf key = { 0 }, again = { 0 };
	int r;

	if (stem.n > LIMIT_NAME_BYTES)
		return fail(-EINVAL, "name of %zu bytes is longer than %d", stem.n,
			    LIMIT_NAME_BYTES);
	if (name_is_hashed(stem))
		return fail(-EINVAL, "name '%.*s' is shortened: its key is in user.pytree.key",
			    SPAN_ARG(stem));
	r = decode(stem, &key);
	if (r < 0)
		return r;
	/*
	 * The escaped spelling of one of our names may have been copied from a place where it is
	 * needed; other names are spelled alike everywhere.
	 */
	if (span_starts(stem, span_str("%")))
		ours = NAME_OURS_ALL;
	r = escape_stem(buf_span(&key), use == NAME_CONTAINER, ours, &again);
	if (r < 0)
		return r;
	if (!span_eq(buf_span(&again), stem))
		return fail(-EINVAL, "name '%.*s' must be spelled '%.*s'", SPAN_ARG(stem),
			    SPAN_ARG(again));
	return buf_add_span(ret_key, buf_span(&key));
}
