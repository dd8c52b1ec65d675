// How far an unfinished campaign is, in a hidden file of its folder of findings.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "search/campaign/campaign.h"
#include "sim/base/result.h"

namespace gradledger::tool {

class ResumeFile {
 public:
  // campaign: the options that decide which cases it draws. Each such campaign has a file of its own.
  ResumeFile(const std::filesystem::path& folder, std::string campaign);

  // Nothing where there is no such file. Errors: it is damaged, or of another version, which may draw other cases.
  Result<std::optional<search::Checkpoint>> read() const;

  // Whole or not at all. Errors: it cannot be written.
  std::optional<InputError> write(const search::Checkpoint& checkpoint) const;

  // Once the campaign is finished.
  void remove() const;

 private:
  std::filesystem::path path_;
  std::string campaign_;
};

}  // namespace gradledger::tool
