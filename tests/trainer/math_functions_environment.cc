#include <gtest/gtest.h>

#include "trainer/kernels/math_functions.h"

namespace genesis {
namespace {

// What the worker does when it starts, for each test program of the trainer.
class MathFunctions : public testing::Environment {
  void SetUp() override { ChooseMathFunctions(); }
};

[[maybe_unused]] const testing::Environment* const added =
    testing::AddGlobalTestEnvironment(new MathFunctions);

}  // namespace
}  // namespace genesis
