#include "server/webhooks/endpoints.h"

#include <curl/curl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/scalars.h"
#include "base/text/yaml_document.h"
#include "config/settings/token.h"
#include "server/auth/secret_file.h"
#include "server/webhooks/signature.h"

namespace genesis {
namespace {

using training::v1::JobEvent;

constexpr size_t kMaxEndpoints = 16;
constexpr size_t kMaxFilterTerms = 16;
constexpr char kKeys[] =
    "name, url, secret or secret_file, events, owner, labels and allow_private";
constexpr char kUrlRule[] =
    "an address such as https://example.org/hook, without user and password; http only with "
    "allow_private: true";
constexpr char kSecretRule[] =
    "whsec_ and the base64 of 24 to 64 random bytes, such as echo whsec_$(openssl rand -base64 32) "
    "prints";

// Returns the types sent by default: ends of jobs, precision changes, incidents, checkpoints.
const std::set<std::string>& DefaultTypes() {
  static const auto& types =
      *new std::set<std::string>{"job.succeeded",         "job.failed",   "job.cancelled",
                                 "job.precision_changed", "job.incident", "job.checkpoint_written"};
  return types;
}

// Returns the types of all events that are numbered.
const std::set<std::string>& AllTypes() {
  static const auto& types = *[] {
    auto* all = new std::set<std::string>;
    JobEvent event;
    const google::protobuf::EnumDescriptor& states = *training::v1::JobState_descriptor();
    for (int i = 0; i < states.value_count(); ++i) {
      if (states.value(i)->number() == training::v1::JOB_STATE_UNSPECIFIED) continue;
      event.mutable_state_changed()->set_to(
          static_cast<training::v1::JobState>(states.value(i)->number()));
      all->insert(EventType(event));
    }
    const google::protobuf::OneofDescriptor& kinds =
        *JobEvent::descriptor()->FindOneofByName("what");
    for (int i = 0; i < kinds.field_count(); ++i) {
      const std::string& kind = kinds.field(i)->name();
      if (kind != "state_changed" && kind != "log_line") all->insert(absl::StrCat("job.", kind));
    }
    return all;
  }();
  return types;
}

// The errors of one file.
class Faults {
 public:
  void Add(const YAML::Node& node, const std::string& path, std::string value,
           std::string accepted) {
    const Place place = PlaceOf(node);
    errors_.push_back({path, std::move(value), std::move(accepted), place.line, place.column});
  }
  std::vector<FieldError>& errors() { return errors_; }

 private:
  std::vector<FieldError> errors_;
};

// A reader of one entry. `at`: "endpoints[0]".
class EntryReader {
 public:
  EntryReader(const YAML::Node& entry, std::string at, Faults& faults)
      : entry_(entry), at_(std::move(at)), faults_(faults) {}

  WebhookEndpoint Read() {
    WebhookEndpoint endpoint;
    if (!entry_.IsMap()) {
      faults_.Add(entry_, at_, DescribeYaml(entry_), absl::StrCat("a group with ", kKeys));
      return endpoint;
    }
    std::set<std::string> given;
    for (const auto& each : entry_) {
      CheckKey(each.first);
      if (each.first.IsScalar() && !given.insert(each.first.Scalar()).second) {
        Fault(each.first, each.first.Scalar().c_str(), "given twice", "one value; keep one");
      }
    }
    ReadName(endpoint);
    if (const auto value = Node("allow_private")) {
      const std::optional<bool> allowed = ParseBool(value->IsScalar() ? value->Scalar() : "");
      if (!allowed) Fault(*value, "allow_private", DescribeYaml(*value), "true or false");
      endpoint.allow_private = allowed.value_or(false);
    }
    ReadUrl(endpoint);
    ReadKey(endpoint);
    ReadTypes(endpoint);
    ReadFilter(endpoint.filter);
    return endpoint;
  }

 private:
  void CheckKey(const YAML::Node& key) {
    const std::string name = key.IsScalar() ? key.Scalar() : "";
    for (const char* known :
         {"name", "url", "secret", "secret_file", "events", "owner", "labels", "allow_private"}) {
      if (name == known) return;
    }
    faults_.Add(key, at_, absl::StrCat("a group with the key ", DescribeYaml(key)), kKeys);
  }

  std::optional<YAML::Node> Node(const char* key) const {
    YAML::Node node = entry_[key];
    return node.IsDefined() ? std::optional(node) : std::nullopt;
  }

  void Fault(const YAML::Node& node, const char* key, std::string value, std::string accepted) {
    faults_.Add(node, absl::StrCat(at_, ".", key), std::move(value), std::move(accepted));
  }

  // Returns the text of a key; nullopt if it is missing or, after adding an error, not text.
  std::optional<std::string> Text(const char* key) {
    const auto node = Node(key);
    if (!node) return std::nullopt;
    if (node->IsScalar() && !node->Scalar().empty()) return node->Scalar();
    Fault(*node, key, DescribeYaml(*node), "text");
    return std::nullopt;
  }

  void ReadName(WebhookEndpoint& endpoint) {
    endpoint.name = Text("name").value_or("");
    if (IsCallerName(endpoint.name)) return;
    Fault(Node("name").value_or(entry_), "name", QuoteValue(endpoint.name), kCallerNameRule);
  }

