#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace genesis {

// A parser of JSON text (RFC 8259) that reads value by value, without building a tree. The caller
// requests the value that it expects next. Each method returns false on the first mismatch, and
// fault() is the reason. Rejects nesting deeper than kMaxDepth.
//
// Owner: one parse. Threads: one. Failure: fault().
class JsonCursor {
 public:
  static constexpr int kMaxDepth = 32;

  explicit JsonCursor(absl::string_view text) : text_(text) {}

  // Calls `member` for each member of an object; the callback must read the member's value.
  bool Object(absl::FunctionRef<bool(const std::string& key)> member);
  // Calls `element` for each element of an array; the callback must read the element.
  bool Array(absl::FunctionRef<bool()> element);
  bool String(std::string& value);
  bool Bool(bool& value);
  // Also accepts NaN, Infinity and -Infinity, which Python's json writes. `whole` is set if the
  // number has neither fraction nor exponent.
  bool Number(double& value, bool& whole);
  // Accepts digits only, up to 2^63 - 1.
  bool Count(int64_t& value);
  // Skips any value.
  bool Skip();
  // Requires that only white space is left.
  bool End();

  // Returns the first character of the next value, or 0 at the end.
  char Peek();
  // Records an error that the caller found, unless there is one already. Returns false.
  bool Fail(const std::string& fault);
  // The error, as "at byte 17: accepted: a number"; empty if there is none.
  const std::string& fault() const { return fault_; }

 private:
  bool Take(char c);
  bool Word(absl::string_view word);
  bool Escape(std::string& value);
  bool HexDigits(uint32_t& value);

  const absl::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  std::string fault_;
};

}  // namespace genesis
