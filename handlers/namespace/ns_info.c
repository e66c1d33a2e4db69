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
#include "handlers/namespace/ns.h"

static int put(struct buf *ret, const char *name, uint64_t value)
{
	return buf_addf(ret, ",\n  \"%s\": %llu", name, (unsigned long long)value);
}

struct counter {
	const char *name;
	uint64_t value;
};

static int put_all(struct buf *ret, const struct counter *c, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++)
		r = put(ret, c[i].name, c[i].value);
	return r;
}

/* Describe the process to which the counters belong. */
static int put_process(struct ns *ns, struct buf *ret)
{
	struct timespec now;
	int r = buf_addf(ret, "{\n  \"pid\": %ld", (long)getpid());

	clock_gettime(CLOCK_REALTIME, &now);
	if (r >= 0 && (ns->drafts.collective || ns->broadcast))
		r = put(ret, "in_job", 1);
	return r < 0 ? r : put(ret, "uptime_seconds", (uint64_t)(now.tv_sec - ns->started.tv_sec));
}

static int put_cache(struct cache *c, struct buf *ret)
{
	struct cache_stats cache;

	cache_stats(c, &cache);
	const struct counter rows[] = {
		{ "cache_bytes", cache.bytes },
		{ "cache_peak_bytes", cache.peak_bytes },
		{ "cache_limit_bytes", cache.limit },
		{ "cache_pinned_bytes", cache.pinned_bytes },
		{ "cache_passed_bytes", cache.drop_behind_bytes },
		{ "cache_entries", cache.entries },
		{ "cache_hits", cache.hits },
		{ "cache_misses", cache.misses },
		{ "cache_evictions", cache.evictions },
		{ "ahead_started", cache.ahead_started },
		{ "ahead_used", cache.ahead_used },
		{ "ahead_wasted", cache.ahead_wasted },
		{ "ahead_bytes", cache.ahead_bytes },
	};

	return put_all(ret, rows, ARRAY_LEN(rows));
}

/* Describe a SOURCE with a URL, and cache_dir=. */
static int put_store(struct io_engine *io, struct buf *ret)
{
	struct io_store_stats s;
	int r;

	if (!io_store_stats(io, &s))
		return 0;
	const struct counter of_url[] = {
		{ "url_requests", s.requests },     { "url_retries", s.retries },
		{ "url_bytes", s.received_bytes },  { "url_hedges", s.hedges },
		{ "url_hedges_won", s.hedges_won },
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

	r = put_all(ret, of_url, ARRAY_LEN(of_url));
	return r < 0 || !s.has_cache ? r : put_all(ret, of_cache, ARRAY_LEN(of_cache));
}

static int put_calls(struct ns *ns, struct buf *ret)
{
	const struct counter rows[] = {
		{ "requests", ns->requests },
		{ "requests_polled", ns->requests_polled },
		{ "requests_uring", ns->requests_uring },
		{ "files_passed_through", ns->passed_through },
		{ "errors", ns->errors },
		{ "drafts", draft_count(&ns->drafts) },
		{ "commits", ns->commits },
		{ "commits_failed", ns->failed_commits },
	};

	return put_all(ret, rows, ARRAY_LEN(rows));
}

int ns_stats_json(struct ns *ns, struct buf *ret)
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
	r = put_process(ns, ret);
	if (r >= 0)
		r = put_calls(ns, ret);
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
		{ "chunk_bytes_aside", atomic_load(&ns->drafts.staged_bytes) },
		{ "chunks_copied", ns->ckpt->write_env.copied_chunks },
		{ "chunk_bytes_copied", ns->ckpt->write_env.copied_bytes },
		{ "auto_none", ns->ckpt->write_env.chosen[COMPRESSION_NONE] },
		{ "auto_zstd", ns->ckpt->write_env.chosen[COMPRESSION_ZSTD] },
		{ "auto_blosc", ns->ckpt->write_env.chosen[COMPRESSION_BLOSC] },
		{ "chunks_missing", env->chunks_missing },
		{ "raw_bytes", env->raw_bytes },
		{ "prefetches", env->prefetches },
		{ "background_jobs", pool_pending(ns->ckpt->pool) },
		{ "read_budget_bytes", 2 * budget_total(&ns->ckpt->read_budget) },
		{ "write_budget_bytes", budget_total(&ns->ckpt->write_budget) },
		{ "read_budget_peak_bytes", budget_peak(&ns->ckpt->read_budget) },
		{ "write_budget_peak_bytes", budget_peak(&ns->ckpt->write_budget) },
		{ "streams", streams.live },
		{ "stream_restarts", streams.restarts },
		{ "spill_bytes", streams.spill_bytes },
		{ "spill_reads", streams.spill_reads },
		{ "decoder_bytes", streams.decoder_bytes },
		{ "decoder_peak_bytes", streams.decoder_peak_bytes },
		{ "metadata_bytes", metadata.used },
		{ "metadata_peak_bytes", metadata.peak },
		{ "metadata_limit_bytes", metadata.limit },
		{ "metadata_waits", metadata.waits },
		{ "metadata_refusals", metadata.refusals },
		{ "nodes", node_table_count(ns->nodes) },
	};

	if (r >= 0)
		r = put_all(ret, rows, ARRAY_LEN(rows));
	if (r >= 0)
		r = put_cache(ns->ckpt->cache, ret);
	if (r >= 0)
		r = put_store(ns->ckpt->io, ret);
	return r < 0 ? r : buf_add_str(ret, "\n}\n");
}

int ns_config_json(struct ns *ns, struct buf *ret)
{
	auto_buf value = { 0 };
	int r = buf_add_str(ret, "{\n  \"source\": ");

	if (r >= 0)
		r = json_put_str(ret, span_str(ns->ckpt->opts.source), JSON_PRETTY);
	if (r >= 0)
		r = buf_addf(ret, ",\n  \"shape\": \"%s\",\n  \"engine\": \"%s\",\n  \"sandbox\": ",
			     shape_text(ns->ckpt->shape), io_engine_name(ns->ckpt->io));
	if (r >= 0)
		r = sandbox_print(ret);
	if (r >= 0)
		r = buf_add_str(ret, ",\n  \"options\": {");
	for (size_t i = 0; i < option_count && r >= 0; i++) {
		const struct option *opt = &option_table[i];

		buf_clear(&value);
		r = option_print(ns->options, opt, &value);
		if (r >= 0)
			r = buf_addf(ret, "%s\n    \"%s\": {\"value\": ", i ? "," : "", opt->name);
		if (r >= 0)
			r = json_put_str(ret, buf_span(&value), JSON_PRETTY);
		if (r >= 0)
			r = buf_addf(ret, ", \"from\": \"%s\"}",
				     option_from_text(ns->options, opt));
	}
	return r < 0 ? r : buf_add_str(ret, "\n  }\n}\n");
}

int ns_version_json(struct buf *ret)
{
	return buf_addf(
		ret,
		"{\n  \"pytreefs\": \"%s\",\n  \"compiler\": \"%s\",\n  \"io_uring\": true,\n"
		"  \"built_with\": {\"libfuse\": \"%s\", \"liburing\": \"%s\", \"zstd\": \"%s\", \"cjson\": \"%s\","
		" \"msgpack\": \"%s\", \"isal\": \"%s\"}\n}\n",
		PYTREEFS_VERSION, __VERSION__, BUILT_FUSE, BUILT_URING, BUILT_ZSTD, BUILT_CJSON,
		BUILT_MSGPACK, BUILT_ISAL);
}
