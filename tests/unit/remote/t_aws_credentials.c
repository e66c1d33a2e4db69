/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_aws_credentials.c - the files of AWS's tools, and the order of the places that may have
 * credentials.
 */
#include <pwd.h>
#include <sys/stat.h>

#include "core/remote/credentials/aws_metadata.h"
#include "tests/unit/lib/tmp_dir.h"
#include "tests/unit/lib/unit.h"

static void check(const char *text, enum aws_file kind, const char *profile, const char *want)
{
	struct aws_profile p = { 0 };
	auto_free char *got = NULL;

	assert_int_equal(aws_profile_parse(span_str(text), kind, profile, "file", &p), 0);
	got = str_fmt("%d %s %s %s %s %s %s", p.found, p.key_id ? p.key_id : "-",
		      p.secret ? p.secret : "-", p.token ? p.token : "-", p.region ? p.region : "-",
		      p.endpoint ? p.endpoint : "-", p.other ? p.other : "-");
	assert_string_equal(got, want);
	aws_profile_release(&p);
}

static void test_profiles(void **state)
{
	static const char credentials[] =
		"; of a tool\r\n[default]\r\naws_access_key_id = A\r\n"
		"aws_secret_access_key=b/+=\r\n\r\n[ train ]\n# not this\n"
		"AWS_Access_Key_Id= C\naws_secret_access_key =d\n"
		"aws_session_token=e\naws_session_token=\nunknown = 1\n"
		"[profile x]\naws_access_key_id=F";
	static const char config[] = "[default]\nregion = eu-west-1\ns3 =\n  region = no\n"
				     "[profile train]\nendpoint_url = http://h:1\nsso_session = s\n"
				     "[train]\nregion = no\n[profile \"a b\"]\nregion=q";

	check(credentials, AWS_CREDENTIALS_FILE, "default", "1 A b/+= - - - -");
	check(credentials, AWS_CREDENTIALS_FILE, "train", "1 C d e - - -");
	check(credentials, AWS_CREDENTIALS_FILE, "x", "0 - - - - - -");
	check(config, AWS_CONFIG_FILE, "default", "1 - - - eu-west-1 - -");
	check(config, AWS_CONFIG_FILE, "train", "1 - - - - http://h:1 sso_session");
	check(config, AWS_CONFIG_FILE, "a b", "1 - - - q - -");
	check("", AWS_CONFIG_FILE, "default", "0 - - - - - -");
	check("[default\nregion=x\n]\n=\n[]", AWS_CONFIG_FILE, "default", "0 - - - - - -");
}

static void test_values_that_no_header_can_have(void **state)
{
	struct aws_profile p = { 0 };
	int r = aws_profile_parse(span_str("[a]\n\naws_session_token = sec\001ret\n"),
				  AWS_CREDENTIALS_FILE, "a", "file", &p);

	assert_int_equal(r, -EINVAL);
	assert_string_equal(err_text(r),
			    "'file', line 3: the value of 'aws_session_token' is not one");
	assert_null(p.token);
	assert_false(secret_is_valid(span_str("a\r\nX: y")));
	assert_false(secret_is_valid(span_str("")));
}

/* ---- the chain ---- */

static char dir[TMP_DIR_MAX];

static void set_file(const char *variable, const char *name, const char *text)
{
	auto_free char *path = str_fmt("%s/%s", dir, name);
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	setenv(variable, path, 1);
}

/* The machine that runs this may have some, such as a container of a cloud. */
static void forget_environment(void)
{
	static const char *const names[] = { "ACCESS_KEY_ID",
					     "SECRET_ACCESS_KEY",
					     "SESSION_TOKEN",
					     "PROFILE",
					     "REGION",
					     "DEFAULT_REGION",
					     "ENDPOINT_URL",
					     "ENDPOINT_URL_S3",
					     "WEB_IDENTITY_TOKEN_FILE",
					     "ROLE_ARN",
					     "ROLE_SESSION_NAME",
					     "CONTAINER_CREDENTIALS_RELATIVE_URI",
					     "CONTAINER_CREDENTIALS_FULL_URI",
					     "CONTAINER_AUTHORIZATION_TOKEN",
					     "CONTAINER_AUTHORIZATION_TOKEN_FILE" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		auto_free char *name = str_fmt("AWS_%s", names[i]);

		unsetenv(name);
	}
}

static int setup(void **state)
{
	forget_environment();
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	if (tmp_dir_make(dir, "t_aws_credentials") < 0)
		return -1;
	set_file("AWS_CONFIG_FILE", "config",
		 "[default]\nregion=r\nendpoint_url=https://e\n"
		 "aws_access_key_id=G\naws_secret_access_key=h\n");
	set_file("AWS_SHARED_CREDENTIALS_FILE", "credentials",
		 "[default]\naws_access_key_id=A\naws_secret_access_key=b\n"
		 "[other]\naws_access_key_id=C\naws_secret_access_key=d\naws_session_token=e\n");
	return 0;
}

