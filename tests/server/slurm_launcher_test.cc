// Tests of Slurm's launcher with programs that respond like Slurm's, and of RunCommand.
#include "server/launchers/slurm_launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/steady_time.h"
#include "base/text/utf8.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

const std::atomic<bool> kGoesOn{false};

absl::StatusOr<CommandResult> Shell(const std::string& script, const std::string& input = "",
                                    const CommandLimits& limits = {},
                                    const std::atomic<bool>* stopping = &kGoesOn) {
  return RunCommand({"sh", "-c", script}, input, limits, stopping);
}

class RunCommandTest : public testing::Test {
 protected:
  RunCommandTest() { signal(SIGPIPE, SIG_IGN); }  // As in the daemon.
};

TEST_F(RunCommandTest, InputOutputErrorsAndExitCodeArriveWhole) {
  const std::string input(300000, 'x');  // More than a pipe can hold.
  const auto done = Shell("cat; echo bad >&2; exit 3", input);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->output, input);
  EXPECT_EQ(done->errors, "bad\n");
  EXPECT_EQ(done->exit_code, 3);
  const auto deaf = Shell("exec <&-; echo out", input);
  ASSERT_TRUE(deaf.ok()) << deaf.status();
  EXPECT_EQ(deaf->output, "out\n");
  EXPECT_EQ(Shell("kill -9 $$")->exit_code, -1);
}

