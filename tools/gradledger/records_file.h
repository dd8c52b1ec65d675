// The file of --records: what --json prints, a record at a time, so that a process that dies leaves what it had said.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "report/format.h"
#include "sim/base/files.h"

namespace gradledger::tool {

class RecordsFile {
 public:
  // Of an empty path, none is written. Errors: it cannot be made; it is there and holds something else than a report.
  static Result<RecordsFile> open(const std::string& path, const std::string& command);

  template <class Value>
  void add(const Value& value) {
    if (file_) write(renderer_->text(value));
  }
  // Of what run it is, where that is known later.
  void is_of(const std::string& command);

  // Why it is not whole; asked at the end.
  std::optional<InputError> error() const { return error_; }

 private:
  void write(const std::string& text);

  std::string path_;
  std::optional<OpenFile> file_;
  std::unique_ptr<report::Renderer> renderer_;
  std::optional<InputError> error_;
};

}  // namespace gradledger::tool
