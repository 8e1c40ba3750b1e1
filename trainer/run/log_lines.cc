#include "trainer/run/log_lines.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text/text.h"

namespace genesis {
namespace {

constexpr size_t kNamedTensors = 6;

}  // namespace

std::string ModelLine(const Model& model) {
  const NamedTensors parameters = model.parameters();
  int64_t elements = 0;
  for (const auto& [name, tensor] : parameters) elements += tensor.numel();
  std::string line =
      absl::StrCat("model: ", elements, " trainable parameters in ", parameters.size(),
                   parameters.size() == 1 ? " tensor" : " tensors");
  const std::vector<std::string> without = model.without_gradient();
  if (without.empty()) return line;
  absl::StrAppend(&line, "; in the trial before the job ", without.size(),
                  " of them did not receive a gradient: ");
  const size_t named = std::min(without.size(), kNamedTensors);
  for (size_t i = 0; i < named; ++i) {
    absl::StrAppend(&line, i > 0 ? ", " : "", OneLine(without[i], kMaxNameBytes));
  }
  if (without.size() > named) absl::StrAppend(&line, " and ", without.size() - named, " more");
  return line;
}

std::vector<std::string> ModelLines(const Model& model, const Dataset& dataset, int64_t batch_size,
                                    int ranks) {
  std::vector<std::string> lines = {ModelLine(model)};
  if (model.takes_short_batches()) return lines;
  const int64_t trained = dataset.training_size();
  const int64_t held_out = dataset.size() - trained;
  lines.push_back(
      absl::StrCat("batches: of ", batch_size,
                   " examples alone, as the module was exported (dynamic_batch=False); a shorter "
                   "last batch is left out: ",
                   trained % (batch_size * ranks), " of ", trained, " examples of each epoch, and ",
                   held_out % batch_size, " of ", held_out, " held-out examples"));
  return lines;
}

std::string CompletionLine(const std::string& job_id, const training::v1::Finished& finished,
                           const std::optional<training::v1::Evaluation>& evaluation) {
  std::string line = absl::StrFormat("training complete: job %s, %d steps, loss %.6g", job_id,
                                     finished.progress().step(), finished.progress().loss());
  if (finished.has_held_out()) {
    absl::StrAppendFormat(&line, ", held-out error %.4g (persistence %.4g, mean %.4g)",
                          finished.held_out().model(), finished.held_out().persistence(),
                          finished.held_out().mean());
  } else if (evaluation) {
    absl::StrAppendFormat(&line, ", held-out loss %.6g", evaluation->loss());
  }
  if (!finished.early_end().empty()) {
    absl::StrAppend(&line, "; ended early: ", finished.early_end());
  }
  return line;
}

}  // namespace genesis
