/*
 * options.c - the option table, and reading and printing values by it.
 */
#include "handlers/options.h"

#include <ctype.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/glob.h"

#define AT(member) offsetof(struct options, member)

const struct option option_table[] = {
	{ "dtype", OPTION_DTYPE, AT(save.dtype), "", "NAME",
	  "cast arrays to this dtype while they are saved", .scoped = true },
	{ "chunk_byte_size", OPTION_SIZE, AT(save.chunk_byte_size), "0", "BYTES",
	  "largest chunk, chosen by Orbax's rule; 0 leaves it to us", .scoped = true },
	{ "shard_axes", OPTION_AXES, AT(save.shard_axes), "", "AXIS:AXIS:...",
	  "axes that are cut completely, first", .scoped = true },
	{ "compression", OPTION_COMPRESSION, AT(save.compression), "zstd", "zstd|zstd:LEVEL|none",
	  "compression of chunks", .scoped = true },
	{ "leaf_type", OPTION_ENUM, AT(save.leaf_type), "np.ndarray", "np.ndarray|jax.Array",
	  "what arrays are recorded as", .scoped = true },
	{ "ocdbt", OPTION_BOOL, AT(save.ocdbt), "on", "on|off",
	  "store arrays in one database, or in a directory per leaf", .scoped = true },
	{ "zarr", OPTION_ENUM, AT(save.zarr), "2", "2|3", "version of the array format", .scoped = true },
	{ "target_data_file_size", OPTION_SIZE, AT(save.target_data_file_size), "2G", "BYTES",
	  "data files of a database grow to this size; 0: without limit", .scoped = true },
	{ "rich_types", OPTION_BOOL, AT(save.rich_types), "off", "on|off",
	  "record tuples and namedtuples in _METADATA", .scoped = true },
	{ "sharding_file", OPTION_BOOL, AT(save.sharding_file), "on", "on|off",
	  "write _sharding for jax.Array leaves", .scoped = true },
	{ "array_metadata", OPTION_BOOL, AT(save.array_metadata), "on", "on|off",
	  "write array_metadatas for jax.Array leaves", .scoped = true },
	{ "store_fill_value", OPTION_BOOL, AT(save.store_fill_value), "on", "on|off",
	  "store chunks that are all zeros", .scoped = true },
	{ "rule", OPTION_RULE, 0, NULL, "GLOB:NAME=VALUE", "one of the options above for leaves whose path matches" },
	{ "commit_timeout", OPTION_UINT, AT(commit_timeout), "1200", "SECONDS",
	  "a commit that takes longer fails, and the draft stays" },
	{ "verify_commit", OPTION_BOOL, AT(verify_commit), "on", "on|off",
	  "look at every array of a draft before it becomes a step" },
	{ "on_commit", OPTION_TEXT, AT(on_commit), NULL, "COMMAND",
	  "run when a step is durable, with its path as argument" },
	{ "mode", OPTION_OCTAL, AT(mode), "0", "OCTAL", "permissions of new directories, under the umask" },
	{ "allow_delete", OPTION_BOOL, AT(allow_delete), "off", "on|off", "rmdir of a step deletes it" },
	{ "todelete", OPTION_TEXT, AT(todelete), NULL, "DIR",
	  "move deleted steps there (below SOURCE) instead of removing them" },
	{ "json_filename", OPTION_TEXT, AT(json_filename), "metadata", "NAME", "file name inside JSON items" },
	{ "proto_filename", OPTION_TEXT, AT(proto_filename), "proto.pbtxt", "NAME", "file name inside proto items" },
	{ "shape", OPTION_ENUM, AT(shape), "auto", "auto|root|step|item",
	  "what SOURCE is; auto recognises it" },
	{ "show_tmp", OPTION_BOOL, AT(show_tmp), "off", "on|off",
	  "show temporary directories of other programs, and abandoned drafts" },
	{ "missing", OPTION_ENUM, AT(missing), "auto", "auto|error|zero",
	  "what a chunk that is not stored is; auto follows the checkpoint's own metadata" },
	{ "atomicity", OPTION_ENUM, AT(atomicity), "auto", "auto|rename|commit_file",
	  "how a step becomes visible: by its rename, or by the marker commit_success.txt" },
	{ "aggregate_filename", OPTION_TEXT, AT(aggregate_filename), "checkpoint", "NAME",
	  "name of the legacy msgpack file of an item" },
	{ "safetensors_separator", OPTION_TEXT, AT(safetensors_separator), ".", "TEXT",
	  "what joins the keys of a leaf to its name in D.safetensors" },
	{ "cache", OPTION_SIZE, AT(cache), "256M", "BYTES|auto",
	  "bytes of decoded chunks, index nodes and pieces that are kept" },
	{ "read_budget", OPTION_SIZE, AT(read_budget), "256M", "BYTES|auto",
	  "bytes that reads under way may hold beside the cache" },
	{ "write_budget", OPTION_SIZE, AT(write_budget), "256M", "BYTES|auto",
	  "bytes that writes under way may hold" },
	{ "spill", OPTION_TEXT, AT(spill), "auto", "DIR|off|auto",
	  "where readers that jump in large chunks get a temporary file; auto is the system's directory" },
	{ "spill_limit", OPTION_SIZE, AT(spill_limit), "4G", "BYTES",
	  "bytes of all temporary files together" },
	{ "io", OPTION_TEXT, AT(io), "auto", "auto|uring|sync|trace:ENGINE|fault(RULES):ENGINE",
	  "how files are read and written; auto is io_uring where the kernel allows it" },
	{ "threads", OPTION_UINT, AT(threads), "0", "N", "worker threads; 0 is one per processor" },
	{ "direct_io", OPTION_BOOL, AT(direct_io), "off", "on|off",
	  "do not keep file contents in the kernel's page cache" },
	{ "max_read", OPTION_SIZE, AT(max_read), "512K", "BYTES",
	  "largest request that the kernel may send; above 512K raw chunks cannot be spliced" },
	{ "poll", OPTION_UINT, AT(poll), "1000", "MILLISECONDS",
	  "how often to look for new steps where the kernel cannot tell" },
	{ "primary", OPTION_UINT, AT(primary), "0", "RANK", "under MPI: the rank that commits" },
	{ "active", OPTION_TEXT, AT(active), NULL, "RANK-RANK:RANK:...",
	  "under MPI: the ranks that write and commit; the others read" },
	{ "job", OPTION_TEXT, AT(job), NULL, "NAME", "under MPI: name of the communicator, and in messages" },
	{ "replica_parallel", OPTION_BOOL, AT(replica_parallel), "off", "on|off",
	  "under MPI: arrays that all active ranks write alike are stored in slices, one by each" },
	{ "replica_parallel_min_bytes", OPTION_SIZE, AT(replica_parallel_min_bytes), "0", "BYTES",
	  "only when a slice has at least that many" },
	{ "replica_parallel_max", OPTION_UINT, AT(replica_parallel_max), "0", "N",
	  "at most so many slices; 0: one for each rank" },
	{ "log", OPTION_TEXT, AT(log), NULL, "FILE", "append messages to a file" },
	{ "trace", OPTION_TEXT, AT(trace), NULL, "CATEGORY:...",
	  "trace requests: fs step leaf zarr kv ocdbt codec io all" },
};
const size_t option_count = ARRAY_LEN(option_table);

