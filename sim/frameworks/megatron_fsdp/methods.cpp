#include "sim/frameworks/megatron_fsdp/methods.h"

#include <nlohmann/json.hpp>

#include "sim/scenario/json_reader.h"

namespace gradledger::megatron_fsdp {

// finish_grad_sync() takes nothing, and has the default.
std::string Call::json_text() const { return sync ? "{}" : R"({"value": false})"; }

Result<Call> call_from_json(std::string_view event, const nlohmann::json& arguments, const std::string& where) {
  Call out;
  for (const auto& [key, value] : arguments.items()) {
    const std::string here = where + "/" + pointer_token(key);
    if (event != auto_sync_event || key != "value") return InputError{here, "is no argument of " + std::string(event)};
    if (!value.is_boolean()) return InputError{here, "is " + value.dump() + "; expected true or false"};
    out.sync = value.get<bool>();
  }
  return out;
}

}  // namespace gradledger::megatron_fsdp
