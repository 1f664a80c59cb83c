// Upstream's own record definitions (htp-ops.h), with the sizes that this double was written against.
#pragma once

#include <cstddef>
#include <cstdint>

// Upstream's header: plain C, no dependencies.
#include "htp-ops.h"

namespace kazeia::emulated_dsp {

static_assert(sizeof(htp_buf_desc) == 24);
static_assert(sizeof(htp_tensor) == 56);
static_assert(sizeof(htp_op_desc) == 232);
static_assert(sizeof(htp_prof_desc) == 48);
static_assert(sizeof(htp_opbatch_req) == 24);
static_assert(sizeof(htp_opbatch_rsp) == 88);
static_assert(HTP_OP_INVALID <= 64, "the counters have 64 places");

// Absent source or destination of an op.
inline constexpr std::uint16_t kNoTensor = 0xffff;

// "MUL_MAT" for HTP_OP_MUL_MAT; "?" beyond the last one.
const char* op_name(std::uint32_t opcode);

}  // namespace kazeia::emulated_dsp
