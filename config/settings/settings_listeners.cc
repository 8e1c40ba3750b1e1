// Settings of the listeners: addresses, limits, TLS, tokens, the audit log.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "config/settings/setting_values.h"
#include "config/settings/settings_rows.h"

namespace genesis {
namespace {

using Text = const std::string&;

std::string OrNone(const std::string& path) { return path.empty() ? "(none)" : path; }

std::vector<SettingRow> AddressRows() {
  return {
      {"grpc.listen", "GENESIS_GRPC_LISTEN", "127.0.0.1:50051", false, "host:port",
       "a host and a port; port 0 picks a free one",
       "Address of the gRPC API. Beyond loopback only with TLS and with tokens or client "
       "certificates.",
       [](Text t, Settings& s) { return SetAddress(t, s.grpc_listen); },
       [](const Settings& s) { return s.grpc_listen; }},
      {"http.listen", "GENESIS_HTTP_LISTEN", "127.0.0.1:8080", false, "host:port",
       "a host and a port; port 0 picks a free one",
       "Address of metrics, health, status pages as JSON and the API as JSON. Beyond loopback as "
       "grpc.listen.",
       [](Text t, Settings& s) { return SetAddress(t, s.http_listen); },
       [](const Settings& s) { return s.http_listen; }},
      {"grpc.unix_socket", "GENESIS_GRPC_UNIX_SOCKET", "(none)", true, "path", "a path",
       "Unix socket on which the gRPC API is served besides, without TLS.",
       [](Text t, Settings& s) { return SetPath(t, true, s.grpc_unix_socket); },
       [](const Settings& s) { return OrNone(s.grpc_unix_socket); }},
      {"grpc.unix_socket_mode", "GENESIS_GRPC_UNIX_SOCKET_MODE", "0600", false, "octal",
       "0600 to 0666 in octal, such as 0660",
       "Who may use that socket, as permission bits of its file.",
       [](Text t, Settings& s) { return SetMode(t, s.grpc_unix_socket_mode); },
       [](const Settings& s) { return absl::StrFormat("0%o", s.grpc_unix_socket_mode); }},
      {"grpc.max_connections", "GENESIS_GRPC_MAX_CONNECTIONS", "4096", false, "connections",
       "1 to 1000000",
       "Connections to the gRPC API at once; a further one is closed. So is one that comes while "
       "more than three quarters of the file handles of the process are in use.",
       [](Text t, Settings& s) { return SetInt(t, 1, 1000000, s.grpc_max_connections); },
       [](const Settings& s) { return absl::StrCat(s.grpc_max_connections); }},
      {"grpc.max_message_bytes", "GENESIS_GRPC_MAX_MESSAGE_BYTES", "4194304", false, "bytes",
       "65536 to 67108864", "A larger request is refused with RESOURCE_EXHAUSTED, unread.",
       [](Text t, Settings& s) { return SetInt(t, 65536, 67108864, s.grpc_max_message_bytes); },
       [](const Settings& s) { return absl::StrCat(s.grpc_max_message_bytes); }},
      {"grpc.keepalive_seconds", "GENESIS_GRPC_KEEPALIVE_SECONDS", "60", false, "seconds",
       "10 to 7200",
       "A connection on which nothing came for so long is asked whether it still is one, and "
       "closed "
       "without an answer within 20 s. Clients may ask every 10 s.",
       [](Text t, Settings& s) { return SetInt(t, 10, 7200, s.grpc_keepalive_s); },
       [](const Settings& s) { return absl::StrCat(s.grpc_keepalive_s); }},
  };
}

std::vector<SettingRow> SecurityRows() {
  return {
      {"tls.certificate_file", "GENESIS_TLS_CERTIFICATE_FILE", "(none)", true, "path", "a path",
       "Certificate of this daemon in PEM, with those that lead to its authority; gRPC and HTTP "
       "then speak TLS. Read again when it has changed.",
       [](Text t, Settings& s) { return SetPath(t, true, s.tls_certificate_file); },
       [](const Settings& s) { return OrNone(s.tls_certificate_file); }, true},
      {"tls.key_file", "GENESIS_TLS_KEY_FILE", "(none)", true, "path",
       "a path; the file's mode is 0640 or narrower", "Its private key in PEM, without a password.",
       [](Text t, Settings& s) { return SetPath(t, true, s.tls_key_file); },
       [](const Settings& s) { return OrNone(s.tls_key_file); }, true},
      {"tls.client_ca_file", "GENESIS_TLS_CLIENT_CA_FILE", "(none)", true, "path", "a path",
       "Authorities in PEM that sign the certificates of clients. The common name of a verified "
       "certificate is the caller's name.",
       [](Text t, Settings& s) { return SetPath(t, true, s.tls_client_ca_file); },
       [](const Settings& s) { return OrNone(s.tls_client_ca_file); }, true},
      {"tls.client_role", "GENESIS_TLS_CLIENT_ROLE", "submitter", false, "",
       "viewer, submitter or admin",
       "Role of a client with a certificate whose name has no line cn:NAME in the tokens file.",
       [](Text t, Settings& s) {
         return SetWord(t, {"viewer", "submitter", "admin"}, s.tls_client_role);
       },
       [](const Settings& s) { return s.tls_client_role; }, true},
      {"auth.tokens_file", "GENESIS_AUTH_TOKENS_FILE", "(none)", true, "path",
       "a path; the file's mode is 0640 or narrower",
       "Who may call, a line each, as genesisctl token prints it. Every call then needs a token or "
       "a client certificate. Read again when it has changed.",
       [](Text t, Settings& s) { return SetPath(t, true, s.auth_tokens_file); },
       [](const Settings& s) { return OrNone(s.auth_tokens_file); }, true},
      {"audit.file", "GENESIS_AUDIT_FILE", "<data_dir>/log/audit.log", true, "path", "a path",
       "File to which a line of JSON is appended for every change and every refused call.",
       [](Text t, Settings& s) { return SetPath(t, true, s.audit_file); },
       [](const Settings& s) { return s.audit_file; }},
  };
}

}  // namespace

std::vector<SettingRow> ListenerRows() {
  std::vector<SettingRow> rows = AddressRows();
  const std::vector<SettingRow> security = SecurityRows();
  rows.insert(rows.end(), security.begin(), security.end());
  return rows;
}

}  // namespace genesis
