/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_options.c - options of every kind: what is accepted and how it reads back, what is refused and
 * with which words, where a value comes from, and which rule wins.
 */
#include "tests/unit/lib/unit.h"

#include <stdlib.h>

#include "handlers/options/job_options.h"
#include "handlers/options/options.h"

static const struct option *option(const char *name)
{
	for (size_t i = 0; i < option_count; i++)
		if (!strcmp(option_table[i].name, name))
			return &option_table[i];
	fail_msg("no option '%s'", name);
	return NULL;
}

static void assert_shown(const struct options *o, const char *name, const char *wanted)
{
	auto_buf text = { 0 };

	assert_int_equal(option_print(o, option(name), &text), 0);
	assert_int_equal(buf_add_byte(&text, '\0'), 0);
	if (strcmp((char *)text.p, wanted))
		fail_msg("%s is '%s', wanted '%s'", name, (char *)text.p, wanted);
}

static int setup(void **state)
{
	*state = calloc(1, sizeof(struct options));
	return *state ? options_init(*state) : -1;
}

static int teardown(void **state)
{
	options_release(*state);
	free(*state);
	return 0;
}

/* Options that take no value of their own text, or a file that must exist. */
static bool reads_back(const struct option *opt)
{
	return opt->kind != OPTION_RULE && opt->kind != OPTION_PLUGIN &&
	       opt->kind != OPTION_BINDING && opt->kind != OPTION_REFUSED &&
	       opt->kind != OPTION_TRANSFORMS;
}

static void a_printed_value_is_accepted_again(void **state)
{
	struct options *o = *state;

	for (size_t i = 0; i < option_count; i++) {
		const struct option *opt = &option_table[i];
		auto_buf shown = { 0 }, text = { 0 };

		if (!reads_back(opt) || !opt->fallback)
			continue;
		assert_int_equal(option_print(o, opt, &shown), 0);
		assert_int_equal(buf_addf(&text, "%s=%.*s", opt->name, (int)shown.n,
					  shown.n ? (char *)shown.p : ""),
				 0);
		assert_string_equal(option_from_text(o, opt), "default");
		assert_int_equal(option_set(o, buf_str(&text), false), 0);
		assert_string_equal(option_from_text(o, opt), "mount");
		assert_int_equal(buf_add_byte(&shown, '\0'), 0);
		assert_shown(o, opt->name, (char *)shown.p);
	}
}

/* A bit of save_opts.given for each option that a rule may give, a place in from[] for each. */
static void the_table_fits_its_users(void **state)
{
	assert_true(option_count <= OPTIONS_MAX);
	for (size_t i = 0; i < option_count; i++) {
		const struct option *opt = &option_table[i];

		if (opt->scoped)
			assert_true(i < 64);
		assert_true(!opt->of_item || opt->scoped);
		assert_ptr_equal(option_of_item(opt->name), opt->of_item ? opt->name : NULL);
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(opt->name, option_table[j].name);
	}
}

static void every_word_of_a_choice_is_accepted(void **state)
{
	struct options *o = *state;

	for (size_t i = 0; i < option_count; i++) {
		const struct option *opt = &option_table[i];

		if (opt->kind != OPTION_ENUM)
			continue;
		for (const char *at = opt->accepts; *at;) {
			int n = (int)strcspn(at, "|");
			char text[128], word[64];

			snprintf(word, sizeof(word), "%.*s", n, at);
			snprintf(text, sizeof(text), "%s=%s", opt->name, word);
			assert_int_equal(option_set(o, text, false), 0);
			assert_shown(o, opt->name, word);
			at += n + (at[n] == '|');
		}
	}
}

