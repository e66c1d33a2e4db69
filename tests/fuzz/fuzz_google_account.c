/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_google_account.c - files of Google's tools, which have all of their kind or are refused, and
 * answers with a token, which can be sent in a header.
 */
#include "core/remote/credentials/google_account.h"
#include "tests/fuzz/fuzz.h"

static void check_account(struct span text)
{
	struct google_account a = { 0 };

	if (google_account_parse(text, "input", &a) < 0) {
		must(!a.token_uri && !a.private_key && !a.refresh_token);
		return;
	}
	must(a.token_uri && *a.token_uri);
	if (a.kind == GOOGLE_SERVICE_ACCOUNT)
		must(a.email && a.private_key);
	else
		must(a.client_id && a.client_secret && a.refresh_token);
	google_account_release(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct credentials k = { 0 };

	check_account(span_of(data, size));
	if (google_token_parse(span_of(data, size), "input", 1000, &k) >= 0) {
		must(secret_is_valid(span_str(k.token)) && !k.id && !k.secret);
		must(k.expires == 0 || (k.expires > 1000 && k.expires <= 1000 + 86400));
	} else {
		must(!k.token);
	}
	credentials_release(&k);
	return 0;
}
