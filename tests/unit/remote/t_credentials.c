/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_credentials.c - when cached credentials are renewed.
 */
#include <time.h>

#include "core/remote/credentials/credentials.h"
#include "tests/unit/lib/unit.h"

/* A source whose keys are numbered and live for `seconds`. */
struct keys_source {
	int64_t seconds;
	unsigned n_found;
	bool is_down;
};

static int find(void *arg, struct credentials *ret)
{
	struct keys_source *s = arg;
	auto_free char *id = str_fmt("key%u", s->n_found + 1);
	int r;

	if (s->is_down)
		return fail(-EACCES, "the server of credentials does not answer");
	r = credentials_of(id, "secret", "token", ret);
	if (r >= 0)
		s->n_found++;
	ret->expires = s->seconds ? time(NULL) + s->seconds : 0;
	return r;
}

static const struct credentials_source source = { .find = find };

static void check_id(struct credentials_cache *c, const char *want)
{
	struct credentials k;

	assert_int_equal(credentials_ensure(c), 0);
	assert_int_equal(credentials_get(c, &k), 0);
	assert_string_equal(k.id, want);
	credentials_release(&k);
}

/* Let the time of all that the cache has noted pass. */
static void pass(struct credentials_cache *c, int64_t seconds)
{
	c->keys.expires -= c->keys.expires ? seconds : 0;
	c->renew_at -= c->renew_at ? seconds : 0;
	c->replaced_at -= c->replaced_at ? seconds : 0;
}

/* Keys are renewed in the last quarter of their time; the old ones serve until they expire. */
static void test_renewed_before_they_expire(void **state)
{
	struct keys_source s = { .seconds = 400 };
	struct credentials_cache c;

	credentials_cache_init(&c, &source, &s);
	check_id(&c, "key1");
	pass(&c, 290);
	check_id(&c, "key1");
	pass(&c, 20);
	s.is_down = true;
	check_id(&c, "key1");
	s.is_down = false;
	/* Not before a pause: a server that does not answer is not asked for each request. */
	check_id(&c, "key1");
	pass(&c, 20);
	check_id(&c, "key2");
	s.is_down = true;
	pass(&c, 401);
	assert_int_equal(credentials_ensure(&c), -EACCES);
	err_clear();
	credentials_cache_release(&c);
}

/* A refusal soon after a replacement is of the old keys, if the new ones have not expired, too. */
static void test_refused_after_a_replacement(void **state)
{
	struct keys_source s = { .seconds = 30 };
	struct credentials_cache c;

	credentials_cache_init(&c, &source, &s);
	check_id(&c, "key1");
	assert_false(credentials_expired(&c));
	check_id(&c, "key2");
	pass(&c, 20);
	assert_true(credentials_expired(&c));
	check_id(&c, "key2");
	pass(&c, 20);
	assert_false(credentials_expired(&c));
	check_id(&c, "key3");
	credentials_cache_release(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_renewed_before_they_expire),
		cmocka_unit_test(test_refused_after_a_replacement),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
