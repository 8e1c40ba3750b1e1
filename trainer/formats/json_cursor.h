#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace genesis {

// Walks over a JSON text (RFC 8259) value by value, without building a tree. The caller says what
// it expects next; each method returns false once that is not there, and fault() says why. Nothing
// of ours nests deeper than kMaxDepth.
//
// Owner: one parse. Threads: one. Failure: fault().
class JsonCursor {
 public:
  static constexpr int kMaxDepth = 32;

  explicit JsonCursor(absl::string_view text) : text_(text) {}

  // Calls `member` for each member of an object with its value next; it has to read the value.
  bool Object(absl::FunctionRef<bool(const std::string& key)> member);
  // Calls `element` for each element of an array with the element next.
  bool Array(absl::FunctionRef<bool()> element);
  bool String(std::string& value);
  bool Bool(bool& value);
  // Also NaN, Infinity and -Infinity, which Python's json writes. `whole` is whether it is written
  // as a whole number, without fraction and exponent.
  bool Number(double& value, bool& whole);
  // Digits only, at most 2^63 - 1.
  bool Count(int64_t& value);
  // Any value.
  bool Skip();
  // Only white space is left.
  bool End();

  // First character of the next value, or 0 at the end.
  char Peek();
  // Ends the walk with a fault of the caller's; returns false.
  bool Fail(const std::string& fault);
  // "at byte 17: accepted: a number"; empty while all is well.
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
