/*
 * options.h - every option of a mount, in one table.
 *
 * The table gives parsing, --help, the man page, the README's section and
 * `.pytreefs/config`. An option that is not in it does not exist.
 */
#ifndef PYTREEFS_OPTIONS_H
#define PYTREEFS_OPTIONS_H

#include "core/step/ckpt.h"

struct options {
	/* What is shown. */
	enum shape shape;
	bool show_tmp;
	enum missing missing;
	enum atomicity atomicity;
	char *aggregate_filename;
	char *safetensors_separator;
	/* Memory and I/O. */
	uint64_t cache, read_budget, write_budget;
	char *spill;
	uint64_t spill_limit;
	char *io;
	uint64_t threads;
	bool direct_io;
	uint64_t max_read;
	uint64_t poll;			/* milliseconds between looks where inotify does not work */
	/* Messages. */
	char *log;
	char *trace;
};

enum option_kind { OPTION_BOOL, OPTION_SIZE, OPTION_UINT, OPTION_TEXT, OPTION_ENUM };

struct option {
	const char *name;
	enum option_kind kind;
	size_t at;			/* offset in struct options */
	const char *fallback;		/* default, as text; NULL for TEXT: unset */
	const char *accepts;		/* "64M, 1G" or the enum's words "auto|error|zero" */
	const char *help;		/* one sentence */
};

extern const struct option option_table[];
extern const size_t option_count;

/* All defaults. Release with options_release(). */
int options_init(struct options *o);
void options_release(struct options *o);
/*
 * "name=value", or "name" for a bool. -EINVAL names the option and what it accepts, or the nearest
 * name for an unknown one. -ENOENT, quietly, when known_only and the name is not ours.
 */
int option_set(struct options *o, const char *text, bool known_only);
/* The value in force as text. */
int option_print(const struct options *o, const struct option *opt, struct buf *ret);
/* Whether it was given, or is the default. */
bool option_is_default(const struct options *o, const struct option *opt);

/* "64M", "1G", "1024": bytes. */
int option_parse_size(const char *text, uint64_t *ret);

#endif
