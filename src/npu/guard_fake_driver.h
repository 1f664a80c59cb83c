// A driver and a device for the guard's tests: answers every batch at once, unless told otherwise. Each test has its
// own, never freed, because threads that hang in it outlive the test.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "ggml-hexagon/htp/htp-ops.h"
#include "npu/guard_driver.h"

namespace kazeia::npu {

struct FakeDriver {
  // The one that the functions below work on.
  static FakeDriver* current() { return in_use().load(); }
  static FakeDriver& fresh() {
    static auto& all = *new std::vector<std::unique_ptr<FakeDriver>>;
    all.push_back(std::make_unique<FakeDriver>());
    in_use().store(all.back().get());
    return *all.back();
  }
  static std::atomic<FakeDriver*>& in_use() {
    static std::atomic<FakeDriver*> driver{nullptr};
    return driver;
  }

  // Hooks return the driver's error; unset = success. They run on the guard's thread.
  std::function<int(std::uint32_t method)> on_invoke;
  std::function<int()> on_open, on_map, on_unmap, on_create, on_export, on_close_queue, on_control;
  std::function<int(std::uint64_t number)> on_write;
  // Changes an answer before it is read; false = the device never answers this batch.
  std::function<bool(htp_opbatch_rsp&)> on_answer;
  std::function<int()> on_read;
  std::function<void*(std::size_t)> on_alloc;
  std::function<int(std::uint32_t request, void* data)> on_session_control;
  std::uint32_t answer_bytes = sizeof(htp_opbatch_rsp);

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<htp_opbatch_rsp> answers;
  std::map<std::string, int> calls;  // that reached the driver, by entry ("invoke 3", "mmap", ...)
  bool released = false;             // of those that hang

  int count(const std::string& call) {
    const std::lock_guard lock(mutex);
    const auto found = calls.find(call);
    return found == calls.end() ? 0 : found->second;
  }
  int total() {
    const std::lock_guard lock(mutex);
    int sum = 0;
    for (const auto& [name, n] : calls) sum += n;
    return sum;
  }
  void called(const std::string& call) {
    const std::lock_guard lock(mutex);
    ++calls[call];
  }
  // Blocks like a driver call that never returns, until the test ends.
  int hang() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return released; });
    return 0;
  }
  void release() {
    {
      const std::lock_guard lock(mutex);
      released = true;
    }
    changed.notify_all();
  }
  void push_answer(const htp_opbatch_rsp& answer) {
    {
      const std::lock_guard lock(mutex);
      answers.push_back(answer);
    }
    changed.notify_all();
  }
};

inline int run_hook(const std::function<int()>& hook) {
  return hook ? hook() : 0;
}

inline void* fake_alloc(std::size_t bytes) {
  FakeDriver& fake = *FakeDriver::current();
  fake.called("alloc");
  return fake.on_alloc ? fake.on_alloc(bytes) : std::malloc(bytes);
}

inline AEEResult fake_read(dspqueue_t, std::uint32_t* flags, std::uint32_t, std::uint32_t* n_buffers,
                           dspqueue_buffer* buffers, std::uint32_t, std::uint32_t* length, std::uint8_t* message,
                           std::uint32_t timeout_us) {
  FakeDriver& fake = *FakeDriver::current();
  fake.called("read");
  if (fake.on_read) {
    if (const int error = fake.on_read(); error != 0) return error;
  }
  std::unique_lock lock(fake.mutex);
  fake.changed.wait_for(lock, std::chrono::microseconds(timeout_us), [&] { return !fake.answers.empty(); });
  if (fake.answers.empty()) return timeout_us == 0 ? AEE_EWOULDBLOCK : AEE_EEXPIRED;
  const htp_opbatch_rsp answer = fake.answers.front();
  fake.answers.pop_front();
  *flags = 0;
  *n_buffers = 1;
  buffers[0] = {};
  *length = fake.answer_bytes;
  std::memcpy(message, &answer, sizeof(answer));
  return AEE_SUCCESS;
}

inline AEEResult fake_write(dspqueue_t, std::uint32_t, std::uint32_t, dspqueue_buffer*, std::uint32_t,
                            const std::uint8_t* message, std::uint32_t) {
  FakeDriver& fake = *FakeDriver::current();
  fake.called("write");
  htp_opbatch_req request;
  std::memcpy(&request, message, sizeof(request));
  if (fake.on_write) {
    if (const int error = fake.on_write(request.seq); error != 0) return error;
  }
  htp_opbatch_rsp answer{};
  answer.seq = request.seq;
  answer.status = HTP_STATUS_OK;
  answer.n_bufs = request.n_bufs;
  answer.n_tensors = request.n_tensors;
  answer.n_ops = request.n_ops;
  answer.usecs = 77;  // so that a test can tell the device's answers from the guard's
  if (!fake.on_answer || fake.on_answer(answer)) fake.push_answer(answer);
  return AEE_SUCCESS;
}

