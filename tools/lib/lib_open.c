/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_open.c - handles, options, and errors of the library.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/base/blocks.h"
#include "core/base/digest.h"
#include "core/base/log.h"
#include "handlers/namespace/node_tree.h"
#include "tools/lib/lib.h"

/* ---- errors ---- */

static __thread struct {
	int code;
	char text[ERR_TEXT_MAX];
	char name[512]; /* of the call in progress, or of the failed one */
} last;

int lib_begin_pid(pid_t pid, const char *what, const char *name)
{
	err_clear();
	snprintf(last.name, sizeof(last.name), "%s", name ? name : "");
	if (pid != getpid())
		return fail(-ECHILD,
			    "the %s was opened before fork(), by process %d: open it again", what,
			    (int)pid);
	return 0;
}

int lib_begin(const struct pytreefs *ck, const char *name)
{
	return lib_begin_pid(ck->pid, "checkpoint", name);
}

ssize_t lib_end(ssize_t r)
{
	if (r < 0) {
		last.code = (int)r;
		snprintf(last.text, sizeof(last.text), "%s", err_text((int)r));
		err_clear();
	}
	return r;
}

const char *pytreefs_error(void)
{
	return last.text;
}

const char *pytreefs_error_name(void)
{
	return last.name;
}

int pytreefs_error_code(void)
{
	return last.code;
}

int pytreefs_error_errno(void)
{
	return last.code ? err_errno(last.code) : 0;
}

const char *pytreefs_version(void)
{
	return PYTREEFS_VERSION;
}

/* ---- open ---- */

static void init_once(void)
{
	log_open(false, false, NULL);
}

void lib_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, init_once);
}

static int set_one(void *arg, const char *text)
{
	return option_set(arg, text, false);
}

int lib_options(struct options *o, const char *text)
{
	int r = options_set_environment(o);

	return r < 0 || !text ? r : options_each(text, set_one, o);
}

void pytreefs_close(struct pytreefs *ck)
{
	if (!ck)
		return;
	if (ck->pid == getpid()) {
		source_close(&ck->source);
		options_release(&ck->args.options);
		block_trim();
	}
	/*
	 * The child does not have the parent's threads, and locks may be held: the rest of the
	 * handle cannot be freed there.
	 */
	free(ck);
}

DEFINE_AUTO(handle, struct pytreefs, pytreefs_close);

static int open_handle(const char *path, const char *options, struct pytreefs **ret)
{
	auto_of(handle) struct pytreefs *ck = calloc(1, sizeof(*ck));
	int r;

	if (!ck)
		return fail(-ENOMEM, "cannot open '%s'", path);
	ck->pid = getpid();
	r = options_init(&ck->args.options);
	if (r < 0)
		return r;
	r = lib_options(&ck->args.options, options);
	if (r < 0)
		return r;
	if (options_of_saving(&ck->args.options))
		return fail(-EINVAL, "option '%s' is for checkpoints that are written",
			    options_of_saving(&ck->args.options)->name);
	r = source_open(&ck->args, path, &ck->source);
	if (r < 0)
		return r;
	*ret = take(ck);
	return 0;
}

int pytreefs_open(const char *path, const char *options, struct pytreefs **ret)
{
	lib_init();
	lib_begin_pid(getpid(), "checkpoint", path);
	return (int)lib_end(open_handle(path, options, ret));
}

/* ---- kinds ---- */

enum pytreefs_kind lib_kind_of_tree(const struct tree_node *t)
{
	switch (t->kind) {
	case TREE_DICT:
		return PYTREEFS_DICT;
	case TREE_LIST:
		return PYTREEFS_LIST;
	case TREE_TUPLE:
		return PYTREEFS_TUPLE;
	case TREE_NAMEDTUPLE:
		return PYTREEFS_NAMEDTUPLE;
	case TREE_CUSTOM:
		return PYTREEFS_CUSTOM;
	case TREE_UNKNOWN:
		return PYTREEFS_CONTAINER;
	case TREE_LEAF:
		break;
	}
	return t->value == TREE_VALUE_NONE        ? PYTREEFS_NONE :
	       t->value == TREE_VALUE_PLACEHOLDER ? PYTREEFS_PLACEHOLDER :
						    PYTREEFS_ARRAY;
}

