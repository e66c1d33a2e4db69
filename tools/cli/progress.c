/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.c - one line on stderr, which a working thread redraws a few times a second.
 */
#include "tools/cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tools/cli/cmd.h"

#define FIRST_SECONDS 1.0
#define NEXT_SECONDS 0.2
#define WIDTH 24    /* width of the bar */
#define WIDTH_MIN 4 /* a narrower bar is not drawn */

static double progress_now(void)
{
	return (double)clock_ns() / 1e9;
}

void progress_begin(struct progress *p, const char *what, bool quiet)
{
	memset(p, 0, sizeof(*p));
	p->what = what;
	p->on = !quiet && isatty(STDERR_FILENO);
	pthread_mutex_init(&p->lock, NULL);
	p->started = progress_now();
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
		snprintf(out, n, "%.0f min %02.0f s", (double)(int)(seconds / 60),
			 (double)((int)seconds % 60));
	else
		snprintf(out, n, "%.0f h %02.0f min", (double)(int)(seconds / 3600),
			 (double)((int)seconds % 3600 / 60));
}

/* "[###...] " */
static void draw_bar(char *out, int width, double part)
{
	*out++ = '[';
	for (int i = 0; i < width; i++)
		*out++ = i < part * width ? '#' : '.';
	memcpy(out, "] ", 3);
}

static void draw(struct progress *p, double at)
{
	uint64_t total = atomic_load(&p->total), done = atomic_load(&p->done);
	double part = total ? MIN(1.0, (double)done / (double)total) : 0, took = at - p->started;
	char bar[WIDTH + 4] = "", rate[32], all[32], left[32], tail[128], line[256];
	struct winsize w;
	int room = 79, width;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col)
		room = w.ws_col - 1;

	print_size(rate, sizeof(rate), (uint64_t)((double)done / took));
	print_size(all, sizeof(all), total);
	print_time(left, sizeof(left), part > 0 ? took / part - took : 0);
	snprintf(tail, sizeof(tail), "of %s, %s/s, %s left", all, rate, part > 0 ? left : "?");
	width = MIN(WIDTH, room - (int)(strlen(p->what) + strlen(" 100% [] ") + strlen(tail)));
	/* A line that is wider than the terminal would start a new one each time. */
	if (width >= WIDTH_MIN)
		draw_bar(bar, width, part);
	snprintf(line, sizeof(line), "%s %3.0f%% %s%s", p->what, part * 100, bar, tail);
	fprintf(stderr, "\r%.*s\x1b[K", room, line);
	fflush(stderr);
	p->is_drawn = true;
}

void progress_add(struct progress *p, uint64_t bytes)
{
	double at;

	atomic_fetch_add(&p->done, bytes);
	/* Another thread is drawing it; this one continues its work. */
	if (!p->on || pthread_mutex_trylock(&p->lock))
		return;
	at = progress_now();
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
	return progress_now() - p->started;
}