static void *place(struct options *o, const struct option *opt)
{
	return (char *)o + opt->at;
}

static const void *place_const(const struct options *o, const struct option *opt)
{
	return (const char *)o + opt->at;
}

/* Half of what is free, within the container's limit: for "auto". */
static uint64_t auto_size(void)
{
	uint64_t avail = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE), limit;
	char line[256];
	FILE *f = fopen("/proc/meminfo", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %lu kB", &limit) == 1)
			avail = limit << 10;
	if (f)
		fclose(f);
	f = fopen("/sys/fs/cgroup/memory.max", "re");
	if (f && fscanf(f, "%lu", &limit) == 1)
		avail = MIN(avail, limit);
	if (f)
		fclose(f);
	return MAX(64 * MiB, avail / 4);
}

int option_parse_size(const char *text, uint64_t *ret)
{
	uint64_t v = 0, unit = 1;
	const char *at = text;

	if (!strcmp(text, "auto")) {
		*ret = auto_size();
		return 0;
	}
	for (; isdigit((unsigned char)*at); at++)
		if (!mul_fits(v, 10, &v) || !add_fits(v, (uint64_t)(*at - '0'), &v))
			return -EINVAL;
	if (at == text)
		return -EINVAL;
	switch (toupper((unsigned char)*at)) {
	case 'K': unit = KiB; at++; break;
	case 'M': unit = MiB; at++; break;
	case 'G': unit = GiB; at++; break;
	case 'T': unit = 1024 * GiB; at++; break;
	default: break;
	}
	if (*at || !mul_fits(v, unit, ret))
		return -EINVAL;
	return 0;
}