TEST_F(RunCommandTest, OneThatHangsIsKilledWithItsChildren) {
  const absl::Time begin = SteadyNow();
  CommandLimits limits;
  limits.timeout = absl::Milliseconds(300);
  for (const char* script : {"sleep 600 & sleep 600", "exec >&- 2>&-; sleep 600"}) {
    const auto hung = Shell(script, "", limits);
    if (hung.ok()) {
      EXPECT_EQ(hung->exit_code, -1);
    } else {
      EXPECT_EQ(hung.status().code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_THAT(hung.status().message(), HasSubstr("sh: it gave no answer within 300ms"));
    }
  }
  EXPECT_LT(SteadyNow() - begin, absl::Seconds(60));
}

TEST_F(RunCommandTest, ItEndsWhenTheDaemonStops) {
  std::atomic<bool> stopping{false};
  std::thread later([&] {
    absl::SleepFor(absl::Milliseconds(100));
    stopping = true;
  });
  EXPECT_EQ(Shell("sleep 600", "", {}, &stopping).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  later.join();
}

TEST_F(RunCommandTest, TooMuchOutputIsAnErrorAndTooManyErrorsAreCut) {
  CommandLimits limits;
  limits.max_output = 1000;
  limits.max_errors = 10;
  EXPECT_THAT(Shell("yes", "", limits).status().message(),
              HasSubstr("sh: it wrote more than 1000 bytes"));
  EXPECT_EQ(Shell("yes abcdefghijkl | head -c 100000 >&2", "", limits)->errors, "abcdefghij");
}

TEST_F(RunCommandTest, AProgramThatIsNotThereIsNamed) {
  const auto missing = RunCommand({"/nowhere/sbatch"}, "", {}, &kGoesOn);
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_EQ(missing.status().message(), "cannot run /nowhere/sbatch: No such file or directory");
  const auto folder = RunCommand({"/tmp"}, "", {}, &kGoesOn);
  EXPECT_THAT(folder.status().message(), HasSubstr("cannot run /tmp: Permission denied"));
}

class SlurmLauncherTest : public RunCommandTest {
 protected:
  SlurmLauncherTest() {
    settings_.bin_dir = temp_.path();
    settings_.log_dir = "/shared/logs";
    worker_.settings.daemon_address = "trainer:50051";
    worker_.settings.worker_program = "/opt/it's/genesis-worker";
    worker_.settings.token_file = "/etc/genesis/worker.token";
    worker_.checkpoints_dir = "/shared/check points";
    Program("squeue", "");
  }

  // Creates a program that records its arguments and its input.
  void Program(const std::string& name, const std::string& script) {
    const std::string path = absl::StrCat(temp_.path(), "/", name);
    std::ofstream(path) << "#!/bin/sh\nfor word in \"$@\"; do echo \"$word\" >> " << path
                        << ".told; done\n"
                        << script << "\n";
    chmod(path.c_str(), 0755);
  }
  std::vector<std::string> Told(const std::string& name) {
    std::ifstream file(absl::StrCat(temp_.path(), "/", name, ".told"));
    std::vector<std::string> words;
    for (std::string line; std::getline(file, line);) words.push_back(line);
    return words;
  }
  std::string Read(const std::string& name) {
    std::ifstream file(absl::StrCat(temp_.path(), "/", name));
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  SlurmLauncher Launcher() { return {settings_, worker_, &kGoesOn}; }

  TempDir temp_;
  SlurmSettings settings_;
  WorkerCommand worker_;
  const LaunchRequest request_ = {.name = "genesis-0a1b2c3d-1-job", .job_id = "job", .workers = 16};
};

TEST_F(SlurmLauncherTest, TheFolderOfTheLogsIsNotAPattern) {
  settings_.log_dir = "/shared/50%j of %";
  Program("sbatch", "echo 17");
  EXPECT_EQ(*Launcher().Submit(request_), "17");
  EXPECT_THAT(Told("sbatch"), Contains("--output=/shared/50%%j of %%/%x.log"));
}

TEST_F(SlurmLauncherTest, SbatchIsGivenTheJobAndItsScript) {
  settings_.partition = "gpu";
  settings_.account = "team";
  settings_.time_limit = "04:00:00";
  settings_.options = "qos=high  ntasks=1";
  settings_.gpus_per_task = 1;
  settings_.cpus_per_task = 8;
  Program("sbatch", absl::StrCat("cat > ", temp_.path(), "/script; echo '17;cluster'"));
  EXPECT_EQ(*Launcher().Submit(request_), "17");
  EXPECT_THAT(
      Told("sbatch"),
      ElementsAre("--parsable", "--qos=high", "--ntasks=1", "--partition=gpu", "--account=team",
                  "--time=04:00:00", "--gpus-per-task=1", "--job-name=genesis-0a1b2c3d-1-job",
                  "--comment=genesis job job", "--ntasks=16", "--cpus-per-task=8",
                  "--signal=TERM@90", "--no-requeue", "--dependency=singleton", "--export=NIL",
                  "--chdir=/", "--open-mode=append", "--output=/shared/logs/%x.log"));
  EXPECT_THAT(Read("script"),
              HasSubstr("exec srun --kill-on-bad-exit=1 --export=ALL --input=none "
                        "'/opt/it'\\''s/genesis-worker' '--daemon' 'trainer:50051' "
                        "'--checkpoint-dir' '/shared/check points' '--reservation' "
                        "'genesis-0a1b2c3d-1-job' '--token-file' '/etc/genesis/worker.token' "
                        "'--threads' '8'\n"));
}

TEST_F(SlurmLauncherTest, NothingIsSaidOfWhatIsNotSet) {
  Program("sbatch", "echo 3");
  EXPECT_EQ(*Launcher().Submit(request_), "3");
  for (const char* option : {"--partition", "--account", "--time=", "--gpus"}) {
    EXPECT_THAT(Told("sbatch"), Not(Contains(HasSubstr(option))));
  }
}

TEST_F(SlurmLauncherTest, AJobThatSlurmHasAlreadyIsNotSubmittedAgain) {
  Program("squeue", "echo '17|PENDING|Priority|genesis-0a1b2c3d-1-job'");
  Program("sbatch", "echo 18");
  EXPECT_EQ(*Launcher().Submit(request_), "17");
  EXPECT_THAT(Told("sbatch"), IsEmpty());
  // The launcher does not submit either if squeue fails.
  Program("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1");
  EXPECT_EQ(Launcher().Submit(request_).status().message(),
            "Slurm cannot be asked: squeue exited with 1: slurm_load_jobs error: Unable to contact "
            "slurm controller");
  EXPECT_THAT(Told("sbatch"), IsEmpty());
}

TEST_F(SlurmLauncherTest, ARefusalIsQuotedValidAndShort) {
  Program("sbatch", "echo 'sbatch: error: invalid partition specified: gpu' >&2; exit 1");
  EXPECT_EQ(Launcher().Submit(request_).status().message(),
            "Slurm refuses the job: sbatch exited with 1: sbatch: error: invalid partition "
            "specified: gpu");
  Program("sbatch", "kill -9 $$");
  EXPECT_EQ(Launcher().Submit(request_).status().message(),
            "Slurm was not asked: sbatch was ended by signal 9");
  Program("sbatch", "head -c 1000000 /dev/urandom >&2; exit 1");
  const auto noise = Launcher().Submit(request_);
  EXPECT_LT(noise.status().message().size(), 2000U);
  EXPECT_TRUE(IsUtf8(noise.status().message()));
  Program("sbatch", "echo 'Submitted batch job 17'");
  EXPECT_THAT(Launcher().Submit(request_).status().message(),
              HasSubstr("sbatch printed \"Submitted batch job 17\\n\"; expected the number"));
}

TEST_F(SlurmLauncherTest, AMissingProgramIsNamedWithTheCure) {
  settings_.bin_dir = "/nowhere";
  EXPECT_EQ(Launcher().Poll("genesis-").status().message(),
            "cannot run /nowhere/squeue: No such file or directory; install Slurm's client "
            "programs on the daemon's host, or correct slurm.bin_dir");
}

TEST_F(SlurmLauncherTest, StatesAreReadWithSlurmsOwnWords) {
  const std::vector<LaunchStatus> all = ReadSqueue(
      "1|PENDING|Resources|genesis-a-1-x\n2|RUNNING|None|genesis-a-1-y\n"
      "3|CANCELLED|None|genesis-a-1-z\n4|OUT_OF_MEMORY|OutOfMemory|genesis-a-1-v\n"
      "5|COMPLETED|None|genesis-a-1-w\n6|TIMEOUT|TimeLimit|genesis-a-1-u\n"
      "7|PREEMPTED|None|genesis-a-1-t\n8|A_NEW_STATE|What|genesis-a-1-s\n"
      "9|RUNNING|None|somebody else's|job\n10|RUNNING\nrubbish\n|||genesis-a-1-\xff\n",
      "genesis-a-");
  ASSERT_THAT(all, SizeIs(9));
  EXPECT_EQ(all[0].reason, "PENDING: Resources");
  EXPECT_FALSE(all[0].running);
  EXPECT_EQ(all[0].end, LaunchEnd::kNone);
  EXPECT_TRUE(all[1].running);
  EXPECT_EQ(all[1].reason, "RUNNING");
  const std::vector<std::pair<LaunchEnd, std::string>> ends = {
      {LaunchEnd::kCancelled, "CANCELLED"}, {LaunchEnd::kFailed, "OUT_OF_MEMORY: OutOfMemory"},
      {LaunchEnd::kDone, "COMPLETED"},      {LaunchEnd::kDone, "TIMEOUT: TimeLimit"},
      {LaunchEnd::kPreempted, "PREEMPTED"}, {LaunchEnd::kNone, "A_NEW_STATE: What"}};
  for (size_t i = 0; i < ends.size(); ++i) {
    EXPECT_EQ(all[i + 2].end, ends[i].first) << all[i + 2].reason;
    EXPECT_EQ(all[i + 2].reason, ends[i].second);
  }
  EXPECT_EQ(all[8].name, "genesis-a-1-\\xff");
}

TEST_F(SlurmLauncherTest, ScancelIsByNumberOrByNameAndAJobThatIsGoneIsNoError) {
  Program("scancel", "");
  EXPECT_TRUE(Launcher().Cancel("genesis-a-1-x", "17").ok());
  EXPECT_TRUE(Launcher().Cancel("genesis-a-1-x", "").ok());
  EXPECT_THAT(Told("scancel"),
              ElementsAre("--quiet", "17", "--quiet", "--me", "--name=genesis-a-1-x"));
  Program(
      "scancel",
      "echo 'scancel: error: Kill job error on job id 17: Invalid job id specified' >&2; exit 1");
  EXPECT_TRUE(Launcher().Cancel("genesis-a-1-x", "17").ok());
  Program("scancel", "echo 'scancel: error: Access/permission denied' >&2; exit 1");
  EXPECT_EQ(Launcher().Cancel("genesis-a-1-x", "17").message(),
            "Slurm does not end job 17: scancel exited with 1: scancel: error: Access/permission "
            "denied");
}

TEST(WorkerCommandTest, WorkersDialWhereTheDaemonIs) {
  EXPECT_EQ(DaemonAddressFor("trainer:50051", "0.0.0.0:1"), "trainer:50051");
  EXPECT_EQ(DaemonAddressFor("", "127.0.0.1:50051"), "127.0.0.1:50051");
  EXPECT_EQ(DaemonAddressFor("", "10.0.0.7:50051"), "10.0.0.7:50051");
  EXPECT_THAT(DaemonAddressFor("", "0.0.0.0:50051"),
              AllOf(Not(HasSubstr("0.0.0.0")), HasSubstr(":50051")));
}

}  // namespace
}  // namespace genesis
