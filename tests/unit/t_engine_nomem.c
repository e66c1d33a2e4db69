/*
 * t_engine_nomem.c - every allocation fails once while a checkpoint of each kind is opened, listed and
 * read: -ENOMEM, nothing leaked, and the next look finds everything as it is.
 *
 * The linker leads our calls of malloc and its kin here; those inside libraries are not ours.
 */
#include "tests/unit/mount_walk.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_reallocarray(void *p, size_t n, size_t size);
char *__real_strdup(const char *s);
void *__real_block_alloc(size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
char *__wrap_strdup(const char *s);
int __wrap_asprintf(char **ret, const char *fmt, ...);
void *__wrap_block_alloc(size_t n);

static unsigned count, fail_at;		/* fail_at 0: never */

static bool fails(void)
{
	return fail_at && ++count == fail_at;
}

void *__wrap_malloc(size_t n)
{
	return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	return fails() ? NULL : __real_realloc(p, n);
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
	return fails() ? NULL : __real_reallocarray(p, n, size);
}

char *__wrap_strdup(const char *s)
{
	return fails() ? NULL : __real_strdup(s);
}

int __wrap_asprintf(char **ret, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (fails()) {
		*ret = (char *)(uintptr_t)0xdead;	/* undefined, says the manual */
		return -1;
	}
	va_start(ap, fmt);
	n = vasprintf(ret, fmt, ap);
	va_end(ap);
	return n;
}

void *__wrap_block_alloc(size_t n)
{
	return fails() ? NULL : __real_block_alloc(n);
}

/* The next allocation to fail: each of the first ones, then ever fewer; every one when asked for. */
static unsigned after(unsigned n)
{
	return getenv("TEST_EVERY_ALLOCATION") ? n + 1 : n + 1 + n / 64;
}

/* One kind of checkpoint: the nth allocation fails, for n until none is left to fail. */
static void fail_each(const char *source)
{
	static struct walk good, w;
	struct options o;
	struct ns *ns;
	unsigned n;
	bool over = false;

	walk_options(&o, "sync");
	assert_int_equal(ns_open(source, &o, &ns), 0);
	walk_all(&good, ns, NULL, 0);
	ns_close(ns);
	assert_true(good.n > 10);
	for (n = 1; !over; n = after(n)) {
		int r;

		count = 0;
		fail_at = n;
		r = ns_open(source, &o, &ns);
		if (r < 0) {
			fail_at = 0;
			if (r != -ENOMEM)
				fail_msg("%s: allocation %u: opening gave %d: %s", source, n, r, err_text(r));
			continue;
		}
		walk_all(&w, ns, &good, -ENOMEM);
		over = count < fail_at;
		fail_at = 0;
		if (w.wrong)
			fail_msg("%s: allocation %u: %s: %s", source, n, w.wrong, w.wrong_line);
		/* Nothing of it is remembered. */
		walk_all(&w, ns, &good, 0);
		if (w.wrong)
			fail_msg("%s: after allocation %u: %s: %s", source, n, w.wrong, w.wrong_line);
		ns_close(ns);
	}
	print_message("%s: up to allocation %u\n", strstr(source, "data/"), n);
	assert_true(n > 100);
	options_release(&o);
}

static void flax_file(void **state)
{
	fail_each(DATA "/old/0.5.20/flax");
}

static void aggregate(void **state)
{
	fail_each(DATA "/old/0.4.8/aggregate");
}

static void parts_never_merged(void **state)
{
	fail_each(DATA "/old/0.3.5/ocdbt");
}

static void arrays_as_directories(void **state)
{
	fail_each(DATA "/old/0.4.3/perleaf");
}

static void shards_in_a_database(void **state)
{
	fail_each(DATA "/old/0.9.1/zarr3");
}

static void database(void **state)
{
	fail_each(DATA "/old/0.12.4/pytree");
}

static void root_of_steps(void **state)
{
	fail_each(DATA "/old/0.4.3/manager");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flax_file),	      cmocka_unit_test(aggregate),
		cmocka_unit_test(parts_never_merged), cmocka_unit_test(arrays_as_directories),
		cmocka_unit_test(shards_in_a_database), cmocka_unit_test(database),
		cmocka_unit_test(root_of_steps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
