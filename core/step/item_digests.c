/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_digests.c - the SHA-256 digests of leaves that an item records, read on demand.
 */
#include "core/step/item_impl.h"
#include "core/tree/digests.h"

int item_digests(struct item *item, const struct digests **ret)
{
	auto_buf text = { 0 };
	int r = 0;

	pthread_mutex_lock(&item->lock);
	if (!item->digests_read && !item->is_file) {
		r = io_read_file(item->dir, DIGESTS_FILE, LIMIT_SMALL_FILE, &text);
		if (r >= 0)
			r = digests_parse(buf_span(&text), "'" DIGESTS_FILE "'", &item->digests);
		r = item_optional(item, DIGESTS_FILE, r);
		item->digests_read = r >= 0;
	}
	*ret = item->digests;
	pthread_mutex_unlock(&item->lock);
	return r;
}
