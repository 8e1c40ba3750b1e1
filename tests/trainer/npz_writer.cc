#include "tests/trainer/npz_writer.h"

#include <zlib.h>

#include <cmath>

#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

template <typename T>
void Put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

std::string RawDeflate(const std::string& plain) {
  std::string packed(compressBound(plain.size()) + 16, '\0');
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// Returns the fields from "version needed" to "extra length", which both headers contain.
std::string CommonHeader(const std::string& name, const std::string& plain,
                         const std::string& packed, bool deflate) {
  std::string header;
  Put<uint16_t>(header, 20);
  Put<uint16_t>(header, 0);
  Put<uint16_t>(header, deflate ? 8 : 0);
  Put<uint32_t>(header, 0);
  Put(header, static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(plain.data()),
                                          static_cast<uInt>(plain.size()))));
  Put(header, static_cast<uint32_t>(packed.size()));
  Put(header, static_cast<uint32_t>(plain.size()));
  Put(header, static_cast<uint16_t>(name.size()));
  Put<uint16_t>(header, 0);
  return header;
}

}  // namespace

std::string ZipBytes(const std::map<std::string, std::string>& records, bool deflate) {
  std::string file;
  std::string directory;
  for (const auto& [name, plain] : records) {
    const std::string packed = deflate ? RawDeflate(plain) : plain;
    const std::string common = CommonHeader(name, plain, packed, deflate);
    Put<uint32_t>(directory, 0x02014b50);
    Put<uint16_t>(directory, 20);
    directory += common;
    directory += std::string(10, '\0');
    Put(directory, static_cast<uint32_t>(file.size()));
    directory += name;
    Put<uint32_t>(file, 0x04034b50);
    file += common + name + packed;
  }
  const auto offset = static_cast<uint32_t>(file.size());
  file += directory;
  Put<uint32_t>(file, 0x06054b50);
  Put<uint32_t>(file, 0);
  Put(file, static_cast<uint16_t>(records.size()));
  Put(file, static_cast<uint16_t>(records.size()));
  Put(file, static_cast<uint32_t>(directory.size()));
  Put(file, offset);
  Put<uint16_t>(file, 0);
  return file;
}

std::string NpyBytes(const std::string& descr, const std::string& shape, const std::string& data,
                     const std::string& fortran_order) {
  const std::string header = absl::StrCat(
      "{'descr': '", descr, "', 'fortran_order': ", fortran_order, ", 'shape': ", shape, ", }\n");
  std::string bytes("\x93NUMPY\x01\x00", 8);
  Put(bytes, static_cast<uint16_t>(header.size()));
  return bytes + header + data;
}

std::map<std::string, std::string> SpiralRecords(int episodes, int length) {
  std::vector<float> observations, actions, rewards, next;
  std::vector<uint8_t> terminals, timeouts;
  for (int episode = 0; episode < episodes; ++episode) {
    float x = std::cos(static_cast<float>(episode));
    float y = std::sin(static_cast<float>(episode));
    for (int step = 0; step < length; ++step) {
      const float push = std::sin(static_cast<float>(7 * episode + 3 * step));
      observations.insert(observations.end(), {x, y});
      actions.push_back(push);
      rewards.push_back(x * x - y);
      const float turned_x = 0.98f * x - 0.1f * y + 0.05f * push;
      y = 0.1f * x + 0.98f * y;
      x = turned_x;
      next.insert(next.end(), {x, y});
      terminals.push_back(step + 1 == length && episode % 2 == 0);
      timeouts.push_back(step + 1 == length && episode % 2 == 1);
    }
  }
  const int rows = episodes * length;
  const std::string flat = absl::StrCat("(", rows, ",)");
  const std::string pairs = absl::StrCat("(", rows, ", 2)");
  return {{"observations.npy", NpyBytes("<f4", pairs, RawBytes(observations))},
          {"actions.npy", NpyBytes("<f4", absl::StrCat("(", rows, ", 1)"), RawBytes(actions))},
          {"rewards.npy", NpyBytes("<f4", flat, RawBytes(rewards))},
          {"next_observations.npy", NpyBytes("<f4", pairs, RawBytes(next))},
          {"terminals.npy", NpyBytes("|b1", flat, RawBytes(terminals))},
          {"timeouts.npy", NpyBytes("|b1", flat, RawBytes(timeouts))}};
}

}  // namespace genesis
