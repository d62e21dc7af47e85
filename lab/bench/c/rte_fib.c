/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * DPDK's longest-prefix matches on the table and the traffic of `artery-bench fib`, which starts this program and
 * tells it on standard input what to do, one command a line; each is answered by one line of JSON.
 *
 *   trial ENGINE MODE FILE NANOSECONDS     {"ns": ...}      nanoseconds of a lookup
 *   answers ENGINE FILE OUTPUT             {"answers": N}   32-bit answers for the addresses of FILE
 *   updates ENGINE NANOSECONDS             {"updates_per_s": ...}
 *   bytes ENGINE                           {"bytes": ...}   bytes that lookups may touch
 *
 * Engines: fib-vector, fib-scalar, lpm for IPv4; fib-vector, fib-scalar for IPv6. Addresses in files are 32-bit
 * numbers of the machine, or 16 bytes in network order. A table is made by the first command that names it.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_lpm.h>

#define BURST 64
#define SLICE (1 << 14)
#define WARM_UP (4 * SLICE)
#define TBL8S_V4 4096
#define TBL8S_V6 (1 << 19)

struct route {
	uint8_t len;
	uint8_t pad[3];
	uint32_t group;
	uint8_t address[16];
};

static int family;
static size_t address_bytes;
static struct route *routes;
static size_t route_count;
static struct rte_fib *fib4;
static struct rte_fib6 *fib6;
static struct rte_lpm *lpm;
static FILE *answers_to;

enum engine { FIB_VECTOR, FIB_SCALAR, LPM, NO_ENGINE };

static void fail(const char *what)
{
	fprintf(stderr, "rte_fib: %s\n", what);
	exit(1);
}

static uint64_t nanoseconds(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static uint64_t now(void)
{
	return nanoseconds(CLOCK_MONOTONIC);
}

/* How long this thread has had a processor. */
static uint64_t thread_time(void)
{
	return nanoseconds(CLOCK_THREAD_CPUTIME_ID);
}

/* Reads a file whole. */
static void *slurp(const char *path, size_t *bytes)
{
	FILE *file = fopen(path, "rb");
	void *content;

	if (file == NULL || fseek(file, 0, SEEK_END) != 0)
		fail(path);
	*bytes = ftell(file);
	rewind(file);
	content = malloc(*bytes + 1);
	if (content == NULL || fread(content, 1, *bytes, file) != *bytes)
		fail(path);
	fclose(file);
	return content;
}

/* A record of the table's file: length, three bytes of nothing, group, address. */
static void read_routes(const char *path)
{
	size_t bytes, record = 8 + address_bytes;
	uint8_t *content = slurp(path, &bytes);

	route_count = bytes / record;
	routes = calloc(route_count + 1, sizeof(*routes));
	if (routes == NULL)
		fail("no memory for routes");
	for (size_t i = 0; i < route_count; i++)
		memcpy(&routes[i], content + i * record, record);
	free(content);
}

static uint32_t v4(const struct route *route)
{
	uint32_t address;

	memcpy(&address, route->address, sizeof(address));
	return address;
}

static int announce(enum engine engine, const struct route *route)
{
	if (engine == LPM)
		return rte_lpm_add(lpm, v4(route), route->len, route->group);
	if (family == 4)
		return rte_fib_add(fib4, v4(route), route->len, route->group);
	return rte_fib6_add(fib6, route->address, route->len, route->group);
}

static int withdraw(enum engine engine, const struct route *route)
{
	if (engine == LPM)
		return rte_lpm_delete(lpm, v4(route), route->len);
	if (family == 4)
		return rte_fib_delete(fib4, v4(route), route->len);
	return rte_fib6_delete(fib6, route->address, route->len);
}

static void fill(enum engine engine)
{
	for (size_t i = 0; i < route_count; i++)
		if (announce(engine, &routes[i]) != 0)
			fail("a route was refused");
}

static void make_fib4(void)
{
	struct rte_fib_conf conf = {
		.type = RTE_FIB_DIR24_8,
		.max_routes = 2 << 20,
		.dir24_8 = { .nh_sz = RTE_FIB_DIR24_8_2B, .num_tbl8 = TBL8S_V4 },
	};

	fib4 = rte_fib_create("fib4", SOCKET_ID_ANY, &conf);
	if (fib4 == NULL)
		fail("no memory for rte_fib: give it more huge pages");
	fill(FIB_VECTOR);
}

static void make_fib6(void)
{
	struct rte_fib6_conf conf = {
		.type = RTE_FIB6_TRIE,
		.max_routes = 1 << 20,
		.trie = { .nh_sz = RTE_FIB6_TRIE_4B, .num_tbl8 = TBL8S_V6 },
	};

	fib6 = rte_fib6_create("fib6", SOCKET_ID_ANY, &conf);
	if (fib6 == NULL)
		fail("no memory for rte_fib6: give it more huge pages");
	fill(FIB_VECTOR);
}

static void make_lpm(void)
{
	struct rte_lpm_config conf = { .max_rules = 2 << 20, .number_tbl8s = TBL8S_V4 };

	lpm = rte_lpm_create("lpm", SOCKET_ID_ANY, &conf);
	if (lpm == NULL)
		fail("no memory for rte_lpm: give it more huge pages");
	fill(LPM);
}

/* Sees to it that an engine is there, and that its lookup function is the one asked for. */
static enum engine take(const char *name)
{
	bool vector = strcmp(name, "fib-vector") == 0;
	int chosen;

	if (family == 4 && strcmp(name, "lpm") == 0) {
		if (lpm == NULL)
			make_lpm();
		return LPM;
	}
	if (!vector && strcmp(name, "fib-scalar") != 0)
		return NO_ENGINE;
	if (family == 4) {
		if (fib4 == NULL)
			make_fib4();
		chosen = rte_fib_select_lookup(fib4, vector ? RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512 :
							      RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO);
	} else {
		if (fib6 == NULL)
			make_fib6();
		chosen = rte_fib6_select_lookup(fib6, vector ? RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512 :
							       RTE_FIB6_LOOKUP_TRIE_SCALAR);
	}
	if (chosen != 0)
		fail("this processor, or this build of DPDK, lacks the lookup function");
	return vector ? FIB_VECTOR : FIB_SCALAR;
}

static inline void write_answers(const uint64_t *groups, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++) {
		uint32_t group = groups[i];

		fwrite(&group, sizeof(group), 1, answers_to);
	}
}

