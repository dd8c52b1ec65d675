// User errors as values: a result, or one error that says where in the input and what would be right.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "sim/base/contract.h"

namespace gradledger {

// `where` is a JSON pointer ("/script/3/backward"), an option name ("--seed") or a file; `message` says what is wrong and what
// would be right.
struct InputError {
  std::string where;
  std::string message;
  bool unavailable = false;  // nothing is wrong with it, but it needs more than this machine, or a limit set for it, has

  bool operator==(const InputError&) const = default;
  std::string text() const { return where.empty() ? message : where + ": " + message; }
};

template <class T>
class Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(InputError error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Precondition: ok().
  const T& value() const& {
    expects(ok(), "a result without a value was read");
    return std::get<0>(state_);
  }
  T&& value() && {
    expects(ok(), "a result without a value was read");
    return std::get<0>(std::move(state_));
  }
  const T& operator*() const& { return value(); }
  const T* operator->() const { return &value(); }

  // Precondition: !ok().
  const InputError& error() const {
    expects(!ok(), "a result without an error was asked for it");
    return std::get<1>(state_);
  }

 private:
  std::variant<T, InputError> state_;
};

}  // namespace gradledger
