#include "trainer/models/scripted_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "tests/temp_dir.h"
#include "tests/trainer/model_checks.h"
#include "trainer/models/module_faults.h"

namespace genesis {
namespace {

namespace F = torch::nn::functional;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using training::v1::JobSpec;
using training::v1::ScriptedLoss;

constexpr int64_t kExamples = 24;
constexpr char kNet[] =
    "def forward(self, input):\n  return torch.tanh(input @ self.w1) @ self.w2\n";
constexpr char kOwnLoss[] = R"(
def forward(self, input, target):
  return torch.mse_loss(torch.tanh(input @ self.w1) @ self.w2, target)
)";

torch::Tensor Weight(int64_t rows, int64_t columns) {
  return 0.3 * torch::arange(rows * columns, torch::kFloat).sin().view({rows, columns});
}

// Returns a module with the weights w1 [4, 8] and w2 [8, 3].
torch::jit::Module Net(const std::string& code) {
  torch::jit::Module module("Net");
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_parameter("w1", Weight(4, 8).requires_grad_(), /*is_buffer=*/false);
  module.register_parameter("w2", Weight(8, 3).requires_grad_(), /*is_buffer=*/false);
  module.define(code);
  return module;
}

MemoryDataset Rows(const torch::Tensor& target) {
  torch::manual_seed(6);
  return MemoryDataset({{"input", torch::randn({kExamples, 4})}, {"target", target}});
}

MemoryDataset Numbers() { return Rows(torch::arange(kExamples * 3).cos().view({kExamples, 3})); }
MemoryDataset Classes() { return Rows(torch::arange(kExamples).remainder(3)); }

class ScriptedModelTest : public testing::Test {
 protected:
  JobSpec Job(const torch::jit::Module& module, ScriptedLoss loss) {
    module.save(path());
    return JobFor(path(), loss);
  }
  static JobSpec JobFor(const std::string& path, ScriptedLoss loss) {
    JobSpec spec;
    training::v1::TorchScriptSpec& model = *spec.mutable_model()->mutable_torchscript();
    model.set_path(path);
    model.set_loss(loss);
    if (loss != training::v1::SCRIPTED_LOSS_MODULE) model.set_target("target");
    spec.mutable_dataset()->mutable_arrays()->set_path("rows.npz");
    return spec;
  }
  std::string path() const { return folder_.path() + "/net.pt"; }

