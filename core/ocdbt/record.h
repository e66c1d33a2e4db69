/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h - the three records of an OCDBT database, bytes <-> struct <-> text. No I/O.
 *
 * Manifest, version node and B+tree node share an envelope (frame.c): magic, length, compression,
 * body, CRC-32C. A parsed record is immutable, lives in one arena and may be read by any thread.
 * README.md has the byte tables and the numbered rules; "R7" in a comment is rule 7 there.
 *
 * Parsers return -EUCLEAN when bytes break a rule, -EBADMSG when the checksum does not match,
 * -EOPNOTSUPP for an unknown version or compression, and -EFBIG beyond a limit of limits.h. They do
 * not know the address of the bytes; the caller prefixes it with err_at().
 */
#ifndef PYTREEFS_OCDBT_RECORD_H
#define PYTREEFS_OCDBT_RECORD_H

#include "core/base/arena.h"
#include "core/base/wire.h"

/* ---- shared parts ---- */

enum ocdbt_record { OCDBT_MANIFEST, OCDBT_VERSIONNODE, OCDBT_BTREENODE };
/* size of the envelope around a body, and the least size of a record */
#define OCDBT_FRAME_BYTES 18

/* A range of a data file. The path is base followed by rel, with nothing between them. */
struct ocdbt_ref {
	struct span base; /* after parsing, includes the transitive path */
	struct span rel;
	uint64_t off, len;
};
#define OCDBT_NO_ROOT UINT64_MAX /* off and len of the root of an empty version */

/* Totals for everything below a reference to a B+tree node. Sums saturate. */
struct ocdbt_stats {
	uint64_t keys;        /* num_keys */
	uint64_t tree_bytes;  /* num_tree_bytes: stored nodes, including the referenced one */
	uint64_t value_bytes; /* num_indirect_value_bytes */
};
void ocdbt_stats_add(struct ocdbt_stats *sum, const struct ocdbt_stats *more);

enum ocdbt_compression { OCDBT_PLAIN, OCDBT_ZSTD };
enum ocdbt_kind { OCDBT_SINGLE, OCDBT_NUMBERED };

struct ocdbt_config {
	uint8_t uuid[16];
	enum ocdbt_kind kind;
	uint32_t max_inline_value_bytes;
	uint32_t max_decoded_node_bytes; /* 0: no limit */
	unsigned arity_log2;             /* of the version tree: 1 to 16 */
	enum ocdbt_compression compression;
	int32_t zstd_level; /* 0: zstd's default */
};
#define OCDBT_ARITY_LOG2_MAX 16
#define OCDBT_ZSTD_LEVEL_MIN (-131072)
#define OCDBT_ZSTD_LEVEL_MAX 22

/*
 * Check the envelope of a stored record and decompress its body into hold if necessary, which
 * replaces the contents of hold. ret_body borrows from stored or from hold. limit bounds the
 * decoded bytes.
 */
int ocdbt_frame_open(enum ocdbt_record kind, struct span stored, uint64_t limit, struct buf *hold,
		     struct span *ret_body);
/* Append the record, compressed as the configuration says; NULL: not compressed. */
int ocdbt_frame_pack(enum ocdbt_record kind, const struct ocdbt_config *compress, struct span body,
		     struct buf *ret);

/* The data file table of a parsed record. */
struct ocdbt_files {
	uint32_t n;
	const uint32_t *end; /* the end of path i in bytes; it begins at the end of path i - 1 */
	const uint16_t *base_len;
	const uint8_t *bytes;
};
/* transitive is put in front of every base path. */
int ocdbt_files_parse(struct wire *w, struct span transitive, struct arena *a,
		      struct ocdbt_files *ret);
/* Set base and rel of ret to path i; i < n. */
void ocdbt_files_get(const struct ocdbt_files *f, uint32_t i, struct ocdbt_ref *ret);