/* The place of value among words separated by '|', or -1. */
static int word_index(const char *words, const char *value)
{
	int i = 0;

	for (const char *at = words; *at; i++) {
		size_t n = strcspn(at, "|");

		if (strlen(value) == n && !strncmp(at, value, n))
			return i;
		at += n + (at[n] == '|');
	}
	return -1;
}

static int bad_value(const struct option *opt, const char *value)
{
	return fail(-EINVAL, "option '%s' does not accept '%s'; it takes %s", opt->name, value, opt->accepts);
}

static int parse_dtype(const char *value, int *ret)
{
	enum dtype t = *value ? dtype_by_name(span_str(value)) : DTYPE_UNKNOWN;

	if (*value && t == DTYPE_UNKNOWN)
		return -EINVAL;
	*ret = (int)t;
	return 0;
}

/* "0:1", or the JSON of an xattr: "[0, 1]". */
static int parse_axes(const char *value, struct axes *ret)
{
	struct axes a = { 0 };

	while (*value) {
		char *end;
		unsigned long v;

		value += strspn(value, ":[], ");
		if (!*value)
			break;
		v = strtoul(value, &end, 10);
		if (end == value || v >= LIMIT_RANK || a.n == LIMIT_RANK)
			return -EINVAL;
		a.axis[a.n++] = (unsigned)v;
		value = end;
	}
	*ret = a;
	return 0;
}

static int parse_compression(const char *value, int *ret)
{
	char *end;
	long level;

	if (!strcmp(value, "none")) {
		*ret = SAVE_RAW;
		return 0;
	}
	if (!strcmp(value, "zstd")) {
		*ret = SAVE_LEVEL_DEFAULT;
		return 0;
	}
	if (strncmp(value, "zstd:", 5))
		return -EINVAL;
	level = strtol(value + 5, &end, 10);
	if (*end || end == value + 5 || level < -131072 || level > 22)
		return -EINVAL;
	*ret = (int)level;
	return 0;
}

static int add_rule(struct options *o, const struct option *opt, const char *value)
{
	const char *colon = strchr(value, ':'), *eq = colon ? strchr(colon, '=') : NULL;
	auto_free char *name = eq ? span_dup_str(span_of(colon + 1, (size_t)(eq - colon) - 1)) : NULL;
	struct save_rule rule = { 0 }, *more;
	int r;

	if (!name)
		return bad_value(opt, value);
	r = save_opts_set(&rule.opts, name, eq + 1);
	if (r < 0)
		return err_at(r, "rule '%s'", value);
	rule.glob = span_dup_str(span_of(value, (size_t)(colon - value)));
	more = reallocarray(o->rules, o->n_rules + 1, sizeof(*more));
	if (more)
		o->rules = more;
	if (!more || !rule.glob) {
		free(rule.glob);
		return fail(-ENOMEM, "cannot keep rule '%s'", value);
	}
	o->rules[o->n_rules++] = rule;
	return 0;
}

