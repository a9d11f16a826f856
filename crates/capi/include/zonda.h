/*
 * zonda.h: zoned namespaces (NVMe ZNS) for programs in C and C++.
 *
 * A namespace is an image directory on this machine, or behind an NVMe/TCP server:
 *
 *     zonda_namespace *ns;
 *     if (zonda_open("drives/a", NULL, &ns) < 0) {
 *         fprintf(stderr, "%s (%s)\n", zonda_error_message(), zonda_error_remedy());
 *         return 1;
 *     }
 *
 * Return values. Functions that return int return 0 or a count, or a negative errno; zonda_error_message() and
 * zonda_error_remedy() then say in words what is wrong and what to do. Status codes of the drive become the errno that
 * Linux's block layer gives for them: ETOOMANYREFS for the limit on open zones, EOVERFLOW for the limit on active zones,
 * EREMOTEIO for blocks beyond the end, ENODATA for a medium error, EOPNOTSUPP for an invalid field, EIO for the other zone
 * errors (boundary, full, read only, offline, invalid write, invalid transition). The exact code is in zonda_result.
 *
 * Threads. A handle belongs to one thread at a time; a second one that comes at the same moment is turned away with
 * -EBUSY. A handle that is not shared (see zonda_options.sharing) is bound to the thread that opened it: calls from
 * others end with -EPERM. Any number of handles may be open, on one namespace too. After fork() only the parent may use
 * the handles that were open.
 *
 * Memory. A buffer given to zonda_submit belongs to the library until zonda_wait has returned the command's result: its
 * bytes must neither be freed, nor changed by the caller (nor read, for a command that reads). Data are written from the
 * caller's buffer without a copy, and read with one copy. NULL is refused where a pointer is needed.
 *
 * All sizes of the namespace are in logical blocks unless a name ends in _bytes.
 *
 * Apache-2.0.
 */
#ifndef ZONDA_H
#define ZONDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. It changes when a program that was compiled against an older one would go wrong. */
#define ZONDA_API_VERSION 1u

/* The version of the interface that the library has. Compare it with ZONDA_API_VERSION when the library is loaded. */
uint32_t zonda_api_version(void);

/* A namespace that is open. */
typedef struct zonda_namespace zonda_namespace;

/* ---- Errors ---------------------------------------------------------------------------------------------------------- */

/* What was wrong with the last call of this thread that failed; never NULL, valid until this thread's next failing call. */
const char *zonda_error_message(void);

/* What to do about it; may be empty. Otherwise as above. */
const char *zonda_error_remedy(void);

/* Words for zonda_result.status; a constant. */
const char *zonda_status_text(uint16_t status);

/* ---- Opening --------------------------------------------------------------------------------------------------------- */

/* Values of zonda_options.sharing. */
enum {
    /* Images are shared, servers are not. */
    ZONDA_SHARE_AUTO = 0,
    /* One thread of the library has the image or the connection; all handles of this process that ask for the same
     * namespace in the same way speak to it. The handle may move between threads. A command costs two hops between
     * threads more. */
    ZONDA_SHARE_YES = 1,
    /* The handle has the image or the connection for itself, in the thread that opened it. Fastest; an image can then not
     * be opened a second time by anybody. */
    ZONDA_SHARE_NO = 2
};

/* How to open. Begin with ZONDA_OPTIONS_INIT. */
typedef struct zonda_options {
    /* ZONDA_API_VERSION. */
    uint32_t api_version;
    /* ZONDA_SHARE_... */
    uint32_t sharing;
    /* The name under which to connect to a server, "nqn.2014-08.org.nvmexpress:uuid:..."; NULL: one is made. */
    const char *host_nqn;
    /* DH-HMAC-CHAP secrets, "DHHC-1:...", or NULL: the host's, and the one that the server must prove to know. */
    const char *secret;
    const char *controller_secret;
    /* Not 0: digests over headers and data on the connection. */
    uint32_t digests;
    /* I/O queues (connections) to a server; 0 is 1. */
    uint16_t io_queues;
    /* Commands under way in each queue; 0 is 128. Images have one queue. */
    uint16_t queue_depth;
    /* How long to wait for a server at first; 0 is 10 seconds. */
    uint32_t connect_timeout_ms;
    /* How long to look for an answer before sleeping: saves microseconds, takes a processor. */
    uint32_t spin_us;
    /* 0. */
    uint64_t reserved[4];
} zonda_options;

#define ZONDA_OPTIONS_INIT \
    { ZONDA_API_VERSION, ZONDA_SHARE_AUTO, NULL, NULL, NULL, 0, 0, 0, 0, 0, { 0, 0, 0, 0 } }

