#include "npu/device.h"

#include <charconv>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "base/clock.h"
#include "ggml-backend-impl.h"
#include "ggml-hexagon.h"
#include "ggml.h"
#include "htp-drv.h"
#include "npu/gate.h"
#include "npu/guard.h"

// A global of upstream's driver loader (htp-drv.cpp). Its request structures are not public, so they are never passed
// to a real driver: without the function, upstream uses its static table of domains.
extern int (*remote_system_request_pfn)(system_req_payload*);

namespace kazeia::npu {
namespace {

std::optional<Result<Device*>> answer;

// What upstream prints about the hardware while it opens a session: the only way in which it tells.
class OpeningLog {
 public:
  OpeningLog() {
    ggml_log_get(&callback_, &user_data_);
    ggml_log_set(receive, this);
  }
  ~OpeningLog() { ggml_log_set(callback_, user_data_); }
  OpeningLog(const OpeningLog&) = delete;
  OpeningLog& operator=(const OpeningLog&) = delete;

  // The text behind `marker` on its line, or "".
  std::string after(std::string_view marker) const {
    const std::size_t at = text_.find(marker);
    if (at == std::string::npos) return {};
    const std::size_t begin = at + marker.size();
    return text_.substr(begin, text_.find('\n', begin) - begin);
  }

 private:
  static void receive(ggml_log_level level, const char* text, void* user_data) {
    auto& self = *static_cast<OpeningLog*>(user_data);
    self.text_ += text;
    if (self.callback_ != nullptr) self.callback_(level, text, self.user_data_);
  }
  ggml_log_callback callback_ = nullptr;
  void* user_data_ = nullptr;
  std::string text_;
};

}  // namespace

Result<Device*> Device::open() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (!answer) answer = try_open();
  return *answer;
}

void Device::set_policy(const OpPolicy& policy) {
  gate_->set_policy(policy);
}

Device* Device::opened() {
  return answer && answer->ok() ? **answer : nullptr;
}

Result<Device*> Device::try_open() {
  const Stopwatch watch;
  // The 64-bit DMA mode maps memory with a flag that is not public.
  const OpeningLog messages;
  setenv("GGML_HEXAGON_DMA64", "0", /*replace=*/0);
  if (htpdrv_init() != AEE_SUCCESS) {
    return Error(ErrorCode::kUnsupported, "this machine has no driver of a Hexagon NPU (libcdsprpc.so)",
                 "The CPU does everything");
  }
  remote_system_request_pfn = nullptr;
  KAZEIA_TRY(Guard::install(with_environment({})));

  ggml_backend_reg_t registry = nullptr;
  ggml_backend_dev_t upstream = nullptr;
  std::string reason;
  try {
    registry = ggml_backend_hexagon_reg();
    if (registry != nullptr && ggml_backend_reg_dev_count(registry) > 0) {
      upstream = ggml_backend_reg_dev_get(registry, 0);
      // A plain upstream opens the session only now, and throws if it cannot.
      ggml_tensor nothing{};
      if (upstream != nullptr) (void)upstream->iface.supports_op(upstream, &nothing);
    }
  } catch (const std::exception& exception) {
    reason = exception.what();
    upstream = nullptr;
  }
  if (upstream == nullptr || Guard::failed()) {
    const GuardStatus status = Guard::status();
    if (!status.reason.empty()) reason = status.reason;
    return Error(ErrorCode::kUnsupported,
                 fmt::format("the NPU did not open a session ({})", reason.empty() ? "no reason given" : reason),
                 "The CPU does everything");
  }

  static Device device;
  device.info_.name = ggml_backend_dev_name(upstream);
  int architecture = 0;
  if (htpdrv_get_arch(CDSP_DOMAIN_ID, &architecture) == 0) device.info_.architecture = architecture;
  device.info_.hardware = messages.after("hwinfo: ");
  const std::string window = messages.after(" vmem ");
  std::from_chars(window.data(), window.data() + window.size(), device.info_.memory_window_bytes);
  device.info_.sessions = ggml_backend_reg_dev_count(registry);
  device.gate_ = &Gate::create(upstream);
  device.info_.open_ms = watch.elapsed_ms();
  return &device;
}

}  // namespace kazeia::npu
