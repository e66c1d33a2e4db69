# SPDX-License-Identifier: Apache-2.0
# build.sh - a build directory that was configured with what is installed now.
#
# Sourced by everything that builds: tools/quickstart, tests/run, tests/sanitize, tests/fuzz/run and
# tests/bench/run. meson looks for compilers and libraries once, when a build directory is configured, and leaves out
# what it does not find (the unit tests without cmocka, pytreefs-mpi without MPI). So what it would find is
# written into the build directory, and when that has changed the directory is configured again.
# shellcheck shell=bash

# build_found TOP: one line for each thing that meson looks for, with its version or "none". The root's meson.build
# alone looks for libraries, in this form: tests/layers.py sees to it.
build_found() {
	local top=$1 name
	echo "meson $(meson --version)"
	echo "cc $(${CC:-cc} --version 2>/dev/null | head -n 1)"
	echo "mpicc $(command -v "${MPICC:-mpicc}" || echo none)"
	for name in $(grep -oh "\bdependency('[^']*'" "$top"/meson.build | cut -d"'" -f2 | sort -u); do
		echo "$name $(pkg-config --modversion "$name" 2>/dev/null || echo none)"
	done
	for name in $(grep -oh "find_library('[^']*'" "$top"/meson.build | cut -d"'" -f2 | sort -u); do
		echo "lib$name.so $(build_library "$name")"
	done
}

# build_library NAME: the file that the linker takes for -lNAME, "none" when there is none.
build_library() {
	local file
	file=$(${CC:-cc} -print-file-name="lib$1.so" 2>/dev/null)
	# The compiler repeats the name alone when it does not find the file.
	[ "$file" != "lib$1.so" ] && realpath -- "${file:-none}" 2>/dev/null || echo none
}

# build_configure TOP DIR [OPTION...]: set up the build directory DIR of the sources in TOP with these options of
# meson, or configure it again where something that meson looks for has changed. Prints nothing when all is as it was.
build_configure() {
	local top=$1 dir=$2 found stamp=$2/found-at-setup
	shift 2
	found=$(build_found "$top")
	# Who names no options (tests/run in the directory of tests/sanitize) leaves them as they are.
	if [ $# -gt 0 ]; then
		found+=$'\n'"options $*"
	else
		found+=$'\n'$(grep '^options ' "$stamp" 2>/dev/null || echo options)
	fi
	if [ ! -f "$dir/build.ninja" ]; then
		echo "setting up $dir"
		meson setup "$dir" "$top" "$@" >"$dir.log" 2>&1 || { tail -n 20 "$dir.log" >&2; return 1; }
		mv "$dir.log" "$dir/setup.log"
	elif [ "$(cat "$stamp" 2>/dev/null)" != "$found" ]; then
		if [ -f "$stamp" ]; then
			echo "configuring $dir again, since this has changed:" \
				"$(grep -vxF -f "$stamp" <<<"$found" | paste -sd , | cut -c1-200)"
		else
			echo "configuring $dir again: it was set up by hand, and what was found then is not recorded"
		fi
		rm -f "$stamp"
		# What was found before may be gone; meson would take it from its cache.
		meson configure "$dir" --clearcache >/dev/null &&
			meson setup --reconfigure "$dir" "$top" "$@" >"$dir/setup.log" 2>&1 || {
			tail -n 20 "$dir/setup.log" >&2
			return 1
		}
	else
		return 0
	fi
	printf '%s\n' "$found" >"$stamp"
}
