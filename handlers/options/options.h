/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - every option of a mount, in one table.
 *
 * Parsing, --help, the man page, docs/options.md and `.pytreefs/config` all use the table. struct
 * options does not change once the mount has started, so any thread may read it.
 */
#ifndef PYTREEFS_OPTIONS_H
#define PYTREEFS_OPTIONS_H

#include "core/codec/compression.h"
#include "core/sandbox/sandbox.h"
#include "core/step/ckpt.h"
#include "handlers/plugin/plugins.h"
#include "handlers/transform/transform.h"

/*
 * How leaves are saved. The options come from -o for the whole mount, from rule= for names that
 * match a pattern, and from xattrs user.pytree.save.NAME for a subtree of a draft. A plain struct
 * that may be copied.
 */
struct save_opts {
	uint64_t given; /* one bit per scoped option, in the order of the table: set here */
	/* Of a leaf. */
	int dtype;                /* enum dtype to cast to; DTYPE_UNKNOWN: no cast */
	bool dtype_is_scoped;     /* a rule or an xattr set it, not only the mount */
	uint64_t chunk_byte_size; /* 0: chosen by pytreefs */
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
	char *text; /* as the user gave it */
	char *glob;
	const char *of_item; /* name of the option when it applies to a whole item; else NULL */
	struct save_opts opts;
};

/* The source of a value. */
enum option_from { OPTION_FROM_DEFAULT, OPTION_FROM_MOUNT, OPTION_FROM_ENVIRONMENT };

/* How a request reader waits during a burst of small requests (fs/request_reader.h). */
enum busy_poll {
	BUSY_POLL_OFF,
	BUSY_POLL_ON,    /* poll: uses processor time of this process only */
	BUSY_POLL_AWAKE, /* poll, and keep all processors of the machine awake */
};

#define OPTIONS_MAX 128 /* limit for the table */

struct options {
	struct save_opts save;
	struct save_rule *rules; /* in the order given; a later one overrides earlier ones */
	size_t n_rules;
	/* Drafts and commits. */
	uint64_t commit_timeout; /* seconds */
	bool verify_commit;
	char *on_commit;
	char *priority;
	uint64_t mode; /* permissions of directories; 0: IO_DIR_MODE under the umask */
	bool allow_delete;
	bool nonempty; /* allow a mount over files, or over another mount */
	char *todelete;
	char *json_filename, *proto_filename;
	/* Steps and files that are shown. */
	enum shape shape;
	bool show_tmp;
	enum missing missing;
	enum atomicity atomicity;
	char *aggregate_filename;
	enum tensors tensors;      /* not an option: ckpt_opts has it */
	bool is_above;             /* not an option, either */
	bool for_others;           /* nor this: allow_other was given to the mount */
	struct url_search *search; /* nor this: of the path that is opened, or NULL */
	char *safetensors_separator;
	int restore_dtype; /* enum dtype; DTYPE_UNKNOWN: as stored */
	bool pad_truncate;
	char *transforms;
	struct transform *transform; /* parsed from the file `transforms`; NULL: none */
	bool override;               /* effect on `handlers`: see leaf_types_allow() */
	enum { HANDLERS_ALL, HANDLERS_NONE } handlers;
	/* Memory and I/O. */
	uint64_t cache, read_budget, write_budget;
	char *spill;
	uint64_t spill_limit;
	char *io;
	uint64_t threads, connections;
	/* Access to a bucket; NULL: from the environment. */
	char *endpoint, *region;
	char *http_headers; /* a file; NULL: none */
	enum url_addressing addressing;
	bool anonymous;
	char *cache_dir; /* NULL: none */
	uint64_t cache_dir_limit;
	bool direct_io, passthrough, keep_written;
	enum busy_poll busy_poll;
	bool fuse_uring; /* take requests over io_uring (fs/queue.h) */
	uint64_t max_read;
	uint64_t poll; /* milliseconds between scans where inotify does not work */
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
	/* Sources of values, by position in the table. */
	unsigned char from[OPTIONS_MAX], setting_from;
	/* a size that was given as "auto": options_auto_size() returns its present value */
	bool follows[OPTIONS_MAX];
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
	size_t at; /* offset of the member in struct options */
	/* default value as text; NULL for OPTION_TEXT: unset */
	const char *fallback;
	/* accepted values, as "64M, 1G" or the words of an enum: "auto|error|zero" */
	const char *accepts;
	const char *help; /* one sentence */
	/* a member of save_opts: also settable by rule= and xattr */
	bool scoped;
	bool of_item;                        /* scoped, and equal for all leaves of an item */
	bool (*is_valid)(const char *value); /* for OPTION_TEXT; NULL: any text is valid */
};

