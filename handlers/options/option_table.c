/* SPDX-License-Identifier: Apache-2.0 */
/*
 * option_table.c - every option of a mount: name, kind, default, accepted values, and a sentence of
 * help.
 *
 * options.c parses and prints by this table. Options that a rule or an xattr may set come first,
 * since each has a bit in save_opts.given.
 */
#include "handlers/options/job_options.h"
#include "handlers/options/options.h"

#define AT(member) offsetof(struct options, member)

const struct option option_table[] = {
	{ "dtype", OPTION_DTYPE, AT(save.dtype), "", "NAME",
	  "cast leaves to this dtype when they are saved; a floating dtype for the whole mount "
	  "casts floating leaves only, one of a rule or an xattr casts integers and booleans, too, "
	  "and is refused for random keys",
	  .scoped = true },
	{ "chunk_byte_size", OPTION_SIZE, AT(save.chunk_byte_size), "0", "BYTES",
	  "largest chunk in bytes; the chunk shape is chosen by Orbax's rule; 0: pytreefs chooses, "
	  "without compression the whole array",
	  .scoped = true },
	{ "shard_axes", OPTION_AXES, AT(save.shard_axes), "", "AXIS:AXIS:...",
	  "axes to split first, down to one position per chunk", .scoped = true },
	{ "compression", OPTION_COMPRESSION, AT(save.compression), "auto",
	  "zstd|zstd:LEVEL|blosc|blosc:CODEC:LEVEL:SHUFFLE|auto|none",
	  "compression of chunks; blosc shuffles the bytes of the elements and compresses blocks "
	  "that can be read alone (CODEC: zstd lz4 lz4hc zlib blosclz snappy; LEVEL: 0 to 9; "
	  "SHUFFLE: byte bit none); auto chooses for each leaf by a sample: blosc if it is at "
	  "least 3 % smaller than zstd, else zstd if it saves at least 3 %, else none; zstd is "
	  "what Orbax writes; a copy is stored as that was, unless this is given",
	  .scoped = true },
	{ "crc32c", OPTION_BOOL, AT(save.crc32c), "off", "on|off",
	  "store a CRC-32C after each chunk, by the codec of zarr v3, which every reader compares; "
	  "no effect with zarr=2",
	  .scoped = true },
	{ "leaf_type", OPTION_ENUM, AT(save.leaf_type), "np.ndarray", "np.ndarray|jax.Array",
	  "the type that is recorded for arrays", .scoped = true },
	{ "ocdbt", OPTION_BOOL, AT(save.ocdbt), "on", "on|off",
	  "store the arrays of an item in one database, or each in a directory of its own; a copy "
	  "of an item is stored as that was, unless this is given; applies to a whole item",
	  .scoped = true, .of_item = true },
	{ "zarr", OPTION_ENUM, AT(save.zarr), "2", "2|3",
	  "version of the array format; a copy of an item has the version of that, unless this is "
	  "given; applies to a whole item",
	  .scoped = true, .of_item = true },
	{ "target_data_file_size", OPTION_SIZE, AT(save.target_data_file_size), "2G", "BYTES",
	  "size to which the data files of a database grow, and the limit for a chunk, unless that "
	  "is a whole array without compression; 0: no limit; applies to a whole item",
	  .scoped = true, .of_item = true },
	{ "rich_types", OPTION_BOOL, AT(save.rich_types), "off", "on|off",
	  "record the types of containers in _METADATA even if there are only lists and dicts; "
	  "tuples and namedtuples are always recorded, unless this is set to off; applies to a "
	  "whole item",
	  .scoped = true, .of_item = true },
	{ "sharding_file", OPTION_BOOL, AT(save.sharding_file), "on", "on|off",
	  "write _sharding for jax.Array leaves; applies to a whole item", .scoped = true,
	  .of_item = true },
	{ "array_metadata", OPTION_BOOL, AT(save.array_metadata), "on", "on|off",
	  "write array_metadatas for jax.Array leaves; applies to a whole item", .scoped = true,
	  .of_item = true },
	{ "store_fill_value", OPTION_BOOL, AT(save.store_fill_value), "on", "on|off",
	  "store chunks that are all zeros; applies to a whole item", .scoped = true,
	  .of_item = true },
	{ "manifest", OPTION_BOOL, AT(save.manifest), "off", "on|off",
	  "write the SHA-256 of each leaf's value into .sha256sums of the item, which verify "
	  "compares; a copy of an item that has this file gets one, unless this is off; applies to "
	  "a whole item",
	  .scoped = true, .of_item = true },
	{ "aggregate", OPTION_AGGREGATE, AT(save.aggregate), "off", "GLOB|all|off",
	  "write the leaves whose path matches, or all, into the legacy msgpack file of their item",
	  .scoped = true },
	{ "rule", OPTION_RULE, 0, NULL, "GLOB:NAME=VALUE",
	  "set one of the options above for the leaves, or the items, whose path matches" },
	{ "commit_timeout", OPTION_UINT, AT(commit_timeout), "1200", "SECONDS",
	  "a commit that takes longer fails, and the draft remains; 0: no limit" },
	{ "verify_commit", OPTION_BOOL, AT(verify_commit), "on", "on|off",
	  "check that every array of a draft can be opened before the draft becomes a step" },
	{ "on_commit", OPTION_TEXT, AT(on_commit), NULL, "COMMAND",
	  "command to run when a step is durable, with its path as argument" },
	{ "mode", OPTION_OCTAL, AT(mode), "0", "OCTAL",
	  "permissions of new directories, before the umask" },
	{ "allow_delete", OPTION_BOOL, AT(allow_delete), "off", "on|off",
	  "let rmdir of a step delete it" },
	{ "todelete", OPTION_TEXT, AT(todelete), NULL, "DIR",
	  "directory below SOURCE to which deleted steps are moved instead of being removed" },
	{ "priority", OPTION_TEXT, AT(priority), NULL, "GLOB",
	  "leaves whose bytes come first in data files: save writes them first, a commit encodes "
	  "them before the others, and readers prefetch them first" },
	{ "json_filename", OPTION_TEXT, AT(json_filename), "metadata", "NAME",
	  "name of the file inside JSON items" },
	{ "proto_filename", OPTION_TEXT, AT(proto_filename), "proto.pbtxt", "NAME",
	  "name of the file inside proto items" },
	{ "shape", OPTION_ENUM, AT(shape), "auto", "auto|root|step|item",
	  "whether SOURCE is a root, a step or an item; auto detects it" },
	{ "show_tmp", OPTION_BOOL, AT(show_tmp), "off", "on|off",
	  "show temporary directories of other programs, and abandoned drafts" },
	{ "missing", OPTION_ENUM, AT(missing), "auto", "auto|error|zero",
	  "how a chunk that is not stored reads; auto follows the checkpoint's metadata" },
	{ "restore_dtype", OPTION_DTYPE, AT(restore_dtype), "", "NAME",
	  "show arrays cast to this dtype, except random keys; @DTYPE in a name selects another "
	  "one" },
	{ "pad_truncate", OPTION_BOOL, AT(pad_truncate), "off", "on|off",
	  "a box beyond the bounds of an array reads as zeros there instead of being absent, and a "
	  "shape may truncate one axis and pad another" },
	{ "transforms", OPTION_TRANSFORMS, AT(transforms), NULL, "FILE.json|{...}",
	  "show another tree, which rules make from the stored one; the rules are in a file, or "
	  "are the value" },
	{ "plugin", OPTION_PLUGIN, 0, NULL, "FILE.so",
	  "shared object with types of leaves and items, and value functions; may be repeated, the "
	  "last one is asked first" },
	{ "override", OPTION_BOOL, AT(override), "off", "on|off",
	  "let plugins take the types of built-in handlers" },
	{ "handler", OPTION_BINDING, 0, NULL, "ITEM:NAME",
	  "let the item ITEM be handled by the item type NAME: tree, files, or one of a plugin "
	  "that is given before; may be repeated" },
	{ "handlers", OPTION_ENUM, AT(handlers), "all", "all|none",
	  "none: use only plugins; leaves that no plugin takes appear as their stored files, if "
	  "they have files of their own" },
	{ "atomicity", OPTION_ENUM, AT(atomicity), "auto", "auto|rename|commit_file",
	  "how a step becomes visible: by a rename, or by the marker commit_success.txt; auto: the "
	  "marker in a bucket, the rename elsewhere" },
	{ "aggregate_filename", OPTION_TEXT, AT(aggregate_filename), "checkpoint", "NAME",
	  "name of the legacy msgpack file of an item" },
	{ "safetensors_separator", OPTION_TEXT, AT(safetensors_separator), ".", "TEXT",
	  "text that joins the keys of a leaf in D.safetensors, and splits names of files that are "
	  "written" },
	{ "cache", OPTION_SIZE, AT(cache), "256M", "BYTES|auto",
	  "bytes of decoded chunks, index nodes and pieces to keep; metadata that is being read "
	  "shares them; auto: a quarter of the memory that is available at the start, or of the "
	  "limit of the control group, if that is less; at least 64M" },
	{ "read_budget", OPTION_SIZE, AT(read_budget), "256M", "BYTES|auto",
	  "bytes that reads in progress may use besides the cache; auto: a quarter, as for cache, "
	  "measured again while a mount runs" },
	{ "write_budget", OPTION_SIZE, AT(write_budget), "256M", "BYTES|auto",
	  "bytes that writes in progress may use; auto: a quarter, as for cache, measured again "
	  "while a mount runs, and when a draft begins" },
	{ "spill", OPTION_TEXT, AT(spill), "auto", "DIR|off|auto",
	  "directory for temporary files of computed leaves, of readers that jump in large chunks, "
	  "and of drafts in a bucket; auto: the system's directory" },
	{ "spill_limit", OPTION_SIZE, AT(spill_limit), "4G", "BYTES",
	  "bytes of all temporary files of readers; a computed leaf or a legacy file that needs "
	  "more fails" },
	{ "io", OPTION_TEXT, AT(io), "auto", "auto|uring|sync|trace:ENGINE|fault(RULES):ENGINE",
	  "how files are read and written; auto: io_uring where the kernel allows it" },
	{ "threads", OPTION_UINT, AT(threads), "0", "N",
	  "worker threads; 0: one per processor, or, for a SOURCE with a URL, one per connection, "
	  "at most 32" },
	{ "connections", OPTION_UINT, AT(connections), "32", "N",
	  "concurrent requests to a SOURCE with a URL, each on a persistent connection; at most "
	  "256" },
	{ "endpoint", OPTION_TEXT, AT(endpoint), NULL, "URL",
	  "for s3:// and gs://: the server, https://HOST; if unset, for s3://: "
	  "AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile, or Amazon's server of the region; "
	  "for gs://: STORAGE_EMULATOR_HOST, TENSORSTORE_GCS_HTTP_URL, or Google's server" },
	{ "region", OPTION_TEXT, AT(region), NULL, "NAME",
	  "for s3://: region of the bucket; if unset: AWS_REGION, AWS_DEFAULT_REGION, the profile, "
	  "or us-east-1" },
	{ "addressing", OPTION_ENUM, AT(addressing), "auto", "auto|path|virtual",
	  "for s3://: whether requests name the bucket in their path or in the host name; auto: in "
	  "the path if an endpoint is given, else in the host name" },
	{ "anonymous", OPTION_BOOL, AT(anonymous), "off", "on|off",
	  "send requests without credentials, for public buckets; for http(s)://: without a login "
	  "of netrc" },
	{ "http_headers", OPTION_TEXT, AT(http_headers), NULL, "FILE",
	  "for http(s)://: file with a header for each request in each line, 'Name: value'; sent "
	  "only to the server of SOURCE; others must not be able to read it" },
	{ "cache_dir", OPTION_TEXT, AT(cache_dir), NULL, "DIR",
	  "for a SOURCE with a URL: private directory that keeps fetched data; mounts and commands "
	  "share it" },
	{ "cache_dir_limit", OPTION_SIZE, AT(cache_dir_limit), "64G", "BYTES",
	  "bytes of all files in cache_dir; beyond them, the least recently used files are "
	  "removed; 0: no limit" },
	{ "direct_io", OPTION_BOOL, AT(direct_io), "off", "on|off",
	  "off: what was read stays in the kernel's page cache, so reading it again costs what any "
	  "file in memory costs; on: bypass the page cache, for what is read once, or does not fit "
	  "into memory twice (before Linux 6.6 this excludes shared maps)" },
	{ "passthrough", OPTION_BOOL, AT(passthrough), "on", "on|off",
	  "let the kernel read large files directly, if it can (6.9 or later) and the mount is "
	  "root's: stored ones (`.pytreefs/stored`, items that are not trees), and leaves of a "
	  "local SOURCE that are expected by decode-ahead, which are decoded into memory: a "
	  "quarter of what is available at most, measured again while a mount runs" },
	{ "keep_written", OPTION_BOOL, AT(keep_written), "off", "on|off",
	  "leave saved data in the page cache, for programs that read it at once; off: drop it" },
	{ "nonempty", OPTION_BOOL, AT(nonempty), "off", "on|off",
	  "mount even over a directory that is not empty, or on which another FUSE file system is "
	  "mounted" },
	{ "busy_poll", OPTION_ENUM, AT(busy_poll), "on", "off|on|awake",
	  "during a burst of small requests, poll for the next one; awake: also keep all "
	  "processors of the machine from sleeping meanwhile (/dev/cpu_dma_latency)" },
	{ "fuse_uring", OPTION_BOOL, AT(fuse_uring), "off", "on|off",
	  "take requests over io_uring, each by a thread of the caller's processor, where Linux "
	  "has that (6.14 or later) and /sys/module/fuse/parameters/enable_uring is Y: small "
	  "requests are faster, large ones are copied once more" },
	{ "max_read", OPTION_SIZE, AT(max_read), "512K", "BYTES",
	  "largest request that the kernel may send; above 1008K raw chunks cannot be spliced" },
	{ "poll", OPTION_UINT, AT(poll), "1000", "MILLISECONDS",
	  "interval of scans for new steps where the kernel does not report them; the default is "
	  "30000 for a SOURCE with a URL" },
	{ "pinned_host_transfer", OPTION_BOOL, AT(pinned_host_transfer), "off", "on|off",
	  "accepted for compatibility, without effect: pytreefs uses no device" },
	{ "pathways", OPTION_REFUSED, 0, NULL, "nothing",
	  "refused: it applies only to a Pathways runtime, which serves no file system" },
	{ "primary", OPTION_UINT, AT(primary), "0", "RANK", "under MPI: the rank that commits" },
	{ "active", OPTION_TEXT, AT(active), NULL, "RANK-RANK:RANK:...",
	  "under MPI: the ranks that write and commit; the others only read",
	  .is_valid = job_active_is_valid },
	{ "job", OPTION_TEXT, AT(job), NULL, "NAME",
	  "under MPI: name of the communicator, also in messages" },
	{ "load_and_broadcast", OPTION_BOOL, AT(load_and_broadcast), "off", "on|off",
	  "under MPI: one rank reads and decodes each chunk, and sends it to the others" },
	{ "mesh", OPTION_TEXT, AT(mesh), NULL, "AxB...",
	  "under MPI: shape of the mesh of ranks, in C order; the default is one axis",
	  .is_valid = job_mesh_is_valid },
	{ "replica_axis_index", OPTION_UINT, AT(replica_axis_index), "0", "AXIS",
	  "under MPI: the axis of the mesh that counts replicas" },
	{ "primary_replica_id", OPTION_UINT, AT(primary_replica_id), "0", "N",
	  "under MPI: the replica whose ranks read for all" },
	{ "broadcast_memory_limit", OPTION_SIZE, AT(broadcast_memory_limit), "256M", "BYTES|auto",
	  "with load_and_broadcast: bytes of decoded chunks that a rank may hold, times "
	  "broadcast_memory_scaling" },
	{ "broadcast_memory_scaling", OPTION_TEXT, AT(broadcast_memory_scaling), "0.75",
	  "0.0 to 1.0", "with load_and_broadcast: the part of broadcast_memory_limit that is used",
	  .is_valid = job_scaling_is_valid },
	{ "replica_parallel", OPTION_BOOL, AT(replica_parallel), "off", "on|off",
	  "under MPI: arrays that all active ranks write identically are stored in slices, one by "
	  "each rank; the rest of a rank's copy goes to the directory spill" },
	{ "replica_parallel_min_bytes", OPTION_SIZE, AT(replica_parallel_min_bytes), "0", "BYTES",
	  "with replica_parallel: smallest slice; arrays with smaller slices are not split" },
	{ "replica_parallel_max", OPTION_UINT, AT(replica_parallel_max), "0", "N",
	  "with replica_parallel: largest number of slices; 0: one for each rank" },
	{ "replica_parallel_separate", OPTION_BOOL, AT(replica_parallel_separate), "off", "on|off",
	  "with replica_parallel: store the slices in separate databases, "
	  "ocdbt.process_replica_N" },
	{ "sandbox", OPTION_ENUM, AT(sandbox), "auto", "auto|off|require",
	  "whether the process drops rights, files and system calls that it does not need; auto: "
	  "as far as the system allows; require: fail if any cannot be dropped" },
	{ "log", OPTION_TEXT, AT(log), NULL, "FILE",
	  "append messages to a file, which a mount without a terminal opens again on SIGHUP" },
	{ "trace", OPTION_TEXT, AT(trace), NULL, "CATEGORY:...",
	  "trace requests: fs step leaf zarr kv ocdbt codec io ahead all" },
};
const size_t option_count = ARRAY_LEN(option_table);

const char *const mount_words[] = {
	"allow_other", "allow_root",   "default_permissions",
	"ro",          "rw",           "suid",
	"nosuid",      "dev",          "nodev",
	"exec",        "noexec",       "atime",
	"noatime",     "sync",         "async",
	"dirsync",     "auto_unmount", NULL,
};
