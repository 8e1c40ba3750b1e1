// Tests of config and token, and of the connection that options select.
#include <grpcpp/grpcpp.h>

#include <sstream>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "cli/commands/command_table.h"
#include "cli/session.h"
#include "config/settings/token.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/temp_dir.h"

namespace genesis::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace training::v1;  // NOLINT: the fake uses many names of the API.

// Records requests and their callers.
class FakeConfigService : public TrainingService::Service {
 public:
  grpc::Status GetConfig(grpc::ServerContext* context, const GetConfigRequest*,
                         GetConfigResponse* response) override {
    const auto header = context->client_metadata().find("authorization");
    if (header != context->client_metadata().end()) {
      authorization.assign(header->second.data(), header->second.size());
    }
    SettingValue* value = response->add_settings();
    value->set_key("log.level");
    value->set_value("debug");
    value->set_source("flag --log-level");
    value->set_reloadable(true);
    response->add_warnings("something is odd");
    return grpc::Status::OK;
  }
  grpc::Status ReloadConfig(grpc::ServerContext*, const ReloadConfigRequest* request,
                            ReloadConfigResponse* response) override {
    validate_only = request->validate_only();
    if (!status.ok()) return status;
    if (!changed) return grpc::Status::OK;
    response->add_changed()->set_key("queue.max_jobs");
    response->mutable_changed(0)->set_value("7");
    return grpc::Status::OK;
  }

  std::string authorization;
  bool validate_only = false;
  bool changed = true;
  grpc::Status status;
};

class ConfigCommandTest : public testing::Test {
 protected:
  ConfigCommandTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }

  ExitCode Run(std::vector<std::string> words, std::map<std::string, std::string> variables = {}) {
    words.push_back("--server=127.0.0.1:" + std::to_string(port_));
    const Arguments arguments =
        ParseArguments(words, [&](const std::string& name) -> std::optional<std::string> {
          const auto found = variables.find(name);
          if (found == variables.end()) return std::nullopt;
          return found->second;
        });
    EXPECT_THAT(arguments.errors, ElementsAre());
    const auto channel = OpenChannel(arguments.daemon);
    if (!channel.ok()) {
      err_.str(std::string(channel.status().message()));
      return ExitCode::kUsage;
    }
    const auto stub = TrainingService::NewStub(*channel);
    out_.str("");
    err_.str("");
    Session session{.service = *stub,
                    .server = arguments.daemon.server,
                    .output = arguments.output,
                    .in = in_,
                    .out = out_,
                    .err = err_,
                    .now = &absl::Now,
                    .interrupt = interrupt_};
    return FindCommand(arguments.command)->run(arguments, session);
  }

  const TempDir dir_;
  FakeConfigService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::istringstream in_;
  std::ostringstream out_;
  std::ostringstream err_;
  Interrupt interrupt_;
};

TEST_F(ConfigCommandTest, ShowsSettingsAndWarnings) {
  EXPECT_EQ(Run({"config", "show"}), ExitCode::kOk);
  EXPECT_EQ(out_.str(),
            "SETTING    VALUE  SOURCE            RELOAD\n"
            "log.level  debug  flag --log-level  yes\n"
            "warning: something is odd\n");
}