/*
 * Opens the namespace at `location`: the path of an image directory, or nvme-tcp://HOST[:PORT]/NQN[?namespace=N].
 * `options` may be NULL. On success *out is a handle for zonda_close; otherwise NULL.
 * -EINVAL: what was asked for makes no sense; -ENOENT: no such directory; -EIO: everything else, in words.
 */
int zonda_open(const char *location, const zonda_options *options, zonda_namespace **out);

/*
 * Waits for what is under way, whose results are lost, and closes. The last handle on an image brings it to rest, so that
 * opening it again needs no recovery; whatever the result is, nothing that was acknowledged is lost.
 * The handle is gone, also on an error, except for -EBUSY, -EPERM (see above) and -ETIMEDOUT: commands did not end within
 * 60 seconds; their buffers are still in use. NULL is allowed.
 */
int zonda_close(zonda_namespace *ns);

/* ---- Shape ----------------------------------------------------------------------------------------------------------- */

typedef struct zonda_geometry {
    /* Bytes of a logical block: a power of two, 512 to 65536. */
    uint32_t block_size_bytes;
    /* Bytes of metadata with each block, 0 to 64. */
    uint32_t metadata_bytes;
    /* Blocks from one zone's start to the next, and how many of them can be written. */
    uint64_t zone_size_blocks;
    uint64_t zone_capacity_blocks;
    /* All zones, and those of them, at the start, that take random writes. */
    uint32_t zone_count;
    uint32_t conventional_zone_count;
    /* Limits on zones; 0 is no limit. */
    uint32_t max_active_zones;
    uint32_t max_open_zones;
    /* Blocks of one read or write, and of one append. */
    uint64_t max_transfer_blocks;
    uint64_t max_append_blocks;
    /* Zone Random Write Areas: blocks of one, blocks committed at a time, how many; all 0 where there are none. */
    uint64_t zrwa_size_blocks;
    uint64_t zrwa_flush_granularity_blocks;
    uint32_t zrwa_count;
    /* Not 0: a read may reach over a zone's end. */
    uint32_t read_across_zones;
    uint64_t reserved[4];
} zonda_geometry;

int zonda_get_geometry(zonda_namespace *ns, zonda_geometry *geometry);

/* Values of zonda_zone.type. */
enum { ZONDA_ZONE_CONVENTIONAL = 0x1, ZONDA_ZONE_SEQUENTIAL = 0x2 };

/* Values of zonda_zone.state, as in NVMe and in ZBC. */
enum {
    ZONDA_STATE_NOT_WRITE_POINTER = 0x0,
    ZONDA_STATE_EMPTY = 0x1,
    ZONDA_STATE_IMPLICITLY_OPENED = 0x2,
    ZONDA_STATE_EXPLICITLY_OPENED = 0x3,
    ZONDA_STATE_CLOSED = 0x4,
    ZONDA_STATE_READ_ONLY = 0xd,
    ZONDA_STATE_FULL = 0xe,
    ZONDA_STATE_OFFLINE = 0xf
};

/* A write pointer where the state has none: conventional, full, read only and offline zones. */
#define ZONDA_NO_WRITE_POINTER UINT64_MAX

typedef struct zonda_zone {
    uint64_t start;
    uint64_t capacity_blocks;
    uint64_t write_pointer;
    uint8_t type;
    uint8_t state;
    /* Zone Attributes of the descriptor: bit 3, a ZRWA; bit 7, a descriptor extension. */
    uint8_t attributes;
    uint8_t reserved[5];
} zonda_zone;

/*
 * Zones from the one that holds the block `lba` on, at most `max` of them; with `state` not 0 only those in that state.
 * Returns how many. What the zones are like before commands still under way have ended is not said.
 */
int zonda_report_zones(zonda_namespace *ns, uint64_t lba, uint8_t state, zonda_zone *zones, uint32_t max);

/* ---- One thing at a time --------------------------------------------------------------------------------------------- */

/* These wait for the end of what they do, and may be mixed with commands under way. `bytes` is a multiple of the block
 * size, more than 0. Blocks that were never written read as zeros. Metadata are written as zeros and not read: use
 * zonda_execute for them. Reads and writes of more than one command can take are cut into several; when one of them fails,
 * those before it are done. */

int zonda_read(zonda_namespace *ns, uint64_t lba, void *data, size_t bytes);
int zonda_write(zonda_namespace *ns, uint64_t lba, const void *data, size_t bytes);

