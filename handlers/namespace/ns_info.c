/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns_info.c - documents about the mount: counters, effective options, version.
 */
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/meter.h"
#include "core/io/io_store.h"
#include "core/sandbox/sandbox.h"
#include "core/zarr/stream.h"
#include "handlers/draft/draft.h"
#include "handlers/job/broadcast.h"
#include "handlers/namespace/memory_files.h"
#include "handlers/namespace/ns.h"

struct counter {
	const char *name;
	uint64_t value;
	bool is_now; /* it may become smaller */
};
#define NOW true

/* The document that counters go to. */
struct printer {
	struct buf *ret;
	const char *label; /* of metrics; NULL: the document is JSON */
};

static int ns_info_put(const struct printer *p, const struct counter *c)
{
	const char *total = c->is_now ? "" : "_total";

	if (!p->label)
		return buf_addf(p->ret, "%s\n  \"%s\": %llu", p->ret->n ? "," : "{", c->name,
				(unsigned long long)c->value);
	return buf_addf(p->ret, "# TYPE pytreefs_%s%s %s\npytreefs_%s%s{%s} %llu\n", c->name, total,
			c->is_now ? "gauge" : "counter", c->name, total, p->label,
			(unsigned long long)c->value);
}

static int put_all(const struct printer *p, const struct counter *c, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++)
		r = ns_info_put(p, &c[i]);
	return r;
}

/* Describe the process to which the counters belong. */
static int put_process(struct ns *ns, const struct printer *p)
{
	struct timespec now;
	const struct counter in_job = { "in_job", 1, NOW };
	int r;

	clock_gettime(CLOCK_REALTIME, &now);
	const struct counter rows[] = {
		{ "pid", (uint64_t)getpid(), NOW },
		{ "uptime_seconds", (uint64_t)(now.tv_sec - ns->started.tv_sec), NOW },
	};

	r = ns_info_put(p, &rows[0]);
	if (r < 0)
		return r;
	if (ns->peers)
		r = ns_info_put(p, &in_job);
	return r < 0 ? r : ns_info_put(p, &rows[1]);
}

static int put_cache(struct cache *c, const struct printer *p)
{
	struct cache_stats cache;

	cache_stats(c, &cache);
	const struct counter rows[] = {
		{ "cache_bytes", cache.bytes, NOW },
		{ "cache_peak_bytes", cache.peak_bytes, NOW },
		{ "cache_limit_bytes", cache.limit, NOW },
		{ "cache_pinned_bytes", cache.pinned_bytes, NOW },
		{ "cache_passed_bytes", cache.drop_behind_bytes, NOW },
		{ "cache_entries", cache.entries, NOW },
		{ "cache_hits", cache.hits },
		{ "cache_misses", cache.misses },
		{ "cache_evictions", cache.evictions },
		{ "ahead_started", cache.ahead_started },
		{ "ahead_used", cache.ahead_used },
		{ "ahead_wasted", cache.ahead_wasted },
		{ "ahead_bytes", cache.ahead_bytes, NOW },
	};

	return put_all(p, rows, ARRAY_LEN(rows));
}

/* Describe a SOURCE with a URL, and cache_dir=. */
static int put_store(struct io_engine *io, const struct printer *p)
{
	struct io_store_stats s;
	int r;

	if (!io_store_stats(io, &s))
		return 0;
	const struct counter of_url[] = {
		{ "url_requests", s.requests },
		{ "url_retries", s.retries },
		{ "url_bytes", s.received_bytes },
	};
	const struct counter of_cache[] = {
		{ "cache_dir_hits", s.cache_hits },
		{ "cache_dir_hit_bytes", s.cache_hit_bytes },
		{ "cache_dir_misses", s.cache_misses },
		{ "cache_dir_fetched_bytes", s.fetched_bytes },
		{ "cache_dir_stored", s.cache_stored },
		{ "cache_dir_evicted", s.cache_evicted },
		{ "cache_dir_damaged", s.cache_damaged },
	};

	r = put_all(p, of_url, ARRAY_LEN(of_url));
	return r < 0 || !s.has_cache ? r : put_all(p, of_cache, ARRAY_LEN(of_cache));
}

static int put_calls(struct ns *ns, const struct printer *p)
{
	struct memory_files_stats memory;

	memory_files_stats(ns->memory, &memory);
	const struct counter rows[] = {
		{ "requests", ns->requests },
		{ "requests_polled", ns->requests_polled },
		{ "requests_uring", ns->requests_uring },
		{ "files_passed_through", ns->passed_through },
		{ "memory_files", memory.files, NOW },
		{ "memory_file_bytes", memory.bytes, NOW },
		{ "memory_files_filled", memory.filled },
		{ "memory_files_refused", memory.refused },
		{ "errors", ns->errors },
		{ "drafts", draft_count(&ns->drafts), NOW },
		{ "commits", ns->commits },
		{ "commits_failed", ns->failed_commits },
	};

	return put_all(p, rows, ARRAY_LEN(rows));
}

