/* Three routes and four addresses; the README says how to build it. */
#include "artery_table.h"
#include <stdio.h>

int main(void) {
    const uint32_t addresses[4] = {0x0a010203, 0x0a020304, 0xc0000201, 0xc6336401};
    uint32_t group, groups[4];
    artery_table4 *table = artery_table4_new("auto");
    if (!table || artery_table4_insert(table, 0x0a000000, 8, 1) || artery_table4_insert(table, 0x0a010000, 16, 2)
        || artery_table4_insert(table, 0xc0000200, 24, 3))
        return fprintf(stderr, "%s\n", artery_last_error()), 1;
    artery_reader4 *reader = artery_reader4_new(table); /* one for each thread that looks up */
    size_t routes = 0;
    if (artery_table4_count(table, &routes) || artery_reader4_lookup(reader, addresses[0], &group)
        || artery_reader4_lookup_batch(reader, addresses, 4, groups))
        return fprintf(stderr, "%s\n", artery_last_error()), 1;
    printf("%zu routes, 10.1.2.3 goes to %u\n", routes, group);
    for (int i = 0; i < 4; i++)
        printf("%u.%u.%u.%u %u\n", addresses[i] >> 24, addresses[i] >> 16 & 255, addresses[i] >> 8 & 255,
               addresses[i] & 255, groups[i]);
    artery_reader4_free(reader), artery_table4_free(table);
}
