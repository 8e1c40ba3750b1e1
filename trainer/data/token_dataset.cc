#include "trainer/data/token_dataset.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/data/holdout.h"
#include "trainer/formats/data_file.h"

namespace genesis {
namespace {

constexpr uint64_t kReadPiece = 1 << 20;

int64_t Token(const char* at, int64_t width) {
  if (width == 2) {
    uint16_t token = 0;
    std::memcpy(&token, at, sizeof(token));
    return token;
  }
  uint32_t token = 0;
  std::memcpy(&token, at, sizeof(token));
  return token;
}

// Tokens from a file, or synthetic ones if `file` is null.
class TokenDataset final : public Dataset {
 public:
  TokenDataset(std::string name, int64_t width, std::shared_ptr<const DataFile> file,
               std::string tokens)
      : name_(std::move(name)),
        width_(width),
        file_(std::move(file)),
        kept_(std::move(tokens)),
        bytes_(file_ != nullptr ? file_->size() : kept_.size()) {}

  absl::Status Prepare(const training::v1::TransformerSpec& model, double holdout_fraction,
                       int64_t memory_limit_bytes) {
    context_ = model.context_length();
    if (bytes_ % static_cast<uint64_t>(width_) != 0) {
      return Unusable(absl::StrCat("has ", bytes_, " bytes; accepted: a multiple of ", width_,
                                   ", the width of dataset.tokens.type; is it cut off?"));
    }
    const int64_t tokens = static_cast<int64_t>(bytes_) / width_;
    size_ = std::max<int64_t>(0, tokens - 1) / context_;
    if (size_ < 2) {
      return Unusable(absl::StrCat("has ", tokens, " tokens; accepted: at least ", 2 * context_ + 1,
                                   ", which make one example to train on and "
                                   "one to hold out of model.transformer.context_length ",
                                   context_));
    }
    training_size_ = size_ - HeldOut(size_, holdout_fraction);
    fields_ = {{.name = "tokens", .type = ElementType::kInt64, .shape = {context_ + 1}}};
    const bool keep = file_ != nullptr && bytes_ <= static_cast<uint64_t>(memory_limit_bytes);
    if (keep) kept_.resize(bytes_);
    return Check(model.vocabulary_size());
  }

  const std::vector<Field>& fields() const override { return fields_; }
  int64_t size() const override { return size_; }
  int64_t training_size() const override { return training_size_; }
  const std::map<std::string, ColumnStatistics>& statistics() const override { return none_; }
  const std::vector<float>& priorities() const override { return no_priorities_; }

  absl::Status Gather(absl::Span<const int64_t> examples,
                      absl::Span<std::byte* const> out) const override {
    const int64_t length = context_ + 1;
    std::string read;
    std::byte* to = out[0];
    for (const int64_t example : examples) {
      const char* from = kept_.data() + example * context_ * width_;
      if (kept_.empty()) {
        read.resize(static_cast<size_t>(length * width_));
        const auto offset = static_cast<uint64_t>(example * context_ * width_);
        absl::Status status = file_->Read(offset, read.size(), read.data());
        if (!status.ok()) return status;
        from = read.data();
      }
      for (int64_t i = 0; i < length; ++i, to += sizeof(int64_t)) {
        const int64_t token = Token(from + i * width_, width_);
        std::memcpy(to, &token, sizeof(token));
      }
    }
    return kept_.empty() ? file_->CheckUnchanged() : absl::OkStatus();
  }

  std::string Describe() const override {
    return absl::StrCat(training_size_, " examples of ", context_, " tokens to train on, ",
                        size_ - training_size_, " held out",
                        kept_.empty() ? "; read from the file while training" : "");
  }

 private:
  absl::Status Unusable(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": ", what));
  }

  absl::Status Check(int64_t vocabulary) {
    std::string piece;
    for (uint64_t offset = 0; offset < bytes_; offset += kReadPiece) {
      const uint64_t size = std::min(kReadPiece, bytes_ - offset);
      const char* at = kept_.data() + offset;
      if (file_ != nullptr) {
        if (kept_.empty()) piece.resize(size);
        char* const to = kept_.empty() ? piece.data() : kept_.data() + offset;
        if (absl::Status status = file_->Read(offset, size, to); !status.ok()) return status;
        at = to;
      }
      for (uint64_t i = 0; i < size; i += static_cast<uint64_t>(width_)) {
        const int64_t token = Token(at + i, width_);
        if (token < vocabulary) continue;
        return Unusable(absl::StrCat(
            "token ", (offset + i) / static_cast<uint64_t>(width_), " is ", token,
            "; accepted: 0 to ", vocabulary - 1, ", because model.transformer.vocabulary_size is ",
            vocabulary, "; raise it, encode the text again, or correct dataset.tokens.type (",
            width_, " bytes each)"));
      }
    }
    return absl::OkStatus();
  }

  const std::string name_;
  const int64_t width_;
  const std::shared_ptr<const DataFile> file_;
  std::string kept_;  // All tokens, or empty.
  const uint64_t bytes_;
  int64_t context_ = 0, size_ = 0, training_size_ = 0;
  std::vector<Field> fields_;
  const std::map<std::string, ColumnStatistics> none_;
  const std::vector<float> no_priorities_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenTokens(const training::v1::TokenFileSpec& spec,
                                                    const training::v1::TransformerSpec& model,
                                                    int64_t memory_limit_bytes) {
  absl::StatusOr<std::shared_ptr<const DataFile>> file = DataFile::Open(spec.path());
  if (!file.ok()) return file.status();
  const int64_t width = spec.type() == training::v1::TOKEN_TYPE_UINT32 ? 4 : 2;
  const std::string name = (*file)->name();
  auto dataset = std::make_unique<TokenDataset>(name, width, *std::move(file), "");
  absl::Status status = dataset->Prepare(model, spec.holdout_fraction(), memory_limit_bytes);
  if (!status.ok()) return status;
  return dataset;
}

absl::StatusOr<std::unique_ptr<Dataset>> TokensInMemory(std::string tokens, int64_t width,
                                                        const training::v1::TransformerSpec& model,
                                                        double holdout_fraction) {
  auto dataset =
      std::make_unique<TokenDataset>("dataset.synthetic", width, nullptr, std::move(tokens));
  absl::Status status = dataset->Prepare(model, holdout_fraction, 0);
  if (!status.ok()) return status;
  return dataset;
}

}  // namespace genesis
