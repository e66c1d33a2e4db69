/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - the corpus of a fuzz target once through: every file of the directory that is named,
 * each whole, cut at every byte of its first 256, and with every one of those bytes changed. With a
 * number after it: at so many bytes, all over the file, for targets that take long; twice as many
 * with TEST_LONG.
 *
 * This is what runs with every compiler; `tests/fuzz/run` searches further.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "core/base/mem.h"
#include "tests/fuzz/fuzz.h"

#define BYTES_CHANGED 256

/* In memory of exactly that size, so that a sanitizer sees a read beyond it. */
static void run(const uint8_t *data, size_t n)
{
	uint8_t *copy = malloc(n ? n : 1);

	must(copy != NULL);
	memcpy(copy, data, n);
	LLVMFuzzerTestOneInput(copy, n);
	free(copy);
}

static unsigned run_file(const char *dir, const char *name, size_t spread)
{
	static uint8_t data[1 << 20];
	char path[4096];
	size_t n, places, step;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "rb");
	must(f != NULL);
	n = fread(data, 1, sizeof(data), f);
	must(feof(f));
	fclose(f);
	run(data, n);
	places = MIN(n, spread ? spread : (size_t)BYTES_CHANGED);
	step = spread && places ? n / places : 1;
	for (size_t i = 0; i < places * step; i += step) {
		run(data, i);
		data[i] ^= 0xff;
		run(data, n);
		data[i] ^= 0xff ^ 1;
		run(data, n);
		data[i] ^= 1;
	}
	return 1 + 3 * (unsigned)places;
}

int main(int argc, char **argv)
{
	unsigned files = 0, runs = 0;
	size_t spread = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	struct dirent *e;
	DIR *d;

	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: %s CORPUS [BYTES]\n", argv[0]);
		return 2;
	}
	d = opendir(argv[1]);
	if (!d) {
		perror(argv[1]);
		return 1;
	}
	while ((e = readdir(d)))
		if (e->d_name[0] != '.') {
			runs += run_file(argv[1], e->d_name,
					 getenv("TEST_LONG") ? 2 * spread : spread);
			files++;
		}
	closedir(d);
	printf("%u files, %u inputs\n", files, runs);
	return files == 0;
}