static int set_value(struct options *o, const struct option *opt, const char *value)
{
	void *at = place(o, opt);
	int i;

	switch (opt->kind) {
	case OPTION_BOOL:
		i = word_index("off|on|false|true|0|1|no|yes", value);
		if (i < 0)
			return bad_value(opt, value);
		*(bool *)at = i & 1;
		return 0;
	case OPTION_SIZE:
		return option_parse_size(value, at) < 0 ? bad_value(opt, value) : 0;
	case OPTION_UINT: {
		char *end;

		errno = 0;
		*(uint64_t *)at = strtoull(value, &end, 10);
		return errno || *end || !isdigit((unsigned char)*value) ? bad_value(opt, value) : 0;
	}
	case OPTION_ENUM:
		i = word_index(opt->accepts, value);
		if (i < 0)
			return bad_value(opt, value);
		*(int *)at = i;
		return 0;
	case OPTION_OCTAL: {
		char *end;

		*(uint64_t *)at = strtoull(value, &end, 8);
		return *end || !*value || *(uint64_t *)at > 07777 ? bad_value(opt, value) : 0;
	}
	case OPTION_DTYPE:
		return parse_dtype(value, at) < 0 ? bad_value(opt, value) : 0;
	case OPTION_AXES:
		return parse_axes(value, at) < 0 ? bad_value(opt, value) : 0;
	case OPTION_COMPRESSION:
		return parse_compression(value, at) < 0 ? bad_value(opt, value) : 0;
	case OPTION_RULE:
		return add_rule(o, opt, value);
	case OPTION_TEXT: {
		char *copy = strdup(value);

		if (!copy)
			return fail(-ENOMEM, "cannot set option '%s'", opt->name);
		free(*(char **)at);
		*(char **)at = copy;
		return 0;
	}
	}
	return -EINVAL;
}

int options_init(struct options *o)
{
	_Static_assert(sizeof(enum shape) == sizeof(int) && sizeof(enum missing) == sizeof(int),
		       "enums of the table are stored as int");
	*o = (struct options){ 0 };
	for (size_t i = 0; i < option_count; i++) {
		int r = option_table[i].fallback ? set_value(o, &option_table[i], option_table[i].fallback) : 0;

		if (r < 0)
			return r;
	}
	return 0;
}

void options_release(struct options *o)
{
	for (size_t i = 0; i < option_count; i++)
		if (option_table[i].kind == OPTION_TEXT)
			free(*(char **)place(o, &option_table[i]));
	for (size_t i = 0; i < o->n_rules; i++)
		free(o->rules[i].glob);
	free(o->rules);
	*o = (struct options){ 0 };
}

