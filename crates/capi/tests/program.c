/* tests/c_program.rs compiles this as C99 and as C++, and runs it on a new image. It accepts a server's URL, too. All data are
 * lost. Prints the sizes of the header's structures, and "fine" at its end. */
#include "zonda.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(holds) \
    do { \
        if (!(holds)) { \
            fprintf(stderr, "%s:%d: check failed: %s; last error: %s (%s)\n", __FILE__, __LINE__, #holds, \
                    zonda_error_message(), zonda_error_remedy()); \
            exit(1); \
        } \
    } while (0)

#define DEPTH 8

static zonda_geometry geometry;

static unsigned char *buffer(uint64_t blocks, int fill)
{
    size_t bytes = (size_t)blocks * geometry.block_size_bytes;
    unsigned char *data = (unsigned char *)malloc(bytes);
    CHECK(data != NULL);
    memset(data, fill, bytes);
    return data;
}

/* Synchronous calls: every function, on the zone that starts at `zone`. */
static void synchronous(zonda_namespace *ns, uint64_t zone)
{
    size_t block = geometry.block_size_bytes;
    unsigned char *data = buffer(4, 'a');
    unsigned char *back = buffer(6, 'x');
    uint64_t lba = 0;
    zonda_zone report;
    size_t i;

    CHECK(zonda_write(ns, zone, data, 4 * block) == 0);
    memset(data, 'b', block);
    CHECK(zonda_append(ns, zone, data, block, &lba) == 0);
    CHECK(lba == zone + 4);
    CHECK(zonda_flush(ns) == 0);
    CHECK(zonda_read(ns, zone, back, 6 * block) == 0);
    for (i = 0; i < 6 * block; i++)
        CHECK(back[i] == (i < 4 * block ? 'a' : i < 5 * block ? 'b' : 0));

    CHECK(zonda_report_zones(ns, zone, 0, &report, 1) == 1);
    CHECK(report.start == zone && report.write_pointer == zone + 5);
    CHECK(report.state == ZONDA_STATE_IMPLICITLY_OPENED && report.type == ZONDA_ZONE_SEQUENTIAL);
    CHECK(report.capacity_blocks == geometry.zone_capacity_blocks);

    CHECK(zonda_write(ns, zone, data, block) == -EIO);
    CHECK(strstr(zonda_error_message(), "zone invalid write") != NULL);
    CHECK(strstr(zonda_error_remedy(), "write pointer") != NULL);
    CHECK(zonda_write(ns, zone, data, block - 1) == -EINVAL);
    CHECK(zonda_read(ns, (uint64_t)geometry.zone_count * geometry.zone_size_blocks, back, block) == -EREMOTEIO);

    CHECK(zonda_deallocate(ns, zone, 1) == 0);
    CHECK(zonda_read(ns, zone, back, block) == 0 && back[0] == 0);

    CHECK(zonda_manage_zone(ns, ZONDA_ZONE_CLOSE, zone) == 0);
    CHECK(zonda_manage_zone(ns, ZONDA_ZONE_OPEN, zone) == 0);
    CHECK(zonda_manage_zone(ns, ZONDA_ZONE_FINISH, zone) == 0);
    CHECK(zonda_report_zones(ns, zone, 0, &report, 1) == 1);
    CHECK(report.state == ZONDA_STATE_FULL && report.write_pointer == ZONDA_NO_WRITE_POINTER);
    CHECK(zonda_report_zones(ns, zone, ZONDA_STATE_FULL, &report, 1) == 1 && report.start == zone);
    CHECK(zonda_manage_zone(ns, ZONDA_ZONE_RESET, zone) == 0);
    CHECK(zonda_manage_zone(ns, ZONDA_READ, zone) == -EINVAL);
    CHECK(zonda_read(ns, zone, back, block) == 0 && back[0] == 0);
    free(data);
    free(back);
}

/* Longer than one command, so that it is split. */
static void long_transfers(zonda_namespace *ns, uint64_t zone)
{
    uint64_t blocks = geometry.max_transfer_blocks * 2 + 1;
    size_t bytes;
    unsigned char *data, *back;
    size_t i;

    if (blocks > geometry.zone_capacity_blocks)
        blocks = geometry.zone_capacity_blocks;
    bytes = (size_t)blocks * geometry.block_size_bytes;
    data = buffer(blocks, 0);
    back = buffer(blocks, 0);
    for (i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i / 512 + i);
    CHECK(zonda_write(ns, zone, data, bytes) == 0);
    CHECK(zonda_read(ns, zone, back, bytes) == 0);
    CHECK(memcmp(data, back, bytes) == 0);
    CHECK(zonda_manage_zone(ns, ZONDA_ZONE_RESET, zone) == 0);
    free(data);
    free(back);
}

