#include "sim/scenario/framework_config.h"

#include <nlohmann/json.hpp>

namespace gradledger {

Result<FrameworkValue> ConfigReader::event_from_json(const FrameworkEvent&, const nlohmann::json& arguments, const std::string& where) const {
  if (!arguments.empty()) return InputError{where + "/" + arguments.begin().key(), "is no key of this event; expected \"name\" and \"ranks\" alone"};
  return FrameworkValue{};
}

}  // namespace gradledger
