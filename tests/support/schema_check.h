// Documents held against JSON Schemas.
#pragma once

#include <map>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

#include "report/schemas.h"

namespace gradledger::testing {

class SchemaCheck {
 public:
  explicit SchemaCheck(const nlohmann::json& rules, valijson::SchemaParser::Version version = valijson::SchemaParser::kDraft7) {
    valijson::SchemaParser(version).populateSchema(valijson::adapters::NlohmannJsonAdapter(rules), schema_);
  }

  bool fits(const nlohmann::json& document) const { return valijson::Validator().validate(schema_, valijson::adapters::NlohmannJsonAdapter(document), nullptr); }

  // A line for each rule that is broken, with the place; empty where none is.
  std::string errors(const nlohmann::json& document) const {
    valijson::ValidationResults found;
    valijson::Validator().validate(schema_, valijson::adapters::NlohmannJsonAdapter(document), &found);
    std::string out;
    for (valijson::ValidationResults::Error error; found.popError(error);) {
      for (const std::string& part : error.context) out += part;
      out += ": " + error.description + "\n";
    }
    return out;
  }

 private:
  valijson::Schema schema_;
};

// That of a record, as gradledger schema prints it. Null where there is none of the name.
inline const SchemaCheck* schema_of(const std::string& record) {
  static std::map<std::string, std::unique_ptr<SchemaCheck>> made;
  const auto [at, fresh] = made.try_emplace(record);
  if (!fresh) return at->second.get();
  const auto text = report::schema_text(record);
  if (text) at->second = std::make_unique<SchemaCheck>(nlohmann::json::parse(*text));
  return at->second.get();
}

// Of one record, by its own name.
inline std::string record_errors(const nlohmann::json& record) {
  const std::string name = record.is_object() ? record.value("record", "") : "";
  const SchemaCheck* check = schema_of(name);
  return check ? check->errors(record) : "no schema of record \"" + name + "\"";
}

}  // namespace gradledger::testing
