// Tests of what genesisctl does without a daemon: contexts, completion, quickstart.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/text/yaml_document.h"
#include "cli/commands/arguments.h"
#include "cli/commands/command_table.h"
#include "cli/commands/complete.h"
#include "cli/commands/example_files.h"
#include "client/contexts.h"
#include "config/job/job_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/temp_dir.h"

namespace genesis::cli {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ContextsTest : public testing::Test {
 protected:
  Arguments Parse(const std::vector<std::string>& args,
                  std::map<std::string, std::string> variables = {}) {
    variables["XDG_CONFIG_HOME"] = dir_.path();
    return ParseArguments(args, [&variables](const std::string& name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
    });
  }
  void Write(const std::string& text) {
    std::filesystem::create_directories(dir_.path() + "/genesis");
    std::ofstream(File()) << text;
  }
  std::string File() const { return dir_.path() + "/genesis/contexts.yaml"; }

  TempDir dir_;
};

constexpr char kTwo[] =
    "current: lab\n"
    "contexts:\n"
    "  lab: {server: \"gpu-1:50051\", token_file: /lab.token, tls_ca: /lab.crt}\n"
    "  test: {server: \"127.0.0.1:1\"}\n";

TEST_F(ContextsTest, TheCurrentOneIsUsedUnlessAServerIsNamed) {
  EXPECT_EQ(Parse({"jobs"}).daemon.server, "127.0.0.1:50051");
  Write(kTwo);
  EXPECT_EQ(Parse({"jobs"}).daemon.server, "gpu-1:50051");
  EXPECT_EQ(Parse({"jobs"}).daemon.tls_ca, "/lab.crt");
  EXPECT_EQ(Parse({"jobs", "--context", "test"}).daemon.server, "127.0.0.1:1");
  EXPECT_EQ(Parse({"jobs", "--token-file", "/other"}).daemon.token_file, "/other");
  const Arguments other = Parse({"jobs", "--server", "h:2"});
  EXPECT_EQ(other.daemon.server, "h:2");
  EXPECT_EQ(other.daemon.token_file, "");
}

TEST_F(ContextsTest, VariablesOfAnotherDaemonDoNotReachIt) {
  Write(kTwo);
  const std::map<std::string, std::string> secrets = {{"GENESIS_TOKEN", "secret"},
                                                      {"GENESIS_TOKEN_FILE", "/secret"}};
  EXPECT_EQ(Parse({"jobs", "--context", "test"}, secrets).daemon.token, "");
  EXPECT_EQ(Parse({"jobs", "--context", "test"}, secrets).daemon.token_file, "");
  EXPECT_EQ(Parse({"jobs"}, {{"GENESIS_SERVER", "h:2"}, {"GENESIS_TOKEN", "t"}}).daemon.token, "t");
  EXPECT_EQ(Parse({"jobs", "--context=test"}, {{"GENESIS_SERVER", "h:2"}}).daemon.server,
            "127.0.0.1:1");
}

TEST_F(ContextsTest, ErrorsNameWhatIsAccepted) {
  Write(kTwo);
  EXPECT_THAT(Parse({"jobs", "--context", "lob"}).errors,
              ElementsAre("\"lob\": unknown context; did you mean lab?"));
  Write("current: gone\n");
  EXPECT_THAT(Parse({"jobs"}).errors,
              ElementsAre("\"gone\": unknown context; accepted: none, because none is stored"));
  EXPECT_THAT(Parse({"context"}).errors, IsEmpty());
  Write("contexts: {lab: {servr: x}}\n");
  EXPECT_THAT(Parse({"jobs"}).errors,
              ElementsAre(HasSubstr("contexts.yaml:1:18: contexts.lab: accepted: server, ")));
  EXPECT_THAT(Parse({"jobs", "--server", "h:2"}).errors, IsEmpty());
}

TEST_F(ContextsTest, WhatIsWrittenIsRead) {
  Contexts contexts{.current = "a: b", .daemons = {}};
  contexts.daemons["a: b"].server = "unix:/run/x";
  contexts.daemons["a: b"].tls_key = "/k";
  ASSERT_TRUE(WriteContexts(contexts, File()).ok());
  const absl::StatusOr<Contexts> read = ReadContexts(File());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->current, "a: b");
  EXPECT_EQ(read->daemons.at("a: b").server, "unix:/run/x");
  EXPECT_EQ(read->daemons.at("a: b").tls_key, "/k");
}

TEST(CompletionTest, FollowsTheCommandTable) {
  EXPECT_THAT(Complete({""}).candidates, Contains("drain-worker"));
  EXPECT_THAT(Complete({"train", "--"}).candidates, Contains("--watch"));
  EXPECT_THAT(Complete({"--server", "here:1", "precision", ""}).candidates,
              ElementsAre("show", "disable", "allow"));
  EXPECT_THAT(Complete({"jobs", "--output", ""}).candidates, ElementsAre("table", "json", "yaml"));
  EXPECT_THAT(Complete({"jobs", "--state", ""}).candidates, Contains("RUNNING"));
  EXPECT_THAT(Complete({"events", "--kind", ""}).candidates, Contains("checkpoint_written"));
  EXPECT_EQ(Complete({"job", ""}).identifiers, "JOB");
  EXPECT_EQ(Complete({"compare", "a", "b", ""}).identifiers, "JOB");
  EXPECT_EQ(Complete({"checkpoints", ""}).identifiers, "JOB");
  EXPECT_EQ(Complete({"checkpoint-delete", ""}).identifiers, "CHECKPOINT");
  EXPECT_EQ(Complete({"drain-worker", ""}).identifiers, "WORKER");
  EXPECT_TRUE(Complete({"train", "-f", ""}).files);
  EXPECT_THAT(Complete({"token", "ann", ""}).candidates,
              ElementsAre("viewer", "submitter", "admin", "worker"));
  const Completion none = Complete({"job", "a", ""});
  EXPECT_THAT(none.candidates, IsEmpty());
  EXPECT_FALSE(none.files);
}

TEST(QuickstartTest, EachJobFileIsValidAndEveryWorkloadHasOne) {
  for (const EmbeddedFile& file : ExampleFiles()) {
    const auto spec = ParseJobFile(std::string(file.content), std::string(file.name));
    EXPECT_TRUE(spec.ok()) << spec.status();
  }
  const size_t workloads = Complete({"quickstart", ""}).candidates.size();
  EXPECT_EQ(workloads, ExampleFiles().size());
}

}  // namespace
}  // namespace genesis::cli
