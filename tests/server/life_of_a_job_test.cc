#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "server/ledger/job_state.h"

namespace genesis {
namespace {

TEST(LifeOfAJobPage, HoldsTheTableOfMovesAsTheProgramPrintsIt) {
  const std::string path = std::string(GENESIS_SOURCE_DIR) + "/docs/life_of_a_job.md";
  std::stringstream page;
  page << std::ifstream(path).rdbuf();
  EXPECT_NE(page.str().find(JobMovesMarkdown()), std::string::npos)
      << "replace the table in docs/life_of_a_job.md by:\n"
      << JobMovesMarkdown();
}

}  // namespace
}  // namespace genesis
