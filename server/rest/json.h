#pragma once

#include <google/protobuf/struct.pb.h>

#include <cstdint>
#include <string>
#include <vector>

namespace genesis {

// An object under construction, printed by protobuf, which escapes strings rightly. The fields come
// out in no fixed order, as JSON allows.
class JsonObject {
 public:
  JsonObject& Set(const std::string& key, const std::string& value);
  JsonObject& Set(const std::string& key, const char* value);
  JsonObject& Set(const std::string& key, bool value);
  // JSON has no NaN and no infinity; they become null, which no reader takes for a good value.
  JsonObject& Set(const std::string& key, double value);
  // Exact up to 2^53.
  JsonObject& Set(const std::string& key, int64_t value);
  JsonObject& Set(const std::string& key, const JsonObject& value);
  JsonObject& Set(const std::string& key, const std::vector<JsonObject>& values);
  JsonObject& Set(const std::string& key, const std::vector<std::string>& values);
  JsonObject& SetNull(const std::string& key);

  // Indented, with a newline at the end. Bytes that are not UTF-8 become U+FFFD.
  std::string Print() const;

 private:
  google::protobuf::Value& Field(const std::string& key);

  google::protobuf::Struct fields_;
};

}  // namespace genesis
