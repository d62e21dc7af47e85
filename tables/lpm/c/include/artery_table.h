/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Routing tables of Artery: longest-prefix match for IPv4 and IPv6.
 *
 * A table maps prefixes to groups: numbers from 1 on, to which the table gives no meaning. Group 0 is "no route".
 * IPv4 addresses are numbers in host order (10.1.2.3 is 0x0a010203), IPv6 addresses 16 bytes in network order.
 * Address bits beyond the length of a prefix are ignored.
 *
 * Threads. A table has one writer: calls on it may come from any thread, but one at a time; a call that meets another
 * one on the same table returns ARTERY_BUSY and does nothing. Readers are made from a table, by any thread, also
 * while it is being changed, and each is used by one thread at a time (else ARTERY_BUSY). Any number of readers look
 * up while the writer changes the table: neither waits for the other. A lookup sees every change whose call had
 * returned before it began. Each call on a reader is a turn of its own: between calls a reader holds nothing up, so
 * that a thread may keep one and sleep. A turn costs more than a lookup, so look up in batches.
 * A reader may outlive its table, and then answers as the table last did. The free functions must be the last use
 * of what they free, on all threads.
 *
 * Failures. Every function that returns int returns an enum artery_status; one that returns a pointer returns NULL
 * when it fails. What a call gives back through a pointer is written only when it returns ARTERY_OK. Pointers must be
 * NULL, which is refused, or good: handles as they were returned and not yet freed, arrays as long as is said.
 */
#ifndef ARTERY_TABLE_H
#define ARTERY_TABLE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum artery_status {
    ARTERY_OK = 0,
    ARTERY_ARGUMENT = -1, /* NULL, a prefix too long, a group out of range, or a text that is no policy */
    ARTERY_MISSING = -2,  /* there is no route of exactly this prefix */
    ARTERY_FULL = -3,     /* an array of the table is used up; the table is as it was */
    ARTERY_MEMORY = -4,   /* the system gave no memory; the table is as it was */
    ARTERY_BUSY = -5,     /* another thread is in a call on the same table or reader */
    ARTERY_PANIC = -6     /* a bug in the library; all that is left to do with this table or reader is to free it */
};

typedef struct artery_table4 artery_table4;
typedef struct artery_table6 artery_table6;
typedef struct artery_reader4 artery_reader4;
typedef struct artery_reader6 artery_reader6;

/* What the last call that failed on this thread has to say, "" if none has. Good until the next one fails. */
const char *artery_last_error(void);

/*
 * Makes an empty table that forwards by a policy: "auto", "auto:BYTES" (such as "auto:32M"), "fast", "small", "art"
 * or "art:STRIDES" (such as "art:16/8/8"). "auto" is right unless you have measured otherwise. Strides are numbers of
 * bits from 1 to 24 that sum up to those of an address. BYTES bounds the compiled table that forwards, not what the
 * routes themselves take: where no compiled table stays within it, the routes forward by themselves, which is slower;
 * an IPv4 table needs 4.4 million bytes to have one. What it takes is counted when it is compiled, and estimated by
 * the number of routes while they come and go.
 */
artery_table4 *artery_table4_new(const char *policy);
artery_table6 *artery_table6_new(const char *policy);

/* Frees a table; NULL is left alone. */
void artery_table4_free(artery_table4 *table);
void artery_table6_free(artery_table6 *table);

/* Adds the route of a prefix, or replaces its group. */
int artery_table4_insert(artery_table4 *table, uint32_t address, unsigned int length, uint32_t group);
int artery_table6_insert(artery_table6 *table, const uint8_t address[16], unsigned int length, uint32_t group);

/* Removes the route of a prefix, or returns ARTERY_MISSING. */
int artery_table4_remove(artery_table4 *table, uint32_t address, unsigned int length);
int artery_table6_remove(artery_table6 *table, const uint8_t address[16], unsigned int length);

/* Gives the group of the route of exactly this prefix, or returns ARTERY_MISSING. */
int artery_table4_get(const artery_table4 *table, uint32_t address, unsigned int length, uint32_t *group);
int artery_table6_get(const artery_table6 *table, const uint8_t address[16], unsigned int length, uint32_t *group);

/* Gives the number of routes. */
int artery_table4_count(const artery_table4 *table, size_t *count);
int artery_table6_count(const artery_table6 *table, size_t *count);

/* Forwards by another policy from now on, while readers look up. On a failure nothing has changed. */
int artery_table4_set_policy(artery_table4 *table, const char *policy);
int artery_table6_set_policy(artery_table6 *table, const char *policy);

/* Makes a reader of a table. */
artery_reader4 *artery_reader4_new(const artery_table4 *table);
artery_reader6 *artery_reader6_new(const artery_table6 *table);

/* Frees a reader; NULL is left alone. */
void artery_reader4_free(artery_reader4 *reader);
void artery_reader6_free(artery_reader6 *reader);

/* Gives the group of the longest prefix that contains an address, 0 if none does. */
int artery_reader4_lookup(artery_reader4 *reader, uint32_t address, uint32_t *group);
int artery_reader6_lookup(artery_reader6 *reader, const uint8_t address[16], uint32_t *group);

/*
 * Looks up `count` addresses at once into as many groups, several times faster than one by one; 32 to 64 and more at
 * a time are best. IPv6 addresses lie one after the other, 16 bytes each. A count of 0 does nothing.
 */
int artery_reader4_lookup_batch(artery_reader4 *reader, const uint32_t *addresses, size_t count, uint32_t *groups);
int artery_reader6_lookup_batch(artery_reader6 *reader, const uint8_t *addresses, size_t count, uint32_t *groups);

#ifdef __cplusplus
}
#endif

#endif
