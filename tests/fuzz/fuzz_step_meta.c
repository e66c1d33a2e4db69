/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_step_meta.c - `_CHECKPOINT_METADATA`, `_ROOT_METADATA` and `_CHECKPOINT_DELETION`: what
 * parses, prints and parses again to the same text.
 */
#include "core/base/log.h"
#include "core/step/step_deletion.h"
#include "core/step/step_meta.h"
#include "tests/fuzz/fuzz.h"

static void check_step(struct span in)
{
	auto_of(step_meta) struct step_meta *m = NULL;
	auto_of(step_meta) struct step_meta *again = NULL;
	auto_buf a = { 0 }, b = { 0 };

	if (step_meta_parse(in, "input", &m) < 0)
		return;
	must(step_meta_print(m, &a) == 0);
	must(step_meta_parse(buf_span(&a), "printed", &again) == 0);
	must(!again->absent && step_meta_print(again, &b) == 0);
	must(span_eq(buf_span(&a), buf_span(&b)));
}

static void check_root(struct span in)
{
	auto_of(root_meta) struct root_meta *m = NULL;
	auto_of(root_meta) struct root_meta *again = NULL;
	auto_buf a = { 0 }, b = { 0 };

	if (root_meta_parse(in, "input", &m) < 0)
		return;
	must(root_meta_print(m, &a) == 0);
	must(root_meta_parse(buf_span(&a), "printed", &again) == 0);
	must(root_meta_print(again, &b) == 0);
	must(span_eq(buf_span(&a), buf_span(&b)));
}

static void check_deletion(struct span in)
{
	auto_of(step_deletion) struct step_deletion *d = NULL;
	auto_of(step_deletion) struct step_deletion *again = NULL;
	auto_buf a = { 0 }, b = { 0 };

	if (step_deletion_parse(in, "input", &d) < 0)
		return;
	must(step_deletion_matches(d, d->original) == 1 &&
	     step_deletion_matches(d, d->updated) == 1);
	must(step_deletion_print(d, &a) == 0);
	must(step_deletion_parse(buf_span(&a), "printed", &again) == 0);
	must(step_deletion_print(again, &b) == 0);
	must(span_eq(buf_span(&a), buf_span(&b)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	log_open(false, false, NULL);
	check_step(span_of(data, size));
	check_root(span_of(data, size));
	check_deletion(span_of(data, size));
	return 0;
}
