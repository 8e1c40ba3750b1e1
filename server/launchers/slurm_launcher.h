#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "config/settings/settings.h"
#include "server/launchers/command.h"
#include "server/launchers/launcher.h"
#include "server/launchers/worker_command.h"

namespace genesis {

// Slurm, through its client programs sbatch, squeue and scancel, run as the daemon's user. A
// request is one job with one task per worker, started by one srun. Slurm never requeues it,
// because the daemon submits a new job. --dependency=singleton prevents two jobs of the same name
// from running concurrently if a reply of sbatch was lost.
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

// Returns the script that Slurm runs: an srun of the worker. It contains only settings and the
// request's name, each word quoted.
std::string SlurmScript(const std::vector<std::string>& worker_words);

// Returns the command-line options of sbatch.
std::vector<std::string> SbatchWords(const SlurmSettings& settings, const LaunchRequest& request);

// Parses the lines of `squeue --noheader --format=%i|%T|%r|%j` with names that begin with `prefix`.
// Malformed lines are skipped.
std::vector<LaunchStatus> ReadSqueue(const std::string& output, const std::string& prefix);

}  // namespace genesis
