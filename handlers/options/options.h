/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - every option of a mount, in one table.
 *
 * The table gives parsing, --help, the man page, docs/options.md and
 * `.pytreefs/config`. An option that is not in it does not exist.
 */
#ifndef PYTREEFS_OPTIONS_H
#define PYTREEFS_OPTIONS_H

#include "core/codec/compression.h"
#include "core/sandbox/sandbox.h"
#include "core/step/ckpt.h"
#include "handlers/plugin/plugins.h"
#include "handlers/transform/transform.h"

/*
 * How leaves are saved: for the whole mount (-o), for names by pattern (rule=), or by an xattr
 * user.pytree.save.NAME for a subtree of a draft. Plain data.
 */
struct save_opts {
	uint64_t given; /* bit per option, in the table's order of scoped ones: set here */
	/* Of a leaf. */
	int dtype;                /* enum dtype to cast to; DTYPE_UNKNOWN: as it comes */
	bool dtype_is_scoped;     /* a rule or an xattr says so, and not only the mount */
	uint64_t chunk_byte_size; /* 0: our own choice */
	struct axes {
		unsigned n;
		unsigned axis[LIMIT_RANK];
	} shard_axes;
	struct compression compression;
	bool crc32c;
	enum save_leaf_type { LEAF_TYPE_NUMPY, LEAF_TYPE_JAX } leaf_type;
	/* Of an item. */
	bool ocdbt;
	enum save_zarr { SAVE_ZARR2, SAVE_ZARR3 } zarr;
	uint64_t target_data_file_size;
	bool rich_types, sharding_file, array_metadata, store_fill_value, manifest;
	bool aggregate; /* of a leaf */
};

/* rule=GLOB:NAME=VALUE */
struct save_rule {
	char *text; /* as it was given */
	char *glob;
	const char *of_item; /* the option's name when it is one of a whole item; else NULL */
	struct save_opts opts;
};

/* Where a value comes from. */
enum option_from { OPTION_FROM_DEFAULT, OPTION_FROM_MOUNT, OPTION_FROM_ENVIRONMENT };

/* How a request reader waits during a burst of small requests (fs/request_reader.h). */
enum busy_poll {
	BUSY_POLL_OFF,
	BUSY_POLL_ON,    /* poll: costs processor time of this process only */
	BUSY_POLL_AWAKE, /* poll, and keep all processors of the machine from sleeping */
};

/* When what is read of a file goes past the kernel's page cache (fs/direct.h). */
enum direct_io { DIRECT_IO_AUTO, DIRECT_IO_ON, DIRECT_IO_OFF };

#define OPTIONS_MAX 128 /* of the table */

struct options {
	struct save_opts save;
	struct save_rule *rules; /* in the order given: later ones win */
	size_t n_rules;
	/* Drafts and commits. */
	uint64_t commit_timeout; /* seconds */
	bool verify_commit;
	char *on_commit;
	char *priority;
	uint64_t mode; /* of directories; 0: 0777 under the umask */
	bool allow_delete;
	bool nonempty; /* mount over files, or over another mount */
	char *todelete;
	char *json_filename, *proto_filename;
	/* Which steps and files are shown. */
	enum shape shape;
	bool show_tmp;
	enum missing missing;
	enum atomicity atomicity;
	char *aggregate_filename;
	const char *safetensors; /* no option, borrowed: ckpt_opts has it */
	char *safetensors_separator;
	int restore_dtype; /* enum dtype; DTYPE_UNKNOWN: as stored */
	bool pad_truncate;
	char *transforms;
	struct transform *transform; /* what is in that file; NULL: none */
	bool override;               /* with handlers: see plugin_rules() */
	enum { HANDLERS_ALL, HANDLERS_NONE } handlers;
	/* Memory and I/O. */
	uint64_t cache, read_budget, write_budget;
	char *spill;
	uint64_t spill_limit;
	char *io;
	uint64_t threads, connections;
	/* Of a bucket; NULL: what the environment says. */
	char *endpoint, *region;
	enum url_addressing addressing;
	bool anonymous;
	char *cache_dir; /* NULL: none */
	uint64_t cache_dir_limit;
	enum direct_io direct_io;
	bool direct_mmap, keep_written;
	enum busy_poll busy_poll;
	uint64_t max_read;
	uint64_t poll; /* milliseconds between looks where inotify does not work */
	/* Many processes. */
	uint64_t primary; /* rank */
	char *active;     /* ranks: "0-3:6"; NULL: all */
	char *job;
	bool load_and_broadcast;
	char *mesh; /* "AxB"; NULL: one axis of all ranks */
	uint64_t replica_axis_index, primary_replica_id;
	uint64_t broadcast_memory_limit;
	char *broadcast_memory_scaling;
	bool replica_parallel, replica_parallel_separate;
	uint64_t replica_parallel_min_bytes, replica_parallel_max;
	enum sandbox_mode sandbox;
	/* Messages. */
	char *log;
	char *trace;
	bool pinned_host_transfer;
	/* By position in the table. */
	unsigned char from[OPTIONS_MAX], setting_from;
	bool follows[OPTIONS_MAX]; /* a size that is "auto": options_auto_size() has its value of
				      the moment */
};

