// Everything that is wrong with an input, within bounds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "sim/base/result.h"

namespace gradledger {

namespace limits {
inline constexpr std::size_t errors_told_max = 20;       // of one file
inline constexpr std::size_t errors_counted_max = 1000;  // after which nobody looks for more
}  // namespace limits

class ErrorList {
 public:
  // What is known already is not told twice.
  void add(InputError error) {
    if (std::find(errors_.begin(), errors_.end(), error) == errors_.end()) errors_.push_back(std::move(error));
  }
  void add(const std::vector<InputError>& errors) {
    for (const InputError& error : errors) add(error);
  }

  bool empty() const { return errors_.empty(); }
  std::size_t size() const { return errors_.size(); }
  bool full() const { return errors_.size() >= limits::errors_counted_max; }
  const InputError& front() const { return errors_.front(); }  // precondition: !empty()

  const std::vector<InputError>& all() const { return errors_; }

 private:
  std::vector<InputError> errors_;
};

}  // namespace gradledger
