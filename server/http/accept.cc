#include "server/http/accept.h"

#include <zlib.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace genesis {
namespace {

// One item of a header's list, e.g. "text/plain;version=0.0.4;q=0.5".
struct Choice {
  std::string name;  // Lower case.
  std::map<std::string, std::string> parameters = {};
  double quality = 1;
};

std::string Word(absl::string_view text) {
  return absl::AsciiStrToLower(absl::StripAsciiWhitespace(text));
}

std::vector<Choice> ReadChoices(const std::string& header) {
  std::vector<Choice> choices;
  for (const absl::string_view part : absl::StrSplit(header, ',')) {
    const std::vector<std::string> fields = absl::StrSplit(part, ';');
    Choice choice{.name = Word(fields.front())};
    for (size_t i = 1; i < fields.size(); ++i) {
      const std::pair<std::string, std::string> pair =
          absl::StrSplit(fields[i], absl::MaxSplits('=', 1));
      choice.parameters[Word(pair.first)] = Word(pair.second);
    }
    const auto quality = choice.parameters.find("q");
    if (quality != choice.parameters.end() && !absl::SimpleAtod(quality->second, &choice.quality)) {
      choice.quality = 0;
    }
    choices.push_back(std::move(choice));
  }
  return choices;
}

}  // namespace

bool PrefersOpenMetrics(const std::string& accept) {
  double open_metrics = 0, text = 0;
  for (const Choice& choice : ReadChoices(accept)) {
    const auto version = choice.parameters.find("version");
    const std::string wanted = version == choice.parameters.end() ? "" : version->second;
    if (choice.name == "application/openmetrics-text" && (wanted.empty() || wanted == "1.0.0")) {
      open_metrics = std::max(open_metrics, choice.quality);
    } else if (choice.name == "text/plain") {
      text = std::max(text, choice.quality);
    }
  }
  return open_metrics > 0 && open_metrics >= text;
}

bool AcceptsHtml(const std::string& accept) {
  double html = 0, text = 0;
  for (const Choice& choice : ReadChoices(accept)) {
    if (choice.name == "text/html") html = std::max(html, choice.quality);
    if (choice.name == "text/plain") text = std::max(text, choice.quality);
  }
  return html > 0 && html >= text;
}

bool AcceptsGzip(const std::string& accept_encoding) {
  double gzip = -1, any = 0;
  for (const Choice& choice : ReadChoices(accept_encoding)) {
    if (choice.name == "gzip") gzip = choice.quality;
    if (choice.name == "*") any = choice.quality;
  }
  return gzip >= 0 ? gzip > 0 : any > 0;
}

std::optional<std::string> Gzip(const std::string& body) {
  constexpr int kWindowBits = 15, kGzipHeader = 16, kMemoryLevel = 8;
  z_stream stream{};
  // Speed matters more than size, because a scrape is waiting.
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kWindowBits + kGzipHeader, kMemoryLevel,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return std::nullopt;
  }
  std::string compressed(deflateBound(&stream, body.size()), '\0');
  stream.next_in =
      reinterpret_cast<Bytef*>(const_cast<char*>(body.data()));  // NOLINT: zlib only reads it.
  stream.avail_in = static_cast<uInt>(body.size());
  stream.next_out = reinterpret_cast<Bytef*>(compressed.data());
  stream.avail_out = static_cast<uInt>(compressed.size());
  const int result = deflate(&stream, Z_FINISH);
  compressed.resize(stream.total_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) return std::nullopt;
  return compressed;
}

}  // namespace genesis
