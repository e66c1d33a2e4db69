/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claim.c - the process that writes below a prefix of a bucket, as lines of text.
 *
 * A process is identified by the machine, its boot, its PID namespace, its PID and its start time,
 * since PIDs are reused. Host names and the number of the first PID namespace are equal on many
 * machines, so they say nothing of a process of another boot: that takes the machine's identity.
 */
#include "core/remote/upload/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/base/digest.h"
#include "core/base/err.h"

#define FIRST "pytreefs draft 1"
#define PART 128

struct claim {
	char host[PART], machine[PART], boot[PART], names[PART];
	long pid;
	unsigned long long started;
};

/* The first line of a small file, or "". */
static void read_line(const char *path, char ret[PART])
{
	FILE *f = fopen(path, "re");

	ret[0] = '\0';
	if (f && fgets(ret, PART, f))
		ret[strcspn(ret, "\n")] = '\0';
	if (f)
		fclose(f);
}

/*
 * The start time of a process in clock ticks since the boot; 0: it does not exist, or its files are
 * not readable. *ret_ended is set for a zombie.
 */
static unsigned long long started(long pid, bool *ret_ended)
{
	char path[64], text[1024] = "";
	const char *at;
	unsigned long long t = 0;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
	f = fopen(path, "re");
	n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
	if (f)
		fclose(f);
	text[n] = '\0';
	/* The command's name may have any character; it ends at the last parenthesis. */
	at = strrchr(text, ')');
	*ret_ended = at && (!strncmp(at, ") Z", 3) || !strncmp(at, ") X", 3));
	for (int i = 2; at && i < 22; i++)
		at = strchr(at + 1, ' ');
	if (!at || sscanf(at, "%llu", &t) != 1)
		return 0;
	return t;
}

/*
 * A digest of what the installation and the hardware are called; "" where one of them has no name,
 * or only root may read it. Images are copied with their machine-id, so neither will do alone.
 */
static void own_machine(char ret[PART])
{
	char installed[PART], hardware[PART];
	uint8_t sum[32];

	ret[0] = '\0';
	read_line("/etc/machine-id", installed);
	read_line("/sys/class/dmi/id/product_uuid", hardware);
	if (!*installed || !*hardware)
		return;
	sha256_parts((struct span[]){ span_str(installed), span_str(hardware) }, 2, sum);
	for (size_t i = 0; i < 16; i++)
		snprintf(ret + 2 * i, 3, "%02x", sum[i]);
}

static void own(struct claim *c)
{
	bool ended;
	ssize_t n;

	*c = (struct claim){ .pid = getpid() };
	if (gethostname(c->host, sizeof(c->host) - 1) < 0 || !*c->host)
		strcpy(c->host, "localhost");
	own_machine(c->machine);
	read_line("/proc/sys/kernel/random/boot_id", c->boot);
	n = readlink("/proc/self/ns/pid", c->names, sizeof(c->names) - 1);
	c->names[MAX(n, 0)] = '\0';
	c->started = started(c->pid, &ended);
}

int claim_make(struct buf *ret)
{
	struct claim c;
	uint64_t id[2];

	own(&c);
	if (getrandom(id, sizeof(id), 0) != sizeof(id))
		return err_sys("cannot read random bytes", "getrandom");
	return buf_addf(ret,
			FIRST
			"\nid=%016llx%016llx\nhost=%s\nmachine=%s\nboot=%s\nnames=%s\npid=%ld\n"
			"started=%llu\n",
			(unsigned long long)id[0], (unsigned long long)id[1], c.host, c.machine,
			c.boot, c.names, c.pid, c.started);
}

/* The value of a line, without spaces; false when it has none. */
static bool claim_take_word(const char *text, const char *name, char ret[PART])
{
	const char *at = strstr(text, name);
	size_t n = at ? strcspn(at + strlen(name), " \n") : 0;

	if (!n || n >= PART)
		return false;
	memcpy(ret, at + strlen(name), n);
	ret[n] = '\0';
	/* Messages show the word, so it must be printable. */
	for (const char *c = ret; *c; c++)
		if (*c < '!' || *c > '~')
			return false;
	return true;
}

static bool parse(struct span text, struct claim *c)
{
	auto_free char *t = span_dup_str(text);
	char pid[PART], since[PART];

	*c = (struct claim){ 0 };
	if (!t || strncmp(t, FIRST "\n", strlen(FIRST "\n")) != 0)
		return false;
	if (!claim_take_word(t, "\nhost=", c->host) || !claim_take_word(t, "\nboot=", c->boot) ||
	    !claim_take_word(t, "\nnames=", c->names) || !claim_take_word(t, "\npid=", pid) ||
	    !claim_take_word(t, "\nstarted=", since))
		return false;
	/* Programs of before do not say it. */
	if (!claim_take_word(t, "\nmachine=", c->machine))
		c->machine[0] = '\0';
	return sscanf(pid, "%ld", &c->pid) == 1 && sscanf(since, "%llu", &c->started) == 1;
}

bool claim_is_committing(struct span text)
{
	return span_ends(text, span_str("\n" CLAIM_COMMITTING));
}

int claim_is_live(struct span text)
{
	char machine[PART];

	own_machine(machine);
	return claim_is_live_on(text, machine);
}

int claim_is_live_on(struct span text, const char *machine)
{
	struct claim c, mine;
	unsigned long long now;
	bool ended;

	own(&mine);
	if (span_ends(text, span_str("\n" CLAIM_ENDED)) ||
	    span_ends(text, span_str("\n" CLAIM_ENDED CLAIM_COMMITTING)))
		return 0;
	if (!parse(text, &c) || strcmp(c.host, mine.host) != 0 || !strcmp(c.names, "") ||
	    strcmp(c.names, mine.names) != 0)
		return -1;
	/* This machine was rebooted since, or it is another one of the same name. */
	if (strcmp(c.boot, mine.boot) != 0)
		return *machine && !strcmp(c.machine, machine) ? 0 : -1;
	now = started(c.pid, &ended);
	if (now)
		return now == c.started && !ended;
	/* Other users' processes may be hidden from us. */
	return kill((pid_t)c.pid, 0) < 0 && errno == ESRCH ? 0 : -1;
}

void claim_show(struct span text, char *ret, size_t max)
{
	struct claim c;

	if (parse(text, &c))
		snprintf(ret, max, "process %ld of '%s'", c.pid, c.host);
	else
		snprintf(ret, max, "somebody");
}
