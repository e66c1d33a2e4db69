/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.c - records as text for people. undump.c does the reverse.
 */
#include <inttypes.h>

#include "core/base/err.h"
#include "core/ocdbt/record.h"
#include "core/ocdbt/text.h"

static const char *const kinds[] = TEXT_KINDS;

static const uint8_t magics[][4] = {
	[OCDBT_MANIFEST] = { 0x0c, 0xdb, 0x3a, 0x2a },
	[OCDBT_VERSIONNODE] = { 0x0c, 0xdb, 0x12, 0x34 },
	[OCDBT_BTREENODE] = { 0x0c, 0xdb, 0x20, 0xde },
};

/* plain is the set of bytes, besides letters and digits, that are not escaped. */
static int put_escaped(struct buf *out, struct span s, const char *plain)
{
	static const char hex[] = "0123456789ABCDEF";
	int r = buf_reserve(out, s.n);

	for (size_t i = 0; i < s.n && r >= 0; i++) {
		uint8_t c = s.p[i];
		bool letter = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
		char esc[3] = { '%', hex[c >> 4], hex[c & 15] };

		if (letter || (c && strchr(plain, c)))
			r = buf_add_byte(out, c);
		else
			r = buf_add(out, esc, 3);
	}
	return r;
}

static int put_quoted(struct buf *out, struct span s)
{
	int r = buf_add_byte(out, '"');

	if (r < 0)
		return r;
	r = put_escaped(out, s, " !#$&'()*+,-./:;<=>?@[\\]^_`{|}~");
	return r < 0 ? r : buf_add_byte(out, '"');
}

/* Append one line. */
static int text_put(struct buf *out, const char *fmt, ...)
{
	va_list ap;
	int r = 0;

	va_start(ap, fmt);
	for (; *fmt && r >= 0; fmt++) {
		if (*fmt != '%') {
			r = buf_add_byte(out, (uint8_t)*fmt);
			continue;
		}
		switch (*++fmt) {
		case 'u':
			r = buf_addf(out, "%" PRIu64, va_arg(ap, uint64_t));
			break;
		case 'd':
			r = buf_addf(out, "%" PRId64, va_arg(ap, int64_t));
			break;
		case 'q':
			r = put_quoted(out, va_arg(ap, struct span));
			break;
		default:
			r = buf_add_hex(out, va_arg(ap, struct span));
			break;
		}
	}
	va_end(ap);
	return r < 0 ? r : buf_add_byte(out, '\n');
}

#define U(x) ((uint64_t)(x))
#define REF(ref) (ref).base, (ref).rel, (ref).off, (ref).len

static int versions_text(struct buf *out, const struct ocdbt_version *v, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++) {
		if (ocdbt_version_is_empty(&v[i]))
			r = text_put(out, FMT_EMPTY, v[i].generation, v[i].root.base, v[i].root.rel,
				     v[i].commit_time);
		else
			r = text_put(out, FMT_VERSION, v[i].generation, U(v[i].root_height),
				     REF(v[i].root), v[i].stats.keys, v[i].stats.tree_bytes,
				     v[i].stats.value_bytes, v[i].commit_time);
	}
	return r;
}

static int version_refs_text(struct buf *out, const struct ocdbt_version_ref *v, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++)
		r = text_put(out, FMT_VNODE, v[i].generation, U(v[i].height), REF(v[i].node),
			     v[i].num_generations, v[i].commit_time);
	return r;
}

int ocdbt_manifest_text(struct buf *out, const struct ocdbt_manifest *m)
{
	const struct ocdbt_config *c = &m->config;
	int r = text_put(out, FMT_UUID, span_of(c->uuid, sizeof(c->uuid)));

	if (r < 0)
		return r;
	r = text_put(out, FMT_KIND, U(c->kind));
	if (r < 0)
		return r;
	r = text_put(out, FMT_INLINE_MAX, U(c->max_inline_value_bytes));
	if (r < 0)
		return r;
	r = text_put(out, FMT_NODE_MAX, U(c->max_decoded_node_bytes));
	if (r < 0)
		return r;
	r = text_put(out, FMT_ARITY, U(c->arity_log2));
	if (r < 0)
		return r;
	r = c->compression == OCDBT_ZSTD ? text_put(out, FMT_CODE_ZSTD, (int64_t)c->zstd_level) :
					   text_put(out, FMT_CODE_PLAIN);
	if (r < 0)
		return r;
	r = versions_text(out, m->versions, m->n_versions);
	return r < 0 ? r : version_refs_text(out, m->nodes, m->n_nodes);
}

