#include "trainer/models/exported/linear_cross_entropy_graph.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text/json.h"
#include "trainer/models/exported/linear_cross_entropy_operators.h"

namespace genesis {
namespace {

// ScalarType.FLOAT in the schema of torch.export.
constexpr int kFloat32 = 7;
// The user of a value that is an output of the graph, in place of a node's index.
constexpr size_t kOutput = SIZE_MAX;

// Calls use(name) for each value in an argument or a result.
template <typename Use>
void ForEachName(const Json& part, const Use& use) {
  if (!part.is_structured()) return;
  for (const auto& [key, value] : part.items()) {
    if ((key == "name" || key == "as_name") && value.is_string()) {
      use(value.template get<std::string>());
    } else {
      ForEachName(value, use);
    }
  }
}

// The nodes of a graph with producers and users of their values.
class Nodes {
 public:
  explicit Nodes(const Json& graph)
      : nodes_(graph.at("nodes")), values_(graph.at("tensor_values")) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      ForEachName(nodes_[i].at("outputs"), [&](const std::string& name) { producers_[name] = i; });
      for (const Json& input : nodes_[i].at("inputs")) {
        ForEachName(input.at("arg"), [&](const std::string& name) { users_[name].insert(i); });
      }
    }
    ForEachName(graph.at("outputs"),
                [&](const std::string& name) { users_[name].insert(kOutput); });
  }

  const Json& operator[](size_t node) const { return nodes_[node]; }

  bool Is(std::optional<size_t> node, const std::string& operation) const {
    return node && nodes_[*node].at("target") == absl::StrCat("torch.ops.aten.", operation);
  }

  // Returns the argument {"as_...": ...}; null if the node has none of that name.
  Json Argument(size_t node, const std::string& name) const {
    for (const Json& input : nodes_[node].at("inputs")) {
      if (input.at("name") == name) return input.at("arg");
    }
    return {};
  }

  // Returns the name of an argument that is a tensor; "" if it is not a tensor.
  std::string Tensor(size_t node, const std::string& name) const {
    const Json argument = Argument(node, name);
    if (!argument.contains("as_tensor")) return "";
    return argument["as_tensor"].at("name");
  }

  std::string Result(size_t node, size_t number = 0) const {
    return nodes_[node].at("outputs").at(number).at("as_tensor").at("name");
  }

  std::optional<size_t> Producer(const std::string& value) const {
    const auto found = producers_.find(value);
    return found == producers_.end() ? std::nullopt : std::optional(found->second);
  }

  // Returns the value of which this one is a detached view.
  std::string Origin(std::string value) const {
    size_t user = nodes_.size();
    for (auto node = Producer(value); Is(node, "detach.default") && *node < user;
         node = Producer(value)) {
      user = *node;
      value = Tensor(user, "self");
    }
    return value;
  }

  // Returns the users of a value and of its detached views, which are added to `views`.
  std::set<size_t> Users(const std::string& value, std::set<size_t>& views) const {
    std::set<size_t> users;
    const auto found = users_.find(value);
    if (found == users_.end()) return users;
    for (const size_t node : found->second) {
      if (node != kOutput && Is(node, "detach.default")) {
        if (views.insert(node).second) users.merge(Users(Result(node), views));
      } else {
        users.insert(node);
      }
    }
    return users;
  }

  int Type(const std::string& value) const { return values_.at(value).at("dtype"); }

  // Returns the sizes of a tensor; 0 for one that depends on the batch.
  std::vector<int64_t> Sizes(const std::string& value) const {
    std::vector<int64_t> sizes;
    for (const Json& size : values_.at(value).at("sizes"))
      sizes.push_back(size.value("as_int", int64_t{0}));
    return sizes;
  }

  // Returns whether the node changes only the shape or the type of its tensor.
  bool IsReshapeOrCast(std::optional<size_t> node) const {
    if (Is(node, "_to_copy.default")) return Argument(*node, "memory_format").is_null();
    return Is(node, "reshape.default") || Is(node, "view.default") ||
           Is(node, "_unsafe_view.default");
  }

 private:
  const Json& nodes_;
  const Json& values_;
  std::map<std::string, size_t> producers_;
  std::map<std::string, std::set<size_t>> users_;
};

// An output layer with its loss.
struct Layer {
  size_t product = 0;   // mm or addmm.
  size_t loss = 0;      // nll_loss_forward.
  size_t backward = 0;  // nll_loss_backward; 0 without gradients.
  std::string input_gradient, weight_gradient, bias_gradient;
  std::set<size_t> replaced;  // All nodes to remove, including the above.
};