/* Asynchronous commands: writes at the write pointer without waiting, then reads. */
static void asynchronous(zonda_namespace *ns, uint64_t zone)
{
    unsigned char *data[DEPTH];
    zonda_result results[DEPTH];
    zonda_command command;
    int seen = 0, i, count;

    for (i = 0; i < DEPTH; i++) {
        data[i] = buffer(1, 'A' + i);
        memset(&command, 0, sizeof command);
        command.opcode = i % 2 ? ZONDA_APPEND : ZONDA_WRITE;
        command.lba = i % 2 ? zone : zone + (uint64_t)i;
        command.blocks = 1;
        command.data = data[i];
        command.data_bytes = geometry.block_size_bytes;
        command.user_data = &data[i];
        CHECK(zonda_submit(ns, &command) == 0);
    }
    CHECK(zonda_outstanding(ns) == DEPTH);
    CHECK(zonda_kick(ns) == 0);
    while (seen != (1 << DEPTH) - 1) {
        count = zonda_wait(ns, 1, 3, 1000000000, results);
        CHECK(count >= 1 && count <= 3);
        for (i = 0; i < count; i++) {
            int index = (int)((unsigned char **)results[i].user_data - data);
            CHECK(results[i].error == 0 && results[i].status == 0);
            CHECK(results[i].bytes == geometry.block_size_bytes);
            CHECK(results[i].lba == (index % 2 ? zone + (uint64_t)index : 0));
            CHECK(!(seen & 1 << index));
            seen |= 1 << index;
        }
    }
    CHECK(zonda_outstanding(ns) == 0);
    CHECK(zonda_wait(ns, 1, 1, -1, results) == 0);

    for (i = 0; i < DEPTH; i++) {
        memset(data[i], 0, geometry.block_size_bytes);
        memset(&command, 0, sizeof command);
        command.opcode = ZONDA_READ;
        command.lba = zone + (uint64_t)i;
        command.blocks = 1;
        command.data = data[i];
        command.data_bytes = geometry.block_size_bytes;
        CHECK(zonda_submit(ns, &command) == 0);
    }
    /* In between, a synchronous call. */
    CHECK(zonda_flush(ns) == 0);
    for (count = 0; count < DEPTH; count += i) {
        i = zonda_wait(ns, 0, DEPTH, 0, results);
        CHECK(i >= 0);
    }
    for (i = 0; i < DEPTH; i++)
        CHECK(data[i][0] == 'A' + i && data[i][geometry.block_size_bytes - 1] == 'A' + i);

    memset(&command, 0, sizeof command);
    command.opcode = ZONDA_ZONE_RESET;
    command.lba = zone + 1;
    CHECK(zonda_execute(ns, &command, &results[0]) == -EOPNOTSUPP);
    CHECK(results[0].status == 0x002 && results[0].error == EOPNOTSUPP);
    command.lba = zone;
    CHECK(zonda_execute(ns, &command, NULL) == 0);
    for (i = 0; i < DEPTH; i++)
        free(data[i]);
}

static void limits(zonda_namespace *ns)
{
    uint32_t zone;
    int error = 0;

    if (geometry.max_active_zones == 0)
        return;
    for (zone = 0; zone < geometry.zone_count && error == 0; zone++)
        error = zonda_manage_zone(ns, ZONDA_ZONE_OPEN, zone * geometry.zone_size_blocks);
    CHECK(error == -ETOOMANYREFS || error == -EOVERFLOW);
    CHECK(zonda_manage_all_zones(ns, ZONDA_ZONE_RESET) == 0);
    CHECK(zonda_manage_all_zones(ns, ZONDA_ZONE_CLOSE) == 0);
    CHECK(zonda_manage_all_zones(ns, ZONDA_ZONE_RESET) == 0);
}

