/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credentials.c - a cache of credentials.
 *
 * Of the two locks, `finding` is held while servers are asked, and `lock` only while credentials
 * are copied. So the client's thread, which signs requests, never waits for a server.
 */
#include "core/remote/credentials/credentials.h"

#include <time.h>

#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/base/log.h"

#define RENEW_BEFORE 300 /* seconds */
#define AGAIN_AFTER 10
#define REPLACED_FOR 60

void credentials_release(struct credentials *k)
{
	secret_free(k->id);
	secret_free(k->secret);
	secret_free(k->token);
	*k = (struct credentials){ 0 };
}

int credentials_of(const char *id, const char *secret, const char *token, struct credentials *ret)
{
	const char *const from[] = { id, secret, token };
	struct credentials k = { 0 };
	char **const to[] = { &k.id, &k.secret, &k.token };

	for (size_t i = 0; i < ARRAY_LEN(from); i++) {
		if (!from[i] || !*from[i])
			continue;
		*to[i] = strdup(from[i]);
		if (!*to[i]) {
			credentials_release(&k);
			return fail(-ENOMEM, "cannot hold credentials");
		}
	}
	*ret = k;
	return 0;
}

/* ---- the cache ---- */

void credentials_cache_init(struct credentials_cache *c, const struct credentials_source *source,
			    void *arg)
{
	*c = (struct credentials_cache){ .source = source, .arg = arg };
	pthread_mutex_init(&c->finding, NULL);
	pthread_mutex_init(&c->lock, NULL);
}

void credentials_cache_release(struct credentials_cache *c)
{
	credentials_release(&c->keys);
	pthread_mutex_destroy(&c->finding);
	pthread_mutex_destroy(&c->lock);
}

/* Whether nothing has to be renewed yet. Called with the lock held. */
static bool is_fresh(const struct credentials_cache *c, int64_t now)
{
	return c->is_found && !c->is_expired && (!c->renew_at || now < c->renew_at);
}

static bool is_usable(const struct credentials_cache *c, int64_t now)
{
	return c->is_found && !c->is_expired && (!c->keys.expires || now < c->keys.expires);
}

static bool credentials_is_same(const struct credentials *a, const struct credentials *b)
{
	const char *const x[] = { a->id, a->secret, a->token }, *const y[] = { b->id, b->secret,
									       b->token };

	for (size_t i = 0; i < ARRAY_LEN(x); i++)
		if (strcmp(x[i] ? x[i] : "", y[i] ? y[i] : "") != 0)
			return false;
	return true;
}

/* Called with the lock held. Takes ownership of the keys. */
static void credentials_replace(struct credentials_cache *c, struct credentials *keys, int64_t now)
{
	int64_t left = keys->expires - now;

	c->is_suspected &= credentials_is_same(keys, &c->keys);
	credentials_release(&c->keys);
	c->keys = *keys;
	c->is_found = true;
	c->is_expired = false;
	c->renew_at = keys->expires ? keys->expires - MIN(RENEW_BEFORE, MAX(left, 0) / 4) : 0;
}

static int credentials_renew(struct credentials_cache *c)
{
	struct credentials keys = { 0 };
	int64_t now = time(NULL);
	int r;

	/* Another thread may have renewed them meanwhile. */
	pthread_mutex_lock(&c->lock);
	r = is_fresh(c, now);
	pthread_mutex_unlock(&c->lock);
	if (r)
		return 0;
	r = c->source->find(c->arg, &keys);
	pthread_mutex_lock(&c->lock);
	if (r >= 0) {
		/* As in credentials_expired(): requests with the old keys may still be refused. */
		if (c->is_expired && !credentials_is_same(&keys, &c->keys))
			c->replaced_at = now;
		credentials_replace(c, &keys, now);
	} else if (is_usable(c, now) || (c->is_suspected && c->is_expired)) {
		log_warn("credentials could not be renewed: %s", err_text(r));
		c->is_expired = false;
		c->renew_at = now + AGAIN_AFTER;
		r = 0;
	}
	pthread_mutex_unlock(&c->lock);
	return r;
}

int credentials_ensure(struct credentials_cache *c)
{
	int64_t now = time(NULL);
	bool fresh, usable;
	int r;

	pthread_mutex_lock(&c->lock);
	fresh = is_fresh(c, now);
	usable = is_usable(c, now);
	pthread_mutex_unlock(&c->lock);
	if (fresh)
		return 0;
	/* One thread renews; the others continue with the old credentials. */
	if (usable && pthread_mutex_trylock(&c->finding) != 0)
		return 0;
	if (!usable)
		pthread_mutex_lock(&c->finding);
	r = credentials_renew(c);
	pthread_mutex_unlock(&c->finding);
	return r;
}

int credentials_get(struct credentials_cache *c, struct credentials *ret)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&c->lock);

	return c->is_found ? credentials_of(c->keys.id, c->keys.secret, c->keys.token, ret) :
			     fail(-EACCES, "there are no credentials yet");
}

static bool have_expired(struct credentials_cache *c, bool is_certain)
{
	struct credentials keys = { 0 };
	int64_t now = time(NULL);
	int r = c->source->find_at_hand ? c->source->find_at_hand(c->arg, &keys) : 0;
	bool others;

	pthread_mutex_lock(&c->lock);
	if (r > 0 && !credentials_is_same(&keys, &c->keys)) {
		credentials_replace(c, &keys, now);
		c->replaced_at = now;
	} else {
		credentials_release(&keys);
		err_clear();
	}
	/*
	 * Soon after a replacement the refused request may have been sent with the old keys, unless
	 * the new ones were so short-lived that they have expired as well.
	 */
	others = c->replaced_at && now - c->replaced_at < REPLACED_FOR && is_usable(c, now);
	if (!others) {
		c->is_expired = true;
		c->is_suspected = !is_certain;
	}
	pthread_mutex_unlock(&c->lock);
	return others;
}

bool credentials_expired(struct credentials_cache *c)
{
	return have_expired(c, true);
}

bool credentials_suspect(struct credentials_cache *c, bool *ret_others)
{
	bool may;

	pthread_mutex_lock(&c->lock);
	may = c->is_found && c->keys.token && (!c->is_suspected || c->is_expired);
	pthread_mutex_unlock(&c->lock);
	*ret_others = may && have_expired(c, false);
	return may;
}
