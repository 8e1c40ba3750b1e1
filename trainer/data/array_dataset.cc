#include "trainer/data/array_dataset.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/field_error.h"
#include "trainer/data/array_file.h"
#include "trainer/data/holdout.h"
#include "trainer/formats/element_value.h"

namespace genesis {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;

bool IsFieldName(const std::string& name) {
  const auto accepted = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= 255 && !absl::StrContains(name, "..") &&
         std::all_of(name.begin(), name.end(), accepted);
}

class ArrayDataset final : public Dataset {
 public:
  ArrayDataset(std::string name, ArrayFile source)
      : name_(std::move(name)), source_(std::move(source)) {}

  absl::Status Prepare(double holdout_fraction, int64_t memory_limit_bytes) {
    if (absl::Status status = LoadArrays(); !status.ok()) return status;
    training_size_ = size_ - HeldOut(size_, holdout_fraction);
    int64_t bytes = 0;
    int64_t held = 0;
    for (size_t i = 0; i < arrays_.size(); ++i) {
      bytes += size_ * fields_[i].bytes();
      held += arrays_[i].held_bytes();
    }
    keep_ = held == 0 && bytes <= memory_limit_bytes;
    in_memory_ = keep_ || std::all_of(arrays_.begin(), arrays_.end(), [](const StoredArray& array) {
                   return array.held_bytes() > 0;
                 });
    kept_.resize(arrays_.size());
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (absl::Status status = Check(i); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  const std::vector<Field>& fields() const override { return fields_; }
  int64_t size() const override { return size_; }
  int64_t training_size() const override { return training_size_; }
  const std::map<std::string, ColumnStatistics>& statistics() const override { return none_; }
  const std::vector<float>& priorities() const override { return no_priorities_; }

  absl::Status Gather(absl::Span<const int64_t> examples,
                      absl::Span<std::byte* const> out) const override {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const int64_t bytes = fields_[i].bytes();
      char* to = reinterpret_cast<char*>(out[i]);
      for (const int64_t example : examples) {
        if (keep_) {
          std::memcpy(to, kept_[i].data() + example * bytes, static_cast<size_t>(bytes));
        } else {
          const int64_t elements = fields_[i].elements();
          absl::Status status = arrays_[i].Read(example * elements, elements, to);
          if (!status.ok()) return status;
        }
        to += bytes;
      }
    }
    return in_memory_ ? absl::OkStatus() : source_.CheckUnchanged();
  }

  std::string Describe() const override {
    std::vector<std::string> names;
    for (const Field& field : fields_) {
      names.push_back(absl::StrCat(field.name, " ", ShapeText(field.shape)));
    }
    return absl::StrCat(training_size_, " examples of ", absl::StrJoin(names, ", "),
                        " to train on, ", size_ - training_size_, " held out",
                        in_memory_ ? "" : "; read from the file while training");
  }

 private:
  absl::Status Unusable(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": ", what));
  }

  absl::Status LoadArrays() {
    if (source_.names().empty()) return Unusable("has no array; accepted: one and more");
    for (const std::string& name : source_.names()) {
      if (!IsFieldName(name)) {
        return Unusable(absl::StrCat("has an array named ", QuoteValue(name),
                                     "; accepted: letters, digits, '_', '-' and single '.'"));
      }
      absl::StatusOr<StoredArray> array = source_.Load(name);
      if (!array.ok()) return array.status();
      const std::vector<int64_t>& shape = array->shape();
      if (shape.empty() || shape[0] < 2 || array->elements() == 0) {
        return Unusable(absl::StrCat(name, " has shape ", ShapeText(shape),
                                     "; accepted: (examples, ...), at least 2 examples, one to "
                                     "train on and one to hold out"));
      }
      if (!arrays_.empty() && shape[0] != size_) {
        return Unusable(absl::StrCat(name, " has ", shape[0], " examples; accepted, because ",
                                     fields_[0].name, " has ", size_, ": ", size_));
      }
      size_ = shape[0];
      fields_.push_back(
          {.name = name, .type = array->type(), .shape = {shape.begin() + 1, shape.end()}});
      arrays_.push_back(*std::move(array));
    }
    return absl::OkStatus();
  }

  absl::Status Check(size_t index) {
    const StoredArray& array = arrays_[index];
    const int64_t width = ElementSize(array.type());
    const int64_t elements = array.elements();
    const int64_t most = kPieceBytes / width;
    std::string piece;
    if (keep_) kept_[index].resize(static_cast<size_t>(elements * width));
    for (int64_t first = 0; first < elements; first += most) {
      const int64_t count = std::min(most, elements - first);
      if (!keep_) piece.resize(static_cast<size_t>(count * width));
      char* const at = keep_ ? kept_[index].data() + first * width : piece.data();
      if (absl::Status status = array.Read(first, count, at); !status.ok()) return status;
      if (absl::Status status = CheckPiece(index, first, count, at); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status CheckPiece(size_t index, int64_t first, int64_t count, const char* at) const {
    const StoredArray& array = arrays_[index];
    const auto place = [&](int64_t element) {
      return absl::StrCat(fields_[index].name, PlaceText(array.shape(), first + element));
    };
    if (array.type() == ElementType::kBool) {
      const char* const odd =
          std::find_if(at, at + count, [](char value) { return value != 0 && value != 1; });
      if (odd == at + count) return absl::OkStatus();
      return Unusable(absl::StrCat(place(odd - at), " has the byte ",
                                   static_cast<int>(static_cast<unsigned char>(*odd)),
                                   "; accepted for bool: 0 and 1"));
    }
    const int64_t bad = FirstNonFinite(array.type(), at, count);
    if (bad < 0) return absl::OkStatus();
    const double value = ElementValue(array.type(), at + bad * ElementSize(array.type()));
    return Unusable(absl::StrCat(place(bad), " is ", NumberText(value),
                                 "; every value must be finite; remove that example or repair it"));
  }

  const std::string name_;
  ArrayFile source_;
  int64_t size_ = 0, training_size_ = 0;
  bool keep_ = false;       // All arrays are in kept_.
  bool in_memory_ = false;  // The file is no longer read.
  std::vector<Field> fields_;
  std::vector<StoredArray> arrays_;
  std::vector<std::string> kept_;
  const std::map<std::string, ColumnStatistics> none_;
  const std::vector<float> no_priorities_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenArrays(const training::v1::ArrayFileSpec& spec,
                                                    const std::string& npy_name,
                                                    int64_t memory_limit_bytes) {
  absl::StatusOr<ArrayFile> source = ArrayFile::Open(spec.path(), npy_name, memory_limit_bytes);
  if (!source.ok()) return source.status();
  const std::string name = std::filesystem::path(spec.path()).filename().string();
  auto dataset = std::make_unique<ArrayDataset>(name, *std::move(source));
  absl::Status status = dataset->Prepare(spec.holdout_fraction(), memory_limit_bytes);
  if (!status.ok()) return status;
  return dataset;
}

}  // namespace genesis