TEST_F(ConfigCommandTest, ReloadsAndValidates) {
  EXPECT_EQ(Run({"config", "reload"}), ExitCode::kOk);
  EXPECT_FALSE(service_.validate_only);
  EXPECT_THAT(out_.str(), HasSubstr("reloaded; changed:\n"));
  EXPECT_THAT(out_.str(), HasSubstr("queue.max_jobs  7"));
  EXPECT_EQ(Run({"config", "validate"}), ExitCode::kOk);
  EXPECT_TRUE(service_.validate_only);
  EXPECT_THAT(out_.str(), HasSubstr("valid; a reload would change:\n"));
  service_.changed = false;
  EXPECT_EQ(Run({"config", "validate"}), ExitCode::kOk);
  EXPECT_EQ(out_.str(), "valid; no setting would change\n");
  EXPECT_EQ(Run({"config", "reload"}), ExitCode::kOk);
  EXPECT_EQ(out_.str(), "reloaded; no setting changed\n");
  service_.status = grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "needs a restart");
  EXPECT_EQ(Run({"config", "reload"}), ExitCode::kFailure);
  EXPECT_EQ(err_.str(), "genesisctl: FAILED_PRECONDITION: needs a restart\n");
  EXPECT_EQ(Run({"config", "forget"}), ExitCode::kUsage);
  EXPECT_EQ(err_.str(), "genesisctl: config: \"forget\"; accepted: show, reload or validate\n");
}

TEST_F(ConfigCommandTest, TheTokenComesFromFileOrEnvironment) {
  dir_.Write("token", "  from-file\n");
  EXPECT_EQ(Run({"config", "show"}, {{"GENESIS_TOKEN", "from-variable"}}), ExitCode::kOk);
  EXPECT_EQ(service_.authorization, "Bearer from-variable");
  EXPECT_EQ(Run({"config", "show", "--token-file", dir_.path() + "/token"},
                {{"GENESIS_TOKEN", "from-variable"}}),
            ExitCode::kOk);
  EXPECT_EQ(service_.authorization, "Bearer from-file");
  EXPECT_EQ(Run({"config", "show"}, {{"GENESIS_TOKEN_FILE", dir_.path() + "/token"}}),
            ExitCode::kOk);
  EXPECT_EQ(service_.authorization, "Bearer from-file");
  service_.authorization = "";
  EXPECT_EQ(Run({"config", "show"}), ExitCode::kOk);
  EXPECT_EQ(service_.authorization, "");
}

TEST_F(ConfigCommandTest, WhatIsNoTokenIsNotSent) {
  dir_.Write("empty", "\n");
  dir_.Write("two", "one\ntwo\n");
  for (const char* name : {"/empty", "/two"}) {
    EXPECT_EQ(Run({"config", "show", "--token-file", dir_.path() + name}), ExitCode::kUsage);
    EXPECT_EQ(err_.str(),
              "--token-file holds no token; accepted: one line, as genesisctl token prints it");
  }
  EXPECT_EQ(Run({"config", "show", "--token-file=/nowhere"}), ExitCode::kUsage);
  EXPECT_EQ(err_.str(), "--token-file: /nowhere: no such file; check the path");
}

TEST_F(ConfigCommandTest, TokenMakesALineThatFitsIt) {
  EXPECT_EQ(Run({"token", "ann", "viewer"}), ExitCode::kOk);
  const std::vector<std::string> words =
      absl::StrSplit(out_.str(), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  std::string token;
  std::string hash;
  for (const std::string& word : words) {
    if (word.starts_with("genesis_")) token = word;
    if (word.starts_with("sha256:")) hash = word;
  }
  const std::optional<TokenHash> parsed = ParseTokenHash(hash);
  ASSERT_TRUE(parsed.has_value()) << out_.str();
  EXPECT_TRUE(Matches(*parsed, token));
  EXPECT_THAT(out_.str(), HasSubstr("\n  ann viewer sha256:"));
}

TEST_F(ConfigCommandTest, TokenRefusesOtherNamesAndRoles) {
  EXPECT_EQ(Run({"token", "a b", "viewer"}), ExitCode::kUsage);
  EXPECT_THAT(err_.str(), HasSubstr("token: NAME is \"a b\"; accepted: 1 to 63 letters"));
  EXPECT_EQ(Run({"token", "ann", "root"}), ExitCode::kUsage);
  EXPECT_EQ(err_.str(),
            "genesisctl: token: ROLE is \"root\"; accepted: viewer, submitter, admin or worker\n");
}

}  // namespace
}  // namespace genesis::cli
