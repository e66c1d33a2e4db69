/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_documents.c - the small files of an item beside its tree, read on demand: texts, shardings,
 * metadata of arrays, digests of leaves.
 */
#include <stdio.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/meter.h"
#include "core/base/path.h"
#include "core/base/refusal.h"
#include "core/step/item_impl.h"
#include "core/tree/array_metadata.h"
#include "core/tree/digests.h"
#include "core/tree/sharding.h"
#include "core/tree/strings.h"
#include "core/tree/tree_tensors.h"

/*
 * Read a file of the item, of the time when the item was opened: -ESTALE. ret_file, which keeps it
 * open, may be NULL. Called with the item's lock held.
 */
static int read_pinned(struct item *item, const char *name, uint64_t limit, struct document *ret,
		       struct io_file **ret_file)
{
	auto_of(io_file) struct io_file *file = NULL;
	int r = io_file_open_range(item->dir, name, 0, IO_FIRST_BYTES, &file);

	if (r == -EISDIR)
		return fail(-EUCLEAN, "'%s' is not a regular file", name);
	if (r < 0)
		return r;
	r = io_pins_check(&item->pins, item->dir, file);
	if (r < 0)
		return r;
	if (file->size > limit)
		return fail(-EFBIG, "'%s' has %llu bytes, the limit is %llu", name,
			    (unsigned long long)file->size, (unsigned long long)limit);
	r = document_of(item->ckpt, file, ret);
	if (r >= 0 && ret_file)
		*ret_file = take(file);
	return r;
}

static int index_strings(struct item *item)
{
	auto_of(strings) struct strings *strings = NULL;
	auto_of(io_file) struct io_file *file = NULL;
	auto_document text = { 0 };
	int r = read_pinned(item, "_strings.json", LIMIT_STRINGS_BYTES, &text, &file);

	if (r < 0)
		return r;
	r = strings_parse(text.text, "'_strings.json'", &strings);
	if (r < 0)
		return r;
	/* Each text is read from the file on demand, since all together may be large. */
	item->strings_file = take(file);
	item->strings = take(strings);
	return r;
}

/*
 * Read one of these files, or return the remembered error of a recent attempt. Called with the
 * item's lock held.
 */
static int read_small(struct item *item, const char *name, int (*read)(struct item *item))
{
	const struct refusal_key key = refusal_key(item->owner, span_str(name), 0);
	uint64_t bytes = 0, mark = io_mark(item->dir, name, 1, &bytes);
	int64_t began = clock_ns();
	int r = refusal_ask(key, mark);

	if (r < 0)
		return r;
	meter_begin();
	r = read(item);
	meter_end();
	return refusal_keep(key, mark, began, r);
}

int item_read_strings(struct item *item)
{
	int r = 0;

	pthread_mutex_lock(&item->lock);
	if (!item->strings_read) {
		r = read_small(item, "_strings.json", index_strings);
		r = err_except(r, -ENOENT);
		item->strings_read = r >= 0;
	}
	pthread_mutex_unlock(&item->lock);
	return r;
}

static int check_length(uint64_t n)
{
	return n <= LIMIT_STRING_BYTES ?
		       0 :
		       fail(-EFBIG, "a text of %llu bytes, the limit is %llu",
			    (unsigned long long)n, (unsigned long long)LIMIT_STRING_BYTES);
}

static int read_string(struct item *item, const struct strings_entry *e, struct buf *ret)
{
	auto_buf json = { .metered = true };
	int r = check_length(e->text_len);

	if (r < 0)
		return r;
	r = buf_reserve(&json, e->len);
	if (r < 0)
		return r;
	r = io_read_exact(item->strings_file, json.p, e->len, e->off);
	if (r < 0)
		return r;
	json.n = e->len;
	return strings_take(&json, e->text_len, "'_strings.json'", ret);
}

/* Releases 0.3.x wrote one file for each string leaf, in a directory with its name. */
static int read_string_leaf(struct item *item, const struct tree_node *leaf, struct buf *ret)
{
	auto_document text = { 0 };
	auto_buf path = { 0 };
	int r = io_path_check(leaf->param, "string leaf");

	if (r < 0)
		return r;
	if (buf_addf(&path, "%.*s/_strings.json", SPAN_ARG(leaf->param)) < 0 || !buf_str(&path))
		return -ENOMEM;
	pthread_mutex_lock(&item->lock);
	r = read_pinned(item, buf_str(&path), 6 * LIMIT_STRING_BYTES, &text, NULL);
	pthread_mutex_unlock(&item->lock);
	if (r == -ENOENT || r == -ENOTDIR)
		return fail(-EUCLEAN, "its text is not stored");
	return r < 0 ? r : strings_parse_leaf(text.text, "'_strings.json'", leaf->param, ret);
}

int item_string(struct item *item, const struct tree_node *leaf, struct buf *ret)
{
	const struct strings_entry *e;
	int r;

	ret->metered |= ret->cap == 0;
	if (leaf->value == TREE_VALUE_AGGREGATE) {
		if (!leaf->aggregate || leaf->aggregate->kind != AGGREGATE_STRING)
			return fail(-EUCLEAN, "the aggregate file does not have its text");
		r = check_length(leaf->aggregate->s.n);
		return r < 0 ? r : buf_add_span(ret, leaf->aggregate->s);
	}
	if (leaf->shared)
		return tree_fail_shared(leaf);
	r = item_read_strings(item);
	if (r < 0)
		return r;
	e = item->strings ? strings_find(item->strings, leaf->param) : NULL;
	return e ? read_string(item, e, ret) : read_string_leaf(item, leaf, ret);
}