static int put_stats(struct ns *ns, const struct printer *p)
{
	const struct io_stats *io = io_engine_stats(ns->ckpt->io);
	const struct zarr_env *env = &ns->ckpt->env, *inner = &ns->ckpt->inner_env;
	struct streams_stats streams;
	struct broadcast_stats shared;
	struct meter_stats metadata;
	int r;

	meter_stats(&metadata);
	broadcast_stats(ns->broadcast, &shared);
	streams_stats(ns->ckpt->streams, &streams);
	r = put_process(ns, p);
	if (r < 0)
		return r;
	r = put_calls(ns, p);
	if (r < 0)
		return r;
	const struct counter rows[] = {
		{ "source_reads", io->reads },
		{ "source_read_bytes", io->read_bytes },
		{ "source_writes", io->writes },
		{ "source_write_bytes", io->write_bytes },
		{ "source_syncs", io->syncs },
		{ "source_opens", io->opens },
		{ "chunks_decoded", env->chunks_decoded + inner->chunks_decoded },
		{ "chunk_bytes_decoded", env->chunk_bytes_decoded + inner->chunk_bytes_decoded },
		{ "chunk_bytes_read", env->chunk_bytes_stored },
		{ "broadcast_received_bytes", shared.received_bytes },
		{ "broadcast_received_pieces", shared.received_pieces },
		{ "broadcast_served_bytes", shared.served_bytes },
		{ "broadcast_fallbacks", shared.fallbacks },
		{ "chunks_encoded", ns->ckpt->write_env.chunks },
		{ "chunk_bytes_encoded", ns->ckpt->write_env.chunk_bytes },
		{ "chunk_bytes_stored", ns->ckpt->write_env.stored_bytes },
		{ "chunk_bytes_aside", atomic_load(&ns->drafts.staged_bytes), NOW },
		{ "chunks_copied", ns->ckpt->write_env.copied_chunks },
		{ "chunk_bytes_copied", ns->ckpt->write_env.copied_bytes },
		{ "auto_none", ns->ckpt->write_env.chosen[COMPRESSION_NONE] },
		{ "auto_zstd", ns->ckpt->write_env.chosen[COMPRESSION_ZSTD] },
		{ "auto_blosc", ns->ckpt->write_env.chosen[COMPRESSION_BLOSC] },
		{ "chunks_missing", env->chunks_missing },
		{ "raw_bytes", env->raw_bytes },
		{ "prefetches", env->prefetches },
		{ "background_jobs", pool_pending(ns->ckpt->pool), NOW },
		{ "read_budget_bytes", 2 * budget_total(&ns->ckpt->read_budget), NOW },
		{ "write_budget_bytes", budget_total(&ns->ckpt->write_budget), NOW },
		{ "read_budget_peak_bytes", budget_peak(&ns->ckpt->read_budget), NOW },
		{ "write_budget_peak_bytes", budget_peak(&ns->ckpt->write_budget), NOW },
		{ "streams", streams.live, NOW },
		{ "stream_restarts", streams.restarts },
		{ "spill_bytes", streams.spill_bytes, NOW },
		{ "spill_reads", streams.spill_reads },
		{ "decoder_bytes", streams.decoder_bytes, NOW },
		{ "decoder_peak_bytes", streams.decoder_peak_bytes, NOW },
		{ "metadata_bytes", metadata.used, NOW },
		{ "metadata_peak_bytes", metadata.peak, NOW },
		{ "metadata_limit_bytes", metadata.limit, NOW },
		{ "metadata_waits", metadata.waits },
		{ "metadata_refusals", metadata.refusals },
		{ "nodes", node_table_count(ns->nodes), NOW },
	};

	r = put_all(p, rows, ARRAY_LEN(rows));
	if (r < 0)
		return r;
	r = put_cache(ns->ckpt->cache, p);
	return r < 0 ? r : put_store(ns->ckpt->io, p);
}

int ns_stats_json(struct ns *ns, struct buf *ret)
{
	const struct printer p = { .ret = ret };
	int r = put_stats(ns, &p);

	return r < 0 ? r : buf_add_str(ret, "\n}\n");
}

/* Several mounts of a machine may be collected together, and the mount point distinguishes them. */
static int metrics_label(const struct ns *ns, struct buf *ret)
{
	int r = buf_add_str(ret, "mountpoint=\"");

	for (const char *c = ns->mountpoint ? ns->mountpoint : ""; *c && r >= 0; c++)
		r = *c == '\n'              ? buf_add_str(ret, "\\n") :
		    *c == '"' || *c == '\\' ? buf_addf(ret, "\\%c", *c) :
					      buf_add_byte(ret, (uint8_t)*c);
	return r < 0 ? r : buf_add_str(ret, "\"");
}

