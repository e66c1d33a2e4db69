/* SPDX-License-Identifier: Apache-2.0 */
/*
 * root_others.c - copies what a root has beside its steps: the metadata about all of them. Says
 * which other files and directories belong to no step, so that no copy of its steps has them.
 */
#include "tools/convert/root_others.h"

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/step/step_name.h"

#define NAMES_MOST 5 /* names in the message; there may be any number */

struct others {
	const struct listing *steps;
	bool is_metadata; /* the directory of metadata about all steps is looked at */
	size_t n;
	struct buf *names; /* the first of them, as they are printed; borrowed */
};

static bool root_others_is_listed(const struct listing *l, struct span name)
{
	for (size_t i = 2; i < l->n; i++)
		if (span_eq(span_str(listing_name(l, i)), name))
			return true;
	return false;
}

/* Whether it is a step, a part of one, what is not committed, or copied in another way. */
static bool is_known(const struct others *o, struct span name)
{
	struct span end = span_str(STEP_NAME_GDA);

	if (o->is_metadata)
		return span_eq(name, span_str("_ROOT_METADATA")) ||
		       span_eq(name, span_str("metadata"));
	if (step_name_is_tmp(name) || span_starts(name, span_str(".pytreefs")) ||
	    span_eq(name, span_str("metadata")) || root_others_is_listed(o->steps, name))
		return true;
	return span_ends(name, end) &&
	       root_others_is_listed(o->steps, span_of(name.p, name.n - end.n));
}

static int root_others_add_other(void *arg, const char *name, unsigned char type)
{
	struct others *o = arg;

	if (is_known(o, span_str(name)) || o->n++ >= NAMES_MOST)
		return 0;
	return buf_addf(o->names, "%s'%s%s'", o->n > 1 ? ", " : "",
			o->is_metadata ? "metadata/" : "", name);
}

/* A directory that cannot be listed is said to be so: the copy does not need its names. */
static int root_others_add_others(const struct ckpt *ckpt, const char *dir, struct others *o)
{
	int r = io_list(ckpt->source, dir, root_others_add_other, o);

	if (r >= 0 || r == -ENOMEM)
		return r;
	if (r != -ENOENT && r != -ENOTDIR)
		log_warn("'%s': %s", ckpt->opts.source, err_text(r));
	err_clear();
	return 0;
}

/* ---- the metadata about all steps ---- */

/* Like Orbax, keep an existing file, unless forced. In a bucket it appears as a whole. */
static int root_others_put_metadata(struct io_dir *to, const char *name, struct span text,
				    bool force)
{
	auto_free char *temp = str_fmt("%s.pytreefs", name);
	struct stat st;
	int r = temp ? io_stat(to, name, &st) : -ENOMEM;

	if (r != -ENOENT && (r < 0 || !force))
		return r;
	err_clear();
	r = io_make_parents(to, name, IO_DIR_MODE);
	if (r < 0)
		return r;
	r = io_write_file(to, to->bucket ? name : temp, text);
	if (r < 0 || to->bucket)
		return r;
	r = io_dirop(to, IO_RENAME, temp, name, 0);
	if (r < 0)
		return r;
	r = io_sync_parents(to, name);
	return r < 0 ? r : io_dirop(to, IO_SYNC_DIR, ".", NULL, 0);
}

int root_copy_others(const struct ckpt *ckpt, const struct listing *steps, const char *out,
		     bool force)
{
	static const char *const files[] = { "metadata/_ROOT_METADATA", "metadata/metadata" };
	auto_buf names = { 0 };
	struct others o = { .steps = steps, .names = &names };
	auto_of(io_dir) struct io_dir *to = NULL;
	int r = io_dir_open(ckpt->io, out, &to);

	for (size_t i = 0; i < ARRAY_LEN(files) && r >= 0; i++) {
		auto_buf text = { 0 };

		r = io_read_file(ckpt->source, files[i], LIMIT_STEP_FILE, &text);
		if (r >= 0)
			r = root_others_put_metadata(to, files[i], buf_span(&text), force);
		else if (r == -ENOENT || r == -ENOTDIR)
			r = 0;
		if (r < 0)
			return err_at(r, "'%s'", files[i]);
		err_clear();
	}
	if (r < 0)
		return r;
	r = root_others_add_others(ckpt, ".", &o);
	if (r < 0)
		return r;
	o.is_metadata = true;
	r = root_others_add_others(ckpt, "metadata", &o);
	if (r < 0)
		return r;
	if (o.n)
		log_warn("'%s' has other files and directories beside its steps, which are left "
			 "out: %.*s%s",
			 ckpt->opts.source, SPAN_ARG(buf_span(&names)),
			 o.n > NAMES_MOST ? ", ..." : "");
	return r;
}