/* The data file table of a record that is being built. Zeroed it is empty. */
struct ocdbt_filelist {
	struct arena arena;
	struct ocdbt_file_name *name;
	uint32_t n;
	size_t cap;
	uint32_t recent[16]; /* ids + 1 by hash, since most entries repeat a file */
};
/*
 * Get an id for the file; the same file may get several. The paths are copied. -EINVAL when they
 * are too long.
 */
int ocdbt_filelist_add(struct ocdbt_filelist *t, struct span base, struct span rel,
		       uint32_t *ret_id);
/* Append the table, sorted and without duplicates. ret_index[id] is the file's index in it. */
int ocdbt_filelist_pack(struct ocdbt_filelist *t, struct buf *ret, uint32_t *ret_index);
void ocdbt_filelist_release(struct ocdbt_filelist *t);

/* ---- versions: manifest and version nodes ---- */

/* One committed state. */
struct ocdbt_version {
	uint64_t generation;
	unsigned root_height;
	struct ocdbt_ref root; /* off is OCDBT_NO_ROOT when the version is empty */
	struct ocdbt_stats stats;
	uint64_t commit_time; /* nanoseconds since 1970 */
};
static inline bool ocdbt_version_is_empty(const struct ocdbt_version *v)
{
	return v->root.off == OCDBT_NO_ROOT;
}

/* A reference to a version node: the root of a subtree of older versions. */
struct ocdbt_version_ref {
	uint64_t generation; /* generation of the last version in it */
	struct ocdbt_ref node;
	uint64_t num_generations;
	uint64_t commit_time; /* commit time of the first version in it */
	unsigned height; /* stored in the manifest only; elsewhere, the parent's height less 1 */
};

struct ocdbt_manifest {
	struct arena arena;
	struct ocdbt_config config;
	/* ascending, the current version last; none if the manifest is of the numbered kind */
	struct ocdbt_version *versions;
	size_t n_versions;
	struct ocdbt_version_ref *nodes; /* in order of falling height and rising generation */
	size_t n_nodes;
};
/* On success *ret needs ocdbt_manifest_release(). */
int ocdbt_manifest_parse(struct span stored, struct ocdbt_manifest *ret);
/*
 * Append the record. compress selects the compression, normally &m->config; NULL: none. Asserts the
 * conditions on counts that the parser checks; -EINVAL for paths that are too long.
 */
int ocdbt_manifest_pack(const struct ocdbt_manifest *m, const struct ocdbt_config *compress,
			struct buf *ret);
void ocdbt_manifest_release(struct ocdbt_manifest *m);
/*
 * The range ret_low < generation <= ret_high of last generations that a version node of this height
 * may have in a manifest whose last generation is g. False when no node of this height can exist.
 */
bool ocdbt_manifest_range(unsigned arity_log2, uint64_t g, unsigned height, uint64_t *ret_low,
			  uint64_t *ret_high);

struct ocdbt_vnode {
	struct arena arena;
	unsigned arity_log2;
	unsigned height;
	struct ocdbt_version *versions;     /* height 0 */
	struct ocdbt_version_ref *children; /* height above 0 */
	size_t n;                           /* number of versions or children */
};
/*
 * transitive is the base of the reference to the node. On success *ret needs ocdbt_vnode_release().
 */
int ocdbt_vnode_parse(struct span stored, struct span transitive, struct ocdbt_vnode *ret);
int ocdbt_vnode_pack(const struct ocdbt_vnode *v, const struct ocdbt_config *compress,
		     struct buf *ret);
void ocdbt_vnode_release(struct ocdbt_vnode *v);

/*
 * The two arrays of manifests and version nodes (version.c). files is the table of the record.
 * These check the rules about one array; the parser of the record checks the others.
 */
int ocdbt_versions_parse(struct wire *w, const struct ocdbt_files *files, unsigned arity_log2,
			 struct arena *a, struct ocdbt_version **ret, size_t *ret_n);
int ocdbt_versions_pack(const struct ocdbt_version *v, size_t n, const uint32_t *file,
			struct buf *ret);
