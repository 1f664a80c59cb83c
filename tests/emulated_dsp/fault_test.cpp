// Every fault that the emulated DSP can be asked for, seen from the entry points.
#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <thread>

#include "base/clock.h"
#include "emulated_dsp/dsp_library.h"

namespace kazeia::emulated_dsp {
namespace {

using namespace std::chrono_literals;

const DspLibrary& dsp() {
  return DspLibrary::get();
}

// Makes the call on a thread of its own, which is left behind if nothing can end the call: it must own what it uses.
// True if the call ran into its fault and did not return.
bool never_returns(std::function<void()> call) {
  const std::uint64_t before = dsp().counters().faults;
  auto returned = std::make_shared<std::promise<void>>();
  const std::future<void> done = returned->get_future();
  std::thread([returned, call = std::move(call)] {
    call();
    returned->set_value();
  }).detach();
  const Stopwatch watch;
  while (dsp().counters().faults == before) {
    if (watch.elapsed_ms() > 30000) return false;
    std::this_thread::sleep_for(1ms);
  }
  return done.wait_for(100ms) == std::future_status::timeout;
}

class Faults : public testing::Test {
 protected:
  // What one addition ends in: the answer's status, or 0 and the codes in `write_error` and `read_error`.
  std::uint32_t add(std::uint32_t timeout_us = 5000000) {
    records_ = addition(memory_);
    write_error_ = session_.send(records_);
    if (write_error_ != AEE_SUCCESS) return 0;
    read_error_ = session_.receive(answer_, timeout_us);
    return read_error_ == AEE_SUCCESS ? answer_.status : 0;
  }