enum pytreefs_kind lib_kind_of(struct node *n)
{
	struct stat st;

	if (n->ops == &node_step_ops)
		return PYTREEFS_STEP;
	if (n->ops == &node_dir_ops)
		return lib_kind_of_tree(container_of(n, struct node_dir, node)->tree);
	if (n->ops == &node_leaf_ops)
		return PYTREEFS_UNKNOWN;
	if (node_is_root(n))
		return PYTREEFS_ROOT;
	/* Last: the attributes of an item need those of all its stored files. */
	return node_stat(n, &st) >= 0 && S_ISDIR(st.st_mode) ? PYTREEFS_OPAQUE : PYTREEFS_FILE;
}

/* ---- what was opened ---- */

/* Get the place of an item or step in SOURCE; false: n is neither. */
static bool lib_open_place_of(struct node *n, const char **path, const struct file_id **id)
{
	struct node_dir *dir = n->ops == &node_dir_ops ? container_of(n, struct node_dir, node) :
							 NULL;
	bool is_step = n->ops == &node_step_ops;

	if (!is_step && (!dir || !dir->is_item))
		return false;
	*path = is_step ? node_step_path(n) : dir->item->path;
	*id = is_step ? node_step_id(n) : &dir->item->id;
	return true;
}

uint64_t lib_version(const struct file_id *id)
{
	const uint64_t part[] = { id->dev, id->ino, (uint64_t)id->mtime.tv_sec,
				  (uint64_t)id->mtime.tv_nsec };

	return MAX(hash64(span_of(part, sizeof(part)), 0), (uint64_t)1);
}

uint64_t lib_version_of(struct node *n)
{
	const struct file_id *id;
	const char *path;

	if (n->ops == &node_leaf_ops)
		return lib_version(&container_of(n, struct node_leaf, node)->item->id);
	if (n->ops == &node_dir_ops)
		return lib_version(&container_of(n, struct node_dir, node)->item->id);
	while (n && !lib_open_place_of(n, &path, &id))
		n = n->parent;
	return n ? lib_version(id) : 0;
}

/*
 * Whether SOURCE and the step and item in it that were opened are still there. Objects of a URL are
 * pinned when they are read.
 */
static bool lib_open_is_there(const struct pytreefs *ck)
{
	struct io_dir *source = ck->source.ns->ckpt->source;
	const struct file_id *id;
	const char *path;
	struct stat st;

	if (source->fd < 0)
		return true;
	if (ns_is_gone(ck->source.ns))
		return false;
	for (struct node *n = ck->source.node; n; n = n->parent) {
		int r = lib_open_place_of(n, &path, &id) ? io_stat(source, path, &st) : 1;

		/* A process that has no descriptor left cannot tell. */
		if (r < 0 ? !err_is_transient(r) :
			    r == 0 && (st.st_dev != id->dev || st.st_ino != id->ino))
			return false;
	}
	return true;
}

int lib_node(struct pytreefs *ck, const char *name, struct node **ret)
{
	int r;

	if (!lib_open_is_there(ck))
		return fail(-ESTALE,
			    "'%s' was replaced or removed since it was opened: open it again",
			    *ck->source.inner ? ck->source.inner : ck->source.source);
	r = node_walk(ck->source.node, name, ret);
	if (r == -ENOENT && !*err_where(r))
		return fail_absent_name(ck->source.node, ck->source.source, name, false);
	return r;
}

int lib_progress(void *arg, uint64_t done)
{
	const struct lib_progress *l = arg;

	if (!l->p)
		return 0;
	if (l->p->cancel && __atomic_load_n(l->p->cancel, __ATOMIC_RELAXED))
		return fail(-ECANCELED, "canceled");
	if (l->p->fn && l->p->fn(l->p->arg, done, l->total))
		return fail(-ECANCELED, "canceled by the progress function");
	return 0;
}
