#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "config/settings/settings.h"
#include "server/launchers/command.h"
#include "server/launchers/launcher.h"
#include "server/launchers/worker_command.h"

namespace genesis {

// Slurm, by its client programs sbatch, squeue and scancel, as the user that the daemon is. A
// request is one job with a task for each worker, which one srun starts. Slurm never requeues it,
// for the daemon submits it again; and no two of one name run at a time (--dependency=singleton),
// should an answer of sbatch be lost.
class SlurmLauncher final : public Launcher {
 public:
  SlurmLauncher(SlurmSettings settings, WorkerCommand worker, const std::atomic<bool>* stopping)
      : settings_(std::move(settings)), worker_(std::move(worker)), stopping_(stopping) {}

  absl::StatusOr<std::string> Submit(const LaunchRequest& request) override;
  absl::StatusOr<std::vector<LaunchStatus>> Poll(const std::string& prefix) override;
  absl::Status Cancel(const std::string& name, const std::string& cluster_id) override;

 private:
  absl::StatusOr<CommandResult> Run(const std::string& program, std::vector<std::string> words,
                                    const std::string& input = "");

  const SlurmSettings settings_;
  const WorkerCommand worker_;
  const std::atomic<bool>* const stopping_;
};

// The script that Slurm runs: an srun of the worker. Its own text comes from settings and from the
// name alone, each word quoted.
std::string SlurmScript(const std::vector<std::string>& worker_words);

// Options of sbatch.
std::vector<std::string> SbatchWords(const SlurmSettings& settings, const LaunchRequest& request);

// The lines of `squeue --noheader --format=%i|%T|%r|%j` whose name begins with `prefix`; a line
// that cannot be read is passed over.
std::vector<LaunchStatus> ReadSqueue(const std::string& output, const std::string& prefix);

}  // namespace genesis
