/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name.h - key <-> file name, and the views that a name can ask for.
 *
 * The mapping is one-to-one both ways: "Names, exactly" of the design, repeated
 * in core/tree/README.md. What makes it so: every byte that a rule escapes is always
 * escaped, a name is accepted only in the one spelling that name_escape() gives its
 * key, and a key that looks like a shortened name has its '~' escaped.
 */
#ifndef PYTREEFS_NAME_H
#define PYTREEFS_NAME_H

#include "core/base/buf.h"
#include "core/base/limits.h"

/* The extensions of ours, in the order of probing. */
enum name_ext {
	NAME_EXT_NONE,
	NAME_EXT_NPY,
	NAME_EXT_BIN,
	NAME_EXT_JSON,
	NAME_EXT_TXT,
	NAME_EXT_NULL,
	NAME_EXT_SAFETENSORS,
	NAME_EXT_HTML,
	NAME_EXT_PLUGIN, /* the first of those that plugins bring */
	NAME_EXT_PLUGIN_LAST = NAME_EXT_PLUGIN + 15,
	NAME_EXT_COUNT,
};

/* ".npy"; "" for NAME_EXT_NONE, and for those of plugins that are not loaded, which come last. */
const char *name_ext_text(enum name_ext ext);
/*
 * One more, ".word": of a plugin. Before there is a second thread. -EINVAL for one that is taken
 * and ours, -EFBIG when there are too many; one that a plugin brought before is shared.
 */
int name_ext_add(const char *text, enum name_ext *ret);
/* The extension that name ends in, or NAME_EXT_NONE. */
enum name_ext name_ext_of(struct span name);

/* Escape one key for a leaf's file name (the stem; the extension comes after) or a container's. */
enum name_use { NAME_LEAF, NAME_CONTAINER };

/*
 * Names of ours that a directory with keys can hold: a set of bits says which stand in one. A key
 * equal to one that stands there gets its first byte escaped; everywhere else it is a key like any
 * other. `latest` is not one of them: it stands only beside steps, whose names are not keys.
 */
enum name_ours {
	NAME_OURS_METADATA = 1 << 0, /* `_METADATA`: the top of every tree */
	NAME_OURS_STEP =
		1 << 1, /* `_CHECKPOINT_METADATA`: the top of a tree that is a whole step */
	NAME_OURS_CONTROL = 1 << 2, /* `.pytreefs`: the top of a mount */
	NAME_OURS_ALL = (1 << 3) - 1,
};

/*
 * The file name of a key, appended to ret: escaped, with the extension's text, shortened with '~'
 * and a hash when it would exceed LIMIT_NAME_BYTES. ext is NAME_EXT_NONE for containers and opaque
 * files; both are spelled as containers are.
 * ours: bits of enum name_ours; they matter only without an extension.
 */
int name_escape(struct span key, enum name_use use, enum name_ext ext, unsigned ours,
		struct buf *ret);
/*
 * The `~` form also for a short name: for two leaves that collide. attempt is 0; a higher one gives
 * another hash, for when even these are equal.
 */
int name_escape_hashed(struct span key, enum name_use use, enum name_ext ext, unsigned attempt,
		       struct buf *ret);
/*
 * Whether a stem is in the `~` form: it ends in '~' and 16 lower-case hex digits. No key can be
 * read from it; user.pytree.key has it.
 */
bool name_is_hashed(struct span stem);
/*
 * The key of a stem (a name without its extension): 0, or -EINVAL when it is in the `~` form, an
 * escape is malformed or the name is not how name_escape() would spell that key (so that each key
 * has one name). For an opaque file's name use is NAME_CONTAINER. The key may be any bytes.
 *
 * One exception: the escaped spelling of a name of ours is accepted where that name does not stand,
 * too, because a copy comes from a place where it does ("%2Epytreefs" in a mount of one item).
 */
int name_unescape(struct span stem, enum name_use use, unsigned ours, struct buf *ret_key);

/* One axis of a box. */
struct name_slice {
	enum { NAME_SLICE_RANGE, NAME_SLICE_INDEX, NAME_SLICE_ELLIPSIS } kind;
	bool has_start, has_stop;
	int64_t start, stop, step; /* INDEX: start; step >= 1, 1 when left out */
};

/* A name taken apart: stem, box, cast, shape, extension; each part but the stem is optional. */
struct name_view {
	struct span stem; /* still escaped, never empty; borrowed from the name */
	enum name_ext ext;
	bool has_box, has_shape, has_cast;
	unsigned n_box; /* entries of box; at most one ellipsis */
	struct name_slice box[LIMIT_RANK + 1];
	unsigned n_shape;
	uint64_t shape[LIMIT_RANK]; /* "@8x4"; "@scalar" does not exist: rank >= 1 */
	struct span cast;           /* "bfloat16": letters, digits and '_'; borrowed */
};

/*
 * Take a name apart; 0, or -EINVAL with the reason. A name without view parts gives only stem and
 * ext. Grammar: after the stem at most one box "[" slice ("," slice)* "]", one cast and one shape,
 * in any order (it changes nothing: view_of_name() applies the shape, then the box, then the cast),
 * then the extension, which a view must have. No blanks, no leading zeros, no "+", no "-0". Whether
 * a box or a cast fits the leaf is not checked.
 * '[', ']' and '@' are escaped in keys, so they always begin a view.
 */
int name_view_parse(struct span name, struct name_view *ret);
/* The name again: box, cast, shape, extension. It parses to an equal view. */
int name_view_print(const struct name_view *v, struct buf *ret);
/* Whether it asks for anything but the plain leaf. */
static inline bool name_view_is_plain(const struct name_view *v)
{
	return !v->has_box && !v->has_shape && !v->has_cast;
}

#endif