static const struct {
	const char *text, *name, *shown;
} accepted[] = {
	{ "allow_delete", "allow_delete", "on" },
	{ "allow_delete=0", "allow_delete", "off" },
	{ "allow_delete=yes", "allow_delete", "on" },
	{ "allow_delete=false", "allow_delete", "off" },
	{ "busy_poll", "busy_poll", "on" }, /* one of its words is "on" */
	{ "direct_io", "direct_io", "on" },
	{ "cache=0", "cache", "0" },
	{ "cache=64k", "cache", "65536" },
	{ "cache=3M", "cache", "3145728" },
	{ "cache=2T", "cache", "2199023255552" },
	{ "cache=18446744073709551615", "cache", "18446744073709551615" },
	{ "cache=auto", "cache", "auto" },
	{ "commit_timeout=18446744073709551615", "commit_timeout", "18446744073709551615" },
	{ "mode=0750", "mode", "750" },
	{ "mode=7777", "mode", "7777" },
	{ "dtype=bfloat16", "dtype", "bfloat16" },
	{ "dtype=", "dtype", "" },
	{ "shard_axes=1:0", "shard_axes", "1:0" },
	{ "shard_axes=[0, 2]", "shard_axes", "0:2" },
	{ "shard_axes=", "shard_axes", "" },
	{ "compression=zstd:7", "compression", "zstd:7" },
	{ "compression=none", "compression", "none" },
	{ "aggregate=on", "aggregate", "all" },
	{ "zarr=3", "zarr", "3" },
	{ "json_filename=m", "json_filename", "m" },
	{ "on_commit=a=b,c", "on_commit", "a=b,c" }, /* all after the first '=' */
	{ "active=0-3:6", "active", "0-3:6" },
	{ "mesh=2x4", "mesh", "2x4" },
	{ "broadcast_memory_scaling=1", "broadcast_memory_scaling", "1" },
	{ "rule=a/*:dtype=float16", "rule", "a/*:dtype=float16" },
};

static void each_kind_has_its_values(void **state)
{
	struct options *o = *state;

	for (size_t i = 0; i < ARRAY_LEN(accepted); i++) {
		assert_int_equal(option_set(o, accepted[i].text, false), 0);
		assert_shown(o, accepted[i].name, accepted[i].shown);
	}
}

static const struct {
	const char *text, *says;
} refused[] = {
	{ "allow_delete=maybe", "option 'allow_delete' does not accept 'maybe'; it takes on|off" },
	{ "allow_delete=", "does not accept ''" },
	{ "cache", "option 'cache' needs a value: BYTES|auto" },
	{ "cache=", "does not accept ''" },
	{ "cache=-1", "option 'cache' does not accept '-1'; it takes BYTES|auto" },
	{ "cache=1.5G", "'1.5G'" },
	{ "cache=1GB", "'1GB'" },
	{ "cache=18446744073709551616", "'18446744073709551616'" },
	{ "cache=16777216T", "'16777216T'" },
	{ "spill_limit=auto", "option 'spill_limit' does not accept 'auto'; it takes BYTES" },
	{ "commit_timeout=1s", "it takes SECONDS" },
	{ "commit_timeout= 1", "' 1'" },
	{ "commit_timeout=18446744073709551616", "'18446744073709551616'" },
	{ "mode=800", "'800'; it takes OCTAL" },
	{ "mode=10000", "'10000'" },
	{ "mode=-1", "'-1'" },
	{ "dtype=float12", "option 'dtype' does not accept 'float12'" },
	{ "shard_axes=x", "option 'shard_axes' does not accept 'x'" },
	{ "shard_axes=0:99", "'0:99'" },
	{ "compression=zstd:99", "option 'compression' does not accept 'zstd:99'" },
	{ "compression=lz77", "'lz77'" },
	{ "zarr=4", "it takes 2|3" },
	{ "mesh=2x", "option 'mesh' does not accept '2x'; it takes AxB..." },
	{ "mesh=0x4", "'0x4'" },
	{ "mesh=65536x65536", "'65536x65536'" },
	{ "active=3-1", "option 'active' does not accept '3-1'" },
	{ "broadcast_memory_scaling=0", "it takes 0.0 to 1.0" },
	{ "broadcast_memory_scaling=nan", "'nan'" },
	{ "broadcast_memory_scaling=0.5x", "'0.5x'" },
	{ "pathways", "option 'pathways' is refused" },
	{ "pathways=on", "option 'pathways' is refused" },
	{ "cach=1M", "unknown option 'cach'; did you mean 'cache'?" },
	{ "qqqqqqqqqqqq=1", "unknown option 'qqqqqqqqqqqq'; `pytreefs help options` lists them" },
	{ "", "unknown option ''" },
	{ "rule=a/b", "option 'rule' does not accept 'a/b'; it takes GLOB:NAME=VALUE" },
	{ "rule=a:b", "option 'rule' does not accept 'a:b'" },
	{ "rule=a:cache=1M", "rule 'a:cache=1M': 'cache' is not an option of leaves and items" },
	{ "rule=a:dtype=x", "rule 'a:dtype=x': option 'dtype' does not accept 'x'" },
	{ "rule=a/b:zarr=3", "zarr applies to a whole item, and 'a/b' matches no item" },
	{ "rule=a:aggregate=b", "in a rule or an xattr it takes all or off" },
	{ "transforms=/does/not/exist.json", "option 'transforms'" },
	{ "plugin=/does/not/exist.so", "/does/not/exist.so" },
};

