// SPDX-License-Identifier: Apache-2.0
//
// The page as files over HTTP; tests/browser opens it.
#include "server/web_page.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>

#include "server/server_fixture.h"

namespace tessera::testing {
namespace {

class WebPageTest : public ServerTest {};

std::string Source(std::string_view name) {
  std::ifstream file(std::string(TESSERA_SOURCE_DIR "/web/").append(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(WebPage, EveryFileIsInTheProgramAsItIsInTheTree) {
  ASSERT_FALSE(kWebFiles.empty());
  for (const WebFile& file : kWebFiles) {
    const std::string source = Source(file.name);
    ASSERT_FALSE(source.empty()) << file.name;
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.bytes), file.size), source)
        << file.name;
  }
}

TEST(WebPage, AFileHasOneAddressAndNothingElseHasAny) {
  EXPECT_EQ(FindWebFile("/")->name, "index.html");
  EXPECT_EQ(FindWebFile("/web/page.js")->name, "page.js");
  for (const char* path : {"", "/web", "/web/", "/web/index.html", "/web/none", "/page.js",
                           "/web/../README.md", "//"}) {
    EXPECT_EQ(FindWebFile(path), nullptr) << path;
  }
}

// With it a script or style that is written into the page would not run: there must be none.
TEST(WebPage, ThePageHasNoScriptOrStyleOfItsOwn) {
  const std::string html = Source("index.html");
  EXPECT_FALSE(std::regex_search(html, std::regex("<style|style=|[ \n]on[a-z]+=|javascript:")));
  EXPECT_FALSE(std::regex_search(html, std::regex("<script(?![^>]*src=)")));
  EXPECT_FALSE(std::regex_search(html + Source("page.js") + Source("page.css"),
                                 std::regex("(src|href)=\"https?:|url\\(\"?https?:")));
}

TEST_F(WebPageTest, TheBrowserMayRunTheseFilesAloneAndAsksEachTime) {
  const RunningServer server(engine_.get());
  httplib::Client client = server.Client();
  for (const WebFile& file : kWebFiles) {
    const std::string path =
        file.name == "index.html" ? "/" : std::string("/web/").append(file.name);
    const httplib::Result first = client.Get(path);
    ASSERT_EQ(first->status, 200) << path;
    EXPECT_EQ(first->body.size(), file.size);
    const std::string policy = first->get_header_value("Content-Security-Policy");
    EXPECT_EQ(policy.find("default-src 'none'"), 0u);
    EXPECT_EQ(policy.find("unsafe"), std::string::npos);
    const httplib::Headers known = {{"If-None-Match", first->get_header_value("ETag")}};
    const httplib::Result second = client.Get(path, known);
    EXPECT_EQ(second->status, 304) << path;
    EXPECT_TRUE(second->body.empty());
    EXPECT_EQ(client.Get(path, {{"If-None-Match", "\"another\""}})->status, 200);
  }
  EXPECT_EQ(client.Get("/")->get_header_value("Content-Type"), "text/html; charset=utf-8");
  EXPECT_EQ(client.Post("/", "{}", "application/json")->status, 405);
}

TEST_F(WebPageTest, WithAKeyThePageIsOpenAndItsDataIsNot) {
  ApiOptions options;
  options.keys = *ApiKeys::Create({"secret"});
  const RunningServer server(engine_.get(), {}, options);
  httplib::Client client = server.Client();
  for (const char* path : {"/", "/web/page.js", "/web/page.css"}) {
    EXPECT_EQ(client.Get(path)->status, 200) << path;
  }
  for (const char* path : {"/cache", "/cache/entries", "/cache/pages", "/requests", "/web/none"}) {
    EXPECT_EQ(client.Get(path)->status, 401) << path;
  }
}

}  // namespace
}  // namespace tessera::testing
