#include "trainer/checkpoint/shards.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files/sha256.h"
#include "base/text/field_error.h"
#include "base/text/text.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/state_layout.h"
#include "trainer/checkpoint/torch_archive.h"
#include "trainer/checkpoint/value_reader.h"
#include "trainer/formats/data_file.h"
#include "trainer/optim/share_by_size.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;

constexpr size_t kShaDigits = 64;
constexpr uint64_t kHashedPiece = uint64_t{1} << 20;

// Returns "<name>.pt.shard-" for the path .../<name>.pt.
std::string ShardPrefix(const std::string& path) {
  return fs::path(path).filename().string() + kShardInfix;
}

std::string Beside(const std::string& path, const std::string& name) {
  return (fs::path(path).parent_path() / name).string();
}

// Returns "" if `name` is a plain name of shard `rank` of `ranks` of `path`, otherwise the accepted
// form.
std::string NameFault(const std::string& path, const std::string& name, size_t rank, size_t ranks) {
  const std::string begin = absl::StrCat(ShardPrefix(path), rank, "-of-", ranks, "-");
  const std::string token = absl::StartsWith(name, begin) ? name.substr(begin.size()) : "";
  const bool plain = !token.empty() && std::all_of(token.begin(), token.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '-';
  });
  return plain ? "" : absl::StrCat(begin, "<letters and digits>, in the same folder");
}

// Returns the rank that owns each parameter.
std::vector<int> Owners(const TrainingState& state, int ranks) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < state.optimizer.parameters.size(); ++i) {
    sizes.push_back(state.model[i].second.numel());
  }
  return ShareBySize(sizes, ranks);
}

// Returns the rank that owns each parameter by name, including additional names.
std::map<std::string, int> OwnersByName(const TrainingState& state, int ranks) {
  const std::vector<int> owners = Owners(state, ranks);
  std::map<std::string, int> by_name;
  for (size_t i = 0; i < owners.size(); ++i) by_name[state.model[i].first] = owners[i];
  for (const auto& [name, of] : state.tied) {
    if (const auto found = by_name.find(of); found != by_name.end()) by_name[name] = found->second;
  }
  return by_name;
}

ValueDict* Find(Value& value, const std::string& key) {
  auto* const dict = std::get_if<ValueDict>(&value.held);
  if (dict == nullptr) return nullptr;
  for (DictItem& item : dict->items) {
    if (item.key == DictKey(key)) return std::get_if<ValueDict>(&item.value.held);
  }
  return nullptr;
}

template <typename Condition>
void KeepItems(ValueDict* dict, const Condition& kept) {
  if (dict == nullptr) return;
  std::erase_if(dict->items, [&](const DictItem& item) { return !kept(item); });
}

// Returns the optimizer's state of the parameters.
ValueDict* FindOptimizerState(Value& root) {
  auto* const dict = std::get_if<ValueDict>(&root.held);
  if (dict == nullptr) return nullptr;
  for (DictItem& item : dict->items) {
    if (item.key == DictKey(std::string("optimizer_state_dict"))) return Find(item.value, "state");
  }
  return nullptr;
}

Value Place(int64_t step, const ShardPlace& place) {
  ValueDict dict;
  dict.Add("step", step);
  dict.Add("rank", int64_t{place.rank});
  dict.Add("ranks", int64_t{place.ranks});
  dict.Add("token", place.token);
  return dict;
}

absl::StatusOr<std::string> HexOf(const std::string& path) {
  const absl::StatusOr<std::shared_ptr<const DataFile>> file = DataFile::Open(path);
  if (!file.ok()) return file.status();
  Sha256Stream stream;
  std::string piece(kHashedPiece, '\0');
  for (uint64_t done = 0; done < (*file)->size();) {
    const uint64_t count = std::min<uint64_t>(kHashedPiece, (*file)->size() - done);
    if (absl::Status s = (*file)->Read(done, count, piece.data()); !s.ok()) return s;
    stream.Add(std::string_view(piece).substr(0, count));
    done += count;
  }
  return stream.FinishHex();
}

// A merge of the shards' content into the places that the index leaves open.
class Merger {
 public:
  Merger(std::string path, Value& root) : path_(std::move(path)), root_(root) {}

