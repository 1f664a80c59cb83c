// The table of FastRPC sizes, offsets and constants against our own headers. The rows are constants of this file, so
// a header that drifts fails the build (static_assert); the test prints the table and checks it once more at run
// time, so that a report from a tablet shows what that binary was built with.
#include <gtest/gtest.h>

#include <AEEStdDef.h>
#include <AEEStdErr.h>
#include <HAP_farf.h>
#include <domain.h>
#include <dspqueue.h>
#include <remote.h>
#include <rpcmem.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>

namespace {

struct Row {
  const char* name;
  unsigned long long ours;
  unsigned long long abi;
};

constexpr bool agrees(const Row& row) {
  return row.ours == row.abi;
}

template <std::size_t N>
constexpr bool all_agree(const Row (&rows)[N]) {
  for (const Row& row : rows) {
    if (!agrees(row)) return false;
  }
  return true;
}

#define CONSTANT(name, value)                             \
  Row {                                                   \
#name, static_cast < unsigned long long>(name), value \
  }
#define SIZE(type, size)                \
  Row {                                 \
    "sizeof " #type, sizeof(type), size \
  }
#define FIELD(type, field, offset, size)                                \
  Row{"offset " #type "." #field, offsetof(type, field), offset}, Row { \
    "sizeof " #type "." #field, sizeof(type::field), size               \
  }

constexpr Row kConstants[] = {
    CONSTANT(AEE_SUCCESS, 0),
    CONSTANT(AEE_EOFFSET, 0),
    CONSTANT(AEE_EFAILED, 1),
    CONSTANT(AEE_ENOMEMORY, 2),
    CONSTANT(AEE_EUNABLETOLOAD, 6),
    CONSTANT(AEE_EEXPIRED, 12),
    CONSTANT(AEE_EBADPARM, 14),
    CONSTANT(AEE_ECONNRESET, 104),
    CONSTANT(AEE_EUNSUPPORTEDAPI, 108),
    CONSTANT(AEE_EWOULDBLOCK, 516),
    CONSTANT(CDSP_DOMAIN_ID, 3),
    CONSTANT(CDSP1_DOMAIN_ID, 4),
    CONSTANT(RPCMEM_HEAP_ID_SYSTEM, 25),
    CONSTANT(RPCMEM_DEFAULT_FLAGS, 1),
    CONSTANT(DSPQUEUE_TIMEOUT_NONE, 0xffffffff),
    CONSTANT(DSPQUEUE_BUFFER_FLAG_FLUSH_SENDER, 16),
    CONSTANT(DSPQUEUE_BUFFER_FLAG_INVALIDATE_SENDER, 32),
    CONSTANT(DSPQUEUE_BUFFER_FLAG_FLUSH_RECIPIENT, 64),
    CONSTANT(DSPQUEUE_BUFFER_FLAG_INVALIDATE_RECIPIENT, 128),
    CONSTANT(DSPRPC_CONTROL_LATENCY, 1),
    CONSTANT(DSPRPC_GET_DSP_INFO, 2),
    CONSTANT(DSPRPC_CONTROL_UNSIGNED_MODULE, 2),
    CONSTANT(FASTRPC_RESERVE_NEW_SESSION, 13),
    CONSTANT(FASTRPC_GET_EFFECTIVE_DOMAIN_ID, 14),
    CONSTANT(FASTRPC_GET_URI, 15),
    CONSTANT(ARCH_VER, 6),
    CONSTANT(FASTRPC_MAP_FD, 2),
    CONSTANT(FASTRPC_MAP_FD_DELAYED, 3),
};

constexpr Row kLayouts[] = {
    SIZE(AEEResult, 4),
    SIZE(remote_handle, 4),
    SIZE(remote_handle64, 8),
    SIZE(uint32, 4),
    SIZE(uint64, 8),
    SIZE(dspqueue_t, 8),
    SIZE(remote_arg, 16),
    FIELD(remote_arg, buf.pv, 0, 8),
    FIELD(remote_arg, buf.nLen, 8, 8),
    FIELD(remote_arg, h, 0, 4),
    FIELD(remote_arg, h64, 0, 8),
    SIZE(dspqueue_buffer, 24),
    FIELD(dspqueue_buffer, fd, 0, 4),
    FIELD(dspqueue_buffer, size, 4, 4),
    FIELD(dspqueue_buffer, offset, 8, 4),
    FIELD(dspqueue_buffer, flags, 12, 4),
    FIELD(dspqueue_buffer, ptr, 16, 8),
    FIELD(dspqueue_buffer, address, 16, 8),
    SIZE(remote_rpc_control_latency, 8),
    FIELD(remote_rpc_control_latency, enable, 0, 4),
    FIELD(remote_rpc_control_latency, latency, 4, 4),
    SIZE(remote_dsp_capability, 12),
    FIELD(remote_dsp_capability, domain, 0, 4),
    FIELD(remote_dsp_capability, attribute_ID, 4, 4),
    FIELD(remote_dsp_capability, capability, 8, 4),
    SIZE(remote_rpc_control_unsigned_module, 8),
    FIELD(remote_rpc_control_unsigned_module, domain, 0, 4),
    FIELD(remote_rpc_control_unsigned_module, enable, 4, 4),
    SIZE(remote_rpc_reserve_new_session, 40),
    FIELD(remote_rpc_reserve_new_session, domain_name, 0, 8),
    FIELD(remote_rpc_reserve_new_session, domain_name_len, 8, 4),
    FIELD(remote_rpc_reserve_new_session, session_name, 16, 8),
    FIELD(remote_rpc_reserve_new_session, session_name_len, 24, 4),
    FIELD(remote_rpc_reserve_new_session, effective_domain_id, 28, 4),
    FIELD(remote_rpc_reserve_new_session, session_id, 32, 4),
    SIZE(remote_rpc_effective_domain_id, 24),
    FIELD(remote_rpc_effective_domain_id, domain_name, 0, 8),
    FIELD(remote_rpc_effective_domain_id, domain_name_len, 8, 4),
    FIELD(remote_rpc_effective_domain_id, session_id, 12, 4),
    FIELD(remote_rpc_effective_domain_id, effective_domain_id, 16, 4),
    SIZE(remote_rpc_get_uri, 48),
    FIELD(remote_rpc_get_uri, domain_name, 0, 8),
    FIELD(remote_rpc_get_uri, domain_name_len, 8, 4),
    FIELD(remote_rpc_get_uri, session_id, 12, 4),
    FIELD(remote_rpc_get_uri, module_uri, 16, 8),
    FIELD(remote_rpc_get_uri, module_uri_len, 24, 4),
    FIELD(remote_rpc_get_uri, uri, 32, 8),
    FIELD(remote_rpc_get_uri, uri_len, 40, 4),
};

static_assert(all_agree(kConstants), "a FastRPC constant of our headers differs from the ABI");
static_assert(all_agree(kLayouts), "a FastRPC struct of our headers differs from the ABI");
static_assert(std::is_same_v<uint64, unsigned long long>, "upstream passes unsigned long long* where uint64* is asked");
static_assert(std::is_signed_v<AEEResult>, "AEEResult is an int");
static_assert(std::is_same_v<dspqueue_callback_t, void (*)(dspqueue_t, AEEResult, void*)>);
static_assert(sizeof(domain::uri) >= 12, "\"&_dom=cdsp1\" and its end must fit");
// attributes 0, method 8, no input, one output: the call that asks for the hardware.
static_assert(REMOTE_SCALARS_MAKEX(0, 8, 0, 1, 0, 0) == 0x08000100u);
static_assert(REMOTE_SCALARS_METHOD(REMOTE_SCALARS_MAKEX(7, 31, 255, 1, 15, 2)) == 31);
static_assert(REMOTE_SCALARS_INBUFS(REMOTE_SCALARS_MAKEX(7, 31, 255, 1, 15, 2)) == 255);
static_assert(REMOTE_SCALARS_OUTBUFS(REMOTE_SCALARS_MAKEX(7, 31, 255, 1, 15, 2)) == 1);
static_assert(REMOTE_SCALARS_INHANDLES(REMOTE_SCALARS_MAKEX(7, 31, 255, 1, 15, 2)) == 15);
static_assert(REMOTE_SCALARS_OUTHANDLES(REMOTE_SCALARS_MAKEX(7, 31, 255, 1, 15, 2)) == 2);

template <std::size_t N>
void print_and_compare(const Row (&rows)[N]) {
  for (const Row& row : rows) {
    std::printf("%-64s %10llu %10llu\n", row.name, row.ours, row.abi);
    EXPECT_EQ(row.ours, row.abi) << row.name;
  }
}

TEST(FastRpcHeaders, AgreeWithTheAbiRowByRow) {
  std::printf("%-64s %10s %10s\n", "", "ours", "ABI");
  print_and_compare(kConstants);
  print_and_compare(kLayouts);
}

TEST(FastRpcHeaders, NameTheTwoComputeProcessors) {
  EXPECT_STREQ(CDSP_DOMAIN_NAME, "cdsp");
  ASSERT_EQ(std::size(supported_domains), 2U);
  EXPECT_EQ(supported_domains[0].id, 3);
  EXPECT_STREQ(supported_domains[0].uri, "&_dom=cdsp");
  EXPECT_EQ(supported_domains[1].id, 4);
  EXPECT_STREQ(supported_domains[1].uri, "&_dom=cdsp1");
}

}  // namespace