int ocdbt_vnode_text(struct buf *out, const struct ocdbt_vnode *v)
{
	int r = text_put(out, FMT_ARITY, U(v->arity_log2));

	if (r < 0)
		return r;
	r = text_put(out, FMT_HEIGHT, U(v->height));
	if (r < 0)
		return r;
	return v->height ? version_refs_text(out, v->children, v->n) :
			   versions_text(out, v->versions, v->n);
}

int ocdbt_node_text(struct buf *out, const struct ocdbt_node *node)
{
	int r = text_put(out, FMT_HEIGHT, U(node->height));

	for (uint32_t i = 0; i < node->n && r >= 0; i++) {
		struct ocdbt_value v;
		struct ocdbt_child c;

		if (node->height) {
			ocdbt_node_child(node, i, &c);
			r = text_put(out, FMT_CHILD, c.key, U(c.cut), REF(c.ref), c.stats.keys,
				     c.stats.tree_bytes, c.stats.value_bytes);
			continue;
		}
		ocdbt_node_value(node, i, &v);
		if (v.kind == OCDBT_INLINE)
			r = text_put(out, FMT_INLINE, ocdbt_node_key(node, i), v.bytes);
		else
			r = text_put(out, FMT_FILE, ocdbt_node_key(node, i), REF(v.ref));
	}
	return r;
}

static int put_ref(struct buf *out, const char *kind, const struct ocdbt_ref *ref)
{
	int r = buf_addf(out, "%s:", kind);

	if (r < 0)
		return r;
	r = put_escaped(out, ref->base, "-_./");
	if (r < 0)
		return r;
	r = put_escaped(out, ref->rel, "-_./");
	if (r < 0 || !strcmp(kind, "file"))
		return r;
	return buf_addf(out, ":%" PRIu64 ":%" PRIu64, ref->off, ref->len);
}

int ocdbt_ref_text(struct buf *out, const char *kind, const struct ocdbt_ref *ref)
{
	size_t was = out->n;
	int r = put_ref(out, kind, ref);

	if (r < 0)
		out->n = was;
	return r;
}

static int manifest_record_text(struct buf *out, struct span stored)
{
	auto_manifest m = { 0 };
	int r = ocdbt_manifest_parse(stored, &m);

	return r < 0 ? r : ocdbt_manifest_text(out, &m);
}

static int vnode_record_text(struct buf *out, struct span stored)
{
	auto_vnode v = { 0 };
	int r = ocdbt_vnode_parse(stored, span_of(NULL, 0), &v);

	return r < 0 ? r : ocdbt_vnode_text(out, &v);
}

static int node_record_text(struct buf *out, struct span stored)
{
	auto_of(ocdbt_node) struct ocdbt_node *node = NULL;
	int r = ocdbt_node_parse(stored, span_of(NULL, 0), &node);

	return r < 0 ? r : ocdbt_node_text(out, node);
}

int ocdbt_record_text(struct buf *out, struct span stored)
{
	static int (*const text[])(struct buf *, struct span) = {
		[OCDBT_MANIFEST] = manifest_record_text,
		[OCDBT_VERSIONNODE] = vnode_record_text,
		[OCDBT_BTREENODE] = node_record_text,
	};
	auto_buf lines = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		int r;

		if (!span_starts(stored, span_of(magics[i], sizeof(magics[i]))))
			continue;
		r = text[i](&lines, stored);
		if (r < 0)
			return r;
		r = buf_addf(out, "%s\n%s\n", kinds[i],
			     stored.p[13] == OCDBT_ZSTD ? FMT_ZSTD : FMT_PLAIN);
		return r < 0 ? r : buf_add_span(out, buf_span(&lines));
	}
	return fail(-EUCLEAN, "neither manifest, version node nor B+tree node: unknown magic");
}
