/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_make.h - plans of items whose files are given as a table.
 */
#ifndef PYTREEFS_PLAN_MAKE_H
#define PYTREEFS_PLAN_MAKE_H

#include "tests/unit/lib/draft_make.h"
#include "tests/unit/lib/tmp_dir.h"

#include "handlers/plan/draft_plan.h"

/* A file of an item. */
struct given {
	const char *name;
	const char *text; /* NULL: an .npy file of zeros */
	enum dtype dtype;
	unsigned rank;
	uint64_t shape[2];
};

static char root[TMP_DIR_MAX];
static struct options options;
static struct ns *ns;
static struct draft *drafts[128]; /* plans refer to them until the end of the test */
static unsigned n_drafts;

static inline int plan_setup(const char *test)
{
	static const char *const set[] = { "io=sync", "replica_parallel=off", NULL };

	assert_int_equal(tmp_dir_make(root, test), 0);
	made_options(&options, set);
	return ns_open(root, &options, &ns);
}

static inline int plan_teardown(void)
{
	for (unsigned i = 0; i < n_drafts; i++) {
		assert_int_equal(draft_abort(drafts[i], true), 0);
		draft_unref(drafts[i]);
	}
	n_drafts = 0;
	ns_close(take(ns));
	options_release(&options);
	return tmp_dir_remove(root);
}

static inline void give_file(struct draft_node *item, const struct given *g)
{
	struct draft_node *n;
	auto_buf content = { 0 };
	bool flushed = false;
	uint64_t size;

	if (g->text) {
		assert_int_equal(buf_add_str(&content, g->text), 0);
	} else {
		size = dtype_info(g->dtype)->size;
		assert_int_equal(npy_header(&(struct array_type){ g->dtype, g->rank, g->shape },
					    &content),
				 0);
		for (unsigned i = 0; i < g->rank; i++)
			size *= g->shape[i];
		for (uint64_t i = 0; i < size; i++)
			assert_int_equal(buf_add_byte(&content, 0), 0);
	}
	assert_int_equal(draft_create(item, span_str(g->name), &n), 0);
	draft_file_opened(n->file);
	assert_int_equal(draft_file_write(n->file, 0, content.p ? content.p : (uint8_t *)"",
					  content.n),
			 content.n);
	draft_file_flush(n->file, &flushed, true);
	draft_file_closed(n->file, &flushed);
	draft_node_unref(n);
}

/* The item of a new draft that has these files; name NULL ends them. A reference. */
static inline struct draft_node *give(const struct given *files)
{
	struct draft_node *item;
	char name[32];

	assert_true(n_drafts < ARRAY_LEN(drafts));
	snprintf(name, sizeof(name), "%u.tmp", n_drafts + 1);
	assert_int_equal(draft_begin(&ns->drafts, span_str(name), &drafts[n_drafts++]), 0);
	assert_int_equal(draft_mkdir(drafts[n_drafts - 1]->root, span_str("default"), &item), 0);
	for (; files->name; files++)
		give_file(item, files);
	return item;
}

#endif
