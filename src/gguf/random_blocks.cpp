#include "gguf/random_blocks.h"

#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

namespace kazeia::gguf {
namespace {

std::uint64_t split_mix(std::uint64_t& state) {
  state += 0x9E3779B97F4A7C15u;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

void store_half(std::byte* at, float value) {
  const std::uint16_t half = half_from_float(value);
  std::memcpy(at, &half, sizeof(half));
}

// Embeddings of a tied model are its head too: with normalised activations this gives logits of 1 to 2 units in
// models 1024 to 2560 wide, as trained ones have before they become sure.
constexpr float kEmbeddingDeviation = 0.04f;

float deviation(Fill fill, std::uint64_t columns) {
  return fill == Fill::kEmbedding ? kEmbeddingDeviation : 1.0f / std::sqrt(static_cast<float>(columns));
}

// 256 block scales around `scale`, of both signs so that the lopsided range of the quants (-8..7) has no mean.
std::array<std::uint16_t, 256> scale_choices(float scale) {
  std::array<std::uint16_t, 256> choices{};
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const std::size_t step = i / 2;  // one size for both signs
    const float size = scale * (0.75f + 0.5f * static_cast<float>(step) / 127.0f);
    choices[i] = half_from_float(i % 2 == 0 ? size : -size);
  }
  return choices;
}

void fill_q4_0(std::span<std::byte> out, float standard_deviation, Random& random) {
  constexpr float kQuantRms = 4.637f;  // of -8..7, equally likely
  const auto scales = scale_choices(standard_deviation / kQuantRms);
  constexpr std::size_t kBlock = 18;
  for (std::size_t at = 0; at < out.size(); at += kBlock) {
    const std::uint64_t words[2] = {random.next(), random.next()};
    // The product's high bits are independent enough of the quants for a scale.
    const std::size_t choice = (words[0] * 0x9E3779B97F4A7C15u ^ words[1]) >> 56;
    std::memcpy(out.data() + at, &scales[choice], 2);
    std::memcpy(out.data() + at + 2, words, 16);
  }
}

void fill_q6_k(std::span<std::byte> out, float standard_deviation, Random& random) {
  constexpr float kQuantRms = 18.48f;  // of -32..31
  constexpr float kScaleRms = 84.1f;   // of 32..127
  constexpr std::size_t kQuants = 128 + 64;
  constexpr std::size_t kScales = 16;
  constexpr std::size_t kBlock = kQuants + kScales + 2;
  std::array<std::int8_t, 256> scales{};
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const int size = 32 + static_cast<int>(i / 2) * 95 / 127;
    scales[i] = static_cast<std::int8_t>(i % 2 == 0 ? size : -size);
  }
  for (std::size_t at = 0; at < out.size(); at += kBlock) {
    std::byte* block = out.data() + at;
    for (std::size_t i = 0; i < kQuants; i += 8) {
      const std::uint64_t word = random.next();
      std::memcpy(block + i, &word, sizeof(word));
    }
    for (std::size_t i = 0; i < kScales; i += 8) {
      const std::uint64_t word = random.next();
      for (std::size_t j = 0; j < 8; ++j) {
        block[kQuants + i + j] = static_cast<std::byte>(scales[(word >> (8 * j)) & 0xFF]);
      }
    }
    store_half(block + kQuants + kScales, standard_deviation / (kQuantRms * kScaleRms));
  }
}

float f32_value(Fill fill, Random& random) {
  const float u = random.uniform();
  switch (fill) {
    case Fill::kNorm:
      return 0.9f + 0.2f * u;
    // Negative, most of them small: memories of a few tokens to a few hundred, as in trained models.
    case Fill::kDecay:
      return -(0.05f + 6.0f * u * u * u);
    case Fill::kTimeStep:
      return -4.0f + 4.0f * u;
    case Fill::kConvolution:
      return 1.732f * (u - 0.5f);  // deviation 0.5 over four taps: gain 1
    case Fill::kMatrix:
    case Fill::kEmbedding:
      break;
  }
  return kEmbeddingDeviation * 3.464f * (u - 0.5f);
}

}  // namespace

Random::Random(std::uint64_t seed, std::uint64_t tensor, std::uint64_t piece) {
  std::uint64_t mix = seed;
  mix = split_mix(mix) ^ tensor;
  mix = split_mix(mix) ^ piece;
  for (std::uint64_t& word : state_) word = split_mix(mix);
}

std::uint64_t Random::next() {
  const std::uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
  const std::uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

float Random::uniform() {
  return static_cast<float>(next() >> 40) * 0x1p-24f;
}

void fill_blocks(std::span<std::byte> out, TypeId type, Fill fill, std::uint64_t columns, Random& random) {
  assert(out.size() % tensor_type(type).block_bytes == 0);
  switch (type) {
    case TypeId::kQ4_0:
      return fill_q4_0(out, deviation(fill, columns), random);
    case TypeId::kQ6_K:
      return fill_q6_k(out, deviation(fill, columns), random);
    case TypeId::kF32:
      for (std::size_t at = 0; at < out.size(); at += sizeof(float)) {
        const float value = f32_value(fill, random);
        std::memcpy(out.data() + at, &value, sizeof(value));
      }
      return;
    default:
      assert(false && "fill_blocks: no generator for this type");
  }
}

std::uint16_t half_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u);   // not a number
  if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // 65536 and above
  // Adding a power of two whose unit is half's unit at this size lets the float adder do the rounding.
  const float exact = std::bit_cast<float>(magnitude);
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal, unit 2^-24
    const auto rounded = std::bit_cast<std::uint32_t>(exact + 0.5f);
    return static_cast<std::uint16_t>(sign | (rounded - std::bit_cast<std::uint32_t>(0.5f)));
  }
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xFFFu + odd) >> 13));
}

}  // namespace kazeia::gguf