static int teardown(void **state)
{
	return tmp_dir_remove(dir);
}

static void check_keys(struct aws_credentials *c, const char *want)
{
	struct credentials k = { 0 };
	auto_free char *got = NULL;

	assert_int_equal(credentials_ensure(aws_credentials_cache(c)), 0);
	assert_int_equal(credentials_get(aws_credentials_cache(c), &k), 0);
	got = str_fmt("%s %s %s", k.id, k.secret, k.token ? k.token : "-");
	assert_string_equal(got, want);
	credentials_release(&k);
}

static void finds(const char *want)
{
	struct aws_credentials *c;

	assert_int_equal(aws_credentials_new(&c), 0);
	check_keys(c, want);
	aws_credentials_free(c);
}

static void test_order(void **state)
{
	struct aws_credentials *c;

	finds("A b -");
	assert_int_equal(aws_credentials_new(&c), 0);
	assert_string_equal(aws_region(c), "r");
	assert_string_equal(aws_endpoint(c), "https://e");
	assert_non_null(strstr(aws_credentials_file(c, 0), "/config"));
	assert_non_null(strstr(aws_credentials_file(c, 1), "/credentials"));
	assert_null(aws_credentials_file(c, 2));
	aws_credentials_free(c);
	setenv("AWS_PROFILE", "other", 1);
	finds("C d e");
	setenv("AWS_ACCESS_KEY_ID", "I", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "j", 1);
	setenv("AWS_REGION", "s", 1);
	setenv("AWS_ENDPOINT_URL", "https://f", 1);
	setenv("AWS_ENDPOINT_URL_S3", "https://g", 1);
	finds("I j -");
	assert_int_equal(aws_credentials_new(&c), 0);
	assert_string_equal(aws_region(c), "s");
	assert_string_equal(aws_endpoint(c), "https://g");
	aws_credentials_free(c);
	set_file("AWS_SHARED_CREDENTIALS_FILE", "empty", "");
	unsetenv("AWS_PROFILE");
	unsetenv("AWS_ACCESS_KEY_ID");
	unsetenv("AWS_SECRET_ACCESS_KEY");
	finds("G h -");
}

static void refused(int code, const char *why)
{
	struct aws_credentials *c = NULL;
	int r = aws_credentials_new(&c);

	if (r >= 0)
		r = credentials_ensure(aws_credentials_cache(c));
	assert_int_equal(r, code);
	if (!strstr(err_text(r), why))
		fail_msg("'%s' is not in '%s'", why, err_text(r));
	aws_credentials_free(c);
}

/* In place of the C library's: the home directory of every user is the directory of this test. */
int getpwuid_r(uid_t uid, struct passwd *entry, char *text, size_t n, struct passwd **ret)
{
	*entry = (struct passwd){ .pw_uid = uid, .pw_dir = dir };
	*ret = entry;
	return 0;
}

/* A service has no HOME. */
static void test_home(void **state)
{
	static const char *const names[] = { "HOME", "AWS_CONFIG_FILE",
					     "AWS_SHARED_CREDENTIALS_FILE" };
	auto_free char *aws = str_fmt("%s/.aws", dir);

	assert_int_equal(mkdir(aws, 0700), 0);
	set_file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials",
		 "[default]\naws_access_key_id=K\naws_secret_access_key=l\n");
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		unsetenv(names[i]);
	finds("K l -");
	setenv("HOME", "", 1);
	finds("K l -");
	setenv("HOME", "/nonexistent", 1);
	refused(-EACCES, "'/nonexistent/.aws/credentials'");
	unsetenv("HOME");
}

static void test_refused(void **state)
{
	struct aws_credentials *c;
	struct credentials k;

	setenv("AWS_PROFILE", "none", 1);
	refused(-EINVAL, "the profile 'none' (AWS_PROFILE) is neither in '");
	unsetenv("AWS_PROFILE");
	setenv("AWS_ACCESS_KEY_ID", "I", 1);
	refused(-EINVAL, "AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not");
	setenv("AWS_SECRET_ACCESS_KEY", "a b", 1);
	refused(-EINVAL, "the value of AWS_SECRET_ACCESS_KEY is not one");
	unsetenv("AWS_ACCESS_KEY_ID");
	unsetenv("AWS_SECRET_ACCESS_KEY");
	set_file("AWS_SHARED_CREDENTIALS_FILE", "credentials", "[default]\naws_access_key_id=A\n");
	refused(-EINVAL, "the profile 'default' has only one of");
	set_file("AWS_SHARED_CREDENTIALS_FILE", "credentials", "");
	set_file("AWS_CONFIG_FILE", "config", "[default]\ncredential_process = x\n");
	refused(-EINVAL, "has 'credential_process', which is not followed here");
	set_file("AWS_CONFIG_FILE", "config", "");
	refused(-EACCES, "neither AWS_ACCESS_KEY_ID nor the profile 'default' of '");
	assert_int_equal(aws_credentials_new(&c), 0);
	assert_int_equal(credentials_get(aws_credentials_cache(c), &k), -EACCES);
	aws_credentials_free(c);
}

