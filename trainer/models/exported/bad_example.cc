#include "trainer/models/exported/bad_example.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "base/text/text.h"
#include "config/job/job_paths.h"

namespace genesis {
namespace {

// Returns the value as text, or the range of several values.
std::string ValueText(const torch::Tensor& values) {
  const auto text = [](const torch::Tensor& value) {
    return value.is_floating_point() ? FormatNumber(value.item<double>())
                                     : absl::StrCat(value.item<int64_t>());
  };
  if (values.numel() == 0) return "empty";
  if (values.numel() == 1) return text(values.reshape({}));
  return absl::StrCat("from ", text(values.min()), " to ", text(values.max()));
}

Batch Part(const Batch& batch, int64_t begin, int64_t rows) {
  Batch part;
  for (const auto& [name, tensor] : batch.fields) {
    part.fields[name] = tensor.narrow(0, begin, rows);
  }
  part.examples.assign(batch.examples.begin() + begin, batch.examples.begin() + begin + rows);
  return part;
}

}  // namespace

std::optional<BadExample> FindBadExample(const Batch& batch, const std::vector<std::string>& fields,
                                         const std::function<bool(const Batch&)>& fails) {
  if (!fails(batch)) return std::nullopt;
  int64_t row = 0;
  for (int64_t rows = batch.size(); rows > 1;) {
    const int64_t half = rows / 2;
    if (fails(Part(batch, row, half))) {
      rows = half;
    } else if (fails(Part(batch, row + half, rows - half))) {
      row += half;
      rows -= half;
    } else {
      return std::nullopt;
    }
  }
  const Batch alone = Part(batch, row, 1);
  for (const std::string& name : fields) {
    BadExample bad{.row = row, .field = name, .where = "", .other = alone};
    bad.other.fields[name] = torch::zeros_like(alone.at(name));
    if (fails(bad.other)) continue;
    bad.where = absl::StrCat("the field ", name, " of example ", alone.examples.front(), " (row ",
                             row, " of its batch) is ", ValueText(alone.at(name)));
    return bad;
  }
  return std::nullopt;
}

Batch Repeated(const Batch& batch, int64_t size) {
  const torch::Tensor rows = torch::arange(size).remainder(batch.size());
  Batch repeated;
  for (const auto& [name, tensor] : batch.fields) {
    repeated.fields[name] = tensor.index_select(0, rows.to(tensor.device()));
  }
  for (int64_t row = 0; row < size; ++row) {
    repeated.examples.push_back(batch.examples[static_cast<size_t>(row % batch.size())]);
  }
  return repeated;
}

std::string CureOf(const BadExample& bad) {
  if (bad.other.at(bad.field).is_floating_point()) {
    return "accepted: what the module can take; correct the data, or the module";
  }
  return "accepted: what the module can take, such as an index from 0 to num_embeddings - 1; "
         "correct "
         "the data, or make the module larger";
}

std::string DataPath(const training::v1::JobSpec& spec) {
  for (const JobPath& named : PathsOf(spec)) {
    if (absl::StartsWith(named.field, "dataset.") && !named.path.empty()) {
      return OneLine(named.path, kMaxNameBytes);
    }
  }
  return "the dataset";
}

}  // namespace genesis
