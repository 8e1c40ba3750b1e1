#include "base/text/yaml_document.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/text/utf8.h"
#include "yaml-cpp/depthguard.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/parser.h"

namespace genesis {
namespace {

constexpr size_t kLargestFile = 1 << 20;

absl::Status OpenError(const std::string& path) {
  if (errno == ENOENT || errno == ENOTDIR) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file; check the path"));
  }
  if (errno == EACCES || errno == EPERM) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": may not be read; give this user read permission"));
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::strerror(errno)));
}

FieldError WholeFileFault(std::string sentence, Place place = {}) {
  FieldError error;
  error.accepted = std::move(sentence);
  error.line = place.line;
  error.column = place.column;
  return error;
}

bool CheckUtf8(const std::string& text, std::vector<FieldError>& errors) {
  Place place{.line = 1, .column = 1};
  for (size_t at = 0; at < text.size();) {
    const size_t length = Utf8Length(text, at);
    if (length == 0) {
      errors.push_back(WholeFileFault("not UTF-8 text; save the file as UTF-8", place));
      return false;
    }
    place = text[at] == '\n' ? Place{.line = place.line + 1, .column = 1}
                             : Place{.line = place.line, .column = place.column + 1};
    at += length;
  }
  return true;
}

// An event handler that records where a document starts and ignores everything else.
class DocumentStart : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override { mark_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
  const YAML::Mark& mark() const { return mark_; }

 private:
  YAML::Mark mark_;
};

// Returns the only document of `text`, or nullopt after adding an error. YAML::LoadAll is not used:
// on text that begins with a stray ',' it creates empty documents until memory runs out.
std::optional<YAML::Node> LoadOnlyDocument(const std::string& text,
                                           std::vector<FieldError>& errors) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStart first, second;
  if (!parser.HandleNextDocument(first)) return YAML::Node();
  if (!parser.HandleNextDocument(second)) return YAML::Load(text);
  const Place place{.line = second.mark().line + 1, .column = second.mark().column + 1};
  const bool stuck = second.mark().pos == first.mark().pos;
  errors.push_back(
      WholeFileFault(stuck ? "not readable as YAML: no key or value begins here"
                           : "holds more than one YAML document; accepted: one (remove \"---\")",
                     place));
  return std::nullopt;
}

}  // namespace

Place PlaceOf(const YAML::Node& node) {
  const YAML::Mark mark = node.Mark();
  return {.line = mark.line + 1, .column = mark.column + 1};
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (file == nullptr) return OpenError(path);
  std::string text(kLargestFile + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return OpenError(path);
  if (text.size() > kLargestFile) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": larger than 1 MiB; accepted: a YAML file of at most 1 MiB"));
  }
  return text;
}

std::optional<YAML::Node> LoadYamlMapping(const std::string& text,
                                          std::vector<FieldError>& errors) {
  if (!CheckUtf8(text, errors)) return std::nullopt;
  YAML::Node root;
  try {
    std::optional<YAML::Node> document = LoadOnlyDocument(text, errors);
    if (!document.has_value()) return std::nullopt;
    root = *document;
  } catch (const YAML::DeepRecursion&) {
    errors.push_back(WholeFileFault("not readable as YAML: nested too deeply"));
    return std::nullopt;
  } catch (const YAML::Exception& e) {
    errors.push_back(WholeFileFault(absl::StrCat("not readable as YAML: ", e.msg),
                                    {.line = e.mark.line + 1, .column = e.mark.column + 1}));
    return std::nullopt;
  }
  if (!root.IsMap() && !root.IsNull()) {
    errors.push_back(WholeFileFault(absl::StrCat("the file is ", DescribeYaml(root),
                                                 "; accepted: keys and values (key: value)"),
                                    PlaceOf(root)));
    return std::nullopt;
  }
  return root;
}

std::string DescribeYaml(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return QuoteValue(node.Scalar());
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "a group of keys";
    default:
      return "empty";
  }
}

}  // namespace genesis
