// What a framework is to the rest: a configuration that it alone reads, a contract that follows from it, engines, and what it calls things.
// sim/frameworks/registry.cpp lists them; nothing else includes from a framework's folder.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/result.h"
#include "sim/engine/buffers.h"
#include "sim/engine/engine.h"
#include "sim/scenario/catalogue.h"
#include "sim/scenario/contract.h"
#include "sim/scenario/framework_config.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/timeline.h"

namespace gradledger {

// A rule of use that the framework documents. A script that breaks one loses gradients in a framework without defects too, or may.
struct UseRule {
  std::string_view id;    // "one-backward-a-step"
  std::string_view says;  // a sentence
  bool of_loop = false;   // of what the loop weighs or changes by itself, not of its calls
};

struct Misuse {
  const UseRule* rule = nullptr;
  std::uint32_t event = 0, step = 0;
};

struct UseReport {
  std::vector<Misuse> misuses;  // in the order of events, a rule once a window
  std::uint64_t state = 0;      // two scripts with the same one, in the same window, go on to break the same rules by the same events
};

class History;
class SearchSpace;
class UserConfigReader;

class Framework : public ConfigReader {
 public:
  virtual std::string_view id() const = 0;     // /engine/framework of a scenario
  virtual std::string_view title() const = 0;  // as its users call it

  // What it documents of a configuration at a release, as a contract; written from the documentation, not from the engines.
  // Precondition: the layout of the scenario is right. Errors: a release or change that is not known.
  virtual Result<Contract> contract(const Scenario& scenario) const = 0;

  // What is wrong with a state of the code that somebody asks for; nothing where it is known. Pointers are those of a scenario.
  virtual std::optional<InputError> as_of_problem(const AsOf& as_of) const = 0;
  // The state of the code that is installed, by the releases of packages; nothing where it makes no difference.
  virtual std::optional<AsOf> installed(const std::map<std::string, std::string>& /*releases*/) const { return std::nullopt; }
  // What a user should know of how a release is taken: one that is newer than what is modelled, say.
  virtual std::optional<std::string> as_of_note(std::string_view /*as_of*/) const { return std::nullopt; }

  // Whether it takes stages and experts from wherever a scenario's layout puts them, and parameters that tensor-parallel ranks cut or share. The others
  // have neighbours in a stage, and every rank's gradient for itself.
  virtual bool lays_out_ranks() const { return false; }
  // False: there is no engine of it here. It is judged where it runs, by a driver.
  virtual bool simulated() const { return true; }
  virtual std::span<const EngineInfo> engines() const = 0;
  // The class that it would select, by its own rules: an entry of engines(). Errors: combinations that it refuses, with its reason, and
  // options that are not modelled.
  virtual Result<const EngineInfo*> select(const Scenario& scenario) const = 0;
  // Makes the engines of a scenario's ranks; what follows from the scenario alone is resolved once. Precondition: select() succeeds; the
  // scenario outlives the factory.
  virtual EngineFactory factory(const Scenario& scenario) const = 0;

  virtual std::span<const BufferFamily> buffer_families() const = 0;
  // What the buffers of a rank hold at most, from above, optimizer included: bytes. Precondition: the model dtype is settled.
  virtual std::uint64_t rank_bytes(const Scenario& scenario) const = 0;
  // How far it shards, where that has a number: ZeRO's stage.
  virtual std::optional<std::uint32_t> stage(const Scenario& /*scenario*/) const { return std::nullopt; }
  // The configuration in a few words, for the head of a report: "ZeRO stage 2, gradient_accumulation_steps 4".
  virtual std::string described(const Scenario& scenario) const = 0;

  virtual std::span<const UseRule> use_rules() const = 0;
  // Precondition: the scenario was admitted, and the timeline is its own.
  virtual UseReport use_of(const Scenario& scenario, const Timeline& timeline) const = 0;

  // Null: nothing is searched (sim/frameworks/search_space.h); there is one release alone (sim/frameworks/history.h).
  virtual const SearchSpace* search_space() const { return nullptr; }
  virtual const History* history() const { return nullptr; }
  // Null: it has no configuration file that its users keep (sim/frameworks/user_config.h).
  virtual const UserConfigReader* user_config() const { return nullptr; }
};

// All that there are, in the order in which they are listed to users.
std::span<const Framework* const> frameworks();

std::vector<std::string> framework_ids();

// The one that a scenario has where it names none.
const Framework& default_framework();

// Null where there is none of that id.
const Framework* framework_named(std::string_view id);

// Precondition: the scenario was read, so that its framework is one of frameworks().
const Framework& framework_of(const Scenario& scenario);

// The known defects of all frameworks, in their order, then those of loops around any of them.
std::span<const Entry> catalogue();
// Errors name the nearest id, if one is near.
Result<const Entry*> entry_named(std::string_view id, std::string_view where);

// ---- the framework of a scenario, asked ------------------------------------------------------------------------------------------------

Result<const EngineInfo*> select_engine(const Scenario& scenario);
std::string_view engine_name(const Scenario& scenario);  // precondition: select_engine() succeeds
EngineFactory engine_factory(const Scenario& scenario);
// Of one rank. Where all ranks are made, engine_factory() resolves what they share once.
std::unique_ptr<Engine> make_engine(const EngineContext& context);
BufferPurposes purposes_of_buffers(const Scenario& scenario);
bool names_buffer_family(const Scenario& scenario, std::string_view name);

}  // namespace gradledger
