/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name.h - key <-> file name, and the views that a name can select.
 *
 * The mapping is one-to-one in both directions (core/tree/README.md, section 1), because every byte
 * that a rule escapes is always escaped, a name is accepted only in the one spelling that
 * name_escape() gives its key, and a key that looks like a shortened name has its '~' escaped.
 */
#ifndef PYTREEFS_NAME_H
#define PYTREEFS_NAME_H

#include "core/base/buf.h"
#include "core/base/limits.h"

/* Our extensions, in the order in which they are tried. */
enum name_ext {
	NAME_EXT_NONE,
	NAME_EXT_NPY,
	NAME_EXT_BIN,
	NAME_EXT_JSON,
	NAME_EXT_TXT,
	NAME_EXT_NULL,
	NAME_EXT_SAFETENSORS,
	NAME_EXT_HTML,
	NAME_EXT_PLUGIN, /* the first one of plugins */
	NAME_EXT_PLUGIN_LAST = NAME_EXT_PLUGIN + 15,
	NAME_EXT_COUNT,
};

/* ".npy"; "" for NAME_EXT_NONE, and for those of plugins that are not loaded, which come last. */
const char *name_ext_text(enum name_ext ext);
/*
 * Add an extension ".word" of a plugin. Call before a second thread exists. -EINVAL for one that is
 * ours, -EFBIG when there are too many; several plugins may share one.
 */
int name_ext_add(const char *text, enum name_ext *ret);
/* The extension at the end of name, or NAME_EXT_NONE. */
enum name_ext name_ext_of(struct span name);

/* The use of a name: for a leaf (a stem, followed by an extension) or for a container. */
enum name_use { NAME_LEAF, NAME_CONTAINER };

/*
 * Our names that may be in a directory with keys, as bits: those that are in a given directory.
 * There, a key equal to such a name gets its first byte escaped; elsewhere it is a key like any
 * other. `latest` is not among them, since it is beside steps, whose names are not keys.
 */
enum name_ours {
	NAME_OURS_METADATA = 1 << 0, /* `_METADATA`: at the top of every tree */
	NAME_OURS_STEP =
		1 << 1, /* `_CHECKPOINT_METADATA`: at the top of a tree that is a whole step */
	NAME_OURS_CONTROL = 1 << 2, /* `.pytreefs`: at the top of a mount */
	NAME_OURS_ALL = (1 << 3) - 1,
};

/*
 * Append the file name of a key: escaped, with the extension, and shortened with '~' and a hash
 * when it would exceed LIMIT_NAME_BYTES. ext is NAME_EXT_NONE for containers and opaque files,
 * which are both spelled like containers. ours has bits of enum name_ours, and matters only without
 * an extension.
 */
int name_escape(struct span key, enum name_use use, enum name_ext ext, unsigned ours,
		struct buf *ret);
/*
 * Append the `~` form, even for a short name: for two leaves that collide. attempt is 0; a higher
 * one gives another hash, in case even the hashes are equal.
 */
int name_escape_hashed(struct span key, enum name_use use, enum name_ext ext, unsigned attempt,
		       struct buf *ret);
/*
 * Whether a stem has the `~` form: it ends with '~' and 16 lower-case hex digits. The key cannot be
 * derived from it; user.pytree.key has it.
 */
bool name_is_hashed(struct span stem);
/*
 * Append the key of a stem (a name without its extension). -EINVAL when it has the `~` form, an
 * escape is malformed, or the name is not the spelling of name_escape() for that key (so each key
 * has one name). For the name of an opaque file, use is NAME_CONTAINER. The key may have any bytes.
 *
 * One exception: the escaped spelling of one of our names is also accepted where that name does not
 * occur, because a copy may come from a place where it does ("%2Epytreefs" in a mount of one item).
 */
int name_unescape(struct span stem, enum name_use use, unsigned ours, struct buf *ret_key);

/* One axis of a box. */
struct name_slice {
	enum { NAME_SLICE_RANGE, NAME_SLICE_INDEX, NAME_SLICE_ELLIPSIS } kind;
	bool has_start, has_stop;
	int64_t start, stop, step; /* INDEX: start; step >= 1, and 1 when omitted */
};

/* The parts of a name: stem, box, cast, shape, extension; all but the stem are optional. */
struct name_view {
	struct span stem; /* still escaped, never empty; borrowed from the name */
	enum name_ext ext;
	bool has_box, has_shape, has_cast;
	unsigned n_box; /* entries in box; at most one is an ellipsis */
	struct name_slice box[LIMIT_RANK + 1];
	unsigned n_shape;
	uint64_t shape[LIMIT_RANK]; /* "@8x4"; "@scalar" does not exist: rank >= 1 */
	struct span cast;           /* "bfloat16": letters, digits and '_'; borrowed */
};

/*
 * Parse a name; -EINVAL with the reason. A name without view parts has only stem and ext. Grammar:
 * the stem, then at most one box "[" slice ("," slice)* "]", one cast and one shape, in any order
 * (which does not matter: view_of_name() applies the shape, then the box, then the cast), then the
 * extension, which a view must have. No blanks, no leading zeros, no "+", no "-0". Whether a box or
 * a cast fits the leaf is not checked. '[', ']' and '@' are escaped in keys, so they always begin a
 * view.
 */
int name_view_parse(struct span name, struct name_view *ret);
/* Append the name: box, cast, shape, extension. It parses to an equal view. */
int name_view_print(const struct name_view *v, struct buf *ret);
/* Whether the name selects just the leaf. */
static inline bool name_view_is_plain(const struct name_view *v)
{
	return !v->has_box && !v->has_shape && !v->has_cast;
}

#endif
