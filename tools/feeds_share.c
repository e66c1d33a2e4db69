/*
 * feeds_share.c - which rank of a team writes which feed.
 *
 * Inputs are listed by each rank for itself, in the order in which a directory
 * gives its names: they are compared and shared in the order of their paths.
 *
 * Kept true: an item that is no tree is one rank's, as only trees are put together
 * from what several ranks have.
 */
#include "core/base/err.h"
#include "handlers/plugins.h"
#include "tools/feeds.h"
#include "tools/team_work.h"
#include "tools/zip_data.h"

static int by_path(const void *a, const void *b)
{
	return strcmp((*(struct feed *const *)a)->path, (*(struct feed *const *)b)->path);
}

/* All feeds in the order of their paths; owned by the caller. */
static struct feed **sorted(struct feeds *f)
{
	struct feed **out = calloc(f->n + 1, sizeof(*out));

	for (size_t i = 0; i < f->n && out; i++)
		out[i] = &f->feed[i];
	if (out && f->n)
		qsort(out, f->n, sizeof(*out), by_path);
	return out;
}

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(path, dir, n) && (path[n] == '/' || n == 0);
}

/* 1: its item is stored as it is, or a plugin's. */
static int is_whole(const struct feeds *f, const char *path)
{
	auto_free char *item = span_dup_str(span_of(path, strcspn(path, "/")));
	struct plugin *plugin = NULL;
	int r = item ? plugin_of_item(item, NULL, NULL, &plugin) : -ENOMEM;

	for (size_t i = 0; i < f->n_marks && r >= 0 && !plugin; i++)
		if (!strcmp(f->mark[i].name, "kind") && strstr(f->mark[i].value, "opaque") &&
		    is_below(path, f->mark[i].path))
			return 1;
	return r < 0 ? r : plugin != NULL;
}

static int choose_owners(struct feeds *f, struct feed *const *at, const struct team *team)
{
	auto_free uint64_t *bytes = calloc(f->n + 1, sizeof(*bytes));
	auto_free int *owner = calloc(f->n + 1, sizeof(*owner));
	int r = bytes && owner ? 0 : fail(-ENOMEM, "cannot share %zu leaves", f->n);

	for (size_t i = 0; i < f->n && r >= 0; i++) {
		r = is_whole(f, at[i]->path);
		owner[i] = r == 1 ? 0 : -1;
		bytes[i] = at[i]->bytes;
	}
	if (r >= 0)
		r = team_split(team, f->n, bytes, owner);
	for (size_t i = 0; i < f->n && r >= 0; i++)
		at[i]->owner = owner[i];
	return r;
}

static uint32_t sum_of(const struct feeds *f, struct feed *const *at)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < f->n; i++) {
		sum = zip_crc(sum, at[i]->path, strlen(at[i]->path) + 1);
		sum = zip_crc(sum, &at[i]->bytes, sizeof(at[i]->bytes));
	}
	return sum;
}

int feeds_share(struct feeds *f, struct team *team)
{
	auto_free struct feed **at = sorted(f);
	auto_buf theirs = { 0 };
	uint32_t sum = 0;
	int r = at ? 0 : fail(-ENOMEM, "cannot list %zu leaves", f->n);

	if (!team)
		return r;
	if (r >= 0) {
		sum = sum_of(f, at);
		r = choose_owners(f, at, team);
	}
	if (r >= 0 && team_is_lead(team))
		r = buf_add(&theirs, &sum, sizeof(sum));
	r = team_meet(team, r);
	if (r < 0)
		return r;
	r = team_follow(team, 0, &theirs);
	if (r >= 0 && (theirs.n != sizeof(sum) || memcmp(theirs.p, &sum, sizeof(sum))))
		r = fail(-EIO, "the input holds other leaves than on rank 0: do they see the same source?");
	return team_meet(team, r);
}
