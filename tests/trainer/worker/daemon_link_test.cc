#include "trainer/worker/daemon_link.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <vector>

#include "genesis/training/v1/worker_service.grpc.pb.h"
#include "tests/trainer/job_for_test.h"
#include "trainer/worker/termination.h"

namespace genesis {
namespace {

using training::v1::AttachRequest;
using training::v1::AttachResponse;
using training::v1::Finished;
using Stream = grpc::ServerReaderWriter<AttachResponse, AttachRequest>;

// A daemon that follows a script on its side of the stream.
class ScriptedDaemon : public training::v1::WorkerService::Service {
 public:
  using Script = std::function<grpc::Status(Stream&)>;

  ScriptedDaemon(const std::string& socket, Script script) : script_(std::move(script)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }

  grpc::Status Attach(grpc::ServerContext*, Stream* stream) override { return script_(*stream); }

 private:
  const Script script_;
  std::unique_ptr<grpc::Server> server_;
};

class DaemonLinkTest : public testing::Test {
 protected:
  DaemonLinkTest() { BlockTerminationSignals(); }

  // Runs a worker against `script` and returns its exit code.
  int Serve(ScriptedDaemon::Script script) {
    const ScriptedDaemon daemon(socket_, [&](Stream& stream) {
      stream.Read(&hello_);
      ++attachments_;
      return script(stream);
    });
    training::v1::DeviceInfo device;
    device.set_name("cpu");
    return RunAttached(Daemon(), device);
  }
  DaemonToServe Daemon() const {
    DaemonToServe daemon;
    daemon.address.server = "unix:" + socket_;
    daemon.worker_id = "worker-1";
    return daemon;
  }
  void Give(Stream& stream) {
    AttachResponse command;
    *command.mutable_start_job() = job_;
    stream.Write(command);
  }
  // Reads events until one fits or the stream ends.
  template <typename Fits>
  bool ReadUntil(Stream& stream, Fits fits) {
    for (AttachRequest event; stream.Read(&event);) {
      events_.push_back(event);
      if (event.sequence() > 0 && acknowledging_) Acknowledge(stream, event.sequence());
      if (fits(event)) return true;
    }
    return false;
  }
  static void Acknowledge(Stream& stream, int64_t sequence) {
    AttachResponse command;
    command.mutable_acknowledged()->set_sequence(sequence);
    stream.Write(command);
  }
  static bool IsFinished(const AttachRequest& event) { return event.has_finished(); }
  static bool IsSteps(const AttachRequest& event) { return event.has_steps(); }
  bool HasCheckpoint() const {
    for (const AttachRequest& event : events_) {
      if (event.has_checkpoint_written()) return true;
    }
    return false;
  }
  static bool IsStoreRequest(const AttachRequest& event) { return event.has_store_request(); }
  void MakeRank(int rank) {
    job_.mutable_rank()->set_rank(rank);
    job_.mutable_rank()->set_size(2);
    job_.mutable_rank()->set_address("127.0.0.1");
    job_.mutable_rank()->set_secret("secret");
  }
  void MakeJobLong() { job_.mutable_spec()->mutable_training()->set_max_steps(1'000'000); }