/* Appends to the zone that starts at `zone`; *lba (if not NULL) tells where the data are. At most max_append_blocks. */
int zonda_append(zonda_namespace *ns, uint64_t zone, const void *data, size_t bytes, uint64_t *lba);

/* What was acknowledged survives a loss of power from now on. */
int zonda_flush(zonda_namespace *ns);

/* Makes blocks read as zeros. Write pointers stay. */
int zonda_deallocate(zonda_namespace *ns, uint64_t lba, uint64_t blocks);

/* One zone, by its first block; `opcode` is one of ZONDA_ZONE_OPEN, CLOSE, FINISH, RESET, OFFLINE. */
int zonda_manage_zone(zonda_namespace *ns, uint32_t opcode, uint64_t zone);

/* Every zone in a state that the action applies to. */
int zonda_manage_all_zones(zonda_namespace *ns, uint32_t opcode);

/* ---- Many things at a time ------------------------------------------------------------------------------------------- */

/* Values of zonda_command.opcode. */
enum {
    ZONDA_READ = 1,
    ZONDA_WRITE = 2,
    ZONDA_APPEND = 3,
    ZONDA_WRITE_ZEROES = 4,
    ZONDA_DEALLOCATE = 5,
    ZONDA_FLUSH = 6,
    ZONDA_ZONE_OPEN = 16,
    ZONDA_ZONE_CLOSE = 17,
    ZONDA_ZONE_FINISH = 18,
    ZONDA_ZONE_RESET = 19,
    ZONDA_ZONE_OFFLINE = 20,
    /* Commits a ZRWA up to and including the block `lba`. */
    ZONDA_ZONE_FLUSH_ZRWA = 21
};

/* Bits of zonda_command.flags. */
enum {
    /* Zone management: all zones; `lba` is ignored. */
    ZONDA_ALL_ZONES = 1,
    /* ZONDA_ZONE_OPEN: give the zone a Zone Random Write Area. */
    ZONDA_ALLOCATE_ZRWA = 2
};

/* A command. Begin with zeros. */
typedef struct zonda_command {
    uint32_t opcode;
    uint32_t flags;
    /* First block; the zone's first block for appends and zone management. */
    uint64_t lba;
    /* How many; reads, writes and appends: 1 to the geometry's limit. Ignored for flush and zone management. */
    uint64_t blocks;
    /* Reads, writes and appends: exactly blocks x block_size_bytes. Otherwise ignored. */
    void *data;
    size_t data_bytes;
    /* Reads, writes and appends of a namespace with metadata: exactly blocks x metadata_bytes, or NULL and 0: written as
     * zeros, not read. */
    void *metadata;
    size_t metadata_bytes;
    /* Comes back in the result. */
    void *user_data;
    /* 0. */
    uint64_t reserved[2];
} zonda_command;

/* Values of zonda_result.status that no drive gives. */
#define ZONDA_STATUS_NONE 0xffffu

/* The end of a command. */
typedef struct zonda_result {
    void *user_data;
    /* Bytes of data moved: all of them, or 0. */
    uint64_t bytes;
    /* Where an append went; 0 otherwise. */
    uint64_t lba;
    /* 0, or an errno, positive. */
    int32_t error;
    /* NVMe status: code type and code, 0xTCC; 0 is success. ZONDA_STATUS_NONE: the command never met a drive. */
    uint16_t status;
    uint16_t reserved;
} zonda_result;

/*
 * Takes a command. It goes on its way with the next zonda_kick or zonda_wait; commands of one handle reach the drive in the
 * order in which they were submitted, and take effect in it. Results may come in another order.
 * -EAGAIN: as many are under way as the handle has room for (io_queues x queue_depth): wait first. -EINVAL: the command
 * cannot be.
 */
int zonda_submit(zonda_namespace *ns, const zonda_command *command);

/* Sends what was submitted, and does not wait. */
int zonda_kick(zonda_namespace *ns);

/*
 * Waits until `min` commands have ended or the time is over (less than 0: no limit; 0: does not wait), and writes up to
 * `max` results. Fewer than `min` come when fewer are under way. Returns how many.
 */
int zonda_wait(zonda_namespace *ns, uint32_t min, uint32_t max, int64_t timeout_ns, zonda_result *results);

/* Commands submitted whose results zonda_wait has not returned. */
uint32_t zonda_outstanding(zonda_namespace *ns);

/*
 * Carries one command out, and waits for its end. `result` may be NULL. Returns 0 or what zonda_result.error says, negative.
 */
int zonda_execute(zonda_namespace *ns, const zonda_command *command, zonda_result *result);

#ifdef __cplusplus
}
#endif

#endif
