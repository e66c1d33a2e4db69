/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_item_safetensors.c - a safetensors file as an item, with its manifest, or shards with their
 * index: each leaf of what opens is found by its name, and its array opens.
 *
 * Input: 2 bytes, the length of the index (0: the file alone); 1 byte, the separator (0: none); the
 * index; the file.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/wire.h"
#include "core/step/item.h"
#include "handlers/leaf/leaf.h"
#include "tests/fuzz/fuzz.h"

#define FILE_NAME "m.safetensors"
#define INDEX_NAME "model.safetensors.index.json"

static char dir[] = "/tmp/fuzz_item_safetensors.XXXXXX";
static char file[sizeof(dir) + sizeof(FILE_NAME)];

static void remove_files(void)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY);

	(void)unlinkat(fd, FILE_NAME, 0);
	(void)unlinkat(fd, INDEX_NAME, 0);
	close(fd);
}

static void remove_dir(void)
{
	remove_files();
	rmdir(dir);
}

static void put_file(const char *name, struct span bytes)
{
	int at = open(dir, O_RDONLY | O_DIRECTORY);
	int fd = openat(at, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	must(fd >= 0 && write(fd, bytes.p, bytes.n) == (ssize_t)bytes.n);
	close(fd);
	close(at);
}

static void check_leaf(struct item *item, const struct tree_node *leaf)
{
	struct zarr *z;

	if (leaf->parent)
		must(tree_child(leaf->parent, leaf->name) == leaf);
	if (leaf->value == TREE_VALUE_AGGREGATE) {
		auto_buf text = { 0 };

		must(item_string(item, leaf, &text) == 0);
	} else if (leaf->value == TREE_VALUE_STORED) {
		must(item_array(item, leaf, &z) == 0);
		zarr_unref(z);
	}
}

static void check_item(const struct ckpt_opts *opts)
{
	auto_of(ckpt) struct ckpt *ckpt = NULL;
	auto_of(item) struct item *item = NULL;

	must(ckpt_open(opts, &ckpt) == 0);
	if (item_open(ckpt, ckpt->only_item, &item) < 0)
		return;
	for (uint32_t i = 0; i < item->tree->n_nodes; i++)
		if (item->tree->nodes[i]->kind == TREE_LEAF)
			check_leaf(item, item->tree->nodes[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool is_made;
	struct ckpt_opts opts = { .source = dir,
				  .io = "sync",
				  .tensors = TENSORS_ONLY,
				  .cache_bytes = MiB,
				  .read_budget = MiB,
				  .write_budget = MiB,
				  .threads = 1,
				  .aggregate_filename = "checkpoint",
				  .ext_of = leaf_ext };
	char separator[2] = { 0 };
	size_t n;

	if (!is_made) {
		must(mkdtemp(dir) != NULL);
		snprintf(file, sizeof(file), "%s/" FILE_NAME, dir);
		atexit(remove_dir);
		is_made = true;
	}
	if (size < 3)
		return 0;
	n = MIN((size_t)(data[0] | data[1] << 8), size - 3);
	separator[0] = (char)data[2];
	opts.safetensors_separator = separator;
	opts.source = n ? dir : file;
	put_file(FILE_NAME, span_of(data + 3 + n, size - 3 - n));
	if (n)
		put_file(INDEX_NAME, span_of(data + 3, n));
	check_item(&opts);
	remove_files();
	return 0;
}
