#include "config/settings/settings_table.h"

#include "gtest/gtest.h"

namespace genesis {
namespace {

// The names that users already use. Changing one breaks their scripts.
struct FrozenRow {
  const char* key;
  const char* environment;
  const char* flag;
  const char* fallback;
};
constexpr FrozenRow kFrozen[] = {
    {"data_dir", "GENESIS_DATA_DIR", "--data-dir", "genesis-data"},
    {"grpc.listen", "GENESIS_GRPC_LISTEN", "--grpc-listen", "127.0.0.1:50051"},
    {"http.listen", "GENESIS_HTTP_LISTEN", "--http-listen", "127.0.0.1:8080"},
    {"grpc.unix_socket", "GENESIS_GRPC_UNIX_SOCKET", "--grpc-unix-socket", "(none)"},
    {"grpc.unix_socket_mode", "GENESIS_GRPC_UNIX_SOCKET_MODE", "--grpc-unix-socket-mode", "0600"},
    {"grpc.max_connections", "GENESIS_GRPC_MAX_CONNECTIONS", "--grpc-max-connections", "4096"},
    {"grpc.max_message_bytes", "GENESIS_GRPC_MAX_MESSAGE_BYTES", "--grpc-max-message-bytes",
     "4194304"},
    {"grpc.keepalive_seconds", "GENESIS_GRPC_KEEPALIVE_SECONDS", "--grpc-keepalive-seconds", "60"},
    {"tls.certificate_file", "GENESIS_TLS_CERTIFICATE_FILE", "--tls-certificate-file", "(none)"},
    {"tls.key_file", "GENESIS_TLS_KEY_FILE", "--tls-key-file", "(none)"},
    {"tls.client_ca_file", "GENESIS_TLS_CLIENT_CA_FILE", "--tls-client-ca-file", "(none)"},
    {"tls.client_role", "GENESIS_TLS_CLIENT_ROLE", "--tls-client-role", "submitter"},
    {"auth.tokens_file", "GENESIS_AUTH_TOKENS_FILE", "--auth-tokens-file", "(none)"},
    {"auth.jwks_file", "GENESIS_AUTH_JWKS_FILE", "--auth-jwks-file", "(none)"},
    {"auth.jwt_issuer", "GENESIS_AUTH_JWT_ISSUER", "--auth-jwt-issuer", "(none)"},
    {"auth.jwt_audience", "GENESIS_AUTH_JWT_AUDIENCE", "--auth-jwt-audience", "(none)"},
    {"auth.jwt_owner_claim", "GENESIS_AUTH_JWT_OWNER_CLAIM", "--auth-jwt-owner-claim", "sub"},
    {"auth.jwt_role_claim", "GENESIS_AUTH_JWT_ROLE_CLAIM", "--auth-jwt-role-claim", "genesis_role"},
    {"auth.own_jobs_only", "GENESIS_AUTH_OWN_JOBS_ONLY", "--auth-own-jobs-only", "false"},
    {"audit.file", "GENESIS_AUDIT_FILE", "--audit-file", "<data_dir>/log/audit.log"},
    {"webhooks.file", "GENESIS_WEBHOOKS_FILE", "--webhooks-file", "(none)"},
    {"datasets.root", "GENESIS_DATASETS_ROOT", "--datasets-root", "<data_dir>/datasets"},
    {"datasets.max_uploads_bytes", "GENESIS_DATASETS_MAX_UPLOADS_BYTES",
     "--datasets-max-uploads-bytes", "274877906944"},
    {"checkpoints.dir", "GENESIS_CHECKPOINTS_DIR", "--checkpoints-dir", "<data_dir>/checkpoints"},
    {"checkpoints.max_import_bytes", "GENESIS_CHECKPOINTS_MAX_IMPORT_BYTES",
     "--checkpoints-max-import-bytes", "68719476736"},
    {"log.file", "GENESIS_LOG_FILE", "--log-file", "<data_dir>/log/orchestrator.log"},
    {"log.level", "GENESIS_LOG_LEVEL", "--log-level", "info"},
    {"log.format", "GENESIS_LOG_FORMAT", "--log-format", "text"},
    {"deployment", "GENESIS_DEPLOYMENT", "--deployment", "stable"},
    {"workers.program", "GENESIS_WORKERS_PROGRAM", "--workers-program",
     "<folder of genesisd>/genesis-worker"},
    {"workers.slots", "GENESIS_WORKERS_SLOTS", "--workers-slots", "1"},
    {"workers.spares", "GENESIS_WORKERS_SPARES", "--workers-spares", "1"},
    {"workers.predictors", "GENESIS_WORKERS_PREDICTORS", "--workers-predictors", "2"},
    {"workers.start_timeout_seconds", "GENESIS_WORKERS_START_TIMEOUT_SECONDS",
     "--workers-start-timeout-seconds", "120"},
    {"workers.devices", "GENESIS_WORKERS_DEVICES", "--workers-devices", "auto"},
    {"workers.remote", "GENESIS_WORKERS_REMOTE", "--workers-remote", "false"},
    {"workers.cuda_graphs", "GENESIS_WORKERS_CUDA_GRAPHS", "--workers-cuda-graphs", "false"},
    {"workers.reattach_timeout_seconds", "GENESIS_WORKERS_REATTACH_TIMEOUT_SECONDS",
     "--workers-reattach-timeout-seconds", "30"},
    {"workers.quarantine_failures", "GENESIS_WORKERS_QUARANTINE_FAILURES",
     "--workers-quarantine-failures", "3"},
    {"workers.quarantine_seconds", "GENESIS_WORKERS_QUARANTINE_SECONDS",
     "--workers-quarantine-seconds", "600"},
    {"launchers.daemon_address", "GENESIS_LAUNCHERS_DAEMON_ADDRESS", "--launchers-daemon-address",
     "<grpc.listen>"},
    {"launchers.worker_program", "GENESIS_LAUNCHERS_WORKER_PROGRAM", "--launchers-worker-program",
     "<workers.program>"},
    {"launchers.token_file", "GENESIS_LAUNCHERS_TOKEN_FILE", "--launchers-token-file", "(none)"},
    {"launchers.tls_ca", "GENESIS_LAUNCHERS_TLS_CA", "--launchers-tls-ca", "(none)"},
    {"launchers.tls_cert", "GENESIS_LAUNCHERS_TLS_CERT", "--launchers-tls-cert", "(none)"},
    {"launchers.tls_key", "GENESIS_LAUNCHERS_TLS_KEY", "--launchers-tls-key", "(none)"},
    {"launchers.poll_seconds", "GENESIS_LAUNCHERS_POLL_SECONDS", "--launchers-poll-seconds", "5"},
    {"slurm.enabled", "GENESIS_SLURM_ENABLED", "--slurm-enabled", "false"},
    {"slurm.bin_dir", "GENESIS_SLURM_BIN_DIR", "--slurm-bin-dir", "(PATH)"},
    {"slurm.partition", "GENESIS_SLURM_PARTITION", "--slurm-partition", "(none)"},
    {"slurm.account", "GENESIS_SLURM_ACCOUNT", "--slurm-account", "(none)"},
    {"slurm.time_limit", "GENESIS_SLURM_TIME_LIMIT", "--slurm-time-limit", "(none)"},
    {"slurm.options", "GENESIS_SLURM_OPTIONS", "--slurm-options", "(none)"},
    {"slurm.gpus_per_task", "GENESIS_SLURM_GPUS_PER_TASK", "--slurm-gpus-per-task", "0"},
    {"slurm.cpus_per_task", "GENESIS_SLURM_CPUS_PER_TASK", "--slurm-cpus-per-task", "1"},
    {"slurm.warn_seconds", "GENESIS_SLURM_WARN_SECONDS", "--slurm-warn-seconds", "90"},
    {"slurm.log_dir", "GENESIS_SLURM_LOG_DIR", "--slurm-log-dir", "<checkpoints.dir>/slurm"},
    {"kubernetes.pod_template", "GENESIS_KUBERNETES_POD_TEMPLATE", "--kubernetes-pod-template",
     "(none)"},
    {"kubernetes.api_server", "GENESIS_KUBERNETES_API_SERVER", "--kubernetes-api-server",
     "(the pod's own)"},
    {"kubernetes.namespace", "GENESIS_KUBERNETES_NAMESPACE", "--kubernetes-namespace",
     "(the pod's own)"},
    {"kubernetes.token_file", "GENESIS_KUBERNETES_TOKEN_FILE", "--kubernetes-token-file",
     "/var/run/secrets/kubernetes.io/serviceaccount/token"},
    {"kubernetes.ca_file", "GENESIS_KUBERNETES_CA_FILE", "--kubernetes-ca-file",
     "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"},
    {"kubernetes.priority_class", "GENESIS_KUBERNETES_PRIORITY_CLASS",
     "--kubernetes-priority-class", "(none)"},
    {"kubernetes.gpus_per_pod", "GENESIS_KUBERNETES_GPUS_PER_POD", "--kubernetes-gpus-per-pod",
     "0"},
    {"hang.setup_seconds", "GENESIS_HANG_SETUP_SECONDS", "--hang-setup-seconds", "1800"},
    {"hang.step_seconds", "GENESIS_HANG_STEP_SECONDS", "--hang-step-seconds", "600"},
    {"hang.evaluation_seconds", "GENESIS_HANG_EVALUATION_SECONDS", "--hang-evaluation-seconds",
     "1800"},
    {"hang.checkpoint_seconds", "GENESIS_HANG_CHECKPOINT_SECONDS", "--hang-checkpoint-seconds",
     "1800"},
    {"scheduler.preemption", "GENESIS_SCHEDULER_PREEMPTION", "--scheduler-preemption", "true"},
    {"retention.jobs", "GENESIS_RETENTION_JOBS", "--retention-jobs", "10000"},
    {"retention.days", "GENESIS_RETENTION_DAYS", "--retention-days", "0"},
    {"history.interval_seconds", "GENESIS_HISTORY_INTERVAL_SECONDS", "--history-interval-seconds",
     "30"},
    {"history.retention_days", "GENESIS_HISTORY_RETENTION_DAYS", "--history-retention-days", "30"},
    {"history.max_curves_bytes", "GENESIS_HISTORY_MAX_CURVES_BYTES", "--history-max-curves-bytes",
     "17179869184"},
    {"otlp.endpoint", "GENESIS_OTLP_ENDPOINT", "--otlp-endpoint", "(none)"},
    {"store.check", "GENESIS_STORE_CHECK", "--store-check", "quick"},
    {"queue.max_jobs", "GENESIS_QUEUE_MAX_JOBS", "--queue-max-jobs", "1000"},
    {"quotas.queued_jobs", "GENESIS_QUOTAS_QUEUED_JOBS", "--quotas-queued-jobs", "0"},
    {"quotas.slots", "GENESIS_QUOTAS_SLOTS", "--quotas-slots", "0"},
    {"quotas.requests_per_second", "GENESIS_QUOTAS_REQUESTS_PER_SECOND",
     "--quotas-requests-per-second", "0"},
    {"quotas.stored_bytes", "GENESIS_QUOTAS_STORED_BYTES", "--quotas-stored-bytes", "0"},
    {"drain.timeout_seconds", "GENESIS_DRAIN_TIMEOUT_SECONDS", "--drain-timeout-seconds", "20"},
    {"precision.reduced_precision", "GENESIS_PRECISION_REDUCED_PRECISION",
     "--precision-reduced-precision", "true"},
    {"precision.cpu_fallback", "GENESIS_PRECISION_CPU_FALLBACK", "--precision-cpu-fallback",
     "bf16"},
    {"precision.failure_watch", "GENESIS_PRECISION_FAILURE_WATCH", "--precision-failure-watch",
     "enforce"},
    {"rehearsals.allowed", "GENESIS_REHEARSALS_ALLOWED", "--rehearsals-allowed", "false"},
    {"precision.loss_scale", "FP16_LOSS_SCALE", "--precision-loss-scale", "65536.0"},
    {"precision.growth_factor", "FP16_GROWTH_FACTOR", "--precision-growth-factor", "2.0"},
    {"precision.backoff_factor", "FP16_BACKOFF_FACTOR", "--precision-backoff-factor", "0.5"},
    {"precision.growth_interval", "FP16_GROWTH_INTERVAL", "--precision-growth-interval", "2000"},
};

TEST(SettingsTableTest, KeepsEveryNameAndDefault) {
  EXPECT_EQ(SettingsTable().size(), std::size(kFrozen));
  for (const FrozenRow& frozen : kFrozen) {
    const SettingRow* row = FindByKey(frozen.key);
    ASSERT_NE(row, nullptr) << frozen.key;
    EXPECT_EQ(row->environment, frozen.environment) << row->key;
    EXPECT_EQ(FlagOf(*row), frozen.flag);
    EXPECT_EQ(row->fallback, frozen.fallback) << row->key;
  }
  ASSERT_EQ(GateVariables().size(), 2u);
  EXPECT_STREQ(GateVariables()[0].name, "ENABLE_FP16_TRAINING");
  EXPECT_STREQ(GateVariables()[0].fallback, "false");
  EXPECT_STREQ(GateVariables()[1].name, "FEATURE_FLAGS");
}

TEST(SettingsTableTest, AcceptsItsOwnDefaults) {
  for (const SettingRow& row : SettingsTable()) {
    Settings settings;
    if (!row.derived) {
      EXPECT_EQ(row.set(row.fallback, settings), "") << row.key;
    }
  }
}

}  // namespace
}  // namespace genesis