// A search for the layers of a graph.
class Finder {
 public:
  explicit Finder(const Nodes& nodes) : nodes_(nodes) {}

  // Returns the layer whose loss is this node.
  std::optional<Layer> Find(size_t loss) const {
    Layer layer;
    layer.loss = loss;
    const auto softmax = nodes_.Producer(nodes_.Origin(nodes_.Tensor(loss, "self")));
    if (!nodes_.Is(softmax, "_log_softmax.default")) return std::nullopt;
    layer.replaced = {loss, *softmax};
    if (!FindProduct(*softmax, layer)) return std::nullopt;
    std::set<size_t> users = nodes_.Users(nodes_.Result(*softmax), layer.replaced);
    users.erase(loss);
    if (users.empty()) return layer;
    if (!FindGradients(*softmax, users, layer)) return std::nullopt;
    return layer;
  }

 private:
  bool IsLogits(const std::string& value, int64_t classes) const {
    const std::vector<int64_t> sizes = nodes_.Sizes(value);
    return sizes.size() == 2 && sizes[1] == classes;
  }

  // Finds the product from which the softmax gets the logits. Returns false if there is none.
  bool FindProduct(size_t softmax, Layer& layer) const {
    std::string value = nodes_.Tensor(softmax, "self");
    const std::vector<int64_t> sizes = nodes_.Sizes(value);
    if (sizes.size() != 2 || sizes[1] < kMinFusedClasses || nodes_.Type(value) != kFloat32 ||
        nodes_.Argument(softmax, "dim") != Json{{"as_int", 1}}) {
      return false;
    }
    std::set<int> types;
    size_t user = softmax;
    std::optional<size_t> node = nodes_.Producer(value);
    while (node && *node < user) {
      std::set<size_t> views;
      if (nodes_.Users(value, views) != std::set<size_t>{user}) return false;
      layer.replaced.insert(*node);
      layer.replaced.merge(views);
      types.insert(nodes_.Type(value));
      if (!nodes_.IsReshapeOrCast(node)) break;
      user = *node;
      value = nodes_.Tensor(user, "self");
      node = nodes_.Producer(value);
    }
    // Accept logits of one type, or casts of such logits to float32.
    types.insert({kFloat32, nodes_.Type(value)});
    if (types.size() > 2 || (types.size() == 2 && nodes_.Type(value) == kFloat32)) return false;
    if (!node || !IsLogits(value, sizes[1])) return false;
    layer.product = *node;
    if (nodes_.Is(node, "mm.default")) return true;
    const auto is_one = [&](const std::string& name) {
      const Json factor = nodes_.Argument(*node, name);
      return factor.is_null() || factor == Json{{"as_int", 1}};
    };
    return nodes_.Is(node, "addmm.default") && is_one("beta") && is_one("alpha") &&
           nodes_.Sizes(nodes_.Tensor(*node, "self")).size() == 1;
  }

  bool FindGradients(size_t softmax, std::set<size_t> users, Layer& layer) const {
    std::optional<size_t> nll, data;
    for (const size_t user : users) {
      if (user != kOutput && nodes_.Is(user, "nll_loss_backward.default")) nll = user;
      if (user != kOutput && nodes_.Is(user, "_log_softmax_backward_data.default")) data = user;
    }
    if (!nll || !data || users.size() != 2) return false;
    layer.backward = *nll;
    layer.replaced.insert({*nll, *data});
    for (const char* const name : {"target", "weight", "reduction", "ignore_index"}) {
      if (nodes_.Argument(*nll, name) != nodes_.Argument(layer.loss, name)) return false;
    }
    const auto only = [&](const std::string& value, size_t user) {
      return nodes_.Users(value, layer.replaced) == std::set<size_t>{user};
    };
    if (!only(nodes_.Result(layer.loss, 1), *nll) || !only(nodes_.Result(*nll), *data) ||
        nodes_.Origin(nodes_.Tensor(*data, "output")) != nodes_.Result(softmax) ||
        nodes_.Origin(nodes_.Tensor(*data, "grad_output")) != nodes_.Result(*nll)) {
      return false;
    }
    std::string gradient = nodes_.Result(*data);
    users = nodes_.Users(gradient, layer.replaced);
    const std::string logits = nodes_.Result(layer.product);
    const auto has_type = [&](const std::string& value) {
      return nodes_.Type(value) == kFloat32 || nodes_.Type(value) == nodes_.Type(logits);
    };
    while (users.size() == 1 && *users.begin() != kOutput && has_type(gradient) &&
           nodes_.IsReshapeOrCast(*users.begin()) && layer.replaced.insert(*users.begin()).second) {
      gradient = nodes_.Result(*users.begin());
      users = nodes_.Users(gradient, layer.replaced);
    }
    return IsLogits(gradient, nodes_.Sizes(logits)[1]) &&
           nodes_.Type(gradient) == nodes_.Type(logits) && FindProducts(gradient, users, layer);
  }

