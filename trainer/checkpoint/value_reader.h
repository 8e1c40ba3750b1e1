#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "trainer/checkpoint/value.h"

namespace genesis {

// A value of a tree with its path, so that messages name both file and entry. After an error
// reading continues with empty values. All readers of one root share the first error: "x.pt: entry
// genesis.step is a string; accepted: an integer".
//
// Owner: the reading function; the tree outlives it. Threads: one. Failure: status() of the root.
class ValueReader {
 public:
  // `file` begins every message.
  ValueReader(std::string file, const Value& root);

  const Value& value() const { return *value_; }
  // OK, or the first error of all readers.
  const absl::Status& status() const { return shared_->status; }

  // Returns the entry of a dict.
  ValueReader At(const std::string& key) const;
  // Returns whether this is a dict with such an entry that is not None.
  bool Has(const std::string& key) const;

  int64_t Integer() const;
  // Returns the integer. Any other value, or one below `least`, is an error.
  int64_t Integer(int64_t least) const;
  double Number() const;  // Accepts an integer too.
  bool Boolean() const;
  std::string Text() const;
  at::Tensor Tensor() const;
  at::Tensor Tensor(at::ScalarType type) const;
  at::Tensor TensorOrNone(at::ScalarType type) const;
  // Returns the elements of a list or a tuple.
  std::vector<ValueReader> Items() const;
  // Return the entries of a dict with string or integer keys.
  std::vector<std::pair<std::string, ValueReader>> Named() const;
  std::vector<std::pair<int64_t, ValueReader>> Numbered() const;

  // Reports "entry <path> <what>".
  void Fault(const std::string& what) const;

 private:
  struct Shared {
    std::string file;
    absl::Status status;
  };
  ValueReader(std::shared_ptr<Shared> shared, std::string path, const Value& value)
      : shared_(std::move(shared)), path_(std::move(path)), value_(&value) {}
  ValueReader Child(const std::string& name, const Value& value) const;
  template <typename T>
  const T* Get(const char* accepted) const;

  std::shared_ptr<Shared> shared_;
  std::string path_;
  const Value* value_;
};

// Returns "a string", "a float32 tensor of shape [3, 4]", ... for error messages.
std::string DescribeValue(const Value& value);

}  // namespace genesis