/* has_height: as in the manifest. */
int ocdbt_version_refs_parse(struct wire *w, const struct ocdbt_files *files, size_t max,
			     bool has_height, struct arena *a, struct ocdbt_version_ref **ret,
			     size_t *ret_n);
int ocdbt_version_refs_pack(const struct ocdbt_version_ref *v, size_t n, bool has_height,
			    const uint32_t *file, struct buf *ret);

/* The largest possible height of a version node. */
static inline unsigned ocdbt_vnode_height_max(unsigned arity_log2)
{
	return 63 / arity_log2 - 1;
}

/* ---- B+tree nodes ---- */

enum ocdbt_value_kind { OCDBT_INLINE, OCDBT_FILE }; /* as stored */

struct ocdbt_value {
	enum ocdbt_value_kind kind;
	struct span bytes;    /* OCDBT_INLINE */
	struct ocdbt_ref ref; /* OCDBT_FILE */
};
static inline uint64_t ocdbt_value_len(const struct ocdbt_value *v)
{
	return v->kind == OCDBT_INLINE ? v->bytes.n : v->ref.len;
}

/* A key with its value. All spans are borrowed. */
struct ocdbt_entry {
	struct span key;
	struct ocdbt_value value;
};

/* An entry of an interior node. All spans are borrowed. */
struct ocdbt_child {
	struct span key;
	unsigned cut; /* number of leading bytes of key that the child's keys omit */
	struct ocdbt_ref ref;
	struct ocdbt_stats stats;
};

#define OCDBT_FILE_NONE UINT32_MAX

/*
 * A parsed node, in columns: about 24 bytes and the key for each leaf entry. Keys are relative to
 * the implicit prefix of the node, expanded, concatenated and in ascending order, so that they can
 * be searched directly.
 */
struct ocdbt_node {
	struct arena arena;
	unsigned height; /* 0: leaf */
	uint32_t n;      /* 1 to LIMIT_NODE_ENTRIES */
	struct ocdbt_files files;
	const uint32_t *key_end;
	const uint8_t *keys;
	const uint32_t *file; /* index into files; in a leaf, OCDBT_FILE_NONE for an inline value */
	const uint64_t *off;  /* offset in the file; of an inline value, in inline_bytes */
	const uint64_t *len;
	const uint8_t *inline_bytes;     /* leaf only */
	const uint16_t *cut;             /* interior node only */
	const struct ocdbt_stats *stats; /* interior node only */
};
/* transitive is the base of the reference to the node. */
int ocdbt_node_parse(struct span stored, struct span transitive, struct ocdbt_node **ret);
/* Accepts NULL. */
void ocdbt_node_free(struct ocdbt_node *node);
/*
 * A cache accounts for the node's memory from now on. A large node stays charged to the meter, too,
 * since a pinned node may exceed the cache.
 */
void ocdbt_node_unmeter(struct ocdbt_node *node);
/* The memory of the node in bytes. */
uint64_t ocdbt_node_charge(const struct ocdbt_node *node);

static inline struct span ocdbt_node_key(const struct ocdbt_node *node, uint32_t i)
{
	uint32_t from = i ? node->key_end[i - 1] : 0;

	return span_of(node->keys + from, node->key_end[i] - from);
}
/* Get value i of a leaf. */
void ocdbt_node_value(const struct ocdbt_node *node, uint32_t i, struct ocdbt_value *ret);
/* Get child i of an interior node. */
void ocdbt_node_child(const struct ocdbt_node *node, uint32_t i, struct ocdbt_child *ret);
/*
 * The number of keys that are <= key, which is relative like those of the node. The search begins
 * at index hint, so it is fast near the last result.
 */
uint32_t ocdbt_node_rank(const struct ocdbt_node *node, struct span key, uint32_t hint);
/*
 * The statistics that a reference to the node must have, except for the node's own length in
 * tree_bytes.
 */
void ocdbt_node_stats(const struct ocdbt_node *node, struct ocdbt_stats *ret);

