// For tests: the emulated DSP as a host program sees it, loaded with dlopen, and requests written by hand.
#pragma once

#include <AEEStdErr.h>
#include <dlfcn.h>
#include <dspqueue.h>
#include <gtest/gtest.h>
#include <remote.h>
#include <rpcmem.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emulated_dsp/records.h"
#include "emulated_dsp/stats.h"

namespace kazeia::emulated_dsp {

// The entry points, by their own names.
struct DspLibrary {
  void* handle = dlopen(KAZEIA_EMULATED_DSP, RTLD_NOW | RTLD_LOCAL);

  template <typename Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle, name));
  }
#define KAZEIA_ENTRY(name) decltype(::name)* name = find<decltype(::name)>(#name)
  KAZEIA_ENTRY(rpcmem_alloc);
  KAZEIA_ENTRY(rpcmem_alloc2);
  KAZEIA_ENTRY(rpcmem_free);
  KAZEIA_ENTRY(rpcmem_to_fd);
  KAZEIA_ENTRY(fastrpc_mmap);
  KAZEIA_ENTRY(fastrpc_munmap);
  KAZEIA_ENTRY(dspqueue_create);
  KAZEIA_ENTRY(dspqueue_close);
  KAZEIA_ENTRY(dspqueue_export);
  KAZEIA_ENTRY(dspqueue_write);
  KAZEIA_ENTRY(dspqueue_read);
  KAZEIA_ENTRY(dspqueue_read_noblock);
  KAZEIA_ENTRY(remote_handle64_open);
  KAZEIA_ENTRY(remote_handle64_invoke);
  KAZEIA_ENTRY(remote_handle64_close);
  KAZEIA_ENTRY(remote_handle_control);
  KAZEIA_ENTRY(remote_handle64_control);
  KAZEIA_ENTRY(remote_session_control);
#undef KAZEIA_ENTRY

  kazeia_emulated_dsp_counters counters() const {
    kazeia_emulated_dsp_counters all{};
    find<void(kazeia_emulated_dsp_counters*)>("kazeia_emulated_dsp_stats")(&all);
    return all;
  }

  static const DspLibrary& get() {
    static const DspLibrary library;
    return library;
  }
};

// Sets variables for the time of its life.
class Environment {
 public:
  using Variable = std::pair<std::string, std::string>;
  Environment(std::initializer_list<Variable> variables) {
    for (const auto& [name, value] : variables) {
      setenv(name.c_str(), value.c_str(), 1);
      names_.push_back(name);
    }
  }
  ~Environment() {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<std::string> names_;
};

inline constexpr int kDomain = CDSP_DOMAIN_ID;
inline constexpr const char* kModule = "file:///libggml-htp-v79.so?htp_iface_skel_handle_invoke&_modver=1.0&_dom=cdsp";

// Shared memory, mapped for the DSP for the time of its life.
class SharedBuffer {
 public:
  explicit SharedBuffer(std::size_t size, fastrpc_map_flags flags = FASTRPC_MAP_FD_DELAYED) : size_(size) {
    const DspLibrary& dsp = DspLibrary::get();
    base_ = static_cast<std::uint8_t*>(dsp.rpcmem_alloc2(RPCMEM_HEAP_ID_SYSTEM, RPCMEM_DEFAULT_FLAGS, size));
    fd_ = dsp.rpcmem_to_fd(base_);
    mapped_ = dsp.fastrpc_mmap(kDomain, fd_, base_, 0, size, flags) == AEE_SUCCESS;
  }
  ~SharedBuffer() {
    const DspLibrary& dsp = DspLibrary::get();
    if (mapped_) dsp.fastrpc_munmap(kDomain, fd_, base_, size_);
    dsp.rpcmem_free(base_);
  }
  SharedBuffer(const SharedBuffer&) = delete;
  SharedBuffer& operator=(const SharedBuffer&) = delete;