  TempDir folder_;
};

constexpr ScriptedLoss kModule = training::v1::SCRIPTED_LOSS_MODULE;
constexpr ScriptedLoss kMse = training::v1::SCRIPTED_LOSS_MSE;
constexpr ScriptedLoss kCrossEntropy = training::v1::SCRIPTED_LOSS_CROSS_ENTROPY;
constexpr ScriptedLoss kHuber = training::v1::SCRIPTED_LOSS_HUBER;

TEST_F(ScriptedModelTest, KeepsWhatEveryModelPromises) {
  CheckPromises(*Build(Job(Net(kNet), kMse), Numbers()), Numbers());
  CheckPromises(*Build(Job(Net(kNet), kHuber), Numbers()), Numbers());
  CheckPromises(*Build(Job(Net(kNet), kCrossEntropy), Classes()), Classes());
  CheckPromises(*Build(Job(Net(kOwnLoss), kModule), Numbers()), Numbers(), /*weights=*/false);
}

TEST_F(ScriptedModelTest, ComparesTheOutputAsAsked) {
  const Batch batch = Numbers().Rows(0, 8);
  const torch::Tensor output = torch::tanh(batch.at("input").mm(Weight(4, 8))).mm(Weight(8, 3));
  const torch::Tensor far = batch.at("target") * 5;
  Batch spread = batch;
  spread.fields["target"] = far;
  const auto loss = [&](ScriptedLoss kind, const MemoryDataset& dataset, const Batch& on) {
    return Value(Build(Job(Net(kNet), kind), dataset)->Loss(on, std::nullopt));
  };
  EXPECT_FLOAT_EQ(loss(kMse, Numbers(), spread), Value(F::mse_loss(output, far)));
  EXPECT_FLOAT_EQ(loss(kHuber, Numbers(), spread), Value(F::huber_loss(output, far)));
  EXPECT_FLOAT_EQ(Value(Build(Job(Net(kOwnLoss), kModule), Numbers())->Loss(spread, std::nullopt)),
                  Value(F::mse_loss(output, far)));
  Batch classes = Classes().Rows(0, 8);
  classes.fields["target"] = classes.at("target").clone();
  classes.fields["target"][2] = -100;  // torch excludes it from the mean.
  EXPECT_FLOAT_EQ(loss(kCrossEntropy, Classes(), classes),
                  Value(F::cross_entropy(output, classes.at("target"))));
}

TEST_F(ScriptedModelTest, CountsTheOperationsOfItsMatrixProducts) {
  // 4 x 8 and 8 x 3 products of two operations, three times.
  EXPECT_EQ(Build(Job(Net(kNet), kMse), Numbers())->OperationsPerExample(), 3 * 2 * (32 + 24));
}

TEST_F(ScriptedModelTest, ListsTiedParametersOnceAndKeepsFrozenOnesAsBuffers) {
  torch::jit::Module module("Net");
  module.register_attribute("training", c10::BoolType::get(), true);
  const torch::Tensor shared = Weight(4, 4).requires_grad_();
  module.register_parameter("first", shared, false);
  module.register_parameter("frozen", torch::ones({3}), false);
  module.register_parameter("again", shared, false);
  module.register_parameter("mean", torch::zeros({4}), /*is_buffer=*/true);
  module.define(R"(
def forward(self, input):
  return ((input - self.mean) @ self.first @ self.again)[:, :3] * self.frozen
)");
  const auto model = Build(Job(module, kMse), Numbers());
  EXPECT_THAT(Names(model->parameters()), ElementsAre("first"));
  EXPECT_THAT(Names(model->buffers()), ElementsAre("frozen", "mean"));
  EXPECT_THAT(model->tied(), ElementsAre(Pair("again", "first")));
  CheckPromises(*model, Numbers(), /*weights=*/true, /*float32_buffers=*/false);
}

TEST_F(ScriptedModelTest, KeepsFrozenWeightsExactInPureBf16) {
  torch::jit::Module module("Net");
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_parameter("w", Weight(4, 3).requires_grad_(), false);
  module.register_parameter("frozen", Weight(1, 3), false);
  module.register_parameter("calls", torch::zeros({1}), /*is_buffer=*/true);
  module.define(R"(
def forward(self, input):
  self.calls = self.calls + 1
  return input @ self.w + self.frozen
)");
  const auto model = Build(Job(module, kMse), Numbers());
  const Batch batch = Numbers().Rows(0, 8);
  const torch::Tensor weight = model->parameters()[0].second;
  weight.set_data(weight.detach().to(torch::kBFloat16));
  model->Loss(batch, std::nullopt).backward();
  EXPECT_TRUE(torch::equal(model->buffers()[0].second, Weight(1, 3)));
  // The module runs with a restored checkpoint.
  model->buffers()[0].second.fill_(1000);
  EXPECT_GT(Value(model->Loss(batch, std::nullopt)), 1e5);
  weight.set_data(weight.detach().to(torch::kFloat));
  EXPECT_GT(Value(model->Loss(batch, std::nullopt)), 1e5);
  // The trial call changed nothing.
  EXPECT_EQ(model->buffers()[1].first, "calls");
  EXPECT_EQ(Value(model->buffers()[1].second), 3);
  EXPECT_EQ(model->buffers()[1].second.scalar_type(), torch::kFloat);
}

TEST_F(ScriptedModelTest, EvaluatesWithoutDropoutAndLeavesNoTrace) {
  const auto model = Build(Job(Net(R"(
def forward(self, input):
  hidden = torch.dropout(torch.tanh(input @ self.w1), 0.5, self.training)
  return hidden @ self.w2 + torch.rand([1])
)"),
                               kMse),
                           Numbers());
  const Batch batch = Numbers().Rows(0, 8);
  torch::manual_seed(3);
  const double evaluation = Metric(model->Evaluate(batch), "loss");
  EXPECT_EQ(Metric(model->Evaluate(batch), "loss"), evaluation);
  const double first = Value(model->Loss(batch, std::nullopt));
  torch::manual_seed(3);
  EXPECT_EQ(Value(model->Loss(batch, std::nullopt)), first);
  EXPECT_NE(Value(model->Loss(batch, std::nullopt)), first);
}

// Returns a module that counts its calls in attributes of every kind.
torch::jit::Module Counting() {
  torch::jit::Module inner("Inner");
  inner.register_attribute("count", c10::IntType::get(), 0);
  inner.define("def forward(self):\n  self.count = self.count + 1\n  return self.count\n");
  torch::jit::Module module("Net");
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_attribute("sum", c10::TensorType::get(), torch::zeros({2}));
  module.register_attribute("share", c10::FloatType::get(), 1.0);
  module.register_attribute("odd", c10::BoolType::get(), false);
  module.register_attribute("list", c10::ListType::ofInts(), c10::List<int64_t>());
  module.register_attribute("limit", c10::IntType::get(), 7);
  module.register_parameter("w", Weight(4, 3).requires_grad_(), false);
  module.register_parameter("calls", torch::zeros({1}), /*is_buffer=*/true);
  module.register_module("inner", inner);
  module.define(R"(
def forward(self, input):
  self.sum += 1
  self.share = self.share * 0.5
  self.odd = not self.odd
  self.list.append(len(self.list))
  self.calls += 1
  return input @ self.w + self.inner.forward() + self.share + self.sum.sum() + len(self.list)
)");
  return module;
}

TEST_F(ScriptedModelTest, KeepsItsAttributesThroughTrialsEvaluationsAndCheckpoints) {
  const JobSpec spec = Job(Counting(), kMse);
  const auto model = Build(spec, Numbers());
  EXPECT_TRUE(model->attributes().empty());
  const Batch batch = Numbers().Rows(0, 8);
  const double first = Value(model->Loss(batch, std::nullopt));
  const NamedTensors after = model->attributes();
  EXPECT_THAT(Names(after), testing::UnorderedElementsAre("sum", "share", "odd", "inner.count"));
  const double evaluation = Metric(model->Evaluate(batch), "loss");
  EXPECT_EQ(Metric(model->Evaluate(batch), "loss"), evaluation);
  double second = 0;
  {
    const std::shared_ptr<const void> kept = model->KeepState();
    second = Value(model->Loss(batch, std::nullopt));
  }
  EXPECT_EQ(Value(model->buffers()[0].second), 1);
  EXPECT_EQ(Value(model->Loss(batch, std::nullopt)), second);
  EXPECT_NE(first, second);

  // Checkpoints have no lists, so the loss differs by their contribution.
  model->PutAttributes(after);
  EXPECT_EQ(Names(model->attributes()).size(), 4u);
  for (const auto& [name, tensor] : model->attributes()) {
    const auto same = std::find_if(after.begin(), after.end(), [&name = name](const auto& entry) {
      return entry.first == name;
    });
    EXPECT_TRUE(torch::equal(same->second, tensor)) << name;
  }
  model->PutAttributes({});
  EXPECT_TRUE(model->attributes().empty());
  // Attributes of another module, or of another type, are not applied.
  model->PutAttributes({{"limit", torch::tensor(2.5, torch::kDouble)}, {"other", torch::ones({})}});
  EXPECT_TRUE(model->attributes().empty());
}

TEST_F(ScriptedModelTest, PutsBackAllThatASkippedStepChanged) {
  const auto model = Build(Job(Counting(), kMse), Numbers());
  const Batch batch = Numbers().Rows(0, 8);
  std::unique_ptr<const ModelState> state = model->CopyState();
  const double loss = Value(model->Loss(batch, std::nullopt));
  EXPECT_EQ(model->attributes().size(), 4u);
  state->PutBackWhere(torch::ones({}));
  EXPECT_EQ(Value(model->buffers()[0].second), 0);
  EXPECT_TRUE(model->attributes().empty());

  state = model->CopyState();
  EXPECT_EQ(Value(model->Loss(batch, std::nullopt)), loss);
  state->PutBackWhere(torch::zeros({}));
  state = nullptr;
  EXPECT_EQ(Value(model->buffers()[0].second), 1);
  EXPECT_NE(Value(model->Loss(batch, std::nullopt)), loss);
}

TEST_F(ScriptedModelTest, SaysWhichExampleItCannotTake) {
  const auto model = Build(Job(Net(kNet), kCrossEntropy), Classes());
  Batch batch = Classes().Rows(0, 9);
  batch.fields["target"] = batch.at("target").clone();
  batch.fields["target"][6] = 3;
  try {
    model->Loss(batch, std::nullopt);
    FAIL() << "no fault";
  } catch (const DataFault& fault) {
    EXPECT_THAT(fault.what(), HasSubstr("rows.npz: the field target of example 6 (row 6 of its "
                                        "batch) is 3; accepted: a class number from 0 to 2, as the "
                                        "output has 3 classes, or -100"));
  }
}

TEST_F(ScriptedModelTest, TriesTheBatchOfTheJobWhereItTakesNoOther) {
  const std::string code =
      "def forward(self, input):\n"
      "  return (input.view(6, 4) @ self.w1)[:, :3]\n";
  JobSpec spec = Job(Net(code), kMse);
  spec.mutable_training()->set_batch_size(6);
  EXPECT_TRUE(BuildModel(spec, Numbers()).ok());
  spec.mutable_training()->set_batch_size(5);
  EXPECT_THAT(Refusal(spec, Numbers()), HasSubstr("fails on input [5, 4] Float: "));
}

TEST_F(ScriptedModelTest, StandsChangesOfPrecision) {
  const auto model = Build(Job(Net(kNet), kMse), Numbers());
  const Batch batch = Numbers().Rows(0, 8);
  const double loss = Value(model->Loss(batch, std::nullopt));
  using Format = std::optional<torch::ScalarType>;
  for (const Format format : {Format(torch::kBFloat16), Format(torch::kHalf), Format(),
                              Format(torch::kBFloat16), Format()}) {
    for (int i = 0; i < 4; ++i) {
      const torch::Tensor now = model->Loss(batch, format);
      EXPECT_NEAR(Value(now), loss, 0.02 * loss);
      now.backward();
    }
  }
}

TEST_F(ScriptedModelTest, TrainsInFloat32WhateverTheFileHolds) {
  torch::jit::Module module = Net(kNet);
  module.to(torch::kHalf);
  const auto model = Build(Job(module, kMse), Numbers());
  EXPECT_EQ(model->InputType(), torch::kFloat);
  EXPECT_TRUE(std::isfinite(Value(model->Loss(Numbers().Rows(0, 8), std::nullopt))));
}

// The optimizer traverses a parameter's memory linearly.
TEST_F(ScriptedModelTest, GivesAPartOfALargerTensorMemoryOfItsOwn) {
  torch::jit::Module module("Net");
  module.register_attribute("training", c10::BoolType::get(), true);
  const torch::Tensor wide = Weight(4, 16);
  module.register_parameter("w1", wide.narrow(1, 0, 8).detach().requires_grad_(), false);
  module.register_parameter("w2", Weight(3, 8).t().detach().requires_grad_(), false);
  module.define(kNet);
  const auto model = Build(Job(module, kMse), Numbers());
  for (const auto& [name, parameter] : model->parameters()) {
    EXPECT_TRUE(parameter.is_non_overlapping_and_dense()) << name;
  }
  EXPECT_TRUE(torch::equal(model->parameters()[0].second, wide.narrow(1, 0, 8)));
}

TEST_F(ScriptedModelTest, SaysWhatIsWrongWithTheFile) {
  const auto refusal = [this](const std::string& name) {
    return Refusal(JobFor(folder_.path() + "/" + name, kMse), Numbers());
  };
  EXPECT_THAT(refusal("none.pt"),
              AllOf(HasSubstr("model.torchscript.path: "), HasSubstr("none.pt does not exist")));
  folder_.Write("text.pt", "no module at all");
  EXPECT_THAT(refusal("text.pt"),
              AllOf(HasSubstr("text.pt is no TorchScript file: "), HasSubstr("torch.jit.script")));
  torch::save(Weight(2, 2), folder_.path() + "/tensor.pt");
  EXPECT_NE(refusal("tensor.pt"), "");

  torch::jit::Module frozen("Net");
  frozen.register_parameter("w", Weight(4, 3), false);
  frozen.define("def forward(self, input):\n  return input @ self.w\n");
  frozen.save(folder_.path() + "/frozen.pt");
  EXPECT_THAT(refusal("frozen.pt"), HasSubstr("frozen.pt has no parameters to train; "));

  torch::jit::Module mute("Net");
  mute.register_parameter("w", Weight(4, 3).requires_grad_(), false);
  mute.define("def predict(self, input):\n  return input @ self.w\n");
  mute.save(folder_.path() + "/mute.pt");
  EXPECT_THAT(refusal("mute.pt"), HasSubstr("mute.pt has no forward method; "));

  // A file truncated anywhere is refused without harm.
  Net(kNet).save(path());
  std::ifstream file(path(), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(file)), {});
  for (size_t at = 0; at < whole.size(); at += whole.size() / 23) {
    folder_.Write("cut.pt", whole.substr(0, at));
    EXPECT_THAT(refusal("cut.pt"), HasSubstr("cut.pt is no TorchScript file")) << at;
  }
}

