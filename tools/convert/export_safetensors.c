/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_safetensors.c - exports one safetensors file, or shards of bounded size with the index
 * that Hugging Face's libraries read.
 *
 * Tensors are assigned to shards in the order of the tree; a tensor larger than the limit has a
 * shard of its own. Strings and the tree manifest are in `__metadata__` of the first file.
 */
#include <fcntl.h>
#include <stdio.h>

#include "core/base/err.h"
#include "handlers/subtree/safetensors_list.h"
#include "tools/convert/export.h"

struct shards {
	struct export *x;
	struct safetensors_list all; /* one shard after another; id: the leaf */
	size_t *first; /* index of the first tensor of shard i; first[n_shards] is all.n */
	size_t n_shards;
	struct io_file **file;
	uint64_t *bytes; /* sizes of the tensors, for the distribution of the work */
};

static int export_safetensors_by_name(const void *a, const void *b)
{
	return span_cmp(((const struct st_tensor *)a)->name, ((const struct st_tensor *)b)->name);
}

static int by_leaf(const void *a, const void *b)
{
	const struct st_tensor *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

static void export_safetensors_cut(struct shards *s)
{
	uint64_t bytes = 0;

	s->n_shards = 1;
	for (size_t i = 0; i < s->all.n; i++) {
		uint64_t sum;
		bool fits = add_fits(bytes, s->all.tensor[i].bytes, &sum) &&
			    (!s->x->max_shard || sum <= s->x->max_shard);

		if (!fits && i > s->first[s->n_shards - 1]) {
			s->first[s->n_shards++] = i;
			sum = s->all.tensor[i].bytes;
		}
		bytes = sum;
	}
	s->first[s->n_shards] = s->all.n;
}

static void shard_name(const struct shards *s, size_t i, char ret[64])
{
	if (s->n_shards == 1)
		snprintf(ret, 64, "model.safetensors");
	else
		snprintf(ret, 64, "model-%05zu-of-%05zu.safetensors", i + 1, s->n_shards);
}

/*
 * Make the header of a shard and set its size, on rank 0. The tensors are in the order of the file
 * afterwards.
 */
static int begin_shard(struct shards *s, size_t i)
{
	struct export *x = s->x;
	struct st_tensor *t = s->all.tensor + s->first[i];
	size_t n = s->first[i + 1] - s->first[i];
	bool lead = group_is_lead(x->group);
	auto_buf head = { .metered = true };
	uint64_t size;
	char name[64];
	int r = 0;

	shard_name(s, i, name);
	if (!x->out.is_dir)
		s->file[i] = io_file_ref(x->out.file);
	else
		r = io_file_open(x->out.temp_dir, name, O_RDWR | (lead ? O_CREAT | O_EXCL : 0),
				 IO_FILE_MODE, &s->file[i]);
	if (r < 0)
		return r;
	r = safetensors_header(t, n, i ? NULL : s->all.text, i ? 0 : s->all.n_texts, &head);
	if (r < 0 || !lead)
		return r;
	r = io_write_exact(s->file[i], head.p, head.n, 0);
	if (r < 0)
		return r;
	size = head.n;
	for (size_t k = 0; k < n; k++)
		size = MAX(size, t[k].off + t[k].bytes);
	return io_file_truncate(s->file[i], size);
}

static int put_index(struct shards *s)
{
	auto_buf out = { 0 };
	uint64_t total = 0;
	char name[64];
	int r;

	for (size_t i = 0; i < s->all.n; i++)
		total += s->all.tensor[i].bytes;
	r = buf_addf(&out,
		     "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n  \"weight_map\": {",
		     (unsigned long long)total);
	for (size_t i = 0; i < s->n_shards; i++) {
		shard_name(s, i, name);
		for (size_t k = s->first[i]; k < s->first[i + 1] && r >= 0; k++) {
			r = buf_add_str(&out, k ? ",\n    " : "\n    ");
			if (r < 0)
				return r;
			r = json_put_str(&out, s->all.tensor[k].name, JSON_PYTHON);
			if (r < 0)
				return r;
			r = buf_addf(&out, ": \"%s\"", name);
		}
	}
	if (r < 0)
		return r;
	r = buf_add_str(&out, "\n  }\n}\n");
	return r < 0 ? r : export_text(s->x, "model.safetensors.index.json", buf_span(&out));
}

static int write_tensor(void *arg, size_t i, struct worker *worker)
{
	struct shards *s = arg;
	const struct st_tensor *t = &s->all.tensor[i];
	size_t shard = 0;

	while (i >= s->first[shard + 1])
		shard++;
	return export_leaf_write(s->x, &s->x->leaf[t->id], NAME_EXT_BIN, s->file[shard], t->off,
				 worker, NULL);
}

static int list(struct shards *s)
{
	struct export *x = s->x;
	struct st_tensor *t;
	int r = safetensors_list_begin(&s->all, x->n);

	if (r < 0)
		return r;
	s->first = calloc(x->n + 2, sizeof(*s->first));
	s->file = calloc(x->n + 2, sizeof(*s->file));
	s->bytes = calloc(x->n + 1, sizeof(*s->bytes));
	if (!s->first || !s->file || !s->bytes)
		return fail(-ENOMEM, "cannot list %zu leaves", x->n);
	for (size_t i = 0; i < x->n && r >= 0; i++)
		r = safetensors_list_add(&s->all, x->leaf[i].info, span_str(x->leaf[i].path), i);
	if (r < 0)
		return r;
	r = safetensors_list_end(&s->all);
	if (r < 0)
		return r;
	t = s->all.tensor;
	/* Names must be unique in all shards together, not only in each file. */
	qsort(t, s->all.n, sizeof(*t), export_safetensors_by_name);
	for (size_t i = 1; i < s->all.n; i++)
		if (span_eq(t[i - 1].name, t[i].name))
			return fail(-EINVAL, "'%.*s' and '%.*s' would both be called '%.*s'",
				    SPAN_ARG(t[i - 1].path), SPAN_ARG(t[i].path),
				    SPAN_ARG(t[i].name));
	qsort(t, s->all.n, sizeof(*t), by_leaf);
	export_safetensors_cut(s);
	return r;
}

static int begin_all(struct shards *s, int r)
{
	for (size_t i = 0; i < s->n_shards && r >= 0; i++)
		r = begin_shard(s, i);
	return r;
}

int export_safetensors(struct export *x)
{
	struct shards s = { .x = x,
			    .all = { .st = &x->st,
				     .only = export_only(x),
				     .casts = x->casts,
				     .separator = x->a->options.safetensors_separator } };
	int r = list(&s);

	export_remarks(x);
	/* Rank 0 creates the shards, then the other ranks open them. */
	if (group_is_lead(x->group))
		r = begin_all(&s, r);
	if (r >= 0 && x->out.is_dir && group_is_lead(x->group))
		r = put_index(&s);
	if (x->group)
		r = group_reduce(x->group, r);
	if (!group_is_lead(x->group))
		r = begin_all(&s, r);
	/* In the order of the files, which was set with the headers. */
	for (size_t i = 0; i < s.all.n; i++)
		s.bytes[i] = s.all.tensor[i].bytes;
	r = export_workers(x, r, s.all.n, s.bytes, write_tensor, &s);
	for (size_t i = 0; i < s.n_shards && s.file; i++)
		io_file_unref(s.file[i]);
	free(s.first);
	free(s.file);
	free(s.bytes);
	safetensors_list_release(&s.all);
	return r;
}
