// Settings for the listeners: addresses, limits, TLS, tokens, the audit log, webhooks.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "config/settings/setting_group.h"
#include "config/settings/settings_rows.h"

namespace genesis {
namespace {

ValueKind<std::string> JwtText() {
  return OptionalText("printable characters without spaces", [](absl::string_view text) {
    return std::all_of(text.begin(), text.end(),
                       [](unsigned char c) { return absl::ascii_isgraph(c); });
  });
}

}  // namespace

std::vector<SettingRow> ListenerRows() {
  SettingGroup grpc(
      "grpc", [](auto& s) -> auto& { return s.grpc; });
  grpc.Add("listen", &GrpcSettings::listen, Address(), "host:port",
           "Address of the gRPC API. Beyond loopback only with TLS and with tokens or client "
           "certificates.")
      .Path("unix_socket", &GrpcSettings::unix_socket, "(none)",
            "Unix socket on which the gRPC API is served besides, without TLS.")
      .Add("unix_socket_mode", &GrpcSettings::unix_socket_mode, SocketMode(), "octal",
           "Who may use that socket, as permission bits of its file.")
      .Number("max_connections", &GrpcSettings::max_connections, {1, 1000000}, "connections",
              "Connections to the gRPC API at once; a further one is closed. So is one that comes "
              "while more than three quarters of the file handles of the process are in use.")
      .Number("max_message_bytes", &GrpcSettings::max_message_bytes, {65536, 67108864}, "bytes",
              "A larger request is refused with RESOURCE_EXHAUSTED, unread.")
      .Number("keepalive_seconds", &GrpcSettings::keepalive_seconds, {10, 7200}, "seconds",
              "A connection on which nothing came for so long is asked whether it still is one, "
              "and closed without an answer within 20 s. Clients may ask every 10 s.");
  SettingGroup http(
      "http", [](auto& s) -> auto& { return s.http; });
  http.Add("listen", &HttpSettings::listen, Address(), "host:port",
           "Address of metrics, health, status pages as JSON and the API as JSON. Beyond loopback "
           "as grpc.listen.");
  SettingGroup tls(
      "tls", [](auto& s) -> auto& { return s.tls; });
  tls.Path("certificate_file", &TlsSettings::certificate_file, "(none)",
           "Certificate of this daemon in PEM, with those that lead to its authority; gRPC and "
           "HTTP then speak TLS. Read again when it has changed.")
      .Reloadable()
      .Path("key_file", &TlsSettings::key_file, "(none)",
            "Its private key in PEM, without a password.",
            "a path; the file's mode is 0640 or narrower")
      .Reloadable()
      .Path("client_ca_file", &TlsSettings::client_ca_file, "(none)",
            "Authorities in PEM that sign the certificates of clients. The common name of a "
            "verified certificate is the caller's name.")
      .Reloadable()
      .Add("client_role", &TlsSettings::client_role, OneOfWords({"viewer", "submitter", "admin"}),
           "",
           "Role of a client with a certificate whose name has no line cn:NAME in the tokens file.")
      .Reloadable();
  SettingGroup auth(
      "auth", [](auto& s) -> auto& { return s.auth; });
  auth.Path("tokens_file", &AuthSettings::tokens_file, "(none)",
            "Who may call, a line each, as genesisctl token prints it. Every call then needs a "
            "token or a client certificate. Read again when it has changed.",
            "a path; the file's mode is 0640 or narrower")
      .Reloadable()
      .Path("jwks_file", &AuthSettings::jwks_file, "(none)",
            "Public keys of an issuer of JWTs, as a JWK Set (RFC 7517). A JWT that one of them "
            "has signed with RS256 or ES256 is then a token. Read again when it has changed.")
      .Reloadable()
      .Text("jwt_issuer", &AuthSettings::jwt_issuer, JwtText(), "", "(none)",
            "The claim iss of accepted JWTs. Required with auth.jwks_file.")
      .Reloadable()
      .Text("jwt_audience", &AuthSettings::jwt_audience, JwtText(), "", "(none)",
            "The claim aud of accepted JWTs, alone or in its list. Required with auth.jwks_file.")
      .Reloadable()
      .Add("jwt_owner_claim", &AuthSettings::jwt_owner_claim, JwtText(), "",
           "Claim with the caller's name, which becomes jwt:NAME.")
      .Reloadable()
      .Add("jwt_role_claim", &AuthSettings::jwt_role_claim, JwtText(), "",
           "Claim with the caller's role, viewer, submitter or admin, alone or in a list; the "
           "highest counts. A line jwt:NAME ROLE of the tokens file takes precedence.")
      .Reloadable()
      .Flag(
          "own_jobs_only", &AuthSettings::own_jobs_only,
          "Whether callers below admin see only their own jobs, checkpoints, events and history.");
  SettingGroup audit(
      "audit", [](auto& s) -> auto& { return s.audit; });
  audit.Path("file", &AuditSettings::file, "<data_dir>/log/audit.log",
             "File to which a line of JSON is appended for every change and every refused call.");
  SettingGroup webhooks(
      "webhooks", [](auto& s) -> auto& { return s.webhooks; });
  webhooks
      .Path("file", &WebhookSettings::file, "(none)",
            "Endpoints that receive events of jobs as signed HTTP requests, in YAML; see "
            "docs/webhooks.md. Read again when it has changed.",
            "a path; the file's mode is 0640 or narrower")
      .Reloadable();
  return RowsOf(grpc, http, tls, auth, audit, webhooks);
}

}  // namespace genesis