static void a_refusal_names_the_option_and_its_values(void **state)
{
	struct options *o = *state;

	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		int r = option_set(o, refused[i].text, false);

		assert_true(r < 0);
		if (!strstr(err_text(r), refused[i].says))
			fail_msg("'%s' says '%s'", refused[i].text, err_text(r));
		err_clear();
	}
	/* None of them has left a trace. */
	assert_int_equal(o->n_rules, 0);
	assert_shown(o, "mesh", "");
	assert_shown(o, "zarr", "2");
	assert_shown(o, "compression", "auto");
}

/* Other options from mount(8) are not an error, and leave no note. */
static void names_of_others_are_left_to_them(void **state)
{
	assert_int_equal(option_set(*state, "nodev", true), -ENOENT);
	assert_string_equal(err_where(-ENOENT), "");
	assert_int_equal(option_set(*state, "cache=x", true), -EINVAL);
}

static void an_automatic_size_follows_free_memory(void **state)
{
	struct options *o = *state;
	uint64_t size = 0;

	assert_false(options_auto_size(o, "cache", &size));
	assert_int_equal(option_set(o, "cache=auto", false), 0);
	assert_true(options_auto_size(o, "cache", &size));
	assert_true(size >= 64 * MiB && o->cache >= 64 * MiB);
	assert_int_equal(option_set(o, "cache=1M", false), 0);
	assert_false(options_auto_size(o, "cache", &size));
	assert_int_equal(o->cache, MiB);
}

static void the_mount_overrides_the_environment(void **state)
{
	struct options *o = *state;

	setenv("PYTREEFS_OPTIONS", ",cache=1M,,zarr=3,", 1);
	assert_int_equal(options_set_environment(o), 0);
	assert_string_equal(option_from_text(o, option("cache")), "environment");
	assert_int_equal(option_set(o, "cache=2M", false), 0);
	assert_string_equal(option_from_text(o, option("cache")), "mount");
	assert_shown(o, "cache", "2097152");
	assert_shown(o, "zarr", "3");
	setenv("PYTREEFS_OPTIONS", "zarr=5", 1);
	assert_int_equal(options_set_environment(o), -EINVAL);
	assert_non_null(strstr(err_text(-EINVAL), "PYTREEFS_OPTIONS: option 'zarr'"));
	unsetenv("PYTREEFS_OPTIONS");
	assert_int_equal(options_set_environment(o), 0);
	assert_shown(o, "zarr", "3");
}

static struct save_opts opts_for(const struct options *o, const char *path)
{
	struct save_opts s;

	save_opts_for(o, span_str(path), 0, &s);
	return s;
}