enum option_kind {
	OPTION_BOOL,
	OPTION_SIZE,
	OPTION_UINT,
	OPTION_TEXT,
	OPTION_ENUM,
	OPTION_OCTAL,
	OPTION_DTYPE,
	OPTION_AXES,
	OPTION_COMPRESSION,
	OPTION_RULE,
	OPTION_AGGREGATE,
	OPTION_TRANSFORMS,
	OPTION_PLUGIN,
	OPTION_BINDING,
	OPTION_REFUSED,
};

struct option {
	const char *name;
	enum option_kind kind;
	size_t at;                           /* offset in struct options */
	const char *fallback;                /* default, as text; NULL for TEXT: unset */
	const char *accepts;                 /* "64M, 1G" or the enum's words "auto|error|zero" */
	const char *help;                    /* one sentence */
	bool scoped;                         /* in save_opts: also by rule and xattr */
	bool of_item;                        /* scoped, and the same for all leaves of an item */
	bool (*is_valid)(const char *value); /* of TEXT; NULL: any text is */
};

extern const struct option option_table[];
extern const size_t option_count;

/* All defaults. Release with options_release(). */
int options_init(struct options *o);
void options_release(struct options *o);
/* The i-th file, absolute, that is read not now but when a leaf is (of transforms=); NULL after the
 * last. Borrowed. */
const char *options_file(const struct options *o, size_t i);
/*
 * "name=value", or "name" for what can be "on". -EINVAL names the option and what it accepts, or
 * the nearest name for an unknown one. -ENOENT, quietly, when known_only and the name is not ours.
 */
int option_set(struct options *o, const char *text, bool known_only);
/* The value in force as text. */
int option_print(const struct options *o, const struct option *opt, struct buf *ret);
/* Sizes that are "auto", by the memory that is free now: true when there are any. */
bool options_auto_size(const struct options *o, const char *name, uint64_t *ret);
/* Where the value in force comes from: "default", "mount", "environment". */
const char *option_from_text(const struct options *o, const struct option *opt);
/* Whether somebody gave it. */
bool options_given(const struct options *o, const char *name);
/* Parse PYTREEFS_OPTIONS: defaults of the user's, which -o overrides. */
int options_set_environment(struct options *o);

/* The scoped option of that name when it is the same for all leaves of an item: its name; else
 * NULL. */
const char *option_of_item(const char *name);
/* One scoped option by name. -EINVAL as option_set(). */
int save_opts_set(struct save_opts *s, const char *name, const char *value);
/* What `over` gives replaces what base has. */
void save_opts_merge(struct save_opts *base, const struct save_opts *over);
/* Whether an option of leaves and items was set, by whomever. */
bool save_opts_given(const struct save_opts *s, const char *name);
/*
 * The dtype in which elements of that dtype are stored. A floating dtype= of the whole mount is for
 * floating leaves; a rule or an xattr casts whatever it is of, as Orbax's SaveArgs.dtype does.
 */
enum dtype save_opts_dtype(const struct save_opts *s, enum dtype from);
/* The mount's options and the rules that choose a path below the step ("default/params/w"): skip as
 * in glob_selects(). */
void save_opts_for(const struct options *o, struct span path, unsigned skip, struct save_opts *ret);

/* "64M", "1G", "1024": bytes. */
int option_parse_size(const char *text, uint64_t *ret);

#endif