/* Edits between two short words: insertions, deletions and replacements. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[64];
	size_t nb = strlen(b);

	if (strlen(a) > 63 || nb > 62)
		return 64;
	for (size_t j = 0; j <= nb; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; a[i - 1]; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= nb; j++) {
			unsigned replace = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			row[j] = MIN(MIN(row[j], row[j - 1]) + 1, replace);
		}
	}
	return row[nb];
}

static int unknown(const char *name)
{
	const char *nearest = NULL;
	unsigned best = 4;

	for (size_t i = 0; i < option_count; i++) {
		unsigned d = distance(name, option_table[i].name);

		if (d < best) {
			best = d;
			nearest = option_table[i].name;
		}
	}
	if (nearest)
		return fail(-EINVAL, "unknown option '%s'; did you mean '%s'?", name, nearest);
	return fail(-EINVAL, "unknown option '%s'; `pytreefs mount --help` lists them", name);
}

static uint64_t scoped_bit(const struct option *opt)
{
	return (uint64_t)1 << (opt - option_table);
}

int option_set(struct options *o, const char *text, bool known_only)
{
	const char *eq = strchr(text, '=');
	auto_free char *name = span_dup_str(span_of(text, eq ? (size_t)(eq - text) : strlen(text)));

	if (!name)
		return fail(-ENOMEM, "cannot set an option");
	for (size_t i = 0; i < option_count; i++) {
		const struct option *opt = &option_table[i];

		if (strcmp(opt->name, name))
			continue;
		if (!eq && opt->kind != OPTION_BOOL)
			return fail(-EINVAL, "option '%s' needs a value: %s", name, opt->accepts);
		if (opt->scoped)
			o->save.given |= scoped_bit(opt);
		return set_value(o, opt, eq ? eq + 1 : "on");
	}
	return known_only ? -ENOENT : unknown(name);
}

int option_print(const struct options *o, const struct option *opt, struct buf *ret)
{
	const void *at = place_const(o, opt);
	const char *words = opt->accepts;

	switch (opt->kind) {
	case OPTION_BOOL:
		return buf_add_str(ret, *(const bool *)at ? "on" : "off");
	case OPTION_SIZE:
	case OPTION_UINT:
		return buf_addf(ret, "%llu", (unsigned long long)*(const uint64_t *)at);
	case OPTION_ENUM:
		for (int i = *(const int *)at; i > 0; i--)
			words += strcspn(words, "|") + 1;
		return buf_add(ret, words, strcspn(words, "|"));
	case OPTION_OCTAL:
		return buf_addf(ret, "%llo", (unsigned long long)*(const uint64_t *)at);
	case OPTION_DTYPE:
		return *(const int *)at ? buf_add_str(ret, dtype_info((enum dtype)*(const int *)at)->name) : 0;
	case OPTION_AXES:
		for (unsigned i = 0, n = ((const struct axes *)at)->n; i < n; i++)
			if (buf_addf(ret, i ? ":%u" : "%u", ((const struct axes *)at)->axis[i]) < 0)
				return -ENOMEM;
		return 0;
	case OPTION_COMPRESSION:
		if (*(const int *)at == SAVE_RAW || *(const int *)at == SAVE_LEVEL_DEFAULT)
			return buf_add_str(ret, *(const int *)at == SAVE_RAW ? "none" : "zstd");
		return buf_addf(ret, "zstd:%d", *(const int *)at);
	case OPTION_RULE:
		for (size_t i = 0; i < o->n_rules; i++)
			if (buf_addf(ret, "%s%s", i ? " " : "", o->rules[i].glob) < 0)
				return -ENOMEM;
		return 0;
	case OPTION_TEXT:
		return buf_add_str(ret, *(char *const *)at ? *(char *const *)at : "");
	}
	return -EINVAL;
}

bool option_is_default(const struct options *o, const struct option *opt)
{
	struct options fresh;
	auto_buf now = { 0 }, then = { 0 };
	bool same = options_init(&fresh) >= 0 && option_print(o, opt, &now) >= 0 &&
		    option_print(&fresh, opt, &then) >= 0 && span_eq(buf_span(&now), buf_span(&then));

	options_release(&fresh);
	return same;
}

/* ---- scoped options ---- */

int save_opts_set(struct save_opts *s, const char *name, const char *value)
{
	for (size_t i = 0; i < option_count; i++) {
		const struct option *opt = &option_table[i];
		struct options all = { .save = *s };
		int r;

		if (!opt->scoped || strcmp(opt->name, name))
			continue;
		r = set_value(&all, opt, value);
		if (r < 0)
			return r;
		*s = all.save;
		s->given |= scoped_bit(opt);
		return 0;
	}
	return fail(-EINVAL, "'%s' is no option of leaves and items", name);
}

static size_t scoped_size(enum option_kind kind)
{
	switch (kind) {
	case OPTION_BOOL:
		return sizeof(bool);
	case OPTION_SIZE:
	case OPTION_UINT:
	case OPTION_OCTAL:
		return sizeof(uint64_t);
	case OPTION_AXES:
		return sizeof(struct axes);
	case OPTION_ENUM:
	case OPTION_DTYPE:
	case OPTION_COMPRESSION:
		return sizeof(int);
	case OPTION_TEXT:
	case OPTION_RULE:
		break;
	}
	return 0;
}

void save_opts_merge(struct save_opts *base, const struct save_opts *over)
{
	for (size_t i = 0; i < option_count; i++) {
		const struct option *opt = &option_table[i];
		size_t at = opt->at - offsetof(struct options, save);

		if (opt->scoped && over->given & scoped_bit(opt))
			memcpy((char *)base + at, (const char *)over + at, scoped_size(opt->kind));
	}
	base->given |= over->given;
}

void save_opts_for(const struct options *o, const char *path, struct save_opts *ret)
{
	*ret = o->save;
	for (size_t i = 0; i < o->n_rules; i++)
		if (glob_match(o->rules[i].glob, path))
			save_opts_merge(ret, &o->rules[i].opts);
}