/* Credentials that a server calls expired are read again, at once or before the next request. */
static void test_expired(void **state)
{
	struct aws_credentials *c;

	assert_int_equal(aws_credentials_new(&c), 0);
	check_keys(c, "A b -");
	assert_false(credentials_expired(aws_credentials_cache(c)));
	set_file("AWS_SHARED_CREDENTIALS_FILE", "credentials",
		 "[default]\naws_access_key_id=A\naws_secret_access_key=b\naws_session_token=t\n");
	check_keys(c, "A b t");
	set_file("AWS_SHARED_CREDENTIALS_FILE", "credentials",
		 "[default]\naws_access_key_id=A\naws_secret_access_key=b\naws_session_token=u\n");
	check_keys(c, "A b t");
	assert_true(credentials_expired(aws_credentials_cache(c)));
	check_keys(c, "A b u");
	/* Another request may have been sent with the old keys. */
	assert_true(credentials_expired(aws_credentials_cache(c)));
	aws_credentials_free(c);
}

static void set_token(const char *token)
{
	auto_free char *text = str_fmt(
		"[default]\naws_access_key_id=A\naws_secret_access_key=b\naws_session_token=%s\n",
		token);

	set_file("AWS_SHARED_CREDENTIALS_FILE", "credentials", text);
}

static void suspect(struct aws_credentials *c, bool may, bool others)
{
	bool got = !others;

	assert_int_equal(credentials_suspect(aws_credentials_cache(c), &got), may);
	assert_int_equal(got, others);
}

/* A refusal without a reason: temporary credentials are read again, once, and stay in use. */
static void test_suspected(void **state)
{
	struct aws_credentials *c;

	assert_int_equal(aws_credentials_new(&c), 0);
	check_keys(c, "A b -");
	suspect(c, false, false);
	aws_credentials_free(c);

	set_token("t");
	assert_int_equal(aws_credentials_new(&c), 0);
	check_keys(c, "A b t");
	suspect(c, true, false);
	/* Before they are read again, other requests wait for it, too. */
	suspect(c, true, false);
	check_keys(c, "A b t");
	suspect(c, false, false);
	set_token("u");
	assert_true(credentials_expired(aws_credentials_cache(c)));
	check_keys(c, "A b u");
	/* Sent with the old keys, perhaps. */
	suspect(c, true, true);
	aws_credentials_free(c);

	assert_int_equal(aws_credentials_new(&c), 0);
	check_keys(c, "A b u");
	suspect(c, true, false);
	set_file("AWS_SHARED_CREDENTIALS_FILE", "credentials", "");
	set_file("AWS_CONFIG_FILE", "config", "");
	check_keys(c, "A b u");
	aws_credentials_free(c);
}

/* ---- answers of servers ---- */

static void test_answers(void **state)
{
	static const char *const bad[] = {
		"",
		"[]",
		"{}",
		"{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"secret\\n\"}",
		"{\"AccessKeyId\":\"A\",\"SecretAccessKey\":7}",
		"{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"secret\"",
		"{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"secret\",\"Token\":null,\"Token\":[]}",
		"{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"secret\",\"Expiration\":\"soon\"}",
		"{\"Code\":\"Failed\",\"Message\":\"secret\"}",
	};
	struct credentials k = { 0 };

	assert_int_equal(aws_keys_parse(span_str("{\"Code\":\"Success\",\"AccessKeyId\":\"A\","
						 "\"SecretAccessKey\":\"b\",\"Token\":\"c\","
						 "\"Expiration\":\"1970-01-01T00:01:00Z\"}"),
					"it", &k),
			 0);
	assert_string_equal(k.secret, "b");
	assert_string_equal(k.token, "c");
	assert_int_equal(k.expires, 60);
	credentials_release(&k);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(aws_keys_parse(span_str(bad[i]), "it", &k), -EUCLEAN);
		assert_null(strstr(err_text(-EUCLEAN), "secret"));
		assert_null(k.id);
	}
}

static void asks_no_container(const char *url)
{
	struct credentials k = { 0 };

	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
	assert_true(aws_has_container());
	assert_int_equal(aws_ask_container(NULL, &k), -EINVAL);
	assert_non_null(
		strstr(err_text(-EINVAL), "is neither a URL of https nor one of this machine"));
}

/* A token is sent without TLS to this machine only. */
static void test_where_tokens_go(void **state)
{
	forget_environment();
	asks_no_container("http://127.0.0.1.example.org/");
	asks_no_container("http://example.org/");
	asks_no_container("http://localhost@example.org/");
	asks_no_container("ftp://localhost/");
	unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
	assert_false(aws_has_container());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_profiles),
		cmocka_unit_test(test_values_that_no_header_can_have),
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_where_tokens_go),
		cmocka_unit_test_setup_teardown(test_order, setup, teardown),
		cmocka_unit_test_setup_teardown(test_home, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_expired, setup, teardown),
		cmocka_unit_test_setup_teardown(test_suspected, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