static inline void bulk(enum engine engine, const uint8_t *addresses, uint64_t *groups, unsigned int count)
{
	uint32_t found[BURST];

	if (engine == LPM) {
		rte_lpm_lookup_bulk(lpm, (const uint32_t *)addresses, found, count);
		for (unsigned int i = 0; i < count; i++)
			groups[i] = found[i] & RTE_LPM_LOOKUP_SUCCESS ? found[i] & 0xffffff : 0;
	} else if (family == 4) {
		rte_fib_lookup_bulk(fib4, (uint32_t *)(uintptr_t)addresses, groups, count);
	} else {
		rte_fib6_lookup_bulk(fib6, (uint8_t (*)[RTE_FIB6_IPV6_ADDR_SIZE])(uintptr_t)addresses, groups, count);
	}
}

/* What `bulk` leaves of an rte_lpm answer is made by the caller there; here the raw answers are enough. */
static inline void bulk_timed(enum engine engine, const uint8_t *addresses, uint64_t *groups, unsigned int count)
{
	if (engine == LPM)
		rte_lpm_lookup_bulk(lpm, (const uint32_t *)addresses, (uint32_t *)groups, count);
	else
		bulk(engine, addresses, groups, count);
}

/* One lookup that must wait for the answer of the one before. */
static uint64_t follow(enum engine engine, const uint8_t *address, uint64_t last, uint64_t mask)
{
	uint8_t changed[16];
	uint64_t group = 0;
	uint32_t low;

	memcpy(changed, address, address_bytes);
	memcpy(&low, changed + address_bytes - 4, sizeof(low));
	low ^= (uint32_t)(last & mask);
	memcpy(changed + address_bytes - 4, &low, sizeof(low));
	bulk_timed(engine, changed, &group, 1);
	return group;
}

static void pass(enum engine engine, char mode, const uint8_t *addresses, size_t count)
{
	uint64_t groups[BURST], last = 0;
	volatile uint64_t zero = 0;
	uint64_t mask = zero;

	for (size_t done = 0; done < count; done += BURST) {
		unsigned int burst = count - done < BURST ? count - done : BURST;
		const uint8_t *here = addresses + done * address_bytes;

		if (mode == 'b')
			bulk_timed(engine, here, groups, burst);
		else if (mode == 'i')
			for (unsigned int i = 0; i < burst; i++)
				bulk_timed(engine, here + i * address_bytes, &groups[i], 1);
		else
			for (unsigned int i = 0; i < burst; i++)
				last = follow(engine, here + i * address_bytes, last, mask);
		/* Whoever optimises must believe that every answer is read. */
		__asm__ volatile("" : : "r"(groups), "r"(last) : "memory");
	}
}