static void the_last_rule_that_matches_wins(void **state)
{
	static const char *const given[] = {
		"compression=none",
		"rule=**/w:compression=zstd:3",
		"rule=default/params/**:compression=zstd:9",
		"rule=default/params/w:dtype=float16",
		"aggregate=**/step",
	};
	struct options *o = *state;
	struct save_opts s;

	for (size_t i = 0; i < ARRAY_LEN(given); i++)
		assert_int_equal(option_set(o, given[i], false), 0);
	assert_shown(o, "aggregate", "off");
	assert_int_equal(o->n_rules, 4);
	s = opts_for(o, "default/params/w");
	assert_int_equal(s.compression.level, 9);
	assert_int_equal(s.dtype, DTYPE_FLOAT16);
	assert_true(save_opts_given(&s, "compression") && save_opts_given(&s, "dtype"));
	assert_false(save_opts_given(&s, "zarr") || save_opts_given(&s, "cache"));
	s = opts_for(o, "state/w");
	assert_int_equal(s.compression.level, 3);
	assert_int_equal(s.dtype, DTYPE_UNKNOWN);
	s = opts_for(o, "state/b");
	assert_int_equal(s.compression.kind, o->save.compression.kind);
	assert_false(s.aggregate);
	assert_true(opts_for(o, "default/step").aggregate);
}

/* dtype= of a mount is for weights; counters and masks beside them keep their numbers. */
static void only_a_rule_casts_integers(void **state)
{
	struct options *o = *state;
	struct save_opts s;

	assert_int_equal(save_opts_dtype(&o->save, DTYPE_INT32), DTYPE_INT32);
	assert_int_equal(option_set(o, "dtype=bfloat16", false), 0);
	assert_int_equal(save_opts_dtype(&o->save, DTYPE_FLOAT32), DTYPE_BFLOAT16);
	assert_int_equal(save_opts_dtype(&o->save, DTYPE_INT32), DTYPE_INT32);
	assert_int_equal(save_opts_dtype(&o->save, DTYPE_BOOL), DTYPE_BOOL);
	assert_int_equal(option_set(o, "rule=a/n:dtype=int8", false), 0);
	s = opts_for(o, "a/n");
	assert_int_equal(save_opts_dtype(&s, DTYPE_INT32), DTYPE_INT8);
	s = opts_for(o, "a/m");
	assert_int_equal(save_opts_dtype(&s, DTYPE_INT32), DTYPE_INT32);
}

static const struct {
	const char *set[3], *says;
} of_jobs[] = {
	{ { "mesh=2x4", "replica_axis_index=1", "primary_replica_id=3" }, NULL },
	{ { "active=2-3", "primary=2" }, NULL },
	{ { "active=2-3", "primary=0" }, NULL }, /* the default: the first that is active */
	{ { "mesh=2x4", "replica_axis_index=2" },
	  "replica_axis_index=2: mesh=2x4 has 2 axes, numbered from 0" },
	{ { "replica_axis_index=1" }, "has 1 axis, numbered from 0" },
	{ { "mesh=2x4", "primary_replica_id=2" },
	  "primary_replica_id=2: axis 0 of mesh=2x4 has 2 positions" },
	{ { "primary=4294967296" },
	  "primary=4294967296, primary_replica_id=0: no job can have that many ranks" },
	{ { "active=2-3", "primary=1" }, "primary=1 is not an active rank: active=2-3" },
};

static void options_of_a_job_fit_each_other(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(of_jobs); i++) {
		struct options o;

		assert_int_equal(options_init(&o), 0);
		for (size_t j = 0; j < 3 && of_jobs[i].set[j]; j++)
			assert_int_equal(option_set(&o, of_jobs[i].set[j], false), 0);
		assert_int_equal(job_options_check(&o), of_jobs[i].says ? -EINVAL : 0);
		if (of_jobs[i].says && !strstr(err_text(-EINVAL), of_jobs[i].says))
			fail_msg("case %zu says '%s'", i, err_text(-EINVAL));
		options_release(&o);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_printed_value_is_accepted_again),
		TEST(the_table_fits_its_users),
		TEST(every_word_of_a_choice_is_accepted),
		TEST(each_kind_has_its_values),
		TEST(a_refusal_names_the_option_and_its_values),
		TEST(names_of_others_are_left_to_them),
		TEST(an_automatic_size_follows_free_memory),
		TEST(the_mount_overrides_the_environment),
		TEST(the_last_rule_that_matches_wins),
		TEST(only_a_rule_casts_integers),
		cmocka_unit_test(options_of_a_job_fit_each_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
