#include "trainer/models/exported/linear_cross_entropy_graph.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text/json.h"
#include "gmock/gmock.h"

namespace genesis {
namespace {

using testing::ElementsAre;

constexpr int kFloat32 = 7;
constexpr int kBf16 = 13;

Json Tensor(const std::string& name) { return {{"as_tensor", {{"name", name}}}}; }
Json Int(int64_t value) { return {{"as_int", value}}; }
Json None() { return {{"as_none", true}}; }

// A graph as torch.export writes it.
class Graph {
 public:
  explicit Graph(const std::vector<std::string>& outputs) {
    Json given = Json::array();
    for (const std::string& name : outputs) given.push_back(Tensor(name));
    file_["graph_module"]["graph"] = {{"inputs", Json::array()},
                                      {"outputs", given},
                                      {"nodes", Json::array()},
                                      {"tensor_values", Json::object()}};
  }

  void Input(const std::string& name, const std::vector<int64_t>& sizes, int type = kFloat32) {
    graph()["inputs"].push_back(Tensor(name));
    Value(name, sizes, type);
  }

  using Arguments = std::vector<std::pair<std::string, Json>>;

  // Adds a node with one result.
  void Node(const std::string& operation, const Arguments& arguments, const std::string& result,
            const std::vector<int64_t>& sizes, int type = kFloat32) {
    Node(operation, arguments, std::vector<std::string>{result});
    Value(result, sizes, type);
  }

  void Node(const std::string& operation, const Arguments& arguments,
            const std::vector<std::string>& results) {
    Json inputs = Json::array();
    for (const auto& [name, argument] : arguments) {
      inputs.push_back({{"name", name}, {"arg", argument}, {"kind", 1}});
    }
    Json outputs = Json::array();
    for (const std::string& result : results) outputs.push_back(Tensor(result));
    graph()["nodes"].push_back({{"target", absl::StrCat("torch.ops.aten.", operation)},
                                {"inputs", inputs},
                                {"outputs", outputs}});
  }

  void Value(const std::string& name, const std::vector<int64_t>& sizes, int type = kFloat32) {
    Json as_ints = Json::array();
    // A size of 0 depends on the batch.
    for (const int64_t size : sizes) {
      as_ints.push_back(size > 0 ? Int(size) : Json{{"as_expr", {{"expr_str", "s0"}}}});
    }
    graph()["tensor_values"][name] = {{"dtype", type}, {"sizes", as_ints}};
  }

  // Returns the operators of the rewritten graph in order; nothing if it stays as it is.
  std::vector<std::string> Rewritten() {
    const std::optional<std::string> text = WithLinearCrossEntropy(file_.dump());
    std::vector<std::string> operators;
    if (!text) return operators;
    rewritten_ = Json::parse(*text)["graph_module"]["graph"];
    for (const Json& node : rewritten_["nodes"]) operators.push_back(node["target"]);
    return operators;
  }

  const Json& rewritten() const { return rewritten_; }

 private:
  Json& graph() { return file_["graph_module"]["graph"]; }

