/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3_xml.c - the documents of S3 and STS, by expat.
 *
 * Elements are recognized by their path from the root. Each one's text is collected up to a limit;
 * elements with other paths are ignored.
 */
#include "core/remote/documents/s3_xml.h"

#include <expat.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/remote/transport/secret.h"

#define DEPTH_MAX 16
#define PATH_MAX_BYTES 256
#define TEXT_MAX 8192 /* a key of 1,024 bytes, each escaped; a token */
#define BAD_DEPTH "its elements are nested too deeply"

struct s3_parser {
	XML_Parser xml;
	char path[PATH_MAX_BYTES]; /* "/Error/Code" */
	unsigned depth;
	struct buf text; /* of the element that began last */
	/* Called at the end of each element. */
	void (*end)(struct s3_parser *p, struct span text);
	int result;
	/* For a page. */
	bucket_entry_fn *each;
	void *arg;
	struct bucket_page *page;
	bool is_escaped, has_key, has_size;
	struct buf key;
	struct io_object object;
	/* For an error. */
	struct s3_error *error;
	/* For uploads. */
	struct buf *id;
	s3_upload_fn *each_upload;
	bool is_truncated;
	/* For keys. */
	struct sts_keys *keys;
};

static void s3_xml_stop(struct s3_parser *p, int code)
{
	p->result = code;
	XML_StopParser(p->xml, XML_FALSE);
}

static void refuse_page(struct s3_parser *p, const char *why, struct span value)
{
	auto_buf shown = { 0 };

	buf_add_shown(&shown, span_of(value.p, MIN(value.n, (size_t)100)));
	s3_xml_stop(p, fail(-EUCLEAN, "%s: '%s'", why, buf_str(&shown) ? buf_str(&shown) : ""));
}

static void XMLCALL on_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
	struct s3_parser *p = arg;
	size_t n = strlen(p->path);

	buf_clear(&p->text);
	if (++p->depth > DEPTH_MAX || n + strlen(name) + 2 > sizeof(p->path)) {
		refuse_page(p, BAD_DEPTH, span_str(p->path));
		return;
	}
	snprintf(p->path + n, sizeof(p->path) - n, "/%s", name);
}

static void XMLCALL on_text(void *arg, const XML_Char *text, int n)
{
	struct s3_parser *p = arg;

	if (p->text.n + (size_t)n > TEXT_MAX)
		refuse_page(p, "a value is too long", span_str(p->path));
	else if (buf_add(&p->text, text, (size_t)n) < 0)
		s3_xml_stop(p, -ENOMEM);
}

static void XMLCALL on_end(void *arg, const XML_Char *name)
{
	struct s3_parser *p = arg;

	p->end(p, buf_span(&p->text));
	buf_clear(&p->text);
	p->path[strlen(p->path) - strlen(name) - 1] = '\0';
	p->depth--;
}

/* Entities that a document type defines could make a short document expand to a huge one. */
static void XMLCALL on_doctype(void *arg, const XML_Char *name, const XML_Char *system,
			       const XML_Char *public, int has_subset)
{
	refuse_page(arg, "it has a document type", span_str(name));
}

static int s3_xml_parse(struct s3_parser *p, struct span text)
{
	int r = -EUCLEAN;

	p->xml = XML_ParserCreate(NULL);
	if (!p->xml)
		return fail(-ENOMEM, "cannot parse a document");
	XML_SetUserData(p->xml, p);
	XML_SetElementHandler(p->xml, on_start, on_end);
	XML_SetCharacterDataHandler(p->xml, on_text);
	XML_SetStartDoctypeDeclHandler(p->xml, on_doctype);
	if (text.n > BUCKET_PAGE_BYTES)
		fail(r, "it has more than %d bytes", BUCKET_PAGE_BYTES);
	else if (XML_Parse(p->xml, (const char *)text.p, (int)text.n, 1) == XML_STATUS_OK)
		r = 0;
	else if (p->result < 0)
		r = p->result;
	else
		fail(r, "line %lu: %s", XML_GetCurrentLineNumber(p->xml),
		     XML_ErrorString(XML_GetErrorCode(p->xml)));
	XML_ParserFree(p->xml);
	return r < 0 ? r : p->result;
}

/* ---- a page ---- */