  absl::Status Merge() {
    const ValueReader index(path_, root_);
    const ValueReader own = index.At("genesis");
    const std::vector<ValueReader> listed = own.At("shards").Items();
    step_ = own.At("step").Integer(0);
    token_ = own.At("shard_token").Text();
    std::vector<ShardFile> files;
    for (const ValueReader& entry : listed) {
      files.push_back({.name = entry.At("file").Text(),
                       .size = static_cast<uint64_t>(entry.At("size").Integer(0)),
                       .sha256 = entry.At("sha256").Text()});
    }
    if (!index.status().ok()) return index.status();
    if (absl::Status status = VerifyShards(path_, files); !status.ok()) return status;
    for (size_t i = 0; i < files.size(); ++i) {
      const std::string path = Beside(path_, files[i].name);
      absl::StatusOr<Value> shard = ReadTorchArchive(path);
      if (!shard.ok()) return shard.status();
      if (absl::Status status = Take(path, *shard, i, files.size()); !status.ok()) return status;
    }
    // Only an index has a list of shards, so remove it from the merged tree.
    KeepItems(Find(root_, "genesis"), [](const DictItem& item) {
      return item.key != DictKey(std::string("shards")) &&
             item.key != DictKey(std::string("shard_token"));
    });
    return absl::OkStatus();
  }

 private:
  absl::Status Take(const std::string& path, Value& shard, size_t rank, size_t ranks) {
    const ValueReader reader(path, shard);
    const ValueReader place = reader.At("shard");
    const int64_t step = place.At("step").Integer(0);
    const int64_t its_rank = place.At("rank").Integer(0);
    const int64_t its_ranks = place.At("ranks").Integer(1);
    const std::string token = place.At("token").Text();
    if (!reader.status().ok()) return reader.status();
    if (step != step_ || its_rank != static_cast<int64_t>(rank) ||
        its_ranks != static_cast<int64_t>(ranks) || token != token_) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": is shard ", its_rank, " of ", its_ranks, " of step ", step, ", written as ",
          QuoteValue(token), "; accepted: shard ", rank, " of ", ranks, " of step ", step_,
          ", written as ", QuoteValue(token_), ", which ", path_, " lists"));
    }
    for (const char* const key : {"model_state_dict", "ema_state_dict"}) {
      ValueDict* const to = Find(root_, key);
      const ValueDict* const from = Find(shard, key);
      if (from == nullptr) continue;
      if (absl::Status status = FillNone(path, key, *from, to); !status.ok()) return status;
    }
    ValueDict* const to = FindOptimizerState(root_);
    ValueDict* const from = FindOptimizerState(shard);
    if (from == nullptr) return absl::OkStatus();
    if (to == nullptr) return Unasked(path, "optimizer_state_dict", "state");
    for (DictItem& item : from->items) {
      const auto same = [&](const DictItem& each) { return each.key == item.key; };
      if (std::any_of(to->items.begin(), to->items.end(), same)) {
        return Unasked(path, "optimizer_state_dict", item.key);
      }
      to->items.push_back(item);
    }
    return absl::OkStatus();
  }

  absl::Status FillNone(const std::string& path, const char* dict, const ValueDict& from,
                        ValueDict* to) const {
    std::map<DictKey, Value*> places;
    if (to != nullptr) {
      for (DictItem& item : to->items) places.emplace(item.key, &item.value);
    }
    for (const DictItem& item : from.items) {
      const auto found = places.find(item.key);
      if (found == places.end() || found->second->As<std::monostate>() == nullptr) {
        return Unasked(path, dict, item.key);
      }
      *found->second = item.value;
    }
    return absl::OkStatus();
  }

  absl::Status Unasked(const std::string& path, const char* dict, const DictKey& key) const {
    const auto* const name = std::get_if<std::string>(&key);
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": entry ", dict, " has ",
                     name != nullptr ? QuoteValue(*name) : absl::StrCat(std::get<int64_t>(key)),
                     ", for which ", path_, " has no place; accepted: what that file lacks"));
  }

  const std::string path_;
  Value& root_;
  int64_t step_ = 0;
  std::string token_;
};

bool ListsShards(const Value& root) {
  const auto* const dict = root.As<ValueDict>();
  if (dict == nullptr) return false;
  for (const DictItem& item : dict->items) {
    const auto* const own = item.value.As<ValueDict>();
    if (item.key != DictKey(std::string("genesis")) || own == nullptr) continue;
    return std::any_of(own->items.begin(), own->items.end(), [](const DictItem& each) {
      return each.key == DictKey(std::string("shards"));
    });
  }
  return false;
}

}  // namespace