  // Reads the URL. It may hold a secret, so errors do not quote it.
  void ReadUrl(WebhookEndpoint& endpoint) {
    endpoint.url = Text("url").value_or("");
    const std::unique_ptr<CURLU, void (*)(CURLU*)> url(curl_url(), &curl_url_cleanup);
    const auto part = [&](CURLUPart which) {
      char* found = nullptr;
      std::string text;
      if (curl_url_get(url.get(), which, &found, 0) == CURLUE_OK) text = found;
      curl_free(found);
      return text;
    };
    const bool parsed = curl_url_set(url.get(), CURLUPART_URL, endpoint.url.c_str(),
                                     CURLU_DISALLOW_USER) == CURLUE_OK;
    const std::string scheme = part(CURLUPART_SCHEME);
    if (!parsed || (scheme != "https" && !(scheme == "http" && endpoint.allow_private))) {
      Fault(Node("url").value_or(entry_), "url", "not usable", kUrlRule);
      return;
    }
    const std::string port = part(CURLUPART_PORT);
    endpoint.origin =
        absl::StrCat(scheme, "://", part(CURLUPART_HOST), port.empty() ? "" : ":", port);
  }

  void ReadKey(WebhookEndpoint& endpoint) {
    const std::optional<std::string> file = Text("secret_file");
    std::optional<std::string> secret = Text("secret");
    const char* key = file ? "secret_file" : "secret";
    if (file.has_value() == secret.has_value()) {
      Fault(entry_, "secret", file ? "given twice" : "missing", "one of secret and secret_file");
      return;
    }
    if (file) {
      absl::StatusOr<std::string> text = ReadSecretFile(absl::StrCat(at_, ".secret_file"), *file);
      if (!text.ok()) {
        const Place place = PlaceOf(*Node(key));
        faults_.errors().push_back(
            {"", "", std::string(text.status().message()), place.line, place.column});
        return;
      }
      secret = *std::move(text);
    }
    const std::optional<std::string> parsed =
        ParseWebhookSecret(std::string(absl::StripAsciiWhitespace(*secret)));
    if (!parsed) Fault(*Node(key), key, "not a secret", kSecretRule);
    endpoint.key = parsed.value_or("");
  }

  void ReadTypes(WebhookEndpoint& endpoint) {
    const auto list = Node("events");
    endpoint.types = list ? std::set<std::string>() : DefaultTypes();
    if (!list) return;
    if (!list->IsSequence() || list->size() == 0) {
      Fault(*list, "events", DescribeYaml(*list), "a list of " + absl::StrJoin(AllTypes(), ", "));
      return;
    }
    for (const YAML::Node& each : *list) {
      const std::string type = each.IsScalar() ? each.Scalar() : "";
      if (AllTypes().contains(type)) {
        endpoint.types.insert(type);
      } else {
        Fault(each, "events", DescribeYaml(each), absl::StrJoin(AllTypes(), ", "));
      }
    }
  }

  void ReadFilter(EventQuery& filter) {
    filter.owner = Text("owner").value_or("");
    const auto labels = Node("labels");
    if (!labels) return;
    if (!labels->IsMap() || labels->size() > kMaxFilterTerms) {
      Fault(*labels, "labels",
            labels->IsMap() ? absl::StrCat(labels->size(), " labels") : DescribeYaml(*labels),
            absl::StrCat("at most ", kMaxFilterTerms, " pairs of key: value"));
      return;
    }
    for (const auto& each : *labels) {
      if (each.second.IsScalar()) {
        filter.labels[each.first.Scalar()] = each.second.Scalar();
      } else {
        Fault(each.first, "labels", DescribeYaml(each.second), "pairs of key: value");
      }
    }
  }

  const YAML::Node entry_;
  const std::string at_;
  Faults& faults_;
};

}  // namespace

absl::StatusOr<std::vector<WebhookEndpoint>> ParseWebhooks(const std::string& text,
                                                           const std::string& path) {
  Faults faults;
  std::vector<WebhookEndpoint> endpoints;
  const std::optional<YAML::Node> root = LoadYamlMapping(text, faults.errors());
  if (!root) return ToStatus(faults.errors(), path);
  const YAML::Node list = root->IsMap() ? (*root)["endpoints"] : YAML::Node(YAML::NodeType::Null);
  const bool is_list = list.IsDefined() && list.IsSequence();
  if (!is_list || root->size() != 1 || list.size() > kMaxEndpoints) {
    faults.Add(is_list ? list : *root, "endpoints",
               is_list && root->size() == 1 ? absl::StrCat(list.size(), " entries")
                                            : "not the only key, or not a list",
               absl::StrCat("one list of at most ", kMaxEndpoints, " endpoints"));
    return ToStatus(faults.errors(), path);
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string at = absl::StrCat("endpoints[", i, "]");
    WebhookEndpoint endpoint = EntryReader(list[i], at, faults).Read();
    const bool twice = std::any_of(endpoints.begin(), endpoints.end(),
                                   [&](const auto& other) { return other.name == endpoint.name; });
    if (twice && !endpoint.name.empty()) {
      faults.Add(list[i], at + ".name", QuoteValue(endpoint.name), "a name of one endpoint only");
    }
    endpoints.push_back(std::move(endpoint));
  }
  if (!faults.errors().empty()) return ToStatus(faults.errors(), path);
  return endpoints;
}

absl::StatusOr<std::vector<WebhookEndpoint>> LoadWebhooks(const std::string& path) {
  if (path.empty()) return std::vector<WebhookEndpoint>();
  const absl::StatusOr<std::string> text = ReadSecretFile("webhooks.file", path);
  if (!text.ok()) return text.status();
  return ParseWebhooks(*text, path);
}

}  // namespace genesis
