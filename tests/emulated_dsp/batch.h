// One request of the host, taken apart and checked: the records in the shared block that a packet points at.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "emulated_dsp/memory.h"
#include "emulated_dsp/records.h"
#include "emulated_dsp/tensor.h"

namespace kazeia::emulated_dsp {

struct Op {
  std::uint32_t opcode = 0;
  std::array<std::int32_t, HTP_OP_MAX_PARAMS> params{};
  std::array<const Tensor*, HTP_OP_MAX_INPUTS> src{};  // null: absent
  std::array<const Tensor*, HTP_OP_MAX_OUTPUTS> dst{};
};

struct Batch {
  std::vector<Tensor> tensors;
  std::vector<Op> ops;
  // One place per op in the shared block, filled in when the host profiles.
  std::span<htp_prof_desc> profile;
};

// The memory behind a buffer record's fd as the DSP sees it; nullopt: the DSP may not read it.
using BufferLookup = std::function<std::optional<Memory::Buffer>(const htp_buf_desc&)>;

// Bytes of the block that `request` needs.
std::size_t block_bytes(const htp_opbatch_req& request);

// Takes `block` (as long as block_bytes says) apart. nullopt: a buffer that may not be read, an index, offset, size,
// stride, type or op code that cannot be; `problem` then says which. Addresses that the host wrote into the records
// are never used.
std::optional<Batch> read_batch(const htp_opbatch_req& request, std::uint8_t* block, const BufferLookup& lookup,
                                std::string& problem);

}  // namespace kazeia::emulated_dsp
