#include "plan/settings.h"

#include <algorithm>
#include <array>

namespace kazeia::plan {
namespace {

// What has no record is in the list of settings_test.cpp, which only ever gets shorter.
constexpr std::array<Setting, 14> kSettings = {{
    {.name = "prefill_threads",
     .meaning = "threads that read a prompt",
     .flag = "--prefill-threads",
     .value = "physical performance cores",
     .record = "",
     .reason = "more than there are cores collapse (decision 0003); whether fewer are faster depends on the machine"},
    {.name = "decode_threads",
     .meaning = "threads that write the answer",
     .flag = "--decode-threads",
     .value = "physical performance cores",
     .record = "",
     .reason = "more than there are cores collapse (decision 0003); whether fewer are faster depends on the machine"},
    {.name = "cores",
     .meaning = "cores that these threads may use",
     .flag = "--cores",
     .value = "all",
     .record = "",
     .reason = "the system's scheduler places the threads; nobody has measured better places"},
    {.name = "poll",
     .meaning = "how long threads look out for the next graph before they sleep",
     .flag = "--poll",
     .value = "off",
     .record = "",
     .reason = "upstream makes and joins its threads for every graph; no record compares that with threads that stay"},
    {.name = "ubatch",
     .meaning = "widest piece of a prompt that is read at once, in tokens",
     .flag = "--ubatch",
     .value = "512",
     .record = "",
     .reason = "upstream's own default; other widths have not been compared"},
    {.name = "kv",
     .meaning = "type of the KV cache",
     .flag = "--kv",
     .value = "f16",
     .record = "",
     .reason = "coarser ones take less memory (decision 0019); how much they change answers has not been measured",
     .changes_answers = true},
    {.name = "flash_attention",
     .meaning = "attention in one fused step",
     .flag = "--flash-attention",
     .value = "on",
     .record = "0011",
     .reason = "off is slower: a prompt of 512 tokens at 66.9 instead of 73.8 tokens/s on the qwen3-4b shape"},
    {.name = "attention",
     .meaning = "whose kernels compute the attention on the CPU; over a cache that is not f16 it is upstream's",
     .flag = "--attention",
     .value = "kazeia",
     .record = "c46ef3a392a9",
     .reason = "behind 1,024 tokens the qwen3-4b shape writes 1.28 times as fast as with upstream's (1.15 to 1.43)"},
    {.name = "huge_pages",
     .meaning = "weights on huge pages, where the system has them",
     .flag = "--huge-pages",
     .value = "on",
     .record = "",
     .reason = "fewer misses of the address cache are expected, and have not been measured"},
    {.name = "route",
     .meaning = "which processor reads and which writes",
     .flag = "--route",
     .value = "auto",
     .record = "",
     .reason = "only a device with an NPU can tell whether its prefill is faster"},
    {.name = "npu_min_width",
     .meaning = "narrowest piece of a prompt that the NPU reads, in tokens",
     .flag = "--npu-min-width",
     .value = "32",
     .record = "",
     .reason = "one tile of rows; `kazeia doctor --npu --model FILE --save` measures it on a device"},
    {.name = "checkpoint_spacing",
     .meaning = "tokens between two kept states in a long prompt; chat only",
     .flag = "--checkpoint-spacing",
     .value = "1024",
     .record = "0018",
     .reason = "with it a turn of a long chat takes 0.93 to 1.05 times what reading its new tokens takes"},
    {.name = "checkpoint_memory",
     .meaning = "most memory for kept states; chat only",
     .flag = "--checkpoint-memory",
     .value = "256MB",
     .record = "0018",
     .reason = "with it a turn of a long chat takes 0.93 to 1.05 times what reading its new tokens takes"},
    {.name = "context",
     .meaning = "tokens of prompt and answer together",
     .flag = "--context",
     .value = "4096",
     .record = "",
     .reason = "or what the model was trained with if less; a larger one takes more memory (decision 0019)",
     .changes_answers = true},
}};

}  // namespace

std::span<const Setting> settings() {
  return kSettings;
}

const Setting* find_setting(std::string_view name) {
  const auto* found =
      std::find_if(kSettings.begin(), kSettings.end(), [&](const Setting& s) { return s.name == name; });
  return found == kSettings.end() ? nullptr : found;
}

}  // namespace kazeia::plan