TEST_F(ScriptedModelTest, SaysWhichInputsDoNotFit) {
  EXPECT_THAT(Refusal(Job(Net(kOwnLoss), kMse), Numbers()),
              HasSubstr("net.pt takes 2 inputs (input, target), the job gives 1 (input); name the "
                        "fields in model.torchscript.inputs"));
  JobSpec spec = Job(Net(kNet), kMse);
  spec.mutable_model()->mutable_torchscript()->add_inputs("image");
  EXPECT_EQ(Refusal(spec, Numbers()),
            "model.torchscript.inputs[0] is \"image\"; dataset.arrays has input [4] float32, "
            "target [3] float32");
  spec = Job(Net(kNet), kMse);
  spec.mutable_model()->mutable_torchscript()->set_target("label");
  spec.mutable_model()->mutable_torchscript()->add_inputs("input");
  EXPECT_EQ(Refusal(spec, Numbers()),
            "model.torchscript.target is \"label\"; dataset.arrays has input [4] float32, target "
            "[3] float32");
  EXPECT_THAT(Refusal(Job(Net("def forward(self, input: int):\n  return self.w1 * input\n"), kMse),
                      Numbers()),
              HasSubstr("net.pt takes input as int, the job gives the field input, a tensor"));
  const MemoryDataset wide({{"input", torch::zeros({4, 7})}, {"target", torch::zeros({4, 3})}});
  EXPECT_THAT(Refusal(Job(Net(kNet), kMse), wide),
              AllOf(HasSubstr("fails on input [2, 7] Float: "),
                    HasSubstr("mat1 and mat2 shapes cannot be multiplied (2x7 and 4x8)")));
}

