/*
 * progress.c - one line on stderr, drawn again a few times a second by whoever does the work.
 */
#include "tools/progress.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/cmd.h"

#define FIRST_SECONDS 1.0
#define NEXT_SECONDS 0.2
#define WIDTH 24

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void progress_begin(struct progress *p, const char *what, bool quiet)
{
	memset(p, 0, sizeof(*p));
	p->what = what;
	p->on = !quiet && isatty(STDERR_FILENO);
	pthread_mutex_init(&p->lock, NULL);
	p->started = now();
	p->shown = p->started + FIRST_SECONDS - NEXT_SECONDS;
}

void progress_expect(struct progress *p, uint64_t bytes)
{
	atomic_fetch_add(&p->total, bytes);
}

static void print_time(char *out, size_t n, double seconds)
{
	if (seconds < 60)
		snprintf(out, n, "%.0f s", seconds);
	else if (seconds < 3600)
		snprintf(out, n, "%.0f min %02.0f s", (double)(int)(seconds / 60), (double)((int)seconds % 60));
	else
		snprintf(out, n, "%.0f h %02.0f min", (double)(int)(seconds / 3600), (double)((int)seconds % 3600 / 60));
}

static void draw(struct progress *p, double at)
{
	uint64_t total = atomic_load(&p->total), done = atomic_load(&p->done);
	double part = total ? MIN(1.0, (double)done / (double)total) : 0, took = at - p->started;
	char bar[WIDTH + 1], rate[32], all[32], left[32];

	for (int i = 0; i < WIDTH; i++)
		bar[i] = i < part * WIDTH ? '#' : '.';
	bar[WIDTH] = '\0';
	print_size(rate, sizeof(rate), (uint64_t)((double)done / took));
	print_size(all, sizeof(all), total);
	print_time(left, sizeof(left), part > 0 ? took / part - took : 0);
	fprintf(stderr, "\r%s %3.0f%% [%s] of %s, %s/s, %s left\x1b[K", p->what, part * 100, bar, all, rate,
		part > 0 ? left : "?");
	fflush(stderr);
	p->is_drawn = true;
}

void progress_add(struct progress *p, uint64_t bytes)
{
	double at;

	atomic_fetch_add(&p->done, bytes);
	/* Whoever comes while it is being drawn has better things to do. */
	if (!p->on || pthread_mutex_trylock(&p->lock))
		return;
	at = now();
	if (at - p->shown >= NEXT_SECONDS) {
		p->shown = at;
		draw(p, at);
	}
	pthread_mutex_unlock(&p->lock);
}

void progress_clear(struct progress *p)
{
	if (!p->on)
		return;
	pthread_mutex_lock(&p->lock);
	if (p->is_drawn)
		fputs("\r\x1b[K", stderr);
	p->is_drawn = false;
	pthread_mutex_unlock(&p->lock);
}

void progress_end(struct progress *p)
{
	progress_clear(p);
	p->on = false;
	pthread_mutex_destroy(&p->lock);
}

double progress_seconds(const struct progress *p)
{
	return now() - p->started;
}
