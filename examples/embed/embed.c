/* Appends a block to the first empty zone of a namespace, and reads it back. */
#include "zonda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s (%s)\n", what, zonda_error_message(), zonda_error_remedy());
    return 1;
}

int main(int argc, char **argv)
{
    zonda_namespace *ns;
    zonda_geometry geometry;
    zonda_zone zone;
    unsigned char *written, *read;
    uint64_t lba;
    size_t bytes;

    if (argc != 2) {
        fprintf(stderr, "usage: embed DIR | nvme-tcp://HOST:PORT/NQN\n");
        return 2;
    }
    if (zonda_open(argv[1], NULL, &ns) < 0)
        return failed(argv[1]);
    if (zonda_get_geometry(ns, &geometry) < 0)
        return failed("geometry");
    if (zonda_report_zones(ns, 0, ZONDA_STATE_EMPTY, &zone, 1) < 1) {
        fprintf(stderr, "no zone is empty\n");
        return 1;
    }

    bytes = geometry.block_size_bytes;
    written = (unsigned char *)malloc(bytes);
    read = (unsigned char *)malloc(bytes);
    if (written == NULL || read == NULL)
        return 1;
    memset(written, 0x5a, bytes);
    if (zonda_append(ns, zone.start, written, bytes, &lba) < 0)
        return failed("append");
    if (zonda_flush(ns) < 0) /* from here on the block survives a loss of power */
        return failed("flush");
    if (zonda_read(ns, lba, read, bytes) < 0)
        return failed("read");
    if (memcmp(written, read, bytes) != 0) {
        fprintf(stderr, "LBA %llu has other contents\n", (unsigned long long)lba);
        return 1;
    }
    if (zonda_close(ns) < 0)
        return failed("close");
    printf("LBA %llu: appended and read back\n", (unsigned long long)lba);
    free(written);
    free(read);
    return 0;
}
