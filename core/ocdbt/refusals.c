/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refusals.c - nodes that were refused, so that they are not decoded for every request.
 *
 * Invariants: what is remembered is of a file with the same identity, size and time of change, and
 * of the last seconds: a repair that shows in neither is noticed then.
 */
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/meter.h"
#include "core/ocdbt/db.h"

#define REFUSALS_MAX 4
#define REFUSAL_NS 10000000000 /* how long one is remembered */

struct refusal {
	uint64_t id[2];
	uint64_t dev, ino, size;
	struct timespec mtime;
	int64_t at;    /* 0: none */
	uint64_t room; /* of the meter, for what did not fit beside others */
	struct err_note note;
};

struct refusals {
	struct refusal at[REFUSALS_MAX];
	unsigned next;
};

/* What the reference names now, opened again when it was in doubt. */
static int describe(struct ocdbt *db, const struct ocdbt_ref *ref, struct refusal *ret)
{
	auto_of(io_file) struct io_file *file = NULL;
	int r = db_ref_id(ref, ret->id);

	if (r >= 0)
		r = db_file(db, ref, &file);
	if (r < 0)
		return r;
	ret->dev = file->dev;
	ret->ino = file->ino;
	ret->size = file->size;
	ret->mtime = file->mtime;
	return 0;
}

static bool is_same(const struct refusal *a, const struct refusal *b)
{
	return a->id[0] == b->id[0] && a->id[1] == b->id[1] && a->dev == b->dev &&
	       a->ino == b->ino && a->size == b->size && a->mtime.tv_sec == b->mtime.tv_sec &&
	       a->mtime.tv_nsec == b->mtime.tv_nsec;
}

int refusals_ask(struct ocdbt *db, const struct ocdbt_ref *ref)
{
	struct refusal now = { 0 };
	bool some, found = false;
	int r;

	pthread_mutex_lock(&db->lock);
	some = db->refusals;
	pthread_mutex_unlock(&db->lock);
	if (!some)
		return 0;
	r = describe(db, ref, &now);
	if (r < 0)
		return r;
	pthread_mutex_lock(&db->lock);
	for (size_t i = 0; i < REFUSALS_MAX && !found; i++) {
		const struct refusal *f = &db->refusals->at[i];

		found = f->at && clock_ns() - f->at < REFUSAL_NS && is_same(f, &now) &&
			(f->note.code != -ENOMEM || meter_room() < f->room + METER_RESERVED);
		if (found)
			now.note = f->note;
	}
	pthread_mutex_unlock(&db->lock);
	return found ? err_restore(&now.note) : 0;
}

void refusals_add(struct ocdbt *db, const struct ocdbt_ref *ref, const struct err_note *note)
{
	struct refusal now = { .at = clock_ns(), .note = *note };

	/* Whoever asks next meets it again. */
	if ((err_passes(note->code) && note->code != -ENOMEM) || describe(db, ref, &now) < 0)
		return;
	now.room = meter_room();
	pthread_mutex_lock(&db->lock);
	if (!db->refusals)
		db->refusals = calloc(1, sizeof(*db->refusals));
	if (db->refusals)
		db->refusals->at[db->refusals->next++ % REFUSALS_MAX] = now;
	pthread_mutex_unlock(&db->lock);
}
