// What is run and what is meant: docs/scenario-format.md. A scenario of yours has a world, parameters, a contract and a script.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "gradledger/communicator.h"

namespace gradledger::GRADLEDGER_API {

// There is no verdict. The classes are those of the Python package, and of the command's exit codes.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// A mistake in the scenario or in an option, or nothing was judged.
class BadInput : public Error {
 public:
  using Error::Error;
};
// The wrapper does not take the scenario.
class NotRun : public Error {
 public:
  using Error::Error;
};
// A rank said what nobody understands.
class BrokenRun : public Error {
 public:
  using Error::Error;
};

namespace detail {

struct ScenarioParts;
struct Access;
}  // namespace detail

class Scenario {
 public:
  // The JSON of a scenario file. `engine` may be left out, and is {"framework": "external"} then; so may its `config`. Throws BadInput with every mistake, each
  // with a JSON pointer to its place.
  Scenario(std::string_view json);                                         // NOLINT: so that a text is a scenario where one is asked for
  Scenario(const char* json) : Scenario(std::string_view(json)) {}         // NOLINT
  Scenario(const std::string& json) : Scenario(std::string_view(json)) {}  // NOLINT
  // Likewise, of a file. Throws BadInput where it cannot be read, too.
  static Scenario load(const std::filesystem::path& path);

  const std::string& name() const;
  std::uint32_t world_size() const;
  std::string script() const;  // in short: "2 ranks: backward backward step"
  std::string json() const;    // in a line; a file may have it, and the command reads it

 private:
  friend struct detail::Access;
  explicit Scenario(std::shared_ptr<const detail::ScenarioParts> parts) : parts_(std::move(parts)) {}

  std::shared_ptr<const detail::ScenarioParts> parts_;
};

// As JSON.
std::ostream& operator<<(std::ostream& out, const Scenario& scenario);

}  // namespace gradledger::GRADLEDGER_API