static void invalid_arguments(zonda_namespace *ns, const char *location)
{
    zonda_options options = ZONDA_OPTIONS_INIT;
    zonda_namespace *other = NULL;
    zonda_command command;

    CHECK(zonda_open(NULL, NULL, &other) == -EINVAL && other == NULL);
    CHECK(zonda_open(location, NULL, NULL) == -EINVAL);
    CHECK(zonda_open("http://localhost/", NULL, &other) == -EINVAL);
    CHECK(strlen(zonda_error_remedy()) > 0);
    options.api_version = 77;
    CHECK(zonda_open(location, &options, &other) == -EINVAL);
    CHECK(strstr(zonda_error_message(), "77") != NULL);
    options.api_version = ZONDA_API_VERSION;
    options.secret = "guess";
    CHECK(zonda_open(location, &options, &other) == -EINVAL);
    options.secret = NULL;
    options.host_nqn = "me";
    CHECK(zonda_open(location, &options, &other) == -EINVAL);
    CHECK(zonda_read(NULL, 0, &options, 512) == -EINVAL);
    CHECK(zonda_read(ns, 0, NULL, 512) == -EINVAL);
    CHECK(zonda_wait(ns, 1, 1, 0, NULL) == -EINVAL);
    CHECK(zonda_submit(ns, NULL) == -EINVAL);
    memset(&command, 0, sizeof command);
    CHECK(zonda_submit(ns, &command) == -EINVAL);
    command.opcode = ZONDA_READ;
    command.blocks = 1;
    command.data = &options;
    command.data_bytes = 1;
    CHECK(zonda_submit(ns, &command) == -EINVAL);
    CHECK(zonda_report_zones(ns, UINT64_MAX, 0, NULL, 1) == -EINVAL);
    CHECK(zonda_close(NULL) == 0);
    CHECK(zonda_outstanding(ns) == 0);
}

struct thread {
    pthread_t thread;
    const char *location;
    uint64_t zone;
};

/* Another handle on the same image, in another thread. */
static void *concurrent_thread(void *argument)
{
    struct thread *thread = (struct thread *)argument;
    zonda_namespace *ns;
    int round;

    CHECK(zonda_open(thread->location, NULL, &ns) == 0);
    for (round = 0; round < 10; round++) {
        synchronous(ns, thread->zone);
        asynchronous(ns, thread->zone);
    }
    CHECK(zonda_close(ns) == 0);
    return NULL;
}

static void *wrong_thread(void *argument)
{
    CHECK(zonda_flush((zonda_namespace *)argument) == -EPERM);
    CHECK(zonda_close((zonda_namespace *)argument) == -EPERM);
    return NULL;
}

int main(int argc, char **argv)
{
    zonda_options options = ZONDA_OPTIONS_INIT;
    zonda_namespace *ns, *second;
    struct thread threads[2];
    pthread_t thread;
    uint64_t size;
    int i;

    CHECK(argc == 2);
    CHECK(zonda_api_version() == ZONDA_API_VERSION);
    printf("%zu %zu %zu %zu %zu\n", sizeof(zonda_options), sizeof(zonda_geometry), sizeof(zonda_zone),
           sizeof(zonda_command), sizeof(zonda_result));

    CHECK(zonda_open(argv[1], NULL, &ns) == 0);
    CHECK(zonda_get_geometry(ns, &geometry) == 0);
    size = geometry.zone_size_blocks;
    CHECK(zonda_manage_all_zones(ns, ZONDA_ZONE_RESET) == 0);
    invalid_arguments(ns, argv[1]);
    synchronous(ns, 0);
    long_transfers(ns, size);
    asynchronous(ns, 0);
    limits(ns);
    for (i = 0; i < 2; i++) {
        threads[i].location = argv[1];
        threads[i].zone = size * (uint64_t)(i + 1);
        CHECK(pthread_create(&threads[i].thread, NULL, concurrent_thread, &threads[i]) == 0);
    }
    for (i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i].thread, NULL) == 0);

    options.sharing = ZONDA_SHARE_NO;
    if (strstr(argv[1], "://") == NULL) {
        CHECK(zonda_open(argv[1], &options, &second) == -EIO && second == NULL);
        CHECK(strstr(zonda_error_message(), "in use") != NULL);
    }
    CHECK(zonda_close(ns) == 0);

    CHECK(zonda_open(argv[1], &options, &ns) == 0);
    synchronous(ns, 0);
    long_transfers(ns, size);
    asynchronous(ns, 0);
    limits(ns);
    CHECK(pthread_create(&thread, NULL, wrong_thread, ns) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(zonda_close(ns) == 0);
    printf("fine\n");
    return 0;
}
