/* SPDX-License-Identifier: Apache-2.0 */
/*
 * undump.c - the text of a record back to bytes.
 *
 * Rules are not checked here: the parsers check what is read, and undump must be able to make
 * broken records. Only what cannot be stored at all is refused.
 */
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/ocdbt/record.h"
#include "core/ocdbt/text.h"

static const char *const kinds[] = TEXT_KINDS;

struct text {
	struct span rest; /* lines not read yet */
	struct span line; /* the current one */
	unsigned number;
	struct arena strings;
};

static void text_release(struct text *t)
{
	arena_release(&t->strings);
}

static bool text_next(struct text *t)
{
	const uint8_t *nl = t->rest.n ? memchr(t->rest.p, '\n', t->rest.n) : NULL;

	if (t->rest.n == 0)
		return false;
	t->line = span_of(t->rest.p, nl ? (size_t)(nl - t->rest.p) : t->rest.n);
	t->rest = span_from(t->rest, t->line.n + 1);
	t->number++;
	return true;
}

static int bad_line(const struct text *t)
{
	return fail(-EINVAL, "line %u is not understood: '%.*s'", t->number,
		    (int)MIN(t->line.n, (size_t)80), (const char *)t->line.p);
}

static int hex_digit(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool get_number(struct span *s, uint64_t *ret)
{
	uint64_t v = 0;
	size_t i = 0;

	for (; i < s->n && s->p[i] >= '0' && s->p[i] <= '9'; i++)
		if (!mul_fits(v, 10, &v) || !add_fits(v, s->p[i] - '0', &v))
			return false;
	*s = span_from(*s, i);
	*ret = v;
	return i > 0;
}

static bool get_signed(struct span *s, int64_t *ret)
{
	bool minus = s->n && s->p[0] == '-';
	uint64_t v;

	*s = span_from(*s, minus);
	if (!get_number(s, &v) || v > INT64_MAX)
		return false;
	*ret = minus ? -(int64_t)v : (int64_t)v;
	return true;
}

/* Get the bytes up to the quote, with escapes undone. Returns 1, 0 when malformed, or -ENOMEM. */
static int get_quoted(struct text *t, struct span *s, struct span *ret)
{
	uint8_t *out = arena_alloc(&t->strings, s->n);
	size_t n = 0, i = 1;

	if (!out)
		return fail(-ENOMEM, "cannot allocate a string");
	if (s->n == 0 || s->p[0] != '"')
		return 0;
	for (; i < s->n && s->p[i] != '"'; i++) {
		int high, low;

		if (s->p[i] != '%') {
			out[n++] = s->p[i];
			continue;
		}
		if (s->n - i < 3)
			return 0;
		high = hex_digit(s->p[i + 1]);
		low = hex_digit(s->p[i + 2]);
		if (high < 0 || low < 0)
			return 0;
		out[n++] = (uint8_t)(high << 4 | low);
		i += 2;
	}
	if (i >= s->n)
		return 0;
	*s = span_from(*s, i + 1);
	*ret = span_of(out, n);
	return 1;
}

static int get_hex(struct text *t, struct span *s, struct span *ret)
{
	uint8_t *out = arena_alloc(&t->strings, s->n / 2);
	size_t n = 0;

	if (!out)
		return fail(-ENOMEM, "cannot allocate a string");
	for (; s->n - 2 * n >= 2; n++) {
		int high = hex_digit(s->p[2 * n]), low = hex_digit(s->p[2 * n + 1]);

		if (high < 0 || low < 0)
			break;
		out[n] = (uint8_t)(high << 4 | low);
	}
	*s = span_from(*s, 2 * n);
	*ret = span_of(out, n);
	return 1;
}

/* Parse the current line in this format. Returns 1, 0 when it does not match, or -ENOMEM. */
static int text_get(struct text *t, const char *fmt, ...)
{
	struct span s = t->line;
	va_list ap;
	int r = 1;

	va_start(ap, fmt);
	for (; *fmt && r > 0; fmt++) {
		if (*fmt != '%') {
			r = s.n && s.p[0] == (uint8_t)*fmt;
			s = span_from(s, 1);
			continue;
		}
		switch (*++fmt) {
		case 'u':
			r = get_number(&s, va_arg(ap, uint64_t *));
			break;
		case 'd':
			r = get_signed(&s, va_arg(ap, int64_t *));
			break;
		case 'q':
			r = get_quoted(t, &s, va_arg(ap, struct span *));
			break;
		default:
			r = get_hex(t, &s, va_arg(ap, struct span *));
			break;
		}
	}
	va_end(ap);
	return r > 0 ? s.n == 0 : r;
}

/* The next line must have this format. */
#define TEXT_NEED(t, fmt, ...) \
	(text_next(t) ? need((t), fmt, text_get((t), fmt, __VA_ARGS__)) : too_short(fmt))

static int need(const struct text *t, const char *fmt, int r)
{
	return r ? r : fail(-EINVAL, "line %u is not '%s'", t->number, fmt);
}

static int too_short(const char *fmt)
{
	return fail(-EINVAL, "text ends before '%s'", fmt);
}

#define REF_OUT(ref) &(ref).base, &(ref).rel, &(ref).off, &(ref).len

/* Append a line of a version or version node to its list; 0 when it is neither. */
static int get_version(struct text *t, struct buf *versions, struct buf *nodes)
{
	struct ocdbt_version v = { 0 };
	struct ocdbt_version_ref n = { 0 };
	uint64_t height = 0;
	int r = text_get(t, FMT_VERSION, &v.generation, &height, REF_OUT(v.root), &v.stats.keys,
			 &v.stats.tree_bytes, &v.stats.value_bytes, &v.commit_time);

	if (r == 0) {
		v = (struct ocdbt_version){ 0 };
		height = 0;
		r = text_get(t, FMT_EMPTY, &v.generation, &v.root.base, &v.root.rel,
			     &v.commit_time);
		v.root.off = v.root.len = OCDBT_NO_ROOT;
	}
	if (r > 0) {
		v.root_height = (unsigned)height;
		r = height > UINT8_MAX ? bad_line(t) : buf_add(versions, &v, sizeof(v));
		return r < 0 ? r : 1;
	}
	if (r == 0)
		r = text_get(t, FMT_VNODE, &n.generation, &height, REF_OUT(n.node),
			     &n.num_generations, &n.commit_time);
	if (r <= 0)
		return r;
	n.height = (unsigned)height;
	r = height > UINT8_MAX ? bad_line(t) : buf_add(nodes, &n, sizeof(n));
	return r < 0 ? r : 1;
}

static int get_config(struct text *t, struct ocdbt_config *c)
{
	uint64_t kind = 0, inline_max = 0, node_max = 0, arity = 0;
	struct span uuid = { 0 };
	int64_t level = 0;
	int r = TEXT_NEED(t, FMT_UUID, &uuid);

	if (r < 0)
		return r;
	r = TEXT_NEED(t, FMT_KIND, &kind);
	if (r < 0)
		return r;
	r = TEXT_NEED(t, FMT_INLINE_MAX, &inline_max);
	if (r < 0)
		return r;
	r = TEXT_NEED(t, FMT_NODE_MAX, &node_max);
	if (r < 0)
		return r;
	r = TEXT_NEED(t, FMT_ARITY, &arity);
	if (r < 0)
		return r;
	if (!text_next(t))
		return too_short(FMT_CODE_PLAIN);
	r = text_get(t, FMT_CODE_ZSTD, &level);
	if (r > 0)
		c->compression = OCDBT_ZSTD;
	else if (r == 0)
		r = text_get(t, FMT_CODE_PLAIN);
	if (r == 0)
		return bad_line(t);
	if (uuid.n != sizeof(c->uuid) || kind > OCDBT_NUMBERED || inline_max > UINT32_MAX ||
	    node_max > UINT32_MAX || arity < 1 || arity > OCDBT_ARITY_LOG2_MAX ||
	    level < INT32_MIN || level > INT32_MAX)
		return fail(-EINVAL, "configuration has a number that cannot be stored");
	memcpy(c->uuid, uuid.p, uuid.n);
	c->kind = (enum ocdbt_kind)kind;
	c->max_inline_value_bytes = (uint32_t)inline_max;
	c->max_decoded_node_bytes = (uint32_t)node_max;
	c->arity_log2 = (unsigned)arity;
	c->zstd_level = (int32_t)level;
	return r < 0 ? r : 0;
}

static int manifest_undump(struct text *t, const struct ocdbt_config *compress, struct buf *ret)
{
	struct ocdbt_manifest m = { 0 };
	auto_buf versions = { 0 }, nodes = { 0 };
	size_t max;
	int r = get_config(t, &m.config);

	while (r >= 0 && text_next(t)) {
		r = get_version(t, &versions, &nodes);
		if (r == 0)
			r = bad_line(t);
	}
	if (r < 0)
		return r;
	m.versions = (void *)versions.p;
	m.n_versions = versions.n / sizeof(*m.versions);
	m.nodes = (void *)nodes.p;
	m.n_nodes = nodes.n / sizeof(*m.nodes);
	max = m.config.kind == OCDBT_SINGLE ? (size_t)1 << m.config.arity_log2 : 0;
	if (m.n_versions > max || (max && !m.n_versions) ||
	    m.n_nodes > (max ? ocdbt_vnode_height_max(m.config.arity_log2) : 0))
		return fail(-EINVAL, "manifest with %zu versions and %zu version nodes",
			    m.n_versions, m.n_nodes);
	return ocdbt_manifest_pack(&m, compress, ret);
}

static int vnode_undump(struct text *t, const struct ocdbt_config *compress, struct buf *ret)
{
	struct ocdbt_vnode v = { 0 };
	auto_buf versions = { 0 }, children = { 0 };
	uint64_t arity = 0, height = 0;
	int r = TEXT_NEED(t, FMT_ARITY, &arity);

	if (r < 0)
		return r;
	r = TEXT_NEED(t, FMT_HEIGHT, &height);
	while (r >= 0 && text_next(t)) {
		r = get_version(t, &versions, &children);
		if (r == 0)
			r = bad_line(t);
	}
	if (r < 0)
		return r;
	v.arity_log2 = (unsigned)arity;
	v.height = (unsigned)height;
	v.versions = (void *)versions.p;
	v.children = (void *)children.p;
	v.n = height ? children.n / sizeof(*v.children) : versions.n / sizeof(*v.versions);
	if (arity < 1 || arity > OCDBT_ARITY_LOG2_MAX || height > UINT8_MAX || v.n < 1 ||
	    v.n > (size_t)1 << arity || (height ? versions.n : children.n))
		return fail(-EINVAL,
			    "version node of arity 2^%llu and height %llu with %zu entries",
			    (unsigned long long)arity, (unsigned long long)height, v.n);
	return ocdbt_vnode_pack(&v, compress, ret);
}

static int get_entry(struct text *t, struct ocdbt_packer *p)
{
	struct ocdbt_entry e = { .value.kind = OCDBT_FILE };
	struct ocdbt_child c = { 0 };
	uint64_t cut;
	int r;

	if (p->height) {
		r = text_get(t, FMT_CHILD, &c.key, &cut, REF_OUT(c.ref), &c.stats.keys,
			     &c.stats.tree_bytes, &c.stats.value_bytes);
		if (r <= 0 || cut > c.key.n)
			return r < 0 ? r : bad_line(t);
		return ocdbt_packer_add_child(p, c.key, (unsigned)cut, &c.ref, &c.stats);
	}
	r = text_get(t, FMT_FILE, &e.key, REF_OUT(e.value.ref));
	if (r == 0) {
		e.value.kind = OCDBT_INLINE;
		r = text_get(t, FMT_INLINE, &e.key, &e.value.bytes);
	}
	if (r <= 0)
		return r < 0 ? r : bad_line(t);
	return ocdbt_packer_add(p, &e);
}

static int node_undump(struct text *t, const struct ocdbt_config *compress, struct buf *ret)
{
	auto_packer p = { 0 };
	struct ocdbt_stats stats;
	uint64_t height = 0;
	int r = TEXT_NEED(t, FMT_HEIGHT, &height);

	if (r < 0)
		return r;
	if (height > UINT8_MAX)
		return bad_line(t);
	p.height = (unsigned)height;
	while (text_next(t)) {
		r = get_entry(t, &p);
		/* The packer has copied what it needs. */
		arena_release(&t->strings);
		if (r < 0)
			return r;
	}
	if (p.n == 0)
		return fail(-EINVAL, "B+tree node without entries");
	return ocdbt_packer_pack(&p, 0, compress, ret, &stats);
}

int ocdbt_record_undump(struct span text, struct buf *ret)
{
	static int (*const undump[])(struct text *, const struct ocdbt_config *, struct buf *) = {
		[OCDBT_MANIFEST] = manifest_undump,
		[OCDBT_VERSIONNODE] = vnode_undump,
		[OCDBT_BTREENODE] = node_undump,
	};
	__attribute__((cleanup(text_release))) struct text t = { .rest = text };
	struct ocdbt_config compress = { 0 };
	size_t kind = 0;

	if (!text_next(&t))
		return fail(-EINVAL, "empty text");
	while (kind < ARRAY_LEN(kinds) && !span_eq(t.line, span_str(kinds[kind])))
		kind++;
	if (kind == ARRAY_LEN(kinds) || !text_next(&t))
		return bad_line(&t);
	if (text_get(&t, FMT_ZSTD) > 0)
		compress.compression = OCDBT_ZSTD;
	else if (text_get(&t, FMT_PLAIN) <= 0)
		return bad_line(&t);
	return undump[kind](&t, &compress, ret);
}
