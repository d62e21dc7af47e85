/* Calls every function of the header, with what is right and with what is wrong. */
#include "artery_table.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(claim) ((claim) ? (void)0 : (printf("line %d: %s (%s)\n", __LINE__, #claim, artery_last_error()), exit(1)))

static void ipv4(void) {
    const uint32_t addresses[3] = {0x0a010203, 0x0a7f0000, 0x0b000000};
    uint32_t group = 77, groups[3];
    size_t count = 77;
    CHECK(!strcmp(artery_last_error(), ""));
    artery_table4 *table = artery_table4_new("auto:32M");
    artery_reader4 *reader = artery_reader4_new(table);
    CHECK(table && reader);
    CHECK(artery_table4_insert(table, 0x0a000000, 8, 1) == ARTERY_OK);
    CHECK(artery_table4_insert(table, 0x0a0102ff, 24, 2) == ARTERY_OK);
    CHECK(artery_table4_insert(table, 0x0a000000, 8, 3) == ARTERY_OK);
    CHECK(artery_table4_count(table, &count) == ARTERY_OK && count == 2);
    CHECK(artery_table4_get(table, 0x0a010200, 24, &group) == ARTERY_OK && group == 2);
    CHECK(artery_table4_get(table, 0x0a010200, 25, &group) == ARTERY_MISSING && group == 2);
    CHECK(artery_table4_set_policy(table, "art:16/8/8") == ARTERY_OK);
    CHECK(artery_reader4_lookup(reader, 0x0a010203, &group) == ARTERY_OK && group == 2);
    CHECK(artery_reader4_lookup_batch(reader, addresses, 3, groups) == ARTERY_OK);
    CHECK(groups[0] == 2 && groups[1] == 3 && groups[2] == 0);
    CHECK(artery_table4_remove(table, 0x0a010200, 24) == ARTERY_OK);
    CHECK(artery_table4_remove(table, 0x0a010200, 24) == ARTERY_MISSING);
    artery_table4_free(table);
    CHECK(artery_reader4_lookup(reader, 0x0a010203, &group) == ARTERY_OK && group == 3);
    artery_reader4_free(reader);
}

static void ipv6(void) {
    const uint8_t addresses[2 * 16] = {0x20, 1, 0x0d, 0xb8, [15] = 1, [16] = 0x20, 1, 0x0d, 0xb9};
    uint32_t group = 77, groups[2];
    size_t count = 77;
    artery_table6 *table = artery_table6_new("small");
    artery_reader6 *reader = artery_reader6_new(table);
    CHECK(table && reader);
    CHECK(artery_table6_insert(table, addresses, 32, 5) == ARTERY_OK);
    CHECK(artery_table6_insert(table, addresses, 128, 6) == ARTERY_OK);
    CHECK(artery_table6_count(table, &count) == ARTERY_OK && count == 2);
    CHECK(artery_table6_get(table, addresses, 32, &group) == ARTERY_OK && group == 5);
    CHECK(artery_reader6_lookup(reader, addresses, &group) == ARTERY_OK && group == 6);
    CHECK(artery_table6_remove(table, addresses, 128) == ARTERY_OK);
    CHECK(artery_table6_set_policy(table, "art") == ARTERY_OK);
    CHECK(artery_reader6_lookup_batch(reader, addresses, 2, groups) == ARTERY_OK);
    CHECK(groups[0] == 5 && groups[1] == 0);
    CHECK(artery_table6_insert(table, NULL, 32, 5) == ARTERY_ARGUMENT);
    CHECK(artery_table6_insert(table, addresses, 129, 5) == ARTERY_ARGUMENT);
    CHECK(artery_table6_remove(table, NULL, 32) == ARTERY_ARGUMENT);
    CHECK(artery_table6_get(table, NULL, 32, &group) == ARTERY_ARGUMENT);
    CHECK(artery_reader6_lookup(reader, NULL, &group) == ARTERY_ARGUMENT);
    CHECK(artery_reader6_lookup_batch(reader, NULL, 2, groups) == ARTERY_ARGUMENT);
    artery_reader6_free(reader);
    artery_table6_free(table);
}

