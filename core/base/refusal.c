/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refusal.c - for how long an error is remembered.
 */
#include "core/base/refusal.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/meter.h"

/* More room than this is another try worth. */
#define ROOM_STEP METER_RESERVED

int refusal_ask(const struct refusal *f, uint64_t mark)
{
	if (!f->hold || f->mark != mark || clock_ns() >= f->until)
		return 0;
	if (f->note.code == -ENOMEM && meter_room() > f->room &&
	    meter_room() - f->room >= ROOM_STEP)
		return 0;
	return err_restore(&f->note);
}

bool refusal_pays(int r, int64_t began)
{
	return r < 0 && (r == -ENOMEM || !err_passes(r)) && clock_ns() - began >= REFUSAL_COST_NS;
}

int refusal_keep(struct refusal *f, uint64_t mark, int64_t began, int r)
{
	bool again = f->hold && f->mark == mark && r == -EFBIG;

	if (!refusal_pays(r, began))
		return r;
	err_save(r, &f->note);
	f->hold = again ? MIN(2 * f->hold, REFUSAL_MOST_NS) : REFUSAL_NS;
	f->mark = mark;
	f->until = clock_ns() + f->hold;
	f->room = meter_room();
	return err_restore(&f->note);
}
