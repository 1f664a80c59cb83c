// `kazeia inspect`: what a GGUF file contains, without loading it.

#include <algorithm>
#include <cstdio>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "gguf/inspection.h"
#include "gguf/loadable.h"
#include "gguf/reader.h"
#include "tiles/layout.h"
#include "verbs.h"

namespace kazeia::cli {
namespace {

using gguf::Inspection;
using gguf::LayerKind;
using gguf::printable;
using Json = nlohmann::ordered_json;

struct InspectArguments {
  std::string path;
  bool tensors = false;
  bool json = false;
};

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

// The tiles that the engine would keep this weight in; nullopt: it stays as upstream keeps it.
std::optional<tiles::Shape> tile_shape(const gguf::Tensor& tensor) {
  const auto type = tiles::weight_type_of(static_cast<std::uint32_t>(tensor.type->id));
  if (tensor.dimension_count != 2 || !type) return std::nullopt;
  return tiles::Shape{*type, static_cast<std::int64_t>(tensor.dims[1]), static_cast<std::int64_t>(tensor.dims[0])};
}

// Tensors, and their bytes in the file, on one of the two paths.
struct PathShare {
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
  std::uint64_t tile_bytes = 0;         // as the tiles lie in memory; padding and wider scales included
  std::vector<std::string_view> types;  // each once, in file order

  void add(const gguf::Tensor& tensor, const std::optional<tiles::Shape>& shape) {
    ++tensors;
    bytes += tensor.bytes;
    if (shape) tile_bytes += shape->bytes();
    if (std::find(types.begin(), types.end(), tensor.type->name) == types.end()) types.push_back(tensor.type->name);
  }
};

struct TileShare {
  PathShare tiles;
  PathShare upstream;

  explicit TileShare(const gguf::ModelFile& model) {
    for (const gguf::File& part : model.parts()) {
      for (const gguf::Tensor& tensor : part.tensors()) {
        const auto shape = tile_shape(tensor);
        (shape ? tiles : upstream).add(tensor, shape);
      }
    }
  }
};

std::string list_text(const std::vector<std::uint64_t>& list) {
  if (list.size() == 1) return std::to_string(list.front());
  std::string text;
  for (const std::uint64_t value : list) text += fmt::format("{}{}", text.empty() ? "" : " ", value);
  return text;
}

// One letter per layer in groups of eight: "RRRA RRRA".
std::string map_text(const std::vector<LayerKind>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (i > 0 && i % 8 == 0) text += ' ';
    switch (layers[i]) {
      case LayerKind::kAttention:
        text += 'A';
        break;
      case LayerKind::kRecurrent:
        text += 'R';
        break;
      case LayerKind::kBoth:
        text += 'B';
        break;
      case LayerKind::kNeither:
        text += 'F';
        break;
      case LayerKind::kNextToken:
        text += 'N';
        break;
    }
  }
  return text;
}

// "24 recurrent, 8 attention"
std::string counts_text(const Inspection& facts) {
  std::string text;
  for (const LayerKind kind :
       {LayerKind::kRecurrent, LayerKind::kAttention, LayerKind::kBoth, LayerKind::kNeither, LayerKind::kNextToken}) {
    const std::uint64_t count = facts.layer_count(kind);
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, layer_kind_name(kind));
  }
  return text;
}

void row(std::string_view label, const std::string& value) {
  if (!value.empty()) fmt::print("{:<16} {}\n", label, value);
}

void print_model(const Inspection& facts) {
  row("name", printable(facts.name));
  row("architecture", printable(facts.architecture));
  row("licence", printable(facts.licence));
  row("file", fmt::format("{}, GGUF v{}{}", format_bytes(facts.file_bytes), facts.version,
                          facts.parts > 1 ? fmt::format(", {} parts", facts.parts) : ""));
  row("parameters", fmt::format("{} in {} tensors, {:.2f} bits each", format_count(facts.parameters), facts.tensors,
                                facts.bits_per_weight()));
  if (facts.context_tokens) row("context", fmt::format("{} tokens", *facts.context_tokens));
  if (facts.embedding)
    row("width", fmt::format("{}, feed-forward {}", *facts.embedding, list_text(facts.feed_forward)));
  if (facts.experts.value_or(0) > 0) row("experts", std::to_string(*facts.experts));
  row("layers", fmt::format("{} ({})", facts.layers.size(), counts_text(facts)));
  if (facts.layer_count(LayerKind::kAttention) != facts.layers.size()) {
    row("layer map", map_text(facts.layers));
    row("", "A attention, R recurrent, B both, F feed-forward only, N next-token");
  }
  if (!facts.heads.empty()) {
    row("heads", fmt::format("{} query, {} key-value, of {}", list_text(facts.heads), list_text(facts.kv_heads),
                             facts.key_length.value_or(0)));
  }
  if (facts.rope_base) {
    row("rope", fmt::format("base {:.0f}{}", *facts.rope_base,
                            facts.rope_dimensions ? fmt::format(", {} dimensions", *facts.rope_dimensions) : ""));
  }
  row("output head", facts.tied_embeddings ? "tied: the embedding table" : "own matrix");
}