// Upstream's variables, as the guard finds them.
struct FakeVariables {
  RpcmemAlloc rpcmem_alloc = [](int, std::uint32_t, int bytes) { return fake_alloc(static_cast<std::size_t>(bytes)); };
  RpcmemAlloc2 rpcmem_alloc2 = [](int, std::uint32_t, std::size_t bytes) { return fake_alloc(bytes); };
  RpcmemFree rpcmem_free = [](void* memory) {
    FakeDriver::current()->called("free");
    std::free(memory);
  };
  RpcmemToFd rpcmem_to_fd = [](void*) {
    FakeDriver::current()->called("to_fd");
    return 42;
  };
  FastrpcMmap mmap = [](int, int, void*, int, std::size_t, fastrpc_map_flags) {
    FakeDriver::current()->called("mmap");
    return run_hook(FakeDriver::current()->on_map);
  };
  FastrpcMunmap munmap = [](int, int, void*, std::size_t) {
    FakeDriver::current()->called("munmap");
    return run_hook(FakeDriver::current()->on_unmap);
  };
  QueueCreate queue_create = [](int, std::uint32_t, std::uint32_t, std::uint32_t, dspqueue_callback_t,
                                dspqueue_callback_t, void*, dspqueue_t* queue) {
    FakeDriver::current()->called("create");
    const int error = run_hook(FakeDriver::current()->on_create);
    if (error == 0) *queue = reinterpret_cast<dspqueue_t>(0x100);
    return error;
  };
  QueueClose queue_close = [](dspqueue_t) {
    FakeDriver::current()->called("close queue");
    return run_hook(FakeDriver::current()->on_close_queue);
  };
  QueueExport queue_export = [](dspqueue_t, std::uint64_t* id) {
    FakeDriver::current()->called("export");
    *id = 9;
    return run_hook(FakeDriver::current()->on_export);
  };
  QueueWrite queue_write = fake_write;
  QueueRead queue_read = fake_read;
  QueueReadNoblock queue_read_noblock = nullptr;
  HandleOpen handle_open = [](const char*, remote_handle64* handle) {
    FakeDriver::current()->called("open");
    const int error = run_hook(FakeDriver::current()->on_open);
    if (error == 0) *handle = 7;
    return error;
  };
  HandleInvoke handle_invoke = [](remote_handle64, std::uint32_t scalars, remote_arg* arguments) {
    FakeDriver& fake = *FakeDriver::current();
    const std::uint32_t method = REMOTE_SCALARS_METHOD(scalars);
    fake.called("invoke " + std::to_string(method));
    const int error = fake.on_invoke ? fake.on_invoke(method) : 0;
    if (error == 0 && method == 8) std::memset(arguments[0].buf.pv, 0x11, arguments[0].buf.nLen);
    return error;
  };
  HandleClose handle_close = [](remote_handle) {
    FakeDriver::current()->called("close");
    return 0;
  };
  HandleControl handle_control = [](remote_handle64, std::uint32_t, void*, std::uint32_t) {
    FakeDriver::current()->called("handle control");
    return run_hook(FakeDriver::current()->on_control);
  };
  DriverControl driver_control = [](std::uint32_t, void* data, std::uint32_t) {
    FakeDriver::current()->called("driver control");
    static_cast<remote_dsp_capability*>(data)->capability = 0x79;
    return run_hook(FakeDriver::current()->on_control);
  };
  DriverControl session_control = [](std::uint32_t request, void* data, std::uint32_t) {
    FakeDriver& fake = *FakeDriver::current();
    fake.called("session control");
    return fake.on_session_control ? fake.on_session_control(request, data) : 0;
  };

  DriverTable table() {
    DriverTable table;
    for_each_entry([](auto& slot, auto& variable) { slot = &variable; }, table, *this);
    return table;
  }
};

// What upstream does with the variables, in its order, and where it would abort, throw or wait forever.
class FakeUpstream {
 public:
  explicit FakeUpstream(FakeVariables& driver) : driver_(driver) {}

