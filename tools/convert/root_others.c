/* SPDX-License-Identifier: Apache-2.0 */
/*
 * root_others.c - says which files and directories of a root belong to no step, so that no copy of
 * its steps has them.
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
	struct buf names; /* the first of them, as they are printed */
};

static bool is_listed(const struct listing *l, struct span name)
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
	    span_eq(name, span_str("metadata")) || is_listed(o->steps, name))
		return true;
	return span_ends(name, end) && is_listed(o->steps, span_of(name.p, name.n - end.n));
}

static int add_other(void *arg, const char *name, unsigned char type)
{
	struct others *o = arg;

	if (is_known(o, span_str(name)) || o->n++ >= NAMES_MOST)
		return 0;
	return buf_addf(&o->names, "%s'%s%s'", o->n > 1 ? ", " : "",
			o->is_metadata ? "metadata/" : "", name);
}

/* A directory that cannot be listed is said to be so: the copy does not need its names. */
static int add_others(const struct ckpt *ckpt, const char *dir, struct others *o)
{
	int r = io_list(ckpt->source, dir, add_other, o);

	if (r >= 0 || r == -ENOMEM)
		return r;
	if (r != -ENOENT && r != -ENOTDIR)
		log_warn("'%s': %s", ckpt->opts.source, err_text(r));
	err_clear();
	return 0;
}

int root_say_others(const struct ckpt *ckpt, const struct listing *steps)
{
	struct others o = { .steps = steps };
	int r = add_others(ckpt, ".", &o);

	o.is_metadata = true;
	if (r >= 0)
		r = add_others(ckpt, "metadata", &o);
	if (r >= 0 && o.n)
		log_warn("'%s' has other files and directories beside its steps, which are left "
			 "out: %.*s%s",
			 ckpt->opts.source, SPAN_ARG(buf_span(&o.names)),
			 o.n > NAMES_MOST ? ", ..." : "");
	buf_release(&o.names);
	return r;
}
