/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_tool.c - chunk shapes and replica slices, one case a line, for the interop tests.
 *
 *	chunk ITEM CHUNK_BYTES FILE_SIZE AXES SHAPE WRITE_SHAPE	-> shape, or error number
 *	replicas ITEM REPLICAS MAX MIN_BYTES SHAPE		-> axis count shape, or -
 *
 * Lists are joined by ','; "-" is an empty list or no number; without FILE_SIZE there is no OCDBT.
 */
#include <inttypes.h>

#include "core/step/layout.h"
#include "tests/filters/tool.h"

static unsigned take_list(char *text, uint64_t *ret)
{
	unsigned n = 0;

	for (char *p = text; *p && *p != '-'; p += *p == ',')
		ret[n++] = strtoull(p, &p, 10);
	return n;
}

static int put_list(struct buf *out, const uint64_t *v, unsigned n)
{
	int r = n ? 0 : buf_add_byte(out, '-');

	for (unsigned i = 0; i < n && r >= 0; i++)
		r = buf_addf(out, "%s%" PRIu64, i ? "," : "", v[i]);
	return r;
}

static int chunk(char **arg, struct buf *out)
{
	uint64_t shape[LIMIT_RANK], write_shape[LIMIT_RANK], list[LIMIT_RANK], chunks[LIMIT_RANK];
	unsigned axes[LIMIT_RANK];
	struct layout l = {
		.item_size = strtoull(arg[0], NULL, 10),
		.shape = shape,
		.write_shape = write_shape,
		.axes = axes,
		.has_chunk_bytes = arg[1][0] != '-',
		.chunk_bytes = strtoull(arg[1], NULL, 10),
		.ocdbt = arg[2][0] != '-',
		.file_size = strtoull(arg[2], NULL, 10),
		.n_axes = take_list(arg[3], list),
		.rank = take_list(arg[4], shape),
	};
	int r;

	take_list(arg[5], write_shape);
	for (unsigned i = 0; i < l.n_axes; i++)
		axes[i] = (unsigned)list[i];
	r = layout_chunk_shape(&l, chunks);
	return r < 0 ? buf_addf(out, "%d", r) : put_list(out, chunks, l.rank);
}

static int replicas(char **arg, struct buf *out)
{
	uint64_t shape[LIMIT_RANK];
	unsigned rank = take_list(arg[4], shape);
	struct layout_replicas v;
	int r;

	layout_replicas(shape, rank, strtoull(arg[1], NULL, 10), strtoull(arg[2], NULL, 10),
			strtoull(arg[0], NULL, 10), strtoull(arg[3], NULL, 10), &v);
	if (!v.sliced)
		return buf_add_byte(out, '-');
	r = buf_addf(out, "%u %" PRIu64 " ", v.axis, v.count);
	return r < 0 ? r : put_list(out, v.write_shape, rank);
}

int main(void)
{
	char line[4096], kind[16], text[6][512];

	while (fgets(line, sizeof(line), stdin)) {
		char *arg[6] = { text[0], text[1], text[2], text[3], text[4], text[5] };
		auto_buf out = { 0 };
		int n = sscanf(line, "%15s %511s %511s %511s %511s %511s %511s", kind, text[0],
			       text[1], text[2], text[3], text[4], text[5]);
		int r = !strcmp(kind, "chunk") && n == 7 ?
				chunk(arg, &out) :
			!strcmp(kind, "replicas") && n == 6 ?
				replicas(arg, &out) :
				fail(-EINVAL, "malformed line '%s'", line);

		if (r < 0) {
			fprintf(stderr, "%s\n", err_text(r));
			return 1;
		}
		puts(buf_str(&out));
	}
	return 0;
}