  TempDir folder_;
  const std::string socket_ = folder_.path() + "/worker.sock";
  training::v1::StartJob job_ = TinyJob(folder_);
  AttachRequest hello_;
  int attachments_ = 0;
  bool acknowledging_ = true;
  std::vector<AttachRequest> events_;
};

TEST_F(DaemonLinkTest, SaysHelloRunsItsJobAndEndsWithItsEnd) {
  const int code = Serve([&](Stream& stream) {
    Give(stream);
    ReadUntil(stream, [](const AttachRequest&) { return false; });
    return grpc::Status::OK;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(hello_.hello().worker_id(), "worker-1");
  EXPECT_EQ(hello_.hello().pid(), getpid());
  EXPECT_EQ(hello_.hello().device().name(), "cpu");
  ASSERT_FALSE(events_.empty());
  EXPECT_EQ(events_.back().finished().outcome(), Finished::OUTCOME_COMPLETED);
  int64_t steps = 0;
  for (const AttachRequest& event : events_) {
    EXPECT_EQ(event.job_id(), "tiny");
    EXPECT_EQ(event.claim(), 7);
    steps += event.steps().new_steps();
  }
  EXPECT_EQ(steps, 40);
  EXPECT_TRUE(HasCheckpoint());
}

TEST_F(DaemonLinkTest, StopsOnCommandWithACheckpoint) {
  MakeJobLong();
  const int code = Serve([&](Stream& stream) {
    Give(stream);
    ReadUntil(stream, IsSteps);
    AttachResponse command;
    command.mutable_stop_job()->set_checkpoint(true);
    stream.Write(command);
    ReadUntil(stream, IsFinished);
    return grpc::Status::OK;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(events_.back().finished().outcome(), Finished::OUTCOME_STOPPED);
  EXPECT_TRUE(HasCheckpoint());
}

TEST_F(DaemonLinkTest, TakesACheckpointOnCommandAndGoesOn) {
  MakeJobLong();
  Serve([&](Stream& stream) {
    if (attachments_ > 1) return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "enough");
    Give(stream);
    ReadUntil(stream, IsSteps);
    AttachResponse command;
    command.mutable_take_checkpoint();
    stream.Write(command);
    EXPECT_TRUE(ReadUntil(
        stream, [](const AttachRequest& event) { return event.has_checkpoint_written(); }));
    EXPECT_TRUE(ReadUntil(stream, IsSteps));
    return grpc::Status::OK;
  });
}

TEST_F(DaemonLinkTest, GoesOnWhenTheDaemonIsLostAndTellsAgainWhatWasNotAcknowledged) {
  MakeJobLong();
  int64_t step_when_lost = 0;
  std::vector<int64_t> sequences;
  const int code = Serve([&](Stream& stream) {
    if (attachments_ == 1) {
      Give(stream);
      acknowledging_ = false;
      ReadUntil(stream, IsSteps);
      AttachResponse command;
      command.mutable_take_checkpoint();
      stream.Write(command);
      ReadUntil(stream, [](const AttachRequest& event) { return event.has_checkpoint_written(); });
      step_when_lost = events_.back().checkpoint_written().checkpoint().step();
      events_.clear();
      return grpc::Status(grpc::StatusCode::ABORTED, "gone");
    }
    EXPECT_EQ(hello_.job_id(), "tiny");
    EXPECT_EQ(hello_.claim(), 7);
    acknowledging_ = true;
    Acknowledge(stream, 0);
    ReadUntil(stream, IsSteps);
    AttachResponse command;
    command.mutable_stop_job()->set_checkpoint(true);
    stream.Write(command);
    ReadUntil(stream, IsFinished);
    return grpc::Status::OK;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(attachments_, 2);
  for (const AttachRequest& event : events_) {
    if (event.sequence() > 0) sequences.push_back(event.sequence());
  }
  // Started, the unacknowledged checkpoint, the last one, and the end, each only once.
  EXPECT_THAT(sequences, testing::ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(events_.front().has_started());
  EXPECT_GT(events_.back().finished().progress().step(), step_when_lost);
}

TEST_F(DaemonLinkTest, DoesNotTellAgainWhatTheDaemonHadMadeDurable) {
  MakeJobLong();
  Serve([&](Stream& stream) {
    if (attachments_ == 1) {
      Give(stream);
      acknowledging_ = false;
      ReadUntil(stream, IsSteps);
      events_.clear();
      return grpc::Status(grpc::StatusCode::ABORTED, "gone");
    }
    acknowledging_ = true;
    Acknowledge(stream, 1);  // Acknowledges Started.
    AttachResponse command;
    command.mutable_stop_job()->set_checkpoint(false);
    stream.Write(command);
    ReadUntil(stream, IsFinished);
    return grpc::Status::OK;
  });
  for (const AttachRequest& event : events_) EXPECT_FALSE(event.has_started());
  EXPECT_EQ(events_.back().sequence(), 2);
}

TEST_F(DaemonLinkTest, StopsWithoutACheckpointWhenItsClaimIsRefused) {
  MakeJobLong();
  const int code = Serve([&](Stream& stream) {
    if (attachments_ > 1) return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "another's");
    Give(stream);
    ReadUntil(stream, IsSteps);
    return grpc::Status(grpc::StatusCode::ABORTED, "gone");
  });
  EXPECT_EQ(code, 1);
  for (const auto& file : std::filesystem::directory_iterator(folder_.path() + "/checkpoints")) {
    EXPECT_TRUE(file.is_directory()) << file.path() << ": only the curves";
  }
}

TEST_F(DaemonLinkTest, LeavesReducedPrecisionForGoodOnCommand) {
  MakeJobLong();
  job_.mutable_precision()->set_mode(training::v1::PRECISION_MODE_MIXED_BF16);
  job_.mutable_spec()->mutable_precision()->set_promote_after_steps(1);
  job_.mutable_spec()->mutable_precision()->set_max_promotions(3);
  job_.add_allowed_modes(training::v1::PRECISION_MODE_MIXED_BF16);
  job_.add_allowed_modes(training::v1::PRECISION_MODE_FP32);
  Serve([&](Stream& stream) {
    Give(stream);
    ReadUntil(stream, IsSteps);
    AttachResponse command;
    command.mutable_leave_reduced_precision()->set_reason("an operator said no");
    stream.Write(command);
    EXPECT_TRUE(ReadUntil(
        stream, [](const AttachRequest& event) { return event.has_precision_changed(); }));
    const training::v1::PrecisionChange& change = events_.back().precision_changed();
    EXPECT_EQ(change.to(), training::v1::PRECISION_MODE_FP32);
    EXPECT_EQ(change.trigger(), "policy");
    EXPECT_EQ(change.reason(), "an operator said no");
    EXPECT_EQ(change.resumed_step(), change.step());
    const int64_t step = change.step();
    ReadUntil(stream, [&](const AttachRequest& event) {
      EXPECT_FALSE(event.has_precision_changed()) << "promoted against the policy";
      return event.steps().progress().step() > step + 20;
    });
    command.mutable_stop_job()->set_checkpoint(false);
    stream.Write(command);
    ReadUntil(stream, IsFinished);
    return grpc::Status::OK;
  });
}

TEST_F(DaemonLinkTest, StopsWithACheckpointOnSigterm) {
  MakeJobLong();
  const int code = Serve([&](Stream& stream) {
    Give(stream);
    ReadUntil(stream, IsSteps);
    kill(getpid(), SIGTERM);
    ReadUntil(stream, IsFinished);
    return grpc::Status::OK;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(events_.back().finished().outcome(), Finished::OUTCOME_STOPPED);
  EXPECT_TRUE(HasCheckpoint());
}

TEST_F(DaemonLinkTest, EndsWellWhenThereIsNoJob) {
  EXPECT_EQ(Serve([](Stream&) { return grpc::Status::OK; }), 0);
}

TEST_F(DaemonLinkTest, EndsOnSigtermWhileItWaits) {
  EXPECT_EQ(Serve([&](Stream& stream) {
              kill(getpid(), SIGTERM);
              ReadUntil(stream, IsFinished);
              return grpc::Status::OK;
            }),
            0);
}

TEST_F(DaemonLinkTest, FailsWhenNoDaemonIsThere) { EXPECT_EQ(RunAttached(Daemon(), {}), 1); }

TEST_F(DaemonLinkTest, ARankThatWaitsForAnotherEndsWhenItsAttemptIsOver) {
  MakeRank(1);
  const int code = Serve([&](Stream& stream) {
    Give(stream);
    EXPECT_TRUE(ReadUntil(stream, IsStoreRequest));
    AttachResponse command;
    command.mutable_stop_job()->set_abandon(true);
    stream.Write(command);
    EXPECT_TRUE(ReadUntil(stream, IsFinished));
    return grpc::Status::OK;
  });
  EXPECT_EQ(code, 0) << "its end was told";
  const training::v1::Failure& failure = events_.back().finished().failure();
  EXPECT_EQ(failure.cause(), training::v1::FAILURE_CAUSE_WORKER_EXIT);
  EXPECT_THAT(failure.message(), testing::HasSubstr("this attempt is over"));
}

TEST_F(DaemonLinkTest, ARankTellsADaemonThatWasRestartedWhatItHadStored) {
  MakeRank(0);
  std::vector<std::string> keys;  // Keys written, by attachment.
  // Responds to writes until the worker waits for the other rank.
  const auto read_until_it_waits = [&](Stream& stream) {
    return ReadUntil(stream, [&](const AttachRequest& event) {
      const training::v1::StoreRequest& request = event.store_request();
      if (request.has_set() || request.has_add()) {
        keys.push_back(request.has_set() ? request.set().key() : request.add().key());
        AttachResponse answer;
        answer.mutable_store_response()->set_id(request.id());
        answer.mutable_store_response()->set_sum(request.add().total());
        stream.Write(answer);
      }
      return request.has_get();
    });
  };
  std::vector<std::string> stored;
  Serve([&](Stream& stream) {
    if (attachments_ == 1) {
      Give(stream);
      EXPECT_TRUE(read_until_it_waits(stream));
      stored = std::exchange(keys, {});
      return grpc::Status(grpc::StatusCode::ABORTED, "gone");
    }
    Acknowledge(stream, 0);
    EXPECT_TRUE(read_until_it_waits(stream));
    EXPECT_FALSE(stored.empty());
    EXPECT_EQ(keys, stored);
    AttachResponse command;
    command.mutable_stop_job()->set_abandon(true);
    stream.Write(command);
    EXPECT_TRUE(ReadUntil(stream, IsFinished));
    return grpc::Status::OK;
  });
  EXPECT_EQ(attachments_, 2);
}

}  // namespace
}  // namespace genesis
