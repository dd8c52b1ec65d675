#include "audit/fsdp_files.h"

#include <sstream>

namespace gradledger::audit {

using nlohmann::json;

void take_fsdp(const Document& file, const json& section, const std::string& below, std::int64_t version_otherwise, Given& out) {
  if (!section.is_object()) {
    out.errors.push_back({file.where(below), "is " + section.dump() + "; expected an object of keys"});
    return;
  }
  const char* key = section.contains("fsdp_version") ? "fsdp_version" : "version";
  const json version = section.value(key, json(version_otherwise));
  if (version != 2 && version != "2") {
    out.errors.push_back({file.where(below + "/" + key), section.contains(key) ? "is " + version.dump() + ": FullyShardedDataParallel, which an audit does not read; expected 2"
                                                                               : "is missing, which is 1: FullyShardedDataParallel, which an audit does not read; expected 2"});
    return;
  }
  out.framework = "fsdp2";
  out.config = Document{file.file, section, {}};
  for (const auto& [pointer, place] : file.places)
    if (pointer.starts_with(below + "/")) out.config->places[pointer.substr(below.size())] = place;
  if (!section.contains(key)) out.notes.push_back("fsdp_config names no version, which is taken for 2, as newer releases of transformers do; older ones take 1.");
  out.config->json.erase(key);
}

void take_fsdp_words(const Document& file, const json& words, json& section, Given& out) {
  std::string text;
  for (const json& word : words.is_array() ? words : json::array({words})) text += word.is_string() ? word.get<std::string>() + " " : "";
  std::istringstream each(text);
  for (std::string word; each >> word;) {
    if (word == "shard_grad_op") section.emplace("reshard_after_forward", false);
    else if (word == "offload") section.emplace("cpu_offload", true);
    else if (word != "full_shard" && word != "auto_wrap")
      out.errors.push_back({file.where("/fsdp"), "has \"" + word + "\", which FSDP2 has not; expected full_shard, shard_grad_op, offload and auto_wrap"});
  }
}

}  // namespace gradledger::audit
