// Standard output: the one place that knows which format was asked for.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "report/format.h"
#include "tools/gradledger/look.h"
#include "tools/gradledger/options.h"

namespace gradledger::tool {

class Output {
 public:
  // Precondition: the option parser let the format pass.
  explicit Output(const Options& options) : renderer_(report::renderer(options.json ? "json" : options.format, style_of(options.look))) {
    expects(renderer_ != nullptr, "a format of the table");
  }

  template <class Value>
  void print(const Value& value) const {
    write(renderer_->text(value));
  }
  void head(const std::string& command) const { write(renderer_->head(command)); }
  void between() const { write(renderer_->between()); }

 private:
  // At once: who reads a pipe of a long gate sees each row when it is there.
  static void write(const std::string& text) {
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  std::unique_ptr<report::Renderer> renderer_;
};

}  // namespace gradledger::tool
