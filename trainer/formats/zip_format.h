#pragma once

#include <cstdint>

// Constants of the zip format that its reader and its writer share (APPNOTE.TXT 6.3.10).
namespace genesis::zip {

inline constexpr uint32_t kLocalHeader = 0x04034b50;
inline constexpr uint32_t kDirectoryHeader = 0x02014b50;
inline constexpr uint32_t kEndOfDirectory = 0x06054b50;
inline constexpr uint32_t kEndOfDirectory64 = 0x06064b50;
inline constexpr uint32_t kLocator64 = 0x07064b50;
inline constexpr uint16_t kZip64Extra = 1;
inline constexpr uint64_t kLocalHeaderSize = 30;
// Placeholders in fields whose actual value is in the zip64 extra field or zip64 end record.
inline constexpr uint64_t kFull32 = 0xFFFFFFFF;
inline constexpr uint64_t kFull16 = 0xFFFF;

}  // namespace genesis::zip
