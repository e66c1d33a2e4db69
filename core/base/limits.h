/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.h - every hard limit of the program, with the reason for its value.
 *
 * "format" means that the format or its reference implementation refuses more;
 * "ours" means that we chose the bound, so that hostile bytes cannot make us
 * allocate or loop without end. A reader that meets more fails with -EFBIG and
 * names the limit.
 */
#ifndef PYTREEFS_LIMITS_H
#define PYTREEFS_LIMITS_H

#include <stdint.h>

#define KiB ((uint64_t)1 << 10)
#define MiB ((uint64_t)1 << 20)
#define GiB ((uint64_t)1 << 30)

/* Names and paths. */
#define LIMIT_NAME_BYTES 255        /* format: NAME_MAX of Linux */
#define LIMIT_PATH_BYTES 4095       /* format: PATH_MAX of Linux, less the NUL */
#define LIMIT_KEY_BYTES 65535       /* format: OCDBT keys and paths are 16-bit lengths */
#define LIMIT_LISTING_NAMES 1000000 /* ours: of one directory of a bucket; about 100 MiB */
#define LIMIT_NAME_KEEP 200         /* ours: bytes kept of a name that is too long to show */

/* JSON documents and the tree that they describe. */
#define LIMIT_JSON_BYTES (1 * GiB) /* ours: `_METADATA` of some four million leaves */
#define LIMIT_JSON_DEPTH 256       /* ours: deeper than any tree in practice */
#define LIMIT_JSON_NODES 1000000   /* ours: 200 MiB while a document is parsed as a whole */
#define LIMIT_JSON_PULL_DEPTH 1024 /* ours: three levels for each key of LIMIT_TREE_DEPTH */
#define LIMIT_TREE_DEPTH 200       /* ours: bounds every recursion over a tree */
/* ours: directories in one another, as the keys of a leaf and the parts of its chunks' keys are */
#define LIMIT_DIR_DEPTH (LIMIT_TREE_DEPTH + LIMIT_RANK + 1)
#define LIMIT_TREE_NODES 8000000  /* ours: about 1 GiB of nodes */
#define LIMIT_TREE_TEXT (1 * GiB) /* ours: parameter names of one tree, in total */
/* ours: `_sharding` of some 100,000 leaves */
#define LIMIT_SMALL_FILE (64 * MiB)
#define LIMIT_STEP_FILE (8 * MiB)     /* ours: `_CHECKPOINT_METADATA`: items, metrics, notes */
#define LIMIT_STRINGS_BYTES (1 * GiB) /* ours: `_strings.json`, which is mapped */
/* ours: one text, held while its file is open */
#define LIMIT_STRING_BYTES (64 * MiB)
#define LIMIT_AGGREGATE_BYTES (2 * GiB) /* ours: legacy msgpack file, which is mapped */
#define LIMIT_SHARDING_DEVICES 1048576  /* ours: devices of one mesh */
#define LIMIT_VIEW_TEXT (256 * MiB)     /* ours: D.json and D.html of a few million leaves */

/* Arrays. */
#define LIMIT_RANK 32                         /* format: TensorStore's and numpy's limit */
#define LIMIT_ITEM_BYTES 16                   /* format: complex128 is the widest element */
#define LIMIT_CHUNK_BYTES ((uint64_t)1 << 55) /* ours: 2^35 pieces, which fit into a cache key */
#define LIMIT_CODECS 16                       /* ours: codecs in one chain */
#define LIMIT_SUM_ENTRIES \
	262144 /* ours: checksums of the values of a directory store; 4 MiB while it is open */
#define LIMIT_SHARD_NESTING 4                   /* ours: shards inside shards */
#define LIMIT_SHARD_ENTRIES ((uint64_t)1 << 24) /* ours: 256 MiB of index (TensorStore: 2^30) */
#define LIMIT_ZARR_META_BYTES (16 * MiB)        /* ours: one `.zarray` or `zarr.json` */
/* ours: its divisors are found in 2^24 steps */
#define LIMIT_LAYOUT_AXIS ((uint64_t)1 << 48)
#define LIMIT_ZSTD_WINDOW_LOG 31 /* format: what TensorStore accepts; memory is bounded elsewhere */

/* OCDBT. */
#define LIMIT_NODE_ENTRIES 1048576   /* format: entries in one B+tree node */
#define LIMIT_INLINE_VALUE 1048576   /* format: longest value inside a node */
#define LIMIT_BTREE_HEIGHT 64        /* ours: 2^64 leaves from nodes of two entries */
#define LIMIT_NODE_BYTES (128 * MiB) /* ours: one decoded node; Orbax asks for 100 MB at most */
#define LIMIT_NODE_KEYS \
	(128 * MiB) /* ours: keys of one node, expanded; they count towards those 100 MB */
/* ours: a small file can refer to a node often */
#define LIMIT_NODE_VISITS 16000000
#define LIMIT_MANIFEST_BYTES \
	(16 * MiB) /* ours: a decoded manifest or version node; 2^16 versions take 5 MB */
#define LIMIT_TABLE_FILES 1048577 /* ours: a node cannot use more data files than it has entries */
#define LIMIT_TABLE_BYTES (256 * MiB) /* ours: paths of one data file table, prefixes expanded */
#define LIMIT_WALK_KEYS 200000000     /* ours: keys of one traversal; 200 TB in chunks of 1 MB */
/* ours: nodes and keys of one traversal; minutes */
#define LIMIT_WALK_BYTES (128 * GiB)
#define LIMIT_CHECK_VISITED 4000000 /* ours: records that a check remembers as visited; 256 MiB */
/* ours: in directories below one item; each has two directories open */
#define LIMIT_ITEM_DATABASES 16384
#define LIMIT_DB_FILES 64 /* ours: data files that one database keeps open */

/* Threads and files. */
#define LIMIT_THREADS 256     /* ours: pool workers */
#define LIMIT_CONNECTIONS 256 /* ours: connections to a server */

#endif