static int put_durations(const struct printer *p, const struct ns_operation *o)
{
	static const char *const limit[] = { "0.0001", "0.001", "0.01", "0.1",
					     "1",      "10",    "100",  "+Inf" };
	const char *name = "pytreefs_request_duration_seconds";
	uint64_t sum = 0, ns = o->nanoseconds;
	int r = 0;

	_Static_assert(ARRAY_LEN(limit) == NS_DURATIONS + 1, "limits of ns.h");
	for (size_t i = 0; i < ARRAY_LEN(limit) && r >= 0; i++) {
		sum += o->took[i];
		r = buf_addf(p->ret, "%s_bucket{%s,operation=\"%s\",le=\"%s\"} %llu\n", name,
			     p->label, o->name, limit[i], (unsigned long long)sum);
	}
	if (r < 0)
		return r;
	r = buf_addf(p->ret, "%s_sum{%s,operation=\"%s\"} %llu.%09llu\n", name, p->label, o->name,
		     (unsigned long long)(ns / 1000000000), (unsigned long long)(ns % 1000000000));
	return r < 0 ? r :
		       buf_addf(p->ret, "%s_count{%s,operation=\"%s\"} %llu\n", name, p->label,
				o->name, (unsigned long long)sum);
}

static bool is_counted(const struct ns *ns, size_t i)
{
	bool any = false;

	for (size_t k = 0; k <= NS_DURATIONS; k++)
		any |= ns->operation[i].took[k] > 0;
	return ns->operation[i].name && any;
}

int ns_metrics(struct ns *ns, struct buf *ret)
{
	auto_buf label = { 0 };
	struct printer p = { .ret = ret };
	int r = metrics_label(ns, &label);

	p.label = r < 0 ? NULL : buf_str(&label);
	if (!p.label)
		return fail(-ENOMEM, "cannot print metrics");
	r = put_stats(ns, &p);
	if (r < 0)
		return r;
	r = buf_add_str(ret, "# TYPE pytreefs_request_errors_total counter\n");
	for (size_t i = 0; i < NS_OPERATIONS && r >= 0; i++)
		if (is_counted(ns, i))
			r = buf_addf(ret,
				     "pytreefs_request_errors_total{%s,operation=\"%s\"} %llu\n",
				     p.label, ns->operation[i].name,
				     (unsigned long long)ns->operation[i].errors);
	if (r < 0)
		return r;
	r = buf_add_str(ret, "# TYPE pytreefs_request_duration_seconds histogram\n");
	for (size_t i = 0; i < NS_OPERATIONS && r >= 0; i++)
		if (is_counted(ns, i))
			r = put_durations(&p, &ns->operation[i]);
	return r;
}

int ns_config_json(struct ns *ns, struct buf *ret)
{
	auto_buf value = { 0 };
	int r = buf_add_str(ret, "{\n  \"source\": ");

	if (r < 0)
		return r;
	r = json_put_str(ret, span_str(ns->ckpt->opts.source), JSON_PRETTY);
	if (r < 0)
		return r;
	r = buf_addf(ret, ",\n  \"shape\": \"%s\",\n  \"engine\": \"%s\",\n  \"sandbox\": ",
		     shape_text(ns->ckpt->shape), io_engine_name(ns->ckpt->io));
	if (r < 0)
		return r;
	r = sandbox_print(ret);
	if (r < 0)
		return r;
	r = buf_add_str(ret, ",\n  \"options\": {");
	for (size_t i = 0; i < option_count && r >= 0; i++) {
		const struct option *opt = &option_table[i];

		buf_clear(&value);
		r = option_print(ns->options, opt, &value);
		if (r < 0)
			return r;
		r = buf_addf(ret, "%s\n    \"%s\": {\"value\": ", i ? "," : "", opt->name);
		if (r < 0)
			return r;
		r = json_put_str(ret, buf_span(&value), JSON_PRETTY);
		if (r < 0)
			return r;
		r = buf_addf(ret, ", \"from\": \"%s\"}", option_from_text(ns->options, opt));
	}
	return r < 0 ? r : buf_add_str(ret, "\n  }\n}\n");
}

int ns_version_json(struct ns *ns, struct buf *ret)
{
	return buf_addf(
		ret,
		"{\n  \"pytreefs\": \"%s\",\n  \"compiler\": \"%s\",\n  \"io_uring\": true,\n"
		"  \"built_with\": {\"libfuse\": \"%s\", \"liburing\": \"%s\", \"zstd\": \"%s\", "
		"\"cjson\": \"%s\", \"msgpack\": \"%s\", \"isal\": \"%s\"}\n}\n",
		PYTREEFS_VERSION, __VERSION__, BUILT_FUSE, BUILT_URING, BUILT_ZSTD, BUILT_CJSON,
		BUILT_MSGPACK, BUILT_ISAL);
}
