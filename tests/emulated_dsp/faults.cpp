#include "emulated_dsp/faults.h"

#include <AEEStdErr.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "emulated_dsp/counters.h"

namespace kazeia::emulated_dsp {
namespace {

constexpr std::array<std::pair<std::string_view, Fault>, 21> kNames{{
    {"error", Fault::kError},
    {"write_error", Fault::kWriteError},
    {"read_error", Fault::kReadError},
    {"hang", Fault::kHang},
    {"hang_read", Fault::kHangRead},
    {"hang_write", Fault::kHangWrite},
    {"late", Fault::kLate},
    {"lost", Fault::kLost},
    {"lost_2e", Fault::kLost2e},
    {"garbage", Fault::kGarbage},
    {"constant", Fault::kConstant},
    {"bad_answer", Fault::kBadAnswer},
    {"wrong_sequence", Fault::kWrongSequence},
    {"slow_start", Fault::kSlowStart},
    {"oom", Fault::kOutOfMemory},
    {"map_error", Fault::kMapError},
    {"open_error", Fault::kOpenError},
    {"open_hang", Fault::kOpenHang},
    {"start_error", Fault::kStartError},
    {"start_hang", Fault::kStartHang},
    {"stop_error", Fault::kStopError},
}};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::uint64_t number(const std::string& text, std::uint64_t otherwise) {
  if (text.empty()) return otherwise;
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text.c_str(), &end, 10);
  return *end == '\0' ? value : otherwise;
}

struct Plan {
  std::mutex mutex;
  std::string setting;
  Fault fault = Fault::kNone;
  std::uint64_t first = 1;
  std::uint64_t count = 0;
  std::uint64_t batches = 0;  // since the setting last changed

  // Requires the lock.
  void refresh() {
    const std::string name = variable("KAZEIA_DSP_FAULT");
    const std::string at = variable("KAZEIA_DSP_FAULT_AT");
    const std::string many = variable("KAZEIA_DSP_FAULT_COUNT");
    std::string now = name;
    now.append("|").append(at).append("|").append(many);
    if (now == setting) return;
    setting = now;
    batches = 0;
    first = number(at, 1);
    count = number(many, std::numeric_limits<std::uint64_t>::max());
    fault = Fault::kNone;
    for (const auto& [known, value] : kNames) {
      if (known == name) fault = value;
    }
    if (fault == Fault::kNone && !name.empty() && name != "none") {
      std::fprintf(stderr, "emulated DSP: KAZEIA_DSP_FAULT=%s is not a fault it knows\n", name.c_str());
    }
  }

  // Requires the lock. `batch` is 1-based.
  Fault for_batch(std::uint64_t batch) const { return batch >= first && batch - first < count ? fault : Fault::kNone; }
};

Plan& plan() {
  static auto* const all = new Plan();
  return *all;
}

std::atomic<int> lost{0};

}  // namespace

Fault current_fault() {
  Plan& faults = plan();
  const std::lock_guard lock(faults.mutex);
  faults.refresh();
  return faults.for_batch(faults.batches + 1);
}

Fault next_batch_fault() {
  Plan& faults = plan();
  const std::lock_guard lock(faults.mutex);
  faults.refresh();
  return faults.for_batch(++faults.batches);
}

std::size_t memory_limit() {
  const std::size_t otherwise = current_fault() == Fault::kOutOfMemory ? 0 : std::numeric_limits<std::size_t>::max();
  return number(variable("KAZEIA_DSP_MEMORY_BYTES"), otherwise);
}

int delay_ms() {
  return static_cast<int>(number(variable("KAZEIA_DSP_DELAY_MS"), 1000));
}

int executor_threads() {
  const std::uint64_t threads = number(variable("KAZEIA_DSP_THREADS"), 1);
  return threads >= 1 && threads <= 64 ? static_cast<int>(threads) : 1;
}

void lose_session(Fault how) {
  fault_happened();
  lost = how == Fault::kLost2e ? 0x2e : AEE_ECONNRESET;
}

void restore_session() {
  lost = 0;
}

int lost_error() {
  const Fault fault = current_fault();
  if (fault == Fault::kLost || fault == Fault::kLost2e) lose_session(fault);
  return lost;
}

int known_loss() {
  return lost;
}

void fault_happened() {
  ++counters().faults;
}

void hang_forever() {
  fault_happened();
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace kazeia::emulated_dsp
