// The guard around a session: setting up, memory, taking down.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "npu/guard.h"
#include "npu/guard_fake_driver.h"

namespace kazeia::npu {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// For drivers that answer: no machine is so loaded that they run into it.
constexpr GuardOptions kPatient{/*deadline_ms=*/60'000, /*start_deadline_ms=*/60'000};
// For drivers that hang.
constexpr GuardOptions kImpatient{/*deadline_ms=*/300, /*start_deadline_ms=*/1000};
constexpr double kBoundMs = 30000;  // many deadlines: a loaded machine is no failure

class GuardAroundSessions : public ::testing::Test {
 protected:
  explicit GuardAroundSessions(const GuardOptions& options = kPatient) : options_(options) {}
  void SetUp() override { ASSERT_TRUE(Guard::install_over(variables_.table(), options_).ok()); }
  void TearDown() override {
    fake_.release();
    Guard::uninstall();
  }

  GuardOptions options_;
  FakeDriver& fake_ = FakeDriver::fresh();
  FakeVariables variables_;
  FakeUpstream upstream_{variables_};
};

class ImpatientGuardAroundSessions : public GuardAroundSessions {
 protected:
  ImpatientGuardAroundSessions() : GuardAroundSessions(kImpatient) {}
};

struct Step {
  const char* name;
  void (*fail)(FakeDriver&, std::function<int()>);
};

const Step kSteps[] = {
    {"SessionControl",
     [](FakeDriver& fake, std::function<int()> hook) {
       fake.on_session_control = [hook](std::uint32_t, void*) { return hook(); };
     }},
    {"Open", [](FakeDriver& fake, std::function<int()> hook) { fake.on_open = hook; }},
    {"CreateQueue", [](FakeDriver& fake, std::function<int()> hook) { fake.on_create = hook; }},
    {"ExportQueue", [](FakeDriver& fake, std::function<int()> hook) { fake.on_export = hook; }},
    {"Map", [](FakeDriver& fake, std::function<int()> hook) { fake.on_map = hook; }},
    {"Start",
     [](FakeDriver& fake, std::function<int()> hook) {
       fake.on_invoke = [hook](std::uint32_t method) { return method == 2 ? hook() : 0; };
     }},
};

class GuardAtAFailingStart : public GuardAroundSessions, public ::testing::WithParamInterface<Step> {};

TEST_P(GuardAtAFailingStart, PassesTheErrorOnAndRemembersIt) {
  GetParam().fail(fake_, [] { return 0x2e; });
  fake_.on_close_queue = [] { return AEE_EFAILED; };  // aborts upstream, if it were told
  EXPECT_EQ(upstream_.set_up(), 0x2e);
  EXPECT_TRUE(upstream_.survived());
  EXPECT_FALSE(Guard::failed());
  EXPECT_EQ(Guard::status().kind, FailureKind::kStart);
  EXPECT_THAT(Guard::status().reason, HasSubstr("NPU's driver"));
}

TEST_P(GuardAtAFailingStart, LetsAnotherAttemptSucceed) {
  GetParam().fail(fake_, [] { return AEE_EUNABLETOLOAD; });
  EXPECT_EQ(upstream_.set_up(), AEE_EUNABLETOLOAD);
  GetParam().fail(fake_, [] { return 0; });
  FakeUpstream again(variables_);
  EXPECT_EQ(again.set_up(), 0);
  EXPECT_EQ(Guard::status().kind, FailureKind::kNone);
  EXPECT_EQ(Guard::status().reason, "");
  EXPECT_TRUE(again.submit());
  EXPECT_TRUE(again.finish());
}

class GuardAtAHangingStart : public ImpatientGuardAroundSessions, public ::testing::WithParamInterface<Step> {};

TEST_P(GuardAtAHangingStart, GivesUpTheDriver) {
  GetParam().fail(fake_, [&fake = fake_] { return fake.hang(); });
  const Stopwatch watch;
  EXPECT_NE(upstream_.set_up(), 0);
  EXPECT_LT(watch.elapsed_ms(), kBoundMs);
  EXPECT_TRUE(upstream_.survived());
  EXPECT_TRUE(Guard::failed());
  EXPECT_EQ(Guard::status().kind, FailureKind::kStart);
  EXPECT_THAT(Guard::status().reason, HasSubstr("within 1 s"));
  const int before = fake_.total();
  FakeUpstream again(variables_);
  EXPECT_NE(again.set_up(), 0);
  EXPECT_EQ(fake_.total(), before) << "a driver that hangs was called again";
}

const auto name_of_step = [](const ::testing::TestParamInfo<Step>& test) { return test.param.name; };
INSTANTIATE_TEST_SUITE_P(Steps, GuardAtAFailingStart, ::testing::ValuesIn(kSteps), name_of_step);
INSTANTIATE_TEST_SUITE_P(Steps, GuardAtAHangingStart, ::testing::ValuesIn(kSteps), name_of_step);

TEST_F(GuardAroundSessions, ForgetsQueriesThatFailedOnceTheSessionIsUp) {
  fake_.on_control = [] { return AEE_EUNSUPPORTEDAPI; };
  EXPECT_EQ(upstream_.set_up(), 0);
  EXPECT_EQ(Guard::status().kind, FailureKind::kNone);
}

TEST_F(GuardAroundSessions, AnswersAStopThatFails) {
  ASSERT_EQ(upstream_.set_up(), 0);
  fake_.on_invoke = [](std::uint32_t method) { return method == 3 ? AEE_EFAILED : 0; };
  EXPECT_TRUE(upstream_.release());
  EXPECT_EQ(Guard::status().kind, FailureKind::kError);
  EXPECT_THAT(Guard::status().reason, HasSubstr("stop the session"));
}

TEST_F(ImpatientGuardAroundSessions, AnswersAStopThatHangs) {
  ASSERT_EQ(upstream_.set_up(), 0);
  fake_.on_invoke = [this](std::uint32_t method) { return method == 3 ? fake_.hang() : 0; };
  const Stopwatch watch;
  EXPECT_TRUE(upstream_.release());
  EXPECT_LT(watch.elapsed_ms(), kBoundMs);
  EXPECT_EQ(Guard::status().kind, FailureKind::kSilent);
  EXPECT_EQ(fake_.count("close queue"), 0);
}

TEST_F(GuardAroundSessions, AnswersACloseThatFails) {
  ASSERT_EQ(upstream_.set_up(), 0);
  fake_.on_close_queue = [] { return AEE_ECONNRESET; };
  EXPECT_TRUE(upstream_.release());
  EXPECT_EQ(Guard::status().kind, FailureKind::kLost);
}

TEST_F(ImpatientGuardAroundSessions, AnswersAnUnmapThatHangs) {
  ASSERT_EQ(upstream_.set_up(), 0);
  fake_.on_unmap = [this] { return fake_.hang(); };
  upstream_.unmap();
  EXPECT_EQ(Guard::status().kind, FailureKind::kSilent);
  EXPECT_TRUE(upstream_.release());
}

TEST_F(GuardAroundSessions, OpensNoSessionOnADeviceThatFailed) {
  ASSERT_EQ(upstream_.set_up(), 0);
  Guard::declare_failed(FailureKind::kGarbage, "wrong");
  EXPECT_TRUE(upstream_.release());
  const int before = fake_.total();
  EXPECT_NE(upstream_.set_up(), 0);
  EXPECT_NE(upstream_.map(), 0);
  EXPECT_EQ(fake_.total(), before);
}

TEST_F(GuardAroundSessions, RunsOneSessionAfterAnother) {
  for (int i = 0; i < 3; ++i) {
    FakeUpstream upstream(variables_);
    ASSERT_EQ(upstream.set_up(), 0);
    ASSERT_TRUE(upstream.submit());
    ASSERT_TRUE(upstream.finish());
    ASSERT_TRUE(upstream.submit());  // released with work under way
    ASSERT_TRUE(upstream.release());
    const std::lock_guard lock(fake_.mutex);
    fake_.answers.clear();
  }
  EXPECT_FALSE(Guard::failed());
  EXPECT_EQ(Guard::status().batches_answered, 3u);
}

TEST_F(GuardAroundSessions, PassesOutOfMemoryOn) {
  ASSERT_EQ(upstream_.set_up(), 0);
  fake_.on_alloc = [](std::size_t) -> void* { return nullptr; };
  EXPECT_EQ(variables_.rpcmem_alloc2(25, 1, 1 << 20), nullptr);
  EXPECT_FALSE(Guard::failed());
  EXPECT_EQ(Guard::status().kind, FailureKind::kOutOfMemory);
  EXPECT_THAT(Guard::status().reason, HasSubstr("1.0 MiB"));
  fake_.on_alloc = nullptr;
  ASSERT_TRUE(upstream_.submit());
  EXPECT_TRUE(upstream_.finish());
  EXPECT_TRUE(upstream_.from_device().back());
}

TEST_F(ImpatientGuardAroundSessions, RefusesMemoryThatNeverComes) {
  ASSERT_EQ(upstream_.set_up(), 0);
  fake_.on_alloc = [this](std::size_t) -> void* {
    fake_.hang();
    return nullptr;
  };
  EXPECT_EQ(variables_.rpcmem_alloc2(25, 1, 4096), nullptr);
  EXPECT_EQ(Guard::status().kind, FailureKind::kSilent);
  EXPECT_EQ(variables_.rpcmem_alloc2(25, 1, 4096), nullptr);
  // Two threads hang in this driver: it is left alone for good, and nobody waits for it again.
  EXPECT_EQ(variables_.rpcmem_alloc2(25, 1, 4096), nullptr);
  EXPECT_EQ(fake_.count("alloc"), 2);
}

TEST_F(ImpatientGuardAroundSessions, LeaksWhatAHangingDriverWasAskedToFree) {
  ASSERT_EQ(upstream_.set_up(), 0);
  void* memory = variables_.rpcmem_alloc2(25, 1, 512);
  fake_.on_unmap = [this] { return fake_.hang(); };
  upstream_.unmap();
  variables_.rpcmem_free(memory);
  variables_.rpcmem_free(nullptr);
  EXPECT_EQ(Guard::status().leaked_bytes, 512u);
  EXPECT_FALSE(Guard::status().device_may_still_write) << "it had no work";
  std::free(memory);
}

TEST_F(GuardAroundSessions, CarriesResultsBackToTheCaller) {
  ASSERT_EQ(upstream_.set_up(), 0);
  std::uint8_t hardware[24] = {};
  EXPECT_EQ(upstream_.invoke(8, 0, 1, sizeof(hardware), hardware), 0);
  EXPECT_EQ(hardware[0], 0x11);
  EXPECT_EQ(hardware[23], 0x11);
  remote_dsp_capability capability{3, 6, 0};
  EXPECT_EQ(variables_.driver_control(DSPRPC_GET_DSP_INFO, &capability, sizeof(capability)), 0);
  EXPECT_EQ(capability.capability, 0x79u);

  fake_.on_session_control = [](std::uint32_t, void* data) {
    auto* request = static_cast<remote_rpc_get_uri*>(data);
    const std::string uri = std::string(request->module_uri) + "&_dom=" + request->domain_name;
    std::memcpy(request->uri, uri.c_str(), uri.size() + 1);
    return 0;
  };
  char domain[] = "cdsp", module[] = "file:///a.so", uri[64] = {};
  remote_rpc_get_uri request{domain, 4, 0, module, sizeof(module) - 1, uri, sizeof(uri)};
  EXPECT_EQ(variables_.session_control(FASTRPC_GET_URI, &request, sizeof(request)), 0);
  EXPECT_STREQ(uri, "file:///a.so&_dom=cdsp");
  EXPECT_EQ(request.uri, uri);
  EXPECT_EQ(request.module_uri, module);

  fake_.on_session_control = [](std::uint32_t, void* data) {
    auto* effective = static_cast<remote_rpc_effective_domain_id*>(data);
    effective->effective_domain_id = std::strlen(effective->domain_name) == 4 ? 7 : 0;
    return 0;
  };
  remote_rpc_effective_domain_id effective{domain, 4, 0, 0};
  EXPECT_EQ(variables_.session_control(FASTRPC_GET_EFFECTIVE_DOMAIN_ID, &effective, sizeof(effective)), 0);
  EXPECT_EQ(effective.effective_domain_id, 7u);
  EXPECT_EQ(effective.domain_name, domain);
}

// The call returns long after its caller: nothing of the caller's may be written then.
TEST_F(ImpatientGuardAroundSessions, LetsALateCallWriteIntoItsOwnMemoryOnly) {
  auto returned = std::make_shared<std::atomic<bool>>(false);
  fake_.on_session_control = [&fake = fake_, returned](std::uint32_t, void* data) {
    fake.hang();
    auto* request = static_cast<remote_rpc_get_uri*>(data);
    std::memset(request->uri, 'x', request->uri_len);
    request->session_id = 99;
    returned->store(true);
    return 0;
  };
  char domain[] = "cdsp", module[] = "file:///a.so", uri[16] = "unchanged";
  remote_rpc_get_uri request{domain, 4, 0, module, sizeof(module) - 1, uri, sizeof(uri)};
  EXPECT_NE(variables_.session_control(FASTRPC_GET_URI, &request, sizeof(request)), 0);
  fake_.release();
  const Stopwatch watch;
  while (!returned->load() && watch.elapsed_ms() < kBoundMs) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(returned->load());
  EXPECT_STREQ(uri, "unchanged");
  EXPECT_EQ(request.session_id, 0u);
}

TEST(Guard, GivesTheVariablesBack) {
  FakeDriver::fresh();
  FakeVariables variables;
  const QueueWrite write = variables.queue_write;
  const RpcmemAlloc alloc = variables.rpcmem_alloc;
  EXPECT_FALSE(Guard::failed());
  ASSERT_TRUE(Guard::install_over(variables.table(), kPatient).ok());
  EXPECT_NE(variables.queue_write, write);
  EXPECT_EQ(variables.queue_read_noblock, nullptr) << "the driver has none";
  Guard::uninstall();
  EXPECT_EQ(variables.queue_write, write);
  EXPECT_EQ(variables.rpcmem_alloc, alloc);
  EXPECT_EQ(Guard::status().batches_written, 0u);
}

TEST(Guard, NeedsALoadedDriver) {
  FakeVariables variables;
  variables.queue_read = nullptr;
  const Status status = Guard::install_over(variables.table(), kPatient);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kEngine);
  Guard::declare_failed(FailureKind::kGarbage, "nothing to declare it of");
  EXPECT_FALSE(Guard::failed());
}

