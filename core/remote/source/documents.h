/* SPDX-License-Identifier: Apache-2.0 */
/*
 * documents.h - read-ahead of the documents and listings of a checkpoint.
 *
 * A reader of one of the documents of a checkpoint reads the others, too, and looks into the
 * directories of its items and data files. So the first read of a document requests all of these at
 * once: one round trip instead of one for each. The cache of directories (dir_cache.h) has them
 * until they are read.
 */
#ifndef PYTREEFS_CORE_REMOTE_DOCUMENTS_H
#define PYTREEFS_CORE_REMOTE_DOCUMENTS_H

#include "core/remote/source/url_store_impl.h"

/* Whether a name is that of a document that is fetched along with others. */
bool document_is_name(const char *name);
/*
 * Before a range of a file is read: if it is a document, fetch what its reader needs next. Errors
 * are ignored: the reader that needs a document requests it itself. Waits for the server.
 */
void documents_fetch(struct store *s, const struct io_file *file, uint64_t off, size_t n);

#endif
