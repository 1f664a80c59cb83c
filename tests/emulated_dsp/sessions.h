// Sessions and queues as the host addresses them: small numbers. Thread-safe. The codes are AEE codes.
#pragma once

#include <dspqueue.h>
#include <remote.h>

#include <cstdint>

#include "emulated_dsp/queue.h"

namespace kazeia::emulated_dsp {

int open_session(const char* uri, remote_handle64* handle);
// Also stops the session's queue if the host has not.
int close_session(remote_handle64 handle);
// The calls of the module on the DSP (htp_iface.idl): arguments are checked, then carried out.
int invoke(remote_handle64 handle, std::uint32_t scalars, remote_arg* arguments);

int create_queue(int domain, std::size_t request_bytes, std::size_t answer_bytes, dspqueue_t* queue);
int close_queue(dspqueue_t queue);
int export_queue(dspqueue_t queue, std::uint64_t* id);
// null: no such queue.
std::shared_ptr<Queue> find_queue(dspqueue_t queue);

// The domain number of "cdsp", "cdsp1"; -1 for others.
int domain_named(const char* name, std::size_t length);

}  // namespace kazeia::emulated_dsp