static int hex_of(int c)
{
	return c >= '0' && c <= '9'                   ? c - '0' :
	       (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 :
							-1;
}

/* Decode a key with encoding-type=url: %XX, and '+' for a space, as in a form. */
static int unescape(struct span s, struct buf *ret)
{
	int r = 0;

	for (size_t i = 0; i < s.n && r >= 0; i++) {
		int high = i + 2 < s.n ? hex_of(s.p[i + 1]) : -1;
		int low = i + 2 < s.n ? hex_of(s.p[i + 2]) : -1;

		if (s.p[i] == '%' && (high < 0 || low < 0))
			return -EUCLEAN;
		if (s.p[i] == '%') {
			r = buf_add_byte(ret, (uint8_t)(high << 4 | low));
			i += 2;
		} else {
			r = buf_add_byte(ret, s.p[i] == '+' ? ' ' : s.p[i]);
		}
	}
	return r;
}

static void s3_xml_add_entry(struct s3_parser *p)
{
	auto_buf key = { 0 };
	int r = -EUCLEAN;

	if (p->has_key && (p->has_size || p->object.is_dir))
		r = p->is_escaped ? unescape(buf_span(&p->key), &key) :
				    buf_add_span(&key, buf_span(&p->key));
	if (r == -EUCLEAN) {
		refuse_page(p, "an entry without a key and a size", buf_span(&p->key));
		return;
	}
	if (r >= 0)
		r = p->each(p->arg, buf_span(&key), &p->object);
	p->page->n++;
	if (r < 0)
		s3_xml_stop(p, r);
}

static void s3_xml_take_key(struct s3_parser *p, struct span text)
{
	buf_clear(&p->key);
	p->has_key = true;
	if (buf_add_span(&p->key, text) < 0)
		s3_xml_stop(p, -ENOMEM);
}

static void end_in_contents(struct s3_parser *p, const char *name, struct span text)
{
	char *tag = p->object.tag;
	int n;

	if (!strcmp(name, "Key")) {
		s3_xml_take_key(p, text);
	} else if (!strcmp(name, "Size")) {
		p->has_size = parse_size(text, &p->object.size);
		if (!p->has_size)
			refuse_page(p, "a size that is not a number", text);
	} else if (!strcmp(name, "ETag") && text.n) {
		/* As the header ETag has it; some servers leave out the quotes in listings. */
		n = snprintf(tag, sizeof(p->object.tag),
			     text.p[0] == '"' || span_starts(text, span_str("W/")) ? "%.*s" :
										     "\"%.*s\"",
			     SPAN_ARG(text));
		if (n >= (int)sizeof(p->object.tag) || memchr(text.p, '\n', text.n))
			refuse_page(p, "a tag that is too long", text);
	} else if (!strcmp(name, "LastModified") && !parse_time(text, &p->object.mtime.tv_sec)) {
		refuse_page(p, "a time that is not one", text);
	}
}

#define PAGE "/ListBucketResult"
#define CONTENTS PAGE "/Contents"
#define COMMON PAGE "/CommonPrefixes"

static void end_in_page(struct s3_parser *p, struct span text)
{
	const char *path = p->path;

	if (p->result < 0)
		return;
	if (p->depth == 1 && strcmp(path, PAGE) != 0) {
		refuse_page(p, "it is not a listing", span_str(path));
	} else if (!strncmp(path, CONTENTS "/", strlen(CONTENTS "/"))) {
		end_in_contents(p, path + strlen(CONTENTS "/"), text);
	} else if (!strcmp(path, COMMON "/Prefix")) {
		p->object.is_dir = true;
		s3_xml_take_key(p, text);
	} else if (!strcmp(path, CONTENTS) || !strcmp(path, COMMON)) {
		s3_xml_add_entry(p);
		buf_clear(&p->key);
		p->has_key = p->has_size = false;
		p->object = (struct io_object){ .is_dir = false };
	} else if (!strcmp(path, PAGE "/IsTruncated")) {
		p->page->is_truncated = span_eq(text, span_str("true"));
	} else if (!strcmp(path, PAGE "/NextContinuationToken")) {
		buf_clear(&p->page->next);
		if (buf_add_span(&p->page->next, text) < 0)
			s3_xml_stop(p, -ENOMEM);
	}
}

/* A pass of its own, since the element follows the entries in some servers' answers. */
static void find_encoding(struct s3_parser *p, struct span text)
{
	if (!strcmp(p->path, PAGE "/EncodingType"))
		p->is_escaped = span_eq(text, span_str("url"));
}

int s3_parse_page(struct span text, bucket_entry_fn *each, void *arg, struct bucket_page *ret)
{
	struct s3_parser first = { .end = find_encoding };
	struct s3_parser p = { .end = end_in_page, .each = each, .arg = arg, .page = ret };
	int r = s3_xml_parse(&first, text);

	buf_release(&first.text);
	if (r < 0)
		return r;
	p.is_escaped = first.is_escaped;
	ret->is_truncated = false;
	ret->n = 0;
	buf_clear(&ret->next);
	r = s3_xml_parse(&p, text);
	buf_release(&p.text);
	buf_release(&p.key);
	if (r < 0)
		return r;
	if (ret->is_truncated && !ret->next.n)
		return fail(-EUCLEAN, "it is truncated, and has no token for what follows");
	return r;
}

/* ---- an error ---- */

static void end_in_error(struct s3_parser *p, struct span text)
{
	struct s3_error *e = p->error;

	if (!strcmp(p->path, "/Error/Code"))
		parse_word(text, e->code, sizeof(e->code));
	else if (!strcmp(p->path, "/Error/Region"))
		parse_word(text, e->region, sizeof(e->region));
	else if (!strcmp(p->path, "/Error/ServerTime"))
		parse_word(text, e->time, sizeof(e->time));
}

void s3_parse_error(struct span text, struct s3_error *ret)
{
	struct s3_parser p = { .end = end_in_error, .error = ret };

	*ret = (struct s3_error){ 0 };
	s3_xml_parse(&p, text);
	err_clear();
	buf_release(&p.text);
}

/* ---- uploads ---- */

#define UPLOADS "/ListMultipartUploadsResult"

static void take_id(struct s3_parser *p, struct span text)
{
	buf_clear(p->id);
	if (!text.n || memchr(text.p, 0, text.n))
		refuse_page(p, "an upload without an id", text);
	else if (buf_add_span(p->id, text) < 0)
		s3_xml_stop(p, -ENOMEM);
}

static void end_in_upload(struct s3_parser *p, struct span text)
{
	if (p->result >= 0 && !strcmp(p->path, "/InitiateMultipartUploadResult/UploadId"))
		take_id(p, text);
}

int s3_parse_upload(struct span text, struct buf *ret_id)
{
	struct s3_parser p = { .end = end_in_upload, .id = ret_id };
	int r = s3_xml_parse(&p, text);

	buf_release(&p.text);
	return r >= 0 && !ret_id->n ? fail(-EUCLEAN, "it has no id of an upload") : r;
}

static void end_in_uploads(struct s3_parser *p, struct span text)
{
	int r = 0;

	if (p->result < 0)
		return;
	if (p->depth == 1 && strcmp(p->path, UPLOADS) != 0) {
		refuse_page(p, "it is not a list of uploads", span_str(p->path));
	} else if (!strcmp(p->path, UPLOADS "/IsTruncated")) {
		p->is_truncated = span_eq(text, span_str("true"));
	} else if (!strcmp(p->path, UPLOADS "/Upload/Key")) {
		s3_xml_take_key(p, text);
	} else if (!strcmp(p->path, UPLOADS "/Upload/UploadId")) {
		take_id(p, text);
	} else if (!strcmp(p->path, UPLOADS "/Upload")) {
		if (p->has_key && p->id->n)
			r = p->each_upload(p->arg, buf_span(&p->key), buf_span(p->id));
		p->has_key = false;
		buf_clear(p->id);
	}
	if (r < 0)
		s3_xml_stop(p, r);
}

int s3_parse_uploads(struct span text, s3_upload_fn *each, void *arg, bool *ret_is_truncated)
{
	auto_buf id = { 0 };
	struct s3_parser p = { .end = end_in_uploads, .each_upload = each, .arg = arg, .id = &id };
	int r = s3_xml_parse(&p, text);

	*ret_is_truncated = p.is_truncated;
	buf_release(&p.text);
	buf_release(&p.key);
	return r;
}

/* ---- keys ---- */

static void end_in_keys(struct s3_parser *p, struct span text)
{
	static const char within[] =
		"/AssumeRoleWithWebIdentityResponse/AssumeRoleWithWebIdentityResult/Credentials/";
	struct sts_keys *k = p->keys;
	const char *name = p->path + strlen(within);
	struct buf *to;
	time_t t;

	if (p->result < 0 || strncmp(p->path, within, strlen(within)) != 0)
		return;
	to = !strcmp(name, "AccessKeyId")     ? &k->id :
	     !strcmp(name, "SecretAccessKey") ? &k->secret :
	     !strcmp(name, "SessionToken")    ? &k->token :
						NULL;
	if (!strcmp(name, "Expiration") && parse_time(text, &t))
		k->expires = t;
	if (!to)
		return;
	buf_clear(to);
	if (!secret_is_valid(text))
		s3_xml_stop(p, fail(-EUCLEAN, "a key in the answer is not one"));
	else if (buf_add_span(to, text) < 0)
		s3_xml_stop(p, -ENOMEM);
}

int sts_parse_keys(struct span text, struct sts_keys *ret)
{
	auto_sts_keys k = { 0 };
	struct s3_parser p = { .end = end_in_keys, .keys = &k };
	int r = s3_xml_parse(&p, text);

	secret_release(&p.text);
	if (r < 0)
		return r == -ENOMEM ? r : fail(-EUCLEAN, "the answer is malformed");
	if (!k.id.n || !k.secret.n || !k.token.n || !k.expires)
		return fail(-EUCLEAN, "the answer has no keys");
	*ret = k;
	k = (struct sts_keys){ 0 };
	return 0;
}

void sts_keys_release(struct sts_keys *k)
{
	secret_release(&k->id);
	secret_release(&k->secret);
	secret_release(&k->token);
}
