/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/namespace/places.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/path.h"
#include "core/step/step_name.h"
#include "handlers/namespace/ns.h"

/* Whether a path is a directory or below it. Both are absolute and without links. */
static bool is_at_or_below(const char *path, const char *dir)
{
	size_t n = strcmp(dir, "/") ? strlen(dir) : 0;

	return !strncmp(path, dir, n) && (path[n] == '/' || path[n] == '\0');
}

static int check_log(const char *source, const char *mountpoint, const char *log)
{
	auto_free char *file = path_real(log);
	size_t n = strlen(source);
	struct step_name name;

	if (!file)
		return 0;
	if (is_at_or_below(file, mountpoint))
		return fail(
			-EINVAL,
			"log='%s' is inside the mount point '%s': the mount would write to itself",
			log, mountpoint);
	/* Elsewhere in SOURCE, the file is not mistaken for a checkpoint. */
	if (strncmp(file, source, n) || file[n] != '/' || strchr(file + n + 1, '/'))
		return 0;
	return step_name_parse(span_str(file + n + 1), &name) == 1 && step_name_is_orbax(&name) ?
		       fail(-EINVAL, "log='%s' is called like a step of SOURCE '%s'", log, source) :
		       0;
}

static int check_spill(const char *mountpoint, const struct options *o)
{
	const char *dir = ns_spill_dir(o);
	auto_free char *real = dir ? realpath(dir, NULL) : NULL;

	if (dir == o->spill && access(dir, W_OK | X_OK) < 0)
		return err_sys("option spill: cannot use", dir);
	if (!real || !is_at_or_below(real, mountpoint))
		return 0;
	return fail(
		-EINVAL,
		"spill=%s: '%s' is inside the mount point '%s': the mount would write to itself; "
		"spill= may name another directory, or be off",
		o->spill, dir, mountpoint);
}

/* A mount that uses its own files would wait for itself. */
static int check_outside(const char *mountpoint, const char *option, const char *path)
{
	auto_free char *real = path ? path_real(path) : NULL;

	if (!real || !is_at_or_below(real, mountpoint))
		return 0;
	return fail(-EINVAL,
		    "%s='%s' is inside the mount point '%s': the mount would use its own files",
		    option, path, mountpoint);
}

/* The command is for the shell. Where its first word is a path, it must be a program. */
static int check_on_commit(const char *command)
{
	auto_free char *program = span_dup_str(span_of(command, strcspn(command, " \t")));

	if (!program || program[0] != '/' || strpbrk(program, "\"'$\\*?[`;&|<>(){}~"))
		return 0;
	return access(program, X_OK) < 0 ? err_sys("option on_commit: cannot run", program) : 0;
}

int places_check(const char *source, const char *mountpoint, const struct options *o)
{
	int r = 0;

	if (strcmp(source, mountpoint) && is_at_or_below(mountpoint, source))
		return fail(
			-EINVAL,
			"cannot mount on '%s': it is inside SOURCE '%s', and the mount would show "
			"itself",
			mountpoint, source);
	if (o->log)
		r = check_log(source, mountpoint, o->log);
	if (r < 0)
		return r;
	r = check_outside(mountpoint, "cache_dir", o->cache_dir);
	if (r < 0)
		return r;
	r = check_outside(mountpoint, "http_headers", o->http_headers);
	if (r < 0)
		return r;
	if (o->on_commit)
		r = check_on_commit(o->on_commit);
	return r < 0 ? r : check_spill(mountpoint, o);
}
