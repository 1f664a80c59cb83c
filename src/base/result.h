// A value or the Error that prevented it. Functions that can fail return one; nothing in src/ throws
// across a room's boundary, aborts or exits.
#pragma once

#include <cassert>
#include <optional>
#include <utility>
#include <variant>

#include "base/error.h"

namespace kazeia {

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit on purpose
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Programmer errors when the other alternative is held.
  T& value() & {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    assert(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  const Error& error() const {
    assert(!ok());
    return *std::get_if<1>(&state_);
  }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Error> state_;
};

// Success without a value, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    assert(!ok());
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace kazeia

// Returns the error of `expression` (a Status or Result) from the enclosing function, if it has one.
#define KAZEIA_TRY(expression)                               \
  do {                                                       \
    auto kazeia_status_ = (expression);                      \
    if (!kazeia_status_.ok()) return kazeia_status_.error(); \
  } while (false)

// KAZEIA_ASSIGN(auto model, Model::load(path)): declares `model`, or returns the error.
#define KAZEIA_ASSIGN(declaration, expression) \
  KAZEIA_ASSIGN_(KAZEIA_JOIN_(kazeia_result_, __LINE__), declaration, expression)
#define KAZEIA_ASSIGN_(result, declaration, expression) \
  auto result = (expression);                           \
  if (!result.ok()) return result.error();              \
  declaration = std::move(result).value()
#define KAZEIA_JOIN_(a, b) KAZEIA_JOIN2_(a, b)
#define KAZEIA_JOIN2_(a, b) a##b