static double trial(enum engine engine, char mode, const uint8_t *addresses, size_t count, uint64_t budget)
{
	uint64_t start = now(), busy, lookups = 0;
	size_t at = 0;

	for (size_t warm = 0; warm < WARM_UP && now() - start < budget; warm += SLICE) {
		pass(engine, mode, addresses + at * address_bytes, SLICE);
		at = at + 2 * SLICE <= count ? at + SLICE : 0;
	}
	start = now();
	busy = thread_time();
	do {
		pass(engine, mode, addresses + at * address_bytes, SLICE);
		at = at + 2 * SLICE <= count ? at + SLICE : 0;
		lookups += SLICE;
	} while (now() - start < budget);
	return (double)(thread_time() - busy) / lookups;
}

static double updates(enum engine engine, uint64_t budget)
{
	uint64_t start = now(), busy = thread_time(), count = 0, random = 1;

	while (now() - start < budget) {
		for (int i = 0; i < 16; i++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			const struct route *route = &routes[(random >> 33) % route_count];

			if (withdraw(engine, route) != 0 || announce(engine, route) != 0)
				fail("an update was refused");
			count += 2;
		}
	}
	return count / ((thread_time() - busy) / 1e9);
}

static uint64_t bytes(enum engine engine)
{
	if (engine == LPM)
		return sizeof(uint32_t) * ((1 << 24) + TBL8S_V4 * 256);
	if (family == 4)
		return sizeof(uint16_t) * ((1 << 24) + TBL8S_V4 * 256);
	return sizeof(uint32_t) * ((1 << 24) + (uint64_t)TBL8S_V6 * 256);
}

/* Keeps the addresses of the last file: trials name the same one many times. */
static const uint8_t *addresses_of(const char *path, size_t *count)
{
	static char known[512];
	static uint8_t *content;
	static size_t size;

	if (strcmp(known, path) != 0) {
		free(content);
		content = slurp(path, &size);
		snprintf(known, sizeof(known), "%s", path);
	}
	*count = size / address_bytes;
	return content;
}

static void answer(enum engine engine, const char *from, const char *to)
{
	size_t count;
	const uint8_t *addresses = addresses_of(from, &count);
	uint64_t groups[BURST];

	answers_to = fopen(to, "wb");
	if (answers_to == NULL)
		fail(to);
	for (size_t done = 0; done < count; done += BURST) {
		unsigned int burst = count - done < BURST ? count - done : BURST;

		bulk(engine, addresses + done * address_bytes, groups, burst);
		write_answers(groups, burst);
	}
	fclose(answers_to);
	printf("{\"answers\": %zu}\n", count);
}

static void carry_out(const char *line)
{
	char name[32], mode[32], from[512], to[512];
	uint64_t budget;
	size_t count;

	if (sscanf(line, "trial %31s %31s %511s %" SCNu64, name, mode, from, &budget) == 4) {
		enum engine engine = take(name);
		const uint8_t *addresses = addresses_of(from, &count);

		if (engine == NO_ENGINE || count < SLICE)
			fail("no such engine, or too few addresses");
		printf("{\"ns\": %f}\n", trial(engine, mode[0], addresses, count, budget));
	} else if (sscanf(line, "answers %31s %511s %511s", name, from, to) == 3) {
		answer(take(name), from, to);
	} else if (sscanf(line, "updates %31s %" SCNu64, name, &budget) == 2) {
		printf("{\"updates_per_s\": %f}\n", updates(take(name), budget));
	} else if (sscanf(line, "bytes %31s", name) == 1) {
		printf("{\"bytes\": %" PRIu64 "}\n", bytes(take(name)));
	} else {
		fail("a command that is none");
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char core[16], prefix[32], line[2048];
	char *eal[] = { argv[0], "-l", core, "--no-pci", "--in-memory", "--no-telemetry", "--log-level=4",
			"--force-max-simd-bitwidth=512", prefix };

	if (argc != 3)
		fail("usage: rte_fib 4|6 TABLE");
	family = atoi(argv[1]);
	address_bytes = family == 4 ? 4 : 16;
	snprintf(core, sizeof(core), "%d", sched_getcpu());
	snprintf(prefix, sizeof(prefix), "--file-prefix=artery%d", (int)getpid());
	if (rte_eal_init(RTE_DIM(eal), eal) < 0)
		fail("DPDK does not start: it needs huge pages");
	read_routes(argv[2]);
	while (fgets(line, sizeof(line), stdin) != NULL)
		carry_out(line);
	rte_eal_cleanup();
	return 0;
}