  Session session_;
  SharedBuffer memory_{4096};
  Records records_;
  htp_opbatch_rsp answer_{};
  int write_error_ = AEE_SUCCESS;
  int read_error_ = AEE_SUCCESS;
};

TEST_F(Faults, AnErrorIsAStatusAndNothingIsComputed) {
  const Environment fault{{"KAZEIA_DSP_FAULT", "error"}};
  EXPECT_EQ(add(), std::uint32_t{HTP_STATUS_INTERNAL_ERR});
  EXPECT_EQ(sums(memory_), kUntouched);
}

TEST_F(Faults, StartAtTheNthBatchAndEndAfterTheCount) {
  const Environment fault{{"KAZEIA_DSP_FAULT", "error"}, {"KAZEIA_DSP_FAULT_AT", "3"}, {"KAZEIA_DSP_FAULT_COUNT", "2"}};
  std::vector<std::uint32_t> statuses;
  for (int i = 0; i < 6; ++i) statuses.push_back(add());
  EXPECT_EQ(statuses, (std::vector<std::uint32_t>{1, 1, 2, 2, 1, 1}));
}

TEST_F(Faults, AreCountedAnewWhenTheSettingChanges) {
  for (int round = 0; round < 2; ++round) {
    const Environment fault{{"KAZEIA_DSP_FAULT", "error"},
                            {"KAZEIA_DSP_FAULT_AT", "2"},
                            {"KAZEIA_DSP_FAULT_COUNT", std::to_string(round + 1)}};
    EXPECT_EQ(add(), std::uint32_t{HTP_STATUS_OK});
    EXPECT_EQ(add(), std::uint32_t{HTP_STATUS_INTERNAL_ERR});
  }
  EXPECT_EQ(add(), std::uint32_t{HTP_STATUS_OK});
}

TEST_F(Faults, AWriteMayFail) {
  const Environment fault{{"KAZEIA_DSP_FAULT", "write_error"}};
  EXPECT_EQ(add(), 0U);
  EXPECT_EQ(write_error_, AEE_EFAILED);
}

TEST_F(Faults, AReadMayFail) {
  const Environment fault{{"KAZEIA_DSP_FAULT", "read_error"}};
  EXPECT_EQ(add(), 0U);
  EXPECT_EQ(read_error_, AEE_EFAILED);
}

TEST_F(Faults, AHangNeverAnswersAgainInThisSession) {
  {
    const Environment fault{{"KAZEIA_DSP_FAULT", "hang"}};
    EXPECT_EQ(add(20000), 0U);
    EXPECT_EQ(read_error_, AEE_EEXPIRED);
    EXPECT_EQ(sums(memory_), kUntouched);
  }
  EXPECT_EQ(add(20000), 0U) << "the fault is gone from the environment, the session stays hung";
  Session fresh;
  EXPECT_EQ(fresh.status_of(addition(memory_)), std::uint32_t{HTP_STATUS_OK});
}

TEST_F(Faults, AReadMayBlockForEver) {
  const Environment fault{{"KAZEIA_DSP_FAULT", "hang_read"}};
  ASSERT_EQ(session_.send(addition(memory_)), AEE_SUCCESS);
  EXPECT_TRUE(never_returns([queue = session_.queue] {
    std::uint32_t flags = 0, buffers = 0, length = 0;
    dspqueue_buffer buffer{};
    std::uint8_t message[sizeof(htp_opbatch_rsp)];
    dsp().dspqueue_read(queue, &flags, 1, &buffers, &buffer, sizeof(message), &length, message, 30000000);
  }));
}

TEST_F(Faults, AWriteMayBlockForEver) {
  const Environment fault{{"KAZEIA_DSP_FAULT", "hang_write"}};
  EXPECT_TRUE(never_returns([queue = session_.queue] {
    const std::uint8_t word[24] = {};
    dsp().dspqueue_write(queue, 0, 0, nullptr, sizeof(word), word, 1000);
  }));
}

TEST_F(Faults, AnAnswerMayBeLate) {
  const Environment fault{{"KAZEIA_DSP_FAULT", "late"}, {"KAZEIA_DSP_DELAY_MS", "2000"}};
  const Stopwatch watch;
  EXPECT_EQ(add(50000), 0U);
  EXPECT_EQ(read_error_, AEE_EEXPIRED);
  EXPECT_EQ(session_.receive(answer_, 60000000), AEE_SUCCESS);
  EXPECT_GE(watch.elapsed_ms(), 2000);
  EXPECT_EQ(answer_.status, std::uint32_t{HTP_STATUS_OK});
  EXPECT_EQ(sums(memory_), kExpectedSums) << "and the memory is written late";
}

TEST_F(Faults, ALostSessionFailsEveryCallUntilAnotherIsOpened) {
  for (const auto& [name, code] : {std::pair{"lost", int{AEE_ECONNRESET}}, std::pair{"lost_2e", 0x2e}}) {
    SharedBuffer other(4096);
    {
      const Environment fault{{"KAZEIA_DSP_FAULT", name}, {"KAZEIA_DSP_FAULT_AT", "2"}};
      EXPECT_EQ(session_.send(addition(memory_)), AEE_SUCCESS);
      EXPECT_EQ(session_.send(addition(memory_)), code);
      EXPECT_EQ(session_.receive(answer_), code);
    }
    std::uint32_t word = 0;
    EXPECT_EQ(session_.call(5, &word, sizeof(word)), code) << "still lost";
    EXPECT_EQ(dsp().fastrpc_munmap(kDomain, other.fd(), other.base(), other.size()), code);
    EXPECT_EQ(dsp().fastrpc_mmap(kDomain, other.fd(), other.base(), 0, other.size(), FASTRPC_MAP_FD), code);
    dspqueue_t queue = nullptr;
    EXPECT_EQ(dsp().dspqueue_create(kDomain, 0, 4096, 4096, nullptr, nullptr, nullptr, &queue), code);
    Session fresh;
    EXPECT_EQ(fresh.status_of(addition(memory_)), std::uint32_t{HTP_STATUS_OK});
  }
}

TEST_F(Faults, GarbageIsAnsweredAsFine) {
  const Environment fault{{"KAZEIA_DSP_FAULT", "garbage"}};
  std::set<std::uint32_t> seen;
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(add(), std::uint32_t{HTP_STATUS_OK});
    for (const float value : sums(memory_)) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof(bits));
      seen.insert(bits);
    }
  }
  EXPECT_GT(seen.size(), 150U);
}

