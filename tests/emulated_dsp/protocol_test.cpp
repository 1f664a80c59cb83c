// The emulated DSP's entry points, driven directly.
#include <sys/mman.h>

#include <random>
#include <thread>

#include "emulated_dsp/dsp_library.h"
#include "tiles/sample_blocks.h"

namespace kazeia::emulated_dsp {
namespace {

const DspLibrary& dsp() {
  return DspLibrary::get();
}

TEST(Protocol, HasTheEntryPointsThatUpstreamAsksForAndNotTheOneThatIsNotPublic) {
  ASSERT_NE(dsp().handle, nullptr) << dlerror();
  for (const char* name :
       {"rpcmem_alloc", "rpcmem_free", "rpcmem_to_fd", "fastrpc_mmap", "fastrpc_munmap", "dspqueue_create",
        "dspqueue_close", "dspqueue_export", "dspqueue_write", "dspqueue_read", "dspqueue_read_noblock",
        "remote_handle64_open", "remote_handle64_invoke", "remote_handle_control", "remote_handle64_control",
        "remote_session_control", "remote_handle64_close", "rpcmem_alloc2", "kazeia_emulated_dsp_stats"}) {
    EXPECT_NE(dlsym(dsp().handle, name), nullptr) << name;
  }
  EXPECT_EQ(dlsym(dsp().handle, "remote_system_request"), nullptr);
}

TEST(Protocol, KeepsItsOwnGgmlToItself) {
  for (const char* name : {"ggml_init", "ggml_graph_compute", "ggml_cpu_init", "ggml_backend_cpu_init"}) {
    EXPECT_EQ(dlsym(dsp().handle, name), nullptr) << name;
  }
}

TEST(Protocol, IsFoundByItsNameOnceItIsLoaded) {
  void* again = dlopen("libcdsprpc.so", RTLD_NOW | RTLD_LOCAL);
  EXPECT_EQ(again, dsp().handle);
  if (again != nullptr) dlclose(again);
}

TEST(Protocol, DescribesAV79WithEightThreads) {
  remote_dsp_capability capability{CDSP_DOMAIN_ID, ARCH_VER, 0};
  ASSERT_EQ(dsp().remote_handle_control(DSPRPC_GET_DSP_INFO, &capability, sizeof(capability)), AEE_SUCCESS);
  EXPECT_EQ(capability.capability & 0xff, 0x79U);

  Session session;
  struct {
    std::uint32_t threads, vector_units, matrix_units, padding;
    std::uint64_t vtcm;
  } hardware{};
  remote_arg argument{};
  argument.buf = {&hardware, sizeof(hardware)};
  ASSERT_EQ(dsp().remote_handle64_invoke(session.handle, REMOTE_SCALARS_MAKEX(0, 8, 0, 1, 0, 0), &argument),
            AEE_SUCCESS);
  EXPECT_EQ(hardware.threads, 8U);
  EXPECT_EQ(hardware.vector_units, 8U);
  EXPECT_EQ(hardware.matrix_units, 1U);
  EXPECT_EQ(hardware.vtcm, 8ULL << 20);
}

TEST(Protocol, AnswersTheSessionRequestsThatUpstreamMakes) {
  char name[] = "cdsp";
  remote_rpc_effective_domain_id domain{name, 4, 0, 0};
  ASSERT_EQ(dsp().remote_session_control(FASTRPC_GET_EFFECTIVE_DOMAIN_ID, &domain, sizeof(domain)), AEE_SUCCESS);
  EXPECT_EQ(domain.effective_domain_id, 3U);

  char module[] = "file:///libggml-htp-v79.so?htp_iface_skel_handle_invoke&_modver=1.0";
  char uri[256] = {};
  remote_rpc_get_uri request{name, 4, 0, module, sizeof(module) - 1, uri, sizeof(uri)};
  ASSERT_EQ(dsp().remote_session_control(FASTRPC_GET_URI, &request, sizeof(request)), AEE_SUCCESS);
  remote_handle64 handle = 0;
  EXPECT_EQ(dsp().remote_handle64_open(uri, &handle), AEE_SUCCESS);
  EXPECT_LT(handle, 1ULL << 32) << "upstream's close truncates handles to 32 bits";
  EXPECT_EQ(dsp().remote_handle64_close(handle), AEE_SUCCESS);
  EXPECT_EQ(dsp().remote_handle64_close(handle), AEE_EBADPARM);

  char elsewhere[] = "adsp";
  domain.domain_name = elsewhere;
  EXPECT_EQ(dsp().remote_session_control(FASTRPC_GET_EFFECTIVE_DOMAIN_ID, &domain, sizeof(domain)), AEE_EBADPARM);
  EXPECT_EQ(dsp().remote_session_control(999, &domain, sizeof(domain)), AEE_EUNSUPPORTEDAPI);
}

TEST(Protocol, RefusesCallsWithTheWrongArguments) {
  Session session;
  std::uint64_t words[8] = {};
  EXPECT_EQ(session.call(2, words, 24), AEE_EBADPARM) << "start takes 32 bytes";
  EXPECT_EQ(session.call(2, words, 32), AEE_EBADPARM) << "queue 0 does not exist";
  EXPECT_EQ(session.call(5, words, 8), AEE_EBADPARM);
  EXPECT_EQ(session.call(30, words, 8), AEE_EBADPARM);
  EXPECT_EQ(dsp().remote_handle64_invoke(4711, REMOTE_SCALARS_MAKEX(0, 3, 0, 0, 0, 0), nullptr), AEE_EBADPARM);
}

TEST(Protocol, MemoryHasAFileDescriptorThatOthersCanMap) {
  const SharedBuffer memory(1 << 16);
  ASSERT_TRUE(memory.mapped());
  void* other = mmap(nullptr, memory.size(), PROT_READ, MAP_SHARED, memory.fd(), 0);
  ASSERT_NE(other, MAP_FAILED);
  std::memcpy(memory.base() + 1234, "shared", 6);
  EXPECT_EQ(std::memcmp(static_cast<char*>(other) + 1234, "shared", 6), 0);
  munmap(other, memory.size());
}

TEST(Protocol, EverythingThatWasTakenIsGivenBack) {
  const auto before = dsp().counters();
  {
    Session session;
    const SharedBuffer memory(4096);
    ASSERT_EQ(session.status_of(addition(memory)), HTP_STATUS_OK);
    const auto during = dsp().counters();
    EXPECT_EQ(during.rpcmem_buffers, before.rpcmem_buffers + 2);
    EXPECT_EQ(during.mapped_buffers, before.mapped_buffers + 2);
    EXPECT_EQ(during.sessions_open, before.sessions_open + 1);
    EXPECT_EQ(session.release(memory), AEE_SUCCESS);
  }
  const auto after = dsp().counters();
  EXPECT_EQ(after.rpcmem_buffers, before.rpcmem_buffers);
  EXPECT_EQ(after.rpcmem_bytes, before.rpcmem_bytes);
  EXPECT_EQ(after.mapped_bytes, before.mapped_bytes);
  EXPECT_EQ(after.sessions_open, before.sessions_open);
  EXPECT_EQ(after.munmap_calls, before.munmap_calls + 2);
  EXPECT_EQ(after.dsp_release_calls, before.dsp_release_calls + 1);
  EXPECT_EQ(after.freed_while_mapped, before.freed_while_mapped);
}

TEST(Protocol, ExecutesABatchInSharedMemoryAndCountsIt) {
  Session session;
  const SharedBuffer memory(4096);
  const auto before = dsp().counters();
  ASSERT_EQ(session.status_of(addition(memory)), HTP_STATUS_OK);
  EXPECT_EQ(sums(memory), kExpectedSums);
  const auto after = dsp().counters();
  EXPECT_EQ(after.batches, before.batches + 1);
  EXPECT_EQ(after.answers, before.answers + 1);
  EXPECT_EQ(after.ops_by_opcode[HTP_OP_ADD], before.ops_by_opcode[HTP_OP_ADD] + 1);
}

TEST(Protocol, AnswersManyBatchesInTheirOrder) {
  Session session;
  const SharedBuffer memory(4096);
  const Records records = addition(memory);
  std::uint64_t answered = 0;
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(session.send(records), AEE_SUCCESS);
    if (session.sent - answered < Session::kBlocks - 1) continue;
    htp_opbatch_rsp answer{};
    ASSERT_EQ(session.receive(answer), AEE_SUCCESS);
    ASSERT_EQ(session.received_bytes, sizeof(answer));
    ASSERT_EQ(answer.seq, ++answered);
    ASSERT_EQ(answer.status, std::uint32_t{HTP_STATUS_OK});
  }
  htp_opbatch_rsp answer{};
  while (answered < session.sent) {
    ASSERT_EQ(session.receive(answer), AEE_SUCCESS);
    ASSERT_EQ(answer.seq, ++answered);
  }
  EXPECT_EQ(session.receive(answer, 1000), AEE_EEXPIRED);
  EXPECT_EQ(session.receive(answer, 0), AEE_EWOULDBLOCK);
}

TEST(Protocol, AFullQueueRunsIntoTheWritersTimeout) {
  Session session;
  const SharedBuffer memory(4096);
  const Environment late{{"KAZEIA_DSP_FAULT", "late"}, {"KAZEIA_DSP_DELAY_MS", "300"}};
  const Records records = addition(memory);
  dspqueue_buffer buffer{};
  htp_opbatch_req request{};
  int error = AEE_SUCCESS;
  for (int i = 0; i < 200 && error == AEE_SUCCESS; ++i) {
    error = dsp().dspqueue_write(session.queue, 0, 0, &buffer, sizeof(request),
                                 reinterpret_cast<const std::uint8_t*>(&request), 1000);
  }
  EXPECT_EQ(error, AEE_EEXPIRED);
}

TEST(Protocol, ReadsOnlyMemoryThatWasMappedForIt) {
  Session session;
  SharedBuffer memory(4096);
  Records records = addition(memory);
  ASSERT_EQ(dsp().fastrpc_munmap(kDomain, memory.fd(), memory.base(), memory.size()), AEE_SUCCESS);
  EXPECT_EQ(session.status_of(records), std::uint32_t{HTP_STATUS_INVAL_PARAMS});
  EXPECT_EQ(sums(memory), kUntouched);

  ASSERT_EQ(dsp().fastrpc_mmap(kDomain, memory.fd(), memory.base(), 0, memory.size(), FASTRPC_MAP_FD), AEE_SUCCESS);
  EXPECT_EQ(dsp().fastrpc_mmap(kDomain, memory.fd(), memory.base(), 0, memory.size(), FASTRPC_MAP_FD), AEE_EBADPARM)
      << "mapped twice";
  EXPECT_EQ(session.status_of(records), std::uint32_t{HTP_STATUS_OK});

  records.buffers[0].fd = 9999;
  EXPECT_EQ(session.status_of(records), std::uint32_t{HTP_STATUS_INVAL_PARAMS});
  EXPECT_EQ(dsp().fastrpc_mmap(kDomain, 9999, nullptr, 0, 4096, FASTRPC_MAP_FD), AEE_EBADPARM);
}

TEST(Protocol, NoticesMemoryThatWasReplacedBehindItsBack) {
  Session session;
  const auto before = dsp().counters();
  int fd = -1;
  {
    const SharedBuffer memory(4096);
    fd = memory.fd();
    ASSERT_EQ(session.status_of(addition(memory)), HTP_STATUS_OK);
  }  // freed without telling the DSP
  const SharedBuffer next(4096);
  ASSERT_EQ(next.fd(), fd) << "the kernel hands out the lowest free descriptor";
  EXPECT_EQ(session.status_of(addition(next)), std::uint32_t{HTP_STATUS_INVAL_PARAMS});
  EXPECT_EQ(dsp().counters().stale_mappings, before.stale_mappings + 1);
  EXPECT_EQ(session.release(next), AEE_SUCCESS);
  EXPECT_EQ(session.status_of(addition(next)), std::uint32_t{HTP_STATUS_OK});
}

TEST(Protocol, FreeingMappedMemoryIsCounted) {
  const auto before = dsp().counters();
  void* memory = dsp().rpcmem_alloc(RPCMEM_HEAP_ID_SYSTEM, RPCMEM_DEFAULT_FLAGS, 4096);
  ASSERT_EQ(dsp().fastrpc_mmap(kDomain, dsp().rpcmem_to_fd(memory), memory, 0, 4096, FASTRPC_MAP_FD), AEE_SUCCESS);
  dsp().rpcmem_free(memory);
  dsp().rpcmem_free(memory);  // ignored
  const auto after = dsp().counters();
  EXPECT_EQ(after.freed_while_mapped, before.freed_while_mapped + 1);
  EXPECT_EQ(after.mapped_buffers, before.mapped_buffers);
  EXPECT_EQ(after.rpcmem_buffers, before.rpcmem_buffers);
}

TEST(Protocol, RefusesRecordsThatCannotBe) {
  Session session;
  const SharedBuffer memory(4096);
  const Records good = addition(memory);
  const std::vector<std::pair<const char*, void (*)(Records&)>> wrongs{
      {"buffer index", [](Records& r) { r.tensors[0].bi = 1; }},
      {"source index", [](Records& r) { r.ops[0].src[1] = 3; }},
      {"destination index", [](Records& r) { r.ops[0].dst[0] = 700; }},
      {"no source", [](Records& r) { r.ops[0].src[0] = kNoTensor; }},
      {"no destination", [](Records& r) { r.ops[0].dst[0] = kNoTensor; }},
      {"offset", [](Records& r) { r.tensors[1].data = 4096; }},
      {"offset and size", [](Records& r) { r.tensors[1].data = 4088; }},
      {"huge offset", [](Records& r) { r.tensors[1].data = ~0ULL - 3; }},
      {"misaligned offset", [](Records& r) { r.tensors[1].data = 17; }},
      {"size", [](Records& r) { r.tensors[2].size = 5000; }},
      {"stride", [](Records& r) { r.tensors[0].nb[0] = 0xffffff00; }},
      {"misaligned stride", [](Records& r) { r.tensors[0].nb[0] = 6; }},
      {"dimension", [](Records& r) { r.tensors[0].ne[1] = 0x80000000; }},
      {"empty", [](Records& r) { r.tensors[0].ne[2] = 0; }},
      {"shape", [](Records& r) { r.tensors[2].ne[0] = 3; }},
      {"type", [](Records& r) { r.tensors[0].type = 77; }},
      {"mixed types", [](Records& r) { r.tensors[1].type = HTP_TYPE_F16; }},
      {"tensor flags", [](Records& r) { r.tensors[0].flags = 1U << 9; }},
      {"tiles of F32", [](Records& r) { r.tensors[0].flags = HTP_TENSOR_REPACK; }},
      {"op code", [](Records& r) { r.ops[0].opcode = HTP_OP_INVALID; }},
      {"buffer flags", [](Records& r) { r.buffers[0].flags = HTP_BUF_EXTENDED; }},
      {"buffer size", [](Records& r) { r.buffers[0].size = 4097; }},
  };
  for (const auto& [what, change] : wrongs) {
    Records wrong = good;
    change(wrong);
    EXPECT_EQ(session.status_of(wrong), std::uint32_t{HTP_STATUS_INVAL_PARAMS}) << what;
    EXPECT_EQ(sums(memory), kUntouched) << what;
  }
  EXPECT_EQ(session.status_of(good), std::uint32_t{HTP_STATUS_OK});
  EXPECT_EQ(sums(memory), kExpectedSums);
}

TEST(Protocol, RefusesWhatItDoesNotEmulate) {
  Session session;
  const SharedBuffer memory(4096);
  Records records = addition(memory);
  for (const htp_op_code code : {HTP_OP_MUL_MAT_ID, HTP_OP_MUL_MAT_ID_NX, HTP_OP_IM2COL, HTP_OP_ALLREDUCE,
                                 HTP_OP_ALLREDUCE_ADD, HTP_OP_MDEV_GROUP}) {
    records.ops[0].opcode = code;
    EXPECT_EQ(session.status_of(records), std::uint32_t{HTP_STATUS_NO_SUPPORT}) << code;
  }
}

TEST(Protocol, DropsPacketsThatAreNoRequestAndRefusesBlocksThatAreTooShort) {
  Session session;
  const auto before = dsp().counters();
  std::uint8_t word[8] = {};
  ASSERT_EQ(dsp().dspqueue_write(session.queue, 0, 0, nullptr, sizeof(word), word, 1000), AEE_SUCCESS);
  htp_opbatch_rsp answer{};
  EXPECT_EQ(session.receive(answer, 100000), AEE_EEXPIRED);
  EXPECT_EQ(dsp().counters().dropped_packets, before.dropped_packets + 1);

  htp_opbatch_req request{};
  request.seq = 7;
  request.n_ops = 100;
  dspqueue_buffer buffer{};
  buffer.fd = static_cast<std::uint32_t>(session.block().fd());
  buffer.size = 1000;
  ASSERT_EQ(session.write(request, buffer), AEE_SUCCESS);
  ASSERT_EQ(session.receive(answer), AEE_SUCCESS);
  EXPECT_EQ(answer.seq, 7U);
  EXPECT_EQ(answer.status, std::uint32_t{HTP_STATUS_INVAL_PARAMS});

  buffer.offset = static_cast<std::uint32_t>(session.block().size());
  EXPECT_EQ(session.write(request, buffer), AEE_EBADPARM) << "beyond the block's memory";
  buffer.fd = 9999;
  EXPECT_EQ(session.write(request, buffer), AEE_EBADPARM);
}

TEST(Protocol, OneFailedOpFailsTheBatchAndTheNextBatchRuns) {
  Session session;
  const SharedBuffer memory(4096);
  Records records = addition(memory);
  records.ops.insert(records.ops.begin(), records.ops[0]);
  records.ops[0].opcode = HTP_OP_IM2COL;
  EXPECT_EQ(session.status_of(records), std::uint32_t{HTP_STATUS_NO_SUPPORT});
  EXPECT_EQ(sums(memory), kUntouched) << "after the failure nothing is computed";
  EXPECT_EQ(session.status_of(addition(memory)), std::uint32_t{HTP_STATUS_OK});
}

TEST(Protocol, ReportsTimesWhenTheHostProfiles) {
  Session session;
  const SharedBuffer memory(4096);
  std::uint32_t arguments[9] = {HTP_PROF_BASIC};
  ASSERT_EQ(session.call(6, arguments, sizeof(arguments)), AEE_SUCCESS);
  ASSERT_EQ(session.status_of(addition(memory)), HTP_STATUS_OK);
  EXPECT_EQ(session.profile->opcode, std::uint32_t{HTP_OP_ADD});
}

TEST(Protocol, SignalsAndAwaitsFences) {
  Session session;
  const SharedBuffer memory(4096);
  auto* words = reinterpret_cast<std::uint32_t*>(memory.base() + 1024);
  Records records = addition(memory);
  const auto fence = records.tensor(0, 1024, {1}, HTP_TYPE_I32);
  records.tensors[fence].flags = HTP_TENSOR_FENCE;
  htp_op_desc& signal = records.op(HTP_OP_FENCE, {fence}, fence);
  signal.params[0] = 42;
  signal.params[1] = 1;
  ASSERT_EQ(session.status_of(records), HTP_STATUS_OK);
  EXPECT_EQ(words[0], 42U);
  EXPECT_EQ(words[1], std::uint32_t{HTP_STATUS_OK});

  // A failed batch still signals, with its status.
  records.ops[0].opcode = HTP_OP_IM2COL;
  records.ops[1].params[0] = 43;
  EXPECT_EQ(session.status_of(records), std::uint32_t{HTP_STATUS_NO_SUPPORT});
  EXPECT_EQ(words[0], 43U);
  EXPECT_EQ(words[1], std::uint32_t{HTP_STATUS_NO_SUPPORT});

  // A wait is over when somebody else has signalled.
  words[1] = HTP_STATUS_OK;
  records = addition(memory);
  const auto again = records.tensor(0, 1024, {1}, HTP_TYPE_I32);
  records.tensors[again].flags = HTP_TENSOR_FENCE;
  records.op(HTP_OP_FENCE, {again}, again).params[0] = 50;
  ASSERT_EQ(session.send(records), AEE_SUCCESS);
  htp_opbatch_rsp answer{};
  EXPECT_EQ(session.receive(answer, 100000), AEE_EEXPIRED);
  __atomic_store_n(words, 50U, __ATOMIC_RELEASE);
  ASSERT_EQ(session.receive(answer), AEE_SUCCESS);
  EXPECT_EQ(answer.status, std::uint32_t{HTP_STATUS_OK});

  // Without the flag that marks a fence, memory is not written.
  records.tensors[again].flags = 0;
  EXPECT_EQ(session.status_of(records), std::uint32_t{HTP_STATUS_INVAL_PARAMS});
}

TEST(Protocol, CopiesAndSignalsInOneOp) {
  Session session;
  const SharedBuffer memory(4096);
  Records records;
  const auto buffer = records.buffer(memory);
  const auto from = records.tensor(buffer, 0, {4});
  const auto fence = records.tensor(buffer, 1024, {1}, HTP_TYPE_I32);
  records.tensors[fence].flags = HTP_TENSOR_FENCE;
  records.op(HTP_OP_CPY_FENCE, {from, fence}, records.tensor(buffer, 32, {4})).params[0] = 9;
  memory.floats()[3] = 7.0F;
  ASSERT_EQ(session.status_of(records), HTP_STATUS_OK);
  EXPECT_EQ(memory.floats(32)[3], 7.0F);
  EXPECT_EQ(*reinterpret_cast<std::uint32_t*>(memory.base() + 1024), 9U);
}

// Nothing a host can write into its records may bring the double down: it would take the host's process with it.
TEST(Protocol, SurvivesRandomRecords) {
  Session session;
  const SharedBuffer memory(1 << 20);
  tiles::samples::Random random(tiles::samples::seed());
  const int rounds = tiles::samples::rounds(20000);
  const auto below = [&](std::uint32_t limit) { return static_cast<std::uint32_t>(random() % limit); };
  constexpr std::uint32_t kTypes[] = {HTP_TYPE_F32,  HTP_TYPE_F16,  HTP_TYPE_I32,    HTP_TYPE_I64,  HTP_TYPE_Q8_0,
                                      HTP_TYPE_Q4_0, HTP_TYPE_Q6_K, HTP_TYPE_IQ4_NL, HTP_TYPE_MXFP4};
  constexpr std::uint32_t kSizes[] = {1, 1, 2, 3, 4, 8, 32, 64, 256};
  int ok = 0;
  for (int round = 0; round < rounds; ++round) {
    Records records;
    const auto buffer = records.buffer(memory);
    // Mostly one type and few shapes, so that many batches pass the first checks and reach the ops'.
    const std::uint32_t common = below(3) == 0 ? kTypes[below(9)] : std::uint32_t{HTP_TYPE_F32};
    const std::vector<std::uint32_t> shape{kSizes[below(9)], kSizes[below(6)], kSizes[below(4)], kSizes[below(3)]};
    for (int i = 0; i < 8; ++i) {
      const bool usual = below(4) != 0;
      const auto tensor = records.tensor(buffer, below(8192) * 64, shape, usual ? common : kTypes[below(9)]);
      htp_tensor& record = records.tensors[tensor];
      if (below(4) == 0) record.ne[below(4)] = kSizes[below(9)];
      if (below(6) == 0) std::swap(record.nb[below(4)], record.nb[below(4)]);
      if (below(16) == 0) record.nb[below(4)] = below(4096);
      if (below(8) == 0) record.flags = below(8);
      record.size = 4;
    }
    htp_op_desc& op =
        records.op(static_cast<htp_op_code>(below(HTP_OP_INVALID)), {}, static_cast<std::uint16_t>(below(8)));
    if (op.opcode == HTP_OP_FENCE) op.opcode = HTP_OP_ADD;  // waiting for nobody takes ten seconds
    const std::uint32_t sources = 1 + below(6);
    for (std::uint32_t i = 0; i < sources; ++i) op.src[i] = static_cast<std::uint16_t>(below(8));
    if (below(4) == 0) op.dst[1] = static_cast<std::uint16_t>(below(8));
    for (auto& param : op.params) param = below(3) == 0 ? static_cast<std::int32_t>(below(64)) : 0;
    const std::uint32_t status = session.status_of(records);
    ASSERT_NE(status, 0U) << "no answer in round " << round << ", op " << op.opcode;
    ok += status == HTP_STATUS_OK ? 1 : 0;
  }
  std::printf("%d of %d random batches were valid\n", ok, rounds);
  EXPECT_GT(ok, rounds / 40) << "the records are too wild to test anything";
}

}  // namespace
}  // namespace kazeia::emulated_dsp