void print_vocabulary(const Inspection& facts) {
  row("tokenizer", fmt::format("{}{}, {} tokens, {} merges", printable(facts.tokenizer),
                               facts.pre_tokenizer.empty() ? "" : fmt::format(" ({})", printable(facts.pre_tokenizer)),
                               facts.vocabulary, facts.merges));
  for (const gguf::SpecialToken& token : facts.special_tokens) {
    row(token.role == facts.special_tokens.front().role ? "special tokens" : "",
        fmt::format("{:<10} {:>7}  {}", printable(token.role, 20), token.id, printable(token.text, 40)));
  }
  row("chat template", facts.chat_template_bytes == 0
                           ? "none"
                           : fmt::format("{}{}{}", format_bytes(facts.chat_template_bytes),
                                         facts.template_has_thinking ? ", thinking on/off" : "",
                                         facts.template_has_tools ? ", tools" : ""));
}

void print_types(const Inspection& facts) {
  fmt::print("\n{:<10} {:>8} {:>12} {:>12} {:>7}\n", "type", "tensors", "parameters", "size", "share");
  for (const gguf::TypeShare& type : facts.types) {
    fmt::print("{:<10} {:>8} {:>12} {:>12} {:>6.1f}%\n", type.type, type.tensors, format_count(type.elements),
               format_bytes(type.bytes), share(type.bytes, facts.tensor_bytes));
  }
}

std::string path_text(const PathShare& path) {
  std::string types;
  for (const std::string_view type : path.types) types += fmt::format("{}{}", types.empty() ? "" : ", ", type);
  return fmt::format("{} in {} tensor{}{}", format_bytes(path.bytes), path.tensors, path.tensors == 1 ? "" : "s",
                     types.empty() ? "" : fmt::format(" ({})", types));
}

void print_paths(const gguf::ModelFile& model, const Inspection& facts) {
  const TileShare paths(model);
  fmt::print("\ntiles: {}, {:.1f}%; on upstream's path: {}\n", path_text(paths.tiles),
             share(paths.tiles.bytes, facts.tensor_bytes), path_text(paths.upstream));
}

