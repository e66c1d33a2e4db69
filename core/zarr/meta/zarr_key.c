/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_key.c - keys of chunk objects relative to the array's prefix, printed
 * and parsed.
 */
#include "core/zarr/meta/zarr_meta.h"

int zarr_key_prefix(struct span name, struct buf *ret)
{
	int r = span_eq(name, span_str("/")) ? 0 : buf_add_span(ret, name);

	return r >= 0 && name.n && name.p[name.n - 1] != '/' ? buf_add_byte(ret, '/') : r;
}

int zarr_chunk_key(const struct zarr_meta *m, const uint64_t *index, struct buf *ret)
{
	size_t at = ret->n;

	if (m->keys == ZARR_KEYS_DEFAULT)
		buf_add_byte(ret, 'c');
	else if (m->rank == 0)
		buf_add_byte(ret, '0');
	for (unsigned i = 0; i < m->rank; i++) {
		if (i > 0 || m->keys == ZARR_KEYS_DEFAULT)
			buf_add_byte(ret, (uint8_t)m->separator);
		buf_addf(ret, "%llu", (unsigned long long)index[i]);
	}
	if (buf_failed(ret))
		ret->n = at;
	return buf_failed(ret);
}

/* Take a decimal number below limit, without leading zeros, from the start of s. */
static bool key_take_number(struct span *s, uint64_t limit, uint64_t *ret)
{
	uint64_t v = 0;
	size_t n = 0;

	while (n < s->n && s->p[n] >= '0' && s->p[n] <= '9') {
		if (!mul_fits(v, 10, &v) || !add_fits(v, s->p[n] - (uint64_t)'0', &v))
			return false;
		n++;
	}
	if (n == 0 || (n > 1 && s->p[0] == '0') || v >= limit)
		return false;
	*s = span_from(*s, n);
	*ret = v;
	return true;
}

static bool take_byte(struct span *s, char c)
{
	if (s->n == 0 || s->p[0] != (uint8_t)c)
		return false;
	*s = span_from(*s, 1);
	return true;
}

int zarr_chunk_key_parse(const struct zarr_meta *m, struct span key, uint64_t *ret_index)
{
	uint64_t index[LIMIT_RANK];

	if (m->keys == ZARR_KEYS_DEFAULT && !take_byte(&key, 'c'))
		return 0;
	if (m->rank == 0 && m->keys == ZARR_KEYS_V2 && !take_byte(&key, '0'))
		return 0;
	for (unsigned i = 0; i < m->rank; i++) {
		if ((i > 0 || m->keys == ZARR_KEYS_DEFAULT) && !take_byte(&key, m->separator))
			return 0;
		if (!key_take_number(&key, m->grid[i], &index[i]))
			return 0;
	}
	if (key.n)
		return 0;
	memcpy(ret_index, index, m->rank * sizeof(*index));
	return 1;
}
