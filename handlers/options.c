/*
 * options.c - the option table, and reading and printing values by it.
 */
#include "handlers/options.h"

#include <ctype.h>
#include <stdio.h>

#include "core/base/err.h"

#define AT(member) offsetof(struct options, member)

const struct option option_table[] = {
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
