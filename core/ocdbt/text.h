/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - the formats of the lines of a record as text, which text.c writes and undump.c reads.
 */
#ifndef PYTREEFS_OCDBT_TEXT_H
#define PYTREEFS_OCDBT_TEXT_H

/*
 * In a format, %u is a uint64_t, %d an int64_t, %q a byte string in quotes and %h one in
 * hexadecimal (struct span). text_put() takes values, text_get() pointers.
 */
#define FMT_UUID "uuid %h"
#define FMT_KIND "manifest_kind %u"
#define FMT_INLINE_MAX "max_inline_value_bytes %u"
#define FMT_NODE_MAX "max_decoded_node_bytes %u"
#define FMT_ARITY "version_tree_arity_log2 %u"
#define FMT_CODE_PLAIN "config_compression none"
#define FMT_CODE_ZSTD "config_compression zstd %d"
#define FMT_EMPTY "version %u empty %q %q time %u"
#define FMT_VERSION \
	"version %u height %u root %q %q %u %u keys %u tree_bytes %u value_bytes %u time %u"
#define FMT_VNODE "versionnode %u height %u node %q %q %u %u generations %u time %u"
#define FMT_HEIGHT "height %u"
#define FMT_INLINE "entry %q inline %q"
#define FMT_FILE "entry %q file %q %q %u %u"
#define FMT_CHILD "child %q cut %u node %q %q %u %u keys %u tree_bytes %u value_bytes %u"

/* The line after the kind of the record. */
#define FMT_PLAIN "compression none"
#define FMT_ZSTD "compression zstd"

/* Indexed by enum ocdbt_record. */
#define TEXT_KINDS                                     \
	{                                              \
		"manifest", "versionnode", "btreenode" \
	}

#endif
