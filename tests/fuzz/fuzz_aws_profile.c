/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_aws_profile.c - the files of AWS's tools: what a profile has can be sent in a header, and is
 * the same when it was printed.
 */
#include "core/remote/credentials/aws_profile.h"
#include "core/remote/transport/secret.h"
#include "tests/fuzz/fuzz.h"

static void print(struct buf *out, const char *name, const char *value)
{
	must(!value || secret_is_valid(span_str(value)));
	must(!value || buf_addf(out, "%s = %s\n", name, value) >= 0);
}

static void check(struct span text, enum aws_file kind)
{
	struct aws_profile p = { 0 }, again = { 0 };
	auto_buf out = { 0 };

	if (aws_profile_parse(text, kind, "default", "input", &p) < 0) {
		must(!p.found && !p.key_id && !p.secret && !p.token);
		return;
	}
	must(p.found || (!p.key_id && !p.secret && !p.token));
	must(buf_add_str(&out, "[default]\n") >= 0);
	print(&out, "aws_access_key_id", p.key_id);
	print(&out, "aws_secret_access_key", p.secret);
	print(&out, "aws_session_token", p.token);
	print(&out, "region", p.region);
	print(&out, "endpoint_url", p.endpoint);
	print(&out, "role_arn", p.role);
	must(aws_profile_parse(buf_span(&out), kind, "default", "printed", &again) == 0);
	must(!p.secret == !again.secret && (!p.secret || !strcmp(p.secret, again.secret)));
	must(!p.token == !again.token && (!p.token || !strcmp(p.token, again.token)));
	must(!p.endpoint == !again.endpoint &&
	     (!p.endpoint || !strcmp(p.endpoint, again.endpoint)));
	aws_profile_release(&p);
	aws_profile_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check(span_of(data, size), AWS_CREDENTIALS_FILE);
	check(span_of(data, size), AWS_CONFIG_FILE);
	return 0;
}
