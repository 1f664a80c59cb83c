// Every emulated op through upstream's real host code, against ggml's CPU backend: the same small graph on both. Where
// upstream's supports_op refuses a case, the case says so.
#include <gtest/gtest.h>

#include <algorithm>

#include "emulated_dsp/host_fixture.h"
#include "emulated_dsp/records.h"

namespace kazeia::emulated_dsp {
namespace {

// The double runs ggml's own CPU ops, so only copies of rows and orders of sums may differ.
constexpr double kSame = 2e-6;
// Weights and activations rounded to f16: 2^-11 each, in random directions over a row.
constexpr double kHalf = 2e-3;
// The device's one GELU against the exact and the tanh form.
constexpr double kGelu = 2e-2;

struct Case {
  std::string name;
  htp_op_code op;
  double tolerance;
  Build build;
  bool refused = false;  // by upstream's supports_op
};

using Tensors = std::vector<ggml_tensor*>;
using Binary = ggml_tensor* (*)(ggml_context*, ggml_tensor*, ggml_tensor*);
using Unary = ggml_tensor* (*)(ggml_context*, ggml_tensor*);
constexpr auto kF32 = GGML_TYPE_F32;
constexpr auto kF16 = GGML_TYPE_F16;
constexpr auto kI32 = GGML_TYPE_I32;

void add_binary(std::vector<Case>& cases, const std::string& name, htp_op_code op, Binary make) {
  const auto add = [&](const std::string& how, ggml_type type, std::vector<std::int64_t> a,
                       std::vector<std::int64_t> b) {
    cases.push_back({name + how, op, type == kF16 ? kHalf : kSame, [=](const Workshop& w) -> Tensors {
                       return {make(w.values, w.input("a", type, a), w.input("positive", type, b))};
                     }});
  };
  add("", kF32, {96, 7, 3}, {96, 7, 3});
  add("OverRows", kF32, {96, 7, 3}, {96});
  add("OverPlanes", kF32, {96, 7, 4, 2}, {96, 1, 4, 1});
  add("OfOneValue", kF32, {96, 7}, {1});
  add("PerRow", kF32, {64, 5, 3}, {1, 5, 3});
  add("F16", kF16, {96, 7}, {96, 7});
}

void add_unary(std::vector<Case>& cases, const std::string& name, htp_op_code op, Unary make, double tolerance = kSame,
               const std::string& input = "a") {
  cases.push_back({name, op, tolerance, [=](const Workshop& w) -> Tensors {
                     return {make(w.values, w.input(input, kF32, {100, 9, 2}))};
                   }});
  // A view whose rows lie further apart than they are long; some of ggml's own CPU ops refuse it, so the CPU gets a
  // copy of it.
  cases.push_back({name + "OfAView", op, tolerance, [=](const Workshop& w) -> Tensors {
                     ggml_tensor* whole = w.input(input, kF32, {128, 9});
                     ggml_tensor* view = ggml_view_2d(w.values, whole, 64, 9, whole->nb[1], 64 * sizeof(float));
                     return {make(w.values, w.reference ? ggml_cont(w.values, view) : view)};
                   }});
}

void add_elementwise(std::vector<Case>& cases) {
  add_binary(cases, "Mul", HTP_OP_MUL, ggml_mul);
  add_binary(cases, "Add", HTP_OP_ADD, ggml_add);
  add_binary(cases, "Sub", HTP_OP_SUB, ggml_sub);
  add_binary(cases, "Div", HTP_OP_DIV, ggml_div);

  add_unary(cases, "Silu", HTP_OP_UNARY_SILU, ggml_silu);
  add_unary(cases, "Gelu", HTP_OP_UNARY_GELU, ggml_gelu, kGelu);
  add_unary(cases, "GeluQuick", HTP_OP_UNARY_GELU, ggml_gelu_quick, kHalf);
  add_unary(cases, "Sigmoid", HTP_OP_UNARY_SIGMOID, ggml_sigmoid);
  add_unary(cases, "Exp", HTP_OP_UNARY_EXP, ggml_exp);
  add_unary(cases, "Neg", HTP_OP_UNARY_NEG, ggml_neg);
  add_unary(cases, "Softplus", HTP_OP_UNARY_SOFTPLUS, ggml_softplus);
  add_unary(cases, "Tanh", HTP_OP_UNARY_TANH, ggml_tanh);
  add_unary(cases, "Abs", HTP_OP_UNARY_ABS, ggml_abs);
  add_unary(cases, "Relu", HTP_OP_UNARY_RELU, ggml_relu);
  add_unary(cases, "Log", HTP_OP_UNARY_LOG, ggml_log, kSame, "positive");
  add_unary(cases, "Sqr", HTP_OP_SQR, ggml_sqr);
  add_unary(cases, "Sqrt", HTP_OP_SQRT, ggml_sqrt, kSame, "positive");
  add_unary(cases, "SumRows", HTP_OP_SUM_ROWS, ggml_sum_rows);
  cases.back().refused = true;  // of a view
  add_unary(cases, "RmsNorm", HTP_OP_RMS_NORM,
            [](ggml_context* c, ggml_tensor* a) { return ggml_rms_norm(c, a, 1e-6F); });
  add_unary(cases, "Norm", HTP_OP_NORM, [](ggml_context* c, ggml_tensor* a) { return ggml_norm(c, a, 1e-5F); });
  add_unary(cases, "L2Norm", HTP_OP_L2_NORM, [](ggml_context* c, ggml_tensor* a) { return ggml_l2_norm(c, a, 1e-6F); });
  add_unary(cases, "Scale", HTP_OP_SCALE,
            [](ggml_context* c, ggml_tensor* a) { return ggml_scale_bias(c, a, 0.7F, -0.2F); });
  add_unary(cases, "Clamp", HTP_OP_CLAMP,
            [](ggml_context* c, ggml_tensor* a) { return ggml_clamp(c, a, -0.5F, 0.8F); });
  add_unary(cases, "LeakyRelu", HTP_OP_LEAKY_RELU,
            [](ggml_context* c, ggml_tensor* a) { return ggml_leaky_relu(c, a, 0.1F, false); });

  cases.push_back({"AddId", HTP_OP_ADD_ID, kSame, [](const Workshop& w) -> Tensors {
                     return {ggml_add_id(w.values, w.input("a", kF32, {64, 3, 5}), w.input("b", kF32, {64, 8}),
                                         w.input("indices8", kI32, {3, 5}))};
                   }});
}

void add_gated(std::vector<Case>& cases) {
  struct Kind {
    const char* name;
    htp_op_code op;
    ggml_glu_op glu;
  };
  for (const Kind& kind :
       {Kind{"Swiglu", HTP_OP_GLU_SWIGLU, GGML_GLU_OP_SWIGLU}, Kind{"Geglu", HTP_OP_GLU_GEGLU, GGML_GLU_OP_GEGLU},
        Kind{"GegluQuick", HTP_OP_GLU_GEGLU_QUICK, GGML_GLU_OP_GEGLU_QUICK}}) {
    const ggml_glu_op glu = kind.glu;
    cases.push_back({kind.name + std::string("OfTwo"), kind.op, kSame, [glu](const Workshop& w) -> Tensors {
                       return {ggml_glu_split(w.values, w.input("a", kF32, {96, 5}), w.input("b", kF32, {96, 5}), glu)};
                     }});
    for (const bool swapped : {false, true}) {
      cases.push_back({kind.name + std::string(swapped ? "OfHalvesSwapped" : "OfHalves"), kind.op, kSame,
                       [glu, swapped](const Workshop& w) -> Tensors {
                         return {ggml_glu(w.values, w.input("a", kF32, {192, 5}), glu, swapped)};
                       }});
    }
  }
  cases.push_back(
      {"SwigluOai", HTP_OP_GLU_SWIGLU_OAI, kSame, [](const Workshop& w) -> Tensors {
         return {ggml_swiglu_oai(w.values, w.input("a", kF32, {96, 5}), w.input("b", kF32, {96, 5}), 1.702F, 1.0F)};
       }});
}

void add_movement(std::vector<Case>& cases) {
  const auto add = [&](const char* name, htp_op_code op, Build build, double tolerance = kSame) {
    cases.push_back({name, op, tolerance, std::move(build)});
  };
  add("CpyToHalf", HTP_OP_CPY, [](const Workshop& w) -> Tensors {
    return {ggml_cpy(w.values, w.input("a", kF32, {64, 5}), w.input("zero", kF16, {64, 5}))};
  });
  add("CpyFromHalf", HTP_OP_CPY, [](const Workshop& w) -> Tensors {
    return {ggml_cpy(w.values, w.input("a", kF16, {64, 5}), w.input("zero", kF32, {64, 5}))};
  });
  add("CpyReshaping", HTP_OP_CPY, [](const Workshop& w) -> Tensors {
    return {ggml_cpy(w.values, w.input("a", kF32, {64, 6}), w.input("zero", kF32, {32, 4, 3}))};
  });
  add("ContOfATransposition", HTP_OP_CPY, [](const Workshop& w) -> Tensors {
    return {ggml_cont(w.values, ggml_transpose(w.values, w.input("a", kF32, {33, 17, 2})))};
  });
  add("ContOfAPermutation", HTP_OP_CPY, [](const Workshop& w) -> Tensors {
    return {ggml_cont(w.values, ggml_permute(w.values, w.input("a", kF16, {16, 5, 4, 2}), 0, 2, 1, 3))};
  });
  for (const ggml_type rows : {kI32, GGML_TYPE_I64}) {
    for (const ggml_type type : {kF32, kF16, GGML_TYPE_Q8_0}) {
      cases.push_back({std::string("SetRows") + ggml_type_name(type) + "By" + ggml_type_name(rows), HTP_OP_SET_ROWS,
                       kSame, [=](const Workshop& w) -> Tensors {
                         return {ggml_set_rows(w.values, w.input("zero", type, {64, 20, 2}),
                                               w.input("a", kF32, {64, 6, 2}), w.input("indices20", rows, {6, 2}))};
                       }});
      if (rows != kI32) continue;  // ggml gathers by I32 only
      cases.push_back(
          {std::string("GetRows") + ggml_type_name(type) + "By" + ggml_type_name(rows), HTP_OP_GET_ROWS, kSame,
           [=](const Workshop& w) -> Tensors {
             return {ggml_get_rows(w.values, w.input("a", type, {64, 20, 2}), w.input("indices20", rows, {6, 2}))};
           }});
    }
  }
  for (int dim = 0; dim < 4; ++dim) {
    cases.push_back(
        {"ConcatAlong" + std::to_string(dim), HTP_OP_CONCAT, kSame, [dim](const Workshop& w) -> Tensors {
           std::vector<std::int64_t> longer{32, 6, 4, 2};
           longer[static_cast<std::size_t>(dim)] += 3;
           return {ggml_concat(w.values, w.input("a", kF32, {32, 6, 4, 2}), w.input("b", kF32, longer), dim)};
         }});
  }
  add("ConcatOfATransposition", HTP_OP_CONCAT, [](const Workshop& w) -> Tensors {
    return {
        ggml_concat(w.values, w.input("a", kF32, {3, 40}), ggml_transpose(w.values, w.input("b", kF32, {40, 20})), 0)};
  });
  add("Repeat", HTP_OP_REPEAT, [](const Workshop& w) -> Tensors {
    return {ggml_repeat_4d(w.values, w.input("a", kF32, {32, 1, 3}), 64, 5, 6, 2)};
  });
  for (const ggml_sort_order order : {GGML_SORT_ORDER_ASC, GGML_SORT_ORDER_DESC}) {
    cases.push_back({order == GGML_SORT_ORDER_ASC ? "ArgsortUp" : "ArgsortDown", HTP_OP_ARGSORT, 0,
                     [order](const Workshop& w) -> Tensors {
                       return {ggml_argsort(w.values, w.input("a", kF32, {100, 5}), order)};
                     }});
  }
  add("Cumsum", HTP_OP_CUMSUM, [](const Workshop& w) -> Tensors {
    return {ggml_cumsum(w.values, w.input("a", kF32, {100, 5, 2}))};
  });
  add("Fill", HTP_OP_FILL, [](const Workshop& w) -> Tensors {
    return {ggml_fill(w.values, w.input("a", kF32, {100, 5}), 1.5F)};
  });
  add("Diag", HTP_OP_DIAG, [](const Workshop& w) -> Tensors {
    return {ggml_diag(w.values, w.input("a", kF32, {20, 1, 3}))};
  });
  for (const ggml_tri_type kind :
       {GGML_TRI_TYPE_UPPER_DIAG, GGML_TRI_TYPE_UPPER, GGML_TRI_TYPE_LOWER_DIAG, GGML_TRI_TYPE_LOWER}) {
    cases.push_back({"Tri" + std::to_string(kind), HTP_OP_TRI, kSame, [kind](const Workshop& w) -> Tensors {
                       return {ggml_tri(w.values, w.input("a", kF32, {40, 40, 3}), kind)};
                     }});
  }
  add("Pad", HTP_OP_PAD, [](const Workshop& w) -> Tensors {
    return {ggml_pad_ext(w.values, w.input("a", kF32, {30, 5, 2}), 3, 2, 1, 0, 0, 2, 0, 1)};
  });
  add("PadInACircle", HTP_OP_PAD, [](const Workshop& w) -> Tensors {
    return {ggml_pad_ext_circular(w.values, w.input("a", kF32, {30, 5}), 3, 2, 1, 1, 0, 0, 0, 0)};
  });
  add("Roll", HTP_OP_ROLL, [](const Workshop& w) -> Tensors {
    return {ggml_roll(w.values, w.input("a", kF32, {30, 5, 3}), 4, -2, 1, 0)};
  });
  add("SolveTri", HTP_OP_SOLVE_TRI, [](const Workshop& w) -> Tensors {
    ggml_tensor* lower = ggml_tri(w.values, w.input("positive", kF32, {16, 16, 2}), GGML_TRI_TYPE_LOWER_DIAG);
    return {ggml_solve_tri(w.values, lower, w.input("b", kF32, {5, 16, 2}), true, true, false)};
  });
}

void add_attention(std::vector<Case>& cases) {
  for (const ggml_type mask : {kF32, kF16}) {
    cases.push_back({std::string("SoftmaxUnderAMask") + ggml_type_name(mask), HTP_OP_SOFTMAX, kSame,
                     [mask](const Workshop& w) -> Tensors {
                       return {ggml_soft_max_ext(w.values, w.input("a", kF32, {64, 16, 4}),
                                                 w.input("mask", mask, {64, 16}), 0.3F, 0.0F)};
                     }});
  }
  cases.push_back({"SoftmaxWithSlopes", HTP_OP_SOFTMAX, kSame, [](const Workshop& w) -> Tensors {
                     return {ggml_soft_max_ext(w.values, w.input("a", kF32, {64, 16, 4}),
                                               w.input("mask", kF32, {64, 16}), 0.3F, 8.0F)};
                   }});
  cases.push_back({"Softmax", HTP_OP_SOFTMAX, kSame, [](const Workshop& w) -> Tensors {
                     return {ggml_soft_max(w.values, w.input("a", kF32, {64, 7, 2}))};
                   }});
  cases.push_back({"SoftmaxWithSinks", HTP_OP_SOFTMAX, kSame, [](const Workshop& w) -> Tensors {
                     ggml_tensor* out = ggml_soft_max_ext(w.values, w.input("a", kF32, {64, 16, 4}),
                                                          w.input("mask", kF32, {64, 16}), 0.3F, 0.0F);
                     ggml_soft_max_add_sinks(out, w.input("b", kF32, {4}));
                     return {out};
                   }});
  cases.back().refused = true;
  struct Shape {
    const char* name;
    std::int64_t head, queries, heads, kv_heads, cells;
  };
  for (const Shape& s : {Shape{"OfOne", 64, 1, 8, 2, 96}, Shape{"OfMany", 128, 37, 8, 2, 128},
                         Shape{"OfWideHeads", 256, 40, 4, 1, 64}}) {
    const auto attention = [s](const Workshop& w, bool mask, bool sinks) -> Tensors {
      ggml_tensor* q = w.input("q", kF32, {s.head, s.queries, s.heads});
      // Keys and values lie as llama.cpp keeps them: heads inside a cell.
      const auto cache = [&](const char* name) {
        return ggml_permute(w.values, w.input(name, kF16, {s.head, s.kv_heads, s.cells}), 0, 2, 1, 3);
      };
      ggml_tensor* out = ggml_flash_attn_ext(w.values, q, cache("k"), cache("v"),
                                             mask ? w.input("mask", kF16, {s.cells, s.queries}) : nullptr, 0.1F, 0, 0);
      if (sinks) ggml_flash_attn_ext_add_sinks(out, w.input("sinks", kF32, {s.heads}));
      return {out};
    };
    cases.push_back({std::string("FlashAttention") + s.name, HTP_OP_FLASH_ATTN_EXT, kHalf,
                     [attention](const Workshop& w) { return attention(w, true, false); }});
    cases.push_back({std::string("FlashAttentionUnmasked") + s.name, HTP_OP_FLASH_ATTN_EXT, kHalf,
                     [attention](const Workshop& w) { return attention(w, false, false); }});
    cases.push_back({std::string("FlashAttentionWithSinks") + s.name, HTP_OP_FLASH_ATTN_EXT, kHalf,
                     [attention](const Workshop& w) { return attention(w, true, true); }});
  }
}

void add_rope(std::vector<Case>& cases) {
  const auto rotate = [](const Workshop& w, int mode, bool factors) -> Tensors {
    ggml_tensor* x = w.input("a", kF32, {128, 4, 9});
    return {ggml_rope_ext(w.values, x, w.input("positions", kI32, {9}),
                          factors ? w.input("positive", kF32, {48}) : nullptr, 96, mode, 4096, 10000.0F, 0.9F, 0.5F,
                          1.1F, 32.0F, 1.0F)};
  };
  for (const bool factors : {false, true}) {
    const std::string how = factors ? "WithFactors" : "";
    cases.push_back({"RopeNormal" + how, HTP_OP_ROPE, kSame,
                     [=](const Workshop& w) { return rotate(w, GGML_ROPE_TYPE_NORMAL, factors); }});
    cases.push_back({"RopeNeox" + how, HTP_OP_ROPE, kSame,
                     [=](const Workshop& w) { return rotate(w, GGML_ROPE_TYPE_NEOX, factors); }});
  }
  for (const auto& [name, mode] :
       {std::pair{"RopeMrope", GGML_ROPE_TYPE_MROPE}, std::pair{"RopeImrope", GGML_ROPE_TYPE_IMROPE}}) {
    const int which = mode;
    cases.push_back({name, HTP_OP_ROPE, kSame, [which](const Workshop& w) -> Tensors {
                       int sections[4] = {16, 24, 24, 0};
                       return {ggml_rope_multi(w.values, w.input("a", kF32, {128, 4, 9}),
                                               w.input("positions", kI32, {36}), nullptr, 128, sections, which, 4096,
                                               10000.0F, 1.0F, 0.0F, 1.0F, 32.0F, 1.0F)};
                     }});
  }
  cases.push_back({"RopeOfAView", HTP_OP_ROPE, kSame, [](const Workshop& w) -> Tensors {
                     ggml_tensor* whole = w.input("a", kF32, {256, 4, 9});
                     ggml_tensor* half = ggml_view_3d(w.values, whole, 128, 4, 9, whole->nb[1], whole->nb[2], 0);
                     return {ggml_rope_ext(w.values, half, w.input("positions", kI32, {9}), nullptr, 128,
                                           GGML_ROPE_TYPE_NEOX, 4096, 10000.0F, 1.0F, 0.0F, 1.0F, 32.0F, 1.0F)};
                   }});
}

ggml_tensor* delta_net(const Workshop& w, std::int64_t size, std::int64_t heads, std::int64_t tokens,
                       bool per_channel) {
  return ggml_gated_delta_net(w.values, ggml_l2_norm(w.values, w.input("q", kF32, {size, heads, tokens, 1}), 1e-6F),
                              ggml_l2_norm(w.values, w.input("k", kF32, {size, heads, tokens, 1}), 1e-6F),
                              w.input("v", kF32, {size, heads, tokens, 1}),
                              w.input("negative", kF32, {per_channel ? size : 1, heads, tokens, 1}),
                              ggml_sigmoid(w.values, w.input("beta", kF32, {1, heads, tokens, 1})),
                              w.input("state", kF32, {size, size, heads, 1}), 1);
}

void add_recurrent(std::vector<Case>& cases) {
  for (const std::int64_t tokens : {1, 20}) {
    cases.push_back(
        {"SsmConvOf" + std::to_string(tokens), HTP_OP_SSM_CONV, kSame, [tokens](const Workshop& w) -> Tensors {
           return {ggml_ssm_conv(w.values, w.input("a", kF32, {3 + tokens, 96, 2}), w.input("b", kF32, {4, 96}))};
         }});
    for (const bool per_channel : {false, true}) {
      cases.push_back({"GatedDeltaNetOf" + std::to_string(tokens) + (per_channel ? "PerChannel" : ""),
                       HTP_OP_GATED_DELTA_NET, kSame,
                       [=](const Workshop& w) -> Tensors { return {delta_net(w, 64, 4, tokens, per_channel)}; }});
    }
    // Only the output is compared: where the state stands behind it, the fused op leaves it alone.
    cases.push_back({"GatedDeltaNetWithItsStateOf" + std::to_string(tokens), HTP_OP_GATED_DELTA_NET, kSame,
                     [tokens](const Workshop& w) -> Tensors {
                       constexpr std::int64_t size = 64;
                       constexpr std::int64_t heads = 4;
                       ggml_tensor* out = delta_net(w, size, heads, tokens, false);
                       ggml_tensor* state =
                           ggml_view_2d(w.values, out, size * size * heads, 1, size * size * heads * sizeof(float),
                                        static_cast<std::size_t>(size * heads * tokens) * sizeof(float));
                       ggml_tensor* kept = ggml_cpy(w.values, state, w.input("zero", kF32, {size * size * heads, 1}));
                       ggml_tensor* attention = ggml_view_2d(w.values, out, size * heads, tokens, out->nb[1], 0);
                       return {kept, ggml_cont(w.values, attention)};
                     }});
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  add_elementwise(cases);
  add_gated(cases);
  add_movement(cases);
  add_attention(cases);
  add_rope(cases);
  add_recurrent(cases);
  return cases;
}

class HostOp : public testing::TestWithParam<Case> {};

TEST_P(HostOp, GivesWhatTheCpuGives) {
  ASSERT_NE(hexagon_device(), nullptr);
  const Case& what = GetParam();
  const auto before = dsp_counters();
  const Comparison result = compare(what.build);
  ASSERT_EQ(!result.refused.empty(), what.refused) << "upstream refuses: " << result.refused;
  if (what.refused) return;
  const auto after = dsp_counters();
  EXPECT_GT(after.ops_by_opcode[what.op], before.ops_by_opcode[what.op]) << "the DSP did not execute the op";
  EXPECT_LE(result.error, what.tolerance);
  std::printf("%-40s %.1e of %.0e allowed\n", what.name.c_str(), result.error, what.tolerance);
}

std::string name_of(const testing::TestParamInfo<Case>& test) {
  std::string name = test.param.name;
  std::erase(name, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Every, HostOp, testing::ValuesIn(all_cases()), name_of);

}  // namespace
}  // namespace kazeia::emulated_dsp
