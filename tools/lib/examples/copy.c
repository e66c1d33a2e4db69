/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c - write a step with one array, a number and a text, and read the array back.
 *
 *     cc copy.c $(pkg-config --cflags --libs pytreefs) -o copy && ./copy /tmp/ckpts/1
 */
#include <stdio.h>
#include <string.h>

#include <pytreefs.h>

#define N 1000

static int copy_failed(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, pytreefs_error());
	return 1;
}

#define KEY(text)                                     \
	{                                             \
		text, strlen(text), PYTREEFS_KEY_NAME \
	}

static int write_step(const char *path, const float *w)
{
	const struct pytreefs_key w_key[] = { KEY("default"), KEY("params"), KEY("w") },
				  step_key[] = { KEY("default"), KEY("step") },
				  name_key[] = { KEY("default"), KEY("run_name") };
	const uint64_t shape[] = { N };
	const int64_t step = 1;
	const struct pytreefs_value values[] = {
		{ .key = w_key,
		  .n_keys = 3,
		  .kind = PYTREEFS_ARRAY,
		  .dtype = "float32",
		  .ndim = 1,
		  .shape = shape,
		  .data = w },
		{ .key = step_key,
		  .n_keys = 2,
		  .kind = PYTREEFS_SCALAR,
		  .dtype = "int64",
		  .data = &step },
		{ .key = name_key,
		  .n_keys = 2,
		  .kind = PYTREEFS_STRING,
		  .data = "first",
		  .size = 5 },
	};
	struct pytreefs_draft *draft = NULL;

	if (pytreefs_draft_begin(path, "compression=zstd:3", 0, &draft) < 0)
		return copy_failed(path);
	if (pytreefs_draft_put(draft, values, sizeof(values) / sizeof(*values), NULL) < 0 ||
	    pytreefs_draft_commit(draft, NULL) < 0) {
		pytreefs_draft_abort(draft);
		return copy_failed(path);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct pytreefs *ck = NULL;
	static float w[N], got[N];

	if (argc != 2) {
		fprintf(stderr, "usage: %s ROOT/STEP\n", argv[0]);
		return 2;
	}
	for (int i = 0; i < N; i++)
		w[i] = (float)i / 2;
	if (write_step(argv[1], w) != 0)
		return 1;
	if (pytreefs_open(argv[1], NULL, &ck) < 0)
		return copy_failed(argv[1]);
	if (pytreefs_read(ck, "default/params/w.bin", got, sizeof(got), 0) != sizeof(got)) {
		pytreefs_close(ck);
		return copy_failed("default/params/w.bin");
	}
	pytreefs_close(ck);
	printf("%s: %s\n", argv[1], memcmp(w, got, sizeof(w)) ? "differs" : "as it was written");
	return memcmp(w, got, sizeof(w)) != 0;
}
