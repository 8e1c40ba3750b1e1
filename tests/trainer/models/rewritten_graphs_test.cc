#include "trainer/models/exported/rewritten_graphs.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/temp_dir.h"
#include "trainer/formats/zip_archive.h"
#include "trainer/formats/zip_writer.h"

namespace genesis {
namespace {

constexpr char kGraph[] =
    R"({"nodes": [{"target": "torch.ops.aten.view.default"}, {"target": "torch.ops.aten.view.dtype"}, )"
    R"({"target": "torch.ops.aten.full.default", "device": {"type": "cpu", "index": null}}], )"
    R"("metadata": {"stack_trace": "in cpu, line 1"}})";

class RewrittenGraphsTest : public testing::Test {
 protected:
  RewrittenGraphsTest() { file_.path = folder_.path() + "/module.pt2"; }

  void Write() {
    std::ofstream out(file_.path, std::ios::binary);
    ZipWriter writer([&](const void* data, uint64_t size) {
      out.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
    });
    const std::string graph = kGraph;
    writer.Add("module/models/FP32.json", graph.data(), graph.size());
    writer.Add("module/archive_format", "pt2", 3);
    writer.Add("module/extra/tensors/0", "\"cpu\"", 5);
    writer.Finish();
  }

  TempDir folder_;
  ExportedFile file_;
};

TEST_F(RewrittenGraphsTest, DevicesAndOperatorsAreThoseOfCuda) {
  Write();
  const auto graphs = RewrittenGraphs::Make(file_, ForCuda);
  ASSERT_TRUE(graphs.ok()) << graphs.status();
  // The worker's reader does not follow links, such as those in /proc.
  const std::string copy = folder_.path() + "/copy.pt2";
  ASSERT_TRUE(graphs->has_value());
  std::filesystem::copy_file((*graphs)->path(), copy);
  const auto archive = ZipArchive::Open(copy);
  ASSERT_TRUE(archive.ok()) << archive.status();
  EXPECT_EQ(
      *archive->Read("module/models/FP32.json"),
      R"({"nodes": [{"target": "torch.ops.genesis.view.default"}, {"target": "torch.ops.aten.view.dtype"}, )"
      R"({"target": "torch.ops.aten.full.default", "device": {"type": "cuda", "index": null}}], )"
      R"("metadata": {"stack_trace": "in cpu, line 1"}})");
  EXPECT_EQ(*archive->Read("module/archive_format"), "pt2");
  EXPECT_FALSE(archive->Contains("module/extra/tensors/0"));
}

TEST_F(RewrittenGraphsTest, NoneAreMadeIfEveryGraphStays) {
  Write();
  const auto graphs = RewrittenGraphs::Make(file_, [](const std::string&) { return std::nullopt; });
  ASSERT_TRUE(graphs.ok()) << graphs.status();
  EXPECT_FALSE(graphs->has_value());
}

TEST_F(RewrittenGraphsTest, AFileThatIsGoneIsSaid) {
  EXPECT_EQ(RewrittenGraphs::Make(file_, ForCuda).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace genesis
