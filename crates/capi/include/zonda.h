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
 * zonda_error_remedy() then describe the error and its remedy. Status codes of the drive are mapped to the errno that
 * Linux's block layer uses for them: ETOOMANYREFS for the limit on open zones, EOVERFLOW for the limit on active zones,
 * EREMOTEIO for blocks beyond the end, ENODATA for a medium error, EOPNOTSUPP for an invalid field, EIO for the other zone
 * errors (boundary, full, read only, offline, invalid write, invalid transition). The exact code is in zonda_result.
 *
 * Threads. A handle may be used by one thread at a time; a concurrent call from another thread fails with -EBUSY. A
 * handle that is not shared (see zonda_options.sharing) is bound to the thread that opened it: calls from others fail
 * with -EPERM. Any number of handles may be open, also on one namespace. After fork() only the parent may use the open
 * handles.
 *
 * Memory. A buffer passed to zonda_submit belongs to the library until zonda_wait has returned the command's result: it
 * must neither be freed nor changed by the caller (nor read, for a command that reads). Data are written from the
 * caller's buffer without a copy, and read with one copy. NULL is refused where a pointer is required.
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

/* The version of this interface. It changes when a program that was compiled against an older one would break. */
#define ZONDA_API_VERSION 1u

/* The version of the interface that the library implements. Compare it with ZONDA_API_VERSION when the library is loaded. */
uint32_t zonda_api_version(void);

/* An open namespace. */
typedef struct zonda_namespace zonda_namespace;

/* ---- Errors ---------------------------------------------------------------------------------------------------------- */

/* The error of this thread's last failing call; never NULL, valid until this thread's next failing call. */
const char *zonda_error_message(void);

/* The remedy for that error; may be empty. Otherwise as above. */
const char *zonda_error_remedy(void);

/* The name of a zonda_result.status; a constant. */
const char *zonda_status_text(uint16_t status);

/* ---- Opening --------------------------------------------------------------------------------------------------------- */

/* Values of zonda_options.sharing. */
enum {
    /* Images are shared, servers are not. */
    ZONDA_SHARE_AUTO = 0,
    /* One thread of the library owns the image or the connection; all handles of this process that open the same
    * namespace with the same options share it. The handle may move between threads. A command costs two more thread
    * switches. */
    ZONDA_SHARE_YES = 1,
    /* The handle owns the image or the connection, in the thread that opened it. Fastest; the image can then not be
    * opened a second time, by this or any other process. */
    ZONDA_SHARE_NO = 2
};

/* Options of zonda_open. Initialize with ZONDA_OPTIONS_INIT. */
typedef struct zonda_options {
    /* ZONDA_API_VERSION. */
    uint32_t api_version;
    /* ZONDA_SHARE_... */
    uint32_t sharing;
    /* The Host NQN for a server, "nqn.2014-08.org.nvmexpress:uuid:..."; NULL: one is generated. */
    const char *host_nqn;
    /* DH-HMAC-CHAP secrets, "DHHC-1:...", or NULL: of the host, and of the controller (bidirectional authentication). */
    const char *secret;
    const char *controller_secret;
    /* Not 0: header and data digests on the connection. */
    uint32_t digests;
    /* I/O queues (connections) to a server; 0: 1. */
    uint16_t io_queues;
    /* Outstanding commands of each queue; 0: 128. Images have one queue. */
    uint16_t queue_depth;
    /* Timeout for connecting to a server; 0: 10 seconds. */
    uint32_t connect_timeout_ms;
    /* How long to poll for completions before sleeping: lower latency for more CPU time. */
    uint32_t spin_us;
    /* Must be 0. */
    uint64_t reserved[4];
    } zonda_options;

#define ZONDA_OPTIONS_INIT \
    { ZONDA_API_VERSION, ZONDA_SHARE_AUTO, NULL, NULL, NULL, 0, 0, 0, 0, 0, { 0, 0, 0, 0 } }

/*
 * Opens the namespace at `location`: the path of an image directory, or nvme-tcp://HOST[:PORT]/NQN[?namespace=N].
 * `options` may be NULL. On success *out is a handle for zonda_close; otherwise NULL.
 * -EINVAL: invalid argument; -ENOENT: no such directory; -EIO: any other error, see zonda_error_message().
 */
int zonda_open(const char *location, const zonda_options *options, zonda_namespace **out);

/*
 * Waits for outstanding commands, discards their results, and closes the handle. The last handle on an image shuts it
 * down cleanly, so that opening it again needs no recovery; no acknowledged write is lost in any case.
 * The handle is closed even on an error, except for -EBUSY, -EPERM (see above) and -ETIMEDOUT: commands did not complete
 * within 60 seconds; their buffers are still in use. NULL is allowed.
 */
int zonda_close(zonda_namespace *ns);

/* ---- Geometry -------------------------------------------------------------------------------------------------------- */

