#include "sim/frameworks/megatron_fsdp/v2/config_json.h"

#include <nlohmann/json.hpp>

#include "sim/frameworks/megatron_fsdp/config_json.h"
#include "sim/scenario/schema.h"

namespace gradledger::megatron_fsdp::v2 {

using nlohmann::json;
using nlohmann::ordered_json;

Result<V2Config> v2_config_from_json(const json& object, const std::string& where) {
  if (auto problem = check_against_part(schema_of_config, object, where)) return *problem;
  if (object.contains("units") && object.contains("wrap")) return InputError{where + "/units", "is given, and so is wrap; expected one of the two"};
  V2Config out;
  if (object.contains("mixed_precision"))
    if (auto problem = take_dtypes(object["mixed_precision"], where + "/mixed_precision", out.mixed_precision)) return *problem;
  if (!out.mixed_precision.main_params_dtype)
    return InputError{where + "/mixed_precision/main_params_dtype", "is null, which the second version takes as fp32; expected it left out"};
  if (object.value("wrap", "layers") == "root") out.wrap = Wrap::root;
  if (object.contains("units")) out.units = object["units"].get<std::vector<std::vector<std::string>>>();
  if (object.contains("mesh")) out.mesh = Mesh{object["mesh"][0], object["mesh"][1]};
  out.calls_unused_units = object.value("calls_unused_units", false);
  return out;
}

// What is as by default is not said.
std::string V2Config::json_text() const {
  ordered_json out = ordered_json::object();
  put_dtypes(mixed_precision, out);
  if (wrap == Wrap::root) out["wrap"] = "root";
  if (units) out["units"] = *units;
  if (mesh) out["mesh"] = {mesh->replicate, mesh->shard};
  if (calls_unused_units) out["calls_unused_units"] = true;
  return out.dump();
}

}  // namespace gradledger::megatron_fsdp::v2