void print_tensors(const gguf::ModelFile& model) {
  fmt::print("\n{:<44} {:<8} {:>22} {:>12}  {}\n", "tensor", "type", "shape", "size", "path");
  for (const gguf::File& part : model.parts()) {
    for (const gguf::Tensor& tensor : part.tensors()) {
      fmt::print("{:<44} {:<8} {:>22} {:>12}  {}\n", printable(tensor.name), tensor.type->name,
                 gguf::shape_text(tensor), format_bytes(tensor.bytes), tile_shape(tensor) ? "tiles" : "upstream");
    }
  }
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json to_json(const gguf::ModelFile& model, const Inspection& facts, bool with_tensors) {
  Json json;
  json["path"] = model.paths().front();
  json["name"] = facts.name;
  json["architecture"] = facts.architecture;
  json["licence"] = facts.licence;
  json["gguf_version"] = facts.version;
  json["parts"] = facts.parts;
  json["file_bytes"] = facts.file_bytes;
  json["tensor_bytes"] = facts.tensor_bytes;
  json["tensor_count"] = facts.tensors;
  json["parameters"] = facts.parameters;
  json["bits_per_weight"] = facts.bits_per_weight();
  json["context_tokens"] = or_null(facts.context_tokens);
  json["embedding"] = or_null(facts.embedding);
  json["feed_forward"] = facts.feed_forward;
  json["heads"] = facts.heads;
  json["kv_heads"] = facts.kv_heads;
  json["key_length"] = or_null(facts.key_length);
  json["value_length"] = or_null(facts.value_length);
  json["rope_base"] = or_null(facts.rope_base);
  json["rope_dimensions"] = or_null(facts.rope_dimensions);
  json["experts"] = or_null(facts.experts);
  json["tied_embeddings"] = facts.tied_embeddings;
  json["layers"] = Json::array();
  for (const LayerKind kind : facts.layers) json["layers"].push_back(layer_kind_name(kind));
  json["types"] = Json::array();
  for (const gguf::TypeShare& type : facts.types) {
    json["types"].push_back({{"type", type.type},
                             {"tensors", type.tensors},
                             {"parameters", type.elements},
                             {"bytes", type.bytes},
                             {"share_percent", share(type.bytes, facts.tensor_bytes)}});
  }
  const TileShare paths(model);
  json["tiles"] = {{"tensors", paths.tiles.tensors},
                   {"bytes", paths.tiles.bytes},
                   {"tile_bytes", paths.tiles.tile_bytes},
                   {"share_percent", share(paths.tiles.bytes, facts.tensor_bytes)},
                   {"types", paths.tiles.types}};
  json["upstream_path"] = {{"tensors", paths.upstream.tensors},
                           {"bytes", paths.upstream.bytes},
                           {"share_percent", share(paths.upstream.bytes, facts.tensor_bytes)},
                           {"types", paths.upstream.types}};
  Json& tokenizer = json["tokenizer"];
  tokenizer["model"] = facts.tokenizer;
  tokenizer["pre"] = facts.pre_tokenizer;
  tokenizer["tokens"] = facts.vocabulary;
  tokenizer["merges"] = facts.merges;
  tokenizer["special"] = Json::array();
  for (const gguf::SpecialToken& token : facts.special_tokens) {
    tokenizer["special"].push_back({{"role", token.role}, {"id", token.id}, {"text", token.text}});
  }
  json["chat_template"] = {{"bytes", facts.chat_template_bytes},
                           {"thinking", facts.template_has_thinking},
                           {"tools", facts.template_has_tools}};
  const Status loadable = check_loadable(model.parts());
  json["loadable"] = loadable.ok();
  json["problem"] = loadable.ok() ? Json(nullptr) : Json(loadable.error().message());
  if (with_tensors) {
    Json& list = json["tensors"] = Json::array();
    for (std::size_t i = 0; i < model.parts().size(); ++i) {
      for (const gguf::Tensor& tensor : model.parts()[i].tensors()) {
        list.push_back({{"name", tensor.name},
                        {"type", tensor.type->name},
                        {"shape", std::vector(tensor.dims.begin(), tensor.dims.begin() + tensor.dimension_count)},
                        {"bytes", tensor.bytes},
                        {"offset", tensor.offset},
                        {"path", tile_shape(tensor) ? "tiles" : "upstream"},
                        {"part", i}});
      }
    }
  }
  return json;
}

Status inspect(const InspectArguments& arguments) {
  KAZEIA_ASSIGN(const gguf::ModelFile model, gguf::open_gguf(arguments.path));
  const Inspection facts = gguf::inspect(model.parts());
  if (arguments.json) {
    // Text in the file need not be UTF-8; the output has to be.
    const std::string text =
        to_json(model, facts, arguments.tensors).dump(2, ' ', false, Json::error_handler_t::replace);
    fmt::print("{}\n", text);
  } else {
    print_model(facts);
    print_vocabulary(facts);
    print_types(facts);
    print_paths(model, facts);
    if (arguments.tensors) print_tensors(model);
    const Status loadable = check_loadable(model.parts());
    if (!loadable.ok()) fmt::print("\nThis file cannot be run: {}\n", loadable.error().sentence());
  }
  if (std::fflush(stdout) != 0) return Error(ErrorCode::kWrite, "the output could not be written");
  return {};
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* verb = app.add_subcommand("inspect", "Show what a GGUF file contains, without loading it");
  verb->add_option("MODEL", arguments->path, "A .gguf file, or the first part of a split one")->required();
  verb->add_flag("--tensors", arguments->tensors, "List every tensor");
  verb->add_flag("--json", arguments->json, "One JSON object");
  verb->callback([arguments, &action] { action = [arguments] { return inspect(*arguments); }; });
}

}  // namespace kazeia::cli
