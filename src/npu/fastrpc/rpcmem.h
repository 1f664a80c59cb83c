// Memory that both the host and the DSP can address. C and C++.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RPCMEM_HEAP_ID_SYSTEM 25
#define RPCMEM_DEFAULT_FLAGS 1

// Page-aligned memory of `size` bytes, or NULL. The caller returns it with rpcmem_free.
void* rpcmem_alloc(int heap_id, uint32_t flags, int size);
// The same beyond 2 GiB. Optional in the driver: older ones do not have it.
void* rpcmem_alloc2(int heap_id, uint32_t flags, size_t size);
void rpcmem_free(void* memory);
// The file descriptor behind `memory`, or -1. It belongs to the allocation: never close it.
int rpcmem_to_fd(void* memory);

#ifdef __cplusplus
}
#endif