extern const struct option option_table[];
/* Options of mount(8) and libfuse, which `mount` passes on; NULL at the end. */
extern const char *const mount_words[];
extern const size_t option_count;

/* Set all options to their defaults. Release with options_release(). */
int options_init(struct options *o);
void options_release(struct options *o);
/*
 * The absolute path of the i-th file that is read only when a leaf is (.npy files of transforms=);
 * NULL after the last. Borrowed.
 */
const char *options_file(const struct options *o, size_t i);
/*
 * Set an option from "name=value", or from "name" when it accepts "on". -EINVAL: the message names
 * the option and the accepted values, or, for an unknown name, the nearest known one. With
 * known_only, an unknown name is -ENOENT without a message.
 */
int option_set(struct options *o, const char *text, bool known_only);
/* Append the present value as text. */
int option_print(const struct options *o, const struct option *opt, struct buf *ret);
/*
 * Set *ret to the present value of a size that is "auto", computed from the memory that is free
 * now. Returns false when the option of that name is not "auto".
 */
bool options_auto_size(const struct options *o, const char *name, uint64_t *ret);
/* The source of the present value: "default", "mount", "environment". */
const char *option_from_text(const struct options *o, const struct option *opt);
/* Whether the user gave the option; the name must be in the table. */
bool options_given(const struct options *o, const char *name);
/*
 * Returns the first option of how leaves are saved that the user gave, not in the environment,
 * whose options are for all commands; NULL: none. For what writes no checkpoint.
 */
const struct option *options_of_saving(const struct options *o);
/* Whether the user gave the option for this command, not in the environment. */
bool options_given_here(const struct options *o, const char *name);
/* Set options from PYTREEFS_OPTIONS, the user's defaults, which -o overrides. */
int options_set_environment(struct options *o);

/* Returns the name of a scoped option if it is equal for all leaves of an item, else NULL. */
const char *option_of_item(const char *name);
/* Set one scoped option by name. -EINVAL as in option_set(). */
int save_opts_set(struct save_opts *s, const char *name, const char *value);
/* Overwrite base with the options that are set in `over`. */
void save_opts_merge(struct save_opts *base, const struct save_opts *over);
/* Whether a scoped option was set, by any source. */
bool save_opts_given(const struct save_opts *s, const char *name);
/*
 * The dtype in which elements of dtype `from` are stored. A floating dtype= of the whole mount
 * applies to floating leaves only; one of a rule or an xattr applies to every leaf that it selects,
 * as Orbax's SaveArgs.dtype does.
 */
enum dtype save_opts_dtype(const struct save_opts *s, enum dtype from);
/*
 * Set ret to the options of the mount and of the rules that match a path below the step
 * ("default/params/w"). skip: as in glob_selects().
 */
void save_opts_for(const struct options *o, struct span path, unsigned skip, struct save_opts *ret);

/*
 * Call a function for each option of the text "a=b,c=d"; "\\," is a comma in a value. Ends with its
 * first negative result.
 */
int options_each(const char *text, int (*fn)(void *arg, const char *option), void *arg);
/* Returns the bytes that "auto" means now. */
uint64_t option_auto_size(void);
/* Parse a number of bytes: "64M", "1G", "1024", "auto". */
int option_parse_size(const char *text, uint64_t *ret);

#endif
