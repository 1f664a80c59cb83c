// Remote calls to the DSP, session control and memory mapping. C and C++.
//
// Only what upstream's Hexagon host code uses. The declarations below "not public" exist so that it compiles: their
// values and layouts are ours, so they are never passed to a real driver. Our build keeps them from it by setting
// upstream's `remote_system_request_pfn` to null before the backend is registered, and with GGML_HEXAGON_DMA64=0.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "AEEStdDef.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t remote_handle;
typedef uint64_t remote_handle64;

typedef struct {
  void* pv;
  size_t nLen;
} remote_buf;

typedef union {
  remote_buf buf;
  remote_handle h;
  remote_handle64 h64;
} remote_arg;

// The head word of a call: which method, and how many buffers and handles go in and out.
#define REMOTE_SCALARS_MAKEX(attributes, method, in, out, handles_in, handles_out)                               \
  ((((uint32_t)(attributes)&0x7u) << 29) | (((uint32_t)(method)&0x1fu) << 24) | (((uint32_t)(in)&0xffu) << 16) | \
   (((uint32_t)(out)&0xffu) << 8) | (((uint32_t)(handles_in)&0xfu) << 4) | ((uint32_t)(handles_out)&0xfu))
#define REMOTE_SCALARS_METHOD(scalars) (((scalars) >> 24) & 0x1fu)
#define REMOTE_SCALARS_INBUFS(scalars) (((scalars) >> 16) & 0xffu)
#define REMOTE_SCALARS_OUTBUFS(scalars) (((scalars) >> 8) & 0xffu)
#define REMOTE_SCALARS_INHANDLES(scalars) (((scalars) >> 4) & 0xfu)
#define REMOTE_SCALARS_OUTHANDLES(scalars) ((scalars)&0xfu)

#define CDSP_DOMAIN_ID 3
#define CDSP1_DOMAIN_ID 4
#define CDSP_DOMAIN_NAME "cdsp"

// A processor and the suffix that selects it in the URI of a module. The table is in domain.h.
struct domain {
  int id;
  char uri[16];
};
#ifndef __cplusplus  // in C++ a second name would make every parameter `domain` shadow it
typedef struct domain domain;
#endif

// Requests of remote_handle_control and remote_handle64_control.
enum handle_control_req_id {
  DSPRPC_CONTROL_LATENCY = 1,
  DSPRPC_GET_DSP_INFO = 2,
};

// Requests of remote_session_control.
enum session_control_req_id {
  DSPRPC_CONTROL_UNSIGNED_MODULE = 2,
  FASTRPC_RESERVE_NEW_SESSION = 13,
  FASTRPC_GET_EFFECTIVE_DOMAIN_ID = 14,
  FASTRPC_GET_URI = 15,
};

// Values of remote_dsp_capability.attribute_ID.
enum remote_dsp_attributes {
  ARCH_VER = 6,
};

struct remote_rpc_control_latency {
  uint32_t enable;
  uint32_t latency;
};

typedef struct remote_dsp_capability {
  uint32_t domain;
  uint32_t attribute_ID;
  uint32_t capability;
} remote_dsp_capability;

struct remote_rpc_control_unsigned_module {
  int domain;
  int enable;
};

struct remote_rpc_reserve_new_session {
  char* domain_name;
  uint32_t domain_name_len;
  char* session_name;
  uint32_t session_name_len;
  uint32_t effective_domain_id;  // out
  uint32_t session_id;           // out
};

struct remote_rpc_effective_domain_id {
  char* domain_name;
  uint32_t domain_name_len;
  uint32_t session_id;
  uint32_t effective_domain_id;  // out
};

struct remote_rpc_get_uri {
  char* domain_name;
  uint32_t domain_name_len;
  uint32_t session_id;
  char* module_uri;
  uint32_t module_uri_len;
  char* uri;  // out, at most uri_len bytes
  uint32_t uri_len;
};

enum fastrpc_map_flags {
  FASTRPC_MAP_FD = 2,
  FASTRPC_MAP_FD_DELAYED = 3,
  FASTRPC_MAP_FD_DELAYED_EXTENDED = 0x7fff0001,  // not public
};

int fastrpc_mmap(int domain, int fd, void* addr, int offset, size_t length, enum fastrpc_map_flags flags);
int fastrpc_munmap(int domain, int fd, void* addr, size_t length);
int remote_handle64_open(const char* name, remote_handle64* handle);
int remote_handle64_invoke(remote_handle64 handle, uint32_t scalars, remote_arg* arguments);
int remote_handle64_close(remote_handle64 handle);
int remote_handle_control(uint32_t request, void* data, uint32_t data_length);
int remote_handle64_control(remote_handle64 handle, uint32_t request, void* data, uint32_t data_length);
int remote_session_control(uint32_t request, void* data, uint32_t data_length);

// Not public, see the top of this file.
#define FASTRPC_GET_DOMAINS 0x7fff0002
#define FASTRPC_NSP 0x7fff0003
#define DOMAINS_LIST_FLAGS_SET_TYPE(flags, type) ((flags) | (type))

typedef struct fastrpc_domain {
  int id;
  char name[32];
  int type;
  int status;
  int instance_id;
} fastrpc_domain;

typedef struct system_req_payload {
  int id;
  struct {
    fastrpc_domain* domains;
    int max_domains;
    int num_domains;
    int flags;
  } sys;
} system_req_payload;

#ifdef __cplusplus
}
#endif