  // Finds the products of the logits' gradient, all of its users.
  bool FindProducts(const std::string& gradient, const std::set<size_t>& users,
                    Layer& layer) const {
    const bool has_bias = nodes_.Is(layer.product, "addmm.default");
    const std::string input = nodes_.Tensor(layer.product, has_bias ? "mat1" : "self");
    const std::string weight = nodes_.Tensor(layer.product, "mat2");
    for (const size_t user : users) {
      if (user == kOutput) return false;
      layer.replaced.insert(user);
      if (nodes_.Is(user, "mm.default") && IsTransposed(nodes_.Tensor(user, "mat2"), weight) &&
          nodes_.Origin(nodes_.Tensor(user, "self")) == gradient) {
        layer.input_gradient = nodes_.Result(user);
      } else if (nodes_.Is(user, "t.default")) {
        const std::set<size_t> products = nodes_.Users(nodes_.Result(user), layer.replaced);
        if (products.size() != 1) return false;
        const size_t product = *products.begin();
        if (product == kOutput || !nodes_.Is(product, "mm.default") ||
            nodes_.Origin(nodes_.Tensor(product, "self")) != nodes_.Result(user) ||
            nodes_.Origin(nodes_.Tensor(product, "mat2")) != nodes_.Origin(input)) {
          return false;
        }
        layer.replaced.insert(product);
        layer.weight_gradient = nodes_.Result(product);
      } else if (has_bias && nodes_.Is(user, "sum.dim_IntList") &&
                 nodes_.Argument(user, "dim") == Json{{"as_ints", {0}}} &&
                 nodes_.Argument(user, "keepdim") == Json{{"as_bool", true}} &&
                 nodes_.Argument(user, "dtype").is_null()) {
        layer.bias_gradient = nodes_.Result(user);
      } else {
        return false;
      }
    }
    return users.size() == (has_bias ? 3 : 2) && !layer.input_gradient.empty() &&
           !layer.weight_gradient.empty() && layer.bias_gradient.empty() != has_bias;
  }

  bool IsTransposed(const std::string& value, const std::string& other) const {
    const auto node = nodes_.Producer(nodes_.Origin(value));
    return nodes_.Is(node, "t.default") &&
           nodes_.Origin(nodes_.Tensor(*node, "self")) == nodes_.Origin(other);
  }

  const Nodes& nodes_;
};

// Returns the nodes after `layer.loss` on which its gradient depends, in order; nullopt if one of
// them depends on what is replaced, or if moving them before the loss may change what they read.
std::optional<std::vector<size_t>> NodesOfGradient(const Nodes& nodes, const Layer& layer) {
  if (layer.backward == 0) return std::vector<size_t>();
  std::set<size_t> found;
  std::vector<std::string> names = {nodes.Tensor(layer.backward, "grad_output")};
  while (!names.empty()) {
    const auto node = nodes.Producer(names.back());
    names.pop_back();
    if (!node || *node < layer.loss || found.contains(*node)) continue;
    if (layer.replaced.contains(*node)) return std::nullopt;
    found.insert(*node);
    for (const Json& input : nodes[*node].at("inputs")) {
      ForEachName(input.at("arg"), [&](const std::string& name) { names.push_back(name); });
    }
  }
  for (size_t node = layer.loss; node < layer.backward; ++node) {
    // "aten.add_.Tensor" writes to its argument.
    if (absl::StrContains(nodes[node].at("target").get<std::string>(), "_.")) return std::nullopt;
  }
  return std::vector<size_t>(found.begin(), found.end());
}