TEST_F(Faults, GarbageReachesOnlyTheRowsThatWereSet) {
  Records records;
  const auto buffer = records.buffer(memory_);
  const auto values = records.tensor(buffer, 0, {4, 1});
  const auto rows = records.tensor(buffer, 64, {1}, HTP_TYPE_I32);
  const auto table = records.tensor(buffer, 128, {4, 3});
  records.op(HTP_OP_SET_ROWS, {values, rows, table}, table);
  std::fill_n(memory_.floats(128), 12, 3.0F);
  *reinterpret_cast<std::int32_t*>(memory_.base() + 64) = 1;
  const Environment fault{{"KAZEIA_DSP_FAULT", "constant"}};
  ASSERT_EQ(session_.status_of(records), std::uint32_t{HTP_STATUS_OK});
  const std::vector<float> got(memory_.floats(128), memory_.floats(128) + 12);
  EXPECT_EQ(got, (std::vector<float>{3, 3, 3, 3, 0.5, 0.5, 0.5, 0.5, 3, 3, 3, 3}));
}

TEST_F(Faults, AConstantIsAlwaysOneHalf) {
  const Environment fault{{"KAZEIA_DSP_FAULT", "constant"}};
  ASSERT_EQ(add(), std::uint32_t{HTP_STATUS_OK});
  EXPECT_EQ(sums(memory_), (std::vector<float>{0.5, 0.5, 0.5, 0.5}));
}

TEST_F(Faults, AnAnswerMayBeTooShortOrOutOfSequence) {
  {
    const Environment fault{{"KAZEIA_DSP_FAULT", "bad_answer"}};
    add();
    EXPECT_LT(session_.received_bytes, sizeof(answer_));
  }
  const Environment fault{{"KAZEIA_DSP_FAULT", "wrong_sequence"}};
  add();
  EXPECT_EQ(answer_.seq, session_.sent + 1);
}

TEST_F(Faults, MemoryRunsOut) {
  {
    const Environment fault{{"KAZEIA_DSP_FAULT", "oom"}};
    EXPECT_EQ(dsp().rpcmem_alloc(RPCMEM_HEAP_ID_SYSTEM, 1, 4096), nullptr);
  }
  const auto alive = dsp().counters().rpcmem_bytes;
  const Environment limit{{"KAZEIA_DSP_MEMORY_BYTES", std::to_string(alive + 10000)}};
  void* first = dsp().rpcmem_alloc2(RPCMEM_HEAP_ID_SYSTEM, 1, 8192);
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(dsp().rpcmem_alloc2(RPCMEM_HEAP_ID_SYSTEM, 1, 8192), nullptr);
  dsp().rpcmem_free(first);
  void* second = dsp().rpcmem_alloc2(RPCMEM_HEAP_ID_SYSTEM, 1, 8192);
  EXPECT_NE(second, nullptr);
  dsp().rpcmem_free(second);
}

TEST_F(Faults, AMappingMayFail) {
  const Environment fault{{"KAZEIA_DSP_FAULT", "map_error"}};
  const SharedBuffer other(4096);
  EXPECT_FALSE(other.mapped());
}

TEST_F(Faults, OpeningAndStartingMayFailOrTakeTime) {
  {
    const Environment fault{{"KAZEIA_DSP_FAULT", "open_error"}};
    const Session other;
    EXPECT_EQ(other.open_error, AEE_EUNABLETOLOAD);
  }
  {
    const Environment fault{{"KAZEIA_DSP_FAULT", "start_error"}};
    const Session other;
    EXPECT_EQ(other.start_error, AEE_EFAILED);
  }
  const Environment fault{{"KAZEIA_DSP_FAULT", "slow_start"}, {"KAZEIA_DSP_DELAY_MS", "60"}};
  const Stopwatch watch;
  Session other;
  EXPECT_GE(watch.elapsed_ms(), 120) << "once to open, once to start";
  EXPECT_EQ(other.status_of(addition(memory_)), std::uint32_t{HTP_STATUS_OK});
}

TEST_F(Faults, StoppingMayFail) {
  const Environment fault{{"KAZEIA_DSP_FAULT", "stop_error"}};
  EXPECT_EQ(session_.call(3, nullptr, 0), AEE_EFAILED);
  EXPECT_EQ(dsp().dspqueue_close(session_.queue), AEE_EFAILED);
}

TEST_F(Faults, AnUnknownNameIsNoFault) {
  const Environment fault{{"KAZEIA_DSP_FAULT", "eror"}};
  EXPECT_EQ(add(), std::uint32_t{HTP_STATUS_OK});
}

}  // namespace
}  // namespace kazeia::emulated_dsp
