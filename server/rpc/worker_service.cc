#include "server/rpc/worker_service.h"

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "base/files/memory_file.h"
#include "server/base/guard.h"
#include "server/rpc/grpc_credentials.h"
#include "server/rpc/status_mapping.h"
#include "server/workers/worker_link.h"

namespace genesis {
namespace {

using training::v1::AttachRequest;
using training::v1::AttachResponse;
using training::v1::SendWeightsRequest;

const MethodRow& AttachRow() {
  static const MethodRow row = {"Attach", Role::kWorker, true};
  return row;
}

// Returns "10.0.0.7" for "ipv4:10.0.0.7:41234", "fd00::7" for
// "ipv6:%5Bfd00::7%5D:41234", and otherwise "".
std::string PeerAddress(absl::string_view peer) {
  peer = peer.substr(0, peer.rfind(':'));
  if (absl::ConsumePrefix(&peer, "ipv4:")) return std::string(peer);
  if (!absl::ConsumePrefix(&peer, "ipv6:")) return "";
  for (const char* bracket : {"[", "%5B"}) absl::ConsumePrefix(&peer, bracket);
  for (const char* bracket : {"]", "%5D"}) absl::ConsumeSuffix(&peer, bracket);
  return std::string(peer);
}

// The daemon's end of one Attach stream. It writes commands one at a time, and reads until the
// worker closes its side or the pool closes the link, then finishes. Deletes itself in OnDone.
class AttachReactor final : public grpc::ServerBidiReactor<AttachRequest, AttachResponse> {
 public:
  // `call` and `peer`, the address, are set for a worker of another host.
  AttachReactor(WorkerPool* pool, std::optional<ApiCall> call, std::string peer)
      : pool_(pool),
        call_(std::move(call)),
        peer_(std::move(peer)),
        link_(std::make_shared<Link>(this)) {
    if (call_.has_value() && !call_->admission().ok()) {
      Refuse(call_->admission());
    } else {
      StartRead(&request_);
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      // A worker reports the end of its job before it closes. If it still holds its job, it has
      // sent an unreadable message and must not send it again.
      const bool cut_short = !worker_id_.empty() && pool_->HoldsJob(worker_id_);
      link_->Finish(cut_short ? grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                             "the newest message could not be read")
                              : grpc::Status::OK);
      return;
    }
    if (worker_id_.empty()) {
      const absl::Status attached = GuardedStatus(
          "Attach", [this] { return pool_->Attach(request_, call_.has_value(), link_, peer_); });
      if (!attached.ok()) return Refuse(attached);
      worker_id_ = request_.hello().worker_id();
      if (call_.has_value()) call_->Done(worker_id_, attached);
    } else {
      Guarded("Attach", [this] { pool_->OnMessage(worker_id_, request_); }).IgnoreError();
    }
    request_.Clear();
    StartRead(&request_);
  }

  void OnWriteDone(bool ok) override { link_->OnWriteDone(ok); }

  void OnCancel() override { link_->Finish(grpc::Status::CANCELLED); }

  void OnDone() override {
    link_->Detach();
    if (!worker_id_.empty()) pool_->OnDetached(worker_id_, link_.get());
    delete this;
  }

 private:
  // Counts, audits and ends the call of a worker that is refused.
  void Refuse(const absl::Status& status) {
    if (call_.has_value()) call_->Done(request_.hello().worker_id(), status);
    link_->Finish(ToGrpcStatus(status));
  }

  // The pool's end of the stream. Outlives the reactor, so that a late Send finds a closed link.
  class Link final : public WorkerLink {
   public:
    explicit Link(AttachReactor* reactor) : reactor_(reactor) {}

    void Send(const AttachResponse& command) override {
      absl::MutexLock lock(&mutex_);
      if (reactor_ == nullptr || finished_) return;
      waiting_.push_back(command);
      if (waiting_.size() == 1) reactor_->StartWrite(&waiting_.front());
    }

    void Close() override { Finish(grpc::Status::OK); }