static void wrong_arguments(void) {
    uint32_t group = 77, address = 0x0a000000;
    artery_table4 *table = artery_table4_new("fast");
    artery_reader4 *reader = artery_reader4_new(table);
    CHECK(!artery_table4_new(NULL) && !artery_table4_new("quick") && !artery_table6_new("\xff"));
    CHECK(strstr(artery_last_error(), "a policy is auto"));
    CHECK(!artery_reader4_new(NULL) && !artery_reader6_new(NULL));
    CHECK(strstr(artery_last_error(), "NULL"));
    CHECK(artery_table4_insert(NULL, address, 8, 1) == ARTERY_ARGUMENT);
    CHECK(artery_table4_insert(table, address, 33, 1) == ARTERY_ARGUMENT);
    CHECK(artery_table4_insert(table, address, 256 + 8, 1) == ARTERY_ARGUMENT);
    CHECK(strstr(artery_last_error(), "length"));
    CHECK(artery_table4_insert(table, address, 8, 0) == ARTERY_ARGUMENT);
    CHECK(artery_table4_insert(table, address, 8, UINT32_MAX) == ARTERY_ARGUMENT);
    CHECK(strstr(artery_last_error(), "not a group"));
    CHECK(artery_table4_remove(NULL, address, 8) == ARTERY_ARGUMENT);
    CHECK(artery_table4_get(table, address, 8, NULL) == ARTERY_ARGUMENT);
    CHECK(artery_table4_count(table, NULL) == ARTERY_ARGUMENT);
    CHECK(artery_table4_set_policy(table, NULL) == ARTERY_ARGUMENT);
    CHECK(artery_table4_set_policy(table, "art:9") == ARTERY_ARGUMENT);
    CHECK(artery_reader4_lookup(NULL, address, &group) == ARTERY_ARGUMENT && group == 77);
    CHECK(artery_reader4_lookup(reader, address, NULL) == ARTERY_ARGUMENT);
    CHECK(artery_reader4_lookup_batch(reader, &address, 1, NULL) == ARTERY_ARGUMENT);
    CHECK(artery_reader4_lookup_batch(reader, NULL, 0, NULL) == ARTERY_OK);
    CHECK(artery_reader4_lookup_batch(reader, &address, SIZE_MAX, &group) == ARTERY_ARGUMENT);
    artery_table4_free(NULL), artery_table6_free(NULL), artery_reader4_free(NULL), artery_reader6_free(NULL);
    artery_reader4_free(reader), artery_table4_free(table);
}

/* Looks up what always has a route of group 1 and sometimes one of group 2, until it has seen the last, of group 3. */
static void *look_up(void *argument) {
    const artery_table4 *table = argument;
    artery_reader4 *reader = artery_reader4_new(table);
    uint32_t addresses[100], groups[100];
    CHECK(reader && !strcmp(artery_last_error(), "")); /* failures of other threads are not ours */
    for (int i = 0; i < 100; i++)
        addresses[i] = 0x0a010200 + i;
    do {
        CHECK(artery_reader4_lookup_batch(reader, addresses, 100, groups) == ARTERY_OK);
        for (int i = 0; i < 100; i++)
            CHECK(groups[i] >= 1 && groups[i] <= 3);
    } while (groups[0] != 3);
    artery_reader4_free(reader);
    return NULL;
}

static void threads(void) {
    const char *policies[4] = {"fast", "art", "small", "auto"};
    pthread_t readers[2];
    artery_table4 *table = artery_table4_new("auto");
    CHECK(table && artery_table4_insert(table, 0x0a000000, 8, 1) == ARTERY_OK);
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&readers[i], NULL, look_up, table));
    for (int i = 0; i < 2000; i++) {
        CHECK(artery_table4_insert(table, 0x0a010200, 24, 2) == ARTERY_OK);
        CHECK(i % 100 || artery_table4_set_policy(table, policies[i / 100 % 4]) == ARTERY_OK);
        CHECK(artery_table4_remove(table, 0x0a010200, 24) == ARTERY_OK);
    }
    CHECK(artery_table4_insert(table, 0x0a010200, 24, 3) == ARTERY_OK);
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_join(readers[i], NULL));
    artery_table4_free(table);
}

int main(void) {
    ipv4();
    ipv6();
    wrong_arguments();
    threads();
    puts("as the header says");
    return 0;
}