TEST(Guard, ReadsItsDeadlinesFromTheEnvironment) {
  int warnings = 0;
  set_log_sink([&warnings](LogLevel level, std::string_view) { warnings += level == LogLevel::kWarning ? 1 : 0; });
  ::setenv("KAZEIA_NPU_DEADLINE_MS", "1234", 1);
  ::setenv("KAZEIA_NPU_START_DEADLINE_MS", "soon", 1);
  GuardOptions options = with_environment({});
  EXPECT_EQ(options.deadline_ms, 1234);
  EXPECT_EQ(options.start_deadline_ms, 20'000);
  EXPECT_EQ(warnings, 1);
  for (const char* bad : {"", "0", "-5", "3600001", "10s", "99999999999999999999"}) {
    ::setenv("KAZEIA_NPU_DEADLINE_MS", bad, 1);
    EXPECT_EQ(with_environment({}).deadline_ms, 10'000) << bad;
  }
  ::unsetenv("KAZEIA_NPU_DEADLINE_MS");
  ::unsetenv("KAZEIA_NPU_START_DEADLINE_MS");
  set_log_sink(nullptr);
  options = with_environment({1, 2});
  EXPECT_EQ(options.deadline_ms, 1);
  EXPECT_EQ(options.start_deadline_ms, 2);
}

}  // namespace
}  // namespace kazeia::npu