// Returns the operator that replaces a layer, with the names of its results.
Json Operator(const Nodes& nodes, const Layer& layer) {
  Json inputs = Json::array();
  const auto add = [&](const std::string& name, Json argument) {
    inputs.push_back({{"name", name}, {"arg", std::move(argument)}, {"kind", 1}});
  };
  const bool has_bias = nodes.Is(layer.product, "addmm.default");
  add("input", nodes.Argument(layer.product, has_bias ? "mat1" : "self"));
  add("weight", nodes.Argument(layer.product, "mat2"));
  add("bias", has_bias ? nodes.Argument(layer.product, "self") : Json{{"as_none", true}});
  add("target", nodes.Argument(layer.loss, "target"));
  add("class_weight", nodes.Argument(layer.loss, "weight"));
  add("reduction", nodes.Argument(layer.loss, "reduction"));
  add("ignore_index", nodes.Argument(layer.loss, "ignore_index"));
  std::vector<std::string> results = {nodes.Result(layer.loss), nodes.Result(layer.loss, 1)};
  const bool differentiates = layer.backward != 0;
  if (differentiates) {
    add("grad_output", nodes.Argument(layer.backward, "grad_output"));
    results.insert(results.end(), {layer.input_gradient, layer.weight_gradient});
    if (has_bias) results.push_back(layer.bias_gradient);
  }
  Json outputs = Json::array();
  for (const std::string& name : results) outputs.push_back({{"as_tensor", {{"name", name}}}});
  return {{"target", LinearCrossEntropyOperator(differentiates, has_bias)},
          {"inputs", std::move(inputs)},
          {"outputs", std::move(outputs)},
          {"metadata", Json::object()},
          {"is_hop_single_tensor_return", nullptr}};
}

void Replace(Json& graph, const Nodes& nodes, const Layer& layer,
             const std::vector<size_t>& before) {
  Json replacement = Operator(nodes, layer);
  Json replaced = Json::array();
  const Json& old = graph["nodes"];
  for (size_t i = 0; i < old.size(); ++i) {
    if (i == layer.loss) {
      for (const size_t node : before) replaced.push_back(old[node]);
      replaced.push_back(replacement);
    }
    if (layer.replaced.contains(i)) continue;
    if (std::find(before.begin(), before.end(), i) == before.end()) replaced.push_back(old[i]);
  }
  std::set<std::string> kept;
  ForEachName(replacement["outputs"], [&](const std::string& name) { kept.insert(name); });
  for (const size_t node : layer.replaced) {
    ForEachName(old[node].at("outputs"), [&](const std::string& name) {
      if (!kept.contains(name)) graph["tensor_values"].erase(name);
    });
  }
  graph["nodes"] = std::move(replaced);
}

// Autograd begins with ones_like(loss * scale), which would make the gradient of the loss depend on
// the loss. Replaces its argument by another float32 scalar: the scale, the graph's first input.
void StartFromScale(Json& graph) {
  const Json& values = graph.at("tensor_values");
  const auto is_number = [&](const std::string& name) {
    return values.contains(name) && values[name].at("sizes").empty() &&
           values[name].at("dtype") == kFloat32;
  };
  std::string scale;
  ForEachName(graph.at("inputs").at(0), [&](const std::string& name) { scale = name; });
  if (!is_number(scale)) return;
  for (Json& node : graph.at("nodes")) {
    if (node.at("target") != "torch.ops.aten.ones_like.default") continue;
    Json& argument = node.at("inputs").at(0).at("arg");
    if (is_number(argument.at("as_tensor").at("name"))) argument["as_tensor"]["name"] = scale;
  }
}

// Returns the names of the first results of all nll_loss_forward nodes.
std::vector<std::string> Losses(const Json& graph) {
  std::vector<std::string> losses;
  const Nodes nodes(graph);
  for (size_t i = 0; i < graph.at("nodes").size(); ++i) {
    if (nodes.Is(i, "nll_loss_forward.default")) losses.push_back(nodes.Result(i));
  }
  return losses;
}

}  // namespace

std::optional<std::string> WithLinearCrossEntropy(const std::string& text) {
  if (!absl::StrContains(text, "nll_loss_forward")) return std::nullopt;
  try {
    Json file = Json::parse(text);
    Json& graph = file.at("graph_module").at("graph");
    StartFromScale(graph);
    bool replaced = false;
    for (const std::string& loss : Losses(graph)) {
      const Nodes nodes(graph);
      const std::optional<Layer> layer = Finder(nodes).Find(nodes.Producer(loss).value());
      if (!layer) continue;
      const auto before = NodesOfGradient(nodes, *layer);
      if (!before) continue;
      Replace(graph, nodes, *layer, *before);
      replaced = true;
    }
    if (!replaced) return std::nullopt;
    return file.dump();
  } catch (const std::exception&) {
    // The graph was changed after genesis.export wrote it. LibTorch reports the error later.
    return std::nullopt;
  }
}

}  // namespace genesis
