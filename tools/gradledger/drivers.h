// Real frameworks as producers: their options, and their ranks.
#pragma once

#include <memory>

#include <CLI/CLI.hpp>

#include "sim/base/result.h"
#include "sim/producers/driver/ranks.h"
#include "tools/gradledger/options.h"

namespace gradledger::tool {

// What --producer takes: host, gpu, a driver's name, python:MODULE:FACTORY, or program:PATH. The empty string, or why not.
std::string check_producer(const std::string& text);

void add_driver(CLI::App* verb, Options& options);

// Null where the options name no driver. Errors: options that do not fit each other, a log that cannot be written.
Result<std::unique_ptr<driver::DriverRanks>> make_driver(const Options& options);

}  // namespace gradledger::tool
