// What registered buffers save: random O_DIRECT reads or writes of a block device with 32 outstanding, on
// io_uring, in turns with READ or WRITE and with READ_FIXED or WRITE_FIXED over the same buffers.
//
//   cc -O2 -o registered_buffers bench/registered_buffers.c
//   ./registered_buffers DEVICE BYTES OPERATIONS read|write ROUNDS    (write destroys the data of DEVICE)
//
// docs/decisions/0027-registered-buffers.md has results.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define DEPTH 32

static double seconds(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void *mapped(int ring, size_t bytes, off_t what) {
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, what);
}

int main(int count, char **arguments) {
    if (count != 6) return fprintf(stderr, "DEVICE BYTES OPERATIONS read|write ROUNDS\n"), 2;
    unsigned length = atoi(arguments[2]);
    long operations = atol(arguments[3]);
    int writes = strcmp(arguments[4], "write") == 0, rounds = atoi(arguments[5]);
    int file = open(arguments[1], (writes ? O_RDWR : O_RDONLY) | O_DIRECT);
    if (file < 0) return perror("open"), 1;
    long places = lseek(file, 0, SEEK_END) / length;

    struct io_uring_params params = {0};
    int ring = syscall(__NR_io_uring_setup, 2 * DEPTH, &params);
    if (ring < 0) return perror("io_uring_setup"), 1;
    char *sq = mapped(ring, params.sq_off.array + params.sq_entries * 4, IORING_OFF_SQ_RING);
    char *cq = mapped(ring, params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
    struct io_uring_sqe *entries = mapped(ring, params.sq_entries * sizeof *entries, IORING_OFF_SQES);
    struct io_uring_cqe *completions = (void *)(cq + params.cq_off.cqes);
    unsigned *sq_tail = (unsigned *)(sq + params.sq_off.tail), *sq_array = (unsigned *)(sq + params.sq_off.array);
    unsigned *cq_head = (unsigned *)(cq + params.cq_off.head), *cq_tail = (unsigned *)(cq + params.cq_off.tail);
    unsigned sq_mask = *(unsigned *)(sq + params.sq_off.ring_mask), cq_mask = *(unsigned *)(cq + params.cq_off.ring_mask);

    struct iovec buffers[DEPTH];
    for (int at = 0; at < DEPTH; at++) {
        buffers[at].iov_len = length;
        if (posix_memalign(&buffers[at].iov_base, 4096, length)) return 1;
        memset(buffers[at].iov_base, at, length);
    }
    if (syscall(__NR_io_uring_register, ring, IORING_REGISTER_BUFFERS, buffers, DEPTH) < 0) return perror("register"), 1;

    uint64_t random = 1;
    for (int round = 0; round < 2 * rounds; round++) {
        int is_fixed = round & 1, free_buffers[DEPTH], frees = DEPTH;
        for (int at = 0; at < DEPTH; at++) free_buffers[at] = at;
        long submitted = 0, ended = 0;
        double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
        while (ended < operations) {
            unsigned added = 0;
            for (; frees > 0 && submitted < operations; added++, submitted++) {
                int buffer = free_buffers[--frees];
                unsigned tail = *sq_tail, index = tail & sq_mask;
                random = random * 6364136223846793005u + 1;
                entries[index] = (struct io_uring_sqe){
                    .opcode = writes ? (is_fixed ? IORING_OP_WRITE_FIXED : IORING_OP_WRITE)
                                     : (is_fixed ? IORING_OP_READ_FIXED : IORING_OP_READ),
                    .fd = file,
                    .off = (random >> 20) % places * length,
                    .addr = (uint64_t)buffers[buffer].iov_base,
                    .len = length,
                    .buf_index = is_fixed ? buffer : 0,
                    .user_data = buffer,
                };
                sq_array[index] = index;
                __atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
            }
            syscall(__NR_io_uring_enter, ring, added, 1, IORING_ENTER_GETEVENTS, NULL, 0);
            unsigned head = *cq_head;
            for (; head != __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE); head++, ended++) {
                struct io_uring_cqe *completion = &completions[head & cq_mask];
                if (completion->res != (int)length) return fprintf(stderr, "result %d\n", completion->res), 1;
                free_buffers[frees++] = completion->user_data;
            }
            __atomic_store_n(cq_head, head, __ATOMIC_RELEASE);
        }
        wall = seconds(CLOCK_MONOTONIC) - wall, cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        printf("%s %u %s %.0f operations/s, %.0f ns of CPU time each\n", arguments[4], length,
               is_fixed ? "registered" : "plain", operations / wall, cpu / operations * 1e9);
    }
}
