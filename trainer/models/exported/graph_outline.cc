#include "trainer/models/exported/graph_outline.h"

#include "trainer/models/exported/exported_operators.h"

namespace genesis {
namespace {

// Checks that every operator anywhere in the graph is allowed.
bool CheckTargets(JsonCursor& json, std::string& refused) {
  switch (json.Peek()) {
    case '{':
      return json.Object([&](const std::string& key) {
        if (key != "target" || json.Peek() != '"') return CheckTargets(json, refused);
        std::string target;
        if (!json.String(target)) return false;
        if (IsAllowedOperator(target)) return true;
        refused = target;
        return json.Fail("an operator that is not allowed");
      });
    case '[':
      return json.Array([&] { return CheckTargets(json, refused); });
    default:
      return json.Skip();
  }
}

}  // namespace

bool ReadOutline(JsonCursor& json, GraphOutline& outline, std::string& refused) {
  const auto count = [&](size_t& elements) {
    return json.Array([&] { return ++elements, CheckTargets(json, refused); });
  };
  const auto read_graph = [&](const std::string& key) {
    outline.parts.insert(key);
    if (key == "inputs") return count(outline.inputs);
    if (key == "outputs") return count(outline.outputs);
    return CheckTargets(json, refused);
  };
  const auto read_module = [&](const std::string& key) {
    if (key == "graph") return json.Object(read_graph);
    outline.has_signature |= key == "signature";
    return CheckTargets(json, refused);
  };
  return json.Object([&](const std::string& key) {
    return key == "graph_module" ? json.Object(read_module) : CheckTargets(json, refused);
  });
}

}  // namespace genesis