/*
 * Handles the result r of reading an optional file. If the file is absent or damaged, logs that and
 * returns 0. Temporary errors (of memory or the disk) are returned, and the file is read again on
 * demand.
 */
static int optional_document(const struct item *item, const char *name, int r)
{
	if (r >= 0 || err_is_transient(r))
		return MIN(r, 0);
	if (r != -ENOENT)
		log_warn("item '%s': %s: %s", item->path, name, err_text(r));
	err_clear();
	return 0;
}

/* Read an optional file once. Called with the item's lock held. */
static int read_optional(struct item *item, const char *name, int (*read)(struct item *item),
			 bool *is_read)
{
	int r;

	if (*is_read)
		return 0;
	r = optional_document(item, name, read_small(item, name, read));
	*is_read = r >= 0;
	return r;
}

static int parse_shardings_in(void *arg, const char *dir, struct kv *kv)
{
	auto_free char *name = NULL;
	struct item *item = arg;
	auto_document text = { 0 };
	int r = path_join(dir, span_str("_sharding"), &name);

	if (r < 0)
		return r;
	r = read_pinned(item, name, LIMIT_SMALL_FILE, &text, NULL);
	if (r == -ENOENT && kv)
		return 0;
	if (r < 0)
		return r;
	r = shardings_parse(text.text, "'_sharding'", &item->shardings);
	return r < 0 ? r : 1;
}

/* Orbax 0.4.0 and 0.4.1 put the file into the directory of the first array. */
static int parse_shardings(struct item *item)
{
	int r = parse_shardings_in(item, ".", NULL);

	if (r == -ENOENT && !item->below_listed) {
		err_clear();
		r = item_below_each(item, parse_shardings_in, item);
		r = r == 0 ? -ENOENT : r;
	}
	return MIN(r, 0);
}

int item_sharding(struct item *item, const struct tree_node *leaf, struct span *ret)
{
	int r;

	if (leaf->source)
		return 0;

	pthread_mutex_lock(&item->lock);
	r = read_optional(item, "_sharding", parse_shardings, &item->shardings_read);
	pthread_mutex_unlock(&item->lock);
	if (r < 0 || !item->shardings)
		return r;
	return shardings_find(item->shardings, leaf->param, ret);
}

struct first_process {
	char name[64];
	uint64_t number;
};

static int pick_process(void *arg, const char *name, unsigned char type)
{
	struct first_process *f = arg;
	uint64_t number;
	char *end;

	if (strncmp(name, "process_", 8) || strlen(name) >= sizeof(f->name))
		return 0;
	number = strtoull(name + 8, &end, 10);
	if (*end || (f->name[0] && number >= f->number))
		return 0;
	strcpy(f->name, name);
	f->number = number;
	return 0;
}

/* Only the first file is read, as in Orbax. */
static int read_first_process(struct item *item)
{
	struct first_process first = { 0 };
	auto_document text = { 0 };
	char path[96];
	int r = io_list(item->dir, "array_metadatas", pick_process, &first);

	if (r < 0 || !first.name[0])
		return r;
	snprintf(path, sizeof(path), "array_metadatas/%s", first.name);
	r = read_pinned(item, path, LIMIT_SMALL_FILE, &text, NULL);
	return r < 0 ? r : array_metadatas_parse(text.text, first.name, &item->arrays);
}

/* Get the record of a leaf; *ret is NULL if there is none. */
static int find_array(struct item *item, const struct tree_node *leaf,
		      const struct array_metadata **ret)
{
	int r;

	*ret = NULL;
	if (leaf->source)
		return 0;
	pthread_mutex_lock(&item->lock);
	r = read_optional(item, "array_metadatas", read_first_process, &item->arrays_read);
	pthread_mutex_unlock(&item->lock);
	if (r < 0)
		return r;
	if (item->arrays)
		*ret = array_metadatas_find(item->arrays, leaf->param);
	return r;
}

int item_prng_impl(struct item *item, const struct tree_node *leaf, struct span *ret)
{
	const struct array_metadata *m;
	const struct tree *tree = item->tree;
	int r;

	while (tree->made_of)
		tree = tree->made_of;
	if (tree->has_manifest)
		return leaf->source ? 0 : tree_key_impl(tree, leaf->param, ret);
	r = find_array(item, leaf, &m);
	if (r < 0 || !m || !m->key_impl.p)
		return MIN(r, 0);
	*ret = m->key_impl;
	return 1;
}

int item_write_shape(struct item *item, const struct tree_node *leaf, const uint64_t **ret,
		     unsigned *ret_rank)
{
	const struct array_metadata *m = NULL;
	int r = leaf->has_write_shape ? 0 : find_array(item, leaf, &m);

	if (r < 0 || (!m && !leaf->has_write_shape))
		return MIN(r, 0);
	*ret = m ? m->write_shape : leaf->write_shape;
	*ret_rank = m ? m->write_rank : leaf->write_rank;
	return 1;
}

int item_digests(struct item *item, const struct digests **ret)
{
	auto_buf text = { 0 };
	int r = 0;

	pthread_mutex_lock(&item->lock);
	if (!item->digests_read && !item->is_file) {
		r = io_read_file(item->dir, DIGESTS_FILE, LIMIT_SMALL_FILE, &text);
		if (r >= 0)
			r = digests_parse(buf_span(&text), "'" DIGESTS_FILE "'", &item->digests);
		r = optional_document(item, DIGESTS_FILE, r);
		item->digests_read = r >= 0;
	}
	*ret = item->digests;
	pthread_mutex_unlock(&item->lock);
	return r;
}