  std::uint8_t* base() const { return base_; }
  float* floats(std::size_t offset = 0) const { return reinterpret_cast<float*>(base_ + offset); }
  int fd() const { return fd_; }
  std::size_t size() const { return size_; }
  bool mapped() const { return mapped_; }

 private:
  std::size_t size_;
  std::uint8_t* base_;
  int fd_;
  bool mapped_ = false;
};

// One request's records.
struct Records {
  std::vector<htp_buf_desc> buffers;
  std::vector<htp_tensor> tensors;
  std::vector<htp_op_desc> ops;

  std::uint16_t buffer(const SharedBuffer& memory) {
    // The base is nonsense on purpose: the DSP must find the memory by its fd.
    buffers.push_back({0xdeadbeef, memory.size(), 0, static_cast<std::uint32_t>(memory.fd())});
    return static_cast<std::uint16_t>(buffers.size() - 1);
  }
  // A contiguous tensor of 4-byte elements.
  std::uint16_t tensor(std::uint16_t buffer, std::uint64_t offset, std::vector<std::uint32_t> ne,
                       std::uint32_t type = HTP_TYPE_F32) {
    ne.resize(4, 1);
    htp_tensor record{};
    record.data = offset;
    record.type = type;
    record.bi = buffer;
    record.ti = static_cast<std::uint16_t>(tensors.size());
    std::uint32_t stride = 4;
    for (std::size_t i = 0; i < 4; ++i) {
      record.ne[i] = ne[i];
      record.nb[i] = stride;
      stride *= ne[i];
    }
    record.size = stride;
    tensors.push_back(record);
    return record.ti;
  }
  htp_op_desc& op(htp_op_code code, const std::vector<std::uint16_t>& sources, std::uint16_t destination) {
    htp_op_desc record{};
    record.opcode = code;
    std::fill(std::begin(record.src), std::end(record.src), kNoTensor);
    std::fill(std::begin(record.dst), std::end(record.dst), kNoTensor);
    std::copy(sources.begin(), sources.end(), record.src);
    record.dst[0] = destination;
    ops.push_back(record);
    return ops.back();
  }
};

// A session with its queue, as upstream opens it.
class Session {
 public:
  Session() {
    const DspLibrary& dsp = DspLibrary::get();
    open_error = dsp.remote_handle64_open(kModule, &handle);
    if (open_error != AEE_SUCCESS) return;
    block_.emplace(kBlocks * kBlockBytes, FASTRPC_MAP_FD);
    EXPECT_EQ(dsp.dspqueue_create(kDomain, 0, 4096, 16384, nullptr, nullptr, nullptr, &queue), AEE_SUCCESS);
    std::uint64_t id = 0;
    EXPECT_EQ(dsp.dspqueue_export(queue, &id), AEE_SUCCESS);
    std::uint64_t arguments[4] = {0, id, 0, std::uint64_t{1} << 31};
    start_error = call(2, arguments, sizeof(arguments));
  }
  ~Session() {
    const DspLibrary& dsp = DspLibrary::get();
    if (open_error != AEE_SUCCESS) return;
    if (start_error == AEE_SUCCESS) call(3, nullptr, 0);
    dsp.dspqueue_close(queue);
    dsp.remote_handle64_close(handle);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // A method of the module with one input buffer (none if `bytes` is 0).
  int call(std::uint32_t method, void* input, std::size_t bytes) const {
    remote_arg argument{};
    argument.buf = {input, bytes};
    return DspLibrary::get().remote_handle64_invoke(
        handle, REMOTE_SCALARS_MAKEX(0, method, bytes != 0 ? 1 : 0, 0, 0, 0), &argument);
  }
  int release(const SharedBuffer& buffer) const {
    std::uint32_t fd = static_cast<std::uint32_t>(buffer.fd());
    return call(5, &fd, sizeof(fd));
  }

  // Puts the records into the block of the next sequence number and writes the packet. Returns dspqueue_write's code.
  int send(const Records& records) {
    const std::uint64_t sequence = ++sent;
    std::uint8_t* at = block_->base() + sequence % kBlocks * kBlockBytes;
    dspqueue_buffer buffer{};
    buffer.fd = static_cast<std::uint32_t>(block_->fd());
    buffer.offset = static_cast<std::uint32_t>(at - block_->base());
    buffer.ptr = at;
    std::size_t size = 0;
    const auto put = [&](const auto& list) {
      const std::size_t bytes = list.size() * sizeof(list[0]);
      if (bytes != 0) std::memcpy(at + size, list.data(), bytes);
      size += bytes;
    };
    put(records.buffers);
    put(records.tensors);
    put(records.ops);
    profile = reinterpret_cast<const htp_prof_desc*>(at + size);
    std::memset(at + size, 0, records.ops.size() * sizeof(htp_prof_desc));
    buffer.size = static_cast<std::uint32_t>(size + records.ops.size() * sizeof(htp_prof_desc));
    htp_opbatch_req request{};
    request.seq = sequence;
    request.n_bufs = static_cast<std::uint32_t>(records.buffers.size());
    request.n_tensors = static_cast<std::uint32_t>(records.tensors.size());
    request.n_ops = static_cast<std::uint32_t>(records.ops.size());
    return write(request, buffer);
  }
  int write(const htp_opbatch_req& request, dspqueue_buffer buffer) const {
    return DspLibrary::get().dspqueue_write(queue, 0, 1, &buffer, sizeof(request),
                                            reinterpret_cast<const std::uint8_t*>(&request), 1000000);
  }
  // dspqueue_read's code.
  int receive(htp_opbatch_rsp& answer, std::uint32_t timeout_us = 5000000) const {
    std::uint32_t flags = 0;
    std::uint32_t buffers = 0;
    std::uint32_t length = 0;
    dspqueue_buffer buffer{};
    const int error = DspLibrary::get().dspqueue_read(queue, &flags, 1, &buffers, &buffer, sizeof(answer), &length,
                                                      reinterpret_cast<std::uint8_t*>(&answer), timeout_us);
    if (error == AEE_SUCCESS) {
      EXPECT_EQ(buffers, 1U);
      received_bytes = length;
    }
    return error;
  }
  // Sends, receives, and gives the status (0: no answer).
  std::uint32_t status_of(const Records& records) {
    htp_opbatch_rsp answer{};
    if (send(records) != AEE_SUCCESS || receive(answer) != AEE_SUCCESS) return 0;
    EXPECT_EQ(answer.seq, sent);
    return answer.status;
  }

  static constexpr std::size_t kBlocks = 32;
  static constexpr std::size_t kBlockBytes = 16384;

  int open_error = -1;
  int start_error = -1;
  remote_handle64 handle = 0;
  dspqueue_t queue = nullptr;
  std::uint64_t sent = 0;
  const htp_prof_desc* profile = nullptr;  // of the last request
  mutable std::uint32_t received_bytes = 0;

  const SharedBuffer& block() const { return *block_; }

 private:
  std::optional<SharedBuffer> block_;
};

// y = a + b over four floats each, at offsets 0, 16 and 32 of `memory`.
inline Records addition(const SharedBuffer& memory) {
  Records records;
  const std::uint16_t buffer = records.buffer(memory);
  const auto a = records.tensor(buffer, 0, {4});
  const auto b = records.tensor(buffer, 16, {4});
  records.op(HTP_OP_ADD, {a, b}, records.tensor(buffer, 32, {4}));
  for (std::size_t i = 0; i < 4; ++i) {
    memory.floats()[i] = static_cast<float>(i);
    memory.floats(16)[i] = 10.0F;
    memory.floats(32)[i] = -1.0F;
  }
  return records;
}

// The sums that addition() asks for.
inline std::vector<float> sums(const SharedBuffer& memory) {
  return {memory.floats(32), memory.floats(32) + 4};
}
inline const std::vector<float> kExpectedSums{10, 11, 12, 13};
inline const std::vector<float> kUntouched{-1, -1, -1, -1};

}  // namespace kazeia::emulated_dsp