typedef struct zonda_geometry {
    /* Bytes of a logical block: a power of two, 512 to 65536. */
    uint32_t block_size_bytes;
    /* Bytes of metadata with each block, 0 to 64. */
    uint32_t metadata_bytes;
    /* Zone size and zone capacity. */
    uint64_t zone_size_blocks;
    uint64_t zone_capacity_blocks;
    /* All zones, and the conventional zones among them, which come first. */
    uint32_t zone_count;
    uint32_t conventional_zone_count;
    /* Limits on active and open zones; 0: no limit. */
    uint32_t max_active_zones;
    uint32_t max_open_zones;
    /* Blocks of one read or write, and of one append. */
    uint64_t max_transfer_blocks;
    uint64_t max_append_blocks;
    /* Zone Random Write Areas: size, flush granularity, number; all 0 if not supported. */
    uint64_t zrwa_size_blocks;
    uint64_t zrwa_flush_granularity_blocks;
    uint32_t zrwa_count;
    /* Not 0: a read may cross a zone boundary. */
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

/* The write pointer of zones without one: conventional, full, read only and offline zones. */
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
 * Reports zones from the one that contains the block `lba` on, at most `max`; with `state` not 0 only those in that state.
 * Returns their number. The effect of outstanding commands on the report is undefined.
 */
int zonda_report_zones(zonda_namespace *ns, uint64_t lba, uint8_t state, zonda_zone *zones, uint32_t max);

/* ---- Synchronous calls ----------------------------------------------------------------------------------------------- */

/* These wait for completion, and may be mixed with outstanding commands. `bytes` is a multiple of the block size, greater
* than 0. Blocks that were never written read as zeros. Metadata are written as zeros and not read: use zonda_execute for
* them. Reads and writes longer than one command are split; if one part fails, the parts before it are complete. */

int zonda_read(zonda_namespace *ns, uint64_t lba, void *data, size_t bytes);
int zonda_write(zonda_namespace *ns, uint64_t lba, const void *data, size_t bytes);

/* Appends to the zone that starts at `zone`; *lba (if not NULL) is set to the LBA of the data. At most max_append_blocks. */
int zonda_append(zonda_namespace *ns, uint64_t zone, const void *data, size_t bytes, uint64_t *lba);

/* Makes acknowledged writes durable: they survive a loss of power. */
int zonda_flush(zonda_namespace *ns);

/* Deallocates blocks, which then read as zeros. Write pointers do not change. */
int zonda_deallocate(zonda_namespace *ns, uint64_t lba, uint64_t blocks);

/* Zone Management Send for one zone, by its first block; `opcode` is one of ZONDA_ZONE_OPEN, CLOSE, FINISH, RESET, OFFLINE. */
int zonda_manage_zone(zonda_namespace *ns, uint32_t opcode, uint64_t zone);

/* Zone Management Send with Select All. */
int zonda_manage_all_zones(zonda_namespace *ns, uint32_t opcode);

/* ---- Asynchronous commands ------------------------------------------------------------------------------------------- */

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
    /* Zone management: Select All; `lba` is ignored. */
    ZONDA_ALL_ZONES = 1,
    /* ZONDA_ZONE_OPEN: allocate a Zone Random Write Area. */
    ZONDA_ALLOCATE_ZRWA = 2
};

/* A command. Initialize with zeros. */
typedef struct zonda_command {
    uint32_t opcode;
    uint32_t flags;
    /* First block; the zone's first block for appends and zone management. */
    uint64_t lba;
    /* Number of blocks; reads, writes and appends: 1 to the geometry's limit. Ignored for flush and zone management. */
    uint64_t blocks;
    /* Reads, writes and appends: exactly blocks x block_size_bytes. Otherwise ignored. */
    void *data;
    size_t data_bytes;
    /* Reads, writes and appends of a namespace with metadata: exactly blocks x metadata_bytes, or NULL and 0: written as
     * zeros, not read. */
    void *metadata;
    size_t metadata_bytes;
    /* Returned in the result. */
    void *user_data;
    /* Must be 0. */
    uint64_t reserved[2];
} zonda_command;

/* Value of zonda_result.status that no drive returns. */
#define ZONDA_STATUS_NONE 0xffffu

/* The completion of a command. */
typedef struct zonda_result {
    void *user_data;
    /* Bytes of data transferred: all of them, or 0. */
    uint64_t bytes;
    /* The LBA that an append was written to; 0 for other commands. */
    uint64_t lba;
    /* 0, or a positive errno. */
    int32_t error;
    /* NVMe status: code type and code, 0xTCC; 0 is success. ZONDA_STATUS_NONE: the command did not reach a drive. */
    uint16_t status;
    uint16_t reserved;
} zonda_result;

/*
 * Submits a command. It is sent with the next zonda_kick or zonda_wait; commands of one handle reach the drive, and take
 * effect, in the order in which they were submitted. Results may arrive in another order.
 * -EAGAIN: the queue is full (io_queues x queue_depth commands are outstanding): wait first. -EINVAL: invalid command.
 */
int zonda_submit(zonda_namespace *ns, const zonda_command *command);

/* Sends submitted commands, without waiting. */
int zonda_kick(zonda_namespace *ns);

/*
 * Waits until `min` commands have completed or the timeout expires (less than 0: no timeout; 0: does not wait), and writes
 * up to `max` results. If fewer than `min` commands are outstanding, waits for those. Returns the number of results.
 */
int zonda_wait(zonda_namespace *ns, uint32_t min, uint32_t max, int64_t timeout_ns, zonda_result *results);

/* The number of submitted commands whose results zonda_wait has not returned. */
uint32_t zonda_outstanding(zonda_namespace *ns);

/*
 * Executes one command, and waits for its completion. `result` may be NULL. Returns 0 or the negative zonda_result.error.
 */
int zonda_execute(zonda_namespace *ns, const zonda_command *command, zonda_result *result);

#ifdef __cplusplus
}
#endif

#endif
