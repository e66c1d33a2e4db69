/* SPDX-License-Identifier: Apache-2.0 */
/*
 * derived_plugin.c - value functions of plugins, which read and write elements piece by piece
 * through callbacks.
 *
 * Invariants: nothing outside of an input is read; exactly the announced number of bytes is
 * written; an error of an input or of the disk is reported as such, even if the plugin ignores it.
 */
#include "handlers/transform/derived.h"

#include "core/base/err.h"
#include "handlers/plugin/plugin_call.h"

#define READ_BYTES (4 * MiB) /* bytes of an input that one read takes */

const char *derived_name(const struct derived *d)
{
	return d->plugin ? d->plugin->value->name : value_fn_name(d->fn);
}

static void derived_plugin_describe(struct array_type t, struct pytreefs_array *ret)
{
	*ret = (struct pytreefs_array){ .rank = t.rank };
	strncpy(ret->dtype, dtype_info(t.dtype)->name, sizeof(ret->dtype) - 1);
	memcpy(ret->shape, t.shape, t.rank * sizeof(*t.shape));
}

static int describe_inputs(const struct derived_plan *p, struct pytreefs_array **ret)
{
	*ret = calloc(p->n_inputs, sizeof(**ret));
	if (!*ret)
		return fail(-ENOMEM, "cannot describe %u arrays", p->n_inputs);
	for (unsigned i = 0; i < p->n_inputs; i++)
		derived_plugin_describe(zarr_meta_type(&p->input[i]->meta), &(*ret)[i]);
	return 0;
}

/* ---- the result's dtype and shape ---- */

/* Check every member, since plugins are not trusted. */
static int take_plan(const struct pytreefs_array *a, struct derived_plan *p)
{
	const char *plugin = p->plugin->plugin->name;

	if (!memchr(a->dtype, 0, sizeof(a->dtype)))
		return fail(-EINVAL, "plugin '%s': its dtype has no NUL at the end", plugin);
	if (dtype_by_name(span_str(a->dtype)) == DTYPE_UNKNOWN)
		return fail(-EINVAL, "plugin '%s': it planned dtype '%s', which does not exist",
			    plugin, a->dtype);
	if (a->rank > LIMIT_RANK)
		return fail(-EINVAL, "plugin '%s': it planned %u axes, the limit is %d", plugin,
			    a->rank, LIMIT_RANK);
	p->dtype = dtype_by_name(span_str(a->dtype));
	p->rank = a->rank;
	memcpy(p->shape, a->shape, a->rank * sizeof(*a->shape));
	return 0;
}

int derived_plugin_plan(struct derived_plan *p)
{
	const struct pytreefs_value_fn *v = p->plugin->value;
	auto_free struct pytreefs_array *in = NULL;
	auto_free char *args = span_dup_str(p->args);
	struct pytreefs_array out = { .rank = 0 };
	struct plugin_call c = { .given = 0 };
	int r = args ? describe_inputs(p, &in) : fail(-ENOMEM, "cannot call a plugin");

	if (r < 0)
		return r;
	plugin_call_begin(&c, p->plugin->plugin, v->flags);
	r = v->plan(&c.host, args, in, p->n_inputs, &out);
	r = plugin_call_end(&c, v->flags, r, -EINVAL);
	if (r >= 0)
		r = take_plan(&out, p);
	return r < 0 ? err_at(r, "%s(%.*s)", p->name, SPAN_ARG(p->args)) : 0;
}

/* ---- elements ---- */

struct run {
	struct plugin_call call;
	const struct derived_plan *plan;
	derived_sink *sink;
	void *arg;
	uint64_t written;
};

static int failed(struct plugin_call *c, int code)
{
	if (!c->failed.code)
		err_save(code, &c->failed);
	return -1;
}

static int run_read(struct plugin_call *c, uint32_t i, uint64_t off, void *p, uint64_t n)
{
	const struct derived_plan *plan = container_of(c, struct run, call)->plan;
	struct zarr_view v;
	int r;

	if (i >= plan->n_inputs)
		return plugin_call_refuse(c, fail(-EINVAL, "it read input %u of %u", i,
						  plan->n_inputs));
	zarr_view_whole(&plan->input[i]->meta, &v);
	r = zarr_view_finish(&v);
	if (r < 0)
		return failed(c, r);
	if (off > v.bytes || n > v.bytes - off || (!p && n))
		return plugin_call_refuse(
			c, fail(-EINVAL, "it read bytes [%llu, +%llu) of an input of %llu%s",
				(unsigned long long)off, (unsigned long long)n,
				(unsigned long long)v.bytes, p ? "" : ", to NULL"));
	for (uint64_t at = 0; at < n && r >= 0; at += READ_BYTES)
		r = zarr_read_into(plan->input[i], &v, off + at,
				   (size_t)MIN(n - at, (uint64_t)READ_BYTES), (uint8_t *)p + at);
	return r < 0 ? failed(c, r) : 0;
}

static int run_write(struct plugin_call *c, const void *p, uint64_t n)
{
	struct run *run = container_of(c, struct run, call);
	int r;

	if (!p && n)
		return plugin_call_refuse(c, fail(-EINVAL, "it wrote bytes from NULL"));
	if (n > run->plan->bytes - run->written)
		return plugin_call_refuse(c,
					  fail(-EINVAL, "it announced %llu bytes and writes more",
					       (unsigned long long)run->plan->bytes));
	r = n ? run->sink(run->arg, p, n) : 0;
	run->written += n;
	return r < 0 ? failed(c, r) : 0;
}

int derived_plugin_run(const struct derived_plan *p, derived_sink *sink, void *arg)
{
	const struct pytreefs_value_fn *v = p->plugin->value;
	struct run run = { .call = { .read = run_read, .write = run_write },
			   .plan = p,
			   .sink = sink,
			   .arg = arg };
	auto_free struct pytreefs_array *in = NULL;
	auto_free char *args = span_dup_str(p->args);
	struct pytreefs_array out;
	int r = args ? describe_inputs(p, &in) : fail(-ENOMEM, "cannot call a plugin");

	if (r < 0)
		return r;
	derived_plugin_describe((struct array_type){ p->dtype, p->rank, p->shape }, &out);
	plugin_call_begin(&run.call, p->plugin->plugin, v->flags);
	r = v->run(&run.call.host, args, in, p->n_inputs, &out);
	r = plugin_call_end(&run.call, v->flags, r, -EUCLEAN);
	if (r >= 0 && run.written != p->bytes)
		r = fail(-EUCLEAN, "plugin '%s': it announced %llu bytes and wrote %llu",
			 p->plugin->plugin->name, (unsigned long long)p->bytes,
			 (unsigned long long)run.written);
	return r < 0 ? err_at(r, "%s(%.*s)", p->name, SPAN_ARG(p->args)) : 0;
}
