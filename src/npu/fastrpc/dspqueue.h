// The packet queue between the host and the DSP. C and C++.
#pragma once

#include <stdint.h>

#include "AEEStdDef.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dspqueue* dspqueue_t;
typedef void (*dspqueue_callback_t)(dspqueue_t queue, AEEResult error, void* context);

#define DSPQUEUE_TIMEOUT_NONE 0xffffffffu

enum dspqueue_buffer_flags {
  DSPQUEUE_BUFFER_FLAG_FLUSH_SENDER = 16,
  DSPQUEUE_BUFFER_FLAG_INVALIDATE_SENDER = 32,
  DSPQUEUE_BUFFER_FLAG_FLUSH_RECIPIENT = 64,
  DSPQUEUE_BUFFER_FLAG_INVALIDATE_RECIPIENT = 128,
};

// A piece of shared memory that a packet refers to: `size` bytes from `offset` of the mapping of `fd`.
struct dspqueue_buffer {
  uint32_t fd;
  uint32_t size;
  uint32_t offset;
  uint32_t flags;  // dspqueue_buffer_flags
  union {
    void* ptr;
    uint64_t address;
  };
};

AEEResult dspqueue_create(int domain, uint32_t flags, uint32_t req_queue_size, uint32_t resp_queue_size,
                          dspqueue_callback_t packet_callback, dspqueue_callback_t error_callback,
                          void* callback_context, dspqueue_t* queue);
AEEResult dspqueue_close(dspqueue_t queue);
// The number under which the DSP side finds the queue.
AEEResult dspqueue_export(dspqueue_t queue, uint64_t* queue_id);
// Timeouts are microseconds. AEE_EEXPIRED: the queue stayed full that long.
AEEResult dspqueue_write(dspqueue_t queue, uint32_t flags, uint32_t num_buffers, struct dspqueue_buffer* buffers,
                         uint32_t message_length, const uint8_t* message, uint32_t timeout_us);
// AEE_EEXPIRED: nothing arrived in time.
AEEResult dspqueue_read(dspqueue_t queue, uint32_t* flags, uint32_t max_buffers, uint32_t* num_buffers,
                        struct dspqueue_buffer* buffers, uint32_t max_message_length, uint32_t* message_length,
                        uint8_t* message, uint32_t timeout_us);
// AEE_EWOULDBLOCK: nothing is there.
AEEResult dspqueue_read_noblock(dspqueue_t queue, uint32_t* flags, uint32_t max_buffers, uint32_t* num_buffers,
                                struct dspqueue_buffer* buffers, uint32_t max_message_length, uint32_t* message_length,
                                uint8_t* message);

#ifdef __cplusplus
}
#endif
