// Processes that share an exploration, as the exploration sees them: numbers, and bytes that each has for each. How they talk it does not know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace gradledger::search {

using Bytes = std::vector<std::byte>;

// Some process died, or does not answer.
class ProcessesLost final : public std::runtime_error {
 public:
  ProcessesLost(std::vector<std::uint32_t> which, const std::string& why) : std::runtime_error(why), which_(std::move(which)) {}
  const std::vector<std::uint32_t>& which() const { return which_; }  // empty: nobody knows

 private:
  std::vector<std::uint32_t> which_;
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual std::uint32_t number() const = 0;
  virtual std::uint32_t size() const = 0;
  // All call it, equally often: `to[p]` goes to process p, and what p has for this one comes back in its place. Throws ProcessesLost.
  virtual std::vector<Bytes> exchange(std::vector<Bytes> to) = 0;
};

// One process, which has everything.
class Alone final : public Exchange {
 public:
  std::uint32_t number() const override { return 0; }
  std::uint32_t size() const override { return 1; }
  std::vector<Bytes> exchange(std::vector<Bytes> to) override { return to; }
};

}  // namespace gradledger::search