  Json file_;
  Json rewritten_;
};

struct Options {
  int64_t classes = 50257;
  bool bias = false;
  int type = kFloat32;
  // Further uses and properties of a value, which forbid the operator.
  std::string used;
  bool from_loss = false;
  bool writes = false;
  std::string backward_reduction = "mean";
};

// Returns the graph of a step of a language model whose output layer has the given options.
Graph Step(const Options& options) {
  const int64_t classes = options.classes;
  std::vector<std::string> outputs = {"loss", "of_input", "of_weight"};
  if (options.bias) outputs.emplace_back("of_bias");
  if (!options.used.empty()) outputs.push_back(options.used);
  Graph graph(outputs);
  graph.Input("scale", {});
  graph.Input("x", {0, 8}, options.type);
  graph.Input("weight", {classes, 8}, options.type);
  graph.Input("bias", {classes}, options.type);
  graph.Input("target", {0}, 5);
  graph.Node("t.default", {{"self", Tensor("weight")}}, "t", {8, classes}, options.type);
  if (options.bias) {
    graph.Node("addmm.default",
               {{"self", Tensor("bias")}, {"mat1", Tensor("x")}, {"mat2", Tensor("t")}}, "product",
               {0, classes}, options.type);
  } else {
    graph.Node("mm.default", {{"self", Tensor("x")}, {"mat2", Tensor("t")}}, "product",
               {0, classes}, options.type);
  }
  graph.Node("reshape.default", {{"self", Tensor("product")}}, "by_example", {0, 4, classes},
             options.type);
  graph.Node("_to_copy.default", {{"self", Tensor("by_example")}, {"dtype", Int(kFloat32)}}, "wide",
             {0, 4, classes});
  graph.Node("reshape.default", {{"self", Tensor("wide")}}, "logits", {0, classes});
  graph.Node("_log_softmax.default",
             {{"self", Tensor("logits")}, {"dim", Int(1)}, {"half_to_float", None()}}, "softmax",
             {0, classes});
  graph.Node("detach.default", {{"self", Tensor("softmax")}}, "detached", {0, classes});
  graph.Node("nll_loss_forward.default",
             {{"self", Tensor("softmax")},
              {"target", Tensor("target")},
              {"weight", None()},
              {"reduction", Int(1)},
              {"ignore_index", Int(-100)}},
             {"loss", "total"});
  graph.Value("loss", {});
  graph.Value("total", {});
  graph.Node("mul.Tensor", {{"self", Tensor("loss")}, {"other", Tensor("scale")}}, "scaled", {});
  if (options.writes) {
    graph.Node("add_.Tensor", {{"self", Tensor("x")}, {"other", Int(1)}}, "written", {0, 8});
  }
  graph.Node("ones_like.default", {{"self", Tensor("scaled")}}, "ones", {});
  graph.Node("mul.Tensor",
             {{"self", Tensor("ones")}, {"other", Tensor(options.from_loss ? "loss" : "scale")}},
             "gradient", {});
  graph.Node("nll_loss_backward.default",
             {{"grad_output", Tensor("gradient")},
              {"self", Tensor("softmax")},
              {"target", Tensor("target")},
              {"weight", None()},
              {"reduction", Int(options.backward_reduction == "mean" ? 1 : 2)},
              {"ignore_index", Int(-100)},
              {"total_weight", Tensor("total")}},
             "nll", {0, classes});
  graph.Node("_log_softmax_backward_data.default",
             {{"grad_output", Tensor("nll")}, {"output", Tensor("detached")}, {"dim", Int(1)}},
             "of_logits", {0, classes});
  graph.Node("_to_copy.default", {{"self", Tensor("of_logits")}, {"dtype", Int(options.type)}},
             "narrow", {0, classes}, options.type);
  graph.Node("t.default", {{"self", Tensor("narrow")}}, "turned", {classes, 0}, options.type);
  graph.Node("mm.default", {{"self", Tensor("turned")}, {"mat2", Tensor("x")}}, "of_weight",
             {classes, 8}, options.type);
  graph.Node("t.default", {{"self", Tensor("t")}}, "again", {classes, 8}, options.type);
  graph.Node("mm.default", {{"self", Tensor("narrow")}, {"mat2", Tensor("again")}}, "of_input",
             {0, 8}, options.type);
  if (options.bias) {
    graph.Node(
        "sum.dim_IntList",
        {{"self", Tensor("narrow")}, {"dim", {{"as_ints", {0}}}}, {"keepdim", {{"as_bool", true}}}},
        "of_bias", {1, classes}, options.type);
  }
  return graph;
}

TEST(LinearCrossEntropyGraphTest, OneOperatorComputesLossAndGradients) {
  for (const int type : {kFloat32, kBf16}) {
    Graph graph = Step({.type = type, .used = ""});
    EXPECT_THAT(graph.Rewritten(),
                ElementsAre("torch.ops.aten.t.default", "torch.ops.aten.ones_like.default",
                            "torch.ops.aten.mul.Tensor",
                            "torch.ops.genesis.linear_cross_entropy_gradients.default",
                            "torch.ops.aten.mul.Tensor", "torch.ops.aten.t.default"));
    const Json& node = graph.rewritten()["nodes"][3];
    EXPECT_EQ(node["outputs"].dump(), Json::array({Tensor("loss"), Tensor("total"),
                                                   Tensor("of_input"), Tensor("of_weight")})
                                          .dump());
    EXPECT_FALSE(graph.rewritten()["tensor_values"].contains("logits"));
    EXPECT_TRUE(graph.rewritten()["tensor_values"].contains("of_input"));
  }
}

TEST(LinearCrossEntropyGraphTest, ALayerWithBiasHasItsGradientToo) {
  Graph graph = Step({.bias = true, .used = ""});
  const std::vector<std::string> operators = graph.Rewritten();
  ASSERT_EQ(operators.size(), 6U);
  EXPECT_EQ(operators[3], "torch.ops.genesis.linear_cross_entropy_gradients_with_bias.default");
  EXPECT_EQ(graph.rewritten()["nodes"][3]["outputs"][4], Tensor("of_bias"));
}

TEST(LinearCrossEntropyGraphTest, AnEvaluationHasTheLossAlone) {
  Graph graph({"loss", "total"});
  graph.Input("scale", {});
  graph.Input("x", {0, 8});
  graph.Input("t", {8, 50257});
  graph.Input("target", {0}, 5);
  graph.Node("mm.default", {{"self", Tensor("x")}, {"mat2", Tensor("t")}}, "logits", {0, 50257});
  graph.Node("_log_softmax.default", {{"self", Tensor("logits")}, {"dim", Int(1)}}, "softmax",
             {0, 50257});
  graph.Node("nll_loss_forward.default",
             {{"self", Tensor("softmax")},
              {"target", Tensor("target")},
              {"weight", None()},
              {"reduction", Int(1)},
              {"ignore_index", Int(-100)}},
             {"loss", "total"});
  EXPECT_THAT(graph.Rewritten(), ElementsAre("torch.ops.genesis.linear_cross_entropy.default"));
}

TEST(LinearCrossEntropyGraphTest, OtherUsesOfTheLogitsForbidIt) {
  for (const char* const used : {"product", "by_example", "wide", "logits", "softmax", "detached",
                                 "nll", "of_logits", "narrow", "turned", "total"}) {
    EXPECT_THAT(Step({.used = used}).Rewritten(), ElementsAre()) << used;
  }
}

TEST(LinearCrossEntropyGraphTest, OtherLayersStayAsTheyAre) {
  EXPECT_THAT(Step({.classes = kMinFusedClasses - 1, .used = ""}).Rewritten(), ElementsAre());
  EXPECT_THAT(Step({.used = "", .from_loss = true}).Rewritten(), ElementsAre());
  EXPECT_THAT(Step({.used = "", .writes = true}).Rewritten(), ElementsAre());
  EXPECT_THAT(Step({.used = "", .backward_reduction = "sum"}).Rewritten(), ElementsAre());
}

TEST(LinearCrossEntropyGraphTest, ADamagedGraphStaysAsItIs) {
  EXPECT_EQ(WithLinearCrossEntropy("nll_loss_forward"), std::nullopt);
  EXPECT_EQ(WithLinearCrossEntropy(R"({"graph_module": {"graph": {"nodes": "nll_loss_forward"}}})"),
            std::nullopt);
  // A detached view of itself.
  Graph graph({"loss"});
  graph.Node("detach.default", {{"self", Tensor("softmax")}}, "softmax", {0, 50257});
  graph.Node("nll_loss_forward.default", {{"self", Tensor("softmax")}}, {"loss", "total"});
  EXPECT_THAT(graph.Rewritten(), ElementsAre());
}

}  // namespace
}  // namespace genesis
