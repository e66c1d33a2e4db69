# SPDX-License-Identifier: Apache-2.0
# sanitize.sh - builds with sanitizers, and what their programs are told. Sourced by tests/sanitize and tests/run, after
# tools/build.sh, with the top of the sources in $top. KIND is address or thread.
# shellcheck shell=bash disable=SC2154

# sanitize_dir KIND: the build directory.
sanitize_dir() {
	echo "${PYTREEFS_SANITIZE_BUILD:-${PYTREEFS_BUILD:-$top/build}}/sanitize-$1"
}

# sanitize_configure KIND: set it up. Both callers name the same options, so that neither builds all anew.
sanitize_configure() {
	local sanitizers=address,undefined dir
	[ "$1" = address ] || sanitizers=thread
	dir=$(sanitize_dir "$1")
	mkdir -p "$(dirname "$dir")" &&
		build_configure "$top" "$dir" "-Db_sanitize=$sanitizers" -Db_lundef=false -Dpoison=true
}

# sanitize_environment REPORTS: reports go to files in the directory REPORTS, which is made.
sanitize_environment() {
	local common="log_path=$1/report"
	mkdir -p "$1" && chmod 1777 "$1"
	export ASAN_OPTIONS="$common:detect_leaks=1:allocator_may_return_null=1:strict_string_checks=1"
	export UBSAN_OPTIONS="$common:halt_on_error=1:print_stacktrace=1"
	export TSAN_OPTIONS="$common:second_deadlock_stack=1:exitcode=66:suppressions=$top/tests/thread.suppressions"
}

# sanitize_show REPORTS: print the reports that are there; fails when there are any.
sanitize_show() {
	local found
	found=$(find "$1" -type f -size +0 | wc -l)
	[ "$found" -gt 0 ] || return 0
	find "$1" -type f -size +0 -exec cat {} + | head -n 400
	echo "the sanitizer reported on $found processes"
	return 1
}

# sanitize_python: what Python needs in its environment to load a module that is built with the address sanitizer, one word a
# line. The sanitizer comes first, and libstdc++ with it, whose exceptions it watches. Leaks are reported and do not change
# the status of a process: others' are among them (sanitize_our_leaks).
sanitize_python() {
	local cc=${CC:-cc}
	echo "LD_PRELOAD=$("$cc" -print-file-name=libasan.so):$("$cc" -print-file-name=libstdc++.so)"
	echo "LSAN_OPTIONS=exitcode=0:print_suppressions=0:suppressions=$top/tests/leak.suppressions"
}

# sanitize_our_leaks REPORTS: of the leaks in the reports there only those stay that code of ours allocated. CPython and
# numpy leave blocks behind at the end of a process, and so do programs that tests start.
sanitize_our_leaks() {
	local file
	for file in "$1"/report.*; do
		[ -f "$file" ] || continue
		awk -v RS='' -v ORS='\n\n' -v ours='(core|handlers|tools|fs)/[a-z0-9_/]+[.][ch]:[0-9]' '
			/LeakSanitizer: detected memory leaks/ { head = $0 ORS; next }
			/^(Direct|Indirect) leak of/ && $0 !~ ours { next }
			/^SUMMARY: AddressSanitizer: .* leaked in/ { next }
			{ printf "%s", head; head = ""; print }' "$file" >"$file.ours" &&
			mv -- "$file.ours" "$file"
	done
}

# sanitize_under: words of a command under which programs with the thread sanitizer can run, one a line. The one of gcc 12
# finds no room for itself where the kernel chooses addresses out of more than 28 bits.
sanitize_under() {
	local bits
	bits=$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null)
	[ "${bits:-0}" -le 28 ] || printf '%s\n' setarch --addr-no-randomize
}
