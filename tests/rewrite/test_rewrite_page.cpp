// The C++ lines of docs/rewrite.md, as CMakeLists.txt finds them there.

#include <torch/csrc/jit/serialization/import.h>
#include <unistd.h>
#include <warpfuse/rewrite.h>

#include <filesystem>
#include <string>

#include "support/catch.h"
#include "support/errors.h"

namespace {

namespace fs = std::filesystem;

// A folder with the file that the page loads, which is the current one until the scope ends.
class FolderOfPage {
 public:
  explicit FolderOfPage(int softmaxes) {
    fs::create_directories(folder_);
    fs::current_path(folder_);
    torch::jit::Module module("Model");
    std::string code = "def forward(self, x):\n";
    for (int i = 0; i < softmaxes; ++i) {
      code += "    x = torch.softmax(x, -1)\n";
    }
    module.define(code + "    return x\n");
    module.save("gpt2.pt");
  }
  ~FolderOfPage() {
    std::error_code ignored;
    fs::current_path(before_, ignored);
    fs::remove_all(folder_, ignored);
  }
  FolderOfPage(const FolderOfPage&) = delete;
  FolderOfPage& operator=(const FolderOfPage&) = delete;

 private:
  fs::path before_ = fs::current_path();
  fs::path folder_ = fs::temp_directory_path() / ("warpfuse-page-" + std::to_string(getpid()));
};

std::string graph_of_page() {
#include WARPFUSE_REWRITE_PAGE
  return module.get_method("forward").graph()->toString();
}

TEST_CASE("the lines of the page rewrite a model of twelve layers", "[rewrite]") {
  const FolderOfPage folder(12);
  const std::string graph = graph_of_page();
  CHECK(graph.find("warpfuse::softmax") != std::string::npos);
  CHECK(graph.find("aten::softmax") == std::string::npos);
}

TEST_CASE("the lines of the page refuse a model of eleven", "[rewrite]") {
  const FolderOfPage folder(11);
  CHECK(error_of(graph_of_page) == "Error: 12 softmax calls expected, 11 routed");
}

}  // namespace