/*
 * A node that is being built. Entries are added in the order of their keys, which are full keys.
 * The packer takes about as much memory as the encoded node. Zeroed it is ready, and zeroed again
 * by release.
 */
struct ocdbt_packer {
	unsigned height; /* set before the first entry */
	uint32_t n;
	struct ocdbt_filelist files;
	struct buf last_key, first_key;
	struct buf prefix_len, suffix_len; /* of uint16_t; for full keys */
	struct buf suffix;
	struct buf id, off, len; /* of uint32_t, uint64_t, uint64_t */
	struct buf inline_bytes; /* leaf */
	struct buf strip, stats; /* interior node: of uint16_t, struct ocdbt_stats */
	unsigned common;         /* number of bytes that all keys have in common at the start */
	unsigned strip_min;      /* interior node: the smallest strip of a child */
};
/* -EINVAL when the key does not ascend or is too long, or the node is full. */
int ocdbt_packer_add(struct ocdbt_packer *p, const struct ocdbt_entry *e);
/*
 * key is the first full key of the child. strip is the number of leading bytes that the child's
 * keys omit.
 */
int ocdbt_packer_add_child(struct ocdbt_packer *p, struct span key, unsigned strip,
			   const struct ocdbt_ref *ref, const struct ocdbt_stats *stats);
/* The most leading bytes that the keys of this node may omit. A root must omit 0. */
unsigned ocdbt_packer_strip(const struct ocdbt_packer *p);
/*
 * Append the record, of at least one entry. strip <= ocdbt_packer_strip(). ret_stats is set as by
 * ocdbt_node_stats(). The packer keeps its entries.
 */
int ocdbt_packer_pack(struct ocdbt_packer *p, unsigned strip, const struct ocdbt_config *compress,
		      struct buf *ret, struct ocdbt_stats *ret_stats);
/* Remove the entries, but keep the memory for the next node. */
void ocdbt_packer_clear(struct ocdbt_packer *p);
void ocdbt_packer_release(struct ocdbt_packer *p);
/* Append the node as a record: the same bytes that TensorStore or we wrote. */
int ocdbt_node_pack(const struct ocdbt_node *node, const struct ocdbt_config *compress,
		    struct buf *ret);

/* ---- text ---- */

/*
 * Append any stored record as text; the magic selects the kind. The text is the kind, the
 * compression, and then a line for each field, version, entry or child. Byte strings are in double
 * quotes, with unprintable bytes as %XX; a reference is its base, relative path, offset and length.
 */
int ocdbt_record_text(struct buf *out, struct span stored);
/*
 * Append the record of such a text to ret. For an uncompressed record in the canonical form that
 * TensorStore and we write (sorted table without unused files, longest prefixes, shortest numbers),
 * the bytes are the original ones. Rules about single values are not checked, so that tests can
 * make broken records; -EINVAL names the malformed line.
 */
int ocdbt_record_undump(struct span text, struct buf *ret);
/* Append only the lines of a parsed record. */
int ocdbt_manifest_text(struct buf *out, const struct ocdbt_manifest *m);
int ocdbt_vnode_text(struct buf *out, const struct ocdbt_vnode *v);
int ocdbt_node_text(struct buf *out, const struct ocdbt_node *node);
/*
 * Append "btreenode:PATH:OFF:LEN". kind may also be "value", "versionnode" or "file", which has
 * neither offset nor length. Unprintable bytes of the path are written as %XX.
 */
int ocdbt_ref_text(struct buf *out, const char *kind, const struct ocdbt_ref *ref);

#define auto_manifest __attribute__((cleanup(ocdbt_manifest_release))) struct ocdbt_manifest
#define auto_vnode __attribute__((cleanup(ocdbt_vnode_release))) struct ocdbt_vnode
#define auto_packer __attribute__((cleanup(ocdbt_packer_release))) struct ocdbt_packer
#define auto_filelist __attribute__((cleanup(ocdbt_filelist_release))) struct ocdbt_filelist
DEFINE_AUTO(ocdbt_node, struct ocdbt_node, ocdbt_node_free);

#endif
