// The guard inside a running session: whatever the device does, upstream sees batches answered in order.
#include "npu/guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/clock.h"
#include "npu/guard_fake_driver.h"

namespace kazeia::npu {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// For devices that answer: no machine is so loaded that they run into it.
constexpr GuardOptions kPatient{/*deadline_ms=*/60'000, /*start_deadline_ms=*/60'000};
// For devices that hang in a session, which is set up before.
constexpr GuardOptions kImpatient{/*deadline_ms=*/300, /*start_deadline_ms=*/60'000};
// For devices that hang after something that must not run into the deadline.
constexpr GuardOptions kInBetween{/*deadline_ms=*/2000, /*start_deadline_ms=*/60'000};
// Beyond the deadline: the guard's grace for a driver call that should have returned, and a loaded machine.
constexpr double kBoundMs = 30000;

class GuardInSession : public ::testing::Test {
 protected:
  explicit GuardInSession(const GuardOptions& options = kPatient) : options_(options) {}
  void SetUp() override {
    ASSERT_TRUE(Guard::install_over(variables_.table(), options_).ok());
    ASSERT_EQ(upstream_.set_up(), 0);
    ASSERT_EQ(Guard::status().kind, FailureKind::kNone);
  }
  void TearDown() override {
    fake_.release();
    Guard::uninstall();
  }
  // Batches that the device fails are answered all the same, and so is everything after.
  void expect_survived(FailureKind kind, const char* reason) {
    const Stopwatch watch;
    EXPECT_TRUE(upstream_.finish());
    EXPECT_TRUE(Guard::failed());
    EXPECT_EQ(Guard::status().kind, kind) << failure_kind_name(Guard::status().kind);
    EXPECT_THAT(Guard::status().reason, HasSubstr(reason));
    const int before = fake_.total();
    EXPECT_TRUE(upstream_.submit());
    EXPECT_TRUE(upstream_.submit());
    EXPECT_TRUE(upstream_.finish());
    EXPECT_EQ(upstream_.map(), 0);
    upstream_.unmap();
    EXPECT_TRUE(upstream_.release());
    EXPECT_EQ(fake_.total(), before) << "the driver was called after the failure";
    EXPECT_FALSE(upstream_.from_device().back());
    EXPECT_LT(watch.elapsed_ms(), kBoundMs);
  }

  GuardOptions options_;
  FakeDriver& fake_ = FakeDriver::fresh();
  FakeVariables variables_;
  FakeUpstream upstream_{variables_};
};

class ImpatientGuardInSession : public GuardInSession {
 protected:
  ImpatientGuardInSession() : GuardInSession(kImpatient) {}
};

class InBetweenGuardInSession : public GuardInSession {
 protected:
  InBetweenGuardInSession() : GuardInSession(kInBetween) {}
};

TEST_F(GuardInSession, PassesEverythingThroughWhileTheDeviceIsWell) {
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(upstream_.submit());
    if (i % 4 == 3) {
      ASSERT_TRUE(upstream_.finish(i % 8 == 3 ? 0 : 1'000'000));
    }
  }
  EXPECT_FALSE(Guard::failed());
  EXPECT_THAT(upstream_.from_device(), Each(true));
  const GuardStatus status = Guard::status();
  EXPECT_EQ(status.batches_written, 40u);
  EXPECT_EQ(status.batches_answered, 40u);
  EXPECT_EQ(status.batches_answered_in_its_place, 0u);
  EXPECT_TRUE(upstream_.release());
  EXPECT_EQ(fake_.count("invoke 3"), 1);
  EXPECT_EQ(fake_.count("close queue"), 1);
  EXPECT_EQ(fake_.count("close"), 1);
}

TEST_F(GuardInSession, AnswersInTheDevicesPlaceAfterAnError) {
  fake_.on_answer = [](htp_opbatch_rsp& answer) {
    if (answer.seq == 3) answer.status = HTP_STATUS_INVAL_PARAMS;
    return true;
  };
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(upstream_.submit());
  ASSERT_TRUE(upstream_.finish());
  EXPECT_THAT(upstream_.from_device(), ElementsAre(true, true, false, false, false));
  const GuardStatus status = Guard::status();
  EXPECT_THAT(status.reason, HasSubstr("'invalid parameters' (4) for batch 3"));
  EXPECT_EQ(status.batches_answered, 2u);
  EXPECT_EQ(status.batches_answered_in_its_place, 3u);
  expect_survived(FailureKind::kError, "batch 3");
}

TEST_F(GuardInSession, LetsTheDeviceFinishWhatItHasAfterAnError) {
  fake_.on_answer = [](htp_opbatch_rsp& answer) {
    if (answer.seq == 1) answer.status = HTP_STATUS_INTERNAL_ERR;
    return answer.seq == 1;
  };
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(upstream_.submit());
  const Stopwatch watch;
  std::thread device([this] {
    for (std::uint64_t number = 2; number <= 3; ++number) {
      std::this_thread::sleep_for(80ms);
      htp_opbatch_rsp answer{};
      answer.seq = number;
      fake_.push_answer(answer);
    }
  });
  ASSERT_TRUE(upstream_.finish());
  EXPECT_GE(watch.elapsed_ms(), 150);
  EXPECT_FALSE(Guard::status().device_may_still_write);
  device.join();
  void* memory = variables_.rpcmem_alloc2(25, 1, 100);
  variables_.rpcmem_free(memory);
  EXPECT_EQ(fake_.count("free"), 1);
  EXPECT_EQ(Guard::status().leaked_bytes, 0u);
}

TEST_F(ImpatientGuardInSession, KeepsMemoryThatASilentDeviceMayWrite) {
  void* memory = variables_.rpcmem_alloc2(25, 1, 4096);
  fake_.on_answer = [](htp_opbatch_rsp& answer) { return answer.seq != 2; };
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(upstream_.submit());
  // An answer without its predecessor would be an error; this device says nothing at all from 2 on.
  fake_.on_read = [this, n = 0]() mutable { return ++n == 1 ? 0 : (std::this_thread::sleep_for(10ms), AEE_EEXPIRED); };
  expect_survived(FailureKind::kSilent, "answered nothing for 300 ms");
  EXPECT_TRUE(Guard::status().device_may_still_write);
  variables_.rpcmem_free(memory);
  EXPECT_EQ(fake_.count("free"), 0);
  EXPECT_EQ(Guard::status().leaked_bytes, 4096u);
  std::free(memory);
}

TEST_F(GuardInSession, CanStillAllocateAndFreeAfterAnError) {
  void* before = variables_.rpcmem_alloc2(25, 1, 4096);
  fake_.on_read = [] { return AEE_ECONNRESET; };
  ASSERT_TRUE(upstream_.submit());
  ASSERT_TRUE(upstream_.finish());
  void* after = variables_.rpcmem_alloc(25, 1, 4096);
  ASSERT_NE(after, nullptr);
  EXPECT_EQ(variables_.rpcmem_to_fd(after), 42);
  variables_.rpcmem_free(before);
  variables_.rpcmem_free(after);
  EXPECT_EQ(fake_.count("free"), 2);
  EXPECT_EQ(Guard::status().leaked_bytes, 0u);
  EXPECT_FALSE(Guard::status().device_may_still_write);
}

TEST_F(GuardInSession, SurvivesAnErrorOfTheRead) {
  fake_.on_read = [] { return AEE_EBADPARM; };
  ASSERT_TRUE(upstream_.submit());
  expect_survived(FailureKind::kError, "error 0xe");
}

TEST_F(GuardInSession, SurvivesAWriteThatIsRefused) {
  fake_.on_write = [](std::uint64_t number) { return number == 2 ? AEE_ENOMEMORY : 0; };
  ASSERT_TRUE(upstream_.submit());
  ASSERT_TRUE(upstream_.submit());
  EXPECT_TRUE(Guard::failed());
  EXPECT_FALSE(Guard::status().device_may_still_write);
  expect_survived(FailureKind::kError, "refused batch 2");
}

TEST_F(ImpatientGuardInSession, SurvivesAQueueThatStaysFull) {
  fake_.on_write = [](std::uint64_t) {
    std::this_thread::sleep_for(5ms);
    return AEE_EEXPIRED;
  };
  ASSERT_TRUE(upstream_.submit());
  expect_survived(FailureKind::kSilent, "take work");
}

TEST_F(ImpatientGuardInSession, SurvivesAWriteThatNeverReturns) {
  fake_.on_write = [this](std::uint64_t) { return fake_.hang(); };
  ASSERT_TRUE(upstream_.submit());
  expect_survived(FailureKind::kSilent, "take work");
  EXPECT_TRUE(Guard::status().device_may_still_write);
}

TEST_F(ImpatientGuardInSession, SurvivesAReadThatNeverReturns) {
  fake_.on_read = [this] { return fake_.hang(); };
  ASSERT_TRUE(upstream_.submit());
  expect_survived(FailureKind::kSilent, "answered nothing");
}

TEST_F(ImpatientGuardInSession, NoticesASilentDeviceWhileUpstreamPolls) {
  fake_.on_answer = [](htp_opbatch_rsp&) { return false; };
  ASSERT_TRUE(upstream_.submit());
  const Stopwatch watch;
  ASSERT_TRUE(upstream_.finish(/*timeout_us=*/0));
  EXPECT_GE(watch.elapsed_ms(), 290);
  EXPECT_LT(watch.elapsed_ms(), kBoundMs);
  expect_survived(FailureKind::kSilent, "answered nothing");
}

TEST_F(ImpatientGuardInSession, NoticesAHangingReadWhileUpstreamPolls) {
  fake_.on_read = [this] { return fake_.hang(); };
  ASSERT_TRUE(upstream_.submit());
  ASSERT_TRUE(upstream_.finish(/*timeout_us=*/0));
  expect_survived(FailureKind::kSilent, "answered nothing");
}

TEST_F(GuardInSession, KeepsTheTimeoutsItIsGiven) {
  fake_.on_answer = [](htp_opbatch_rsp&) { return false; };
  fake_.on_read = [this] { return fake_.hang(); };  // this driver keeps none of them
  ASSERT_TRUE(upstream_.submit());
  htp_opbatch_rsp answer;
  std::uint32_t flags = 0, n_buffers = 0, length = 0;
  dspqueue_buffer block{};
  const auto read = [&](std::uint32_t timeout_us) {
    return variables_.queue_read(upstream_.queue(), &flags, 1, &n_buffers, &block, sizeof(answer), &length,
                                 reinterpret_cast<std::uint8_t*>(&answer), timeout_us);
  };
  const Stopwatch watch;
  EXPECT_EQ(read(0), AEE_EWOULDBLOCK);
  EXPECT_EQ(read(60'000), AEE_EEXPIRED);
  EXPECT_GE(watch.elapsed_ms(), 59);
  EXPECT_FALSE(Guard::failed());
}

TEST_F(GuardInSession, TakesADriverThatOverrunsItsTimeout) {
  fake_.on_read = [] {
    std::this_thread::sleep_for(150ms);
    return 0;
  };
  ASSERT_TRUE(upstream_.submit());
  ASSERT_TRUE(upstream_.finish(/*timeout_us=*/1000));
  EXPECT_FALSE(Guard::failed());
}

TEST_F(InBetweenGuardInSession, MeasuresTheDeadlineFromTheLastAnswer) {
  fake_.on_answer = [](htp_opbatch_rsp&) { return false; };
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(upstream_.submit());
  std::thread device([this] {
    for (std::uint64_t number = 1; number <= 4; ++number) {
      std::this_thread::sleep_for(700ms);  // 2.8 s in all
      htp_opbatch_rsp answer{};
      answer.seq = number;
      answer.status = HTP_STATUS_OK;
      answer.n_bufs = 2;
      answer.n_tensors = 5;
      answer.n_ops = 3;
      fake_.push_answer(answer);
    }
  });
  EXPECT_TRUE(upstream_.finish());
  device.join();
  EXPECT_FALSE(Guard::failed()) << Guard::status().reason;
}

TEST_F(ImpatientGuardInSession, DropsAnswersThatComeTooLate) {
  fake_.on_answer = [](htp_opbatch_rsp&) { return false; };
  ASSERT_TRUE(upstream_.submit());
  ASSERT_TRUE(upstream_.finish());
  ASSERT_EQ(Guard::status().kind, FailureKind::kSilent);
  htp_opbatch_rsp late{};
  late.seq = 1;
  late.status = HTP_STATUS_INTERNAL_ERR;
  fake_.push_answer(late);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(upstream_.submit());
  EXPECT_TRUE(upstream_.finish());
  EXPECT_THAT(upstream_.from_device(), Each(false));
  EXPECT_EQ(Guard::status().batches_answered_in_its_place, 4u);
}

TEST_F(InBetweenGuardInSession, AnswersAFullPipelineInOrder) {
  fake_.on_answer = [](htp_opbatch_rsp& answer) { return answer.seq <= 4; };
  for (std::uint32_t i = 0; i < 32; ++i) ASSERT_TRUE(upstream_.submit(/*n_ops=*/i));
  EXPECT_TRUE(upstream_.finish());  // checks numbers and counts
  EXPECT_EQ(Guard::status().batches_answered, 4u);
  EXPECT_EQ(Guard::status().batches_answered_in_its_place, 28u);
}

TEST_F(GuardInSession, AnswersAMappingThatFailed) {
  ASSERT_TRUE(upstream_.submit());
  fake_.on_map = [] { return AEE_ENOMEMORY; };
  EXPECT_EQ(upstream_.map(), 0);
  EXPECT_FALSE(Guard::status().device_may_still_write) << "the batch under way was waited for";
  expect_survived(FailureKind::kMap, "could not map 4.0 KiB");
  EXPECT_EQ(fake_.count("munmap"), 0);
}

TEST_F(ImpatientGuardInSession, AnswersAMappingThatNeverReturns) {
  fake_.on_map = [this] { return fake_.hang(); };
  EXPECT_EQ(upstream_.map(), 0);
  expect_survived(FailureKind::kSilent, "map 4.0 KiB");
}

TEST_F(GuardInSession, GivesUpADeviceThatTheEngineDistrusts) {
  ASSERT_TRUE(upstream_.submit());
  Guard::declare_failed(FailureKind::kGarbage, "the NPU says the same thing to every prompt");
  Guard::declare_failed(FailureKind::kError, "later");
  EXPECT_FALSE(Guard::status().device_may_still_write);
  expect_survived(FailureKind::kGarbage, "same thing");
}

TEST_F(InBetweenGuardInSession, IsDeclaredFailedWhileUpstreamWaits) {
  fake_.on_answer = [](htp_opbatch_rsp&) { return false; };
  ASSERT_TRUE(upstream_.submit());
  std::thread engine([this] {
    while (fake_.count("read") == 0) std::this_thread::sleep_for(1ms);
    Guard::declare_failed(FailureKind::kGarbage, "wrong");
  });
  EXPECT_TRUE(upstream_.finish());
  engine.join();
  EXPECT_EQ(Guard::status().kind, FailureKind::kGarbage);
  EXPECT_TRUE(Guard::status().device_may_still_write) << "it never answered";
}

TEST_F(GuardInSession, TellsItsStatusToOtherThreads) {
  std::atomic<bool> done{false};
  std::thread observer([&done] {
    while (!done.load()) {
      const GuardStatus status = Guard::status();
      if (Guard::failed() && !status.reason.empty() && status.kind == FailureKind::kNone) std::abort();
      std::this_thread::yield();
    }
  });
  fake_.on_answer = [](htp_opbatch_rsp& answer) {
    if (answer.seq == 500) answer.status = HTP_STATUS_INTERNAL_ERR;
    return true;
  };
  for (int i = 0; i < 600; ++i) {
    ASSERT_TRUE(upstream_.submit());
    if (i % 8 == 7) {
      ASSERT_TRUE(upstream_.finish());
    }
  }
  done.store(true);
  observer.join();
  EXPECT_EQ(Guard::status().batches_answered, 499u);
  EXPECT_EQ(Guard::status().batches_answered_in_its_place, 101u);
}

struct BadAnswer {
  const char* name;
  void (*spoil)(htp_opbatch_rsp&);
  std::uint32_t bytes;
  const char* reason;
};

class GuardWithABadAnswer : public GuardInSession, public ::testing::WithParamInterface<BadAnswer> {};

TEST_P(GuardWithABadAnswer, SurvivesIt) {
  fake_.answer_bytes = GetParam().bytes;
  fake_.on_answer = [](htp_opbatch_rsp& answer) {
    GetParam().spoil(answer);
    return true;
  };
  ASSERT_TRUE(upstream_.submit());
  expect_survived(FailureKind::kError, GetParam().reason);
}

INSTANTIATE_TEST_SUITE_P(
    All, GuardWithABadAnswer,
    ::testing::Values(BadAnswer{"Size", [](htp_opbatch_rsp&) {}, 80, "80 bytes"},
                      BadAnswer{"Number", [](htp_opbatch_rsp& answer) { answer.seq = 9; }, 88, "batch 9 while 1"},
                      BadAnswer{"Status", [](htp_opbatch_rsp& answer) { answer.status = 0; }, 88, "unknown status"},
                      BadAnswer{"Counts", [](htp_opbatch_rsp& answer) { answer.n_ops = 9999; }, 88, "counts"}),
    [](const auto& test) { return test.param.name; });

class GuardWithALostSession : public GuardInSession, public ::testing::WithParamInterface<std::uint32_t> {};

TEST_P(GuardWithALostSession, SaysSoWhenReading) {
  fake_.on_read = [] { return static_cast<int>(GetParam()); };
  ASSERT_TRUE(upstream_.submit());
  expect_survived(FailureKind::kLost, "reading");
  EXPECT_FALSE(Guard::status().device_may_still_write);
}

TEST_P(GuardWithALostSession, SaysSoWhenWriting) {
  fake_.on_write = [](std::uint64_t number) { return number == 2 ? static_cast<int>(GetParam()) : 0; };
  ASSERT_TRUE(upstream_.submit());
  ASSERT_TRUE(upstream_.submit());
  expect_survived(FailureKind::kLost, "batch 2");
}

TEST_P(GuardWithALostSession, SaysSoWhenMapping) {
  fake_.on_map = [] { return static_cast<int>(GetParam()); };
  EXPECT_EQ(upstream_.map(), 0);
  expect_survived(FailureKind::kLost, "map");
}

INSTANTIATE_TEST_SUITE_P(Codes, GuardWithALostSession, ::testing::Values(104u, 0x2eu, 0x80000400u + 104u, 0x8000042eu));

// A process whose driver hangs must end with its own exit code, and end.
TEST(GuardAtExit, LeavesAHangingDriverBehind) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        ::alarm(30);
        FakeDriver& fake = FakeDriver::fresh();
        static FakeVariables variables;
        if (!Guard::install_over(variables.table(), kImpatient).ok()) std::exit(1);
        FakeUpstream upstream(variables);
        if (upstream.set_up() != 0) std::exit(2);
        fake.on_read = [&fake] { return fake.hang(); };
        if (!upstream.submit() || !upstream.finish() || !Guard::failed()) std::exit(3);
        std::exit(42);
      },
      ::testing::ExitedWithCode(42), "");
}

}  // namespace
}  // namespace kazeia::npu