    void OnWriteDone(bool ok) {
      absl::MutexLock lock(&mutex_);
      waiting_.pop_front();
      if (ok && !finished_ && !waiting_.empty()) reactor_->StartWrite(&waiting_.front());
    }

    void Finish(const grpc::Status& status) {
      absl::MutexLock lock(&mutex_);
      if (reactor_ == nullptr || finished_) return;
      finished_ = true;
      reactor_->grpc::ServerBidiReactor<AttachRequest, AttachResponse>::Finish(status);
    }

    void Detach() {
      absl::MutexLock lock(&mutex_);
      reactor_ = nullptr;
    }

   private:
    absl::Mutex mutex_;
    AttachReactor* reactor_ ABSL_GUARDED_BY(mutex_);
    bool finished_ ABSL_GUARDED_BY(mutex_) = false;
    // The front element is being written. Bounded by the number of requests for one job.
    std::deque<AttachResponse> waiting_ ABSL_GUARDED_BY(mutex_);
  };

  WorkerPool* const pool_;
  const std::optional<ApiCall> call_;
  const std::string peer_;
  const std::shared_ptr<Link> link_;
  std::string worker_id_;
  AttachRequest request_;
};

// The receiver of one version of a job's weights from a worker of another host.
class SendWeightsReactor final : public grpc::ServerReadReactor<SendWeightsRequest> {
 public:
  SendWeightsReactor(WeightsHub* weights, ApiCall call)
      : weights_(weights), call_(std::move(call)) {
    if (call_.admission().ok()) {
      StartRead(&request_);
    } else {
      End(call_.admission());
    }
  }

  void OnReadDone(bool ok) override {
    const absl::Status status =
        GuardedStatus("SendWeights", [&] { return ok ? TakePiece() : TakeEnd(); });
    if (!ok || !status.ok()) return End(status);
    request_.Clear();
    StartRead(&request_);
  }

  void OnDone() override { delete this; }

 private:
  absl::Status TakePiece() {
    if (file_ == nullptr) {
      description_.Swap(request_.mutable_weights());
      if (absl::Status wanted = weights_->CheckWanted(description_); !wanted.ok()) return wanted;
      absl::StatusOr<std::unique_ptr<MemoryFile>> file = MemoryFile::Create();
      if (!file.ok()) return file.status();
      file_ = *std::move(file);
    }
    return file_->Write(request_.content().data(), request_.content().size());
  }

  absl::Status TakeEnd() {
    if (file_ == nullptr) {
      return absl::InvalidArgumentError(
          "the stream ended without weights; accepted: weights, and their file in pieces");
    }
    if (absl::Status sealed = file_->Seal(); !sealed.ok()) return sealed;
    return weights_->Put(description_, std::move(file_));
  }

  void End(const absl::Status& status) {
    call_.Done(description_.job_id(), status);
    Finish(ToGrpcStatus(status));
  }

  WeightsHub* const weights_;
  const ApiCall call_;
  SendWeightsRequest request_;
  training::v1::PublishedWeights description_;
  std::unique_ptr<MemoryFile> file_;  // Null before the first message.
};

}  // namespace

grpc::ServerBidiReactor<AttachRequest, AttachResponse>* WorkerServiceImpl::Attach(
    grpc::CallbackServerContext* context) {
  if (gate_ == nullptr) return new AttachReactor(pool_, std::nullopt, "");
  return new AttachReactor(pool_, ApiCall(gate_, AttachRow(), "grpc", CredentialsOf(*context)),
                           PeerAddress(context->peer()));
}

grpc::ServerReadReactor<SendWeightsRequest>* WorkerServiceImpl::SendWeights(
    grpc::CallbackServerContext* context, training::v1::SendWeightsResponse* /*response*/) {
  static const MethodRow row = {"SendWeights", Role::kWorker, false};
  if (gate_ == nullptr) return nullptr;  // UNIMPLEMENTED.
  return new SendWeightsReactor(weights_, ApiCall(gate_, row, "grpc", CredentialsOf(*context)));
}

}  // namespace genesis
