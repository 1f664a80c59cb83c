#include "engine/backend.h"

#include <mutex>

#include <fmt/format.h>

#include "ggml-backend.h"
#include "ggml.h"
#include "llama.h"
#include "tiles/buffer_type.h"

namespace kazeia {

void initialise_backend() {
  static std::once_flag once;
  std::call_once(once, [] {
    receive_upstream_messages();
    llama_backend_init();
    tiles::register_buffer_type();
  });
}

void on_upstream_abort(void (*handler)(const char* message)) {
  ggml_set_abort_callback(handler);
}

std::vector<std::string> backend_names() {
  initialise_backend();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < ggml_backend_reg_count(); ++i)
    names.emplace_back(ggml_backend_reg_name(ggml_backend_reg_get(i)));
  return names;
}

std::string upstream_version() {
  return fmt::format("llama.cpp {}, ggml {}", llama_version(), ggml_version());
}

}  // namespace kazeia
