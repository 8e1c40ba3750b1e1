#include <gtest/gtest.h>

#include "trainer/kernels/math_functions.h"

namespace genesis {
namespace {

// Prepares each test program of the trainer as WarmUp prepares the worker.
class MathFunctions : public testing::Environment {
  void SetUp() override { ChooseMathFunctions(); }
};

[[maybe_unused]] const testing::Environment* const added =
    testing::AddGlobalTestEnvironment(new MathFunctions);

}  // namespace
}  // namespace genesis
