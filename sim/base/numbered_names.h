// Names by number, in the order in which they came first. What names the same things again and again does so in the same order: most often the next one is
// the last again, or the one behind it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gradledger {

class NumberedNames {
 public:
  std::uint32_t number_of(std::string_view name) {
    if (last_ < by_number_.size() && by_number_[last_]->first == name) return last_;
    if (++last_ >= by_number_.size()) last_ = 0;
    if (last_ < by_number_.size() && by_number_[last_]->first == name) return last_;
    const auto known = numbers_.find(name);
    const auto at = known != numbers_.end() ? known : numbers_.emplace(std::string(name), static_cast<std::uint32_t>(numbers_.size())).first;
    if (at->second == by_number_.size()) by_number_.push_back(at);
    return last_ = at->second;
  }

  // Valid for as long as this lives. Precondition: it was given out.
  const std::string& operator[](std::uint32_t number) const { return by_number_[number]->first; }
  std::size_t size() const { return by_number_.size(); }

 private:
  using Numbers = std::map<std::string, std::uint32_t, std::less<>>;
  Numbers numbers_;
  std::vector<Numbers::const_iterator> by_number_;
  std::uint32_t last_ = 0;
};

}  // namespace gradledger