std::string ShardPath(const std::string& path, const ShardPlace& place) {
  return absl::StrCat(path, kShardInfix, place.rank, "-of-", place.ranks, "-", place.token);
}

std::vector<std::string> ShardNames(const std::string& path) {
  const std::string prefix = ShardPrefix(path);
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(fs::path(path).parent_path(), error)) {
    std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, prefix)) names.push_back(std::move(name));
  }
  return names;
}

void RemoveShards(const std::string& path, const std::vector<ShardFile>& kept) {
  std::set<std::string> names;
  for (const ShardFile& shard : kept) {
    names.insert(shard.name);
    names.insert(ManifestPath(shard.name));
  }
  for (const std::string& name : ShardNames(path)) {
    std::error_code error;
    if (!names.contains(name)) fs::remove(Beside(path, name), error);
  }
}

Value ShardTree(const TrainingState& state, const ShardPlace& place) {
  const std::map<std::string, int> owners = OwnersByName(state, place.ranks);
  const std::vector<int> by_number = Owners(state, place.ranks);
  Value whole = ToTree(state);
  const auto named = [&](const DictItem& item) {
    const auto found = owners.find(std::get<std::string>(item.key));
    return found != owners.end() && found->second == place.rank;
  };
  ValueDict root;
  root.Add("shard", Place(state.position.progress.step(), place));
  for (const char* const key : {"model_state_dict", "ema_state_dict"}) {
    ValueDict* const dict = Find(whole, key);
    if (dict == nullptr) continue;
    KeepItems(dict, named);
    dict->attributes.clear();
    root.Add(key, std::move(*dict));
  }
  ValueDict* const entries = FindOptimizerState(whole);
  KeepItems(entries, [&](const DictItem& item) {
    return by_number[static_cast<size_t>(std::get<int64_t>(item.key))] == place.rank;
  });
  ValueDict optimizer;
  optimizer.Add("state", std::move(*entries));
  root.Add("optimizer_state_dict", std::move(optimizer));
  return root;
}

Value IndexTree(const TrainingState& state, const ShardPlace& place,
                const std::vector<ShardFile>& shards) {
  const std::map<std::string, int> owners = OwnersByName(state, place.ranks);
  Value root = ToTree(state);
  for (const char* const key : {"model_state_dict", "ema_state_dict"}) {
    ValueDict* const dict = Find(root, key);
    if (dict == nullptr) continue;
    for (DictItem& item : dict->items) {
      if (owners.contains(std::get<std::string>(item.key))) item.value = Value();
    }
  }
  FindOptimizerState(root)->items.clear();
  ValueList list;
  for (const ShardFile& shard : shards) {
    ValueDict entry;
    entry.Add("file", shard.name);
    entry.Add("size", static_cast<int64_t>(shard.size));
    entry.Add("sha256", shard.sha256);
    list.emplace_back(std::move(entry));
  }
  ValueDict* const own = Find(root, "genesis");
  own->Add("shards", std::move(list));
  own->Add("shard_token", place.token);
  return root;
}

absl::Status VerifyShards(const std::string& path, const std::vector<ShardFile>& shards) {
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string accepted = NameFault(path, shards[i].name, i, shards.size());
    if (!accepted.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": lists shard ", i, " as ", QuoteValue(shards[i].name), "; accepted: ", accepted));
    }
  }
  for (const ShardFile& shard : shards) {
    const std::string file = Beside(path, shard.name);
    std::error_code error;
    const auto size = fs::file_size(file, error);
    if (error) {
      return absl::DataLossError(absl::StrCat(file, ": cannot be opened: ", error.message(), "; ",
                                              path, " lists it, with ", shard.size, " bytes"));
    }
    if (size != shard.size) {
      return absl::DataLossError(absl::StrCat(file, ": is ", size, " bytes long; ", path, " says ",
                                              shard.size, "; the file is damaged"));
    }
    const absl::StatusOr<std::string> hex = HexOf(file);
    if (!hex.ok()) return hex.status();
    if (*hex != shard.sha256) {
      return absl::DataLossError(absl::StrCat(file, ": has SHA-256 ", *hex, "; ", path, " says ",
                                              OneLine(shard.sha256, kShaDigits),
                                              "; the file is damaged"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> ReadTree(const std::string& path) {
  absl::StatusOr<Value> root = ReadTorchArchive(path);
  if (!root.ok() || !ListsShards(*root)) return root;
  if (absl::Status status = Merger(path, *root).Merge(); !status.ok()) return status;
  return root;
}

}  // namespace genesis