TEST_F(ScriptedModelTest, SaysWhichOutputsDoNotFit) {
  const auto returns = [](const std::string& what) {
    return Net("def forward(self, input):\n  return " + what + "\n");
  };
  EXPECT_THAT(Refusal(Job(returns("(input, input)"), kMse), Numbers()),
              HasSubstr("net.pt returned (Tensor, Tensor); it has to return one Tensor"));
  EXPECT_THAT(Refusal(Job(returns("input @ self.w1"), kMse), Numbers()),
              HasSubstr("net.pt returned [2, 8] Float; the field target is [2, 3] Float; both need "
                        "the same shape"));
  EXPECT_THAT(Refusal(Job(returns("input.gt(0)"), kMse), Numbers()),
              HasSubstr("net.pt returned [2, 4] Bool; the loss needs floating-point numbers"));
  JobSpec own = Job(returns("input @ self.w1"), kModule);
  own.mutable_model()->mutable_torchscript()->add_inputs("input");
  EXPECT_THAT(Refusal(own, Numbers()),
              HasSubstr("net.pt returned [2, 8] Float; with model.torchscript.loss MODULE it "
                        "returns the mean loss of the batch, one number; or give MSE, "
                        "CROSS_ENTROPY or HUBER"));
  EXPECT_THAT(Refusal(Job(returns("input @ self.w1"), kCrossEntropy), Numbers()),
              HasSubstr("the field target is [2, 3] Float; CROSS_ENTROPY needs class numbers, e.g. "
                        "int64"));
  EXPECT_THAT(Refusal(Job(returns("input[:, 0]"), kCrossEntropy), Classes()),
              HasSubstr("net.pt returned [2] Float; CROSS_ENTROPY needs logits [B, C, ...]"));
  EXPECT_THAT(Refusal(Job(returns("(input @ self.w1).unsqueeze(2).expand(2, 8, 5)"), kCrossEntropy),
                      Classes()),
              HasSubstr("the field target is [2] Long; CROSS_ENTROPY needs it to be [2, 5] for "
                        "logits [B, C, ...]"));
  // A shape that is valid for the first examples may be invalid for later ones.
  const auto model = Build(Job(returns("(input @ self.w1)[:, :3] if bool(input.sum() < 1e6) else "
                                       "input"),
                               kMse),
                           Numbers());
  Batch large = Numbers().Rows(0, 2);
  large.fields["input"] = torch::full({2, 4}, 1e6f);
  EXPECT_THROW(model->Loss(large, std::nullopt), std::invalid_argument);
}

TEST_F(ScriptedModelTest, RefusesWeightsBesideALossOfTheModulesOwn) {
  const MemoryDataset weighted({{"input", torch::zeros({4, 4})},
                                {"target", torch::zeros({4, 3})},
                                {"weight", torch::ones({4, 1})}});
  EXPECT_EQ(Refusal(Job(Net(kOwnLoss), kModule), weighted),
            "model.torchscript.loss is MODULE, but the dataset weighs the loss of each example; "
            "give MSE, CROSS_ENTROPY or HUBER");
  EXPECT_TRUE(BuildModel(Job(Net(kNet), kMse), weighted).ok());
}

}  // namespace
}  // namespace genesis
