#include "trainer/models/exported/exported_manifest.h"

namespace genesis {
namespace {

constexpr size_t kMaxDimensions = 16;

bool ReadNames(JsonCursor& json, std::vector<std::string>& names) {
  return json.Array([&] { return json.String(names.emplace_back()); });
}

bool ReadEntries(JsonCursor& json, std::vector<ExportedManifest::Entry>& entries) {
  return json.Array([&] {
    ExportedManifest::Entry& entry = entries.emplace_back();
    if (entries.size() > kMaxTensors) return json.Fail("more tensors than 100000");
    return json.Object([&](const std::string& key) {
      if (key == "name") return json.String(entry.name);
      if (key == "type") return json.String(entry.type);
      if (key == "role") return json.String(entry.role);
      if (key != "shape") return json.Fail("an unknown key of a tensor");
      return json.Array([&] {
        if (entry.shape.size() == kMaxDimensions) return json.Fail("more than 16 dimensions");
        return json.Count(entry.shape.emplace_back());
      });
    });
  });
}

bool ReadPrediction(JsonCursor& json, ExportedManifest::Prediction& prediction) {
  return json.Object([&](const std::string& key) {
    if (key == "inputs") return ReadNames(json, prediction.inputs);
    if (key == "outputs") return ReadNames(json, prediction.outputs);
    return json.Fail("an unknown key of the prediction");
  });
}

bool ReadTexts(JsonCursor& json, std::map<std::string, std::string>& texts) {
  return json.Object([&](const std::string& name) { return json.String(texts[name]); });
}

}  // namespace

bool ReadManifest(JsonCursor& json, ExportedManifest& manifest) {
  const bool read = json.Object([&](const std::string& key) {
    if (key == "format") return json.Count(manifest.format);
    if (key == "producer") return json.String(manifest.producer);
    if (key == "torch") return json.String(manifest.torch);
    if (key == "module") return json.String(manifest.module);
    if (key == "precisions") return ReadNames(json, manifest.precisions);
    if (key == "without") return ReadTexts(json, manifest.without);
    if (key == "batch_size") return json.Count(manifest.batch_size.emplace());
    if (key == "fields") return ReadEntries(json, manifest.fields);
    if (key == "tensors") return ReadEntries(json, manifest.tensors);
    if (key == "losses") return json.String(manifest.losses);
    if (key == "held_out_quotients") return json.Count(manifest.held_out_quotients);
    if (key == "gradients") return ReadNames(json, manifest.gradients);
    if (key == "changed") return ReadNames(json, manifest.changed);
    if (key == "prediction") return ReadPrediction(json, manifest.prediction.emplace());
    if (key == "tied") return ReadTexts(json, manifest.tied);
    if (key == "versions") {
      return json.Object([&](const std::string& name) {
        if (manifest.versions.size() == kMaxTensors) return json.Fail("more modules than 100000");
        return json.Count(manifest.versions.emplace_back(name, 0).second);
      });
    }
    if (key == "constants") {
      return json.Object(
          [&](const std::string& graph) { return ReadNames(json, manifest.constants[graph]); });
    }
    // Keys of another format are skipped: the format number is reported after parsing.
    return manifest.format == kExportedFormat ? json.Fail("an unknown key") : json.Skip();
  });
  return read && json.End();
}

}  // namespace genesis