  // 0, or the error it would throw with (after having released what it had).
  int set_up() {
    remote_dsp_capability capability{3, 6, 0};
    driver_.driver_control(DSPRPC_GET_DSP_INFO, &capability, sizeof(capability));
    remote_rpc_control_unsigned_module module{3, 1};
    int error = driver_.session_control(DSPRPC_CONTROL_UNSIGNED_MODULE, &module, sizeof(module));
    if (error == 0) error = open();
    if (error != 0) survived_ = release();
    return error;
  }
  // False if the release after a failed set_up() would have aborted.
  bool survived() const { return survived_; }
  // False where upstream aborts.
  bool submit(std::uint32_t n_ops = 3) {
    htp_opbatch_req request{};
    request.seq = ++written_;
    request.n_bufs = 2;
    request.n_tensors = 5;
    request.n_ops = n_ops;
    dspqueue_buffer block{};
    block.fd = 42;
    block.ptr = blocks_[written_ % 32].data();
    std::uint8_t message[sizeof(request)];
    std::memcpy(message, &request, sizeof(request));
    ops_.push_back(n_ops);
    return driver_.queue_write(queue_, 0, 1, &block, sizeof(request), message, 1'000'000) == 0;
  }
  // Reads until every batch is answered. False where upstream aborts or asserts, or would wait for ever.
  bool finish(std::uint32_t timeout_us = 1'000'000) {
    const Stopwatch watch;
    while (read_ < written_) {
      if (watch.elapsed_ms() > 60'000) return false;
      htp_opbatch_rsp answer;
      std::uint8_t message[sizeof(answer)];
      std::uint32_t flags = 0, n_buffers = 0, length = 0;
      dspqueue_buffer block{};
      const int error =
          driver_.queue_read(queue_, &flags, 1, &n_buffers, &block, sizeof(message), &length, message, timeout_us);
      if (error == AEE_EEXPIRED || error == AEE_EWOULDBLOCK) continue;
      if (error != 0 || length != sizeof(answer) || n_buffers != 1) return false;
      std::memcpy(&answer, message, sizeof(answer));
      if (answer.status > HTP_STATUS_OK || answer.seq != read_ + 1 || answer.n_bufs != 2 || answer.n_tensors != 5 ||
          answer.n_ops != ops_[read_] || block.ptr != blocks_[answer.seq % 32].data())
        return false;
      read_ = answer.seq;
      from_device_.push_back(answer.usecs == 77);
    }
    return true;
  }
  int map() { return driver_.mmap(3, 42, nullptr, 0, 4096, FASTRPC_MAP_FD_DELAYED); }
  void unmap() {
    invoke(5, 1, 0, 4);
    driver_.munmap(3, 42, nullptr, 4096);
  }
  // False where upstream aborts (in noexcept code).
  bool release() {
    bool fine = true;
    if (started_) fine = invoke(3, 0, 0, 0) == 0;
    if (queue_ != nullptr) fine = driver_.queue_close(queue_) == 0 && fine;
    if (opened_) driver_.handle_close(static_cast<remote_handle>(handle_));
    started_ = opened_ = false;
    queue_ = nullptr;
    return fine;
  }
  const std::vector<bool>& from_device() const { return from_device_; }
  dspqueue_t queue() const { return queue_; }

  int invoke(std::uint32_t method, std::uint32_t in, std::uint32_t out, std::size_t bytes, void* data = nullptr) {
    std::vector<std::uint8_t> own(bytes);
    remote_arg argument{};
    argument.buf.pv = data != nullptr ? data : own.data();
    argument.buf.nLen = bytes;
    return driver_.handle_invoke(handle_, REMOTE_SCALARS_MAKEX(0, method, in, out, 0, 0),
                                 in + out == 0 ? nullptr : &argument);
  }

 private:
  int open() {
    int error = driver_.handle_open("file:///lib.so", &handle_);
    if (error != 0) return error;
    opened_ = true;
    remote_rpc_control_latency latency{1, 0};
    driver_.handle_control(handle_, DSPRPC_CONTROL_LATENCY, &latency, sizeof(latency));
    dspqueue_t queue = nullptr;
    error = driver_.queue_create(3, 0, 4096, 8192, nullptr, nullptr, nullptr, &queue);
    if (error != 0) return error;
    queue_ = queue;
    std::uint64_t id = 0;
    error = driver_.queue_export(queue_, &id);
    if (error == 0) error = map();
    if (error == 0) error = invoke(2, 1, 0, 32);
    started_ = error == 0;
    return error;
  }

  FakeVariables& driver_;
  remote_handle64 handle_ = 0;
  dspqueue_t queue_ = nullptr;
  bool opened_ = false;
  bool started_ = false;
  bool survived_ = true;
  std::uint64_t written_ = 0;
  std::uint64_t read_ = 0;
  std::vector<std::uint32_t> ops_;
  std::vector<bool> from_device_;
  std::vector<std::vector<std::uint8_t>> blocks_ =
      std::vector<std::vector<std::uint8_t>>(32, std::vector<std::uint8_t>(8));
};

}  // namespace kazeia::npu
